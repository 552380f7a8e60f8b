"""Learned networks as graphs of pgmpy and DoWhy. networkx, lingam and tigramite have methods of `feddbn.DBN` itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from feddbn.model.dbn import DBN
from feddbn.model.nodes import known

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["dowhy_graph", "pgmpy_cpds", "pgmpy_dag"]


def dowhy_graph(dbn: DBN) -> nx.DiGraph:
    """Return the graph over columns ``x``, ``x(t-1)``, ..., with the edges of every time step shown, for DoWhy's ``graph=``.

    The earliest columns have causes that are not shown; DoWhy takes those for independent.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.interop.graphs import dowhy_graph
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> sorted(dowhy_graph(dbn).edges)
    [('x', 'y'), ('x(t-1)', 'x'), ('x(t-1)', 'y(t-1)')]
    """
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(_column(name, lag) for lag in range(dbn.n_lags + 1) for name in dbn.variables)
    for source, target, lag, _ in _edges(dbn):
        for later in range(dbn.n_lags + 1 - lag):
            graph.add_edge(_column(source, lag + later), _column(target, later))
    return graph


def pgmpy_dag(dbn: DBN) -> Any:
    """Return the same graph as pgmpy's DAG.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.interop.graphs import pgmpy_dag
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> sorted(pgmpy_dag(dbn).edges)
    [('x', 'y'), ('x(t-1)', 'x'), ('x(t-1)', 'y(t-1)')]
    """
    from pgmpy.base import DAG

    plain = dowhy_graph(dbn)
    dag = DAG()
    dag.add_nodes_from(plain.nodes)
    dag.add_edges_from(plain.edges)
    return dag


def pgmpy_cpds(dbn: DBN) -> list[Any]:
    """Return the distribution of each variable now given its causes, as pgmpy's ``LinearGaussianCPD``.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.interop.graphs import pgmpy_cpds
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> [cpd.variable for cpd in pgmpy_cpds(dbn)]
    ['x', 'y']
    """
    from pgmpy.factors.continuous import LinearGaussianCPD

    intercept, noise = known(dbn.intercept, "intercept"), known(dbn.noise_variances, "noise_variances")
    found = []
    for j, name in enumerate(dbn.variables):
        own = [edge for edge in _edges(dbn) if edge[1] == name]
        causes = [_column(source, lag) for source, _, lag, _ in own]
        beta = [float(intercept[j]), *(weight for *_, weight in own)]
        found.append(LinearGaussianCPD(name, beta, float(noise[j]) ** 0.5, causes))
    return found


def _edges(dbn: DBN) -> list[tuple[str, str, int, float]]:
    shown = dbn.edges()[["source", "target", "lag", "weight"]].to_dict("records")
    return [(str(e["source"]), str(e["target"]), int(e["lag"]), float(e["weight"])) for e in shown]


def _column(name: str, lag: int) -> str:
    return name if lag == 0 else f"{name}(t-{lag})"
