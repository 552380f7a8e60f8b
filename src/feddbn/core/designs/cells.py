"""What happens to the cells of a site before rows are made of them: wrong ones become empty, units become one.

Rules of this file
------------------
- Public numbers and the site's own robust scales decide, never another site's data.
- A segment cut into blocks is treated like the whole segment: the rows next to a cut are looked at from both sides.
- A *cell map* makes something of each cell by itself, with public numbers: neither rows nor recordings act on each other,
  so it goes with noise, streams and stacks. One is a function here and a field of `Prepare`. `made_up` looks at the rows
  next to a cell, too, so it does not go with noise that hides single rows.

`FilledSite`, for what needs whole rows: nuisances are taken off values, and empty cells drawn. Sums of expected products
(`core.statistics.missing`) need no draws and lose less; resampling needs rows. Cells are drawn forward in time, given the
present cells of their own row, the row after it and the rows before it, under the federation's model of rows.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import BoolArray, FloatArray, may_lack_cells, root_weighted, weighted
from feddbn.core.designs.design import Nuisance
from feddbn.core.designs.gram import nuisance_basis
from feddbn.core.designs.recordings import (
    Block,
    Recording,
    RecordingView,
    SiteData,
    SitePart,
    SiteView,
    pieces,
)
from feddbn.core.statistics.survey import (
    N_FREQUENCIES,
    cycles_in,
    lagged_profile,
    periodogram,
    without_slow_part,
)
from feddbn.errors import ParameterError
from feddbn.settings import Rule, by_variable, number, several, word

CellMap = Callable[[FloatArray, Any], FloatArray]
CELL_MAPS: dict[str, tuple[CellMap, Rule]] = {}
"""Every cell map by its name, with what its public numbers may be."""
MADE_UP = ("lines", "repeats")
"""What cells can be emptied for."""
_ROUNDING = 8 * np.finfo(np.float64).eps


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


@cell_map(by_variable(word(*MADE_UP), f"{' or '.join(map(repr, MADE_UP))} by names of variables"))
def made_up(values: FloatArray, kinds: Any) -> FloatArray:
    """Cells on the line between their neighbours ("lines"), or that repeat the one before ("repeats"), are empty."""
    is_asked = [np.array([kind == one for kind in kinds], dtype=bool) for one in MADE_UP]
    return np.where(
        (triples(values) & np.array(is_asked).reshape(2, *[1] * (values.ndim - 1), -1)).any(axis=0),
        np.nan,
        values,
    )


def triples(values: FloatArray) -> BoolArray:
    """(2, n, d) which cells lie on the line between their neighbours, and which repeat the one before."""
    found = np.zeros((2, *values.shape), dtype=bool)
    change, size = np.diff(values, axis=-2), np.abs(values)
    before, after = change[..., :-1, :], change[..., 1:, :]
    with np.errstate(invalid="ignore"):
        near = _ROUNDING * np.maximum(size[..., 1:-1, :], np.maximum(size[..., 2:, :], size[..., :-2, :]))
        found[0, ..., 1:-1, :] = (np.abs(after - before) <= near) & (np.abs(after) > 100 * near)
    found[1, ..., 1:, :] = change == 0
    return found


def read_cell_map(text: str, variables: Sequence[str] = ()) -> Callable[[FloatArray], FloatArray]:
    """Return what ``"name=value"`` makes of cells; anything but a known name and a value that passes is refused.

    A value by names of variables is one for each column.
    """
    name, _, written = text.partition("=")
    if name not in CELL_MAPS:
        raise ParameterError(f"{name!r} is no cell map; there are {', '.join(CELL_MAPS)}.")
    function, rule = CELL_MAPS[name]
    try:
        value = json.loads(written)
    except ValueError:
        value = None
    rule.check(name, value)
    each = [value.get(one) for one in variables] if isinstance(value, dict) else value
    return lambda values: function(values, each)


def mapped(site: SiteData, maps: tuple[str, ...]) -> SiteData:
    """Return a site whose cells have gone through cell maps, one after the other; as it is without any."""
    functions = [read_cell_map(text, site.variables) for text in maps]

    def seen(recording: Recording) -> Iterator[Block]:
        for block, first, values in _with_neighbours(recording.blocks()):
            for function in functions:
                values = function(values)
            yield replace(block, values=values[..., first : first + block.values.shape[-2], :])

    return SitePart(site, lambda recording: RecordingView(recording, seen)) if maps else site


def _with_neighbours(blocks: Iterable[Block]) -> Iterator[tuple[Block, int, FloatArray]]:
    """Yield each block, its rows with those next to it in its segment, and before these where its own begin."""
    waiting: Block | None = None
    before: list[FloatArray] = []
    for block in itertools.chain(blocks, [None]):
        if waiting is not None:
            goes_on = block is not None and not block.starts_segment
            after = [block.values[..., :1, :]] if block is not None and goes_on else []
            parts = [*before, waiting.values, *after]
            yield waiting, len(before), np.concatenate(parts, axis=-2) if len(parts) > 1 else waiting.values
            before = [waiting.values[..., -1:, :]] if goes_on and waiting.values.shape[-2] else []
        waiting = block


_INPUT_REACH = 8
"""How many rows back inputs are looked at when what they do is taken off."""
_ROWS_PER_WEIGHT = 8
STRAIGHT = 5.0
"""Cells up to this many robust standard deviations from their recording's median stay as they are."""
NOTHING_FROM = 10.0
"""From here on a cell counts as its recording's median."""
FAR = 6.0
"""Rows are made robust only if some cell is beyond this: of ten million Gaussian cells hardly one is."""
OWN_SCALE_CELLS = 20
"""With fewer cells a variable has no scale, and its cells stay."""
_MEDIAN_CELLS = 8
"""A recording with fewer cells of a variable has no median of its own there, and that of the site is taken."""
_AFTER_PULSES = 3
"""So many rows after a pulse cells stay as they are: they may be what the pulse does."""
_SHOCKS, _BEYOND_SHOCKS = 0.995, 1.5
"""Where far cells are shocks, cells stay up to so many times this quantile of distances."""
_MOST_ROWS = 1 << 16
_GAUSSIAN = 0.6744897501960817, 1.2815515655446004
"""Of Gaussian cells half are nearer to the median than the first of these, in standard deviations, and .8 than the other."""


