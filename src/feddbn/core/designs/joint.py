"""Moments of design rows and nuisance columns together, from one reading: all that is needed to take one off the other.

Products of nuisance columns with rows at lag a are those of a matrix as narrow as the variables are many, so with linear
rows nothing is stacked and the products of rows are those of `Moments.of_blocks`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np

from feddbn.core.arrays import FloatArray, by_row
from feddbn.core.backend.device import HOST, Device
from feddbn.core.designs.design import Design
from feddbn.core.designs.lagged import Stretch
from feddbn.core.designs.nuisance import RECORDING_MEANS, Nuisance, TimeBasis
from feddbn.core.designs.recordings import Recording, over_parts, usable_runs
from feddbn.core.designs.rows import design_rows, public_blocks
from feddbn.core.statistics.moments import Moments, outer

__all__ = ["OwnLevel", "joint_moments"]


def joint_moments(
    design: Design, recording: Recording, bases: Sequence[TimeBasis], device: Device = HOST
) -> Moments:
    """Moments of [Z, B]: the design's rows and, beside them, the columns of all bases."""
    if design.is_linear:
        work = partial(_linear, design, device, tuple(bases))
        return reduce(Moments.merge, over_parts(recording, design.n_lags, work))
    plain, joint = replace(design, nuisance=RECORDING_MEANS), Moments.empty(design.q + _width(bases))
    for chunk in design_rows(plain, recording.blocks()):
        *lead, m, _ = chunk.values.shape
        known = _columns(bases, chunk.time, m)
        rows = np.concatenate([chunk.values, np.broadcast_to(known, (*lead, *known.shape))], axis=-1)
        joint = joint.merge(Moments.of_rows(rows))
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


def _linear(design: Design, device: Device, bases: Sequence[TimeBasis], part: Recording) -> Moments:
    products, d = _Products(design.n_lags, bases), sum(design.widths)
    blocks = public_blocks(design, part.blocks())
    watch = products.add if bases else None
    rows = Moments.of_blocks(blocks, design.n_lags, d, device=device, watch=watch)
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
        *lead, n, d = values.shape
        m, k = n - p, len(self.totals)
        if self.origin is None or self.cross is None:
            # Far from zero, products would lose digits; any value near the rows will do.
            self.origin = values.mean(axis=-2)
            self.cross = np.zeros((*lead, p + 1, d, k))
        columns = _columns(self.bases, stretch.time, m)
        near = values - self.origin[..., None, :] if lead else by_row(np.subtract, values, self.origin)
        for lag in range(p + 1):
            self.cross[..., lag, :, :] += near[..., p - lag : n - lag, :].swapaxes(-1, -2) @ columns
        self.totals += np.ones(m) @ columns
        self.squares += columns.T @ columns

    def beside(self, rows: Moments) -> Moments:
        """The moments of both, given those of the rows."""
        k, q, n = len(self.totals), rows.q, rows.n
        if self.origin is None or self.cross is None:
            return Moments.empty(q + k)
        lead = rows.mean.shape[:-1]
        mean = self.totals / n
        offset = rows.mean - np.tile(self.origin, self.n_lags + 1)
        cross = self.cross.reshape(*lead, q, k) - n * outer(offset, np.broadcast_to(mean, (*lead, k)))
        scatter = np.empty((*lead, q + k, q + k))
        scatter[..., :q, :q] = rows.scatter
        scatter[..., :q, q:] = cross
        scatter[..., q:, :q] = cross.swapaxes(-1, -2)
        scatter[..., q:, q:] = self.squares - n * outer(mean, mean)
        return Moments(n, np.concatenate([rows.mean, np.broadcast_to(mean, (*lead, k))], axis=-1), scatter)
