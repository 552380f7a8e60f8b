"""Columns that are read less often than rows are written: each reading is held for several rows."""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.data.preflight.finding import Finding, named
from feddbn.data.preflight.profile import SiteProfile

__all__ = ["check_held", "rows_held"]

_FEWEST_READINGS = 12
_REGULAR = 0.7
_OFTEN = 0.5
_FEW_VALUES = 4


def check_held(site: SiteProfile) -> list[Finding]:
    """Return a finding if some columns are held for a regular number of rows while another one changes more often."""
    held: dict[str, int] = {}
    changing = 0.0
    for name in site.numeric:
        heads = [one.head[:, k] for one, k in site.column(name)]
        steps = [np.diff(head[np.isfinite(head)]) for head in heads]
        n = sum(len(step) for step in steps)
        changing = max(changing, sum(int((step != 0).sum()) for step in steps) / n if n else 0.0)
        k = rows_held(heads)
        if k is not None:
            held[name] = k
    if not held or changing < _OFTEN:
        return []
    most = max(held.values())
    keep = "keeps its value" if len(held) == 1 else "keep their values"
    text = (
        f"{named(list(held))} {keep} for about {most} rows at a time while others change: "
        "a cause that is read late looks like an effect, and arrows may be turned round."
    )
    cure = "read edges between these and other columns without their direction, or measure all at the same moments"
    return [Finding("held", "warning", text, cure, site.name, columns=tuple(held))]


def rows_held(heads: list[FloatArray]) -> int | None:
    """Return for how many rows a value is usually held, 2 or more; None if it changes all the time or irregularly.

    Long calm stretches, as of a counter of rare events, are irregular: their lengths spread widely.
    """
    lengths: list[FloatArray] = []
    values: set[float] = set()
    for head in heads:
        x = head[np.isfinite(head)]
        edges = np.flatnonzero(np.r_[True, x[1:] != x[:-1]]) if len(x) else np.empty(0, dtype=int)
        # The first reading may have begun, and the last one may end, outside.
        lengths.append(np.diff(edges)[1:])
        values.update(np.unique(x)[: _FEW_VALUES + 1].tolist())
    runs = np.concatenate(lengths) if lengths else np.empty(0)
    if len(runs) < _FEWEST_READINGS or len(values) <= _FEW_VALUES:
        return None
    usual = float(np.median(runs))
    slack = max(1.0, 0.2 * usual) if usual > 2 else 0.0
    if usual < 2 or float((np.abs(runs - usual) <= slack).mean()) < _REGULAR:
        return None
    return round(usual)
