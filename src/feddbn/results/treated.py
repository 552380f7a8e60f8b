"""What a fit tells about what was done to the rows, and about variables that it treats as numbers on a line."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from feddbn.core.statistics.survey import SMALL_MEAN, SPREAD, looks_binary
from feddbn.federation.protocol.site import notes_of
from feddbn.federation.protocol.task import Federation
from feddbn.federation.sums.private_moments import SPIKES_SHARE
from feddbn.federation.sums.treatment import AskedMoments
from feddbn.findings import Finding
from feddbn.words import say

__all__ = [
    "kind_findings",
    "kinds_seen",
    "of_site",
    "site_notes",
    "treatment_findings",
    "treatment_summary",
]


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
        "cell_maps": list(done.cell_maps),
    }


def treatment_findings(asked: AskedMoments, variables: Sequence[str]) -> list[Finding]:
    """What was found and done about it, each with the setting that decides otherwise."""
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
        if done.degree or done.periods:
            values = {"evidence": asked.evidence, "degree": done.degree, "periods": list(done.periods)}
            note("own-courses", values, {"prepare.detrend": 0, "prepare.period": None})
        else:
            note("own-means", {"evidence": asked.evidence}, {"prepare.center": "none"})
    if done.log_scales is not None and asked.gains_evidence is not None:
        note("own-scales", {"evidence": asked.gains_evidence}, {"prepare.gains": "none"})
    keep, remove = {"prepare.spikes": "keep"}, {"prepare.spikes": "remove"}
    if done.limits is not None and not done.own_limits:
        if asked.spiky:
            values = {"far": done.far, "share": SPIKES_SHARE}
            note("outliers-removed-under-noise", values, keep, named(asked.spiky))
        hidden = [
            name for i, name in enumerate(variables) if i not in asked.spiky and name not in asked.inputs
        ]
        if hidden:
            found.append(Finding("scales-hidden-by-noise", "unknown", about=tuple(hidden)))
    elif asked.spiky:
        note("outliers-removed", {}, keep, named(asked.spiky))
    if asked.bursts:
        note("bursts-kept", {}, remove, named(asked.bursts))
    if asked.far_kept:
        note("outliers-after-pulses-kept", {"inputs": list(asked.inputs)}, remove, named(asked.far_kept))
    if done.row_model is not None and survey is not None:
        share = float(survey.n_empty / (survey.n_rows * len(variables)))
        values = {"share": share, "has_removed": bool(asked.spiky), "n": float(asked.moments.n)}
        note("empty-cells", values, {"prepare.missing": "drop"})
    if asked.unseen:
        found.append(_unseen(asked.unseen, variables))
    if asked.n_disagreeing and survey is not None:
        values = {
            "n": asked.n_disagreeing,
            "n_sites": int(survey.n_sites),
            "left_out": bool(done.abstain),
            "personal": asked.personal,
        }
        found.append(Finding("sites-disagree", "warning", values))
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
    """One finding about all variables that look like another kind and were not declared."""
    seen = {name: kind for name, kind in kinds_seen(asked, variables).items() if name not in declared}
    if not seen:
        return []
    mean = dict(zip(variables, asked.moments.mean.tolist(), strict=False))
    values = {"kinds": seen, "means": {name: mean[name] for name in seen}}
    return [Finding("kinds-as-lines", "warning", values, tuple(seen))]


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
