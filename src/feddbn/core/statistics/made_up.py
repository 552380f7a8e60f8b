"""Values that somebody made before they came here: interpolated, carried forward, smoothed; told by six sums a variable.

Whoever has the rows looks at them: a federation is not asked.

Measured values do not lie on straight lines, and do not repeat. Rounded ones do both; but these also come back: after a
change the value before it is next more often than in one of fifty rows. Values of few levels are not looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.cells import MADE_UP, triples
from feddbn.core.designs.recordings import SiteData, pieces
from feddbn.core.statistics.survey import N_FREQUENCIES, cycles_in, periodogram, without_slow_part
from feddbn.findings import Finding

_N_SUMS = 6
"""Sums for each variable: triples of neighbours, on a line, with a repeat, with two, back again, correlation of changes."""
_MOST_ROWS = 20_000
"""Rows of each site that are looked at."""
_FEW_LEVELS, _LOOKED_AT = 20, 1000
_FEWEST, _SHARE_OF_LINES, _SHARE_OF_REPEATS = 20.0, 0.01, 0.005
_BACK = 0.02
"""Share of changes after which values that were not rounded come back at most."""
_BACK_PER_REPEAT = 0.1
_RUNS, _MORE_OFTEN, _SELDOM = 0.5, 3.0, 0.33
"""Repeats after a repeat, by share, by how much more often than else, and up to which share of repeats, of rounded values
that were carried on."""
_SMOOTH = 0.8


def filled_in(sites: Mapping[str, SiteData], inputs: Collection[str] = ()) -> list[Finding]:
    """Return a finding about the variables with such values, over all sites together; `inputs` are what somebody set."""
    sums: dict[str, FloatArray] = {}
    for site in sites.values():
        each = np.zeros((_N_SUMS, len(site.variables)))
        for rows in _first_rows(site):
            each += made_up_sums(rows)
        for name, column in zip(site.variables, each.T, strict=True):
            sums[name] = sums.get(name, np.zeros(_N_SUMS)) + column
    told = made_up_kinds({name: one for name, one in sums.items() if name not in inputs})
    if any(kind == "smooth" for kind, _ in told.values()) and _has_cycles(sites):
        # A cycle without noise is smooth, too.
        told = {name: one for name, one in told.items() if one[0] != "smooth"}
    if not told:
        return []
    values = {
        "kinds": {name: kind for name, (kind, _) in told.items()},
        "shares": [share for _, share in told.values()],
    }
    empty = {name: kind for name, (kind, _) in told.items() if kind in MADE_UP}
    cure = {"prepare.made_up": empty} if empty else {}
    return [Finding("made-up-values", "warning", values, tuple(told), cure)]


def _first_rows(site: SiteData) -> Iterator[FloatArray]:
    """Rows of each segment, up to `_MOST_ROWS` or a piece more."""
    n = 0
    for recording in site.recordings():
        for values, _ in pieces(recording.blocks()):
            yield values
            n += len(values)
            if n >= _MOST_ROWS:
                return


def _has_cycles(sites: Mapping[str, SiteData]) -> bool:
    """Whether some cycle stands out in the spectrum of all variables."""
    spectrum, n_spectra, rows, recordings = np.zeros(N_FREQUENCIES), 0.0, 0, 0
    for site in sites.values():
        recordings += sum(1 for _ in site.recordings())
        for values in _first_rows(site):
            power, n = periodogram(without_slow_part(values))
            spectrum, n_spectra, rows = spectrum + power, n_spectra + n, rows + len(values)
    return n_spectra > 0 and bool(
        cycles_in(spectrum / n_spectra, n_spectra, rows / max(recordings, 1), clear=True)
    )


def made_up_sums(values: FloatArray) -> FloatArray:
    """(_N_SUMS, d) sums over the rows of one block, which add up."""
    found = np.zeros((_N_SUMS, values.shape[1]))
    if len(values) < 3:
        return found
    (line, repeat), change = triples(values), np.diff(values, axis=0)
    before, after = change[:-1], change[1:]
    there, first, second = ~np.isnan(before + after), repeat[1:-1], repeat[2:]
    back = there & ~first & (values[2:] == values[:-2])
    before, after = np.where(there, before, 0.0), np.where(there, after, 0.0)
    size = np.sqrt((before**2).sum(axis=0) * (after**2).sum(axis=0))
    n = there.sum(axis=0)
    r = np.divide((before * after).sum(axis=0), size, out=np.zeros(len(n)), where=size > 0)
    counted = (line, first & there, first & second, back)
    found[:] = n, *(which.sum(axis=0) for which in counted), n * r
    for j, column in enumerate(values[:_LOOKED_AT].T):
        cells = column[~np.isnan(column)]
        if len(np.unique(cells)) <= min(_FEW_LEVELS, len(cells) // 4):
            found[:, j] = 0.0
    return found


def made_up_kinds(sums: Mapping[str, FloatArray]) -> dict[str, tuple[str, float]]:
    """Variable -> "lines", "repeats" or "smooth", and the share of such cells, or the correlation of changes."""
    found = {}
    for name, each in sums.items():
        n, line, repeat, run, back, r = each.tolist()
        is_back = back > _BACK * (n - repeat) or back > _BACK_PER_REPEAT * repeat
        carried = repeat <= _SELDOM * n and run >= repeat * max(_RUNS, _MORE_OFTEN * repeat / max(n, 1.0))
        if line >= max(_FEWEST, _SHARE_OF_LINES * n) and back <= _BACK_PER_REPEAT * line:
            found[name] = "lines", line / n
        elif repeat >= max(_FEWEST, _SHARE_OF_REPEATS * n) and (carried or not is_back):
            found[name] = "repeats", repeat / n
        elif n >= _FEWEST and r > _SMOOTH * n:
            found[name] = "smooth", r / n
    return found