class _Evenly:
    """Rows at equal distances, of however many come: where they are too many, every second goes."""

    def __init__(self, *parts: NDArray[Any]) -> None:
        self._parts = list(parts)
        self._step, self.n_seen, self._n = 1, 0, 0

    def add(self, rows: NDArray[Any]) -> None:
        """Take the next rows."""
        # A view would keep all of the rows in memory.
        part = rows if self._step == 1 else rows[-self.n_seen % self._step :: self._step].copy()
        self._parts.append(part)
        self.n_seen, self._n = self.n_seen + len(rows), self._n + len(part)
        while self._n > _MOST_ROWS:
            self._parts = [self.rows[::2].copy()]
            self._step, self._n = 2 * self._step, len(self._parts[0])

    @property
    def rows(self) -> NDArray[Any]:
        """Those that were kept."""
        return self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)

    @property
    def places(self) -> FloatArray:
        """Where they were."""
        return self._step * np.arange(self._n, dtype=np.float64)


def _quantiles(rows: FloatArray, *shares: float) -> tuple[FloatArray, FloatArray]:
    """(d,) how many cells columns have, and quantiles of them (shares, d); 0 without any cells."""
    n, d = rows.shape
    if n and not may_lack_cells(rows):
        # As `numpy.quantile`, which takes many times as long for few rows.
        places = (n - 1) * np.array(shares)
        low = places.astype(int)
        high = np.minimum(low + 1, n - 1)
        ordered = np.partition(rows, np.unique([low, high]), axis=0)
        found = ordered[low] + (places - low)[:, None] * (ordered[high] - ordered[low])
        return np.full(d, n), found
    # Empty cells come last.
    ordered = np.sort(rows, axis=0)
    n_cells = n - np.isnan(rows).sum(axis=0)
    last = np.maximum(n_cells - 1, 0)
    places = np.array(shares)[:, None] * last
    low = places.astype(int)
    if not n:
        return n_cells, np.zeros((len(shares), d))
    every = np.arange(d)
    found = ordered[low, every]
    found += (places - low) * (ordered[np.minimum(low + 1, last), every] - found)
    return n_cells, np.where(n_cells > 0, found, 0.0)


