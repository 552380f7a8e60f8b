"""The verdict on residuals: does what is left contradict the model?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feddbn.report.record import ReportRecord
from feddbn.report.verdict import Verdict, number, sentence

__all__ = ["are_contradicted", "residuals_verdict"]

_CONTRADICTIONS = {
    "hidden": "hidden causes explain the rows better than edges (score better by {hidden_gain:.0f})",
    "memory": "residuals go along with earlier ones (p {memory_p:.1g})",
    "dependence": "residuals of the same row correlate (up to {dependence:.2f})",
    "volatility": "the noise's variance changes from row to row (evidence is worth {n_effective:,.0f} of {n_rows:,} rows)",
    "thirds": "the noise's variance changes over the recordings (by a factor of up to {variance_ratio:.1f})",
    "spread": "recordings differ in their noise's variance",
    "tails": "the noise has heavy tails (kurtosis up to {kurtosis:.0f})",
}


def residuals_verdict(record: ReportRecord) -> Verdict | None:
    """What the method found when it looked at its residuals; None if it did not."""
    facts = record.diagnostics.get("residuals")
    if not isinstance(facts, Mapping):
        return None
    question = "Do the residuals fit the model?"
    found = [name for name in facts.get("violations") or () if name in _CONTRADICTIONS]
    told = [_told(name, facts) for name in found]
    memory = number(facts.get("noise_memory"))
    if memory is not None:
        told.append(f"the noise's memory of {memory:.2f} was taken off before learning")
    if number(facts.get("n_lags_added")):
        told.append("a lag was added, which leaves residuals without memory")
    detail = sentence("; ".join(told))
    if are_contradicted(record):
        advice = "Edges, also those at a probability near 1, may stand for something else: read the warnings below."
        return Verdict("residuals", question, "bad", "No.", detail, advice)
    if found:
        advice = "Read the warnings below before relying on single edges."
        return Verdict("residuals", question, "caution", "Not quite.", detail, advice)
    return Verdict(
        "residuals",
        question,
        "good",
        "Yes.",
        detail or "They remember nothing, and their variance is steady.",
    )


def _told(name: str, facts: Mapping[str, Any]) -> str:
    """The contradiction with its numbers, without them if the result does not say."""
    try:
        return _CONTRADICTIONS[name].format(**facts)
    except (KeyError, TypeError, ValueError):
        return _CONTRADICTIONS[name].split(" (")[0]


def are_contradicted(record: ReportRecord) -> bool:
    """Whether residuals say that edges may stand for something else."""
    facts = record.diagnostics.get("residuals")
    return isinstance(facts, Mapping) and bool(
        {"hidden", "memory", "dependence"} & set(facts.get("violations") or ())
    )
