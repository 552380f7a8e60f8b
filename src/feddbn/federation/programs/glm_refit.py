"""The refit of chosen parents: models of all nodes together, by a few sums of ``glm-step``.

Nodes that are normal given their parents follow from the moments. Counts are Poisson; where the first fit shows that they are
wider than that (score test against BIC's price of one parameter), a negative binomial is fitted from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.designs.design import Design
from feddbn.core.glm.models import NodeModel
from feddbn.core.glm.newton import Climb
from feddbn.core.glm.standard import (
    NodeEstimate,
    column_units,
    in_code_units,
    least_squares,
    slopes_of,
    starting_theta,
)
from feddbn.core.statistics.moments import Moments
from feddbn.federation.programs.glm_step import MOST_STEPS, GlmStepQuestion, model_text
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = ["NORMAL", "Refit", "refit_program"]

NORMAL = "normal"
"""Family of nodes that least squares fits."""
_LEAST_WIDTH = 1e-3


@dataclass(frozen=True)
class Refit:
    """What a refit ends with.

    Attributes
    ----------
    estimates
        One for each model that was chosen.
    n_sums
        Number of sums.
    is_exact
        Whether every one of them arrived.
    """

    estimates: tuple[NodeEstimate, ...]
    n_sums: int
    is_exact: bool


def refit_program(
    moments: Moments,
    design: Design,
    models: Sequence[NodeModel],
    counts: Sequence[Sequence[float]],
    constant: BoolArray,
    choose: Callable[[Sequence[NodeEstimate]], Sequence[int]] | None = None,
) -> ServerProgram[Refit]:
    """Fit models.

    Parameters
    ----------
    counts
        The known numbers of rows with each level of each variable.
    constant
        (d,) which variables do not vary: their largest likelihood lies at infinity, so they keep what moments say.
    choose
        Which models to keep, once all are near their largest likelihood; the others are not asked about any further.
    """
    climber = _Climber(moments, design, models, counts, constant)
    yield from climber.ask(lambda climb: climb.is_near)
    climber.widen()
    yield from climber.ask(lambda climb: climb.is_near)
    kept = range(len(models)) if choose is None else choose([climber.estimate(k) for k in range(len(models))])
    climber.keep(kept)
    yield from climber.ask(lambda climb: climb.is_done)
    estimates = tuple(climber.estimate(k) for k in kept)
    return Refit(estimates, climber.n_sums, all(climb.is_done for climb in climber.climbs.values()))


class _Climber:
    """All models on their way together."""

    def __init__(
        self,
        moments: Moments,
        design: Design,
        models: Sequence[NodeModel],
        counts: Sequence[Sequence[float]],
        constant: BoolArray,
    ) -> None:
        self._moments, self._design = moments, design
        self._origin, self._scale = column_units(moments, design)
        self._settled: dict[int, NodeEstimate] = {}
        self._models: dict[int, NodeModel] = {}
        self.climbs: dict[int, Climb] = {}
        self.n_sums = 0
        for k, model in enumerate(models):
            if model.family == NORMAL:
                self._settled[k] = least_squares(model, design, moments)
                continue
            theta = starting_theta(model, design, moments, self._scale, counts[model.node])
            if constant[model.node]:
                unknown = np.zeros((len(theta), len(theta)))
                dispersion = 0.0 if model.family == "poisson" else 1.0
                self._settled[k] = NodeEstimate(model, theta, unknown, dispersion, 0.0, len(theta))
                continue
            self._models[k] = model
            self.climbs[k] = self._climb(model, theta)

    def _climb(self, model: NodeModel, theta: FloatArray) -> Climb:
        kind = self._design.codings[model.node].kind
        n_thresholds = kind.n_levels - 1 if kind.name == "ordinal" else 0
        return Climb(theta, slopes_of(model, self._design), n_thresholds)

    def ask(self, has_arrived: Callable[[Climb], bool]) -> ServerProgram[None]:
        """Take steps until every model has arrived, or there are no more steps."""
        places = {k: place for place, k in enumerate(self._models)}
        while self.n_sums < MOST_STEPS:
            on_the_way = [k for k, climb in self.climbs.items() if not has_arrived(climb)]
            if not on_the_way:
                return
            question = GlmStepQuestion(
                n_lags=self._design.n_lags,
                variables=self._design.variables,
                kinds=self._design.kinds,
                models=tuple(model_text(model) for model in self._models.values()),
                asked=tuple(places[k] for k in on_the_way),
                theta=np.concatenate([self.climbs[k].theta for k in on_the_way]),
                origin=self._origin,
                scale=self._scale,
            )
            answer = yield Task(question, note={"step": float(self.n_sums)})
            self.n_sums += 1
            for k, sums in zip(on_the_way, question.from_sums(answer.value), strict=True):
                self.climbs[k].take(sums)

    def widen(self) -> None:
        """Let counts be negative binomial where they are wider than Poisson ones."""
        for k, model in self._models.items():
            width = _width(self.climbs[k], self._moments.n) if model.family == "poisson" else 0.0
            if width > 0:
                self._models[k] = replace(model, family="negative-binomial")
                self.climbs[k] = self._climb(self._models[k], np.append(self.climbs[k].theta, np.log(width)))

    def keep(self, kept: Sequence[int]) -> None:
        """Go on with these only; what a run fits stays listed."""
        self.climbs = {k: climb for k, climb in self.climbs.items() if k in kept}

    def estimate(self, k: int) -> NodeEstimate:
        """What a model has come to."""
        if k in self._settled:
            return self._settled[k]
        model, climb = self._models[k], self.climbs[k]
        theta, covariance = in_code_units(
            model, self._design, climb.theta, climb.covariance, self._origin, self._scale
        )
        dispersion = {"poisson": 0.0, "negative-binomial": float(np.exp(climb.theta[-1]))}.get(
            model.family, 1.0
        )
        value, m = climb.log_likelihood, len(climb.theta)
        return NodeEstimate(model, theta, covariance, dispersion, value, m, climb.has_ridge)


def _width(climb: Climb, n: float) -> float:
    """How much wider than Poisson counts are; 0 unless the evidence is for it."""
    excess, squares = climb.dispersion
    if excess <= 0 or excess**2 / (2 * squares) < np.log(n):
        return 0.0
    return max(float(excess / squares), _LEAST_WIDTH)
