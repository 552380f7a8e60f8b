"""What a fit says about what was done to the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from feddbn.federation.programs.prepare import AS_THEY_ARE, Prepare
from feddbn.federation.programs.private_moments import SPIKES_SHARE
from feddbn.federation.programs.treatment import AskedMoments
from feddbn.federation.protocol.site import notes_of
from feddbn.federation.protocol.task import Federation
from feddbn.settings import Rule
from feddbn.words import say

__all__ = [
    "AS_THEY_ARE",
    "TREATMENT_RULES",
    "site_notes",
    "treatment_sentences",
    "treatment_summary",
]


# Of estimators that still have flat arguments.
TREATMENT_RULES: Mapping[str, Rule] = {
    one.name: one.metadata["rule"] for one in fields(Prepare) if one.name not in ("center", "scale")
}
_MOST_PAIRS = 6


def treatment_summary(asked: AskedMoments, variables: Sequence[str]) -> dict[str, Any]:
    """What was done to the rows and why, as plain values."""
    done, survey = asked.treatment, asked.survey
    return {
        "center": done.center,
        "degree": done.degree,
        "periods": list(done.periods),
        "evidence": asked.evidence,
        "gains": "none" if done.log_scales is None else "site",
        "gains_evidence": asked.gains_evidence,
        "spikes": [variables[i] for i in asked.spiky],
        "bursts": [variables[i] for i in asked.bursts],
        "missing": "drop" if done.row_model is None else "fill",
        "n_empty_cells": None if survey is None else int(survey.n_empty),
        "n_rows": None if survey is None else int(survey.n_rows),
        "n_effective": float(asked.moments.n),
        "unseen_pairs": [[variables[i], variables[j], lag] for i, j, lag in asked.unseen],
        "n_disagreeing": asked.n_disagreeing,
        "left_out": asked.n_disagreeing if done.abstain else 0,
        "exogenous": list(asked.inputs),
    }


def treatment_sentences(asked: AskedMoments, variables: Sequence[str]) -> list[str]:
    """What was found and done about it, each with the argument that decides otherwise."""
    done, survey, found = asked.treatment, asked.survey, []
    if asked.evidence is not None and asked.evidence > 0:
        found.append(_own_sentence(asked))
    if done.log_scales is not None and asked.gains_evidence is not None:
        found.append(
            f"sites measure on different scales (BIC {asked.gains_evidence:.0f} better with scales of their own), so each "
            "was brought to the mean scale; weights are in that. gains='none' keeps the values as they are."
        )
    if done.limits is not None and not done.own_limits:
        found += _noisy_limit_sentences(asked, variables)
    elif asked.spiky:
        names = ", ".join(variables[i] for i in asked.spiky)
        found.append(
            f"cells of {names} lie far from their neighbours in time and have no effect on anything, as errors of "
            "measurement do; they were left out. spikes='keep' uses them."
        )
    if asked.bursts:
        names = ", ".join(variables[i] for i in asked.bursts)
        found.append(
            f"cells of {names} lie far from their neighbours in time, often several in a row, as bursts do and errors of "
            "measurement seldom; they were kept. If they are errors, leave them empty, or use spikes='remove'."
        )
    if asked.far_kept:
        names = ", ".join(variables[i] for i in asked.far_kept)
        found.append(
            f"cells of {names} lie far from their neighbours in time; they may be what pulses of the inputs "
            f"({', '.join(asked.inputs)}) did, so they were kept. spikes='remove' leaves them out."
        )
    if done.row_model is not None and survey is not None:
        worth = (
            f"all rows were used for what they hold, and are worth {asked.moments.n:.0f} complete ones. missing='drop' uses "
            "complete rows only."
        )
        share = survey.n_empty / (survey.n_rows * len(variables))
        also = " besides those that were left out" if asked.spiky else ""
        if share:
            size = f"{share:.1%}" if share >= 0.001 else "less than 0.1%"
            found.append(f"{size} of the cells are empty{also}; {worth}")
        else:
            found.append(f"no cell was empty before some were left out; {worth}")
    if asked.unseen:
        found.append(_unseen_sentence(asked.unseen, variables))
    if asked.n_disagreeing and survey is not None:
        found.append(_disagreement_sentence(asked, int(survey.n_sites)))
    return found


def _noisy_limit_sentences(asked: AskedMoments, variables: Sequence[str]) -> list[str]:
    found = []
    if asked.spiky:
        names = ", ".join(variables[i] for i in asked.spiky)
        found.append(
            f"cells of {names} that lie {asked.treatment.far:g} robust standard deviations or more from their neighbours in "
            f"time were left out. {SPIKES_SHARE:.0%} of the privacy budget paid for these scales, which are noisy. "
            "spikes='keep' uses all cells and the whole budget."
        )
    hidden = [name for i, name in enumerate(variables) if i not in asked.spiky and name not in asked.inputs]
    if hidden:
        found.append(
            f"the noise hides how much {', '.join(hidden)} vary, so their far cells were kept; more recordings or a larger "
            "epsilon would show it."
        )
    return found


def _own_sentence(asked: AskedMoments) -> str:
    done, better = asked.treatment, f"BIC {asked.evidence:.0f} better"
    where = (
        "intercepts are those of the average recording, `dbn_.at_level(mean)` has those of one (`feddbn forecast` uses "
        "them)."
    )
    parts = []
    if done.degree:
        parts.append("trends" if done.degree == 1 else f"slow changes (a polynomial of degree {done.degree})")
    if done.periods:
        shown = ", ".join(f"{period:.4g}" for period in done.periods)
        parts.append(f"cycles of {shown} rows")
    if not parts:
        return (
            f"recordings differ in their means ({better} with means of their own), so each was centred on its own; {where} "
            "center='none' keeps one mean for all."
        )
    return (
        f"recordings have {' and '.join(parts)} of their own ({better}), which were taken off together with their means; "
        "intercepts are those of the average recording, and `feddbn forecast` goes on along a recording's own course "
        "(`model.courses.fit_course`). detrend=0 and period=None keep them."
    )


def _unseen_sentence(unseen: Sequence[tuple[int, int, int]], variables: Sequence[str]) -> str:
    lags: dict[tuple[int, int], set[int]] = {}
    for i, j, lag in unseen:
        lags.setdefault((min(i, j), max(i, j)), set()).add(lag)
    shown = []
    for (i, j), found in list(lags.items())[:_MOST_PAIRS]:
        who = f"{variables[i]} and {variables[j]}" if i != j else f"{variables[i]} and its own past"
        shown.append(f"{who} (lag {', '.join(str(lag) for lag in sorted(found))})")
    more = len(lags) - len(shown)
    also = f"; and {more} more pairs" if more > 0 else ""
    return (
        f"hardly any row has cells of both: {'; '.join(shown)}{also}. Edges between these are guessed from the other "
        "variables, however certain they look. Measure both together at some site, bring all columns to one rate, leave "
        "one of them out with variables=, or rule the edges out with forbidden_edges=."
    )


def _disagreement_sentence(asked: AskedMoments, n_sites: int) -> str:
    n = asked.n_disagreeing
    what = (
        f"{n} of {n_sites} sites do not fit the others"
        if n > 1
        else f"one of {n_sites} sites does not fit the others"
    )
    if asked.treatment.abstain and asked.personal:
        return (
            f"{what} and stayed out of the sums; its owner is told why. Its own network is learned at home, from its rows "
            "alone; on_disagreement='exclude' learns none for it."
        )
    if asked.treatment.abstain:
        return (
            f"{what} and stayed out of the sums; its owner is told why. on_disagreement='warn' keeps it in, 'personal' "
            "learns a network of its own for it, PFDBNL one for each site."
        )
    if n > n_sites / 3:
        return f"{what}: there seem to be several kinds of sites, and one network for all is wrong for some. Use PFDBNL."
    return f"{what}; its owner is told why. OneShotDBN and FDBNL leave it out with on_disagreement='exclude'."


def site_notes(federation: Federation) -> dict[str, tuple[str, ...]]:
    """What sites found about themselves, in words, of those of this process; elsewhere only their owners are told."""
    found = {}
    for name in federation.sites:
        state = federation.state_of(name)
        notes = () if state is None else tuple(map(say, notes_of(state)))
        if notes:
            found[name] = notes
    return found
