"""Recordings with their nuisances taken off their values and their empty cells drawn: for what needs whole rows.

Sums of expected products (`core.statistics.missing`) need no draws and lose less; resampling needs rows. Cells are drawn
forward in time, given the present cells of their own row, the row after it and the rows before it, under the federation's
model of rows.
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

__all__ = ["FilledSite", "off_nuisance"]


def off_nuisance(recording: Recording, nuisance: Nuisance) -> Recording:
    """Return a recording without what is its own: a mean, a trend, cycles; the same one if nothing is."""
    if nuisance.scope != "recording":
        return recording
    return _Filled(recording, nuisance, None, np.random.default_rng(0))


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
    """The rows with their empty cells drawn, given the rows before them and the row after."""
    if not np.isnan(values).any():
        return values
    d = values.shape[1]
    n_lags = row_model.shape[1] // d - 1
    mean, covariance = row_model[0, :d], _with_next_row(row_model[1:], d)
    whole = np.concatenate([before, values]) - mean
    offset = len(before)
    for t in np.flatnonzero(np.isnan(values).any(axis=1)) + offset:
        last = min(n_lags, t)
        after = whole[t + 1] if t + 1 < len(whole) else np.full(d, np.nan)
        window = np.concatenate([after, *(whole[t - lag] for lag in range(last + 1))])
        S = covariance[: len(window), : len(window)]
        o, m = np.flatnonzero(~np.isnan(window)), d + np.flatnonzero(np.isnan(whole[t]))
        B = np.linalg.lstsq(S[np.ix_(o, o)], S[np.ix_(o, m)], rcond=None)[0].T
        spread = S[np.ix_(m, m)] - B @ S[np.ix_(o, m)]
        e, V = np.linalg.eigh((spread + spread.T) / 2)
        draw = V @ (np.sqrt(np.maximum(e, 0.0)) * rng.standard_normal(len(m)))
        whole[t, m - d] = B @ window[o] + draw
    # What was there stays bit for bit what it was.
    return np.where(np.isnan(values), whole[offset:] + mean, values)


def _with_next_row(covariance: FloatArray, d: int) -> FloatArray:
    """The covariance of [x_{t+1}, x_t, ..., x_{t-p}] from that of [x_t, ..., x_{t-p}], if the past acts through p rows."""
    q = len(covariance)
    if q == d:
        return np.block([[covariance, np.zeros((d, d))], [np.zeros((d, d)), covariance]])
    # Regression of a row on those before it; the row after next follows from it.
    B = np.linalg.lstsq(covariance[d:, d:], covariance[d:, :d], rcond=None)[0].T
    cross = B @ covariance[: q - d]
    return np.block([[covariance[:d, :d], cross], [cross.T, covariance]])
