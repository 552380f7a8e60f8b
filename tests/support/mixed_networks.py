"""Small networks with variables of all kinds."""

from __future__ import annotations

import numpy as np

from feddbn.core.kinds import Kind
from feddbn.model.conditionals import Conditional
from feddbn.model.dbn import DBN

VARIABLES = ("temp", "dose", "visits", "alarm", "pain", "ward")
KINDS = (
    Kind(),
    Kind("positive"),
    Kind("count"),
    Kind("binary"),
    Kind("ordinal", ("no", "some", "bad")),
    Kind("categorical", ("north", "south", "west")),
)


def effect(*rows: tuple[float, ...]) -> np.ndarray:
    return np.array(rows, dtype=float)


def mixed_network(*, covariance: bool = False) -> DBN:
    """A stable network in which every kind is a cause and a target."""
    nodes = [
        Conditional(
            KINDS[0],
            ((0, 1), (3, 0), (5, 1)),
            0.2,
            (effect((0.5,)), effect((0.8,)), effect((0.6,), (-0.7,))),
            0.5,
        ),
        Conditional(KINDS[1], ((1, 1), (2, 1)), 0.3, (effect((0.4,)), effect((0.2,))), 0.1),
        Conditional(KINDS[2], ((0, 1), (3, 1)), 0.5, (effect((0.3,)), effect((0.5,))), 0.2),
        Conditional(KINDS[3], ((0, 1), (2, 1)), -0.8, (effect((0.9,)), effect((-0.4,))), 1.0),
        Conditional(KINDS[4], ((4, 1), (1, 0)), (0.5, 2.0), (effect((0.6,)), effect((0.5,))), 1.0),
        Conditional(
            KINDS[5],
            ((5, 1), (4, 0)),
            (-0.2, -0.5),
            (effect((1.5, 0.2), (0.1, 1.2)), effect((0.3, -0.4))),
            1.0,
        ),
    ]
    if covariance:
        rng = np.random.default_rng(4)
        nodes = [_sure(node, rng) for node in nodes]
    return DBN.from_conditionals(nodes, VARIABLES)


def _sure(node: Conditional, rng: np.random.Generator) -> Conditional:
    n = len(node.estimates)
    root = 0.05 * rng.normal(size=(n, n))
    return Conditional(
        node.kind,
        node.parents,
        node.intercept,
        node.effects,
        node.dispersion,
        root @ root.T + 1e-4 * np.eye(n),
    )
