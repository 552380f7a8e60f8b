"""Sums for variables of any kind.

``level-counts``    how many rows have each level of each variable that has levels, every site's count rounded down
``mixed-moments``   count, totals and cross-products of the columns that stand for values of their kinds, at lags 0..p; the
                    number of recordings, and the same cross-products about their own means

Rows with empty cells are left out, and values are used as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.coded import Coding, coding_of, merged_levels, read_coding
from feddbn.core.designs.complete import CompleteSite
from feddbn.core.designs.design import Design
from feddbn.core.designs.gram import recording_gram
from feddbn.core.kinds import Kind, read_kinds
from feddbn.core.statistics.levels import evidence_for_nuisances
from feddbn.core.statistics.moments import Moments, sums_length, symmetric, upper_triangle
from feddbn.errors import ParameterError
from feddbn.federation.programs.folds import training_site
from feddbn.federation.protocol.question import Constant, texts, whole
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.scope import Scope
from feddbn.federation.protocol.site import (
    Here,
    Recording,
    SiteData,
    SiteState,
    SiteTask,
    one_by_one,
    register_site_task,
)
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = [
    "FEWEST_OF_A_LEVEL",
    "CodedQuestion",
    "LevelCounts",
    "LevelCountsQuestion",
    "MixedMoments",
    "MixedMomentsQuestion",
    "level_counts_program",
    "mixed_moments_program",
]

FEWEST_OF_A_LEVEL = 10
"""A site's count of a level is told in whole units of so many rows, and a level needs one such unit to stand alone."""
_STILL = 1e-10
"""Share of a column's variance within recordings below which it is constant there."""


@dataclass(frozen=True, kw_only=True)
class CodedQuestion(RowsQuestion):
    """A question about rows of values that have kinds, one text for each variable (`Coding.text`)."""

    kinds: tuple[str, ...] = texts()

    def check(self) -> None:
        """There is one kind for each variable, and rows are used as they are."""
        super().check()
        if len(self.kinds) != self.d:
            raise self.wrong(f"'kinds' has {len(self.kinds)} entries for {self.d} variables")
        try:
            _ = self.coded
        except ParameterError as error:
            raise self.wrong(str(error).rstrip(".")) from None
        if self.transformations:
            raise self.wrong(
                "values of kinds are used as they are: no means, trends, scales or models of rows"
            )

    def check_scope(self, scope: Scope) -> None:
        """Kinds are the study's; rare levels may count as one."""
        super().check_scope(scope)
        said = scope.parameters.get("kinds")
        declared = read_kinds(said if isinstance(said, dict) else None, scope.variables)
        for variable, kind, text in zip(self.variables, declared, self.kinds, strict=True):
            coding = read_coding(text)
            same = coding.name == kind.name and len(coding.groups) == kind.n_levels
            scope.require(
                same, self.name, f"it reads {variable!r} as {text!r}, and the study says {kind.name!r}"
            )

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Which levels count as one is settled once: sums by other levels would tell small counts."""
        return *super().constants, Constant(self._what + self.place, self.kinds)

    @property
    def place(self) -> str:
        """Which rows it is about: what is settled is settled for these."""
        return f" (n_lags = {self.n_lags}, fold = {self.fold})"

    def recordings(self, data: SiteData) -> Iterator[Recording]:
        """The recordings of a site without rows that have empty cells or are held out."""
        return iter(CompleteSite(training_site(data, self.fold)).recordings())

    @property
    def _what(self) -> str:
        """What is settled by its kinds."""
        return "which levels count as one"

    @cached_property
    def coded(self) -> Design:
        """Its columns."""
        return Design.coded(self.variables, self.n_lags, self.kinds)

    @property
    def n_columns(self) -> int:
        """Columns of a row."""
        return self.coded.q


@dataclass(frozen=True, kw_only=True)
class LevelCountsQuestion(CodedQuestion):
    """How many rows have each declared level, rounded down to whole units of `unit` rows at every site."""

    name = "level-counts"
    purpose = (
        "how many rows have each level of a variable with levels, rounded down so that no small count is told"
    )

    unit: int = whole(1, 1_000_000)

    def check_scope(self, scope: Scope) -> None:
        """The unit is the study's."""
        super().check_scope(scope)
        asked = scope.parameters.get("level_rows", FEWEST_OF_A_LEVEL)
        scope.require(self.unit == asked, self.name, f"'unit' is {self.unit}")

    @property
    def _what(self) -> str:
        return "which levels are counted"

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Counts by other units would tell what rounding hides."""
        return *super().constants, Constant("the unit of counts of levels" + self.place, (self.unit,))

    @property
    def n_columns(self) -> int:
        """Counts are no products."""
        return 0

    @property
    def n_counts(self) -> int:
        """How many levels there are in all."""
        return sum(len(coding.groups) for coding in self.coded.codings)


@dataclass(frozen=True)
class LevelCounts:
    """What a sum of counts told: for each variable its (rounded) counts, and how levels count from now on."""

    counts: tuple[tuple[float, ...], ...]
    codings: tuple[Coding, ...]


@dataclass(frozen=True, kw_only=True)
class MixedMomentsQuestion(CodedQuestion):
    """Cross-products of the columns that stand for values of their kinds."""

    name = "mixed-moments"
    purpose = "means and cross-products of all variables as columns of their kinds: logs, positions and indicators of levels"

    @property
    def n_sums(self) -> int:
        """How many numbers an answer has."""
        q = self.coded.q
        return sums_length(q) + 1 + q * (q + 1) // 2


@dataclass(frozen=True)
class MixedMoments:
    """What a sum over coded rows told.

    Attributes
    ----------
    design
        Which columns there are.
    moments
        Of all rows.
    own
        (q, q) products about the means of recordings.
    n_recordings
        How many recordings have rows.
    """

    design: Design
    moments: Moments
    own: FloatArray
    n_recordings: float

    @property
    def evidence(self) -> float:
        """For levels of recordings' own (`core.statistics.levels`)."""
        n_now = sum(self.design.widths)
        n, scatter = self.moments.n, self.moments.scatter
        kept = np.tile(np.diag(self.own)[:n_now] > _STILL * np.diag(scatter)[:n_now], self.design.n_lags + 1)
        index = np.flatnonzero(kept & (np.diag(scatter) > 0))
        part = np.ix_(index, index)
        m = int((index < n_now).sum())
        return evidence_for_nuisances(scatter[part], self.own[part], n, self.n_recordings, m) if m else 0.0

    @property
    def within(self) -> Moments:
        """The moments within recordings, of as many rows as are left without their means; what is constant there is 0."""
        still = np.diag(self.own) <= _STILL * np.diag(self.moments.scatter)
        scatter = self.own.copy()
        scatter[still] = 0.0
        scatter[:, still] = 0.0
        return Moments(self.moments.n - self.n_recordings + 1, self.moments.mean, scatter)


