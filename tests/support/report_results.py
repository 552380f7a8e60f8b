"""Results made for the report's tests: random networks with everything a stored result can hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from feddbn.model.dbn import DBN
from support.networks import curved, make_curve, make_product


def random_dbn(
    d: int, n_lags: int = 2, degree: float = 2.0, seed: int = 0, names: list[str] | None = None
) -> DBN:
    """A sparse network with a random order, negative and positive weights and effects of variables on
    themselves.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(d)
    rank = np.argsort(order)
    forward = rank[:, None] < rank[None, :]
    weights = rng.uniform(0.3, 0.5, (n_lags + 1, d, d)) * rng.choice([-1.0, 1.0], (n_lags + 1, d, d))
    W = np.where(forward & (rng.random((d, d)) < degree / max(d - 1, 1)), weights[0], 0.0)
    A = np.where(rng.random((n_lags, d, d)) < 0.6 / d, 0.5 * weights[1:], 0.0)
    if n_lags:
        A[0, np.arange(d), np.arange(d)] = np.where(rng.random(d) < 0.6, rng.uniform(-0.3, 0.5, d), 0.0)
    return DBN(W, A, names)


def curved_dbn() -> DBN:
    """a -> b rises and bends, b -> c is a hill without a slope, c -> a falls; a and b act on c together; b has no band."""
    W, A = np.zeros((3, 3)), np.zeros((1, 3, 3))
    W[0, 1], A[0, 2, 0], A[0, 0, 0] = 0.06, -0.4, 0.3
    covariance = tuple(map(tuple, (0.0025 * np.diag([0.01, 1.0, 1.0])).tolist()))
    curves = (
        make_curve(0, 1, 0, 50.0, 10.0, (0.3, -0.1), "spline", covariance),
        make_curve(1, 2, 1, 0.0, 1.0, (-0.8,), "quadratic"),
        make_curve(2, 0, 1, 0.0, 1.5, (0.2,), "spline"),
    )
    products = (make_product(0, 1, 2, 1, 0.2, (50.0, 0.0), (10.0, 1.0)),)
    numbers = [35.0, -3.0, 0.0], [50.0, 0.5, 0.5]
    return curved(W, A, ["a", "b", "c"], *numbers, [*curves, *products])


def stored(dbn: DBN) -> dict[str, Any]:
    return {"W": dbn.W.tolist(), "A": dbn.A.tolist()}


def example_result(
    d: int = 10, n_lags: int = 2, n_sites: int = 5, personal: bool = False, seed: int = 0
) -> dict[str, Any]:
    """A result with edges, history, sites, protection, diagnostics and a truth."""
    rng = np.random.default_rng(seed + 1)
    truth = random_dbn(d, n_lags, seed=seed)
    estimate = DBN(
        np.where(truth.W != 0, truth.W + rng.normal(0, 0.04, truth.W.shape), 0.0),
        np.where((truth.A != 0) & (rng.random(truth.A.shape) < 0.9), truth.A, 0.0),
    )
    edges = [
        {
            "source": estimate.variables[i], "target": estimate.variables[j], "lag": int(lag),
            "weight": float(w), "probability": float(min(1.0, 0.45 + 1.2 * abs(w))),
            "ci_low": float(w - 0.08), "ci_high": float(w + 0.08),
        }
        for lag, matrix in enumerate(estimate.adjacency_matrices)
        for i, j in np.argwhere(matrix)
        for w in [matrix[i, j]]
    ]  # fmt: skip
    rounds = np.arange(1, 65)
    sites = {}
    for k in range(n_sites if personal else 0):
        change = np.where(rng.random(truth.A.shape) < 0.1 / d, 0.3, 0.0)
        sites[f"hospital-{k + 1}"] = {"W": estimate.W.tolist(), "A": (estimate.A + change).tolist()}
    return {
        "format": "feddbn-result",
        "version": 1,
        "method": "PFDBNL" if personal else "FDBNL",
        "parameters": {
            "n_lags": n_lags, "lambda_w": 0.05, "lambda_a": 0.05, "max_rounds": 200, "w_threshold": 0.1,
        },
        "variables": list(estimate.variables),
        "dbn": stored(estimate),
        "edges": edges,
        "history": [
            {
                "round": int(k), "h": float(2 * 0.7**k), "primal": float(3 * 0.85**k),
                "dual": float(0.88**k), "objective": float(5 + 3 * 0.9**k),
            }
            for k in rounds
        ],
        "status": {
            "name": "CONVERGED", "converged": True,
            "message": "converged: the graph is acyclic and all residuals are below their tolerances",
        },
        "sites": [
            {"name": f"hospital-{k + 1}", "recordings": 2, "rows": 200 + 40 * k, "dropped_rows": 4}
            for k in range(n_sites)
        ],
        "n_rounds": 64,
        "privacy": {"secure_aggregation": True, "min_sites": 3},
        "findings": [{"code": "text", "level": "warning", "values": {"text": "hospital-2 dropped 4 rows."}}],
        "diagnostics": {"varsortability": 0.86},
        "personal": sites or None,
        "truth": stored(truth),
        "audit": [
            {"task": "moments", "event": "sent", "n_bytes": 800, "length": 100, "protection": "masked"},
            *[
                {
                    "task": "round", "event": "sent", "n_bytes": 1600, "length": 200,
                    "protection": "masked and noise", "epsilon": 0.5 + 0.01 * k, "delta": 1e-6,
                    "unit": "recording",
                }
                for k in range(64)
            ],
        ],
    }  # fmt: skip
