"""Whether two variables are linked within a moment, and which way: two numbers instead of one.

In every order at most one of i -> j and j -> i is possible, so the two exclude each other and the probability of a link
is the sum of theirs, exactly; that of a direction given a link is its share of the sum. Where the posterior is given
one order, or the shape of the noise decided about directions, which the posterior does not see, a direction's
probability comes from the score difference s of its reversal instead: 1 / (1 + exp(-s / 2)).

Effects across moments have one possible direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.orders.average import OrderPosterior
from feddbn.core.orders.groups import GroupLearned
from feddbn.core.orders.learn import EdgeOrientation, Learned, compelled_edges
from feddbn.model.dbn import DBN

__all__ = ["Links", "equivalently_directed", "links_of", "open_edges", "orientation_table", "with_links"]


@dataclass(frozen=True)
class Links:
    """Links within a moment.

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


def links_of(
    posterior: OrderPosterior, orientation: Sequence[EdgeOrientation], *, by_noise: bool = False
) -> Links:
    """Return links from edge probabilities and how firmly the network's edges are directed.

    `by_noise` says that the shape of the noise decided about directions.
    """
    d = posterior.probability.shape[1]
    within = posterior.probability[:d]
    presence = np.minimum(within + within.T, 1.0)
    over_orders = posterior.n_orders > 1
    direction = np.full((d, d), np.nan)
    if over_orders:
        np.divide(within, within + within.T, out=direction, where=presence > 0)
    oriented = np.zeros((d, d), dtype=bool)
    for edge in orientation:
        i, j = edge.source, edge.target
        if by_noise or not over_orders:
            direction[i, j] = 1.0 / (1.0 + np.exp(-edge.score_difference / 2))
            direction[j, i] = 1.0 - direction[i, j]
        oriented[i, j] = oriented[j, i] = edge.oriented
    return Links(presence, direction, oriented)


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


def with_links(
    table: pd.DataFrame,
    names: Sequence[str],
    learned: Learned | GroupLearned | None = None,
    *,
    by_noise: bool = False,
) -> pd.DataFrame:
    """Return a table source, target, lag, probability with the columns presence, direction and oriented.

    `learned` may be None if there are no rows of lag 0; `by_noise` as in `links_of`.
    """
    table = table.assign(presence=table["probability"], direction=1.0, oriented=True)
    now = (table["lag"] == 0).to_numpy()
    if learned is None or not now.any():
        return table
    links = links_of(learned.posterior, learned.orientation, by_noise=by_noise)
    place = {name: k for k, name in enumerate(names)}
    i = table.loc[now, "source"].map(place).to_numpy(dtype=int)
    j = table.loc[now, "target"].map(place).to_numpy(dtype=int)
    for column in ("presence", "direction", "oriented"):
        table.loc[now, column] = getattr(links, column)[i, j]
    return table
