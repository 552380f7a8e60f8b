"""Which rows of a site may be in a sum, given those that were in earlier ones.

Theory of operation
-------------------
Two studies that choose other variables, or treat cells in other ways, leave out other rows: those with an empty cell in one
of their variables. Sums over the row sets R_1, ..., R_m give every combination of them, and a combination may be about a
single row. Rows that were in the same sets have the same coefficient in every combination. So call rows with the same
memberships a *class*: if every class of rows that were in any sum has at least `least` rows, then every combination that is
not empty is about at least `least` rows. This is sufficient, and it is easy to keep to: a site can always leave more rows
out of a new sum.

- Few rows of a class in the new set: they are left out of it.
- Few rows of a class not in the new set: more of them are left out, those next to them, until they are enough.
- Few rows that were in no sum before: they are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["too_few"]

Rows = NDArray[np.int64]


def too_few(new: Rows, known: Sequence[Rows], least: int) -> Rows:
    """Return rows of `new` without which every class of rows has at least `least` members; empty if none must go.

    All arguments are sorted numbers of rows. The rows that are left may split other classes: ask again.
    """
    every = np.unique(np.concatenate([new, *known]))
    is_new = np.isin(every, new)
    member = np.array([np.isin(every, rows) for rows in known], dtype=bool).reshape(len(known), len(every))
    # One number for each pattern of memberships.
    classes = np.zeros(len(every), dtype=np.int64)
    for row in member:
        classes = np.unique(2 * classes + row, return_inverse=True)[1]
    goes = np.zeros(len(every), dtype=bool)
    for one in range(int(classes.max(initial=-1)) + 1):
        places = np.flatnonzero(classes == one)
        inside, outside = places[is_new[places]], places[~is_new[places]]
        was_summed = bool(member[:, places[0]].any())
        if not len(inside) or (was_summed and not len(outside)):
            continue
        lacking = least - len(outside) if was_summed else 0
        if len(inside) - max(lacking, 0) < least:
            goes[inside] = True
        elif lacking > 0:
            goes[_nearest(every, inside, outside)[:lacking]] = True
    return np.asarray(every[goes])


def _nearest(every: Rows, inside: Rows, outside: Rows) -> Rows:
    """The places inside, those next to places outside first."""
    after = np.clip(np.searchsorted(outside, inside), 1, len(outside)) - 1
    before = np.minimum(after + 1, len(outside) - 1)
    gaps = np.minimum(
        np.abs(every[inside] - every[outside[after]]), np.abs(every[inside] - every[outside[before]])
    )
    return inside[np.argsort(gaps, kind="stable")]
