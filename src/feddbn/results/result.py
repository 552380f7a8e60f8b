"""A fit as a file: JSON that any language reads, that reads back bit for bit and holds no rows of data.

Layout, version 1 (keys a reader does not know are ignored)::

    format, version, feddbn      "feddbn-result", 1, version of the package that wrote it
    method, parameters           name of the class and its arguments
    variables, dbn, raw          names; the network; {W, A} before thresholds, or null
    edges                        [{source, target, lag, weight, standardised, oriented, probability?, presence?,
                                 direction?, ci_low?, ci_high?, robustness?, could_be_hidden?}]
    history, n_rounds            one object per round (a residual that is not finite is null); number of sums
    status                       {name, message, converged}
    sites                        [{name, recordings, segments, rows, usable_rows, used_rows, dropped_rows, complete_rows,
                                  missing_percent}]
    privacy                      null or what protected the sums
    findings, warnings           what the fit found and did: [{code, level, values, about, cure}]; the same as text, which
                                 goes in the next version
    diagnostics                  facts about the fit: objective, centring, dropped edges, order, ...
    personal                     null or {site: network}
    truth                        the network behind simulated data; absent otherwise
    sums                         summed moments of all rows and what was done to them, if they were kept, for `update`
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feddbn._version import __version__
from feddbn.core.arrays import FloatArray
from feddbn.core.penalised.path import Status
from feddbn.errors import FeddbnError, FileError, InputError, ParameterError, reading
from feddbn.federation.protocol.encoding import decode
from feddbn.federation.protocol.study import StudyResult
from feddbn.findings import Findings
from feddbn.model.dbn import DBN
from feddbn.results.text import rows_of_errors, summary_text
from feddbn.shown import Shown
from feddbn.words import say

__all__ = [
    "FORMAT",
    "VERSION",
    "Result",
    "plain",
    "read_json",
    "read_stored",
    "write_json",
]


def read_stored(path: Path, content: bytes) -> Mapping[str, Any]:
    """Return the stored result in `content`; a personal file needs ``result.feddbn`` beside it."""
    where = f"file {str(path)!r}"
    try:
        meta, arrays = decode(content)
    except FeddbnError as error:
        raise FileError(f"{where} cannot be read: {error}") from None
    if meta.get("type") == "personal":
        return _personal(path, str(meta.get("site")), arrays)
    if meta.get("type") == "study-result":
        return _shared(StudyResult.from_bytes(content), where)
    raise FileError(
        f"{where} holds no network; networks are in result.feddbn, personal.feddbn and result.json."
    )


def _shared(result: StudyResult, where: str) -> Mapping[str, Any]:
    found = result.summary.get("result")
    if not isinstance(found, dict):
        raise FileError(f"{where} is the result of a method that learns no network.")
    return found


def _personal(path: Path, site: str, own: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
    """Return the shared result with the site's own network in place of the shared one, and whose it is as `site`.

    It is under `personal` no more: whoever compared it with the network in that place would compare it with itself.
    """
    where, beside = f"file {str(path)!r}", path.with_name("result.feddbn")
    try:
        result = StudyResult.from_bytes(beside.read_bytes())
    except (OSError, FeddbnError):
        raise FileError(f"{where} needs {beside.name!r} of the same run beside it; copy both.") from None
    stored = _shared(result, f"file {str(beside)!r}")
    try:
        dbn = _network(own, result.arrays, tuple(str(name) for name in result.summary["variables"]))
    except (KeyError, IndexError, ValueError):
        raise FileError(
            f"{where} does not fit {beside.name!r} beside it, or both are from a version of feddbn that did not keep the "
            "units of the study; run the study again."
        ) from None
    edges = dbn.edges().to_dict("records")
    lone = {"raw": None, "personal": None, "site": site, "variables": list(dbn.variables)}
    return {**stored, **lone, "dbn": dbn.to_dict(), "edges": edges}


def _network(
    own: Mapping[str, np.ndarray], shared: Mapping[str, np.ndarray], variables: tuple[str, ...]
) -> DBN:
    """Return the network in the units of the data; a site's file holds it in those of the study."""
    C, d = own["C"], len(variables)
    center, scale = shared["center"], shared["scale"]
    C = C * scale[:d] / scale[:, None]
    variances = 2.0 * np.maximum(own["target_loss"], 0.0) * scale[:d] ** 2
    return DBN(C[:d], C[d:].reshape(-1, d, d), variables, center[:d] - center @ C, variances)


