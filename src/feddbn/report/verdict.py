"""What a verdict on a result is, and how its words and numbers are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from feddbn.shown import Shown

__all__ = ["Level", "Verdict", "number", "sentence"]

Level = Literal["good", "caution", "bad", "unknown"]


@dataclass(frozen=True)
class Verdict(Shown):
    """One question, its short answer, the evidence and what to do."""

    key: str
    question: str
    level: Level
    answer: str
    detail: str = ""
    advice: str = ""


def number(value: object) -> float | None:
    """A finite number of a result, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        return None
    found = float(value)
    return found if np.isfinite(found) else None


def sentence(text: str) -> str:
    """A text with a capital and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".") if text else ""
