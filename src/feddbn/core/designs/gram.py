"""The Gram matrix of a design, streamed over recordings, nuisances taken off: what sites add up.

Theory of operation: rows whose mean is common to all sites are kept as moments (their mean is only known when
all sites have been added up); rows whose nuisance is their recording's own are projected off it first. Both
parts add up over recordings and over sites.

Nuisances come off moments of rows and nuisance columns together, from one reading. Products of nuisance columns with rows
at lag a are those of a matrix as narrow as the variables are many, so with linear rows nothing is stacked and the
products of rows are those of `Moments.of_blocks`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from feddbn.core.arrays import FloatArray, IntArray, by_row, weighted
from feddbn.core.designs.design import (
    RECORDING_MEANS,
    Design,
    Nuisance,
    TimeBasis,
    design_rows,
    project_off,
    public_blocks,
)
from feddbn.core.designs.recordings import Recording, Stretch, usable_runs
from feddbn.core.statistics.moments import (
    Moments,
    correlations,
)


def joint_moments(design: Design, recording: Recording, bases: Sequence[TimeBasis]) -> Moments:
    """Moments of [Z, B]: the design's rows and, beside them, the columns of all bases."""
    if design.is_linear:
        return _linear(design, bases, recording)
    plain, joint = replace(design, nuisance=RECORDING_MEANS), Moments.empty(design.q + _width(bases))
    for chunk in design_rows(plain, recording.blocks()):
        rows = np.hstack([chunk.values, _columns(bases, chunk.time, len(chunk.values))])
        joint = joint.merge(Moments.of_rows(rows, chunk.weights))
    return joint


@dataclass(frozen=True)
class OwnLevel:
    """What is a recording's own in its values: a mean (d,), and weights (k, d) of trends and cycles less their means (k,)."""

    bases: tuple[TimeBasis, ...]
    mean: FloatArray
    offset: FloatArray
    weights: FloatArray

    @classmethod
    def of(cls, nuisance: Nuisance, recording: Recording, variables: Sequence[str]) -> OwnLevel:
        """By least squares over all rows of a recording, which lack no cell; reads them once, or twice for their times."""
        bases = (TimeBasis.over(nuisance, usable_runs(recording, 0)),) if nuisance.has_time else ()
        joint, d = joint_moments(Design.linear(variables, 0), recording, bases), len(variables)
        weights = np.linalg.lstsq(joint.scatter[d:, d:], joint.scatter[d:, :d], rcond=None)[0]
        return cls(bases, joint.mean[:d], joint.mean[d:], np.asarray(weights, dtype=np.float64))

    def off(self, time: int, values: FloatArray) -> FloatArray:
        """(n, d) consecutive values, the first at this time, without it."""
        rest = by_row(np.subtract, values, self.mean)
        if self.bases:
            rest -= (_columns(self.bases, time, len(values)) - self.offset) @ self.weights
        return rest


def _width(bases: Sequence[TimeBasis]) -> int:
    return sum(basis.mix.shape[1] for basis in bases)


def _columns(bases: Sequence[TimeBasis], time: int, m: int) -> FloatArray:
    times = time + np.arange(m, dtype=np.float64)
    return np.concatenate([np.empty((m, 0)), *(basis.at(times) for basis in bases)], axis=1)


def _linear(design: Design, bases: Sequence[TimeBasis], recording: Recording) -> Moments:
    products, d = _Products(design.n_lags, bases), sum(design.widths)
    blocks = public_blocks(design, recording.blocks())
    watch = products.add if bases else None
    rows = Moments.of_blocks(blocks, design.n_lags, d, watch=watch)
    return products.beside(rows) if bases else rows