# Asked once, as the answer takes setting it: while it is set, other threads' files would be anybody's to write.
_UMASK = os.umask(0o077)
os.umask(_UMASK)
FORMAT = "feddbn-result"
VERSION = 1
_EDGE = ["source", "target", "lag"]
_FACTS = {
    "objective_": "objective",
    "certificate_": "certificate",
    "score_": "score",
    "center_": "center",
    "treatment_": "treatment",
    "treatments_": "treatments",
    "scale_": "scale",
    "standard_deviations_": "standard_deviations",
    "noise_variance_": "noise_variance",
    "reason_": "reason",
    "order_": "order",
    "n_samples_": "n_samples",
    "lag_scores_": "lag_scores",
    "dropped_edges_": "dropped_edges",
    "segments_": "segments",
    "changes_": "changes",
    "variance_changes_": "variance_changes",
    "segment_edges_": "segment_edges",
    "block_rows_": "block_rows",
}


def rows_in_sums(diagnostics: Mapping[str, Any]) -> int | None:
    """Return how many rows the sums of all sites counted; None where only what these are worth is known."""
    treatment = diagnostics.get("treatment") or {}
    if treatment.get("missing") == "fill":
        return treatment.get("n_used")
    return diagnostics.get("n_samples")


_LEARNED = (*_FACTS, "dbns_by_segment_", "summary_", "ancestral_graph_", "residuals_", "alone_", "units_")


