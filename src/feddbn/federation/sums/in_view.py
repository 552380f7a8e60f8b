"""A rule about rows: a column that is told differs from its usual value in no row of this site, or in at least `min_rows`.

Rules of this file
------------------
- It knows no method. A question says which columns of which rows it adds up (`Question.in_view`); here they are counted.
- *Columns.* Where a column has one value but in a few rows, its products with the others are these rows. So the rows that
  differ from its most common value, over the site and within recordings, are none or enough. For a variable with levels the
  same holds for each of them.
- *Empty cells.* Where rows with empty cells count, a sum is over the rows that have a cell, or two. Two such sums differ by
  the rows in which one of two other cells is empty. So for every column and every two others the rows that have the first
  and only one of the two are none or enough; a column that is always there, or never, counts as one of them.
- *Parts.* All of this for each part of the rows that has sums of its own: blocks of time, rows that are held out.

Rows with empty cells that are too few are left out before anything else (`rare_rows`); whatever else is too few is refused.

*Sites.* What only one site has is that site's sum. So before a study of several institutions is learned, one masked sum of
zeros and ones counts at how many sites each variable varies (task ``counts.variables``). One that varies at few sites, or in
few rows of some site, is left out of the study.

This rule looks at single columns and at empty cells. Several columns together, and columns that vary very much in few rows,
are looked at by another (`guards.dominance`). Ends of recordings are in view of no rule: sums at several lags show them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray
from feddbn.core.designs.design import Design, design_rows
from feddbn.core.designs.recordings import (
    ROWS_OF_A_RECORDING,
    Recording,
    RowNumbers,
    SiteData,
    WithoutRows,
    complete_rows,
    held_out_part,
    training_part,
)
from feddbn.errors import DataError
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Here, SiteState, answers
from feddbn.federation.protocol.task import (
    Constant,
    Federation,
    FederationView,
    Scope,
    ServerProgram,
    Task,
    View,
    fewest_sites,
    flag,
    run_program,
    whole,
)
from feddbn.federation.sums.gram import block_pieces, training_parts
from feddbn.findings import Finding

LEAST = 10
"""Rows in which a variable has to vary at a site, if its owner asks for no more."""
_MARGIN = 1.5
"""Other lags and held-out rows leave fewer rows: so many times as many have to be there before a study."""


@dataclass
class _Column:
    """How often a column has each of its values, as long as these are few."""

    least: int
    counts: dict[float, int] = field(default_factory=dict)
    here: dict[float, int] = field(default_factory=dict)
    n_within: int = 0
    is_sure: bool = False

    def add(self, values: FloatArray) -> None:
        """Take down some values of a recording."""
        if self.is_sure:
            return
        found, counts = np.unique(values[~np.isnan(values)], return_counts=True)
        if len(found) > self.least:
            self.is_sure = True
            return
        for value, n in zip(found.tolist(), counts.tolist(), strict=True):
            self.counts[value] = self.counts.get(value, 0) + n
            self.here[value] = self.here.get(value, 0) + n

    def end_recording(self) -> None:
        """Begin another recording."""
        self.n_within += _varying(self.here)
        self.here = {}
        self.is_sure = self.is_sure or self.n_within >= self.least

    @property
    def varying(self) -> tuple[int, int]:
        """Rows that differ from the most common value: over the site, and within recordings; at most `least` are counted."""
        if self.is_sure:
            return self.least, self.least
        return _varying(self.counts), self.n_within


def _varying(counts: Mapping[float, int]) -> int:
    most = max(counts.values(), default=0)
    # Without a value that comes twice there is no usual one.
    return sum(counts.values()) - (most if most > 1 else 0)


@dataclass
class Part:
    """What is in view in one part of the rows.

    Attributes
    ----------
    n
        Number of rows.
    columns, levels
        One for each column of the design; rows with each level of each variable that has levels.
    patterns
        Which cells rows have, as bytes, and how many rows are like that.
    """

    n: int
    columns: list[_Column]
    levels: list[IntArray]
    patterns: dict[bytes, int] = field(default_factory=dict)

    def add(self, values: FloatArray, view: View) -> None:
        """Take down some rows of a recording."""
        self.n += len(values)
        for column, one in zip(self.columns, values.T, strict=True):
            column.add(one)
        for counts, one in zip(self.levels, _levels(values, view), strict=True):
            counts += np.bincount(one, minlength=len(counts))
        if view.are_pairs:
            packed, counts = np.unique(np.packbits(~np.isnan(values), axis=1), axis=0, return_counts=True)
            for row, n in zip(packed, counts.tolist(), strict=True):
                self.patterns[row.tobytes()] = self.patterns.get(row.tobytes(), 0) + n

    def rare(self, least: int, q: int) -> tuple[set[bytes], int]:
        """Patterns of empty cells without which no sum is over few rows, and the fewest rows that one is over with them.

        Complete rows stay if they are enough.
        """
        if len(self.patterns) < 2 and self.n >= least:
            return set(), 0
        keys = list(self.patterns)
        counts = np.array([self.patterns[key] for key in keys])
        bits = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1)
        masks = np.unpackbits(bits, axis=1, count=q).astype(bool)
        stays = masks.all(axis=1) & (counts >= least)
        goes, fewest = np.zeros(len(keys), dtype=bool), 0
        while True:
            bad, few = _few_by_cells(masks, np.where(goes, 0, counts), least)
            fewest, bad = fewest or few, bad & ~stays & ~goes
            if not bad.any():
                return {key for key, is_gone in zip(keys, goes, strict=True) if is_gone}, fewest
            goes |= bad

    def few(self, least: int, view: View) -> int:
        """The fewest rows, more than none and less than `least`, that some number would rest on; 0 if there are none."""
        if view.is_rounded:
            return 0
        found = [n for column in self.columns for n in column.varying]
        found += [int(n) for counts in self.levels for n in counts]
        if view.are_pairs:
            found.append(self.rare(least, view.design.q)[1])
        return min((n for n in found if 0 < n < least), default=0)


def _few_by_cells(masks: BoolArray, counts: IntArray, least: int) -> tuple[BoolArray, int]:
    """(u,) patterns in sums, or differences of two sums of one column, over few rows; and the fewest such rows."""
    # Columns that are there in the same rows are one; one is never there, and so a sum is a difference, too.
    kinds = np.unique(np.concatenate([masks, np.zeros((len(masks), 1), dtype=bool)], axis=1), axis=1)
    bad, fewest = np.zeros(len(masks), dtype=bool), 0
    for own in kinds.T:
        here = np.flatnonzero(own & (counts > 0))
        present, weights = kinds[here].astype(np.float64), counts[here].astype(np.float64)
        both = present.T @ (present * weights[:, None])
        one = np.diag(both)
        differ = one[:, None] + one[None, :] - 2 * both
        for j, k in np.argwhere(np.triu((differ > 0.5) & (differ < least - 0.5), 1)):
            bad[here[kinds[here, j] != kinds[here, k]]] = True
            fewest = min(fewest or least, round(float(differ[j, k])))
    return bad, fewest


def _levels(values: FloatArray, view: View) -> Iterator[IntArray]:
    """The levels of rows, variable by variable, as their columns have them."""
    start = 0
    for coding in view.design.codings:
        columns = values[:, start : start + coding.width]
        start += coding.width
        if coding.groups:
            is_indicator = coding.kind.name == "categorical"
            found = columns @ np.arange(1, coding.width + 1) if is_indicator else columns[:, 0]
            yield found.astype(np.int64)


def parts_in_view(view: View, data: SiteData, least: int) -> dict[int, Part]:
    """Count what is in view, part by part; of a fold the rows before held-out ones are part 0, and these part 1."""
    sizes = [coding.kind.n_levels for coding in view.design.codings if coding.groups]
    parts: dict[int, Part] = {}
    for recording in view.seen(data).recordings():
        for number, piece in enumerate(_pieces(recording, view)):
            for rows in design_rows(view.design, piece.blocks()):
                values, times = rows.values, rows.time + np.arange(len(rows.values))
                labels = None if view.part_of is None else rows.labels
                if view.is_whole:
                    some = ~np.isnan(values).all(axis=1)
                    values, times = values[some], times[some]
                    labels = None if labels is None else labels[some]
                at = np.full(len(values), number) if view.part_of is None else view.part_of(times, labels)
                for k in np.unique(at).tolist():
                    if k not in parts:
                        columns = [_Column(least) for _ in range(view.design.q)]
                        parts[k] = Part(0, columns, [np.zeros(n, dtype=np.int64) for n in sizes])
                    parts[k].add(values[at == k], view)
        for part in parts.values():
            for column in part.columns:
                column.end_recording()
    return parts


def view_key(view: View) -> tuple[object, ...]:
    """What tells two views of one site's data apart."""
    parts = (one.tobytes() if isinstance(one, np.ndarray) else one for one in view.key)
    return (view.design.digest, view.is_whole, view.are_pairs, view.is_rounded, view.fold, *parts)


