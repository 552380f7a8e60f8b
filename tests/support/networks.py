"""Nodes and curved networks in few words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from feddbn.core.kinds import Kind
from feddbn.model.dbn import DBN
from feddbn.model.nodes import Node, Part, Term


def make_curve(
    source: int,
    target: int,
    lag: int,
    origin: float,
    scale: float,
    coefficients: Any,
    basis: str = "spline",
    covariance: Any = None,
) -> Part:
    """What an edge has beside its straight effect."""
    return Part(target, Term(((source, lag),), basis, (origin,), (scale,)), coefficients, covariance)


def make_product(
    first: int, second: int, target: int, lag: int, weight: float, origins: Any, scales: Any
) -> Part:
    """What two variables do together."""
    return Part(target, Term(((first, lag), (second, lag)), "product", origins, scales), [weight])


def part_at(part: Part, *values: Any) -> np.ndarray:
    """What a part adds to its target at values of its causes."""
    b = np.asarray(part.coefficients, dtype=float).reshape(-1)
    return part.term.columns(*values, width=len(b)) @ b


def curved(
    W: Any,
    A: Any,
    variables: Any = None,
    intercept: Any = 0.0,
    noise_variances: Any = 1.0,
    parts: Any = (),
    open_edges: Any = (),
) -> DBN:
    """A network with curves and products beside straight effects."""
    linear = DBN(W, A, variables, intercept, noise_variances).with_parts(parts)
    return replace(linear, open_edges=open_edges)


def make_node(
    kind: Kind, parents: Any, intercept: Any, effects: Any, dispersion: float = 1.0, covariance: Any = None
) -> Node:
    """A node whose causes act through the columns of their kinds."""
    terms = tuple(Term((parent,)) for parent in parents)
    return Node(kind, terms, tuple(effects), intercept, dispersion, covariance)
