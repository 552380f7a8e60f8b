"""Questions about lagged rows: what nearly every question has in common, and how time is cut into blocks.

Names, lags and centring are the short form of a linear design, by which sites read their rows. A `Treatment` says what
sites do to their rows before that; it is decided once and put into every question of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.designs.cells import (
    BoundedSite,
    FilledSite,
    ScaledSite,
    mapped,
    read_cell_map,
    site_profile,
)
from feddbn.core.designs.design import ONE_MEAN, RECORDING_MEANS, Basis, Design, Nuisance, are_public_units
from feddbn.core.designs.features import BEND, CURVE
from feddbn.core.designs.recordings import Recording, SiteData, complete_rows, training_site
from feddbn.core.kinds import read_coding
from feddbn.data.kinds import read_kinds
from feddbn.errors import DataError, Given, ParameterError
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
    numbers,
    text,
    texts,
    whole,
    wholes,
)

# How time is to be cut into blocks, as people say it: by rows, by the calendar or by a column.
#
# ``"auto"``, 64              blocks of so many rows, a power of two; the data decide how many
# ``"month"``                 periods of the calendar; ``"month from 2024-01"`` says which is the first
# ``{"column": "phase"}``     a column of whole numbers 0, 1, 2, ..., also ``"column:phase"``

_MOST_VIEWS = 4
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
        "rows", "calendar" or "column".
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
            n_rows = int(given)
            if is_block_length(n_rows):
                return cls(rows=n_rows)
            near = 2 ** max(round(np.log2(max(n_rows, 1))), 0)
            raise ParameterError(
                f"blocks={n_rows} must be a power of two, for example {near}, or 'auto'; other lengths would let two studies "
                "differ by a few rows."
            )
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

    def name(self, number: int) -> str:
        """How people call a label: the date on which a period begins, as exact as that, or the column and its number."""
        if self.kind != "calendar":
            return f"{self.column} {number}"
        is_week = self.unit == "W"
        place, unit = (7 * number - _MONDAY, "D") if is_week else (number, self.unit)
        return str(np.array(place, dtype=f"datetime64[{unit}]"))


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


FUNCTIONS = MappingProxyType({"spline": CURVE, "quadratic": BEND})
"""Which part of a design stands for which choice of `features`; a map of a user's own stands for itself."""
_FILLING_SEED = 0
_FARTHEST_BLOCK = 10**12


def functions_of(features: str) -> str:
    """Return which part of a design stands for a choice of `features`."""
    return FUNCTIONS.get(features, features)


def features_of(functions: str) -> str:
    """Inverse of `functions_of`."""
    return next((name for name, known in FUNCTIONS.items() if known == functions), functions)