def _pieces(recording: Recording, view: View) -> Iterator[Recording]:
    parts = [recording]
    if view.fold:
        held_out = held_out_part(recording, view.fold, view.design.n_lags)
        parts = [training_part(recording, view.fold), held_out]
    return iter(parts) if view.is_whole else map(complete_rows, parts)


def rare_rows(view: View, data: SiteData, order: Mapping[str, int], least: int) -> RowNumbers:
    """Numbers of the rows that have to be left out, since what they have in common is seen in few of them.

    Of a lagged row those go that have an empty cell; if none has, the last.
    """
    left_out = np.zeros(0, dtype=np.int64)
    width, d = view.design.n_lags + 1, view.design.d
    while True:
        seen = WithoutRows(data, left_out, order, ends_segments=True)
        parts = parts_in_view(view, seen, least)
        rare = {k: part.rare(least, view.design.q)[0] for k, part in parts.items()}
        if not any(rare.values()):
            return left_out
        goes = [left_out]
        for recording in view.seen(seen).recordings():
            first = order[recording.name] * ROWS_OF_A_RECORDING
            for number, piece in enumerate(_pieces(recording, view)):
                for rows in design_rows(view.design, piece.blocks()):
                    is_empty = np.isnan(rows.values)
                    keys = [row.tobytes() for row in np.packbits(~is_empty, axis=1)]
                    at = np.flatnonzero([key in rare.get(number, ()) for key in keys])
                    lacks: BoolArray = np.any(is_empty[at].reshape(len(at), width, d), axis=2)
                    lacks[:, 0] |= ~np.any(lacks, axis=1)
                    place, lag = np.nonzero(lacks)
                    goes.append(first + rows.time + at[place] - lag)
        left_out = np.unique(np.concatenate(goes))


