"""Small networks with variables of all kinds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from feddbn.core.kinds import Kind
from feddbn.model.dbn import DBN
from feddbn.model.nodes import Node
from support.networks import make_node

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
        make_node(
            KINDS[0],
            ((0, 1), (3, 0), (5, 1)),
            0.2,
            (effect((0.5,)), effect((0.8,)), effect((0.6,), (-0.7,))),
            0.5,
        ),
        make_node(KINDS[1], ((1, 1), (2, 1)), 0.3, (effect((0.4,)), effect((0.2,))), 0.1),
        make_node(KINDS[2], ((0, 1), (3, 1)), 0.5, (effect((0.3,)), effect((0.5,))), 0.2),
        make_node(KINDS[3], ((0, 1), (2, 1)), -0.8, (effect((0.9,)), effect((-0.4,))), 1.0),
        make_node(KINDS[4], ((4, 1), (1, 0)), (0.5, 2.0), (effect((0.6,)), effect((0.5,))), 1.0),
        make_node(
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
    return DBN.from_nodes(nodes, VARIABLES)


def _sure(node: Node, rng: np.random.Generator) -> Node:
    n = len(node.estimates)
    root = 0.05 * rng.normal(size=(n, n))
    return replace(node, covariance=root @ root.T + 1e-4 * np.eye(n))
