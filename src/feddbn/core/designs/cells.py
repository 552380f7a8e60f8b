"""What happens to the cells of a site before rows are made of them: wrong ones become empty, units become one.

Rules of this file
------------------
- Public numbers and the site's own robust scales decide, never another site's data.
- A segment cut into blocks is treated like the whole segment: the rows next to a cut are looked at from both sides.
- A *cell map* makes something of each cell by itself, with public numbers: neither rows nor recordings act on each other,
  so it goes with noise, streams and stacks. One is a function here and a field of `Prepare`.

`FilledSite`, for what needs whole rows: nuisances are taken off values, and empty cells drawn. Sums of expected products
(`core.statistics.missing`) need no draws and lose less; resampling needs rows. Cells are drawn forward in time, given the
present cells of their own row, the row after it and the rows before it, under the federation's model of rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.design import Nuisance
from feddbn.core.designs.gram import nuisance_basis
from feddbn.core.designs.recordings import Block, Recording, RecordingView, SiteData, SiteView
from feddbn.core.statistics.survey import (
    N_FREQUENCIES,
    OWN_SCALE_CELLS,
    TAIL,
    bin_counts,
    cycles_in,
    deviations,
    lagged_profile,
    periodogram,
    robust_scale,
    without_slow_part,
)
from feddbn.errors import ParameterError
from feddbn.settings import Rule, number, several

CellMap = Callable[[FloatArray, Any], FloatArray]
CELL_MAPS: dict[str, tuple[CellMap, Rule]] = {}
"""Every cell map by its name, with what its public numbers may be."""


def cell_map(rule: Rule) -> Callable[[CellMap], CellMap]:
    """Register a function of cells and of public numbers that pass the rule; NaN is an empty cell."""

    def register(function: CellMap) -> CellMap:
        CELL_MAPS[function.__name__] = function, rule
        return function

    return register


@cell_map(number() | several(number(), "a list of numbers"))
def empty_values(values: FloatArray, codes: Any) -> FloatArray:
    """Cells with one of these values are empty."""
    return np.where(np.isin(values, codes), np.nan, values)


def read_cell_map(text: str) -> Callable[[FloatArray], FloatArray]:
    """Return what ``"name=value"`` makes of cells; anything but a known name and a value that passes is refused."""
    name, _, written = text.partition("=")
    if name not in CELL_MAPS:
        raise ParameterError(f"{name!r} is no cell map; there are {', '.join(CELL_MAPS)}.")
    function, rule = CELL_MAPS[name]
    try:
        value = json.loads(written)
    except ValueError:
        value = None
    rule.check(name, value)
    return lambda values: function(values, value)


@dataclass(frozen=True)
class MappedSite(SiteView):
    """A site whose cells have gone through cell maps, one after the other."""

    maps: tuple[str, ...]

    def seen(self, recording: Recording) -> Recording:
        """With mapped cells."""
        return _Mapped(recording, tuple(map(read_cell_map, self.maps)))


@dataclass(frozen=True)
class _Mapped(RecordingView):
    maps: tuple[Callable[[FloatArray], FloatArray], ...]

    def blocks(self) -> Iterator[Block]:
        for block in self.recording.blocks():
            values = block.values
            for function in self.maps:
                values = function(values)
            yield replace(block, values=values)


_REACH = 3
"""How many rows on either side the running median of `deviations` looks at."""
_INPUT_REACH = 8
"""How many rows back inputs are looked at when what they do is taken off."""
_ROWS_PER_WEIGHT = 8


def block_deviations(blocks: Iterable[Block]) -> Iterator[tuple[Block, FloatArray]]:
    """Yield each block with the deviations of its cells from their running medians."""
    before = np.empty((0, 0))
    waiting: Block | None = None

    def looked_at(block: Block, after: FloatArray) -> tuple[Block, FloatArray]:
        n, start = len(block.values), len(before)
        parts = [part for part in (before, block.values, after) if len(part)]
        return block, deviations(np.concatenate(parts) if len(parts) > 1 else parts[0])[start : start + n]

    for block in blocks:
        if not len(block.values):
            continue
        if waiting is not None:
            goes_on = not block.starts_segment
            yield looked_at(waiting, block.values[:_REACH] if goes_on else block.values[:0])
            before = waiting.values[-_REACH:] if goes_on else block.values[:0]
        waiting = block
    if waiting is not None:
        yield looked_at(waiting, waiting.values[:0])


def limits_of(data: SiteData, common: FloatArray, far: float = TAIL) -> FloatArray:
    """(d,) how far a cell may be from its running median: by the site's own scale, or if it has few cells the common one.

    `common` has robust standard deviations of all sites together; 0 there sets no limit. `far` of them are too far.
    """
    d = len(data.variables)
    counts = np.zeros((d, 0))
    for recording in data.recordings():
        for _, deviation in block_deviations(recording.blocks()):
            found = bin_counts(deviation)
            counts = counts + found if counts.size else found
    own = robust_scale(counts) if counts.size else np.zeros(d)
    enough = counts.sum(axis=1) >= OWN_SCALE_CELLS
    scale = np.where(enough & (own > 0), own, common)
    return common_limits(np.where(common > 0, scale, 0.0), far)


def common_limits(scale: FloatArray, far: float = TAIL) -> FloatArray:
    """(d,) how far a cell may be from its running median by given scales alone; 0 sets no limit."""
    return np.where(scale > 0, far * scale, np.inf)


def site_profile(
    data: SiteData, n_lags: int, columns: Sequence[int] | None = None
) -> tuple[FloatArray, float] | None:
    """What a site is compared by (`survey.lagged_profile`), from all of its recordings.

    `columns` are the variables to compare; what the others, known inputs, do to them is taken off first.
    """
    d = len(data.variables)
    chosen = list(range(d) if columns is None else columns)
    inputs = [j for j in range(d) if j not in chosen]

    def parts(periods: tuple[float, ...]) -> Iterator[FloatArray]:
        for recording in data.recordings():
            for block in recording.blocks():
                yield _without_inputs(without_slow_part(block.values, periods), chosen, inputs)

    return lagged_profile(parts(_own_cycles(parts(()))), len(chosen), n_lags)


def _own_cycles(parts: Iterable[FloatArray]) -> tuple[float, ...]:
    """Periods of the cycles of a site: with a size and phase of its own these would hide how its variables go together."""
    spectrum, number, rows, pieces = np.zeros(N_FREQUENCIES), 0.0, 0, 0
    for part in parts:
        power, number_of = periodogram(part)
        spectrum, number = spectrum + power, number + number_of
        rows, pieces = rows + len(part), pieces + 1
    return cycles_in(spectrum / number, number, rows / pieces) if number else ()


def _without_inputs(rest: FloatArray, columns: list[int], inputs: list[int]) -> FloatArray:
    """The columns without what inputs of the same row and of a few rows before explain, by least squares."""
    found, n = rest[:, columns], len(rest)
    reach = min(_INPUT_REACH, n // (_ROWS_PER_WEIGHT * max(len(inputs), 1)) - 1)
    if not inputs or reach < 0:
        return found
    known = np.nan_to_num(rest[:, inputs])
    # Before the first row nothing is known; what is done is taken to have begun with it.
    before = np.concatenate([np.repeat(known[:1], reach, axis=0), known])
    rows = np.concatenate([before[reach - lag : reach - lag + n] for lag in range(reach + 1)], axis=1)
    left = np.full_like(found, np.nan)
    for j in range(len(columns)):
        here = ~np.isnan(found[:, j])
        weights = np.linalg.lstsq(rows[here], found[here, j], rcond=1e-8)[0]
        left[here, j] = found[here, j] - rows[here] @ weights
    return left


@dataclass(frozen=True)
class TreatedSite(SiteView):
    """A site whose cells are treated as a question asks.

    Attributes
    ----------
    limits
        (d,) cells farther than this from their running median are empty; None: none are.
    gains
        (d,) values are multiplied by these; None: they stay.
    """

    limits: FloatArray | None = None
    gains: FloatArray | None = None

    def seen(self, recording: Recording) -> Recording:
        """With treated cells."""
        return _Treated(recording, self.limits, self.gains)


@dataclass(frozen=True)
class _Treated(RecordingView):
    limits: FloatArray | None
    gains: FloatArray | None

    def blocks(self) -> Iterator[Block]:
        blocks: Iterable[Block] = self.recording.blocks()
        if self.limits is not None:
            limits = self.limits
            blocks = (
                replace(block, values=np.where(deviation > limits, np.nan, block.values))
                for block, deviation in block_deviations(blocks)
            )
        for block in blocks:
            yield block if self.gains is None else replace(block, values=block.values * self.gains)


def off_nuisance(recording: Recording, nuisance: Nuisance) -> Recording:
    """Return a recording without what is its own: a mean, a trend, cycles; the same one if nothing is."""
    if nuisance.scope != "recording":
        return recording
    return _Filled(recording, nuisance, None, np.random.default_rng(0))


@dataclass(frozen=True)
class FilledSite(SiteView):
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

    nuisance: Nuisance
    row_model: FloatArray | None
    seed: int

    def recordings(self) -> Iterator[Recording]:
        """Yield the recordings."""
        for k, recording in enumerate(self.data.recordings()):
            yield _Filled(recording, self.nuisance, self.row_model, np.random.default_rng([self.seed, k]))


@dataclass(frozen=True)
class _Filled(RecordingView):
    nuisance: Nuisance
    row_model: FloatArray | None
    rng: np.random.Generator

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