LEVEL_ROWS = 10
"""A site's count of a level is told in whole units of so many rows, and a level needs one such unit to stand alone."""
MOST_LEVEL_COUNTS = 4
"""How often levels are counted: again after some count as one."""


@dataclass(frozen=True, kw_only=True)
class CountsQuestion(RowsQuestion):
    """Where a site has enough rows; `least` are enough, and a site whose owner asks for more takes those.

    With `tells_few` also where it has some, but fewer; of variables and blocks that is always told.
    """

    name = "counts"
    purpose = "where this site has enough rows"
    forms = MappingProxyType(
        {
            "variables": "which variables vary in enough rows of this site, and which in a few: 0 or 1 each",
            "blocks": "in which of a few blocks of rows this site has enough rows, and in which too few: 0 or 1 each",
            "levels": "how many rows have each level of a variable with levels, rounded down so that no small count is told",
        }
    )
    takes = ("kinds", "blocks")

    least: int = whole(1, 1_000_000)
    tells_few: bool = flag(default=False)

    @property
    def form(self) -> str:
        """What is counted."""
        return "levels" if self.kinds else "blocks" if self.n_blocks else "variables"

    @property
    def is_look(self) -> bool:
        """Variables are counted before anything is decided."""
        return self.form == "variables"

    @property
    def n_columns(self) -> int:
        """Counts are no products."""
        return 0

    def check_scope(self, scope: Scope) -> None:
        """What is counted is the study's.

        With numbers of its own choice a server would tell small counts apart, one study after the other.
        """
        usual = LEAST
        if self.is_look:
            is_same = self.variables == scope.variables
            scope.require(
                is_same, self.name, "it is about other variables, or in another order", "other-variables"
            )
            is_near = self.n_lags <= max(scope.lags, default=0)
            scope.require(is_near, self.name, f"n_lags is {self.n_lags}", "other-lags")
            scope.require(not self.transformations, self.name, "it is about rows as they are", "not-plain")
        else:
            super().check_scope(scope)
            usual = 1 if self.n_blocks else int(scope.parameters.get("level_rows", LEVEL_ROWS))
        scope.require(self.least == usual, self.name, f"'least' is {self.least}")

    @property
    def constants(self) -> tuple[Constant, ...]:
        """It is asked once: other numbers of lags or of rows would tell small counts."""
        how = (self.n_lags, self.least, self.tells_few)
        place = self.place if self.kinds else ""
        return *super().constants, Constant(f"what is counted in {self.form}{place}", how)

    @property
    def settled_kinds(self) -> Constant:
        """Levels that some site has in few rows count as one with others, and are counted again."""
        return Constant("which levels are counted" + self.place, self.kinds, MOST_LEVEL_COUNTS)

    @property
    def settled_blocks(self) -> Constant:
        """Blocks are counted once; those that are asked about later may be fewer."""
        return replace(super().settled_blocks, what="blocks that are counted")

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """All rows; few of them do not show."""
        design = Design.linear(data.variables, 0) if self.is_look else self.design
        return (self.view(design, is_rounded=True, n_parameters=0),)

    @property
    def n_counts(self) -> int:
        """How many numbers an answer has."""
        if self.kinds:
            return (1 + self.tells_few) * sum(len(coding.groups) for coding in self.design.codings)
        return 4 * self.n_blocks or 2 * self.d


