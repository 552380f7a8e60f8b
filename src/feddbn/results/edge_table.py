"""Tables of a learned network: all possible edges in the order in which they deserve belief, and which way links go.

A network has at most one of i -> j and j -> i, so the probability of a contemporaneous link is the sum of theirs, and that of
a direction given a link is its share of the sum. Lagged effects have one possible direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.orders.learn import EdgeOrientation, Learned, compelled_edges
from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.nodes import Part

__all__ = [
    "Links",
    "edge_table",
    "equivalently_directed",
    "learned_network",
    "learned_table",
    "left_open",
    "links_of",
    "open_edges",
    "orientation_table",
    "pair_ranking",
    "without_direction",
]

_NEEDED = ("source", "target", "probability", "strength")
_REVERSAL = 0.2
"""What an unlikely pair inherits from its reversal; on simulated networks any value from .05 to .49 ranks alike."""


def edge_table(
    probability: FloatArray, C: FloatArray, shares: FloatArray, names: tuple[str, ...]
) -> pd.DataFrame:
    """DataFrame source, target, lag, weight, probability, strength of all edges but those of a variable on itself at lag 0.

    Edges above one half come first, the strongest first; then the others, the most probable first. With many rows nearly
    all probabilities are 0 or 1 and say nothing about the order.

    Parameters
    ----------
    probability, C
        (q, d) probabilities and weights of ``[W; A_1; ...]``.
    shares
        (d, d) of `feddbn.core.orders.learn.explained_shares`: the strength of all edges from one source to one target.
    """
    d = len(names)
    column, target = np.nonzero(np.arange(len(C))[:, None] != np.arange(d))
    label = np.array(names, dtype=object)
    table = pd.DataFrame(
        {
            "source": label[column % d],
            "target": label[target],
            "lag": column // d,
            "weight": C[column, target],
            "probability": probability[column, target],
            "strength": shares[column % d, target],
        }
    )
    up_to_half, strength = _keys(table["probability"].to_numpy(), table["strength"].to_numpy())
    # Of the lags of one source, which share their strength, the more probable one goes first.
    order = np.lexsort((-table["probability"].to_numpy(), -strength, -up_to_half))
    return table.iloc[order].reset_index(drop=True)


def pair_ranking(table: pd.DataFrame, variables: Sequence[str]) -> FloatArray:
    """(d, d), [from, to]: the place of each ordered pair by `OneShotDBN.edge_probabilities_`, larger is higher.

    A pair is as probable as its most probable edge, at any lag. Links are better known than their directions, so an unlikely
    pair counts a fifth of its reversal. Pairs that nothing tells apart share a place.
    """
    missing = [name for name in _NEEDED if name not in table]
    if missing:
        raise ParameterError(
            f"table has no column {missing[0]!r}; pass the edge_probabilities_ of a linear OneShotDBN."
        )
    place = {str(name): k for k, name in enumerate(variables)}
    unknown = sorted({*table["source"], *table["target"]} - place.keys())
    if unknown:
        raise ParameterError(
            f"variables lacks {unknown[0]!r}, which the table names; pass the names of all variables."
        )
    d = len(place)
    where = table["source"].map(place).to_numpy(), table["target"].map(place).to_numpy()
    probability, strength = np.zeros((d, d)), np.zeros((d, d))
    np.maximum.at(probability, where, table["probability"].to_numpy())
    strength[where] = table["strength"].to_numpy()
    turned = _REVERSAL * probability.T
    is_turned = turned > probability
    keys = _keys(np.where(is_turned, turned, probability), np.where(is_turned, strength.T, strength))
    _, rank = np.unique(np.column_stack([key.ravel() for key in keys]), axis=0, return_inverse=True)
    places: FloatArray = rank.reshape(d, d).astype(np.float64)
    return places


def _keys(probability: FloatArray, strength: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What edges are ordered by: the probability up to one half, then the strength."""
    return np.minimum(probability, 0.5), strength


@dataclass(frozen=True)
class Links:
    """Contemporaneous links.

    Attributes
    ----------
    presence
        (d, d) symmetric probability of a link, either way.
    direction
        (d, d) probability of ``[from, to]`` given a link; NaN where nothing is known about it.
    oriented
        (d, d) symmetric: whether the data settle the direction of a link of the network; False where it has none.
    """

    presence: FloatArray
    direction: FloatArray
    oriented: BoolArray


def links_of(learned: Learned) -> Links:
    """Return links from shares of networks and how firmly the network's edges are directed."""
    shares = learned.shares
    assert shares is not None
    d, presence = len(shares.settled), shares.links
    direction = np.full((d, d), np.nan)
    np.divide(shares.probability[:d], presence, out=direction, where=presence > 0)
    oriented = np.zeros((d, d), dtype=bool)
    for edge in learned.orientation:
        i, j = edge.source, edge.target
        oriented[i, j] = oriented[j, i] = edge.oriented
    return Links(presence, direction, oriented)


