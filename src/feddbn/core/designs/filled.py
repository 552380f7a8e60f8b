"""Recordings with their nuisances taken off their values and their empty cells drawn: for what needs whole rows.

Sums of expected products (`core.statistics.missing`) need no draws and lose less; resampling needs rows. Cells are drawn
forward in time, given the present cells of their own row and the rows before it, under the federation's model of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.gram import nuisance_basis
from feddbn.core.designs.lagged import Block
from feddbn.core.designs.nuisance import Nuisance
from feddbn.core.designs.recordings import Recording, SiteData

__all__ = ["FilledSite"]


@dataclass(frozen=True)
class FilledSite:
    """A site without its recordings' nuisances and without empty cells.

    Attributes
    ----------
    nuisance
        What is taken off the values of every recording.
    row_model
        (q + 1, q) mean and covariance of lagged rows; None leaves empty cells as they are.
    seed
        Of the draws; every recording draws anew.
    """

    data: SiteData
    nuisance: Nuisance
    row_model: FloatArray | None
    seed: int

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.data.variables

    def recordings(self) -> Iterator[Recording]:
        """Yield the recordings."""
        for number, recording in enumerate(self.data.recordings()):
            yield _Filled(
                recording, self.nuisance, self.row_model, np.random.default_rng([self.seed, number])
            )


@dataclass(frozen=True)
class _Filled:
    recording: Recording
    nuisance: Nuisance
    row_model: FloatArray | None
    rng: np.random.Generator

    @property
    def name(self) -> str:
        return self.recording.name

    def blocks(self) -> Iterator[Block]:
        blocks = list(self.recording.blocks())
        if not blocks:
            return
        rest = self._off_nuisances(blocks)
        # A recording may be read many times: every time with the same draws.
        state = self.rng.bit_generator.state
        before = np.empty((0, rest.shape[1]))
        start = 0
        for block in blocks:
            values = rest[start : start + len(block.values)]
            start += len(block.values)
            if block.starts_segment:
                before = values[:0]
            if self.row_model is not None:
                values = _drawn(before, values, self.row_model, self.rng)
            before = np.concatenate([before, values])[-(self._n_lags or 1) :]
            yield replace(block, values=values)
        self.rng.bit_generator.state = state

    @property
    def _n_lags(self) -> int:
        if self.row_model is None:
            return 0
        d = next(iter(self.recording.blocks())).values.shape[1]
        return int(self.row_model.shape[1]) // int(d) - 1

    def _off_nuisances(self, blocks: list[Block]) -> FloatArray:
        values = np.concatenate([block.values for block in blocks])
        clock, times = 0, []
        for block in blocks:
            clock = clock if block.time is None else block.time
            times.append(clock + np.arange(len(block.values), dtype=np.float64))
            clock += len(block.values)
        basis = nuisance_basis(self.nuisance, np.concatenate(times))
        if basis is None:
            return values
        rest = values.copy()
        for j in range(values.shape[1]):
            here = ~np.isnan(values[:, j])
            if here.any():
                coefficients = np.linalg.lstsq(basis[here], values[here, j], rcond=None)[0]
                rest[:, j] = values[:, j] - basis @ coefficients
        return rest


def _drawn(
    before: FloatArray, values: FloatArray, row_model: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """The rows with their empty cells drawn, given the rows before them."""
    if not np.isnan(values).any():
        return values
    d = values.shape[1]
    n_lags = row_model.shape[1] // d - 1
    mean, covariance = row_model[0], row_model[1:]
    whole = np.concatenate([before, values])
    offset = len(before)
    for t in np.flatnonzero(np.isnan(values).any(axis=1)) + offset:
        lags = min(n_lags, t)
        row = np.concatenate([whole[t - lag] for lag in range(lags + 1)]) - mean[: (lags + 1) * d]
        m, o = np.flatnonzero(np.isnan(row)), np.flatnonzero(~np.isnan(row))
        S_mm, S_mo = covariance[np.ix_(m, m)], covariance[np.ix_(m, o)]
        B = (
            np.linalg.lstsq(covariance[np.ix_(o, o)], S_mo.T, rcond=None)[0].T
            if len(o)
            else np.zeros((len(m), 0))
        )
        spread = S_mm - B @ S_mo.T
        e, V = np.linalg.eigh((spread + spread.T) / 2)
        draw = V @ (np.sqrt(np.maximum(e, 0.0)) * rng.standard_normal(len(m)))
        row[m] = (B @ row[o] if len(o) else 0.0) + draw
        whole[t, m[m < d]] = row[m[m < d]] + mean[m[m < d]]
    return whole[offset:]
