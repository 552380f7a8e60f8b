"""Sums of products of two readings by the time between them, from which a network in continuous time is learned.

    counts, products, delays    of the pairs of readings in each bin of the time between them, for each pair of variables
    totals                      of the readings of each variable
    recordings, time            how many recordings there are, and how long they are together

What is told and what is not
----------------------------
- Bins are those of one fixed ladder (`core.designs.lags`): a study says which of them it has, nobody says where they begin.
- Readings are counted from the site's own mean of each variable, or from their recording's (``center="recording"``). Sums of
  readings by bin are therefore not needed, and not told: each would be one more equation about single readings for whoever
  knows when they were made, and two of them for a pair of variables that are nearly always read together differ by a few.
- For bins and pairs of variables in which few readings of this site take part it answers with zeros. A refusal would tell
  the same, end the run, and be the rule: the longest delays are always seldom. Zeros are told under masks in the sum over
  sites, and in every study for the same bins.
- A pair of variables that few sites have in a bin would be these sites' sum: ``counts.lags`` asks for it first, in zeros and
  ones, and the next question leaves such pairs out (`cells`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.designs.design import Design
from feddbn.core.designs.lags import (
    CLOCKS,
    FIRST_BIN,
    LAST_BIN,
    LagDesign,
    LagSums,
    Reading,
    lag_sums,
    readings_in_pairs,
    recording_readings,
)
from feddbn.core.designs.recordings import SiteData
from feddbn.data.times import parse_freq
from feddbn.errors import DataError, Given, ParameterError
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Here, SiteState, answers
from feddbn.federation.protocol.task import Constant, Scope, View, array, choice, whole
from feddbn.federation.sums.in_view import LEAST

SHORTEST, LONGEST = 0.125, 32.0
"""Delays that are looked at where nobody says it, in steps; rows are never nearer than one."""
_HOUR = 3600 * 10**9


def clock_of(step: str | None, argument: str = "step") -> tuple[str, float]:
    """Return what a step is counted in, out of `CLOCKS`, and how long it is: ``"30min"`` is half of an hour."""
    if step is None or step == "":
        return "rows", 1.0
    try:
        return "numbers", _positive(float(step), step, argument)
    except ValueError:
        pass
    found = parse_freq(step)
    if found is None or found.step is None or found.unit not in ("instant", "wall"):
        raise ParameterError(
            f"{Given(argument, step)} has no fixed length; give hours, minutes or days, such as '1h'."
        )
    return "hours", found.step / _HOUR


def _positive(value: float, step: str, argument: str) -> float:
    if not 0 < value < float("inf"):
        raise ParameterError(f"{Given(argument, step)} must be positive.")
    return value


def lag_design(
    variables: Sequence[str],
    step: str | None = None,
    shortest: float | None = None,
    longest: float | None = None,
) -> LagDesign:
    """Return the bins for delays from `shortest` to `longest` steps: the ladder's, whatever the step is."""
    clock, length = clock_of(step)
    first = (1.0 if clock == "rows" else SHORTEST) if shortest is None else shortest
    return LagDesign.spanning(variables, clock, first * length, (longest or LONGEST) * length)


def study_design(variables: Sequence[str], parameters: Mapping[str, Any]) -> LagDesign:
    """The bins that the parameters of a study say."""
    return lag_design(variables, *(parameters.get(name) for name in ("step", "shortest", "longest")))


