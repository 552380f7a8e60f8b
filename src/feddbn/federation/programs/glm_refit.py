"""The refit of chosen parents: models of all nodes together, by a few sums of ``glm-step``.

Nodes that are normal given their parents follow from the moments. Counts are Poisson; where the first fit shows that they are
wider than that (score test against BIC's price of one parameter), a negative binomial is fitted from there.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        One for each model, in their order.
    n_sums
        Number of sums.
    is_exact
        Whether every model arrived.
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
) -> ServerProgram[Refit]:
    """Fit models.

    Parameters
    ----------
    counts
        The known numbers of rows with each level of each variable.
    constant
        (d,) which variables do not vary: their largest likelihood lies at infinity, so they keep what moments say.
    """
    origin, scale = column_units(moments, design)
    found: dict[int, NodeEstimate] = {}
    asked = []
    for k, model in enumerate(models):
        if model.family == NORMAL:
            found[k] = least_squares(model, design, moments)
        elif constant[model.node]:
            theta = starting_theta(model, design, moments, scale, counts[model.node])
            unknown = np.zeros((len(theta), len(theta)))
            dispersion = 0.0 if model.family == "poisson" else 1.0
            found[k] = NodeEstimate(model, theta, unknown, dispersion, 0.0, len(theta))
        else:
            asked.append(k)
    if not asked:
        return Refit(tuple(found[k] for k in range(len(models))), 0, True)
    now = {k: models[k] for k in asked}
    climbs = {
        k: _climb(model, design, starting_theta(model, design, moments, scale, counts[model.node]))
        for k, model in now.items()
    }
    n_sums, widened = 0, False
    while n_sums < MOST_STEPS and not all(climb.is_done for climb in climbs.values()):
        question = GlmStepQuestion(
            n_lags=design.n_lags,
            variables=design.variables,
            kinds=design.kinds,
            models=tuple(model_text(now[k]) for k in asked),
            theta=np.concatenate([climbs[k].theta for k in asked]),
            origin=origin,
            scale=scale,
        )
        answer = yield Task(question, note={"step": float(n_sums)})
        n_sums += 1
        for k, sums in zip(asked, question.from_sums(answer.value), strict=True):
            climbs[k].take(sums)
        if not widened and all(climb.is_done for climb in climbs.values()):
            widened = True
            for k in asked:
                width = _width(climbs[k], moments.n)
                if now[k].family == "poisson" and width > 0:
                    now[k] = replace(now[k], family="negative-binomial")
                    climbs[k] = _climb(now[k], design, np.append(climbs[k].theta, np.log(width)))
    for k, climb in climbs.items():
        theta, covariance = in_code_units(now[k], design, climb.theta, climb.covariance, origin, scale)
        dispersion = {"poisson": 0.0, "negative-binomial": float(np.exp(climb.theta[-1]))}.get(
            now[k].family, 1.0
        )
        found[k] = NodeEstimate(
            now[k], theta, covariance, dispersion, climb.log_likelihood, len(climb.theta), climb.has_ridge
        )
    arrived = all(climb.is_done for climb in climbs.values())
    return Refit(tuple(found[k] for k in range(len(models))), n_sums, arrived)


def _climb(model: NodeModel, design: Design, theta: FloatArray) -> Climb:
    kind = design.codings[model.node].kind
    n_thresholds = kind.n_levels - 1 if kind.name == "ordinal" else 0
    return Climb(theta, slopes_of(model, design), n_thresholds)


def _width(climb: Climb, n: float) -> float:
    """How much wider than Poisson counts are; 0 unless the evidence is for it."""
    excess, squares = climb.dispersion
    if excess <= 0 or excess**2 / (2 * squares) < np.log(n):
        return 0.0
    return max(float(excess / squares), _LEAST_WIDTH)
