"""What a fit says of variables that it treats as numbers on a line although they look like yes/no or counts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from feddbn.core.statistics.survey import SMALL_MEAN, SPREAD, looks_binary
from feddbn.federation.programs.treatment import AskedMoments

__all__ = ["kind_sentences", "kinds_seen"]

_MOST_SHOWN = 6


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
    elif done.is_plain and done.center == "none":
        is_binary = looks_binary(mean, variance)
    else:
        return {}
    found = {
        name: "binary" if is_binary[j] else "count"
        for j, name in enumerate(variables)
        if is_binary[j] or is_count[j]
    }
    return {name: kind for name, kind in found.items() if name not in asked.inputs}


def kind_sentences(
    asked: AskedMoments, variables: Sequence[str], declared: Collection[str] = ()
) -> list[str]:
    """One sentence about all variables that look like another kind and were not declared, with what cures it."""
    seen = {name: kind for name, kind in kinds_seen(asked, variables).items() if name not in declared}
    if not seen:
        return []
    mean = dict(zip(variables, asked.moments.mean.tolist(), strict=False))
    told = [
        f"{name} looks like yes/no (only 0 and 1)"
        if kind == "binary"
        else f"{name} looks like a count (whole numbers from 0, mean {mean[name]:.2g})"
        for name, kind in seen.items()
    ]
    shown = "; ".join(told[:_MOST_SHOWN]) + (
        f"; and {len(told) - _MOST_SHOWN} more" if len(told) > _MOST_SHOWN else ""
    )
    line = "it is treated as a line" if len(told) == 1 else "they are treated as lines"
    return [f"{shown}; {line}. MixedDBN(kinds={seen!r}) cures it."]
