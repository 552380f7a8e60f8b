"""How a run stands, in words: from what it says while it goes on, or from how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feddbn.runtime.engines.interface import span_in_words

__all__ = ["LATE_S", "run_in_words"]

LATE_S = 10.0
"""A site that has not answered for so long is named."""


def run_in_words(values: Mapping[str, Any]) -> str:
    """Return how a run stands: `values` are those of its progress, or of ``outcome.json``."""
    state, sentence = str(values.get("state", "")), str(values.get("sentence") or "").rstrip(".")
    if state == "finished":
        absent = [str(one.get("site")) for one in values.get("absent") or ()]
        return f"finished, without {', '.join(absent)} in some sums" if absent else "finished"
    if state == "stopped":
        return f"stopped: {sentence}" if sentence else "stopped"
    if state == "collecting":
        said = sentence or str(values.get("last") or "").rstrip(".")
        return f"waits for its sites{f': {said}' if said else ''}"
    if state == "failed":
        return "ended by an error; the server's log says why"
    late = _late(values)
    if state == "running":
        n_here, n_sites = len(values.get("present") or ()), len(values.get("sites") or ())
        done = int(values.get("sums", 0))
        return f"running: {done} sum{'' if done == 1 else 's'}, {n_here} of {n_sites} sites in the last{late}"
    return f"is being started{late}"


def _late(values: Mapping[str, Any]) -> str:
    awaited = values.get("awaited")
    if not isinstance(awaited, Mapping):
        return ""
    late = [
        f"{site} for {span_in_words(float(seconds))}"
        for site, seconds in sorted(awaited.items())
        if float(seconds) >= LATE_S
    ]
    return f"; no answer from {', '.join(late)}" if late else ""
