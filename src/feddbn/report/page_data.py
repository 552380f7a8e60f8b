"""The numbers behind the interactive part of a page: positions, edges and effects, small enough to be
embedded.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.effects import changes_by_variable, expected_changes
from feddbn.model.graph import effect_shapes
from feddbn.model.standardised import standard_deviations
from feddbn.model.strength import has_sign
from feddbn.report.graph_plots import time_series_edges
from feddbn.report.layout import graph_positions
from feddbn.report.record import EDGE_COLUMNS, ReportRecord

__all__ = ["page_data"]

HORIZON = 12
EFFECTS_PER_VARIABLE = 6
# Above this many (network, variable) pairs only the shared network carries effects, to keep the file small.
EFFECTS_BUDGET = 1200
# Simulated paths of all variables together; pairs with the same noise need few.
_N_PATHS = 8000


def page_data(record: ReportRecord) -> dict[str, Any]:
    """A JSON-able mapping: variables, positions, lags, and per network its edges and effects.

    An edge is ``[source, target, lag, weight, probability, ci_low, ci_high, truth, standardised, oriented, presence,
    direction, robustness, could_be_hidden]`` with positions instead of names and null for what is unknown; in a network with
    curves the shape and whether the effect goes one way follow. Effects are
    ``{source: [[target, peak, step, [responses]], ...]}``.
    """
    networks: list[dict[str, Any]] = [
        {"name": "shared" if record.personal else "learned", "edges": _edge_rows(record.edges, record.dbn)}
    ]
    networks[0]["effects"] = _effects(record.dbn)
    in_budget = (len(record.personal) + 1) * record.dbn.d <= EFFECTS_BUDGET
    for site, dbn in record.personal.items():
        columns = [*EDGE_COLUMNS, "standardised", "oriented"]
        table = time_series_edges(dbn).iloc[::-1].reindex(columns=columns).reset_index(drop=True)
        networks.append(
            {"name": site, "edges": _edge_rows(table, dbn), "effects": _effects(dbn) if in_budget else {}}
        )
    edges = record.edges
    return {
        "variables": list(record.dbn.variables),
        "positions": [[round(float(x), 4), round(1 - float(y), 4)] for x, y in graph_positions(record.dbn)],
        "n_lags": int(max([record.dbn.n_lags, *edges["lag"]])),
        "has_probability": bool(edges["probability"].notna().any()),
        "has_interval": bool(edges["ci_low"].notna().any()),
        "has_presence": bool(edges["presence"].notna().any()),
        "has_hidden": bool(edges["could_be_hidden"].notna().any()),
        "has_open": any(dbn.open_edges for dbn in [record.dbn, *record.personal.values()]),
        "has_truth": "truth" in edges,
        "is_linear": all(dbn.is_linear for dbn in [record.dbn, *record.personal.values()]),
        "kinds": [kind.name for kind in record.dbn.kinds] if record.dbn.conditionals else [],
        "horizon": HORIZON,
        "networks": networks,
    }


def _effects(dbn: DBN) -> dict[str, list[list[Any]]]:
    """Responses to a shock of one standard deviation, in standard deviations: comparable whatever the units."""
    scale = standard_deviations(dbn)
    try:
        if not dbn.bends:
            responses = dbn.impulse_responses(HORIZON) * (scale[:, None] / scale)
        else:
            responses = _simulated_responses(dbn) / scale
    except ParameterError:
        # An average of graphs may hold a cycle of weight 1: shocks then have no finite effect to show. Nor have paths
        # of curved effects that leave all bounds.
        return {}
    if not np.all(np.isfinite(responses)):
        return {}
    peak_step = np.abs(responses).argmax(axis=0)
    peak = np.take_along_axis(responses, peak_step[None], axis=0)[0]
    effects: dict[str, list[list[Any]]] = {}
    for i in range(dbn.d):
        strength = np.abs(peak[i]).copy()
        strength[i] = 0.0
        best = [
            int(j) for j in np.argsort(-strength, kind="stable")[:EFFECTS_PER_VARIABLE] if strength[j] > 0.005
        ]
        if best:
            effects[str(i)] = [
                [j, _rounded(peak[i, j]), int(peak_step[i, j]), [_rounded(v) for v in responses[:, i, j]]]
                for j in best
            ]
    return effects


def _simulated_responses(dbn: DBN) -> FloatArray:
    """(horizon+1, d, d) what setting a variable one scale above its origin changes; the same in every report."""
    n = max(_N_PATHS // dbn.d, 50)
    found = [expected_changes(dbn, i, HORIZON, n_paths=n, random_state=0) for i in range(dbn.d)]
    return np.stack([changes_by_variable(dbn, changes) for changes in found], axis=1)


def _edge_rows(table: pd.DataFrame, dbn: DBN) -> list[list[Any]]:
    place = {name: i for i, name in enumerate(dbn.variables)}
    truth = table["truth"] if "truth" in table else [None] * len(table)
    numbers = zip(
        table["weight"], table["probability"], table["ci_low"], table["ci_high"], truth,
        table["source"], table["target"], table["lag"], table["standardised"], table["oriented"],
        table["presence"], table["direction"], table["robustness"], table["could_be_hidden"], strict=True,
    )  # fmt: skip
    shapes, signs = effect_shapes(dbn), has_sign(dbn)

    def shape(lag: int, i: int, j: int) -> list[Any]:
        return [] if not dbn.bends or lag > dbn.n_lags else [str(shapes[lag, i, j]), int(signs[lag, i, j])]

    return [
        [place[s], place[t], int(lag), _rounded(w), _rounded(prob), _rounded(low), _rounded(high), mark,
         _rounded(share), int(oriented), _rounded(presence), _rounded(direction), _rounded(robust),
         _rounded(hidden), *shape(lag, place[s], place[t])]
        for w, prob, low, high, mark, s, t, lag, share, oriented, presence, direction, robust, hidden in numbers
    ]  # fmt: skip


def _rounded(value: float) -> float | None:
    number = float(value)
    return float(f"{number:.4g}") if np.isfinite(number) else None
