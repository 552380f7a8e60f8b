"""One sum for curved effects: cross-products of the variables and of fixed smooth functions of them, at lags 0..p.

``curved-moments``   count, totals and cross-products of the rows of a curved design (`Design.curved`)

Values are treated as the question asks; what is a recording's own (mean, trend, cycles) is taken off the values before
functions of them are formed, so a curve bends about a recording's own level. Empty cells are drawn under the federation's
model of rows, as for resampling. The functions have fixed knots; origin and scale are those that an earlier sum told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.complete import CompleteRows, CompleteSite
from feddbn.core.designs.curve_basis import BEND, CURVE, SMOOTH
from feddbn.core.designs.design import Basis, Design
from feddbn.core.designs.filled import FilledSite, off_nuisance
from feddbn.core.designs.gram import recording_gram
from feddbn.core.designs.nuisance import ONE_MEAN, RECORDING_MEANS
from feddbn.core.designs.public_units import are_public_units, public_units
from feddbn.core.statistics.moments import Moments, sums_length
from feddbn.core.statistics.scaling import safe_roots
from feddbn.errors import ParameterError
from feddbn.federation.programs.folds import training_site
from feddbn.federation.programs.separate_units import require_separate_units
from feddbn.federation.programs.statistics import row_sums
from feddbn.federation.protocol.question import Constant, array, number, text, wholes
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
    "MAPS",
    "CurvedMoments",
    "CurvedMomentsQuestion",
    "curved_moments_program",
    "curved_recordings",
    "curved_site",
    "features_of",
    "local_curved_moments",
    "part_of",
]

MAPS = {"spline": CURVE, "quadratic": BEND}
"""Which part of a design stands for which choice of `features`; a map of a user's own stands for itself."""
_NOISY_MAPS = {**MAPS, "spline": SMOOTH}
_SEED = 0


def part_of(features: str, noisy: bool = False) -> str:
    """Return which part of a design stands for a choice of `features`; under noise splines have fewer functions."""
    return (_NOISY_MAPS if noisy else MAPS).get(features, features)


def features_of(part: str) -> str:
    """Inverse of `part_of`."""
    return next((name for name in MAPS if part in (MAPS[name], _NOISY_MAPS[name])), part)


