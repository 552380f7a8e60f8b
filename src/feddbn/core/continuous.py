"""A linear stochastic differential equation from sums of products of readings, by the time between them.

    dx = A x dt + G dw,    Q = G G',    y_i(t) = level_i + x_i(t) + error_i where variable i is read at time t

Theory of operation: what two readings have in common depends on the time between them only,

    cov(y_i(t + delta), y_j(t)) = [exp(A delta) S + L]_ij + [i = j, delta = 0] r_i,    A S + S A' + Q = 0

S is the covariance of x, L that of the recordings' own levels, r the variance of errors of reading. So recordings need no
common clock, variables no common rows, and nothing is filled in: `lag_sums` adds up products of pairs of readings in bins
of the time between them, and sums of sites add up to those of all readings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import DataError

_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True)
class LagSums:
    """Sums over pairs of readings of one recording, by the time from the earlier to the later one. They add up.

    Arrays are (B + 1, d, d), ``[b, i, j]`` for pairs with variable i read later than j. Bin 0 has the pairs read at the same
    time, i = j there being one reading with itself; bin b pairs with ``edges[b - 1] < delay <= edges[b]``.

    Attributes
    ----------
    edges
        (B + 1,) ascending, not negative.
    counts, products, delays
        Numbers of pairs, sums of ``y_i(t + delay) y_j(t)``, and of the time between them.
    later, earlier
        Sums of ``y_i(t + delay)``, and of ``y_j(t)``, over these pairs.
    n_recordings, time
        Recordings with a reading, and the sum of the times from first to last reading of each.

    Examples
    --------
    >>> import numpy as np
    >>> from feddbn.core.continuous import lag_sums
    >>> times, values = np.array([0.0, 0.4, 2.0]), np.array([[1.0, np.nan], [np.nan, 2.0], [3.0, 5.0]])
    >>> sums = lag_sums([(times, values)], edges=[0, 1, 2])
    >>> sums.counts[1].tolist(), sums.products[2].tolist()
    ([[0.0, 0.0], [1.0, 0.0]], [[3.0, 6.0], [5.0, 10.0]])
    """

    edges: FloatArray
    counts: FloatArray
    products: FloatArray
    delays: FloatArray
    later: FloatArray
    earlier: FloatArray
    n_recordings: float
    time: float

    def __add__(self, other: LagSums) -> LagSums:
        """Sums over the pairs of both."""
        if not np.array_equal(self.edges, other.edges) or self.counts.shape != other.counts.shape:
            raise ValueError("sums in different bins of time or of other variables do not add up")
        added = [getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "edges"]
        return LagSums(self.edges, *added)


def lag_sums(recordings: Iterable[tuple[FloatArray, FloatArray]], edges: Iterable[float]) -> LagSums:
    """Add up the pairs of readings of some recordings.

    Parameters
    ----------
    recordings
        (n,) ascending times and (n, d) values of each, NaN where a variable was not read. Rows at one time are one row.
    edges
        (B + 1,) edges of the bins of time between two readings.
    """
    borders = np.asarray(list(edges), dtype=float)
    if borders.ndim != 1 or len(borders) < 2 or borders[0] < 0 or not (np.diff(borders) > 0).all():
        raise ValueError(f"edges must be two or more ascending numbers from 0 on; got {borders.tolist()}")
    total: LagSums | None = None
    for group in _groups(recordings):
        sums = _sums_of(group, borders)
        total = sums if total is None else total + sums
    if total is None:
        raise ValueError("recordings must hold at least one")
    return total


def _groups(
    recordings: Iterable[tuple[FloatArray, FloatArray]],
) -> Iterator[list[tuple[FloatArray, FloatArray]]]:
    """Recordings that are handled together: a few large products are faster than many small ones."""
    group: list[tuple[FloatArray, FloatArray]] = []
    size = 0
    for given_times, given_values in recordings:
        times, values = np.asarray(given_times, dtype=float), np.asarray(given_values, dtype=float)
        if values.ndim != 2 or times.shape != values.shape[:1]:
            raise ValueError(f"times {times.shape} do not belong to values {values.shape}")
        if not np.isfinite(times).all() or (np.diff(times) < 0).any() or np.isinf(values).any():
            raise DataError(
                "times of a recording must be finite and ascending, and its values finite or empty"
            )
        read = ~np.isnan(values).all(axis=1)
        times, values = times[read], values[read]
        if size and size + len(times) > _ROWS_AT_ONCE:
            yield group
            group, size = [], 0
        group.append((times, values))
        size += len(times)
    if group:
        yield group


def _sums_of(group: list[tuple[FloatArray, FloatArray]], edges: FloatArray) -> LagSums:
    d = group[0][1].shape[1]
    # Values and whether they are there, side by side: one product has the counts and all three sums.
    times = np.concatenate([times for times, _ in group])
    values = np.concatenate([values for _, values in group])
    owner = np.repeat(np.arange(len(group)), [len(times) for times, _ in group])
    there = ~np.isnan(values)
    rows = np.concatenate([np.where(there, values, 0.0), there], axis=1)
    sums = np.zeros((len(edges), 2 * d, 2 * d))
    delays = np.zeros((len(edges), d, d))
    sums[0] = rows.T @ rows
    for k in range(1, len(rows)):
        delay = times[k:] - times[:-k]
        near = np.flatnonzero((owner[k:] == owner[:-k]) & (delay <= edges[-1]))
        if not len(near):
            break
        delay = delay[near]
        bins = np.where(delay == 0, 0, np.searchsorted(edges, delay))
        bins[(delay > 0) & (delay <= edges[0])] = len(edges)
        order = np.argsort(bins, kind="stable")
        cuts = np.searchsorted(bins[order], np.arange(len(edges) + 1))
        for b in np.flatnonzero(np.diff(cuts)).tolist():
            chosen = order[cuts[b] : cuts[b + 1]]
            first, second = rows[near[chosen]], rows[near[chosen] + k]
            product = second.T @ first
            if b == 0:
                # Two rows at one time: neither is later, and two readings of one variable are no square.
                product = product + product.T
                for part in (slice(0, d), slice(d, 2 * d)):
                    np.fill_diagonal(product[:d, part], 0.0)
                    np.fill_diagonal(product[d:, part], 0.0)
            else:
                delays[b] += (second[:, d:] * delay[chosen, None]).T @ first[:, d:]
            sums[b] += product
    lengths = [times[-1] - times[0] for times, _ in group if len(times)]
    return LagSums(
        edges,
        counts=sums[:, d:, d:].copy(),
        products=sums[:, :d, :d].copy(),
        delays=delays,
        later=sums[:, :d, d:].copy(),
        earlier=sums[:, d:, :d].copy(),
        n_recordings=float(len(lengths)),
        time=float(np.sum(lengths)),
    )
