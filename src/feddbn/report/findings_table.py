"""What a check of the data found, as a table for the page."""

from __future__ import annotations

from collections.abc import Mapping

from feddbn.report.page_table import PageTable
from feddbn.report.record import ReportRecord
from feddbn.report.verdict import sentence

__all__ = ["findings_tables"]

_NOTE = (
    "What the data of all sites showed before anything was learned from them. An error makes a network wrong, a warning may, "
    "a note is good to know."
)


def findings_tables(record: ReportRecord) -> list[PageTable]:
    """The table of a check that is told beside the result; none if there was none."""
    found = record.diagnostics.get("check")
    if not isinstance(found, list):
        return []
    rows = tuple(
        (
            str(one.get("severity", "")),
            "all" if one.get("site") is None else str(one["site"]),
            str(one.get("sentence", "")),
            sentence(str(one.get("cure", ""))),
        )
        for one in found
        if isinstance(one, Mapping)
    )
    if not rows:
        rows = (("note", "all", "Nothing was found that would make a network wrong.", ""),)
    return [PageTable("What a check of the data found", _NOTE, ("Level", "Site", "Finding", "Cure"), rows)]