def level_counts_program(
    variables: tuple[str, ...], n_lags: int, kinds: tuple[Kind, ...], fewest: int = FEWEST_OF_A_LEVEL
) -> ServerProgram[LevelCounts]:
    """Ask how frequent levels are, unless no variable has more than two, and put rare ones together."""
    codings = tuple(map(coding_of, kinds))
    if all(kind.n_levels <= 2 for kind in kinds):
        return LevelCounts(((),) * len(kinds), codings)
    texts_ = tuple(coding.text for coding in codings)
    question = LevelCountsQuestion(n_lags=n_lags, variables=variables, kinds=texts_, unit=fewest)
    total = (yield Task(question)).value
    counts, merged, start = [], [], 0
    for kind in kinds:
        own = total[start : start + kind.n_levels]
        start += kind.n_levels
        counts.append(tuple(own.tolist()))
        merged.append(merged_levels(kind, own.tolist(), fewest))
    return LevelCounts(tuple(counts), tuple(merged))


def mixed_moments_program(
    variables: tuple[str, ...], n_lags: int, codings: tuple[Coding, ...]
) -> ServerProgram[MixedMoments]:
    """Ask for the moments of coded rows."""
    kinds = tuple(coding.text for coding in codings)
    question = MixedMomentsQuestion(n_lags=n_lags, variables=variables, kinds=kinds)
    value, q = (yield Task(question)).value, question.coded.q
    first = sums_length(q)
    own = symmetric(value[first + 1 :], q)
    return MixedMoments(question.coded, Moments.from_sums(value[:first], q), own, float(value[first]))


def _counts(here: Here, question: LevelCountsQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    codings = question.coded.codings
    counts = [np.zeros(len(coding.groups)) for coding in codings]
    for recording in question.recordings(here.data):
        for block in recording.blocks():
            for j, coding in enumerate(codings):
                if coding.groups:
                    places = coding.values(block.values[:, j], question.variables[j]).astype(np.int64)
                    counts[j] += np.bincount(places, minlength=len(counts[j]))
    told = np.concatenate([np.zeros(0), *counts])
    return here.state, np.floor(told / question.unit) * question.unit


def _moments(here: Here, question: MixedMomentsQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    q = question.coded.q
    total, own, n_recordings = Moments.empty(q), np.zeros((q, q)), 0
    for recording in question.recordings(here.data):
        found = recording_gram(question.coded, recording).moments
        total, own = total.merge(found), own + found.scatter
        n_recordings += found.n > 0
    return here.state, np.concatenate([total.to_sums(), [n_recordings], upper_triangle(own)])


register_site_task(
    SiteTask(LevelCountsQuestion, one_by_one(_counts), length=lambda question: question.n_counts)
)
register_site_task(
    SiteTask(MixedMomentsQuestion, one_by_one(_moments), length=lambda question: question.n_sums)
)
