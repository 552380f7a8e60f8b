"""Times as people say them."""

from __future__ import annotations

import time

from feddbn.runtime.engines.interface import span_in_words

__all__ = ["ago", "when"]


def when(text: str) -> str:
    """An ISO time in UTC as people write it; of today only the hour."""
    day, _, hour = text.rstrip("Z").partition("T")
    if len(hour) < 5:
        return text
    today = time.strftime("%Y-%m-%d", time.gmtime())
    return f"{hour[:5]} UTC" if day == today else f"{day} {hour[:5]} UTC"


def ago(seconds: float) -> str:
    """How long something is past."""
    return "just now" if seconds < 5 else f"{span_in_words(seconds)} ago"
