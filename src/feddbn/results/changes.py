"""What a stored result says about changes: segments, and what differs between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from feddbn.errors import FileError, InputError
from feddbn.findings import Finding
from feddbn.model.dbn import DBN

__all__ = ["StoredChanges", "stored_changes"]

_SEGMENTS = ("start", "stop", "rows")
_TABLES = ("changes", "variance_changes")


@dataclass(frozen=True)
class StoredChanges:
    """Segments of a result and what differs between them.

    Attributes
    ----------
    networks, segments
        ``dbns_by_segment_`` and ``segments_`` of a fitted `ChangingDBN`.
    changes, variances
        Rows of ``changes_`` and ``variance_changes_``.
    unit
        What segments are counted in: "row", "date", or the name of a column.
    """

    networks: list[DBN]
    segments: pd.DataFrame
    changes: list[dict[str, Any]]
    variances: list[dict[str, Any]]
    unit: str

    @property
    def finding(self) -> Finding:
        """What follows for whoever uses the network."""
        last = self.place(self.segments["start"].iloc[-1])
        values = {"n": len(self.networks), "last": last, "unit": self.unit}
        return Finding("which-segment", "note", values)

    def place(self, start: object) -> str:
        """Where something begins, in words."""
        return str(start) if self.unit == "date" else f"{self.unit} {start}"


def stored_changes(diagnostics: Mapping[str, Any], parameters: Mapping[str, Any]) -> StoredChanges | None:
    """Return what a result says about changes; None if it is of a method without segments."""
    stored = diagnostics.get("networks_by_segment")
    if not stored or not diagnostics.get("segments"):
        return None
    try:
        networks = [DBN.from_dict(one) for one in stored]
        segments = pd.DataFrame(diagnostics["segments"])[list(_SEGMENTS)]
        tables = [[dict(row) for row in diagnostics.get(name) or ()] for name in _TABLES]
    except (InputError, KeyError, TypeError, ValueError, AttributeError):
        raise FileError(
            "the segments of this result are damaged; write it again with `feddbn fit`."
        ) from None
    if len(networks) != len(segments):
        raise FileError(
            f"this result is damaged: it has {len(networks)} networks and {len(segments)} segments; write it again with "
            "`feddbn fit`."
        )
    changes, variances = tables
    return StoredChanges(networks, segments, changes, variances, _unit(segments, parameters.get("blocks")))


def _unit(segments: pd.DataFrame, blocks: object) -> str:
    if isinstance(segments["start"].iloc[0], str):
        return "date"
    if isinstance(blocks, Mapping):
        return str(blocks.get("column", "row"))
    return blocks.partition(":")[2] if isinstance(blocks, str) and ":" in blocks else "row"
