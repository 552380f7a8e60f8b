"""Arrays in the conventions of neighbouring packages; pure numpy, neither package is imported."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.dynamics import require_linear
from feddbn.model.network import Network

__all__ = ["lingam_arrays", "stack_of_lingam", "stack_of_tigramite", "tigramite_arrays"]


def lingam_arrays(dbn: Network) -> FloatArray:
    """(n_lags+1, d, d) as in ``VARLiNGAM.adjacency_matrices_``: entry [l, to, from]."""
    require_linear(dbn, "lingam's form", "dbn.to_json, or dbn.edges() for average slopes")
    return np.ascontiguousarray(dbn.adjacency_matrices.transpose(0, 2, 1))


def stack_of_lingam(matrices: ArrayLike) -> FloatArray:
    """(n_lags+1, d, d) ``[from, to]`` from lingam's ``[to, from]``."""
    stack = np.asarray(matrices, dtype=np.float64)
    if stack.ndim != 3 or stack.shape[0] < 1 or stack.shape[1] != stack.shape[2]:
        raise ParameterError(
            f"lingam's adjacency matrices must have shape (n_lags+1, d, d), got {stack.shape}."
        )
    return np.ascontiguousarray(stack.transpose(0, 2, 1))


def tigramite_arrays(dbn: Network) -> tuple[NDArray[np.str_], FloatArray]:
    """(graph, val_matrix), both (d, d, n_lags+1), entry [from, to, lag].

    At lag 0 tigramite wants both halves: ``graph[i, j, 0] = '-->'`` with ``graph[j, i, 0] = '<--'`` and a
    symmetric val_matrix, so each edge of W appears twice and `stack_of_tigramite` reads the direction off
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


def stack_of_tigramite(graph: Any, val_matrix: ArrayLike) -> FloatArray:
    """(n_lags+1, d, d) weights ``[from, to]``; every link must be directed ('-->' or, at lag 0, '<--')."""
    marks, values = np.asarray(graph), np.asarray(val_matrix, dtype=np.float64)
    if marks.ndim != 3 or marks.shape[0] != marks.shape[1] or marks.shape != values.shape:
        raise ParameterError(
            f"graph and val_matrix must both be (d, d, tau_max+1), got {marks.shape} and {values.shape}."
        )
    known = np.isin(marks, ["", "-->", "<--"])
    if np.any(marks == "o-o"):
        i, j, _ = (int(k) for k in np.argwhere(marks == "o-o")[0])
        raise ParameterError(
            f"graph[{i}, {j}] has the link 'o-o', whose direction is open, but a weight needs one; choose '-->' or "
            "'<--' for it."
        )
    if not known.all():
        mark = str(marks[tuple(np.argwhere(~known)[0])])
        raise ParameterError(
            f"graph has the link {mark!r}; only directed links '-->' fit a dynamic Bayesian network."
        )
    if np.any(marks[:, :, 1:] == "<--"):
        raise ParameterError("graph has a lagged link '<--', which points back in time.")
    if np.any((marks[:, :, 0] == "-->") != (marks[:, :, 0] == "<--").T):
        raise ParameterError(
            "graph[i, j, 0] = '-->' requires graph[j, i, 0] = '<--', and the other way round."
        )
    return np.ascontiguousarray(np.where(marks == "-->", values, 0.0).transpose(2, 0, 1))
