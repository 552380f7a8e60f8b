"""A study's result as files that other programs read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from feddbn.errors import FeddbnError, FileError
from feddbn.federation.study import StudyResult

__all__ = ["export_result", "read_outcome"]

MAX_LISTED = 100_000


def read_outcome(directory: Path) -> dict[str, Any]:
    """Return how a run ended: state, sentence, sites, summary."""
    path = Path(directory) / "outcome.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise FileError(f"{path} is missing or is not the outcome of a run.") from None
    return dict(values)


def export_result(directory: Path) -> StudyResult | None:
    """Return the result in ``result.feddbn``, written as .npz and .json beside it; None if there is none."""
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
    values = {
        "format": "feddbn-study-result",
        "version": 1,
        "summary": dict(result.summary),
        "arrays": listed,
    }
    path.with_suffix(".json").write_text(json.dumps(values, indent=1), encoding="utf-8")
    return result
