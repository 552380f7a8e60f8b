"""How a run ended, and a study's result as files that other programs read."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from feddbn.core.designs.weights import SPREAD
from feddbn.errors import FeddbnError, FileError
from feddbn.federation.protocol.study import Study, StudyResult
from feddbn.federation.sums.private_moments import study_costs
from feddbn.findings import Finding
from feddbn.model.dbn import DBN
from feddbn.model.export import guarded, json_text

MAX_LISTED = 100_000
LATE_S = 10.0
"""A site that has not answered for so long is named."""


def run_state(values: Mapping[str, Any]) -> Finding:
    """Return how a run stands: `values` are those of its progress, or of ``outcome.json``."""
    state, sentence = str(values.get("state", "")), str(values.get("sentence") or "").rstrip(".")
    if state == "finished":
        absent = tuple(str(one.get("site")) for one in values.get("absent") or ())
        return Finding("run-finished", "warning" if absent else "good", about=absent)
    if state == "stopped":
        return Finding("run-stopped", "error", {"sentence": sentence})
    if state == "collecting":
        return Finding(
            "run-collects", "note", {"sentence": sentence or str(values.get("last") or "").rstrip(".")}
        )
    if state == "failed":
        return Finding("run-failed", "error")
    awaited = values.get("awaited")
    waits = sorted(awaited.items()) if isinstance(awaited, Mapping) else ()
    late = {str(site): float(seconds) for site, seconds in waits if float(seconds) >= LATE_S}
    counts = {"sums": int(values.get("sums", 0)), "late": late}
    counts |= {name: len(values.get(name) or ()) for name in ("present", "sites")}
    return Finding("run-goes-on" if state == "running" else "run-starts", "note", counts, tuple(late))


def sites_that_refuse(values: Mapping[str, Any]) -> list[Finding]:
    """Return which sites take no part and what they said; `values` are those of a run's progress or outcome."""
    said = values.get("said") or {}
    return [
        Finding("site-refuses", "warning", {"site": site, **words}, (site,)) for site, words in said.items()
    ]


def alarms_in(outcome: Mapping[str, Any]) -> list[Finding]:
    """Return what a run that updates another and those before it found changed, as its ``outcome.json`` says."""
    looks = ((outcome.get("summary") or {}).get("monitor") or {}).get("looks") or ()
    return [Finding.from_dict(one) for look in looks for one in look["alarms"]]


def absences_in(events: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Return which sites sums were made without, by name, as a run's events tell; one that was resumed has one file.

    `missed` of `sums` lack it, and `why` is what was last heard of it, with its `code`. One whose proof does not hold has a
    finding of its own.
    """
    missed: dict[str, set[int]] = {}
    why: dict[str, tuple[str, str]] = {}
    sums: set[int] = set()
    for event in events:
        what, site = event.get("what"), str(event.get("site", ""))
        if what == "sum":
            sums.add(int(event["seq"]))
            for name in event.get("missing", ()):
                missed.setdefault(str(name), set()).add(int(event["seq"]))
        elif what in ("silent", "refused") and site:
            why[site] = (str(event.get("sentence", "")), str(event.get("code", "")))
    found = []
    for site, of in sorted(missed.items()):
        sentence, code = why.get(site, ("", ""))
        values = {"site": site, "missed": len(of), "sums": len(sums), "why": sentence, "code": code}
        is_wrong = code in ("bad-proof", "different-parts")
        found.append(
            Finding(
                "site-not-proved" if is_wrong else "site-absent",
                "error" if is_wrong else "warning",
                values,
                (site,),
            )
        )
    return found


def read_outcome(directory: Path) -> dict[str, Any]:
    """Return how a run ended: state, sentence, sites, summary."""
    path = Path(directory) / "outcome.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise FileError(f"{path} is missing or is not the outcome of a run.") from None
    return dict(values)


def _protection(study: dict[str, Any]) -> dict[str, Any] | None:
    """What a study promised, and what each of its answers cost of that."""
    privacy: dict[str, Any] | None = study.get("privacy")
    if not privacy or "method" not in study:
        return privacy
    agreed = Study.model_validate(study)
    if agreed.privacy.epsilon is not None:
        return {**privacy, "costs": study_costs(agreed)}
    return {**privacy, "spread": SPREAD} if agreed.privacy.has_weights else privacy


def export_result(directory: Path) -> StudyResult | None:
    """Return the result in ``result.feddbn``, written as .npz and .json beside it; None if there is none.

    ``result.json`` is what the other commands read; a network is also written as ``dbn.json``, a table of edges as
    ``edges.csv``, and what a check of the data found as ``findings.json``.
    """
    path = Path(directory) / "result.feddbn"
    if not path.exists():
        return None
    try:
        result = StudyResult.from_bytes(path.read_bytes())
    except FeddbnError as error:
        raise FileError(f"{path} cannot be read: {error}") from None
    arrays: dict[str, Any] = dict(result.arrays)
    np.savez(path.with_suffix(".npz"), **arrays)
    listed = {name: array.tolist() for name, array in arrays.items() if array.size <= MAX_LISTED}
    # An estimator's own result is what the other commands read; another method's is listed as it is.
    values = result.summary.get("result") or {"summary": dict(result.summary), "arrays": listed}
    if "privacy" in values and path.with_name("outcome.json").exists():
        # The method does not know what protected its sums; the study, as the sites agreed to it, does.
        outcome = read_outcome(path.parent)
        absent = [str(one["words"]) for one in outcome.get("absent") or ()]
        values = {
            **values,
            "privacy": _protection(outcome.get("study", {})),
        }
        if absent:
            told = [{"code": "text", "level": "warning", "values": {"text": text}} for text in absent]
            values["findings"] = [*(values.get("findings") or ()), *told]
            values["warnings"] = [*(values.get("warnings") or ()), *absent]
    path.with_suffix(".json").write_text(json.dumps(values, indent=1), encoding="utf-8")
    if {"W", "A"} <= arrays.keys() and "variables" in result.summary:
        names = tuple(str(name) for name in result.summary["variables"])
        # Which directions are open and which effects are curved is part of a stored network and no array.
        intercept, variances = (arrays.get(name) for name in ("intercept", "noise_variances"))
        stored = values.get("dbn")
        dbn = DBN.from_dict(stored) if stored else DBN(arrays["W"], arrays["A"], names, intercept, variances)
        path.with_name("dbn.json").write_text(json_text(dbn), encoding="utf-8")
    if isinstance(result.summary.get("findings"), list):
        text = json.dumps(result.summary["findings"], indent=1)
        path.with_name("findings.json").write_text(text, encoding="utf-8")
    edges = result.summary.get("edges")
    if isinstance(edges, list) and edges:
        with open(path.with_name("edges.csv"), "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(guarded(name) for name in edges[0])
            writer.writerows([guarded(row[name]) for name in edges[0]] for row in edges)
    return result
