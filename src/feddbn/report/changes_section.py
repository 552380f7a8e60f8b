"""The section of a report about a network that changes: segments, edges over time, and what differs."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from feddbn.methods.stored_changes import StoredChanges, stored_changes
from feddbn.report.change_plots import plot_changes, plot_drift
from feddbn.report.figures import inline_svg
from feddbn.report.record import ReportRecord

__all__ = ["changes_section"]


def changes_section(record: ReportRecord) -> dict[str, Any] | None:
    """Return what the section shows; None for a result without segments."""
    found = stored_changes(record.diagnostics, record.parameters)
    if found is None:
        return None
    figure = drift = ""
    if found.changes:
        text = "Edges that change: where each is there, and with which weight"
        figure = inline_svg(
            lambda: plot_changes(found.networks, found.segments, unit=found.unit), "changes", text
        )
    if len(found.courses):
        text = "Weights that drift, over time"
        drift = inline_svg(lambda: plot_drift(found.courses, unit=found.unit), "drift", text)
    tables = [make(found) for make in (_edges, _variances, _drift, _sites)]
    return {
        "sentence": found.sentence,
        "segments": _segments(found),
        "figure": Markup(figure),
        "drift": Markup(drift),
        "tables": [table for table in tables if table["rows"]],
    }


def _segments(found: StoredChanges) -> list[dict[str, Any]]:
    return [
        {
            "name": k + 1,
            "start": found.place(row["start"]),
            "stop": found.place(row["stop"]),
            "rows": row["rows"],
            "edges": int(dbn.is_edge.sum()),
        }
        for k, (row, dbn) in enumerate(zip(found.segments.to_dict("records"), found.networks, strict=True))
    ]


def _edges(found: StoredChanges) -> dict[str, Any]:
    rows = [
        [row["source"], row["target"], row["lag"], found.place(row["row"]), *_numbers(row)]
        for row in found.changes
    ]
    heads = ["Cause", "Effect", "Lag", "At", "Weight before", "Weight after", "Probability"]
    return {"title": "Edges that change", "heads": heads, "rows": rows}


def _variances(found: StoredChanges) -> dict[str, Any]:
    rows = [[row["target"], row["what"], found.place(row["row"]), *_numbers(row)] for row in found.variances]
    heads = ["Variable", "What", "At", "Before", "After", "Probability"]
    return {"title": "Noise variances and levels that change", "heads": heads, "rows": rows}


def _drift(found: StoredChanges) -> dict[str, Any]:
    rows = [
        [
            row["source"] or "(level)",
            row["target"],
            row["lag"],
            *(f"{row[place]:.4g}" for place in ("start", "middle", "end")),
            f"{row['probability']:.3f}",
        ]
        for row in found.drift
    ]
    heads = ["Cause", "Effect", "Lag", "At first", "In the middle", "At last", "Probability"]
    return {"title": "Weights and levels that drift", "heads": heads, "rows": rows}


def _sites(found: StoredChanges) -> dict[str, Any]:
    rows = [[row["site"], row["row"], row["before"], row["after"]] for row in found.sites]
    return {
        "title": "When each site changes",
        "heads": ["Site", "At", "From regime", "To regime"],
        "rows": rows,
    }


def _numbers(row: dict[str, Any]) -> list[str]:
    return [f"{row['before']:.4g}", f"{row['after']:.4g}", f"{row['probability']:.3f}"]
