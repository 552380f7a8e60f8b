"""Arrays, edges and graphs of a network, and back.

`AncestralGraph` is what data can tell where some causes are not seen: a graph over lags with a mark at each end of its edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from feddbn.core.ancestral.marks import WORDS, Marks
from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.errors import ParameterError
from feddbn.model.dynamics import require_linear
from feddbn.model.effects import shapes, signs, standardised_weights
from feddbn.model.network import Network
from feddbn.model.nodes import LINKS
from feddbn.shown import Shown

if TYPE_CHECKING:
    import networkx as nx


def lingam_arrays(dbn: Network) -> FloatArray:
    """(n_lags+1, d, d) as in ``VARLiNGAM.adjacency_matrices_``: entry [l, to, from]."""
    require_linear(dbn, "lingam's form", "dbn.to_json, or dbn.edges() for average slopes")
    return np.ascontiguousarray(dbn.adjacency_matrices.transpose(0, 2, 1))


def tigramite_arrays(dbn: Network) -> tuple[NDArray[np.str_], FloatArray]:
    """(graph, val_matrix), both (d, d, n_lags+1), entry [from, to, lag].

    At lag 0 tigramite wants both halves: ``graph[i, j, 0] = '-->'`` with ``graph[j, i, 0] = '<--'`` and a
    symmetric val_matrix, so each edge of W appears twice and `DBN.from_tigramite` reads the direction off
    the graph. An edge whose direction is open is ``'o-o'`` in both halves.
    """
    require_linear(dbn, "tigramite's form", "dbn.to_json, or dbn.edges() for average slopes")
    stack = dbn.adjacency_matrices
    if np.any((stack[0] != 0) & (stack[0].T != 0)):
        raise ParameterError("W has a two-cycle or a self-loop, which tigramite's lag-0 links cannot hold.")
    graph = np.full((dbn.d, dbn.d, dbn.n_lags + 1), "", dtype="<U3")
    graph[stack.transpose(1, 2, 0) != 0] = "-->"
    within = graph[:, :, 0]
    within[(stack[0] != 0).T] = "<--"
    is_open = (stack[0] != 0) & ~dbn.is_oriented[0]
    within[is_open | is_open.T] = "o-o"
    values = np.array(stack.transpose(1, 2, 0))
    values[:, :, 0] += stack[0].T
    return graph, values


def edge_table(dbn: Network) -> pd.DataFrame:
    """Frame source, target, lag, weight, standardised, oriented of every edge, by lag, source, target.

    `standardised` is the weight in standard deviations (`feddbn.model.effects`), NaN where the noise is not known;
    `oriented` is False where the contemporaneous direction is open. With curves, `weight` is the straight part, and a column
    `shape` says linear, curved or product (the source acts together with another, whether or not it has a curve of
    its own). With variables of other kinds, `weight` is a coefficient on the `scale` of the target (value, log value,
    log rate, log odds) or, for levels, the norm of several, `ratio` its exponential (an odds ratio, a rate ratio, a factor;
    NaN where there is none), and `kind` the kind of the target; `DBN.coefficients` has them one by one.
    """
    stack = dbn.adjacency_matrices
    lag, i, j = np.nonzero(dbn.is_edge)
    names = np.asarray(dbn.variables, dtype=object)
    table = pd.DataFrame(
        {
            "source": names[i],
            "target": names[j],
            "lag": lag.astype(np.int64),
            "weight": stack[lag, i, j],
            "standardised": np.nan if dbn.noise_variances is None else standardised_weights(dbn)[lag, i, j],
            "oriented": dbn.is_oriented[lag, i, j],
        }
    )
    if dbn.has_kinds:
        single = signs(dbn)[lag, i, j] & np.array([dbn.kinds[k].name != "continuous" for k in j], dtype=bool)
        table["kind"] = [dbn.kinds[k].name for k in j]
        table["scale"] = [LINKS[dbn.kinds[k].name] for k in j]
        with np.errstate(over="ignore"):
            table["ratio"] = np.where(single, np.exp(stack[lag, i, j]), np.nan)
    elif not dbn.is_linear:
        table["shape"] = shapes(dbn)[lag, i, j]
    return table


def time_series_graph(dbn: Network) -> nx.DiGraph:
    """Graph with d (n_lags + 1) nodes; edges carry weight, lag and oriented, nodes of lag 0 intercept and
    noise_variance, where they are known.
    """
    import networkx as nx

    graph = nx.DiGraph(n_lags=dbn.n_lags)
    for k, name in enumerate(dbn.variables):
        for lag in range(dbn.n_lags + 1):
            extra: dict[str, Any] = {}
            if lag == 0:
                numbers = {"intercept": dbn.intercept, "noise_variance": dbn.noise_variances}
                extra = {key: float(value[k]) for key, value in numbers.items() if value is not None}
            if dbn.has_kinds:
                extra["kind"] = dbn.kinds[k].name
            graph.add_node(f"{name}_lag{lag}", variable=name, lag=lag, position=k, **extra)
    oriented = dbn.is_oriented
    for lag, i, j in np.argwhere(dbn.is_edge):
        graph.add_edge(
            f"{dbn.variables[i]}_lag{lag}",
            f"{dbn.variables[j]}_lag0",
            weight=float(dbn.adjacency_matrices[lag, i, j]),
            lag=int(lag),
            oriented=bool(oriented[lag, i, j]),
        )
    return graph


MEANINGS: Mapping[str, str] = {
    "-->": "a cause of it, directly or through what is not seen; a hidden cause of both may add to it",
    "<->": "neither causes the other: a hidden cause of both",
    "o->": "a cause of it, a hidden cause of both, or both",
    "o-o": "one causes the other, or a hidden cause of both",
    "---": "each causes the other, which cannot be within a time step: the data contradict themselves",
    "--o": "a cause of it; whether it is caused by it as well is not known",
}
"""What the mark of an edge says of its source and its target."""
_BACK = str.maketrans("<>", "><")


@dataclass(frozen=True, eq=False)
class AncestralGraph(Shown):
    """Edges with marks over a window of p + 1 moments.

    Attributes
    ----------
    marks
        (d, d, p+1) strings: ``marks[i, j, l]`` is the edge from i, l time steps ago, to j now, "" for none.
        Within a time step
        ``marks[i, j, 0]`` and ``marks[j, i, 0]`` are the same edge read from its two ends.
    variables
        Names.
    values, p_values
        (d, d, p+1): the weakest partial correlation of each pair over all sets of conditions that were tried, and its
        p-value; None if not known.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> graph = data.ancestral_truth()
    >>> graph.edges()[["source", "target", "lag", "mark"]].head(2)
      source target  lag mark
    0     x1     x0    0  -->
    1     x2     x0    0  -->
    """

    marks: Marks
    variables: tuple[str, ...]
    values: FloatArray | None = None
    p_values: FloatArray | None = None

    def __post_init__(self) -> None:
        marks = np.asarray(self.marks, dtype="<U3")
        names = tuple(str(name) for name in self.variables)
        object.__setattr__(self, "marks", marks)
        object.__setattr__(self, "variables", names)
        d = len(names)
        if marks.ndim != 3 or marks.shape[:2] != (d, d) or not marks.shape[2]:
            raise ParameterError(
                f"marks must have shape ({d}, {d}, n_lags + 1) for {d} variables, got {marks.shape}."
            )
        wrong = sorted(set(marks.ravel().tolist()) - WORDS - {""})
        if wrong:
            raise ParameterError(
                f"marks contains {wrong[0]!r}; an edge is one of {', '.join(sorted(WORDS))}, and '' is none."
            )
        backward = [str(mark) for mark in np.unique(marks[:, :, 1:]) if mark and mark[2] != ">"]
        if backward:
            raise ParameterError(
                f"marks contains {backward[0]!r} across time steps; nothing causes its past, so such an edge ends in '>'."
            )
        now = marks[:, :, 0]
        if any(now[j, i] != _turned(str(now[i, j])) for i in range(d) for j in range(d)):
            raise ParameterError(
                "marks[:, :, 0] must say the same from both ends: '-->' at [i, j] is '<--' at [j, i]."
            )

    @property
    def n_lags(self) -> int:
        """Number of lags p."""
        return int(self.marks.shape[2]) - 1

    def edges(self) -> pd.DataFrame:
        """Frame source, target, lag, mark, value, p; every edge once, with its arrowhead, if it has one, at the target."""
        rows = []
        for lag in range(self.n_lags + 1):
            for i, source in enumerate(self.variables):
                for j, target in enumerate(self.variables):
                    mark = str(self.marks[i, j, lag])
                    if not mark or (lag == 0 and not _reads_forward(mark, i, j)):
                        continue
                    value, p = (None if x is None else x[i, j, lag] for x in (self.values, self.p_values))
                    rows.append((source, target, lag, mark, value, p))
        frame = pd.DataFrame(rows, columns=["source", "target", "lag", "mark", "value", "p"])
        return frame.astype({"lag": int, "value": float, "p": float})

    def definite(self) -> BoolArray:
        """(p+1, d, d) where an edge is a definite cause, [lag, from, to]."""
        return np.asarray(np.moveaxis(self.marks == "-->", 2, 0))

    def possible(self) -> BoolArray:
        """(p+1, d, d) where an edge is or may be a cause and nothing else points back: ``-->`` and ``o->``."""
        return np.asarray(np.moveaxis((self.marks == "-->") | (self.marks == "o->"), 2, 0))

    def to_dict(self) -> dict[str, Any]:
        """Plain values: names, number of lags, and the table of edges."""
        frame = self.edges().astype(object)
        edges = frame.where(frame.notna(), None).to_dict("records")
        return {"variables": list(self.variables), "n_lags": self.n_lags, "edges": edges}

    def __str__(self) -> str:
        """Every edge, and what its mark says of its source and its target."""
        table = self.edges()
        rows = [
            f"{source}{f'(t-{lag})' if lag else ''} {mark} {target}: {MEANINGS[mark]}."
            for source, target, lag, mark in zip(*(table[name] for name in table.columns[:4]), strict=True)
        ]
        return "\n".join([f"AncestralGraph of {len(self.variables)} variables, {len(rows)} edges", *rows])


def _turned(mark: str) -> str:
    """The same edge read from its other end."""
    return mark[::-1].translate(_BACK)


def _reads_forward(mark: str, i: int, j: int) -> bool:
    """Whether a contemporaneous edge is listed from i to j: its arrowhead last, else the smaller number first."""
    turned = _turned(mark)
    if mark == turned:
        return i < j
    return (mark[2] == ">", mark[0] == "-") > (turned[2] == ">", turned[0] == "-")
