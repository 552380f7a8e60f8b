"""Two networks side by side, edge by edge: a site's own and the federation's, or those of two runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feddbn.findings import Finding
from feddbn.model.dbn import DBN

MOST_EDGES = 40


@dataclass(frozen=True)
class Edge:
    """One edge: its weight in either network, 0 where it is missing, and what they are of the largest, in deviations."""

    source: str
    target: str
    lag: int
    first: float
    second: float
    first_share: float
    second_share: float

    @property
    def where(self) -> str:
        """Which of the two networks have it: "both", "opposite" (with other signs), "first" or "second"."""
        if self.first and self.second:
            return "both" if self.first * self.second > 0 else "opposite"
        return "first" if self.first else "second"


@dataclass(frozen=True)
class TwoNetworks:
    """Two networks edge by edge, those that differ most first; or only why not.

    `by_study`: the study learned the site's own network, and not this page from its rows alone.
    """

    finding: Finding
    edges: tuple[Edge, ...] = ()
    n_edges: int = 0
    by_study: bool = False
    remarks: tuple[Finding, ...] = ()


def compared(first: DBN, second: DBN) -> TwoNetworks:
    """Return two networks side by side; the first one's deviations are the unit of both where it has the variable.

    Then the units of the variables do not decide what differs most.
    """
    if first.bends or second.bends:
        return TwoNetworks(Finding("networks-not-compared", "note", {"why": "kinds"}))
    sd = {**_deviations(second), **_deviations(first)}
    weights = [_weights(dbn, sd) for dbn in (first, second)]
    pairs = {
        edge: (weights[0].get(edge, (0.0, 0.0)), weights[1].get(edge, (0.0, 0.0)))
        for edge in {**weights[0], **weights[1]}
    }
    largest = max((abs(scaled) for pair in pairs.values() for _, scaled in pair), default=1.0) or 1.0
    edges = [
        Edge(*edge, one[0], other[0], one[1] / largest, other[1] / largest)
        for edge, (one, other) in sorted(pairs.items())
    ]
    edges.sort(key=lambda edge: -abs(edge.first_share - edge.second_share))
    both = sum(bool(edge.first and edge.second) for edge in edges)
    counts = {"both": both, "first": len(weights[0]), "second": len(weights[1])}
    return TwoNetworks(Finding("networks-compared", "note", counts), tuple(edges[:MOST_EDGES]), len(edges))


def _deviations(dbn: DBN) -> dict[str, float]:
    spread = np.sqrt(np.diag(dbn.stationary_covariance())[: dbn.d]) if dbn.is_stationary else np.ones(dbn.d)
    return dict(zip(dbn.variables, map(float, spread), strict=True))


def _weights(dbn: DBN, sd: dict[str, float]) -> dict[tuple[str, str, int], tuple[float, float]]:
    """Edge -> its weight, in the units of the data and in deviations."""
    scaled = dbn.standardised_weights(np.array([sd[name] for name in dbn.variables]))
    plain = dbn.adjacency_matrices
    return {
        (dbn.variables[i], dbn.variables[j], int(lag)): (float(plain[lag, i, j]), float(scaled[lag, i, j]))
        for lag, i, j in np.argwhere(plain)
    }