@dataclass(frozen=True, kw_only=True)
class _Lags(RowsQuestion):
    """A question about pairs of readings.

    Attributes
    ----------
    clock, first, n_bins
        The bins (`LagDesign`).
    """

    clock: str = choice(*CLOCKS)
    first: int = whole(FIRST_BIN, LAST_BIN)
    n_bins: int = whole(1, LAST_BIN - FIRST_BIN + 1)

    def sizes(self) -> Mapping[str, int]:
        """Also one bin more, for readings at the same time."""
        return {**super().sizes(), "bins": self.n_bins + 1}

    def check(self) -> None:
        """Rows have no lags here, and nothing is done to them that knows of rows only."""
        super().check()
        only_rows = {
            "n_lags": self.n_lags,
            "fold": self.fold,
            "degree": self.degree,
            "periods": self.periods,
            "log_scales": self.log_scales is not None,
            "row_model": self.row_model is not None,
        }
        for name, is_given in only_rows.items():
            if is_given:
                raise self.wrong(f"{name!r} has no meaning for pairs of readings")
        try:
            _ = self.lag_design
        except ParameterError as error:
            raise self.wrong(str(error).rstrip(".")) from None

    def check_scope(self, scope: Scope) -> None:
        """The bins are the study's."""
        super().check_scope(scope)
        is_same = self.lag_design == study_design(self.variables, scope.parameters)
        scope.require(is_same, self.name, "it has other bins of time than the study", "other-bins")

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Also the bins."""
        return *super().constants, Constant("bins of delays", (self.clock, self.first, self.n_bins))

    @property
    def reads_incomplete_rows(self) -> bool:
        """A row is whatever was read at one time."""
        return True

    @cached_property
    def lag_design(self) -> LagDesign:
        """Its bins and variables."""
        return LagDesign(self.variables, self.clock, self.first, self.n_bins)

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """The readings themselves; how many are in which pairs is counted where they are told (`LagGuard`)."""
        return (self.view(Design.linear(data.variables, 0), are_pairs=False),)

    def step_of(self, data: SiteData) -> float:
        """How long a step of this site is on the question's clock; refused where the site has another one."""
        step: str | None = getattr(data, "step", None)
        clock, length = clock_of(step)
        if clock == self.clock:
            return length
        if clock == "rows":
            raise DataError(
                f"the study counts time in {self.clock}, and this site does not know how far its rows are apart; name their "
                f"{Given('time')} column, or {Given('freq')}.",
                code="no-clock",
            )
        raise DataError(
            f"the study counts time in {self.clock}, and this site has steps of {step}, which are {clock}; have the study "
            "say a step of that kind.",
            code="other-clock",
        )

    def readings(self, data: SiteData) -> Iterator[list[Reading]]:
        """Yield the readings of each recording, as the question wants their cells; parts with no known time between apart."""
        length = self.step_of(data)
        for recording in self.treated(data).recordings():
            yield recording_readings(recording, length)

    def n_readings(self, data: SiteData) -> IntArray:
        """(bins, d, d) on how many readings of this site each sum rests."""
        pieces = (
            (times, ~np.isnan(values), None)
            for recording in self.readings(data)
            for times, values in recording
        )
        return readings_in_pairs(pieces, self.lag_design)


