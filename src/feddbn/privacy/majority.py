"""Which sites differ from most, and the refusal to say so where no majority shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TypeVar

from feddbn.errors import ProtocolError

__all__ = ["odd_ones"]

Kind = TypeVar("Kind", bound=Hashable)


def odd_ones(found: Mapping[str, Kind], what: str) -> list[tuple[str, Kind, Kind]]:
    """Return (site, its own, the usual) for every site that differs from more than half of them.

    Raises
    ------
    ProtocolError
        If no `what` is that of more than half of the sites: nobody can say then who is wrong.
    """
    counts = Counter(found.values())
    if len(counts) < 2:
        return []
    usual, n = counts.most_common(1)[0]
    if 2 * n <= len(found):
        groups = [
            f"{what} {one} ({', '.join(sorted(site for site in found if found[site] == one))})"
            for one in counts
        ]
        raise ProtocolError(
            f"sites answered with {' and '.join(groups)}; it cannot be told who is wrong, so nothing was added up."
        )
    return [(site, own, usual) for site, own in sorted(found.items()) if own != usual]
