"""Names that both ends of an NVFlare session use; importing them needs no engine."""

from __future__ import annotations

__all__ = ["PROGRESS_TOPIC"]

PROGRESS_TOPIC = "feddbn.progress"
