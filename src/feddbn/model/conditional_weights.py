"""What the arrays W, A, intercept and noise_variances of a network hold where its variables have distributions of their own.

A weight is the coefficient on the scale of the link where cause and variable have one column each; else it is the Euclidean
norm of the matrix of effects, which has no sign. The intercept of L levels is 0 here (they have L-1), and the variance of
a variable that has no such parameter is 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.errors import ParameterError
from feddbn.model.conditionals import Conditional

__all__ = ["Weights", "check_agreement", "checked_conditionals", "has_one_sign", "weights_of"]

_WITH_VARIANCE = ("continuous", "positive")


class Weights(NamedTuple):
    """The arrays of a network."""

    W: FloatArray
    A: FloatArray
    intercept: FloatArray
    noise_variances: FloatArray


def weights_of(conditionals: Sequence[Conditional], n_lags: int) -> Weights:
    """The arrays that stand for distributions."""
    d = len(conditionals)
    stack, intercept, variances = np.zeros((n_lags + 1, d, d)), np.zeros(d), np.ones(d)
    for j, node in enumerate(conditionals):
        for (i, lag), effect in zip(node.parents, node.effects, strict=True):
            stack[lag, i, j] = effect[0, 0] if effect.size == 1 else np.sqrt((effect**2).sum())
        if node.n_intercepts == 1:
            intercept[j] = node.intercept[0]
        if node.kind.name in _WITH_VARIANCE:
            variances[j] = node.dispersion
    return Weights(stack[0], stack[1:], intercept, variances)


def has_one_sign(conditionals: Sequence[Conditional], n_lags: int) -> BoolArray:
    """(p+1, d, d) whether an effect goes one way: it is one coefficient."""
    d = len(conditionals)
    found = np.ones((n_lags + 1, d, d), dtype=bool)
    for j, node in enumerate(conditionals):
        for (i, lag), effect in zip(node.parents, node.effects, strict=True):
            found[lag, i, j] = effect.size == 1
    return found


def checked_conditionals(given: Iterable[Conditional], d: int, n_lags: int) -> tuple[Conditional, ...]:
    """The distributions, one for each of d variables or none; ParameterError if they do not belong together."""
    nodes = tuple(given)
    for node in nodes:
        if not isinstance(node, Conditional):
            raise ParameterError(
                f"conditionals must hold objects of feddbn.model.conditionals.Conditional, got {node!r}."
            )
    if nodes and len(nodes) != d:
        raise ParameterError(f"conditionals must be {d}, one for each variable, or none, got {len(nodes)}.")
    for j, node in enumerate(nodes):
        for (i, lag), effect in zip(node.parents, node.effects, strict=True):
            where = f"conditionals[{j}] has the cause {i} at lag {lag}"
            if i >= d or lag > n_lags:
                raise ParameterError(f"{where}, but there are {d} variables and {n_lags} lags.")
            if lag == 0 and i == j:
                raise ParameterError(f"{where}, which is the variable itself; it needs a lag of at least 1.")
            if len(effect) != nodes[i].kind.width:
                raise ParameterError(
                    f"{where} with {len(effect)} rows of effects, but a {nodes[i].kind.name} cause has"
                    f" {nodes[i].kind.width} columns."
                )
    return nodes


def check_agreement(found: Weights, given: Weights) -> None:
    """Refuse arrays that are not those of the distributions."""
    for name, ours, theirs in zip(Weights._fields, found, given, strict=True):
        if not np.allclose(ours, theirs, rtol=1e-9, atol=1e-12):
            raise ParameterError(
                f"{name} is not what conditionals say; make the network by DBN.from_conditionals(conditionals, variables)."
            )
