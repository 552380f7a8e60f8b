"""Cross-products of the variables and of fixed functions of them: what curves, and variables that are set, are told by."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.design import Design, public_units
from feddbn.core.orders.knobs import FEWEST, Knobs, calm_variables, knobs_among
from feddbn.core.statistics.moments import Moments, as_of_rows, safe_roots
from feddbn.federation.protocol.rows import functions_of
from feddbn.federation.protocol.task import ServerProgram, Task
from feddbn.federation.sums.gram import GramQuestion


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
    question: GramQuestion
    level: FloatArray

    @property
    def design(self) -> Design:
        """The design whose columns they are, about the level."""
        return replace(self.question.design, origin=tuple(self.level.tolist()))

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
) -> ServerProgram[CurvedMoments]:
    """Ask for the cross-products of a curved design; `plain` are the moments of the rows themselves.

    Returns them as from as many rows as `plain` has: where cells are empty, fewer than there are.
    """
    d = len(variables)
    is_own = center == "recording"
    # What is a recording's own has been taken off: what is left varies about 0.
    sd = safe_roots(np.diag(plain.scatter)[:d] / plain.n)
    origin, scale = public_units(np.zeros(d) if is_own else plain.mean[:d], sd)
    question = GramQuestion(
        n_lags=n_lags,
        variables=variables,
        center=center,
        functions=functions_of(features),
        function_origin=origin,
        function_scale=scale,
        products=tuple(number for product in products for number in product),
    )
    answer = yield Task(question)
    # Where empty cells are drawn, noise is no sum over rows.
    moments = as_of_rows(Moments.from_sums(answer.value, question.design.q))
    scatter = moments.scatter * (plain.n / moments.n)
    level = plain.mean[:d] if is_own else origin
    return CurvedMoments(Moments(plain.n, moments.mean, scatter), question, level)


def knobs_program(
    variables: tuple[str, ...], n_lags: int, plain: Moments, center: str
) -> ServerProgram[Knobs | None]:
    """Ask for squares where several variables owe nothing to the past, and return what is known of those set at random.

    `plain` are the moments of the rows themselves.
    """
    d = len(variables)
    calm = calm_variables(plain, d)
    if len(calm) <= FEWEST:
        return None
    told = yield from curved_moments_program(variables, n_lags, plain, "quadratic", center)
    now = told.moments.select(np.r_[:d, (n_lags + 1) * d : (n_lags + 2) * d])
    return knobs_among(calm, plain, now, d)