def _line(kept: _Evenly) -> FloatArray:
    """(2, d) level and slope of a recording's resistant line; a level alone where cells are few, NaN where hardly any are.

    The slope is that of the medians of the first and the last third of the rows.
    """
    rows, places, n = kept.rows, kept.places, len(kept.rows)
    third = n // 3
    (n_first, first), (n_last, last) = _quantiles(rows[:third], 0.5), _quantiles(rows[n - third :], 0.5)
    rise = np.where(np.minimum(n_first, n_last) >= _MEDIAN_CELLS, (last - first)[0], 0.0)
    slope = rise / max(places[n - third :].mean() - places[:third].mean(), 1.0) if third else 0.0 * rise
    n_cells, level = _quantiles(rows - places[:, None] * slope, 0.5)
    return np.array([np.where(n_cells >= _MEDIAN_CELLS, level[0], np.nan), slope])


def _scales(distances: FloatArray) -> FloatArray:
    """(3, d) robust standard deviations of cells from their distances to medians; and which variables have none and rest.

    The larger one by the median of distances and by their .8 quantile: fewer than a fifth of the cells decide nothing, and
    where a fifth or more are far these are no errors. There is none (infinity) for a variable with few cells, or of which
    half of the cells are the median itself: counts of rare events, doses, yes and no. It rests if .8 of them are.
    """
    n, found = _quantiles(distances, 0.5, 0.8)
    half, most = found / np.array(_GAUSSIAN)[:, None]
    is_known = (n >= OWN_SCALE_CELLS) & (half > 0)
    return np.array([np.where(is_known, np.maximum(half, most), np.inf), half == 0, most == 0])


def _company(z: FloatArray, follows: BoolArray, weights: FloatArray) -> FloatArray:
    """How many cells are far, and the sum of how much farther than usual the other variables are then, or a row apart.

    `z` are distances in scales, `follows` (n - 1,) says which rows directly follow the one before; what is usual is their
    mean, and how much more is in standard deviations. Errors of measurement come alone, while shocks travel. Rows count as
    their weights (n,) say.
    """
    near = np.pad(np.minimum(np.nan_to_num(z), NOTHING_FROM), ((0, 1), (0, 0)))
    far = weighted((near > STRAIGHT).astype(float), np.append(weights, 0.0))
    around = near.copy()
    for here, there in ((near[1:-1], around[:-2]), (near[:-2], around[1:-1])):
        np.maximum(there, here, out=there, where=follows[:, None])
    more = (around - around.mean(axis=0)) / np.maximum(around.std(axis=0), 1e-300)
    others = more.sum(axis=1, keepdims=True) - more
    return np.array([far.sum(), (far * others).sum() / max(z.shape[1] - 1, 1)])