@dataclass(frozen=True, kw_only=True)
class CurvedMomentsQuestion(RowsQuestion):
    """Cross-products of the rows of one curved design.

    `basis` names the functions, `origin` and `scale` (d,) bring values to public standard deviations, `products` are
    (first, second, lag), one after the other. `clip_bound` is the bound to which sites clip where they add noise.
    """

    name = "curved-moments"
    purpose = "means and cross-products of all variables and of fixed smooth functions and products of them"

    basis: str = text()
    origin: FloatArray = array("d")
    scale: FloatArray = array("d")
    products: tuple[int, ...] = wholes(0, 1_000_000, default=())
    clip_bound: float | None = number(0.0, default=None)

    def check(self) -> None:
        """Origin and scale are on the public grid, and the design exists."""
        super().check()
        if not are_public_units(self.origin, self.scale):
            raise self.wrong("'origin' and 'scale' must be on the public grid")
        if len(self.products) % 3:
            raise self.wrong("'products' must be (first, second, lag), one after the other")
        try:
            reach = self.curved.n_lags
        except ParameterError as error:
            raise self.wrong(str(error).rstrip(".")) from None
        if reach != self.n_lags:
            raise self.wrong(f"'products' reach {reach} rows back, but n_lags is {self.n_lags}")

    def check_scope(self, scope: Scope) -> None:
        """Functions and products are the study's."""
        super().check_scope(scope)
        asked = scope.parameters.get("features", "linear")
        names = tuple(MAPS.values()) if asked == "auto" else (part_of(str(asked), scope.unit is not None),)
        scope.require(self.basis in names, self.name, f"its functions are {self.basis!r}")
        wants = bool(scope.parameters.get("interactions", False))
        scope.require(wants or not self.products, self.name, "it multiplies variables")
        has_meaning = self.clip_bound is None or scope.unit is not None
        scope.require(has_meaning, self.name, "'clip_bound' has no meaning without noise")

    @property
    def feature_maps(self) -> tuple[str, ...]:
        """The choice of `features` that its functions stand for."""
        return (features_of(self.basis),)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Origin and scale are settled by earlier sums, and functions and products by the study."""
        what = f"functions of rows (n_lags = {self.n_lags}, fold = {self.fold})"
        return *super().constants, Constant(what, (self.basis, self.origin, self.scale, self.products), 2)

    @cached_property
    def curved(self) -> Design:
        """Its columns; where recordings lose what is their own, functions of what is left lose their means, too."""
        nuisance = RECORDING_MEANS if self.center == "recording" else ONE_MEAN
        triples = zip(*(iter(self.products),) * 3, strict=True)
        return Design.curved(
            self.variables,
            self.n_lags,
            Basis(self.basis),
            nuisance,
            tuple(self.origin.tolist()),
            tuple(self.scale.tolist()),
            tuple(triples),
        )

    @property
    def function_units(self) -> tuple[FloatArray, FloatArray] | None:
        """Those of its functions."""
        return self.origin, self.scale

    @property
    def n_columns(self) -> int:
        """Columns of the curved design."""
        return self.curved.q


@dataclass(frozen=True)
class CurvedMoments:
    """What a sum over curved rows told.

    Attributes
    ----------
    moments
        In the public units of the design.
    question
        What was asked.
    level
        (d,) where the variables are 0 in these units: about their means, where recordings lost their own those of all rows.
    """

    moments: Moments
    question: CurvedMomentsQuestion
    level: FloatArray

    @property
    def design(self) -> Design:
        """The design whose columns they are, about the level."""
        return replace(self.question.curved, origin=tuple(self.level.tolist()))

    def of(self, moments: Moments) -> CurvedMoments:
        """The same design with the moments of other rows, such as resamples of these."""
        return replace(self, moments=moments)


def curved_moments_program(
    variables: tuple[str, ...],
    n_lags: int,
    plain: Moments,
    features: str,
    center: str = "none",
    products: tuple[tuple[int, int, int], ...] = (),
    noisy: bool = False,
) -> ServerProgram[CurvedMoments]:
    """Ask for the cross-products of a curved design; `plain` are the moments of the rows themselves.

    Returns them as from as many rows as `plain` has: where cells are empty, fewer than there are. `noisy` sums have noise of
    their own each, so these count as many rows as they are worth themselves.
    """
    d = len(variables)
    is_own = center == "recording"
    # What is a recording's own has been taken off: what is left varies about 0.
    sd = safe_roots(np.diag(plain.scatter)[:d] / plain.n)
    origin, scale = public_units(np.zeros(d) if is_own else plain.mean[:d], sd)
    question = CurvedMomentsQuestion(
        n_lags=n_lags,
        variables=variables,
        center=center,
        basis=part_of(features, noisy),
        origin=origin,
        scale=scale,
        products=tuple(number for product in products for number in product),
    )
    answer = yield Task(question)
    moments = Moments.from_sums(answer.value, question.curved.q)
    n = moments.n if noisy else plain.n
    scatter = moments.scatter * (n / moments.n)
    level = plain.mean[:d] if is_own else origin
    return CurvedMoments(Moments(n, moments.mean, scatter), question, level)


def curved_site(data: SiteData, question: CurvedMomentsQuestion) -> SiteData:
    """A site as functions are formed of it: without what is its recordings' own, and with empty cells drawn."""
    data = training_site(question.treated(data), question.fold)
    if question.center == "recording" or question.row_model is not None:
        data = FilledSite(data, question.nuisance, question.row_model, _SEED)
    return data


def curved_recordings(here: Here, question: CurvedMomentsQuestion) -> Iterator[Recording]:
    """The recordings of such a site without the rows that still have empty cells."""
    return iter(CompleteSite(curved_site(here.data, question)).recordings())


def local_curved_moments(here: Here, question: CurvedMomentsQuestion) -> Moments:
    """The moments of a site's rows of a curved design; none if it abstains."""
    question.require_variables(here.data)
    total = Moments.empty(question.curved.q)
    if not question.abstains(here.state):
        for recording in curved_recordings(here, question):
            total = total.merge(recording_gram(question.curved, recording).moments)
    return total


def _answer(here: Here, question: CurvedMomentsQuestion) -> tuple[SiteState, FloatArray]:
    return here.state, local_curved_moments(here, question).to_sums()


def _units(here: Here, question: CurvedMomentsQuestion, unit: str) -> Iterator[FloatArray]:
    question.require_variables(here.data)
    require_separate_units(question, unit)
    if unit == "row" and question.basis not in (*MAPS.values(), *_NOISY_MAPS.values()):
        raise ParameterError(
            f"features={question.basis!r}: functions of one's own may look at several rows; protect unit='recording'."
        )
    # Nothing is drawn here: that one recording's cells are drawn would change those of the next.
    for recording in question.treated(here.data).recordings():
        whole = CompleteRows(off_nuisance(recording, question.nuisance))
        if unit == "row":
            yield from row_sums(question.curved, whole)
        else:
            yield recording_gram(question.curved, whole).moments.to_sums()


register_site_task(
    SiteTask(
        CurvedMomentsQuestion,
        one_by_one(_answer),
        _units,
        length=lambda question: sums_length(question.curved.q),
    )
)
