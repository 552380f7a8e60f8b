"""Questions about lagged rows: what nearly every question has in common, and how time is cut into blocks.

Names, lags and centring are the short form of a linear design, by which sites read their rows. A `Treatment` says what
sites do to their rows before that; it is decided once and put into every question of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.designs.cells import TreatedSite, common_limits, limits_of, site_profile
from feddbn.core.designs.design import Design
from feddbn.core.designs.nuisance import ONE_MEAN, Nuisance
from feddbn.core.designs.recordings import SiteData
from feddbn.core.statistics.survey import TAIL
from feddbn.errors import ParameterError
from feddbn.federation.protocol.task import (
    MOST_LAGS,
    Constant,
    Question,
    Scope,
    ServerProgram,
    View,
    array,
    asking,
    choice,
    flag,
    names,
    number,
    numbers,
    whole,
    wholes,
)

# How time is to be cut into blocks, as people say it: by rows, by the calendar or by a column.
#
# ``"auto"``, 64              blocks of so many rows, a power of two; the data decide how many
# ``"month"``                 periods of the calendar; ``"month from 2024-01"`` says which is the first
# ``{"column": "phase"}``     a column of whole numbers 0, 1, 2, ..., also ``"column:phase"``

MOST_TIME_BLOCKS = 60
"""With many blocks each has few rows, and all ranges of them are learned from."""
CALENDAR: Mapping[str, str] = MappingProxyType(
    {"year": "Y", "month": "M", "week": "W", "day": "D", "hour": "h", "minute": "m"}
)
"""Periods and what numpy calls them."""
_MONDAY = 3
"""Days from the Monday of the week in which 1970 began to its first of January."""
_COLUMN, _FROM = "column:", " from "


def period_numbers(times: NDArray[np.generic], unit: str) -> IntArray:
    """(n,) how many periods after that of 1970-01-01 the dates are; weeks begin on Mondays."""
    if unit == "W":
        return np.asarray((times.astype("datetime64[D]").astype(np.int64) + _MONDAY) // 7)
    return np.asarray(times.astype(f"datetime64[{unit}]").astype(np.int64))


def period_name(number: int, unit: str) -> str:
    """The date on which a period begins, as exact as the period."""
    days = 7 * number - _MONDAY
    return str(np.array(days if unit == "W" else number, dtype=f"datetime64[{'D' if unit == 'W' else unit}]"))


def is_block_length(n_rows: int) -> bool:
    """Whether blocks may have this many rows: a power of two.

    Any two such lengths cut time so that what differs between their blocks is whole blocks of the shorter one. By other
    lengths two studies would differ by a row.
    """
    return n_rows > 0 and n_rows & (n_rows - 1) == 0


@dataclass(frozen=True)
class BlockWish:
    """What `blocks=` says.

    Attributes
    ----------
    kind
        "rows", "calendar" or "column"; "regime" where every site has its own clock.
    rows
        Rows in a block, None where the data decide.
    period
        Word of `CALENDAR`.
    first
        Number of the first period since 1970, None where the data decide.
    column
        Name of the column.
    """

    kind: str = "rows"
    rows: int | None = None
    period: str = ""
    first: int | None = None
    column: str = ""

    @property
    def unit(self) -> str:
        """The period as numpy calls it; empty without a calendar."""
        return CALENDAR.get(self.period, "")

    @classmethod
    def of(cls, given: Any) -> BlockWish:
        """Read the argument, or refuse it with a sentence."""
        if isinstance(given, Mapping) and set(given) == {"column"} and isinstance(given["column"], str):
            given = _COLUMN + given["column"]
        if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
            return cls._of_rows(int(given))
        if isinstance(given, str):
            if given == "auto":
                return cls()
            if given.startswith(_COLUMN) and len(given) > len(_COLUMN):
                return cls("column", column=given.removeprefix(_COLUMN))
            period, _, first = given.partition(_FROM)
            if period in CALENDAR:
                return cls("calendar", period=period, first=_first(given, period, first))
        raise ParameterError(
            f"blocks={given!r} must be 'auto', a number of rows, one of {', '.join(map(repr, CALENDAR))} (in a study with "
            "the first one, such as 'month from 2024-01'), or 'column:NAME'."
        )

    @classmethod
    def _of_rows(cls, n_rows: int) -> BlockWish:
        if not is_block_length(n_rows):
            near = 2 ** max(round(np.log2(max(n_rows, 1))), 0)
            raise ParameterError(
                f"blocks={n_rows} must be a power of two, for example {near}, or 'auto'; other lengths would let two studies "
                "differ by a few rows."
            )
        return cls(rows=n_rows)

    def name(self, number: int) -> str:
        """How people call a label: a date, or the column and its number."""
        if self.kind == "calendar":
            return period_name(number, self.unit)
        return f"{self.column} {number}"


def _first(given: str, period: str, date: str) -> int | None:
    if not date:
        return None
    try:
        return int(period_numbers(np.array([date.strip()], dtype="datetime64[ns]"), CALENDAR[period])[0])
    except ValueError:
        raise ParameterError(
            f"blocks={given!r} must name the first {period} by a date, such as '{period} from 2024-01-01'."
        ) from None


MOST_TREATMENTS = 4
"""Treatments that candidates come to for the rows that a fold leaves."""
MOST_MODELS = 8
"""How often a run may change the model by which empty cells are filled in."""
Fold = tuple[int, int, int]
MOST_BLOCKS = 10
"""Blocks of held-out rows: with many of them the difference of two folds would be a row or two."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RowsQuestion(Question):
    """A question about rows ``[x_t, ..., x_{t-p}]`` of named variables.

    Attributes
    ----------
    fold
        (block, number of blocks, share in thousandths): only the rows before a held-out block count; see
        `federation.programs.statistics`. Empty: all rows.
    center, degree, periods, limits, far, own_limits, log_scales, row_model, abstain, inputs
        See `Treatment`.
    """

    n_lags: int = whole(0, MOST_LAGS)
    variables: tuple[str, ...] = names()
    center: str = choice("none", "recording", default="none")
    degree: int = whole(0, 12, default=0)
    periods: tuple[float, ...] = numbers(2.0, 1e9, default=())
    limits: FloatArray | None = array("d", default=None)
    far: float = number(TAIL / 2, 1e6, default=TAIL)
    own_limits: bool = flag(default=True)
    log_scales: FloatArray | None = array("d", default=None)
    row_model: FloatArray | None = array("q and a mean", "q", default=None)
    abstain: bool = flag(default=False)
    inputs: tuple[int, ...] = wholes(0, 1_000_000, default=())
    fold: tuple[int, ...] = wholes(0, 1_000_000, default=())

    def check(self) -> None:
        """The fold must be one of its blocks, on a share between 0 and 1; trends need recordings' own means."""
        if self.fold and not (
            len(self.fold) == 3 and self.fold[0] < self.fold[1] <= MOST_BLOCKS and 0 < self.fold[2] < 1000
        ):
            raise self.wrong(
                f"'fold' is {self.fold}, but it must be (block, number of blocks up to {MOST_BLOCKS}, thousandths)"
            )
        if (self.degree or self.periods) and self.center != "recording":
            raise self.wrong("'degree' and 'periods' need center='recording'")

    def check_scope(self, scope: Scope) -> None:
        """Variables, lags and folds are the study's, and so is what is done to rows."""
        super().check_scope(scope)

        def need(is_within: bool, sentence: str, code: str = "not-in-study") -> None:
            scope.require(is_within, self.name, sentence, code)

        # A study may go on without variables that are seldom seen; a run has one such choice.
        is_same = self.variables == tuple(name for name in scope.variables if name in self.variables)
        need(is_same, "it is about other variables, or in another order", "other-variables")
        need(self.n_lags in scope.lags, f"n_lags is {self.n_lags}", "other-lags")
        is_known = not self.fold or self.fold in scope.folds
        need(is_known, f"it holds out other rows, fold is {self.fold}", "other-fold")
        inputs = tuple(scope.inputs_among(self.variables))
        need(self.inputs in ((), inputs), "'inputs' are other variables than the study's exogenous ones")
        for what in self.transformations:
            need(what in scope.transformations, f"it asks for {what!r}")
        need(self.degree in scope.degrees, f"'degree' is {self.degree}")
        need(len(self.periods) <= scope.most_cycles, f"it takes off {len(self.periods)} cycles")
        # Where the server says what is far it says which cells are left; under noise it may.
        need(self.own_limits or scope.unit is not None, "sites do not go by their own scales")
        # A parameter without a meaning would make two questions of one.
        need(self.limits is not None or self.far == TAIL, "'far' has no meaning without 'limits'")

    @property
    def transformations(self) -> tuple[str, ...]:
        """What its treatment does to rows."""
        asked = {
            "means": self.center == "recording",
            "trends": self.degree > 0,
            "cycles": bool(self.periods),
            "spikes": self.limits is not None,
            "scales": self.log_scales is not None,
            "fill": self.row_model is not None,
            "abstain": self.abstain,
        }
        return tuple(what for what, is_asked in asked.items() if is_asked)

    @property
    def is_plain(self) -> bool:
        """Whether it is about all rows as they are, of every site, but for what is taken off recordings."""
        changed = (self.limits, self.log_scales, self.row_model)
        return all(each is None for each in changed) and not self.abstain and not self.fold

    @property
    def is_look(self) -> bool:
        """Whether it belongs to the first look, which comes before a treatment is decided."""
        return False

    @property
    def reads_incomplete_rows(self) -> bool:
        """Whether rows with empty cells count, for what they hold."""
        return self.row_model is not None

    @property
    def projected(self) -> tuple[FloatArray, FloatArray] | None:
        """(q, m) coefficients and (m,) offsets of what nonlinear functions are applied to; None: it is linear."""
        return None

    @property
    def function_units(self) -> tuple[FloatArray, FloatArray] | None:
        """(d,) origin and scale of the values that smooth functions are applied to; None: there are none."""
        return None

    @property
    def told_rows(self) -> float | None:
        """How many rows all sites have together, if the question says so."""
        return None

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The treatment, which is decided once: a run asks about a common mean first, then off what was decided.

        Rows that a fold leaves are treated as each candidate decides, and the rows it holds out as all rows tell.
        """
        if self.is_look:
            return ()
        place = f" (n_lags = {self.n_lags}, fold = {self.fold})"
        found = [
            # Which cells are empty depends neither on lags nor on folds.
            Constant(
                "which cells are empty and which sites abstain",
                (self.limits, self.far, self.own_limits, self.abstain),
            ),
            Constant(
                "means, trends and cycles" + place,
                (self.center, self.degree, self.periods),
                MOST_TREATMENTS if self.fold else 2,
            ),
        ]
        if self.log_scales is not None:
            found.append(Constant("common scales" + place, (self.log_scales,)))
        if self.row_model is not None:
            found.append(Constant("the model of rows" + place, (self.row_model,), MOST_MODELS))
        return tuple(found)

    def settled_once(self, what: str, value: tuple[object, ...]) -> Constant:
        """Return what the first sums have settled for this number of lags and these held-out rows.

        Candidates that rows are held out for differ in their treatment, and so in what follows from it.
        """
        place = f" of task {self.name!r} (n_lags = {self.n_lags}, fold = {self.fold})"
        return Constant(what + place, value, MOST_TREATMENTS if self.fold else 1)

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """The lagged values of the rows it reads, as it wants their cells."""
        return (self.view(self.design_of(data.variables, self.n_lags)),)

    def view(self, design: Design, **more: Any) -> View:
        """What is in view of the rows it reads by a design."""
        is_whole = self.reads_incomplete_rows or self.is_look
        share = design.d / max(self.d, 1)
        given: dict[str, Any] = {
            # Gains of sites change no row against another.
            "seen": replace(self, log_scales=None).treated,
            "key": (self.limits, self.far, self.own_limits),
            "is_whole": is_whole,
            "are_pairs": self.reads_incomplete_rows,
            "fold": () if self.is_look else self.fold,
            "n_parameters": 0 if self.is_look else round(self.n_columns * share),
        }
        return View(design, **(given | more))

    @cached_property
    def design(self) -> Design:
        """Which columns are asked for, and what is taken off them."""
        return self.design_of(self.variables, self.n_lags)

    def design_of(self, variables: Sequence[str], n_lags: int) -> Design:
        """Return the same for a site that holds other variables or lags."""
        return Design.linear(variables, n_lags, self.nuisance)

    @property
    def nuisance(self) -> Nuisance:
        """What is taken off every recording."""
        if self.center != "recording":
            return ONE_MEAN
        return Nuisance("recording", self.degree, self.periods)

    def treated(self, data: SiteData) -> SiteData:
        """Return the site as this question wants its cells: wrong ones empty, in the federation's units."""
        if self.limits is None and self.log_scales is None:
            return data
        places = [self.variables.index(name) for name in data.variables]
        if self.limits is not None:
            common = self.limits[places]
            far = limits_of(data, common, self.far) if self.own_limits else common_limits(common, self.far)
            data = TreatedSite(data, far)
        if self.log_scales is not None:
            # What is done to a system is as strong as it is: inputs keep their scale.
            own = [k for k, place in enumerate(places) if place not in self.inputs]
            found = site_profile(data, 0, own)
            if found is not None:
                gains = np.ones(len(places))
                gains[own] = np.exp(self.log_scales[[places[k] for k in own]] - found[0][: len(own)])
                data = TreatedSite(data, gains=gains)
        return data

    def log_gain(self, data: SiteData) -> float:
        """Sum over variables of the logs of a site's gains; 0 without any."""
        return float(np.log(self.gains(data)).sum())

    def gains(self, data: SiteData) -> FloatArray:
        """What a site's variables are multiplied by; ones without scales to bring them to."""
        site = data if self.log_scales is None else self.treated(data)
        if isinstance(site, TreatedSite) and site.gains is not None:
            return site.gains
        return np.ones(len(data.variables))

    def abstains(self, state: Mapping[str, np.ndarray]) -> bool:
        """Whether a site with this state has found that it does not fit, and is to answer with zeros."""
        return self.abstain and does_not_fit(state)

    @property
    def d(self) -> int:
        """Number of variables."""
        return len(self.variables)

    @property
    def q(self) -> int:
        """Number of columns of a row."""
        return (self.n_lags + 1) * self.d

    @property
    def n_columns(self) -> int:
        """Columns whose products an answer tells: what rows are counted against."""
        return self.q

    def sizes(self) -> Mapping[str, int]:
        """D variables, q columns."""
        return {"d": self.d, "q": self.q, "q and a mean": self.q + 1}

    def require_variables(self, data: SiteData) -> None:
        """Refuse a site that measures something else."""
        if tuple(data.variables) != self.variables:
            raise self.wrong(
                f"it is about the variables {self.variables}, but this site has {tuple(data.variables)}; "
                "agree on the same variables in the same order",
                code="other-variables",
            )