class _Products:
    """Products of nuisance columns with lagged values, and with themselves, of the stretches that pass by."""

    def __init__(self, n_lags: int, bases: Sequence[TimeBasis]) -> None:
        self.n_lags, self.bases = n_lags, bases
        k = _width(bases)
        self.totals, self.squares = np.zeros(k), np.zeros((k, k))
        self.origin: FloatArray | None = None
        self.cross: FloatArray | None = None

    def add(self, stretch: Stretch) -> None:
        values, p = stretch.values, self.n_lags
        n, d = values.shape
        m, k = n - p, len(self.totals)
        if self.origin is None or self.cross is None:
            # Far from zero, products would lose digits; any value near the rows will do.
            self.origin = values.mean(axis=0)
            self.cross = np.zeros((p + 1, d, k))
        columns = _columns(self.bases, stretch.time, m)
        counted = weighted(columns, stretch.weights)
        near = by_row(np.subtract, values, self.origin)
        for lag in range(p + 1):
            self.cross[lag] += near[p - lag : n - lag].T @ counted
        self.totals += np.ones(m) @ counted
        self.squares += columns.T @ counted

    def beside(self, rows: Moments) -> Moments:
        """The moments of both, given those of the rows."""
        k, q, n = len(self.totals), rows.q, rows.n
        if self.origin is None or self.cross is None:
            return Moments.empty(q + k)
        mean = self.totals / n
        offset = rows.mean - np.tile(self.origin, self.n_lags + 1)
        cross = self.cross.reshape(q, k) - n * np.outer(offset, mean)
        scatter = np.empty((q + k, q + k))
        scatter[:q, :q] = rows.scatter
        scatter[:q, q:] = cross
        scatter[q:, :q] = cross.T
        scatter[q:, q:] = self.squares - n * np.outer(mean, mean)
        return Moments(n, np.concatenate([rows.mean, mean]), scatter)


@dataclass(frozen=True)
class Gram:
    """Sums over design rows.

    Attributes
    ----------
    moments
        Moments of the rows; with mean 0 where the nuisance was each recording's own and has been taken off.
    n_removed
        Number of nuisance parameters that took.
    """

    moments: Moments
    n_removed: float

    @classmethod
    def empty(cls, q: int) -> Gram:
        """Sums over no rows; the neutral element of `merge`."""
        return cls(Moments.empty(q), 0.0)

    @property
    def n(self) -> float:
        """Number of rows."""
        return self.moments.n

    @property
    def scatter(self) -> FloatArray:
        """(q, q) sums of squares and products after all nuisances."""
        return self.moments.scatter

    def merge(self, other: Gram) -> Gram:
        """Sums over both groups of recordings."""
        return Gram(self.moments.merge(other.moments), self.n_removed + other.n_removed)


def recording_gram(design: Design, recording: Recording) -> Gram:
    """Return the sums of one recording: the unit of privacy."""
    if design.nuisance.has_time:
        return tried_grams(design, recording, [design.nuisance])[1][0]
    moments = joint_moments(design, recording, ())
    if design.nuisance.scope == "all":
        return Gram(moments, 0.0)
    return Gram(Moments(moments.n, np.zeros_like(moments.mean), moments.scatter), float(moments.n > 0))


class WholeRows(NamedTuple):
    """All design rows of a recording (n, q), with their times, weights if they have any, and labels as whole numbers."""

    values: FloatArray
    times: FloatArray
    weights: FloatArray | None
    labels: IntArray

    @classmethod
    def of(cls, parts: Sequence[WholeRows]) -> WholeRows:
        """All of them, one after the other."""
        weights = [one.weights for one in parts if one.weights is not None]
        values, times, _, labels = zip(*parts, strict=True)
        return cls(
            np.concatenate(values),
            np.concatenate(times),
            np.concatenate(weights) if weights else None,
            np.concatenate(labels),
        )


def whole_rows(design: Design, recording: Recording, are_labelled: bool = False) -> WholeRows:
    """All design rows of a recording at once, for what cannot be done piece by piece; without labels these are zeros."""
    none = np.zeros(0, dtype=np.int64)
    parts = [WholeRows(np.empty((0, design.q)), np.empty(0), None, none)]
    for chunk in design_rows(design, recording.blocks()):
        times = chunk.time + np.arange(len(chunk.values), dtype=np.float64)
        labels = chunk.labels if are_labelled and chunk.labels is not None else np.zeros(len(times))
        parts.append(WholeRows(chunk.values, times, chunk.weights, labels.astype(np.int64)))
    return WholeRows.of(parts)


def nuisance_basis(nuisance: Nuisance, times: FloatArray) -> FloatArray | None:
    """(n, k) columns, the constant among them, that rows at these times are taken off; None if all sites share one mean."""
    if nuisance.scope != "recording":
        return None
    constant = np.ones((len(times), 1))
    if not nuisance.has_time or not len(times):
        return constant
    return np.concatenate([constant, nuisance.columns(times, (float(times[0]), float(times[-1])))], axis=1)


