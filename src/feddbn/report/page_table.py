"""A plain table of the page."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PageTable"]


@dataclass(frozen=True)
class PageTable:
    """One table: a title, a sentence on how to read it, heads, rows of cells, and remarks."""

    title: str
    note: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...] = ()
