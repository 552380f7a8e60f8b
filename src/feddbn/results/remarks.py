"""What a fit says about itself: what was done to the rows, what residuals contradict, what could be hidden."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.constraints import EdgeConstraints
from feddbn.core.orders.hidden import HiddenDoubts
from feddbn.core.statistics.diagnostics import edge_robustness
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.survey import SMALL_MEAN, SPREAD, looks_binary
from feddbn.federation.programs.alone import Alone
from feddbn.federation.programs.residual_checks import FEWEST_COMPLETE, FittedNetwork, ResidualReport
from feddbn.federation.protocol.rows import Treatment
from feddbn.federation.protocol.site import notes_of
from feddbn.federation.protocol.task import Federation
from feddbn.federation.sums.survey import Survey
from feddbn.federation.sums.treatment import AskedMoments
from feddbn.findings import Finding, Level, together
from feddbn.model.dbn import DBN
from feddbn.model.nodes import known
from feddbn.shown import Shown
from feddbn.words import say

__all__ = [
    "ALONE",
    "DISCOVERIES",
    "GRAVE",
    "HIDDEN",
    "ResidualSummary",
    "alone_finding",
    "are_looked_at",
    "fitted_network",
    "hidden_findings",
    "hidden_table",
    "kind_findings",
    "kinds_lose",
    "kinds_seen",
    "loses_rows",
    "not_looked_at",
    "of_site",
    "residual_findings",
    "site_notes",
    "summarise",
    "treatment_findings",
    "treatment_summary",
]


ALONE = "alone"
"""Code of what says for how many sites a network is better than their own."""
DISCOVERIES = "discoveries"
"""Code of what says how many edges are discoveries, and what share of them may be false."""
GRAVE = ("hidden", "memory", "dependence", "curvature")
"""Violations by which edges may stand for something else."""
_WARNED = (*GRAVE, "change")

HIDDEN = ("source", "target", "lag", "robustness", "could_be_hidden")


@dataclass(frozen=True)
class ResidualSummary(Shown):
    """What the residuals of a network say; p-values are those of the assumption, sizes those of the worst variable.

    Attributes
    ----------
    violations
        What contradicts the model in the network as reported: "hidden" (hidden causes explain more than edges do), "memory"
        (residuals go along with earlier ones), "dependence" (with others of the same row), "volatility" (their variance
        changes from row to row), "thirds" (over the recordings), "spread" (between recordings), "tails" (heavy),
        "curvature" (effects are not straight lines), "change" (effects change over time).
    acted_on
        What was found first and taken care of: "memory", "volatility".
    n_rows, n_effective
        Rows, and how many of them the evidence is worth.
    autocorrelation, echo, memory_p
        Largest correlation of a residual with itself a row before; z-score of what is left of the network's own effects
        one lag beyond it; p-value of both.
    noise_memory
        Share of the noise that stays from row to row and was taken off; None if none was.
    n_lags_added, lag_gain
        Lags added, and by how much the score falls with one lag more (None if not looked at).
    dependence, dependence_p
        Largest correlation of two residuals of one row.
    arch, inflation, volatility_p
        Largest correlation of a squared residual with itself a row before; factor by which evidence was overstated.
    variance_ratio, thirds_p
        Largest ratio of the variances in two thirds of the recordings.
    spread, spread_p
        Largest standard deviation of the logarithm of the recordings' variances.
    kurtosis, tails_p
        Largest kurtosis; 3 for a Gaussian.
    looked_only
        Whether the network stays as it is, whatever was found.
    hidden_causes, hidden_gain
        For each hidden cause that explains more than edges the variables on which it acts; by how much the score is better.
    curvature_p
        That effects are straight lines; 1 if that was not looked at.
    changes
        The effects that change over time: source, target, lag, weight in the first and in the second half of the recordings,
        evidence (an e-value).
    """

    violations: tuple[str, ...]
    acted_on: tuple[str, ...]
    n_rows: int
    n_effective: float
    autocorrelation: float
    echo: float
    memory_p: float
    noise_memory: float | None
    n_lags_added: int
    lag_gain: float | None
    dependence: float
    dependence_p: float
    arch: float
    inflation: float
    volatility_p: float
    variance_ratio: float
    thirds_p: float
    spread: float
    spread_p: float
    kurtosis: float
    tails_p: float
    looked_only: bool = False
    hidden_causes: tuple[tuple[str, ...], ...] = ()
    hidden_gain: float = 0.0
    curvature_p: float = 1.0
    changes: tuple[tuple[str, str, int, float, float, float], ...] = ()


def are_looked_at(wanted: bool | str, federation: Federation, *, by_default: bool = True) -> bool:
    """Whether a fit looks at its residuals; "auto" does where sites answer such questions, if it is done `by_default`."""
    tasks = federation.answered_tasks
    if wanted != "auto":
        return bool(wanted)
    return by_default and (tasks is None or "residuals.checks" in tasks)


def alone_finding(found: Alone, n_sites: int, center: str = "") -> Finding:
    """For how many sites the network is better than their own; red where it is worse for half of them or more."""
    n = found.better + found.equal + found.worse
    values = {"better": found.better, "equal": found.equal, "worse": found.worse, "untold": n_sites - n}
    level: Level = "good" if not found.worse else "error" if 2 * found.worse >= n else "warning"
    if not n:
        return Finding(ALONE, "unknown", {**values, "why": "tasks" if found.is_refused else "rows"})
    about = tuple(name for name, one in found.sites.items() if one.sign < 0)
    # Where the data decided, they have said that recordings have one level.
    cure = {"prepare.center": "recording"} if center == "none" and found.worse else {}
    return Finding(ALONE, level, values, about, cure)


def fitted_network(
    dbn: DBN,
    constraints: EdgeConstraints,
    inputs: tuple[int, ...],
    center: str,
    treatment: Treatment,
    asked: AskedMoments | None,
) -> FittedNetwork:
    """A network as a look at its residuals needs it."""
    is_own = center == "recording"
    return FittedNetwork(
        tuple(dbn.variables),
        np.concatenate([dbn.W, *dbn.A]),
        known(dbn.noise_variances, "noise_variances"),
        constraints,
        inputs,
        "recording" if is_own else "none",
        treatment,
        asked,
    )


def not_looked_at(report: ResidualReport) -> list[Finding]:
    """That residuals could not be looked at, and the hidden causes that moments show all the same."""
    found = [
        Finding("residuals-not-looked-at", "unknown", {"n": report.n_complete, "fewest": FEWEST_COMPLETE})
    ]
    if report.hidden:
        hidden = {"causes": [list(one) for one in report.hidden], "gain": report.hidden_gain}
        found.append(Finding("residuals", "warning", {"violations": ["hidden"], "hidden": hidden}))
    return found


def summarise(report: ResidualReport, names: Sequence[str]) -> ResidualSummary | None:
    """Return the numbers of a report that people read, given the names of the variables; None if it has none."""
    checks, d = report.checks, len(names)
    if checks is None:
        return None
    ratio = checks.thirds.max(axis=0) / np.maximum(checks.thirds.min(axis=0), 1e-12)
    acted_on = ["memory"] if report.noise_memory is not None or report.n_lags_added else []
    is_tempered = "volatility" in report.left and checks.inflation > 1 and not report.looked_only
    acted_on += ["volatility"] if is_tempered else []
    return ResidualSummary(
        violations=report.left,
        acted_on=tuple(acted_on),
        # Rows with empty cells count for what they hold, so the evidence may be worth more rows than are complete.
        n_rows=round(checks.n if report.n_effective <= checks.n else report.n_effective * checks.inflation),
        n_effective=report.n_effective,
        autocorrelation=float(checks.autocorrelation[np.abs(checks.autocorrelation).argmax()]),
        echo=float(checks.echo[-1]) if len(checks.echo) else 0.0,
        memory_p=checks.memory_p,
        noise_memory=report.noise_memory,
        n_lags_added=report.n_lags_added,
        lag_gain=report.lag_gain,
        dependence=checks.dependence,
        dependence_p=checks.dependence_p,
        arch=float(checks.arch.max()),
        inflation=checks.inflation,
        volatility_p=checks.volatility_p,
        variance_ratio=float(ratio.max()),
        thirds_p=checks.thirds_p,
        spread=float(checks.spread.max()),
        spread_p=checks.spread_p,
        kurtosis=float(checks.kurtosis.max()),
        tails_p=checks.tails_p,
        looked_only=report.looked_only,
        hidden_causes=report.hidden,
        hidden_gain=report.hidden_gain,
        curvature_p=checks.curvature_p,
        changes=tuple(
            (names[one.source % d], names[one.target], one.source // d, one.first, one.second, one.evidence)
            for one in checks.changes
        ),
    )


def residual_findings(summary: ResidualSummary, n_lags: int) -> list[Finding]:
    """One finding for memory that was taken care of, and one for all violations that are left, the gravest first.

    The second has the names as ``values["violations"]`` and the numbers of each under its name.
    """
    s, found = summary, []
    if "memory" in s.acted_on and s.noise_memory is None:
        found.append(Finding("lag-added", "note", {"n_lags": n_lags, "gain": s.lag_gain or 0.0}))
    elif "memory" in s.acted_on:
        cure = {"check_residuals": False}
        found.append(Finding("noise-memory-removed", "note", {"memory": s.noise_memory}, cure=cure))
    memory = {
        "autocorrelation": s.autocorrelation,
        "echo": s.echo,
        "p": s.memory_p,
        "n_lags": n_lags,
        "lag_gain": s.lag_gain,
        "looked_only": s.looked_only,
    }
    rows = {"n_effective": s.n_effective, "n_rows": s.n_rows, "looked_only": s.looked_only}
    values: dict[str, Mapping[str, Any]] = {
        "hidden": {"causes": [list(one) for one in s.hidden_causes], "gain": s.hidden_gain},
        "memory": memory,
        "dependence": {"correlation": s.dependence, "p": s.dependence_p},
        "volatility": {"correlation": s.arch, "p": s.volatility_p, **rows},
        "thirds": {"ratio": s.variance_ratio, "p": s.thirds_p},
        "spread": {"spread": s.spread, "p": s.spread_p},
        "tails": {"kurtosis": s.kurtosis, "p": s.tails_p},
        "curvature": {"p": s.curvature_p},
        "change": {"edges": [list(one) for one in s.changes]},
    }
    left = sorted(s.violations, key=lambda name: name not in _WARNED)
    if left:
        level: Level = "warning" if left[0] in _WARNED else "note"
        found.append(
            Finding("residuals", level, {"violations": left, **{name: values[name] for name in left}})
        )
    return found


def hidden_table(dbn: DBN, moments: Moments | None, doubts: HiddenDoubts | None) -> pd.DataFrame:
    """One line per edge: how strong a hidden cause would have to be, and whether hidden causes explain it as well.

    ``robustness`` is the share of what is left of both the source and the target that a hidden common cause would have to
    explain to bring the effect to nothing (Cinelli and Hazlett 2020); NaN without moments. ``could_be_hidden`` is None where
    it was not looked at.
    """
    d, names = dbn.d, dbn.variables
    support = np.concatenate([dbn.W, *dbn.A]) != 0
    strength = np.full(support.shape, np.nan) if moments is None else edge_robustness(moments, support)
    rows = [
        (
            names[m % d],
            names[j],
            int(m // d),
            float(strength[m, j]),
            None if doubts is None else bool(doubts.in_doubt[m, j]),
        )
        for m, j in np.argwhere(support)
    ]
    return pd.DataFrame(rows, columns=list(HIDDEN))


def hidden_findings(table: pd.DataFrame, doubts: HiddenDoubts | None, names: Sequence[str]) -> list[Finding]:
    """Which edges of a `hidden_table` hidden causes could stand for."""
    doubted = table[table["could_be_hidden"].eq(True)]
    if doubts is None or not len(doubted):
        return []
    values = {
        "edges": doubted[["source", "target", "lag"]].to_numpy().tolist(),
        "n_edges": len(table),
        "causes": [[names[j] for j in one] for one in doubts.effects],
        "gain": float(doubts.gain),
    }
    return [Finding("could-be-hidden", "warning", values)]


def treatment_summary(asked: AskedMoments, variables: Sequence[str]) -> dict[str, Any]:
    """What was done to the rows and why, as plain values."""
    done, survey = asked.treatment, asked.survey
    return {
        "center": done.center,
        "degree": done.degree,
        "periods": list(done.periods),
        "evidence": asked.evidence,
        "own_shares": _own_shares(asked, variables),
        "gains": "none" if done.log_scales is None else "site",
        "gains_evidence": asked.gains_evidence,
        "robust": done.robust,
        "bounded": {} if survey is None else {variables[i]: round(survey.n_far[i]) for i in asked.bounded},
        "missing": "drop" if done.row_model is None else "fill",
        "n_empty_cells": None if survey is None else int(survey.n_empty),
        "n_rows": None if survey is None else int(survey.n_rows),
        "n_used": round(asked.n_rows),
        "n_effective": float(asked.moments.n),
        "unseen_pairs": [[variables[i], variables[j], lag] for i, j, lag in asked.unseen],
        "n_disagreeing": asked.n_disagreeing,
        "n_slower": asked.n_slower,
        "left_out": asked.n_disagreeing if done.abstain else 0,
        "exogenous": list(asked.inputs),
        "cell_maps": list(done.cell_maps),
    }


def _own_shares(asked: AskedMoments, variables: Sequence[str]) -> dict[str, float]:
    found = asked.own_shares
    return {} if found is None else dict(zip(variables, found.tolist(), strict=True))


def treatment_findings(
    asked: AskedMoments, variables: Sequence[str], *, one_network: bool = True
) -> list[Finding]:
    """What was done to the rows, in one finding, each part with the setting that decides otherwise; then what is wrong.

    Sites that do not fit and stay in the sums make `one_network` for all wrong: that is an error.
    """
    done, survey, found = asked.treatment, asked.survey, []

    def named(places: Sequence[int]) -> tuple[str, ...]:
        return tuple(variables[i] for i in places)

    def note(
        code: str, values: Mapping[str, Any], cure: Mapping[str, Any], about: tuple[str, ...] = ()
    ) -> None:
        found.append(Finding(code, "note", values, about, cure))

    for text in done.cell_maps:
        name, _, value = text.partition("=")
        note(f"cells-{name}", {"value": json.loads(value)}, {f"prepare.{name}": None})
    if asked.evidence is not None and asked.evidence > 0:
        values = {"evidence": asked.evidence, "degree": done.degree, "periods": list(done.periods)}
        has_time = bool(done.degree or done.periods)
        cure = {"prepare.detrend": 0, "prepare.period": None} if has_time else {"prepare.center": "none"}
        note("own-courses", values | {"shares": _own_shares(asked, variables)}, cure)
    if done.log_scales is not None and asked.gains_evidence is not None:
        note("own-scales", {"evidence": asked.gains_evidence}, {"prepare.gains": "none"})
    if asked.bounded and survey is not None:
        places = list(asked.bounded)
        shares = survey.n_far[places] / np.maximum(survey.n_cells[places], 1.0)
        values = {"n": round(survey.n_far[places].sum()), "share": float(shares.max())}
        values["shocks"] = done.robust == "shocks"
        note("cells-bounded", values, {"prepare.robust": "off"}, named(places))
    if done.row_model is not None and survey is not None:
        share = float(survey.n_empty / (survey.n_rows * len(variables)))
        values = {"share": share, "n": float(asked.moments.n)}
        note("empty-cells", values, {"prepare.missing": "drop"})
    found = together("rows-treated", found)
    if asked.unseen:
        found.append(_unseen(asked.unseen, variables))
    if asked.n_disagreeing and survey is not None:
        values = {"n_sites": int(survey.n_sites), "left_out": bool(done.abstain), "personal": asked.personal}
        odd = asked.n_disagreeing - asked.n_slower
        for code, n in (("sites-disagree", odd), ("two-rates", asked.n_slower)):
            values["one_network"] = one_network
            is_wrong = one_network and code == "sites-disagree" and not done.abstain
            found += [Finding(code, "error" if is_wrong else "warning", {"n": n, **values})] if n else []
    return found


def _unseen(unseen: Sequence[tuple[int, int, int]], variables: Sequence[str]) -> Finding:
    lags: dict[tuple[int, int], set[int]] = {}
    for i, j, lag in unseen:
        lags.setdefault((min(i, j), max(i, j)), set()).add(lag)
    pairs = [[variables[i], variables[j], sorted(found)] for (i, j), found in lags.items()]
    about = dict.fromkeys(name for first, second, _ in pairs for name in (first, second))
    return Finding("pairs-unseen", "warning", {"pairs": pairs}, tuple(str(name) for name in about))


def kinds_seen(asked: AskedMoments, variables: Sequence[str]) -> dict[str, str]:
    """Variable -> "binary" or "count", for those that look like one by sums alone; inputs are left out.

    Without a first look only yes/no shows, in the moments of rows that are used as they are.
    """
    d, survey, done = len(variables), asked.survey, asked.treatment
    mean, variance = asked.moments.mean[:d], np.diag(asked.moments.scatter)[:d] / max(asked.moments.n, 1.0)
    is_count = np.zeros(d, dtype=bool)
    if survey is not None:
        is_whole, is_binary = survey.objections <= (asked.n_disagreeing if done.abstain else 0)
        is_count = is_whole & ~is_binary & (mean < SMALL_MEAN) & (variance > SPREAD * mean)
    elif not done.done_to_rows:
        is_binary = looks_binary(mean, variance)
    else:
        return {}
    found = {
        name: "binary" if is_binary[j] else "count"
        for j, name in enumerate(variables)
        if is_binary[j] or is_count[j]
    }
    return {name: kind for name, kind in found.items() if name not in asked.inputs}


def kind_findings(
    asked: AskedMoments, variables: Sequence[str], declared: Collection[str] = ()
) -> list[Finding]:
    """One finding about all variables that look like another kind and were not declared.

    ``values["but"]`` has why `MixedDBN` would be no cure (`kinds_lose`); then it is a note.
    """
    seen = {name: kind for name, kind in kinds_seen(asked, variables).items() if name not in declared}
    if not seen:
        return []
    mean, but = (
        dict(zip(variables, asked.moments.mean.tolist(), strict=False)),
        kinds_lose(asked, len(variables)),
    )
    values = {"kinds": seen, "means": {name: mean[name] for name in seen}, "but": but}
    return [Finding("kinds-as-lines", "note" if but else "warning", values, tuple(seen))]


def kinds_lose(asked: AskedMoments, d: int) -> list[str]:
    """Why these rows are not for `MixedDBN`, which uses complete rows as they are: "empty" cells, "courses" of recordings."""
    is_empty = asked.survey is not None and loses_rows(asked.survey, asked.moments.q // d - 1)
    return ["empty"] * is_empty + ["courses"] * (asked.center == "recording")


_FEW_LOST = 0.1


def loses_rows(survey: Survey, n_lags: int) -> bool:
    """Whether a method that uses complete rows only may lose more than a tenth: an empty cell costs up to n_lags + 1."""
    return bool(survey.n_empty * (n_lags + 1) > _FEW_LOST * survey.n_rows)


def of_site(found: Finding, site: str, what: str = "") -> Finding:
    """A finding of one site alone; `what` says of what, such as ", its own network"."""
    return Finding("of-site", found.level, {"site": site, "what": what, "finding": found.to_dict()})


def site_notes(federation: Federation) -> dict[str, tuple[str, ...]]:
    """What sites found about themselves, in words, of those of this process; elsewhere only their owners are told."""
    found = {}
    for name in federation.sites:
        state = federation.state_of(name)
        notes = () if state is None else tuple(map(say, notes_of(state)))
        if notes:
            found[name] = notes
    return found
