"""What held-out rows told, as a table for the page: how parameters were chosen, or how well methods predict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feddbn.report.page_table import PageTable
from feddbn.report.record import ReportRecord
from feddbn.report.verdict import number, sentence

__all__ = ["held_out_tables"]


def held_out_tables(record: ReportRecord) -> list[PageTable]:
    """The tables of a result; none if it does not tell of held-out rows."""
    chosen, compared = record.diagnostics.get("selection"), record.diagnostics.get("comparison")
    found = []
    if isinstance(chosen, Mapping) and isinstance(chosen.get("candidates"), list):
        found.append(_selection(chosen))
    if isinstance(compared, Mapping) and isinstance(compared.get("methods"), list):
        found.append(_comparison(compared))
    return found


def _selection(facts: Mapping[str, Any]) -> PageTable:
    names = tuple(str(name) for name in facts.get("chosen") or {})
    rows = tuple(
        (
            *(_shown(row.get(name), 4) for name in names),
            _shown(row.get("loss"), 5),
            _shown(row.get("standard_error"), 3),
            "chosen" if row.get("chosen") else "",
        )
        for row in facts["candidates"]
    )
    rule = (
        "The candidate with the lowest loss was taken."
        if facts.get("rule") == "best"
        else "The simplest candidate was taken that is within one standard error of the lowest loss."
    )
    remarks = tuple(sentence(str(text)) for text in facts.get("remarks") or ())
    note = f"Loss per row, {_where(facts.get('share'))}. {'' if remarks else rule}".strip()
    heads = (*names, "Held-out loss", "Standard error of the difference to the lowest", "")
    return PageTable("How parameters were chosen", note, heads, rows, remarks)


def _comparison(facts: Mapping[str, Any]) -> PageTable:
    keys = (("held_out_log_likelihood", 5), ("edges_w", 4), ("edges_a", 4), ("rounds", 4))
    rows = tuple(
        (str(row.get("label")), *(_shown(row.get(key), digits) for key, digits in keys))
        for row in facts["methods"]
    )
    heads = ("Method", "Log-likelihood of a row", "Edges within a moment", "Lagged edges", "Rounds")
    note = (
        f"Mean log-likelihood, {_where(facts.get('held_out_share'))}; higher is better. "
        "It says how well a method predicts, not whether its arrows are right."
    )
    unfinished = tuple(
        f"{row.get('label')} stopped before it had converged."
        for row in facts["methods"]
        if row.get("converged") is False
    )
    return PageTable("How well methods predict", note, heads, rows, unfinished)


def _where(share: object) -> str:
    known = number(share)
    part = "later rows" if known is None else f"the last {known:.0%} of every recording"
    return f"on {part}, which the fits did not learn from"


def _shown(value: object, digits: int) -> str:
    known = number(value)
    return "–" if known is None else f"{known:.{digits}g}"
