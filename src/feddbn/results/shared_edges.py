"""What the sites have in common and what is special about each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.federation.programs.pfdbnl.shared_edges import EdgeCounts
from feddbn.model.dbn import DBN
from feddbn.settings import whole

__all__ = ["SharedEdges", "counts_of_networks", "shared_edges_of"]


@dataclass(frozen=True)
class SharedEdges:
    """Shared-versus-specific report.

    Attributes
    ----------
    table
        One row per edge that the shared network or any counted site has: source, target, lag, n_present (missing if
        below `min_count`), n_sites, shared_weight, mean_weight (over the sites that have it), kind: "shared" (all
        sites), "partial", "specific" (one site) or "hidden" (below `min_count`).
    deviations
        Site -> its own table: source, target, lag, weight, shared_weight, deviation. Computed from the site's own
        network, so only a site itself, or a simulation, has it.
    min_count
        Smaller counts are not shown.
    """

    table: pd.DataFrame
    deviations: dict[str, pd.DataFrame]
    min_count: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        edges = self.table.astype(object).where(self.table.notna(), None)
        return {
            "min_count": self.min_count,
            "edges": edges.to_dict(orient="records"),
            "deviations": {site: frame.to_dict(orient="records") for site, frame in self.deviations.items()},
        }


def counts_of_networks(shared: DBN, networks: Mapping[str, DBN], opt_out: Collection[str] = ()) -> EdgeCounts:
    """Return what the sites' sum of indicators and weights would be, from their networks themselves."""
    known = _stack(shared) != 0
    count, weight = np.zeros(known.shape), np.zeros(known.shape)
    for site, own in networks.items():
        C = np.where(known, _stack(own), 0.0) if site in opt_out else _stack(own)
        count, weight = count + (C != 0), weight + C
    mean = np.divide(weight, count, out=np.zeros_like(weight), where=count > 0)
    return EdgeCounts(count, mean, len(networks))


def shared_edges_of(
    counts: EdgeCounts, shared: DBN, networks: Mapping[str, DBN], min_count: int = 1
) -> SharedEdges:
    """Return the report; `networks` may be empty, as at a server."""
    whole(1).check("min_count", min_count)
    weights = _stack(shared)
    rows = []
    for i, j in np.argwhere((counts.count > 0) | (weights != 0)):
        n = round(float(counts.count[i, j]))
        shown = n >= min_count
        if not shown and weights[i, j] == 0:
            # Even the existence of such an edge is what a small count would give away.
            continue
        lag, source = divmod(int(i), shared.d)
        rows.append(
            {
                "source": shared.variables[source],
                "target": shared.variables[int(j)],
                "lag": lag,
                "n_present": n if shown else None,
                "n_sites": counts.n_sites,
                "shared_weight": float(weights[i, j]),
                "mean_weight": float(counts.mean_weight[i, j]) if shown else None,
                "kind": _kind(n, counts.n_sites, shown),
            }
        )
    columns = ["source", "target", "lag", "n_present", "n_sites", "shared_weight", "mean_weight", "kind"]
    table = pd.DataFrame(rows, columns=columns).astype({"n_present": "Int64", "mean_weight": "Float64"})
    table = table.sort_values(["n_present", "lag", "source", "target"], ascending=[False, True, True, True])
    deviations = {site: _deviations(own, shared) for site, own in networks.items()}
    return SharedEdges(table.reset_index(drop=True), deviations, min_count)


def _kind(n: int, n_sites: int, shown: bool) -> str:
    if not shown:
        return "hidden"
    if n == n_sites:
        return "shared"
    return "specific" if n == 1 else "partial"


def _stack(dbn: DBN) -> FloatArray:
    stack: FloatArray = dbn.adjacency_matrices.reshape(-1, dbn.d)
    return stack


def _deviations(own: DBN, shared: DBN) -> pd.DataFrame:
    here, common, names = own.adjacency_matrices, shared.adjacency_matrices, shared.variables
    deviation = here - common
    rows = [
        (names[i], names[j], lag, here[lag, i, j], common[lag, i, j], deviation[lag, i, j])
        for lag, i, j in np.argwhere((here != 0) | (common != 0)).tolist()
    ]
    frame = pd.DataFrame(rows, columns=["source", "target", "lag", "weight", "shared_weight", "deviation"])
    return frame.sort_values("deviation", key=lambda x: -x.abs(), kind="stable").reset_index(drop=True)