def without_direction(constraints: EdgeConstraints, groups: Sequence[Sequence[int]]) -> BoolArray:
    """(d, d) pairs of members of a group, but those of which the constraints say which way they go."""
    d = constraints.d
    allowed, required = constraints.allowed[:d], constraints.required[:d]
    together = np.zeros((d, d), dtype=bool)
    for group in groups:
        together[np.ix_(group, group)] = True
    return np.asarray(together & allowed & allowed.T & ~required & ~required.T)


def left_open(learned: Learned, pairs: BoolArray) -> Learned:
    """The same with the directions of these pairs (symmetric) open: each way has half of the link's probability.

    Lagged edges between them have at most one half, too: which of the members acts is not told.
    """
    assert learned.shares is not None
    d, shares = len(pairs), learned.shares.left_open(pairs)
    edges = shares.edges.copy()
    between = np.tile(pairs & ~np.eye(d, dtype=bool), (len(edges) // d - 1, 1))
    edges[d:] = np.where(between, np.minimum(edges[d:], 0.5), edges[d:])
    orientation = tuple(
        EdgeOrientation(e.source, e.target, 0.0) if pairs[e.source, e.target] else e
        for e in learned.orientation
    )
    return replace(learned, shares=replace(shares, edges=edges), orientation=orientation)


def open_edges(
    orientation: Sequence[EdgeOrientation], C: FloatArray, names: Sequence[str]
) -> list[tuple[str, str]]:
    """Return the edges of weights C ((p+1) d, d) whose direction the data do not settle, by name."""
    ends = [(edge.source, edge.target) for edge in orientation if not edge.oriented]
    return [(names[i], names[j]) for i, j in ends if C[i, j] != 0]


def orientation_table(orientation: Sequence[EdgeOrientation], names: Sequence[str]) -> pd.DataFrame:
    """Return a DataFrame source, target, score_difference, oriented."""
    rows = [(names[e.source], names[e.target], e.score_difference, e.oriented) for e in orientation]
    return pd.DataFrame(rows, columns=["source", "target", "score_difference", "oriented"])


def equivalently_directed(dbn: DBN, constraints: EdgeConstraints) -> DBN:
    """Return the network with those edges open that networks which fit equally well have the other way.

    That holds where units do not tell directions: second moments of scaled variables decide about adjacencies and
    colliders only (`feddbn.core.orders.learn`).
    """
    d = dbn.d
    support = dbn.is_edge.reshape(-1, d)
    fixed = support[:d] & (constraints.required[:d] | ~constraints.allowed[:d].T)
    still_open = np.argwhere(support[:d] & ~compelled_edges(support, fixed)).tolist()
    pairs = [(dbn.variables[i], dbn.variables[j]) for i, j in still_open]
    return replace(dbn, open_edges=tuple(pairs))


def learned_table(
    learned: Learned,
    C: FloatArray,
    shares: FloatArray,
    names: tuple[str, ...],
    q: FloatArray | None = None,
) -> pd.DataFrame:
    """Return `edge_table` of what an order search found, with the columns presence, direction and oriented of `links_of`.

    `q` ((p+1) d, d) become a column q_value.
    """
    table = edge_table(learned.probability, C, shares, names)
    table = table.assign(presence=table["probability"], direction=1.0, oriented=True)
    now = (table["lag"] == 0).to_numpy()
    links = links_of(learned)
    place = {name: k for k, name in enumerate(names)}
    i = table.loc[now, "source"].map(place).to_numpy(dtype=int)
    j = table.loc[now, "target"].map(place).to_numpy(dtype=int)
    for column in ("presence", "direction", "oriented"):
        table.loc[now, column] = getattr(links, column)[i, j]
    if q is not None:
        source, target = (table[end].map(place).to_numpy(dtype=int) for end in ("source", "target"))
        table["q_value"] = q[table["lag"].to_numpy() * len(names) + source, target]
    return table


def learned_network(
    learned: Learned,
    numbers: tuple[FloatArray, FloatArray, FloatArray],
    names: tuple[str, ...],
    outputs: Sequence[int] = (),
    parts: Sequence[Part] = (),
) -> DBN:
    """Return the network that an order search found, with the edges whose direction it leaves open.

    Parameters
    ----------
    numbers
        Weights ((p+1) d, d), intercepts and noise variances (d,); of equal variances those of `outputs` become their mean.
    parts
        Curves and products.
    """
    C, intercept, variances = numbers
    d, which = len(names), list(outputs)
    if learned.noise.kind == "equal" and which:
        variances = variances.copy()
        variances[which] = float(variances[which].mean())
    is_open = open_edges(learned.orientation, C, names)
    linear = DBN(C[:d], C[d:].reshape(-1, d, d), names, intercept, variances)
    return replace(linear.with_parts(parts), open_edges=tuple(is_open))
