"""A fitted method, or a bare network, as the mapping a report is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from feddbn.model.dbn import DBN
from feddbn.report.graph_plots import time_series_edges

__all__ = ["mapping_of_dbn", "mapping_of_fit"]

_KEY = ["source", "target", "lag"]


def mapping_of_dbn(dbn: DBN) -> dict[str, Any]:
    """The part of a result that a network fills."""
    return {
        "variables": list(dbn.variables),
        "dbn": {
            "W": dbn.W.tolist(),
            "A": dbn.A.tolist(),
            "intercept": dbn.intercept.tolist(),
            "noise_variances": dbn.noise_variances.tolist(),
        },
    }


def mapping_of_fit(model: Any) -> dict[str, Any]:
    """A result from the fitted attributes of `model`; attributes it lacks are left out.

    Read are ``dbn_, dbns_, sites_, warnings_, history_, status_, n_rounds_, W_raw_, A_raw_,
    edge_probabilities_, noise_variance_`` and ``get_params()``.
    """
    dbn: DBN = model.dbn_
    parameters = model.get_params() if hasattr(model, "get_params") else {}
    result: dict[str, Any] = {
        **mapping_of_dbn(dbn),
        "method": type(model).__name__,
        "parameters": {k: v for k, v in parameters.items() if k != "federation"},
        "n_rounds": getattr(model, "n_rounds_", None),
        "edges": _edges(dbn, getattr(model, "edge_probabilities_", None)),
        "diagnostics": {},
    }
    history = getattr(model, "history_", None)
    if isinstance(history, pd.DataFrame) and len(history):
        frame = history if "round" in history else history.rename_axis("round").reset_index()
        result["history"] = frame.to_dict("records")
    status = getattr(model, "status_", None)
    if status is not None:
        result["status"] = {
            "name": getattr(status, "name", ""),
            "message": getattr(status, "message", str(status)),
            "converged": getattr(status, "is_converged", None),
        }
    personal = getattr(model, "dbns_", None)
    if isinstance(personal, Mapping):
        result["personal"] = {site: mapping_of_dbn(own)["dbn"] for site, own in personal.items()}
    sites = getattr(model, "sites_", None)
    if isinstance(sites, pd.DataFrame):
        result["sites"] = sites.rename_axis("name").reset_index().to_dict("records")
    result["warnings"] = list(getattr(model, "warnings_", None) or ())
    raw = [getattr(model, name) for name in ("W_raw_", "A_raw_") if hasattr(model, name)]
    if raw:
        result["diagnostics"]["largest_raw_weight"] = max(
            float(np.abs(weights).max(initial=0.0)) for weights in raw
        )
    noise = getattr(model, "noise_variance_", None)
    if isinstance(noise, str):
        result["diagnostics"]["noise_variance"] = noise
    return result


def _edges(dbn: DBN, probabilities: pd.DataFrame | None) -> list[dict[Any, Any]]:
    edges = time_series_edges(dbn)
    if isinstance(probabilities, pd.DataFrame) and {*_KEY, "probability"} <= set(probabilities.columns):
        known = [c for c in ("probability", "ci_low", "ci_high") if c in probabilities]
        edges = edges.merge(probabilities[[*_KEY, *known]], on=_KEY, how="left")
    return edges.replace({np.nan: None}).to_dict("records")
