"""What mixed and categorical networks are compared with: exact scores on pooled rows, and peers.

exact_glm_network   greedy search over networks by BIC of generalised linear models, fitted to pooled rows
regression_ci       PCMCI+ with tigramite's test for mixed data (RegressionCI)
pgmpy_network       pgmpy's hill climbing over two moments, for variables with levels
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
from peers import edges_of

from feddbn.core.constraints import topological_order
from feddbn.core.glm import family_of, row_terms
from feddbn.core.kinds import Kind

__all__ = ["exact_glm_network", "lagged_pairs", "pgmpy_network", "regression_ci"]

Lagged = tuple[np.ndarray, np.ndarray]
_NEWTON_STEPS = 25


def lagged_pairs(recordings: Sequence[np.ndarray]) -> np.ndarray:
    """(n, 2 d) rows ``[x_t, x_{t-1}]`` of all recordings."""
    return np.concatenate([np.hstack([x[1:], x[:-1]]) for x in recordings])


class _Scores:
    """BIC of a node given its causes, computed once each."""

    def __init__(self, rows: np.ndarray, kinds: Sequence[Kind], penalty: float) -> None:
        self.rows, self.kinds, self.penalty = rows, [*kinds, *kinds], penalty
        self.known: dict[tuple[int, tuple[int, ...]], float] = {}

    def __call__(self, node: int, parents: frozenset[int]) -> float:
        key = (node, tuple(sorted(parents)))
        if key not in self.known:
            self.known[key] = self._bic(*key)
        return self.known[key]

    def _bic(self, node: int, parents: tuple[int, ...]) -> float:
        n, kind = len(self.rows), self.kinds[node]
        codes = [self.kinds[m].encode(self.rows[:, m]) for m in parents]
        X = np.concatenate([np.zeros((n, 0)), *codes], axis=1)
        X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
        family = family_of(kind)
        if family is None:
            y = kind.encode(self.rows[:, node])[:, 0]
            Z = np.column_stack([np.ones(n), X])
            rss = float(np.square(y - Z @ np.linalg.lstsq(Z, y, rcond=None)[0]).sum())
            return n * np.log(max(rss, 1e-300) / n) + self.penalty * np.log(n) * X.shape[1]
        return -2.0 * _maximum(family, self.rows[:, node], X) + self.penalty * np.log(n) * X.shape[1]


def _maximum(family: str, y: np.ndarray, X: np.ndarray) -> float:
    """Largest log likelihood by damped Newton steps."""
    theta = np.zeros(1 + X.shape[1])
    if family == "poisson":
        theta[0] = np.log(max(y.mean(), 1e-3))
    at = row_terms(family, y, X, theta)
    for _ in range(_NEWTON_STEPS):
        step = np.linalg.solve(at.information + 1e-6 * np.eye(len(theta)), at.gradient)
        while True:
            then = row_terms(family, y, X, theta + step)
            if then.log_likelihood >= at.log_likelihood - 1e-9 or np.abs(step).max() < 1e-8:
                break
            step = step / 2
        gained, theta, at = then.log_likelihood - at.log_likelihood, theta + step, then
        if gained < 1e-6:
            break
    return at.log_likelihood


def exact_glm_network(rows: np.ndarray, kinds: Sequence[Kind], penalty: float = 1.0) -> Lagged:
    """Adds, drops and turns edges as long as the summed BIC falls; columns of `rows` are ``[x_t, x_{t-1}]``."""
    d = len(kinds)
    score, parents = _Scores(rows, kinds, penalty), [frozenset[int]() for _ in range(d)]
    while True:
        best, move = -1e-6, None
        for j in range(d):
            now = score(j, parents[j])
            for m in set(range(2 * d)) - {j}:
                changed = parents[j] - {m} if m in parents[j] else parents[j] | {m}
                gain = score(j, changed) - now
                if gain < best and (len(changed) < len(parents[j]) or _is_acyclic(parents, {j: changed}, d)):
                    best, move = gain, {j: changed}
                if m < d and m in parents[j]:
                    turned = {j: parents[j] - {m}, m: parents[m] | {j}}
                    gain = score(j, turned[j]) + score(m, turned[m]) - now - score(m, parents[m])
                    if gain < best and _is_acyclic(parents, turned, d):
                        best, move = gain, turned
        if move is None:
            break
        for j, changed in move.items():
            parents[j] = changed
    C = np.zeros((2 * d, d))
    for j, found in enumerate(parents):
        C[list(found), j] = 1.0
    return C[:d], C[d:][None]


def _is_acyclic(parents: Sequence[frozenset[int]], changed: dict[int, frozenset[int]], d: int) -> bool:
    W = np.zeros((d, d))
    for j in range(d):
        W[[m for m in changed.get(j, parents[j]) if m < d], j] = 1.0
    try:
        topological_order(W)
    except ValueError:
        return False
    return True


def regression_ci(recordings: Sequence[np.ndarray], kinds: Sequence[Kind]) -> Lagged:
    """alpha .01, one lag; levels are discrete to it, everything else continuous (counts as log(1 + x))."""
    from tigramite import data_processing
    from tigramite.independence_tests.regressionCI import RegressionCI
    from tigramite.pcmci import PCMCI

    is_discrete = np.array([bool(kind.levels) for kind in kinds])
    shown = [
        np.column_stack(
            [x[:, j] if kind.levels else kind.encode(x[:, j])[:, 0] for j, kind in enumerate(kinds)]
        )
        for x in recordings
    ]
    data = dict(enumerate(shown))
    types = {k: np.tile(is_discrete.astype(int), (len(x), 1)) for k, x in data.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = data_processing.DataFrame(data, data_type=types, analysis_mode="multiple")
        search = PCMCI(dataframe=frame, cond_ind_test=RegressionCI(), verbosity=0)
        return edges_of(search.run_pcmciplus(tau_min=0, tau_max=1, pc_alpha=0.01)["graph"])


def pgmpy_network(rows: np.ndarray, d: int) -> Lagged:
    """Hill climbing by BIC over the columns of two moments; nothing acts on the earlier one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pgmpy.causal_discovery import ExpertKnowledge
        from pgmpy.estimators import HillClimbSearch

        names = [f"n{j}" for j in range(d)] + [f"b{j}" for j in range(d)]
        frame = pd.DataFrame(rows.astype(int), columns=names).astype("category")
        into_past = [(a, b) for a in names for b in names[d:] if a != b]
        known = ExpertKnowledge(forbidden_edges=into_past)
        found = HillClimbSearch(frame).estimate("bic-d", expert_knowledge=known, show_progress=False)
    C = np.zeros((2 * d, d))
    for a, b in found.edges():
        C[names.index(a), names.index(b)] = 1.0
    return C[:d], C[d:][None]