@dataclass(frozen=True, kw_only=True, eq=False)
class Treatment:
    """What sites do to their rows before they answer; the fields are those of every question about rows.

    Attributes
    ----------
    cell_maps
        What is made of each cell by itself, first of all: ``"name=value"`` (`core.designs.cells.CELL_MAPS`).
    center
        "recording": every recording loses its own mean.
    degree, periods
        And a polynomial in time of its own, and cycles of these lengths in rows.
    robust
        Cells far from their recording's median count for less, the farthest not at all (`core.designs.cells.BoundedSite`): by
        scales of the "site", by larger ones where far cells are "shocks", or under noise of each "recording" by itself, as
        one would else decide about another's cells.
    log_scales
        (d,) logs of standard deviations that every site's variables are brought to.
    row_model
        (q + 1, q) mean and covariance of rows, by which empty cells are filled in as expected; None: rows with empty cells
        are left out.
    abstain
        Sites that found that they do not fit the others answer with zeros.
    inputs
        Positions of variables that only act on others, which keep their cells and their scale.
    """

    cell_maps: tuple[str, ...] = texts(default=())
    center: str = choice("none", "recording", default="none")
    degree: int = whole(0, 12, default=0)
    periods: tuple[float, ...] = numbers(2.0, 1e9, default=())
    robust: str = choice("none", "site", "shocks", "recording", default="none")
    log_scales: FloatArray | None = array("d", default=None)
    row_model: FloatArray | None = array("q and a mean", "q", default=None)
    abstain: bool = flag(default=False)
    inputs: tuple[int, ...] = wholes(0, 1_000_000, default=())

    @property
    def done_to_rows(self) -> tuple[str, ...]:
        """What it does to rows, out of `privacy.policy.TRANSFORMATIONS`."""
        asked = {
            "means": self.center == "recording",
            "trends": self.degree > 0,
            "cycles": bool(self.periods),
            "robust": self.robust != "none",
            "scales": self.log_scales is not None,
            "fill": self.row_model is not None,
            "abstain": self.abstain,
        }
        maps = (text.partition("=")[0] for text in self.cell_maps)
        return *(what for what, is_asked in asked.items() if is_asked), *maps

    @property
    def nuisance(self) -> Nuisance:
        """What is taken off every recording."""
        if self.center != "recording":
            return ONE_MEAN
        return Nuisance("recording", self.degree, self.periods)

    def on(self, question: Question) -> Question:
        """Return a question with this treatment, if it is about rows."""
        if not isinstance(question, RowsQuestion):
            return question
        given = {item.name: getattr(self, item.name) for item in fields(Treatment)}
        if self.row_model is not None:
            # A question about fewer lags is about the first columns; for more lags there is no model.
            known = question.q <= self.row_model.shape[1]
            given["row_model"] = self.row_model[: question.q + 1, : question.q] if known else None
        return replace(question, **given)