@dataclass(frozen=True)
class Bounds:
    """How the cells of a recording are bounded.

    Attributes
    ----------
    line
        (2 or more, d) level and slope of the recording's median, then weights of the cosines and sines of `periods`.
    scale
        (d,) robust standard deviations; infinity: cells of the variable stay.
    pulses
        (d,) how far from its median an input, or a variable that rests, is a pulse; infinity: no cell is.
    """

    line: FloatArray
    scale: FloatArray
    pulses: FloatArray
    periods: tuple[float, ...] = ()

    @classmethod
    def of(
        cls, line: FloatArray, scales: FloatArray, inputs: Sequence[int], periods: tuple[float, ...] = ()
    ) -> Bounds:
        """From the scales of `_scales`: inputs stay, and so do all cells around pulses."""
        scale, is_still, rests = scales
        pulses = np.where(rests > 0, 0.0, np.inf)
        known = list(inputs)
        pulses[known] = np.where(is_still[known] > 0, 0.0, STRAIGHT * scale[known])
        return cls(line, np.where(np.isfinite(pulses), np.inf, scale), pulses, periods)

    def judged(
        self, blocks: Iterable[Block], beyond: float = STRAIGHT
    ) -> Iterator[tuple[Block, BoolArray, FloatArray]]:
        """Yield each block, which of its cells are beyond so many scales, but for those around pulses, and their medians."""
        since, n_before = _AFTER_PULSES, 0
        watched = np.flatnonzero(np.isfinite(self.pulses))
        for block in blocks:
            places = n_before + np.arange(len(block.values), dtype=np.float64)
            centre = self.line[0] + places[:, None] * self.line[1]
            if self.periods:
                centre = centre + _turns(places, self.periods) @ self.line[2:]
            n_before += len(block.values)
            distance = np.abs(block.values - centre)
            far = distance > beyond * self.scale
            if len(watched):
                n = len(far)
                at = np.flatnonzero((distance[:, watched] > self.pulses[watched]).any(axis=1))
                last = np.full(n + 1, -since - 1)
                last[at + 1] = at
                last = np.maximum.accumulate(last)[1:]
                far &= (np.arange(n) - last > _AFTER_PULSES)[:, None]
                since = int(n - 1 - last[-1]) if n else since
            yield block, far, centre

    def bounded(self, recording: Recording) -> Iterator[Block]:
        """Yield a recording's blocks with far cells brought in: of a distance less and less counts, from `NOTHING_FROM` on
        nothing.
        """
        scale = np.where(np.isfinite(self.scale), self.scale, 1.0)
        for block, far, centre in self.judged(recording.blocks()):
            values = block.values
            if far.any():
                z = (values - centre) / scale
                share = np.clip((NOTHING_FROM - np.abs(z)) / (NOTHING_FROM - STRAIGHT), 0.0, 1.0)
                values = np.where(far, centre + scale * (np.sign(z) * STRAIGHT * share), values)
            yield replace(block, values=values)


class _Known(NamedTuple):
    """What one pass tells: of recordings medians and the ends and extremes of blocks, of the site scales and cycles."""

    lines: FloatArray
    scales: FloatArray
    extremes: list[list[tuple[Any, ...]]]
    company: FloatArray
    periods: tuple[float, ...]


