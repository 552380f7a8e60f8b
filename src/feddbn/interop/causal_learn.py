"""causal-learn's algorithms on a `feddbn.Summary`: PC, FCI, GES, GRaSP and BOSS.

Nodes are the summary's columns: the variables now and at every lag. Time is known, so nothing may act on what was before;
what `as_background` returns says so to PC and FCI. All of these read covariances and the number of rows only, so their
graphs are those of the pooled rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from causallearn.search.ConstraintBased.FCI import fci as _fci
from causallearn.search.ConstraintBased.PC import pc as _pc
from causallearn.search.PermutationBased.BOSS import boss as _boss
from causallearn.search.PermutationBased.GRaSP import grasp as _grasp
from causallearn.search.ScoreBased.GES import ges as _ges
from causallearn.utils.PCUtils.BackgroundKnowledge import BackgroundKnowledge

from feddbn.interop.summary import Summary

__all__ = ["as_background", "boss", "fci", "ges", "grasp", "pc"]


def as_background(summary: Summary, nodes: Any) -> BackgroundKnowledge:
    """Return the knowledge that causes do not come after their effects, for causal-learn's `nodes` in column order.

    Examples
    --------
    >>> import feddbn
    >>> from causallearn.graph.GraphNode import GraphNode
    >>> from feddbn.interop.causal_learn import as_background
    >>> data = feddbn.simulate(d=2, n_sites=2, n_samples=200, random_state=0)
    >>> nodes = [GraphNode(name) for name in ("x0", "x1", "x0(t-1)", "x1(t-1)")]
    >>> as_background(feddbn.summary(data.sites), nodes).is_forbidden(nodes[0], nodes[2])
    True
    """
    known = BackgroundKnowledge()
    for (_, lag), node in zip(summary.nodes, nodes, strict=True):
        known.add_node_to_tier(node, summary.n_lags - lag)
    return known


def pc(summary: Summary, alpha: float = 0.05, timed: bool = True, **options: Any) -> Any:
    """Run causal-learn's PC with Fisher's z; `timed` forbids edges into the past. Returns its CausalGraph.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.interop.causal_learn import pc
    >>> data = feddbn.simulate(d=2, n_sites=2, n_samples=200, random_state=0)
    >>> pc(feddbn.summary(data.sites)).G.get_num_nodes()
    4
    """
    return _pc(summary.rows_like(), alpha, "fisherz", **_constraint(summary, timed, options))


def fci(summary: Summary, alpha: float = 0.05, timed: bool = True, **options: Any) -> Any:
    """Run causal-learn's FCI with Fisher's z; `timed` forbids edges into the past. Returns its graph and edges.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.interop.causal_learn import fci
    >>> data = feddbn.simulate(d=2, n_sites=2, n_samples=200, random_state=0)
    >>> graph, edges = fci(feddbn.summary(data.sites))
    Starting BK Orientation.
    Orienting edge (Knowledge): x0(t-1) --> x0
    Orienting edge (Knowledge): x1(t-1) --> x0
    Orienting edge (Knowledge): x0(t-1) --> x1
    Finishing BK Orientation.
    Starting BK Orientation.
    Orienting edge (Knowledge): x0(t-1) --> x0
    Orienting edge (Knowledge): x1(t-1) --> x0
    Orienting edge (Knowledge): x0(t-1) --> x1
    Finishing BK Orientation.
    >>> graph.get_num_nodes()
    4
    """
    return _fci(summary.rows_like(), "fisherz", alpha, **_constraint(summary, timed, options))


def ges(summary: Summary, **options: Any) -> dict[str, Any]:
    """Run causal-learn's GES with its BIC. Returns its record.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.interop.causal_learn import ges
    >>> data = feddbn.simulate(d=2, n_sites=2, n_samples=200, random_state=0)
    >>> ges(feddbn.summary(data.sites))["G"].get_num_nodes()
    4
    """
    found: dict[str, Any] = _ges(
        summary.rows_like(), "local_score_BIC", node_names=summary.columns, **options
    )
    return found


def grasp(summary: Summary, seed: int = 0, **options: Any) -> Any:
    """Run causal-learn's GRaSP, which draws orders from the `random` module's and numpy's generators: both get `seed`.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.interop.causal_learn import grasp
    >>> data = feddbn.simulate(d=2, n_sites=2, n_samples=200, random_state=0)
    >>> grasp(feddbn.summary(data.sites)).get_num_nodes()
    4
    """
    return _seeded(_grasp, summary, seed, options)


def boss(summary: Summary, seed: int = 0, **options: Any) -> Any:
    """Run causal-learn's BOSS; `seed` as in `grasp`.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.interop.causal_learn import boss
    >>> data = feddbn.simulate(d=2, n_sites=2, n_samples=200, random_state=0)
    >>> boss(feddbn.summary(data.sites)).get_num_nodes()
    4
    """
    return _seeded(_boss, summary, seed, options)


def _constraint(summary: Summary, timed: bool, options: dict[str, Any]) -> dict[str, Any]:
    from causallearn.graph.GraphNode import GraphNode

    given = {"node_names": summary.columns, "show_progress": False, **options}
    if timed:
        given["background_knowledge"] = as_background(
            summary, [GraphNode(name) for name in given["node_names"]]
        )
    return given


def _seeded(search: Any, summary: Summary, seed: int, options: dict[str, Any]) -> Any:
    import random

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (causal-learn draws from the global one)
    return search(summary.rows_like(), node_names=summary.columns, **{"verbose": False, **options})