@dataclass(frozen=True, kw_only=True)
class RowsQuestion(Treatment, Question):
    """A question about rows of named variables: which columns, what is done to cells, and which rows count.

    Attributes
    ----------
    n_lags, variables
        A row is ``[x_t, ..., x_{t-p}]``, unless there are `functions` or `kinds`.
    functions, function_origin, function_scale, products
        Columns are also functions of the variables by this name, in public units (d,), and products of two variables: (first,
        second, lag), one after the other. Empty: there are none.
    kinds
        Columns stand for values of kinds, one text for each variable (`Coding.text`). Empty: values are numbers.
    fold
        (block, number of blocks, share in thousandths): only the rows before a held-out block count.
        Empty: all rows.
    n_blocks, block_rows, calendar, first_block
        Rows fall into so many blocks of time, and each is answered for by itself: blocks of `block_rows` rows of a
        recording, or by labels of rows, which are times of a calendar or whole numbers, from `first_block` on. 0: there
        are none.
    takes
        Which of functions, kinds and blocks a kind of question can be about, one at a time.
    """

    takes: ClassVar[tuple[str, ...]] = ()

    n_lags: int = whole(0, MOST_LAGS)
    variables: tuple[str, ...] = names()
    fold: tuple[int, ...] = wholes(0, 1_000_000, default=())
    functions: str = text(default="")
    function_origin: FloatArray | None = array("d", default=None)
    function_scale: FloatArray | None = array("d", default=None)
    products: tuple[int, ...] = wholes(0, 1_000_000, default=())
    kinds: tuple[str, ...] = texts(default=())
    block_rows: int = whole(0, 1_000_000_000, default=0)
    n_blocks: int = whole(0, MOST_TIME_BLOCKS, default=0)
    calendar: str = choice("", *CALENDAR.values(), default="")
    first_block: int = whole(-_FARTHEST_BLOCK, _FARTHEST_BLOCK, default=0)

    def check(self) -> None:
        """The fold must be one of its blocks, trends need recordings' own means, and columns and blocks must exist."""
        if self.fold and not (
            len(self.fold) == 3 and self.fold[0] < self.fold[1] <= MOST_BLOCKS and 0 < self.fold[2] < 1000
        ):
            raise self.wrong(
                f"'fold' is {self.fold}, but it must be (block, number of blocks up to {MOST_BLOCKS}, thousandths)"
            )
        if (self.degree or self.periods) and self.center != "recording":
            raise self.wrong("'degree' and 'periods' need center='recording'")
        try:
            _ = [read_cell_map(text) for text in self.cell_maps]
        except ParameterError as error:
            raise self.wrong(str(error).rstrip(".")) from None
        units = self.function_origin is not None, self.function_scale is not None
        about = {
            "functions": bool(self.functions or self.products or any(units)),
            "kinds": bool(self.kinds),
            "blocks": bool(self.n_blocks or self.block_rows or self.calendar or self.first_block),
        }
        asked = [what for what, is_asked in about.items() if is_asked]
        if len(asked) > 1 or not set(asked) <= set(self.takes):
            raise self.wrong(f"it cannot be about {' and '.join(asked)}")
        if about["functions"]:
            self._check_functions()
        if about["kinds"]:
            self._check_kinds()
        if about["blocks"]:
            self._check_blocks()

    def _check_functions(self) -> None:
        if not self.functions or self.function_origin is None or self.function_scale is None:
            raise self.wrong(
                "'functions', 'function_origin' and 'function_scale' go together, 'products' with them"
            )
        if not are_public_units(self.function_origin, self.function_scale):
            raise self.wrong("'function_origin' and 'function_scale' must be on the public grid")
        if self.design.n_lags != self.n_lags:
            reach = self.design.n_lags
            raise self.wrong(f"'products' reach {reach} rows back, but n_lags is {self.n_lags}")

    def _check_kinds(self) -> None:
        _ = self.design
        if self.done_to_rows:
            raise self.wrong(
                "values of kinds are used as they are: no means, trends, scales or models of rows"
            )

    def _check_blocks(self) -> None:
        if not self.n_blocks:
            raise self.wrong("'block_rows', 'calendar' and 'first_block' need 'n_blocks'")
        if self.block_rows and not is_block_length(self.block_rows):
            raise self.wrong(f"'block_rows' is {self.block_rows}, but it must be a power of two")
        if self.block_rows and (self.calendar or self.first_block):
            raise self.wrong("'calendar' and 'first_block' have no meaning: blocks are by 'block_rows'")
        if self.fold:
            raise self.wrong("'fold' has no meaning: blocks are of all rows")
        if self.row_model is not None:
            raise self.wrong("'row_model' has no meaning: rows with empty cells are left out")

    def check_scope(self, scope: Scope) -> None:
        """Variables, lags, folds, columns and blocks are the study's, and so is what is done to rows."""
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
        need(self.cell_maps == scope.cell_maps, f"'cell_maps' is {self.cell_maps}")
        by = ("site", "shocks") if scope.unit is None else ("recording",)
        need(self.robust in ("none", *by), f"'robust' is {self.robust!r}")
        if self.functions:
            asked = scope.parameters.get("features", "linear")
            known = tuple(FUNCTIONS.values()) if asked == "auto" else (functions_of(str(asked)),)
            need(self.functions in known, f"its functions are {self.functions!r}", "other-functions")
            # Beside curves that were not asked for, a few products within a time step say which links are none.
            beside = asked == "auto" and not any(self.products[2::3])
            wants = beside or bool(scope.parameters.get("interactions", False))
            need(wants or not self.products, "it multiplies variables", "other-functions")
        if self.kinds:
            said = scope.parameters.get("kinds")
            declared = read_kinds(said if isinstance(said, dict) else None, scope.variables)
            kinds = dict(zip(scope.variables, declared, strict=True))
            for variable, written in zip(self.variables, self.kinds, strict=True):
                kind, coding = kinds[variable], read_coding(written)
                is_same = coding.name == kind.name and len(coding.groups) == kind.n_levels
                need(is_same, f"it reads {variable!r} as {written!r}, and the study says {kind.name!r}")
        if self.n_blocks:
            wish = BlockWish.of(scope.parameters.get("blocks", "auto"))
            if wish.kind == "rows":
                is_asked = self.block_rows > 0 and wish.rows in (None, self.block_rows)
                need(is_asked, f"'block_rows' is {self.block_rows}")
            else:
                is_asked = not self.block_rows and self.calendar == wish.unit
                need(is_asked, "it is about other blocks than the study's", "other-blocks")
                need(self.first_block == (wish.first or 0), f"'first_block' is {self.first_block}")

    @property
    def transformations(self) -> tuple[str, ...]:
        """What its treatment does to rows."""
        return self.done_to_rows

    @property
    def feature_maps(self) -> tuple[str, ...]:
        """The choice of `features` that its functions stand for."""
        return (features_of(self.functions),) if self.functions else ()

    @property
    def is_look(self) -> bool:
        """Whether it belongs to the first look, which comes before a treatment is decided."""
        return False

    @property
    def reads_incomplete_rows(self) -> bool:
        """Whether rows with empty cells count, for what they hold."""
        return self.row_model is not None

    @property
    def function_units(self) -> tuple[FloatArray, FloatArray] | None:
        """(d,) origin and scale of the values that smooth functions are applied to; None: there are none."""
        if self.function_origin is None or self.function_scale is None:
            return None
        return self.function_origin, self.function_scale

    @property
    def told_rows(self) -> float | None:
        """How many rows all sites have together, if the question says so."""
        return None

    @property
    def place(self) -> str:
        """Which rows it is about, in words: what is settled is settled for these."""
        return f" (n_lags = {self.n_lags}, fold = {self.fold})"

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The treatment, which is decided once: a run asks about a common mean first, then off what was decided.

        Rows that a fold leaves are treated as each candidate decides, and the rows it holds out as all rows tell. Functions
        are settled by the study and by earlier sums. Sums over other blocks would differ by few rows.
        """
        if self.is_look:
            return ()
        found = [
            # Which cells are empty, and who does not fit, depends neither on lags nor on folds.
            Constant("which cells are empty", self._cells),
            Constant("which sites abstain", (self.abstain,)),
            Constant(
                "means, trends and cycles" + self.place,
                (self.center, self.degree, self.periods),
                MOST_TREATMENTS if self.fold else 2,
            ),
        ]
        if self.log_scales is not None:
            found.append(Constant("common scales" + self.place, (self.log_scales,)))
        if self.row_model is not None:
            found.append(Constant("the model of rows" + self.place, (self.row_model,), MOST_MODELS))
        if self.functions:
            given = (self.functions, self.function_origin, self.function_scale, self.products)
            found.append(Constant("functions of rows" + self.place, given, 2))
        if self.kinds:
            found.append(self.settled_kinds)
        if self.n_blocks:
            found.append(self.settled_blocks)
        return tuple(found)

    @property
    def settled_kinds(self) -> Constant:
        """Which levels count as one is settled once: sums by other levels would tell small counts."""
        return Constant("which levels count as one" + self.place, self.kinds)

    @property
    def settled_blocks(self) -> Constant:
        """Blocks are settled once."""
        blocks = (self.block_rows, self.n_blocks, self.calendar, self.first_block)
        return Constant("blocks of rows", (*blocks, self.center, self.degree, self.periods, self.log_scales))

    def settled_once(self, what: str, value: tuple[object, ...]) -> Constant:
        """Return what the first sums have settled for this number of lags and these held-out rows.

        Candidates that rows are held out for differ in their treatment, and so in what follows from it.
        """
        place = f" of task {self.name!r}" + self.place
        return Constant(what + place, value, MOST_TREATMENTS if self.fold else 1)

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """The lagged values of the rows it reads, as it wants their cells; or its columns, and every block by itself."""
        if self.kinds:
            return (self.view(self.design),)
        if self.n_blocks:

            def part_of(times: IntArray, labels: NDArray[np.generic] | None) -> IntArray:
                # Where the first block begins is the study's choice, so every label counts by itself.
                return self.block_of(times, labels) if self.block_rows else self.label_numbers(labels)

            key = (*self._cells, self.block_rows, self.n_blocks, self.calendar)
            return (self.view(self.design, key=key, part_of=part_of),)
        lagged = self.view(self.lagged)
        if not self.functions:
            return (lagged,)
        # Also the functions of values, where empty cells are drawn.
        key = (*self._cells, self.center, self.degree, self.periods, self.row_model)
        alone: dict[str, Any] = {"key": key, "is_whole": False, "are_pairs": False, "fold": ()}
        return lagged, self.view(self.design, seen=self.rows_of, **alone)

    def view(self, design: Design, **more: Any) -> View:
        """What is in view of the rows it reads by a design."""
        is_whole = self.reads_incomplete_rows or self.is_look
        # Gains of sites change no row against another.
        seen = replace(self, log_scales=None).treated
        given: dict[str, Any] = {
            "seen": seen,
            "key": self._cells,
            "is_whole": is_whole,
            "are_pairs": self.reads_incomplete_rows,
            "fold": () if self.is_look else self.fold,
            "n_parameters": 0 if self.is_look else self.n_columns,
        }
        return View(design, **(given | more))

    @property
    def _cells(self) -> tuple[object, ...]:
        """What decides what is in cells, and which are empty."""
        return self.robust, self.inputs if self.robust != "none" else (), *self.cell_maps

    @cached_property
    def design(self) -> Design:
        """Which columns are asked for, and what is taken off them; refused if there are none such."""
        if self.kinds and len(self.kinds) != self.d:
            raise self.wrong(f"'kinds' has {len(self.kinds)} entries for {self.d} variables")
        if len(self.products) % 3:
            raise self.wrong("'products' must be (first, second, lag), one after the other")
        try:
            if self.kinds:
                coded = Design.coded(self.variables, self.n_lags, self.kinds)
                _ = coded.codings
                return coded
            if not self.functions or self.function_origin is None or self.function_scale is None:
                return self.lagged
            # Where recordings lose what is their own, functions of what is left lose their means, too.
            nuisance = RECORDING_MEANS if self.center == "recording" else ONE_MEAN
            origin, scale = tuple(self.function_origin.tolist()), tuple(self.function_scale.tolist())
            triples = tuple(zip(*(iter(self.products),) * 3, strict=True))
            basis = Basis(self.functions)
            return Design.curved(self.variables, self.n_lags, basis, nuisance, origin, scale, triples)
        except ParameterError as error:
            raise self.wrong(str(error).rstrip(".")) from None

    @cached_property
    def lagged(self) -> Design:
        """The lagged values themselves."""
        return self.design_of(self.n_lags)

    def design_of(self, n_lags: int) -> Design:
        """Return the same for other lags."""
        return Design.linear(self.variables, n_lags, self.nuisance)

    def rows_of(self, data: SiteData) -> SiteData:
        """Return the site as its design reads it: without held-out rows, its cells as it wants them.

        Functions are formed without what is a recording's own, and of empty cells that were drawn.
        """
        data = training_site(self.treated(data), self.fold)
        if self.functions and (self.center == "recording" or self.row_model is not None):
            data = FilledSite(data, self.nuisance, self.row_model, _FILLING_SEED)
        return data

    def complete_rows(self, data: SiteData) -> Iterator[Recording]:
        """The recordings of such a site without the rows that still have empty cells."""
        return map(complete_rows, self.rows_of(data).recordings())

    def treated(self, data: SiteData) -> SiteData:
        """Return the site as this question wants its cells: mapped, bounded, in the federation's units.

        All questions of a run want the same, so a site in memory remembers it.
        """
        scales = None if self.log_scales is None else self.log_scales.tobytes()
        key = self.variables, self.cell_maps, self.robust, self.inputs, scales
        views: dict[Any, SiteData] = getattr(data, "views", {})
        if key not in views:
            if len(views) >= _MOST_VIEWS:
                views.clear()
            views[key] = self._treated(data)
        return views[key]

    def _treated(self, data: SiteData) -> SiteData:
        data = mapped(data, self.cell_maps)
        if self.robust == "none" and self.log_scales is None:
            return data
        if self.robust != "none":
            data = BoundedSite(data, self.robust, self.inputs)
        if self.log_scales is not None:
            # What is done to a system is as strong as it is: inputs keep their scale.
            own = [k for k in range(self.d) if k not in self.inputs]
            found = site_profile(data, 0, own)
            if found is not None:
                gains = np.ones(self.d)
                gains[own] = np.exp(self.log_scales[own] - found[0][: len(own)])
                data = ScaledSite(data, gains)
        return data

    def block_of(self, times: IntArray, labels: NDArray[np.generic] | None) -> IntArray:
        """In which block the rows at these times, with these labels, are.

        What is before the first block or after the last belongs to that block, so that blocks add up to all rows.
        """
        found = times // self.block_rows if self.block_rows else self.label_numbers(labels) - self.first_block
        return np.clip(found, 0, self.n_blocks - 1)

    def label_numbers(self, labels: NDArray[np.generic] | None) -> IntArray:
        """Labels as whole numbers: themselves, or periods of the calendar since 1970."""
        if self.calendar:
            if labels is None or labels.dtype.kind != "M":
                raise DataError(
                    f"blocks by the calendar need the dates of rows; name their column with {Given('time')} (a deployed "
                    "site also has label = '@time' in its settings)."
                )
            return period_numbers(labels, self.calendar)
        if labels is None:
            raise DataError(
                f"blocks by a column need that column as the label of rows; name it with {Given('label')}."
            )
        values = np.asarray(labels)
        found = values.astype(np.float64) if values.dtype.kind in "iufb" else np.full(len(values), np.nan)
        if not np.all((found >= 0) & (found < MOST_TIME_BLOCKS) & (found == np.floor(found))):
            raise DataError(
                f"the column of blocks must hold whole numbers from 0 to {MOST_TIME_BLOCKS - 1}, one for each block in "
                "order of time."
            )
        return found.astype(np.int64)

    def log_gain(self, data: SiteData) -> float:
        """Sum over variables of the logs of a site's gains; 0 without any."""
        return float(np.log(self.gains(data)).sum())

    def gains(self, data: SiteData) -> FloatArray:
        """What a site's variables are multiplied by; ones without scales to bring them to."""
        site = data if self.log_scales is None else self.treated(data)
        return site.gains if isinstance(site, ScaledSite) else np.ones(len(data.variables))

    def abstains(self, state: Mapping[str, np.ndarray]) -> bool:
        """Whether a site with this state has found that it does not fit, and is to answer with zeros."""
        return self.abstain and does_not_fit(state)

    @property
    def d(self) -> int:
        """Number of variables."""
        return len(self.variables)

    @property
    def q(self) -> int:
        """Number of lagged values of a row."""
        return (self.n_lags + 1) * self.d

    @property
    def n_columns(self) -> int:
        """Columns whose products an answer tells: what rows are counted against."""
        return self.design.q if self.functions or self.kinds else self.q

    def sizes(self) -> Mapping[str, int]:
        """D variables, q lagged values."""
        return {"d": self.d, "q": self.q, "q and a mean": self.q + 1}

    def require_variables(self, data: SiteData) -> None:
        """Refuse a site that measures something else."""
        if tuple(data.variables) != self.variables:
            raise self.wrong(
                f"it is about the variables {self.variables}, but this site has {tuple(data.variables)}; "
                "agree on the same variables in the same order",
                code="other-variables",
            )


UNTREATED = Treatment()


def does_not_fit(state: Mapping[str, np.ndarray]) -> bool:
    """Whether a site with this state has found that it does not fit the others."""
    return "agreement.abstains" in state


def treated(program: ServerProgram[T], treatment: Treatment) -> ServerProgram[T]:
    """Run a server program whose sites all treat their rows in one way."""
    return asking(program, treatment.on) if treatment.done_to_rows else program
