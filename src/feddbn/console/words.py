"""Times and numbers as people say them."""

from __future__ import annotations

import time

__all__ = ["ago", "lasting", "when"]


def when(text: str) -> str:
    """An ISO time in UTC as people write it; of today only the hour."""
    day, _, hour = text.rstrip("Z").partition("T")
    if len(hour) < 5:
        return text
    today = time.strftime("%Y-%m-%d", time.gmtime())
    return f"{hour[:5]} UTC" if day == today else f"{day} {hour[:5]} UTC"


def lasting(seconds: float) -> str:
    """A length of time, in the two units that matter."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole < 600 and whole % 60 else "")
    if whole < 2 * 86400:
        return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 // 60 else "")
    return f"{whole // 86400} days"


def ago(seconds: float) -> str:
    """How long something is past."""
    return "just now" if seconds < 5 else f"{lasting(seconds)} ago"