@dataclass(frozen=True, eq=False)
class Treatment:
    """What sites do to their rows before they answer.

    Attributes
    ----------
    center
        "recording": every recording loses its own mean.
    degree, periods
        And a polynomial in time of its own, and cycles of these lengths in rows.
    limits, far
        (d,) robust standard deviations: cells farther out than `far` of them, or of the site's own, are empty.
    own_limits
        Whether sites with enough cells go by their own scales; under noise they do not, as one recording would then
        decide about the cells of another.
    log_scales
        (d,) logs of standard deviations that every site's variables are brought to.
    row_model
        (q + 1, q) mean and covariance of rows, by which empty cells are filled in as expected; None: rows with empty cells
        are left out.
    abstain
        Sites that found that they do not fit the others answer with zeros.
    inputs
        Positions of variables that only act on others, which keep their scale.
    """

    center: str = "none"
    degree: int = 0
    periods: tuple[float, ...] = ()
    limits: FloatArray | None = None
    far: float = TAIL
    own_limits: bool = True
    log_scales: FloatArray | None = None
    row_model: FloatArray | None = None
    abstain: bool = False
    inputs: tuple[int, ...] = ()

    def on(self, question: Question) -> Question:
        """Return a question with this treatment, if it is about rows."""
        if not isinstance(question, RowsQuestion):
            return question
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        if self.row_model is not None:
            # A question about fewer lags is about the first columns; for more lags there is no model.
            known = question.q <= self.row_model.shape[1]
            given["row_model"] = self.row_model[: question.q + 1, : question.q] if known else None
        return replace(question, **given)

    @property
    def is_plain(self) -> bool:
        """Whether it asks for nothing but centring."""
        given = (self.degree, self.periods, self.abstain)
        return not any(given) and self.limits is None and self.log_scales is None and self.row_model is None


UNTREATED = Treatment()


def does_not_fit(state: Mapping[str, np.ndarray]) -> bool:
    """Whether a site with this state has found that it does not fit the others."""
    return "agreement.abstains" in state


def treated(program: ServerProgram[T], treatment: Treatment) -> ServerProgram[T]:
    """Run a server program whose sites all treat their rows in one way."""
    return program if treatment.is_plain else asking(program, treatment.on)
