"""The first block of a calendar: as people say it, or as the rows tell where they are in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from feddbn.data import SiteData
from feddbn.errors import DataError, ParameterError
from feddbn.federation.protocol.rows import CALENDAR, MOST_TIME_BLOCKS, BlockWish, period_numbers

__all__ = ["first_block"]


def first_block(wish: BlockWish, sites: Mapping[str, SiteData] | None) -> BlockWish:
    """Return the wish with the first period of the calendar, if it is about one."""
    if wish.kind != "calendar" or wish.first is not None:
        return wish
    if sites is None:
        raise ParameterError(
            f"blocks={wish.period!r} does not say which {wish.period} is the first, which sites keep to themselves; use "
            f"for example blocks='{wish.period} from 2024-01-01'."
        )
    first, last = _range(wish, sites)
    if last - first >= MOST_TIME_BLOCKS:
        periods = list(CALENDAR)
        longer = periods[max(periods.index(wish.period) - 1, 0)]
        raise ParameterError(
            f"blocks={wish.period!r} makes {last - first + 1} blocks, and at most {MOST_TIME_BLOCKS} are possible; use "
            f"blocks={longer!r}, or fewer rows."
        )
    return replace(wish, first=first)


def _range(wish: BlockWish, sites: Mapping[str, SiteData]) -> tuple[int, int]:
    found: list[int] = []
    for name, site in sites.items():
        for recording in site.recordings():
            for block in recording.blocks():
                if block.labels is None or block.labels.dtype.kind != "M":
                    raise DataError(
                        f"blocks={wish.period!r} needs the dates of rows, which site {name!r} does not have; give a "
                        "DataFrame or file and name the column of dates with time=."
                    )
                numbers = period_numbers(block.labels, wish.unit)
                found += [int(numbers.min()), int(numbers.max())] if len(numbers) else []
    if not found:
        raise DataError("data has no rows.")
    return min(found), max(found)