@answers(CountsQuestion, length=lambda question: question.n_counts)
def _answer(here: Here, question: CountsQuestion) -> tuple[SiteState, FloatArray]:
    count = {"variables": _varying_variables, "blocks": _rows_in_blocks, "levels": _rows_of_levels}
    return here.state, count[question.form](here, question)


def _varying_variables(here: Here, question: CountsQuestion) -> FloatArray:
    question.require_variables(here.data)
    least, names = math.ceil(_MARGIN * question.least), question.variables
    # Cells that are there, and rows that are complete, as some sums have it.
    cells = question.view(Design.linear(names, 0), is_whole=True)
    rows = question.view(Design.linear(names, question.n_lags), is_whole=False)
    counts: list[list[int]] = [[] for _ in names]
    for view in (cells, rows):
        part = parts_in_view(view, here.data, least).get(0)
        if part is not None and (view is cells or part.n >= least):
            for k, column in enumerate(part.columns):
                counts[k % len(names)] += column.varying
    is_few = [any(0 < n < least for n in found) for found in counts]
    varies = [not few and max(found, default=0) >= least for few, found in zip(is_few, counts, strict=True)]
    return np.array([*varies, *is_few], dtype=np.float64)


def _rows_in_blocks(here: Here, question: CountsQuestion) -> FloatArray:
    """For each block whether rows in it are enough, and whether too few; and the same for all rows from the block on."""
    question.require_variables(here.data)
    n = np.zeros(question.n_blocks)
    if not question.abstains(here.state):
        for recording in training_parts(here.data, question):
            for piece in block_pieces(question, recording):
                n += np.bincount(piece.blocks, minlength=question.n_blocks)
    after, least = np.cumsum(n[::-1])[::-1], question.least
    told = [part for one in (n, after) for part in (one >= least, (one > 0) & (one < least))]
    return np.concatenate(told).astype(np.float64)


def _rows_of_levels(here: Here, question: CountsQuestion) -> FloatArray:
    question.require_variables(here.data)
    codings, least = question.design.codings, question.least
    counts = [np.zeros(len(coding.groups)) for coding in codings]
    for recording in question.complete_rows(here.data):
        for block in recording.blocks():
            for j, coding in enumerate(codings):
                if coding.groups:
                    places = coding.values(block.values[:, j], question.variables[j]).astype(np.int64)
                    counts[j] += np.bincount(places, minlength=len(counts[j]))
    told = np.concatenate([np.zeros(0), *counts])
    few = [(told > 0) & (told < least)] if question.tells_few else []
    return np.concatenate([np.floor(told / least) * least, *few])


def in_view_program(
    variables: tuple[str, ...], n_lags: int, n_sites: int
) -> ServerProgram[dict[str, tuple[int, int]]]:
    """Return the variables that have to be left out, and at how many sites each varies, and varies in few rows."""
    answer = (yield Task(CountsQuestion(n_lags=n_lags, variables=variables, least=LEAST))).value
    enough, few = np.round(answer).astype(int).reshape(2, len(variables)).tolist()
    found = zip(variables, enough, few, strict=True)
    return {name: (n, m) for name, n, m in found if n < n_sites or m}


@dataclass(frozen=True)
class FewerVariables(FederationView):
    """A federation that measures some of its variables; `findings` say why not all."""

    kept: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        """Those that are kept."""
        return self.kept


def with_what_is_in_view(federation: Federation, n_lags: int) -> Federation:
    """The federation without variables that vary at few sites, or in few rows of some site; as it is if nobody is hidden."""
    variables, n_sites = federation.variables, fewest_sites(federation)
    if n_sites is None:
        return federation
    lacking = run_program(in_view_program(variables, n_lags, n_sites), federation)
    if not lacking:
        return federation
    kept = tuple(name for name in variables if name not in lacking)
    if not kept:
        raise DataError(
            f"none of {', '.join(variables)} varies in enough rows of at least {n_sites} sites, so nothing can be learned "
            "without showing a few rows, or one site.",
            code="nothing-in-view",
        )
    findings = tuple(
        Finding("variable-left-out", "warning", {"n_sites": n, "n_few": m, "needed": n_sites}, (name,))
        for name, (n, m) in lacking.items()
    )
    return FewerVariables(federation, kept, findings)
