"""With whose numbers a site's own have been added up, and which further sum would show too few sites.

Theory of operation
-------------------
Whoever holds the sums over the sets S_1, ..., S_m of sites holds every combination of them. With {a, b, c, d} and
{a, b, c} the difference is d. With {a, b, c}, {d, e, f} and {a, ..., g} it is g, although any two of the three differ by
three sites or more. So the rule is about all combinations: none may vanish everywhere but at fewer than `min_sites`
sites, unless it vanishes there, too.

Numbers of one site from two versions of its data are different numbers of the same site: if one site of four has new
rows, the difference of two sums over all four shows that site alone. A *member* of a sum is therefore a site with its
data, written ``site:data``.

Sites that were in the same sums with the same versions have the same coefficient in every combination. So only
groups of such sites with fewer than `min_sites` members can be shown, and few unions of them have to be tried.

A site knows its own sums. It learns those of the others on its roster from what they sign (`privacy.secagg`), so that a
server cannot keep the sums of one group from another.

Sums that carry noise are not in the register: what they tell together is what the accountant counts.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import numpy as np

from feddbn.errors import AggregationError

__all__ = ["MOST_SETS", "Members", "MemoryShelf", "Register", "Shelf", "member", "shown_by"]

Members = frozenset[str]
MOST_SETS = 1_000
"""Sets that one site may report; a site with more takes part in sums with noise only."""
MOST_TRIED = 5_000


def member(public: bytes, data: str) -> str:
    """Return how a site with this identity key and this version of its data is written in registers.

    Not by name: a register is read by other sites, and tells those who do not know the key nothing about who it was.
    """
    return f"{hashlib.sha256(b'member ' + public).hexdigest()[:16]}:{data}"


def _site(one: str) -> str:
    return one.partition(":")[0]


def shown_by(sets: Collection[Members], min_sites: int) -> frozenset[str]:
    """Return sites, fewer than `min_sites`, that some combination of the sums over `sets` shows; empty if there are none.

    Raises
    ------
    AggregationError
        If the sets are so many and so different that this cannot be told.
    """
    columns = sorted(frozenset[str]().union(*sets))
    table = np.array([[float(one in members) for one in columns] for members in sets]).reshape(len(sets), -1)
    rank = _rank(table)
    owners = np.array([_site(one) for one in columns])
    for few in _unions(_groups(table, owners), min_sites):
        if _rank(table[:, ~np.isin(owners, list(few))]) < rank:
            return few
    return frozenset()


def _rank(table: np.ndarray) -> int:
    return int(np.linalg.matrix_rank(table)) if table.size else 0


def _groups(table: np.ndarray, owners: np.ndarray) -> list[frozenset[str]]:
    """Sites that were in the same sums: a combination that shows one of a group shows all of it."""
    alike: dict[tuple[bytes, ...], set[str]] = defaultdict(set)
    for owner in np.unique(owners):
        alike[tuple(sorted(column.tobytes() for column in table[:, owners == owner].T))].add(str(owner))
    return sorted((frozenset(group) for group in alike.values()), key=sorted)


def _unions(groups: list[frozenset[str]], min_sites: int) -> Iterator[frozenset[str]]:
    """Yield every union of groups with fewer than `min_sites` sites."""
    n_tried = 0
    stack: list[tuple[frozenset[str], int]] = [(frozenset(), 0)]
    while stack:
        so_far, first = stack.pop()
        if so_far:
            yield so_far
        for index in range(first, len(groups)):
            n_tried += 1
            if n_tried > MOST_TRIED:
                raise AggregationError(
                    "the sites of this sum have been in too many different sums to tell whether it would show a few of "
                    "them; use a study with noise."
                )
            if len(so_far) + len(groups[index]) < min_sites:
                stack.append((so_far | groups[index], index + 1))


class Shelf(Protocol):
    """Where the sets of a site's sums are kept; `add` has happened when it returns."""

    def hold(self) -> AbstractContextManager[None]:
        """Keep others from reading and writing meanwhile."""
        ...

    def sets(self) -> tuple[Members, ...]:
        """Return all sets."""
        ...

    def add(self, members: Members) -> None:
        """Keep one more set."""
        ...


class MemoryShelf:
    """Sets that are forgotten with the object: for sites of one process."""

    def __init__(self) -> None:
        self._sets: list[Members] = []

    def hold(self) -> AbstractContextManager[None]:
        """There is nobody else."""
        return nullcontext()

    def sets(self) -> tuple[Members, ...]:
        """Return all sets."""
        return tuple(self._sets)

    def add(self, members: Members) -> None:
        """Keep one more set."""
        self._sets.append(members)


class Register:
    """The sums that a site's data have been part of.

    Parameters
    ----------
    data
        Names the present version of the data; it tells others nothing about the content.
    shelf
        Where the sets are kept, of this version and of earlier ones.
    noisy
        Whether noise covers what is asked for: then nothing is compared, told or kept.
    """

    def __init__(self, data: str = "", shelf: Shelf | None = None, noisy: bool = False) -> None:
        self.data = data
        self._shelf: Shelf = MemoryShelf() if shelf is None else shelf
        self._noisy = noisy
        self._admitted: set[Members] = set()

    def told(self) -> tuple[Members, ...]:
        """Return what the other sites are told."""
        return () if self._noisy else self._shelf.sets()

    def admit(self, members: Members, of_others: Collection[Members], min_sites: int) -> None:
        """Write a sum down before it is opened, or refuse it.

        Raises
        ------
        AggregationError
            If together with earlier sums, of this site or of the others', it would show fewer than `min_sites` sites.
        """
        # What is on the shelf stays there: a sum over the same sites again needs no reading.
        if self._noisy or members in self._admitted:
            return
        with self._shelf.hold():
            own = self._shelf.sets()
            known = list(dict.fromkeys([*own, *of_others, members]))
            if len(known) > MOST_SETS or (len(known) > 1 and shown_by(known, min_sites)):
                raise AggregationError(
                    "the sites of this sum, or their data, are not those of an earlier sum: together they would show "
                    f"fewer than {min_sites} sites. Ask the same sites with the same data again, or use a study with "
                    "noise. Nothing was revealed."
                )
            if members not in own:
                self._shelf.add(members)
        self._admitted.add(members)
