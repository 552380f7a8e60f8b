"""How strong effects on variables of other kinds are, in a number that can be compared across kinds."""

from __future__ import annotations

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.conditional_steps import ConditionalSteps
from feddbn.model.conditionals import Conditional
from feddbn.model.network import Network
from feddbn.model.paths import usual_lagged

__all__ = ["standardised_effects"]

_LOGISTIC = np.pi**2 / 3


def standardised_effects(dbn: Network) -> FloatArray:
    """(p+1, d, d) standard deviation of what a cause adds on the scale of the link over that of all that moves the variable
    there, W first; negative where a single coefficient is.

    What moves it is the spread of its predictor and, by its kind: the variance of noise (continuous, positive),
    ``pi^2/3`` (levels: the variance of a logistic number), ``log(1 + 1/mean + dispersion)`` (counts: the variance of the
    log of a number with their mean and variance). Spreads are those of rows that the network visits by itself; where
    it has no usual level, coefficients are given as they are.
    """
    found = dbn.adjacency_matrices
    try:
        with np.errstate(all="ignore"):
            rows = usual_lagged(dbn)
    except ParameterError:
        return found
    steps = ConditionalSteps(dbn)
    for j, node in enumerate(dbn.conditionals):
        codes = steps.codes(rows, j)
        total = (codes @ node.slopes).var(axis=0) + _own_variance(node, codes)
        begin = 0
        for (i, lag), effect in zip(node.parents, node.effects, strict=True):
            added = (codes[:, begin : begin + len(effect)] @ effect).var(axis=0)
            begin += len(effect)
            size = np.sqrt(added.sum() / total.sum()) if total.sum() > 0 else 0.0
            found[lag, i, j] = -size if effect.size == 1 and effect[0, 0] < 0 else size
    return found


def _own_variance(node: Conditional, codes: FloatArray) -> float:
    if node.kind.levels:
        return float(_LOGISTIC)
    if node.kind.name == "count":
        mean = max(float(node.mean(codes).mean()), 1e-12)
        return float(np.log1p(1 / mean + node.dispersion))
    return node.dispersion
