"""What residuals say about a fit, and whether an edge could be something that was not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.constraints import EdgeConstraints
from feddbn.core.orders.hidden import HiddenDoubts
from feddbn.core.statistics.diagnostics import edge_robustness
from feddbn.core.statistics.moments import Moments
from feddbn.federation.programs.residual_checks import FittedNetwork, ResidualReport
from feddbn.federation.protocol.rows import Treatment
from feddbn.federation.protocol.task import Federation
from feddbn.federation.sums.treatment import AskedMoments
from feddbn.findings import Finding
from feddbn.model.dbn import DBN
from feddbn.shown import Shown

__all__ = [
    "GRAVE",
    "HIDDEN",
    "ResidualSummary",
    "are_looked_at",
    "fitted_network",
    "hidden_findings",
    "hidden_table",
    "residual_findings",
    "summarise",
]

GRAVE = ("hidden", "memory", "dependence", "curvature")
"""Violations by which edges may stand for something else."""

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
        "curvature" (effects are not straight lines).
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


def are_looked_at(wanted: bool | str, federation: Federation, *, by_default: bool = True) -> bool:
    """Whether a fit looks at its residuals; "auto" does where sites answer such questions, if it is done `by_default`."""
    tasks = federation.answered_tasks
    if wanted != "auto":
        return bool(wanted)
    return by_default and (tasks is None or "residuals.checks" in tasks)


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
        dbn.noise_variances,
        constraints,
        inputs,
        "recording" if is_own else "none",
        treatment,
        asked,
    )


def summarise(report: ResidualReport) -> ResidualSummary:
    """Return the numbers of a report that people read."""
    checks = report.checks
    ratio = checks.thirds.max(axis=0) / np.maximum(checks.thirds.min(axis=0), 1e-12)
    acted_on = ["memory"] if report.noise_memory is not None or report.n_lags_added else []
    is_tempered = report.n_effective < checks.n * (1 - 1e-9) and not report.looked_only
    acted_on += ["volatility"] if is_tempered else []
    return ResidualSummary(
        violations=report.left,
        acted_on=tuple(acted_on),
        n_rows=round(checks.n),
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
    )


def residual_findings(summary: ResidualSummary, n_lags: int) -> list[Finding]:
    """One finding for memory that was taken care of, and one for every violation, the gravest first."""
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
    }
    return found + [
        Finding(f"residuals-{name}", "warning" if name in GRAVE else "note", values[name])
        for name in s.violations
    ]


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