@dataclass(frozen=True)
class BoundedSite(SiteView):
    """A site whose cells have bounded influence: far ones are brought back towards their recording's median.

    Attributes
    ----------
    scope
        "site": scales are those of all its recordings; "shocks": and so large that only what lies far beyond the variable's
        usual shocks is brought back; "recording": each goes by its own scale, so that none acts on another.
    inputs
        Positions of variables that only act on others; their cells stay.

    Medians and scales of long data are those of rows at equal distances.
    """

    scope: str = "site"
    inputs: tuple[int, ...] = ()

    def recordings(self) -> Iterator[Recording]:
        """Yield the recordings."""
        for recording, bounds in self.with_bounds():
            yield RecordingView(recording, bounds.bounded)

    def with_bounds(self) -> Iterator[tuple[Recording, Bounds]]:
        """Yield the recordings as they are, each with how it is bounded."""
        if self.scope != "recording":
            for recording, line in zip(self.data.recordings(), self.known.lines, strict=True):
                yield recording, Bounds.of(line, self.known.scales, self.inputs, self.known.periods)
            return
        for recording in self.data.recordings():
            kept = _Evenly(np.empty((0, len(self.variables))))
            for block in recording.blocks():
                kept.add(block.values)
            line = _line(kept)
            distances = np.abs(kept.rows - line[0] - kept.places[:, None] * line[1])
            yield recording, Bounds.of(line, _scales(distances), self.inputs)

    @property
    def is_still(self) -> BoolArray:
        """(d,) of which variables half of the cells are medians."""
        return np.asarray(self.known.scales[1] > 0)

    def n_far(self) -> FloatArray:
        """(d,) how many cells are beyond `FAR`, as their rows count; the site is read for it only if some cell may be."""
        total = np.zeros(len(self.variables))
        if self._may_be_far():
            for recording, bounds in self.with_bounds():
                for block, far, _ in bounds.judged(recording.blocks(), FAR):
                    total += weighted(far.astype(float), block.weights).sum(axis=0)
        return total

    def _may_be_far(self) -> bool:
        """Whether the extremes of some block are beyond `FAR`, wherever in the block they are."""
        for line, ends in zip(self.known.lines, self.known.extremes, strict=True):
            farthest = FAR * Bounds.of(line, self.known.scales, self.inputs).scale
            for first, last, low, high in ends:
                centres = line[0] + np.outer((first, last), line[1])
                distance = np.fmax(high - centres.min(axis=0), centres.max(axis=0) - low)
                distance += np.abs(line[2:]).sum(axis=0)
                if np.any(distance > farthest):
                    return True
        return False

    @cached_property
    def known(self) -> _Known:
        """What bounds are made of."""
        for _ in self.read():
            pass
        return self.known

    def read(self) -> Iterator[tuple[int, Block]]:
        """Yield the blocks as they are, with the number of their recording; medians and scales are found on the way."""
        d = len(self.variables)
        every, whose = _Evenly(np.empty((0, d))), _Evenly(np.empty((0, 3), dtype=int))
        counted = _Evenly(np.empty(0))
        lines, extremes, n_segments = [np.empty((2, d))], [], 0
        for k, recording in enumerate(self.data.recordings()):
            kept, ends = _Evenly(np.empty((0, d))), []
            for block in recording.blocks():
                first, n = kept.n_seen, len(block.values)
                n_segments += block.starts_segment or not first
                kept.add(block.values)
                every.add(block.values)
                counted.add(np.ones(n) if block.weights is None else block.weights)
                whose.add(
                    np.column_stack([np.full(n, k), np.arange(first, first + n), np.full(n, n_segments)])
                )
                if n:
                    ends.append(
                        (first, first + n - 1, *(f.reduce(block.values, axis=0) for f in (np.fmin, np.fmax)))
                    )
                yield k, block
            lines.append(_line(kept))
            extremes.append(ends)
        found = np.array(lines[1:]).reshape(-1, 2, d)
        common = _quantiles(every.rows, 0.5)[1]
        found[:, :1] = np.where(np.isnan(found[:, :1]), common, found[:, :1])
        number, place, segment = whose.rows.T
        rest = every.rows - (found[number, 0] + place[:, None] * found[number, 1])
        scales, periods = _scales(np.abs(rest)), tuple[float, ...]()
        if every.n_seen == len(rest):
            # What is far is brought back to where its recording is then, so cycles are those of all other cells.
            near = np.clip(rest, -STRAIGHT * scales[0], STRAIGHT * scales[0])
            cuts = np.flatnonzero(np.diff(number)) + 1
            parts = np.split(near, cuts)
            periods, _ = _own_cycles(map(without_slow_part, parts))
        if periods:
            waves = np.zeros((len(found), 2 * len(periods), d))
            turns = _turns(place.astype(np.float64), periods)
            # A second time with what is far from the cycles, and not only from the median, brought in.
            for _ in range(2):
                for k, part, basis in zip(np.unique(number), parts, np.split(turns, cuts), strict=True):
                    known = ~np.isnan(part)
                    for j in np.flatnonzero(known.sum(axis=0) >= _ROWS_PER_WEIGHT * basis.shape[1]):
                        here = known[:, j]
                        waves[k, :, j] = np.linalg.lstsq(basis[here], part[here, j], rcond=None)[0]
                cycle = np.einsum("np,npd->nd", turns, waves[number])
                scales = _scales(np.abs(rest - cycle))
                reach = STRAIGHT * scales[0]
                parts = np.split(cycle + np.clip(rest - cycle, -reach, reach), cuts)
            found, rest = np.concatenate([found, waves], axis=1), rest - cycle
        follows = (np.diff(segment) == 0) & (np.diff(place) == 1)
        company = _company(np.abs(rest) / scales[0], follows, counted.rows)
        if self.scope == "shocks":
            usual = _quantiles(np.abs(rest), _SHOCKS)[1][0]
            scales[0] = np.maximum(scales[0], _BEYOND_SHOCKS / STRAIGHT * usual)
        # As a cached property is kept.
        vars(self)["known"] = _Known(found, scales, extremes, company, periods)