@dataclass(frozen=True, kw_only=True)
class LagsQuestion(_Lags):
    """Counts, products and delays of pairs of readings.

    Attributes
    ----------
    cells
        (bins, d, d) 1 for what is told, 0 for what is left out. None: all is told.
    """

    name = "gram.lags"
    purpose = (
        "cross-products of two readings by the time between them, in fixed bins, for each pair of variables"
    )

    cells: FloatArray | None = array("bins", "d", "d", default=None)

    def check(self) -> None:
        """Cells are told or not."""
        super().check()
        if self.cells is not None and not np.isin(self.cells, (0.0, 1.0)).all():
            raise self.wrong("'cells' must be zeros and ones")

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Also what is told: the same question with fewer cells is another sum of the same numbers."""
        return *super().constants, Constant("pairs of variables that are told", (self.cells,))

    def telling(self, enough: BoolArray) -> LagsQuestion:
        """The same without cells that do not have enough."""
        cells = enough.astype(np.float64)
        return replace(self, cells=cells if self.cells is None else cells * self.cells)

    @property
    def length(self) -> int:
        """How many numbers an answer has."""
        return lags_length(self.lag_design)


def lags_length(design: LagDesign) -> int:
    """How many numbers leave a site."""
    return 3 * int(np.prod(design.shape)) + design.d + 2


@dataclass(frozen=True)
class SummedLags:
    """What an answer says.

    Attributes
    ----------
    sums
        Of products about means, for `learn_rates`; sums of single readings by bin are zeros.
    totals
        (d,) of the readings of each variable; ``sums.counts[0, i, i]`` are how many these are.
    """

    sums: LagSums
    totals: FloatArray

    @property
    def means(self) -> FloatArray:
        """(d,) mean of each variable; 0 for one that was not told."""
        n = np.diagonal(self.sums.counts[0])
        return np.where(n > 0, self.totals / np.where(n > 0, n, 1.0), 0.0)

    def to_sums(self, design: LagDesign, cells: FloatArray | None = None) -> FloatArray:
        """What travels; delays as what they are more than the middle of their bin, in units of it."""
        sums, middles = self.sums, design.middles[:, None, None]
        told = np.ones(design.shape) if cells is None else cells
        apart = np.divide(
            sums.delays, middles, out=np.zeros(design.shape), where=middles > 0
        ) - sums.counts * (middles > 0)
        parts = [told * one for one in (sums.counts, sums.products, apart)]
        rest = [self.totals * np.diagonal(told[0]), np.array([sums.n_recordings, sums.time])]
        return np.concatenate([np.ravel(one) for one in (*parts, *rest)])

    @classmethod
    def from_sums(cls, vector: FloatArray, design: LagDesign) -> SummedLags:
        """Inverse of `to_sums`."""
        size = int(np.prod(design.shape))
        counts, products, apart = vector[: 3 * size].reshape(3, *design.shape)
        delays = design.middles[:, None, None] * (counts + apart)
        zeros = np.zeros(design.shape)
        n_recordings, time = vector[-2:].tolist()
        sums = LagSums(design.edges, counts, products, delays, zeros, zeros, n_recordings, time)
        return cls(sums, vector[3 * size : 3 * size + design.d])


def _summed(question: LagsQuestion, recordings: Iterator[list[Reading]], level: FloatArray) -> SummedLags:
    """Sums over some recordings, about a level or about the mean of each."""
    design = question.lag_design
    totals, n_read = np.zeros(design.d), 0

    def centred() -> Iterator[Reading]:
        nonlocal totals, n_read
        yield np.zeros(0), np.zeros((0, design.d))
        for pieces in recordings:
            if not any((~np.isnan(values)).any() for _, values in pieces):
                continue
            n_read += 1
            total, n = _totals(pieces, design.d)
            totals = totals + total
            about = total / np.maximum(n, 1.0) if question.center == "recording" else level
            yield from ((times, values - about) for times, values in pieces)

    sums = lag_sums(centred(), design.edges)
    return SummedLags(replace(sums, n_recordings=float(n_read)), totals)


def _totals(pieces: Sequence[Reading], d: int) -> tuple[FloatArray, FloatArray]:
    totals, n = np.zeros(d), np.zeros(d)
    for _, values in pieces:
        totals, n = totals + np.nansum(values, axis=0), n + (~np.isnan(values)).sum(axis=0)
    return totals, n


def _answer(here: Here, question: LagsQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    if question.abstains(here.state):
        return here.state, np.zeros(question.length)
    level = np.zeros(question.d)
    if question.center == "none":
        totals, n = np.zeros(question.d), np.zeros(question.d)
        for pieces in question.readings(here.data):
            total, number_of = _totals(pieces, question.d)
            totals, n = totals + total, n + number_of
        level = totals / np.maximum(n, 1.0)
    found = _summed(question, question.readings(here.data), level)
    return here.state, found.to_sums(question.lag_design, question.cells)


answers(LagsQuestion, length=lambda question: question.length)(_answer)


@dataclass(frozen=True, kw_only=True)
class LagCountsQuestion(_Lags):
    """In which bins, and for which pairs of variables, a site has enough readings: 0 or 1 each.

    `least` are enough, and a site whose owner asks for more takes those.
    """

    name = "counts.lags"
    purpose = "in which bins of the time between readings this site has enough of them, for each pair of variables: 0 or 1"

    least: int = whole(1, 1_000_000)

    @property
    def n_columns(self) -> int:
        """Zeros and ones are no products."""
        return 0

    def check_scope(self, scope: Scope) -> None:
        """With numbers of its own choice a server would tell small counts apart."""
        super().check_scope(scope)
        scope.require(self.least == LEAST, self.name, f"'least' is {self.least}")

    @property
    def constants(self) -> tuple[Constant, ...]:
        """It is asked once."""
        return *super().constants, Constant("how many readings are enough", (self.least,))

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """All readings; few of them do not show."""
        return (
            self.view(Design.linear(data.variables, 0), is_rounded=True, are_pairs=False, n_parameters=0),
        )


@answers(LagCountsQuestion, length=lambda question: int(np.prod(question.lag_design.shape)))
def _count(here: Here, question: LagCountsQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    if question.abstains(here.state):
        return here.state, np.zeros(int(np.prod(question.lag_design.shape)))
    return here.state, (question.n_readings(here.data) >= question.least).astype(np.float64).ravel()
