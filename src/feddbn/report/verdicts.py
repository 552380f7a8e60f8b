"""Answers to the questions a reader of a result asks first, as findings; `feddbn.words.verdicts` has their sentences.

Each verdict looks only at what the result says; where it does not say enough its level is "unknown", never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from feddbn.core.constraints import has_cycle
from feddbn.errors import ParameterError
from feddbn.findings import Finding, Level
from feddbn.method_table import find_method
from feddbn.model.dbn import DBN
from feddbn.model.dynamics import stationary_sample
from feddbn.report.record import ReportRecord
from feddbn.words.tables import known_number as number

__all__ = ["treatment", "verdicts"]

_SHOWN_LINKS = 4
_FEWEST_SITES = 4
_CONTRADICTIONS = ("hidden", "memory", "dependence", "volatility", "thirds", "spread", "tails", "change")


def verdicts(record: ReportRecord) -> list[Finding]:
    """The verdicts on a result, in the order in which they are read; `values["answer"]` tells their answers apart."""
    found = [
        _alone(record),
        _converged(record),
        _order(record),
        _empty(record),
        _rows(record),
        _certainty(record),
        _residuals(record),
        _agreement(record),
        Finding("verdict-acyclic", "error") if has_cycle(record.dbn.is_edge[0]) else None,
        _stable(record.dbn),
        _revealed(record),
    ]
    return [verdict for verdict in found if verdict is not None]


def _verdict(key: str, level: Level, answer: str, **values: Any) -> Finding:
    return Finding(f"verdict-{key}", level, {"answer": answer, **values})


def _alone(record: ReportRecord) -> Finding | None:
    """Whether sites have a better network by themselves; None if the method did not ask."""
    facts = record.diagnostics.get("alone")
    if not isinstance(facts, Mapping):
        return None
    counts = {name: int(number(facts.get(name)) or 0) for name in ("better", "equal", "worse")}
    worse, n = counts["worse"], sum(counts.values())
    if not n:
        return _verdict("alone", "unknown", "unknown", **counts)
    level: Level = "good" if not worse else "error" if 2 * worse >= n else "warning"
    return _verdict("alone", level, "many" if level == "error" else "some" if worse else "none", **counts)


def _converged(record: ReportRecord) -> Finding:
    history = record.history
    last = {} if history is None else {c: number(history[c].iloc[-1]) for c in history}
    values = {
        "rounds": record.n_rounds,
        "status": record.status_name,
        "message": record.status_message,
        "last": {name: last[name] for name in ("h", "primal", "dual") if last.get(name) is not None},
    }
    if record.status_name == "EXACT" or (record.converged is None and _is_direct(record)):
        return _verdict("converged", "good", "exact", **values)
    if record.converged is None:
        return _verdict("converged", "unknown", "unknown", **values)
    return _verdict(
        "converged",
        *(("good", "yes") if record.converged else ("error", "no")),
        **values,  # type: ignore[arg-type]
    )


def _is_direct(record: ReportRecord) -> bool:
    """Whether the method asks once, or a few times for different sums, instead of iterating."""
    return record.history is None and record.n_rounds is not None and record.n_rounds <= 3


def _order(record: ReportRecord) -> Finding:
    """Whether directions within a time step are identified, or read off the scales of the variables."""
    facts, dbn = record.diagnostics, record.dbn
    noise = str(facts.get("noise_variance") or record.parameters.get("noise_variance") or "").lower()
    sensitive, share = facts.get("scale_sensitive"), number(facts.get("varsortability"))
    row = find_method(record.method, offered=True)
    reads_scales = noise == "equal" or (row is not None and row.reads_scales)
    level: Level = "unknown"
    answer = "unknown"
    values: dict[str, Any] = {"method": record.method, "varsortability": share}
    if not np.any(dbn.W):
        level, answer = "good", "nothing"
    elif dbn.open_edges:
        level, answer = "warning", "open"
        values["n_links"] = int(np.count_nonzero(dbn.is_edge[0]))
        values["n_open"], values["links"] = (
            len(dbn.open_edges),
            [list(p) for p in dbn.open_edges[:_SHOWN_LINKS]],
        )
    elif noise in {"free", "unequal"}:
        level, answer = "good", "identified"
    elif sensitive is True or (reads_scales and share is not None and share >= 0.8):
        level, answer = "warning", "scales"
    elif sensitive is False:
        level, answer = "good", "not-scales"
    elif reads_scales:
        level, answer = "warning", "alike" if facts.get("scale") == "federated" else "units"
    return _verdict("order", level, answer, **values)


def _empty(record: ReportRecord) -> Finding:
    is_edge, settings, facts = record.dbn.is_edge, record.parameters, record.diagnostics
    n_now, n_lagged = int(np.count_nonzero(is_edge[0])), int(np.count_nonzero(is_edge[1:]))
    counts: dict[str, Any] = {"n_now": n_now, "n_lagged": n_lagged}
    if n_now + n_lagged:
        return _verdict("empty", "good", "no", **counts, lambda_w=settings.get("lambda_w"))
    largest, strongest = number(facts.get("largest_raw_weight")), number(facts.get("lambda_max"))
    threshold = max(number(settings.get(name)) or 0.0 for name in ("w_threshold", "a_threshold"))
    used = max(number(settings.get(name)) or 0.0 for name in ("lambda_w", "lambda_a"))
    counts |= {"largest": largest, "threshold": threshold, "penalty": used, "strongest_penalty": strongest}
    reasons = []
    if largest and threshold and largest < threshold:
        reasons.append("threshold")
    elif strongest is not None and used >= strongest:
        reasons.append("penalty")
    elif used:
        reasons.append("perhaps-penalty")
    n_steps = len(record.history) if record.history is not None else record.n_rounds or 0
    if record.converged is False and n_steps <= 1:
        reasons.append("first-round")
    n_rows, needed = record.n_rows, _causes(record)
    if n_rows is not None and n_rows < needed:
        reasons.append("few-rows")
    return _verdict("empty", "error", "yes", **counts, reasons=reasons, n_rows=n_rows, needed=needed)


def _causes(record: ReportRecord) -> int:
    """How many causes a variable can have."""
    return (record.dbn.n_lags + 1) * record.dbn.d


def _rows(record: ReportRecord) -> Finding:
    n_rows, needed = record.n_rows, _causes(record)
    if n_rows is None:
        return _verdict("rows", "unknown", "unknown")
    lost = number(record.sites["dropped_rows"].sum(min_count=1))
    n_small = int((record.sites["rows"] < needed).sum()) if record.personal else 0
    values = {"n_rows": n_rows, "needed": needed, "n_sites": len(record.sites), "n_small": n_small}
    values["n_dropped"] = int(lost or 0)
    if any(one.level == "error" for one in record.findings.of("usable-rows")):
        return _verdict("rows", "error", "lost", **values)
    if n_rows >= 5 * needed:
        return _verdict("rows", "good", "yes", **values)
    if n_rows >= needed:
        return _verdict("rows", "warning", "barely", **values)
    return _verdict("rows", "error", "no", **values)


def _certainty(record: ReportRecord) -> Finding | None:
    # A link is sure or not whichever way it points; its direction is a question of its own.
    known = record.edges["presence"].fillna(record.edges["probability"]).dropna()
    if not len(record.edges):
        return None
    if not len(known):
        return _verdict("certainty", "unknown", "unknown")
    n_sure = int((known >= 0.9).sum())
    values = {"n": len(known), "n_sure": n_sure, "n_unsure": int((known < 0.5).sum())}
    if record.abstained is not None:
        return _verdict("certainty", "warning", "not-told", **values)
    for one in record.findings.of("edges-differ"):
        return _verdict("certainty", one.level, "differ", **values)
    if _are_contradicted(record):
        return _verdict("certainty", "warning", "contradicted", **values)
    if n_sure >= len(known) / 2:
        return _verdict("certainty", "good", "sure", **values)
    return _verdict("certainty", "warning", "unsure", **values)


def _residuals(record: ReportRecord) -> Finding | None:
    """What the method found when it looked at its residuals, or that nobody looked."""
    facts = record.diagnostics.get("residuals")
    numbers = facts if isinstance(facts, Mapping) else {}
    numbers = {name: value for name, value in numbers.items() if number(value) is not None}
    found = [name for name in _violations(record) if name in _CONTRADICTIONS]
    values = {**numbers, "violations": found}
    if _are_contradicted(record):
        return _verdict("residuals", "error", "no", **values)
    if found:
        return _verdict("residuals", "warning", "not-quite", **values)
    if not isinstance(facts, Mapping):
        return _verdict("residuals", "unknown", "unknown", **values)
    return _verdict("residuals", "good", "yes", **values)


def _violations(record: ReportRecord) -> list[str]:
    """What contradicts the model, by its residuals or, where too few rows are complete for these, by moments."""
    facts = record.diagnostics.get("residuals")
    told = [one.values.get("violations") or () for one in record.findings.of("residuals")]
    return (
        list(facts.get("violations") or ())
        if isinstance(facts, Mapping)
        else [n for one in told for n in one]
    )


def _are_contradicted(record: ReportRecord) -> bool:
    """Whether residuals say that edges may stand for something else."""
    return bool({"hidden", "memory", "dependence"} & set(_violations(record)))


def _agreement(record: ReportRecord) -> Finding | None:
    """Whether sites that compared themselves fit each other; None if the result does not say."""
    facts = record.diagnostics.get("treatment")
    if not isinstance(facts, Mapping) or number(facts.get("n_disagreeing")) is None:
        return None
    n, left_out, n_sites = int(facts["n_disagreeing"]), number(facts.get("left_out")), len(record.sites)
    prepare = record.parameters.get("prepare")
    asked = (prepare if isinstance(prepare, Mapping) else record.parameters).get("on_disagreement")
    if not n:
        looked = asked != "ignore" and n_sites >= _FEWEST_SITES and facts.get("n_rows") is not None
        return _verdict("agreement", "good", "yes", n=0) if looked else None
    if left_out:
        answer = "personal" if asked == "personal" else "left-out"
        return _verdict("agreement", "warning", answer, n=n, n_sites=n_sites)
    answer = "many" if n_sites and n > n_sites / 3 else "some"
    return _verdict("agreement", "error", answer, n=n, n_sites=n_sites)


def _stable(dbn: DBN) -> Finding | None:
    if not dbn.n_lags:
        return None
    if not dbn.is_linear:
        # With curves: whether simulated paths stay where they are.
        try:
            stationary_sample(dbn)
        except ParameterError as error:
            return _verdict("stable", "error", "leaves", why=str(error), has_kinds=dbn.has_kinds)
        return _verdict("stable", "good", "settles")
    try:
        radius = float(dbn.spectral_radius)
    except ParameterError:
        return None
    if radius < 0.98:
        return _verdict("stable", "good", "yes", radius=radius)
    if radius < 1:
        return _verdict("stable", "warning", "slowly", radius=radius)
    return _verdict("stable", "error", "no", radius=radius)


def _revealed(record: ReportRecord) -> Finding:
    privacy: Mapping[str, Any] = record.privacy or {}
    epsilon, delta = number(privacy.get("epsilon")), number(privacy.get("delta"))
    values = {"epsilon": epsilon, "delta": delta, "unit": privacy.get("unit")}
    if privacy.get("secure_aggregation"):
        return _verdict("revealed", "good", "sums", **values)
    if epsilon is not None:
        return _verdict("revealed", "warning", "noise", **values)
    row = find_method(record.method, offered=True)
    plain = None if row is None or row.plain_messages is None else list(row.plain_messages)
    return _verdict("revealed", "warning", "plain", messages=plain, is_direct=_is_direct(record))


def treatment(record: ReportRecord) -> list[Finding]:
    """What was done to the rows before a network was learned, one note for each thing that was looked at."""
    facts = record.diagnostics.get("treatment")
    if not isinstance(facts, Mapping):
        return []
    periods = [float(period) for period in facts.get("periods") or ()]
    course = {"is_own": facts.get("center") == "recording", "periods": periods}
    course |= {"degree": int(number(facts.get("degree")) or 0), "evidence": number(facts.get("evidence"))}
    scales = {"is_common": facts.get("gains") == "site", "evidence": number(facts.get("gains_evidence"))}
    outliers = {"bounded": _names(list(facts.get("bounded") or ()))}
    empty = {"n": number(facts.get("n_empty_cells")), "worth": number(facts.get("n_effective"))}
    empty["is_filled"] = facts.get("missing") == "fill"
    sites = {name: number(facts.get(name)) or 0 for name in ("n_disagreeing", "left_out")}
    found = [
        Finding("treated-course", "note", course),
        Finding("treated-scales", "note", scales),
        Finding("treated-outliers", "note", outliers),
        Finding("treated-empty", "note", empty),
        Finding("treated-sites", "note", sites),
    ]
    unseen = [
        one for one in facts.get("unseen_pairs") or () if isinstance(one, (list, tuple)) and len(one) == 3
    ]
    if unseen:
        pairs = dict.fromkeys(tuple(sorted({str(a), str(b)})) for a, b, _ in unseen)
        found.append(Finding("treated-unseen", "note", {"pairs": [list(pair) for pair in pairs]}))
    inputs = _names(facts.get("exogenous"))
    if inputs:
        found.append(Finding("treated-inputs", "note", about=tuple(inputs)))
    return found


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, Sequence) and not isinstance(value, str) else []
