"""What a report is about: a stored result, read tolerantly.

A result is a plain mapping (the content of a result file). Only ``dbn`` is required; everything else that
is missing makes the report say less, never fail. A wrong ``format``, a newer ``version`` or matrices that
do not fit together are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.errors import FileError, InputError, ParameterError, reading
from feddbn.findings import Finding, Findings
from feddbn.methods.base import FederatedEstimator
from feddbn.model.dbn import DBN
from feddbn.model.effects import standard_deviations
from feddbn.model.export import unguarded
from feddbn.report.graph_layout import time_series_edges
from feddbn.results.abstention import ABSTAINED
from feddbn.results.result import FORMAT, VERSION, Result, read_json, rows_in_sums

__all__ = ["EDGE_COLUMNS", "ReportRecord", "read_edges", "read_record"]

_WANTED = ("source", "target", "lag", "weight", "probability")


def read_edges(path: Path) -> pd.DataFrame:
    """The edge table in a CSV file, with names as they were before a spreadsheet was kept from running them."""
    with reading(f"the edge table {str(path)!r}", "CSV"):
        table = pd.read_csv(path, converters={"source": unguarded, "target": unguarded})
    missing = [name for name in _WANTED if name not in table]
    if missing:
        raise FileError(
            f"the edge table {str(path)!r} lacks the column {missing[0]!r}; write it with feddbn confidence."
        )
    return table


EDGE_COLUMNS = (
    "source", "target", "lag", "weight", "probability", "ci_low", "ci_high", "presence", "direction", "robustness",
    "could_be_hidden", "q_value",
)  # fmt: skip


@dataclass(frozen=True)
class ReportRecord:
    """A result with every optional part made explicit.

    Attributes
    ----------
    method, parameters
        Name of the method and its settings.
    dbn
        The (shared) network.
    edges
        One row per edge with `EDGE_COLUMNS` (NaN where unknown), standardised, oriented and, with a truth,
        ``truth`` (found, extra, reversed).
    history
        One row per round, or None.
    status_name, status_message, converged
        How the fit ended; `converged` is None if the result does not say.
    sites
        Columns name, recordings, rows, dropped_rows (NaN where unknown).
    n_rounds
        Rounds of exchange, or None.
    privacy, diagnostics
        What the result says about protection and data.
    findings
        What the fit found and did, what matters most first.
    personal
        Each site's own network; empty if there is none.
    truth
        The network that generated simulated data, or None.
    audit
        Entries of a site's audit log.
    created
        When the result was written, as stored.
    """

    method: str
    parameters: dict[str, Any]
    dbn: DBN
    edges: pd.DataFrame
    history: pd.DataFrame | None
    status_name: str
    status_message: str
    converged: bool | None
    sites: pd.DataFrame
    n_rounds: int | None
    privacy: dict[str, Any] | None
    diagnostics: dict[str, Any]
    findings: Findings
    personal: dict[str, DBN]
    truth: DBN | None
    audit: tuple[dict[str, Any], ...]
    created: str

    @property
    def abstained(self) -> Finding | None:
        """The finding that the data do not tell, where the fit says so."""
        return next(iter(self.findings.of(ABSTAINED)), None)

    @property
    def n_rows(self) -> int | None:
        """Usable rows over all sites, or None if the result does not say."""
        rows = self.sites["rows"]
        # Sites that keep their rows at home are known by name only; the sums still count them all.
        known = rows.sum() if len(rows) and rows.notna().all() else rows_in_sums(self.diagnostics)
        return None if known is None else int(known)


def read_record(result: object, beside: Mapping[str, Any] | None = None) -> ReportRecord:
    """The record of a result: a mapping, the path of a JSON file, a fitted method, a network, or an object
    with ``to_dict()``; entries of `beside` replace those of the result.

    A table of ``edges`` adds probabilities and intervals to the result's own edges. It never changes the network.
    """
    others = dict(beside or {})
    table = others.pop("edges", None)
    stored = {**_as_mapping(result), **others}
    if stored.get("format", FORMAT) != FORMAT:
        raise FileError(f"the result has the format {stored.get('format')!r}; a report needs {FORMAT!r}.")
    version = stored.get("version", VERSION)
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise FileError(
            f"the result has version {version!r} and this feddbn reads up to {VERSION}; upgrade feddbn."
        )
    if not isinstance(stored.get("dbn"), Mapping):
        raise FileError("the result has no network: 'dbn' is missing; write the result again after a fit.")
    dbn = _network(stored["dbn"], stored.get("variables"), "dbn")
    truth = stored.get("truth")
    true_dbn = _network(truth, dbn.variables, "truth") if isinstance(truth, Mapping) else None
    findings = Findings.stored_in(stored)
    if true_dbn is not None and true_dbn.variables != dbn.variables:
        true_dbn = _in_order(true_dbn, dbn.variables)
        if true_dbn is None:
            findings = Findings([*findings, Finding("truth-left-out", "note")])
    own = _edge_frame(dbn, stored.get("edges"), "of the result")
    if table is not None:
        own, found = _beside(dbn, own, _edge_frame(dbn, table, "in the table"))
        findings = Findings([*findings, *found])
    status = stored.get("status")
    status = status if isinstance(status, Mapping) else {"message": str(status) if status else ""}
    converged = status.get("converged")
    history = stored.get("history")
    frame = pd.DataFrame(list(history)) if history else None
    n_rounds = stored.get("n_rounds")
    privacy = stored.get("privacy")
    return ReportRecord(
        method=str(stored.get("method") or "unknown method"),
        parameters=dict(stored.get("parameters") or {}),
        dbn=dbn,
        edges=_edges(dbn, own, true_dbn),
        history=frame if frame is not None and len(frame) else None,
        status_name=str(status.get("name") or ""),
        status_message=str(status.get("message") or ""),
        converged=None if converged is None else bool(converged),
        sites=_sites(stored.get("sites") or ()),
        n_rounds=None if n_rounds is None else int(n_rounds),
        privacy=dict(privacy) if privacy else None,
        diagnostics=dict(stored.get("diagnostics") or {}),
        findings=findings,
        personal={
            str(site): _network(part, dbn.variables, f"personal[{site!r}]")
            for site, part in (stored.get("personal") or {}).items()
        },
        truth=true_dbn,
        audit=tuple(dict(entry) for entry in stored.get("audit") or ()),
        created=str(stored.get("created") or ""),
    )


def _as_mapping(result: object) -> Mapping[str, Any]:
    if isinstance(result, Mapping):
        return result
    if isinstance(result, (str, Path)):
        return read_json(result)
    if isinstance(result, DBN):
        return {"dbn": result.to_dict()}
    if isinstance(result, FederatedEstimator) and "n_features_in_" not in vars(result):
        raise ParameterError(f"this {type(result).__name__} has not learned anything yet; call fit first.")
    if isinstance(getattr(result, "dbn_", None), DBN):
        return Result.from_estimator(result).to_dict()
    personal = getattr(result, "dbns_", None)
    if isinstance(personal, Mapping) and personal:
        raise ParameterError(
            f"{type(result).__name__} has no network that all sites share; report one site's: "
            f"write_report(model.dbns_[{next(iter(personal))!r}], path)."
        )
    to_dict = getattr(result, "to_dict", None)
    if callable(to_dict):
        return _as_mapping(to_dict())
    raise FileError(
        f"result must be a stored result, its path, a fitted method or a DBN, got {type(result).__name__}."
    )


def _network(part: Mapping[str, Any], variables: Sequence[str] | None, what: str) -> DBN:
    try:
        d = len(part["W"])
        names = part.get("variables") or variables or [f"x{i}" for i in range(d)]
        A = part.get("A") or []
        # What is not stored is as in a network without it.
        plain = DBN(np.zeros((d, d)), np.zeros((len(A), d, d)), names).to_dict()
        given = {name: value for name, value in part.items() if value is not None}
        return DBN.from_dict({**plain, **given, "variables": [str(name) for name in names], "A": A})
    except (KeyError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise FileError(f"the network {what!r} of the result cannot be read ({reason})") from error


def _in_order(dbn: DBN, variables: Sequence[str]) -> DBN | None:
    if set(dbn.variables) != set(variables):
        return None
    order = [dbn.variables.index(name) for name in variables]
    weights = dbn.adjacency_matrices[:, order][:, :, order].tolist()
    stored: dict[str, Any] = {
        **dbn.to_dict(),
        "variables": list(variables),
        "W": weights[0],
        "A": weights[1:],
    }
    numbers = ((key, stored[key]) for key in ("intercept", "noise_variances"))
    return DBN.from_dict(stored | {key: value and [value[k] for k in order] for key, value in numbers})


def _edge_frame(
    dbn: DBN, stored: pd.DataFrame | Iterable[Mapping[str, Any]] | None, where: str
) -> pd.DataFrame:
    """The edges of a result, or those of a table beside it, with `EDGE_COLUMNS` as numbers."""
    if stored is None:
        table = time_series_edges(dbn).iloc[::-1]
    else:
        table = stored if isinstance(stored, pd.DataFrame) else pd.DataFrame(list(stored))
    table = table.reindex(columns=list(EDGE_COLUMNS)).reset_index(drop=True)
    unknown = (set(table["source"]) | set(table["target"])) - set(dbn.variables)
    if unknown:
        raise FileError(f"an edge {where} names {min(unknown)!r}, which is not among the result's variables.")
    for column in EDGE_COLUMNS[2:]:
        try:
            table[column] = pd.to_numeric(table[column])
        except (TypeError, ValueError):
            raise FileError(f"the edges {where} have a {column} that is not a number.") from None
    return table.assign(lag=table["lag"].fillna(0).astype(int))


_PLACE = ["source", "target", "lag"]
_RESAMPLED = ("probability", "ci_low", "ci_high", "presence", "direction")


def _beside(dbn: DBN, own: pd.DataFrame, table: pd.DataFrame) -> tuple[pd.DataFrame, list[Finding]]:
    """The network's own edges with what a table of resamples knows of them, and a finding if the two are of other networks.

    A table has every edge that any resample had, so what it lacks never came back.
    """
    told = table.drop_duplicates(_PLACE).set_index(_PLACE)
    places = pd.MultiIndex.from_frame(own[_PLACE])
    known = told.reindex(places).reset_index(drop=True)
    found = own.assign(**{name: known[name].to_numpy() for name in _RESAMPLED})
    never = ~places.isin(told.index) & (own["lag"] <= table["lag"].max()).to_numpy()
    found.loc[never, ["probability", "presence"]] = 0.0
    its_own, theirs = set(places), set(told.index[told["weight"] != 0])
    if not dbn.is_linear:
        # A curve without an average slope has a weight of 0.
        theirs |= {one for one in its_own if one in told.index}
    if its_own == theirs:
        return found, []
    both, every = len(its_own & theirs), len(its_own | theirs)
    only = {"network": sorted(its_own - theirs), "table": sorted(theirs - its_own)}
    values = {"both": both, **{f"only_{name}": [list(one) for one in edges] for name, edges in only.items()}}
    return found, [Finding("edges-differ", "error" if 2 * both < every else "warning", values)]


def _edges(dbn: DBN, table: pd.DataFrame, truth: DBN | None) -> pd.DataFrame:
    place = {name: i for i, name in enumerate(dbn.variables)}
    where = list(zip(table["lag"], table["source"].map(place), table["target"].map(place), strict=True))
    bends = np.array([lag <= dbn.n_lags and bool(dbn.is_edge[lag, i, j]) for lag, i, j in where], dtype=bool)
    # A confidence table also lists edges that only some replicates had; the network does not have them.
    table = table[(table["weight"] != 0) | (bends & (not dbn.is_linear))]
    scale = standard_deviations(dbn)
    is_open = set(dbn.open_edges)
    ends = zip(table["source"], table["target"], table["lag"], strict=True)
    table = table.assign(
        standardised=_standardised(dbn, table, scale),
        oriented=[lag > 0 or (s, t) not in is_open for s, t, lag in ends],
    )
    strength = table["standardised"].abs().fillna(0).to_numpy()
    table = table.iloc[np.argsort(-strength, kind="stable")].reset_index(drop=True)
    if truth is not None:
        stack = truth.is_edge
        table["truth"] = [
            _against_truth(stack, int(lag), place[s], place[t])
            for s, t, lag in zip(table["source"], table["target"], table["lag"], strict=True)
        ]
    return table


def _standardised(dbn: DBN, table: pd.DataFrame, scale: FloatArray) -> pd.Series:
    """Weights in standard deviations; of effects with a curve the size of the whole effect."""
    place = {name: i for i, name in enumerate(dbn.variables)}
    of = {name: float(scale[i]) for name, i in place.items()}
    factors = [of[s] / of[t] for s, t in zip(table["source"], table["target"], strict=True)]
    found: pd.Series = table["weight"] * factors
    if not dbn.is_linear:
        sizes = dbn.standardised_weights()
        rows = zip(table.index, table["lag"], table["source"], table["target"], strict=True)
        for k, lag, s, t in rows:
            if lag <= dbn.n_lags:
                found.loc[k] = sizes[lag, place[s], place[t]]
    return found


def _against_truth(stack: np.ndarray, lag: int, i: int, j: int) -> str:
    if lag < len(stack) and stack[lag, i, j] != 0:
        return "found"
    return "reversed" if lag == 0 and stack[0, j, i] != 0 else "extra"


def _sites(stored: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    columns = ["name", "recordings", "rows", "dropped_rows"]
    given = [dict(site) for site in stored]
    for site in given:
        site["name"] = site.get("name", site.get("site"))
        # Rows that only serve as lags, or that a method cannot use, are no evidence.
        site["rows"] = site.get("used_rows", site.get("usable_rows", site.get("rows")))
    table = pd.DataFrame(given).reindex(columns=columns)
    for column in columns[1:]:
        table[column] = pd.to_numeric(table[column])
    return table