def _turns(places: FloatArray, periods: tuple[float, ...]) -> FloatArray:
    """(n, two for each period) cosines and sines."""
    angles = 2 * np.pi * places[:, None] / np.array(periods)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)


_MOST_PROFILED = 1 << 20
"""Values that a site is compared by; they are held at once, with some copies, and more tell hardly more."""


def site_profile(
    data: SiteData, n_lags: int, columns: Sequence[int] | None = None
) -> tuple[FloatArray, float] | None:
    """What a site is compared by (`survey.lagged_profile`), from all of its recordings; of very many rows from some pieces.

    `columns` are the variables to compare; what the others, known inputs, do to them is taken off first.
    """
    d = len(data.variables)
    chosen = list(range(d) if columns is None else columns)
    inputs = [j for j in range(d) if j not in chosen]

    def parts(periods: tuple[float, ...]) -> Iterator[FloatArray]:
        for recording in data.recordings():
            for values, weights in pieces(recording.blocks()):
                rest = _without_inputs(without_slow_part(values, periods), chosen, inputs)
                yield root_weighted(rest, weights)

    periods, n_rows = _own_cycles(parts(()))
    # Pieces evenly over all rows, so many that they can be held at once.
    spread = itertools.islice(parts(periods), 0, None, max(1, n_rows * d // _MOST_PROFILED))
    return lagged_profile(spread, len(chosen), n_lags)


def _own_cycles(parts: Iterable[FloatArray]) -> tuple[tuple[float, ...], int]:
    """Periods of the cycles of a site, whose own sizes and phases would hide how its variables go together; and its rows."""
    spectrum, number, rows, pieces = np.zeros(N_FREQUENCIES), 0.0, 0, 0
    for part in parts:
        power, number_of = periodogram(part)
        spectrum, number = spectrum + power, number + number_of
        rows, pieces = rows + len(part), pieces + 1
    return cycles_in(spectrum / number, number, rows / pieces) if number else (), rows


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
class ScaledSite(SiteView):
    """A site whose values are multiplied by `gains` (d,)."""

    gains: FloatArray

    def recordings(self) -> Iterator[Recording]:
        """Yield the recordings with scaled values."""
        return (RecordingView(one, self._scaled) for one in self.data.recordings())

    def _scaled(self, recording: Recording) -> Iterator[Block]:
        return (replace(block, values=block.values * self.gains) for block in recording.blocks())


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
            yield RecordingView(recording, partial(self._filled, k))

    def _filled(self, number: int, recording: Recording) -> Iterator[Block]:
        blocks = list(recording.blocks())
        if not blocks:
            return
        rest = self._off_nuisances(blocks)
        # A recording may be read many times, also at once: every time with the same draws.
        rng = np.random.default_rng((self.seed, number))
        before = np.empty((0, rest.shape[1]))
        start = 0
        for block in blocks:
            values = rest[start : start + len(block.values)]
            start += len(block.values)
            if block.starts_segment:
                before = values[:0]
            if self.row_model is not None:
                values = _drawn(before, values, self.row_model, rng)
            n_lags = 0 if self.row_model is None else self.row_model.shape[1] // rest.shape[1] - 1
            before = np.concatenate([before, values])[-(n_lags or 1) :]
            yield replace(block, values=values)

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