@dataclass(frozen=True)
class Result(Shown):
    """What a fit found and how; see the module for the stored layout.

    Attributes
    ----------
    method, parameters
        Class name and its arguments as plain values.
    dbn, raw
        The network, and the one before thresholds (None if the method has none).
    personal
        Site -> its own network, or None.
    findings
        What the fit found and did, what matters most first.
    truth
        The network behind simulated data, or None.
    sums
        The summed moments it was learned from, if they were kept (`federation.sums.tally`), or None. They tell more about
        the rows than the network does.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.results.result import Result
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=2000, random_state=0)
    >>> result = Result.from_estimator(feddbn.OneShotDBN().fit(data.sites))
    >>> result.method, result.status["converged"], len(result.edges)
    ('OneShotDBN', True, 5)
    """

    method: str
    dbn: DBN
    parameters: dict[str, Any] = field(default_factory=dict)
    raw: DBN | None = None
    edges: list[dict[str, Any]] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)
    sites: list[dict[str, Any]] = field(default_factory=list)
    n_rounds: int | None = None
    privacy: dict[str, Any] | None = None
    findings: Findings = field(default_factory=Findings)
    diagnostics: dict[str, Any] = field(default_factory=dict)
    personal: dict[str, DBN] | None = None
    truth: DBN | None = None
    feddbn: str = __version__
    sums: dict[str, Any] | None = None

    @property
    def rows_used(self) -> tuple[int | None, int | None]:
        """How many rows the network was learned from, and how many there were; None where that is not known.

        Where sites keep their rows, the sums are all that is known of them.
        """
        known = [site for site in self.sites if {"rows", "usable_rows"} <= site.keys()]
        if not known or len(known) < len(self.sites):
            return rows_in_sums(self.diagnostics), None
        used = sum(int(site.get("used_rows", site["usable_rows"])) for site in known)
        return used, sum(int(site["rows"]) for site in known)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        truth: DBN | None = None,
        privacy: Mapping[str, Any] | None = None,
        keep_sums: bool = False,
    ) -> Result:
        """Return the result of a fitted estimator; attributes it does not have are left out.

        With `keep_sums` the sums it was learned from are part of it, and `feddbn update` can add new rows.
        """
        dbn: DBN | None = getattr(estimator, "dbn_", None)
        if dbn is None:
            raise ParameterError(
                f"{type(estimator).__name__} has no shared network, which a result needs; fit it first or, "
                "if it learns one network per site only, read those: `dbns_`, or `feddbn compare --personal`."
            )
        # An estimator of another package may have no settings.
        named = getattr(estimator, "named_parameters", None)
        given = estimator.get_params() if named is None else named()
        parameters = {k: plain(v) for k, v in given.items() if k != "federation"}
        if keep_sums and not hasattr(estimator, "sums_to_dict"):
            raise ParameterError(
                f"keep_sums: {type(estimator).__name__} does not learn from summed moments alone; use OneShotDBN or "
                "FDBNL.",
                code="cannot-update",
            )
        status = getattr(estimator, "status_", Status.EXACT)
        raw = None
        if getattr(estimator, "W_raw_", None) is not None:
            raw = DBN(estimator.W_raw_, estimator.A_raw_, dbn.variables, dbn.intercept, dbn.noise_variances)
        personal = getattr(estimator, "dbns_", None)
        sites = getattr(estimator, "sites_", None)
        history = getattr(estimator, "history_", None)
        return cls(
            method=type(estimator).__name__,
            dbn=dbn,
            parameters=parameters,
            raw=raw,
            edges=_edges(
                dbn, getattr(estimator, "edge_probabilities_", None), getattr(estimator, "hidden_", None)
            ),
            history=_records(history),
            status={"name": status.name, "message": status.message, "converged": status.is_converged},
            sites=_records(None if sites is None else sites.rename_axis("name").reset_index()),
            n_rounds=getattr(estimator, "n_rounds_", None),
            privacy=None if privacy is None else plain(privacy),
            findings=Findings(getattr(estimator, "findings_", ())),
            diagnostics=_facts({name: getattr(estimator, name, None) for name in _LEARNED}, raw),
            personal=None if personal is None else dict(personal),
            truth=truth,
            sums=plain(estimator.sums_to_dict()) if keep_sums else None,
        )

    @property
    def n_rows(self) -> int | None:
        """How many complete rows the sums are worth; else the rows of sites that say so; None if nobody does."""
        told = self.diagnostics.get("n_samples") or sum(site.get("usable_rows") or 0 for site in self.sites)
        return int(told) or None

    def summary(self) -> str:
        """Return the result as text: sizes, every edge with its standard error, what to know, and how the fit ended."""
        return summary_text(self)

    def impulse_responses(self, horizon: int = 10, level: float = 0.9) -> pd.DataFrame:
        """Frame source, target, step, response, lower, upper: what a unit shock does, with bands (`DBN.response_bands`).

        The bounds are NaN where they are not known (`response_bands`).
        """
        table = self.dbn.tidy(self.dbn.impulse_responses(horizon), "response").assign(
            lower=np.nan, upper=np.nan
        )
        bounds = self.response_bands(horizon, level)
        if bounds is not None:
            table["lower"], table["upper"] = (np.moveaxis(bound, 0, 2).ravel() for bound in bounds)
        return table

    def response_bands(self, horizon: int = 10, level: float = 0.9) -> tuple[FloatArray, FloatArray] | None:
        """Return `DBN.response_bands` for the rows that it was learned from; None where sampling errors are not known."""
        n = rows_of_errors(self)
        return None if n is None else self.dbn.response_bands(horizon, n, level)

    def to_dict(self) -> dict[str, Any]:
        """Return the stored layout as plain dicts, lists, numbers and text."""
        stored: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "feddbn": self.feddbn,
            "method": self.method,
            "parameters": self.parameters,
            "variables": list(self.dbn.variables),
            "dbn": self.dbn.to_dict(),
            "raw": None if self.raw is None else {"W": self.raw.W.tolist(), "A": self.raw.A.tolist()},
            "edges": self.edges,
            "history": self.history,
            "status": self.status,
            "sites": self.sites,
            "n_rounds": self.n_rounds,
            "privacy": self.privacy,
            "findings": [plain(one.to_dict()) for one in self.findings],
            # Readers of a file type commands; Python has the findings.
            "warnings": [say(one, "cli") for one in self.findings if one.level != "good"],
            "diagnostics": self.diagnostics,
            "personal": None
            if self.personal is None
            else {site: dbn.to_dict() for site, dbn in self.personal.items()},
        }
        if self.truth is not None:
            stored["truth"] = self.truth.to_dict()
        if self.sums is not None:
            stored["sums"] = self.sums
        return stored

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], where: str = "this dict") -> Result:
        """Inverse of `to_dict`; `where` names the source in error messages."""
        _check_header(stored, where)
        try:
            dbn = DBN.from_dict(stored["dbn"])
            raw = stored.get("raw")
            if raw is not None:
                lagged = np.asarray(raw["A"], dtype=float).reshape(dbn.A.shape)
                raw = DBN(raw["W"], lagged, dbn.variables, dbn.intercept, dbn.noise_variances)
            personal, truth = stored.get("personal"), stored.get("truth")
            return cls(
                method=str(stored["method"]),
                dbn=dbn,
                parameters=dict(stored.get("parameters") or {}),
                raw=raw,
                edges=[dict(edge) for edge in stored.get("edges") or ()],
                history=[dict(row) for row in stored.get("history") or ()],
                status=dict(stored.get("status") or {}),
                sites=[dict(site) for site in stored.get("sites") or ()],
                n_rounds=stored.get("n_rounds"),
                privacy=stored.get("privacy"),
                findings=Findings.stored_in(stored),
                diagnostics=dict(stored.get("diagnostics") or {}),
                personal=None if personal is None else {k: DBN.from_dict(v) for k, v in personal.items()},
                truth=None if truth is None else DBN.from_dict(truth),
                feddbn=str(stored.get("feddbn", "")),
                sums=None if stored.get("sums") is None else dict(stored["sums"]),
            )
        except InputError as error:
            raise FileError(f"{where} is a damaged result: {error}", code="damaged-result") from None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = (
                f"it lacks {error}" if isinstance(error, KeyError) else "a part has the wrong type or shape"
            )
            raise FileError(
                f"{where} is a damaged result: {what}; write it again with `feddbn fit`.",
                code="damaged-result",
            ) from None

    def save(self, path: str | Path) -> Path:
        """Write the file and return its path; a crash leaves the old file or the new one, never a half."""
        return write_json(self.to_dict(), path)

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Return the result in a file."""
        return cls.from_dict(read_json(path), f"file {str(path)!r}")


def plain(value: Any) -> Any:
    """Return `value` as JSON knows it: lists, dicts, text, numbers; what is not finite is None."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, pd.DataFrame):
        return [plain(row) for row in value.to_dict("records")]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def write_json(stored: Mapping[str, Any], path: str | Path) -> Path:
    """Write JSON so that a reader sees the whole file or the one before; return the path."""
    target = Path(path)
    text = json.dumps(stored, ensure_ascii=False, allow_nan=False, indent=1)
    if target.is_dir():
        raise FileError(f"{str(target)!r} cannot be written: it is a directory; give the name of a file.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            # mkstemp makes files for the owner only; a result is to be shared like any other file.
            Path(draft).chmod(0o666 & ~_UMASK)
            Path(draft).replace(target)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FileError(f"{str(target)!r} cannot be written: {error.strerror or error}.") from None
    return target


def read_json(path: str | Path) -> Mapping[str, Any]:
    """Return the object in a JSON file, or the result in a ``.feddbn`` file of a deployment."""
    where = f"file {str(path)!r}"
    with reading(where, "JSON"):
        content = Path(path).read_bytes()
        if content.startswith(b"FEDDBN"):
            return read_stored(Path(path), content)
        stored = json.loads(content.decode("utf-8"))
    if not isinstance(stored, dict):
        raise FileError(
            f"{where} is not a JSON file of feddbn; it holds no object with a 'format'.", code="not-a-result"
        )
    return stored


def _check_header(stored: Mapping[str, Any], where: str) -> None:
    kind, version = stored.get("format"), stored.get("version")
    if kind != FORMAT and {"summary", "arrays"} <= stored.keys():
        raise FileError(
            f"{where} is the result of a study that learned no network; edges.csv or findings.json beside it has what it "
            "found, for `feddbn report --edges` or `feddbn check`."
        )
    if kind != FORMAT:
        raise FileError(
            f"{where} is not a result: its format is {kind!r} instead of {FORMAT!r}.", code="not-a-result"
        )
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise FileError(f"{where} is a damaged result: its version is {version!r}.", code="damaged-result")
    if version > VERSION:
        raise FileError(
            f"{where} is a result of version {version}, but this feddbn reads up to {VERSION}; upgrade feddbn.",
            code="later-version",
        )


def _edges(dbn: DBN, probabilities: pd.DataFrame | None, hidden: pd.DataFrame | None) -> list[dict[str, Any]]:
    """Edges with whatever is known of them."""
    edges = dbn.edges()
    if probabilities is not None:
        columns = ("probability", "presence", "direction", "ci_low", "ci_high", "q_value")
        known = [c for c in columns if c in probabilities]
        edges = edges.merge(probabilities[[*_EDGE, *known]], on=_EDGE, how="left")
    if hidden is not None and len(hidden):
        edges = edges.merge(hidden, on=_EDGE, how="left")
    return _records(edges)


def _records(frame: pd.DataFrame | None) -> list[dict[str, Any]]:
    return [] if frame is None else [plain(row) for row in frame.to_dict("records")]


def _facts(learned: Mapping[str, Any], raw: DBN | None) -> dict[str, Any]:
    """What else was learned, from attributes of an estimator by their names; None is what it does not have."""
    facts = {key: plain(learned[name]) for name, key in _FACTS.items() if learned[name] is not None}
    if raw is not None:
        facts["largest_raw_weight"] = float(np.abs(raw.adjacency_matrices).max(initial=0.0))
    if learned["dbns_by_segment_"] is not None:
        facts["networks_by_segment"] = [dbn.to_dict() for dbn in learned["dbns_by_segment_"]]
    for name, key in (("summary_", "summary"), ("ancestral_graph_", "ancestral_graph")):
        if learned[name] is not None:
            facts[key] = plain(learned[name].to_dict())
    if learned["alone_"] is not None:
        facts["alone"] = plain(learned["alone_"].to_dict())
    if learned["residuals_"] is not None:
        facts["residuals"] = plain(asdict(learned["residuals_"]))
    units = learned["units_"]
    if units is not None:
        facts["varsortability"] = plain(units.varsortability)
        facts["scale_sensitive"] = bool(units.n_changed + units.n_open)
    return facts