_LONGEST = 4096
_MOST_STEPS = 100
_STILL, _FORGOTTEN = 1e-4, 1e-5
_ENDLESS, _CONTRADICTION = 1e6, 1e-6


def restored(covariance: FloatArray, d: int, nuisance: Nuisance, length: float) -> FloatArray:
    """The (q, q) covariance of lagged rows, from what is left of it off what every recording of so many rows has of its own.

    Levels, trends and cycles take along the slow part of the series themselves: the mean of a short recording follows its
    values. With the projection P on the nuisance columns of T rows, Z those rows and C(h) = E[z_t' z_{t+h}], that part is ::

        E[Z'PZ] = sum_h p(h) C(h),     p(h) = sum_t P[t, t+h],     C(h) = C(0) F^h

    with F the regression of a row on the one before it. What is left is ``C(0) - E[Z'PZ] / T``, which is solved for C(0).
    Without it, regressions on the past come out too small, and find partners to make up for it (Nickell 1981). A memory
    that is longer than the rows for each nuisance column cannot be told from a level; it counts as one so long. Where columns
    follow from others, powers of F may grow until nothing positive solves this: then the covariance stays as it is.
    """
    n = round(min(length, _LONGEST))
    basis = nuisance_basis(nuisance, np.arange(n, dtype=np.float64))
    if basis is None or n <= basis.shape[1] + 1:
        return covariance
    spectrum = np.square(np.abs(np.fft.rfft(np.linalg.qr(basis)[0], 2 * n, axis=0))).sum(axis=1)
    share = np.fft.irfft(spectrum)[:n] / length
    left, root = correlations(covariance)
    found, memory = left, 1.0 - basis.shape[1] / n
    for _ in range(_MOST_STEPS):
        before, found = found, left + _slow_part(found, d, share, memory)
        if not np.abs(found - before).max() > _STILL or not np.abs(found).max() < _ENDLESS:
            break
    is_one = bool(np.abs(found).max() < _ENDLESS) and np.linalg.eigvalsh(found)[0] > -_CONTRADICTION
    return found * np.outer(root, root) if is_one else covariance


def _slow_part(covariance: FloatArray, d: int, share: FloatArray, memory: float) -> FloatArray:
    """``sum_h share(|h|) C(h)`` of a series with this covariance of lagged rows, of which `memory` stays at most."""
    k = len(covariance) - d
    if not k:
        return np.asarray(share[0] * covariance)
    B = np.linalg.lstsq(covariance[d:, d:], covariance[d:, :d], rcond=None)[0]
    stays = np.abs(np.linalg.eigvals(np.concatenate([B, np.eye(k, k - d)], axis=1))).max(initial=memory)
    most = np.diag(covariance).max()
    ahead, total = covariance, np.asarray(share[0] * covariance)
    for weight in share[1:].tolist():
        ahead = memory / stays * np.concatenate([ahead[:, :k] @ B, ahead[:, :k]], axis=1)
        total = total + weight * (ahead + ahead.T)
        if np.abs(ahead).max() <= _FORGOTTEN * most:
            break
    return total


def tried_grams(
    design: Design, recording: Recording, tried: Sequence[Nuisance]
) -> tuple[Moments, list[Gram]]:
    """The moments of one recording's rows as they are, and the sums off each of these nuisances, from the same reading.

    A recording that does not know its times is read for these first, if they matter.
    """
    q, nothing = design.q, (Moments.empty(design.q), [Gram.empty(design.q) for _ in tried])
    runs: tuple[tuple[int, int], ...] = ()
    if any(nuisance.has_time for nuisance in tried):
        runs = usable_runs(recording, design.n_lags)
        if not runs:
            return nothing
    bases = [TimeBasis.over(nuisance, runs) if nuisance.has_time else None for nuisance in tried]
    joint = joint_moments(design, recording, [basis for basis in bases if basis is not None])
    if joint.n == 0:
        return nothing
    found, start = [], q
    for basis in bases:
        width = 0 if basis is None else basis.mix.shape[1]
        own = joint.select(np.r_[np.arange(q), np.arange(start, start + width)])
        scatter, rank = project_off(own, q)
        found.append(Gram(Moments(joint.n, np.zeros(scatter.shape[:-1]), scatter), float(rank)))
        start += width
    return joint.select(np.arange(q)), found
