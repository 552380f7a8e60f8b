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

A site knows its own sums. It learns those of the others on its roster, and what these have heard, from what they sign
(`privacy.secagg`), and keeps it: a server cannot keep the sums of one group from another. It never hears of sums that were
made after it was last asked and without it. So the numbers of sites that are not in a sum are also taken for known, all of
them: the sum must not show few of its own sites even then.

Nor are these sites there to say what they know. With {a, ..., g}, {a, b, c} and {d, e, f} the rest is g, and neither of the
two smaller sums hears of the other. So a sum must not tell of other sites than its own: where it is a combination of known
sums on its own sites and not elsewhere, what is new in it is about the others. That is allowed where sites leave an earlier
sum together and no sum over some of those who left can be made beside it: more than half of the earlier sum stay, since any
two such sums have a site in common that knows both, or exactly `min_sites` leave, of whom no smaller sum is made.

Only what a new sum adds counts: combinations that it is no part of are not made worse by it. Sums that share no member with
it, also not by way of others, play no part.

Less than a third of the sites of a sum may work together with the server. What is shown of others must be two honest sites
even if all of these are in it: of seven sites, no combination may show fewer than four. The new sum itself is of as many
sites as their owners ask for.

What others tell may be made up. A sum counts that this site has signed, or two sites; one that a single other site has signed
counts where that site takes part. So nobody can keep others from adding up their data without him.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from feddbn.errors import AggregationError, ProtocolError
from feddbn.privacy.integers import MAX_SHARES

Members = frozenset[str]
MOST_SETS = 200
"""Sums that one site may know of; a site with more takes part in sums with noise only."""
MOST_TRIED = 1_000
_MEMBER = re.compile("[0-9a-f]{16}:[0-9a-f]{0,16}")


def member(public: bytes, data: str) -> str:
    """Return how a site with this identity key and this version of its data is written in registers.

    Not by name: a register is read by other sites, and tells those who do not know the key nothing about who it was.
    """
    return f"{hashlib.sha256(b'member ' + public).hexdigest()[:16]}:{data}"


def _site(one: str) -> str:
    return one.partition(":")[0]


def fewest_shown(sums: Collection[Members], min_sites: int) -> int:
    """Return how many sites a combination of sums must be about so that two of them are honest."""
    largest = max(len({_site(one) for one in members}) for members in sums)
    return max(min_sites, (largest - 1) // 3 + 2)


def related(new: Members, known: Collection[Members]) -> list[Members]:
    """Return the different sums that share members with `new`, or with one that does."""
    found: list[Members] = []
    members, left = new, list(dict.fromkeys(known))
    while near := [one for one in left if one & members]:
        found += near
        left = [one for one in left if one not in near]
        members = members.union(*near)
    return found


def shown_by(
    new: Members, known: Collection[Members], min_sites: int, at_least: int | None = None
) -> frozenset[str]:
    """Return sites, fewer than `min_sites`, that a sum over `new` would show together with the sums that are known.

    Empty if there are none. The sum itself may be of fewer sites, if they are `at_least` so many.

    Raises
    ------
    AggregationError
        If the sets are so many and so different that this cannot be told.
    """
    sites = frozenset(_site(one) for one in new)
    itself = sites if at_least is not None and len(sites) >= at_least else None
    cut = [frozenset(one for one in members if _site(one) in sites) for members in known]
    cut = [members for members in cut if members]
    return _shown(new, known, min_sites, itself) or _shown(new, cut, min_sites, itself)


def must_differ_by(new: Members, known: Collection[Members], min_sites: int) -> int:
    """Return 0 if a sum over `new` may be made beside the known ones, else by how many sites it would have to differ.

    This is the rule for every growing or shrinking set of sites, at a site and for a lead who asks before: names of sites
    with a colon behind them are members whose data stay as they are.

    Raises
    ------
    AggregationError
        If the sets are so many and so different that this cannot be told.
    """
    near = related(new, known)
    fewest = fewest_shown([new, *near], min_sites)
    if (
        len(near) > MOST_SETS
        or shown_by(new, near, fewest, min_sites)
        or tells_of_others(new, near, min_sites)
    ):
        return fewest
    return 0


def tells_of_others(new: Members, known: Collection[Members], min_sites: int) -> bool:
    """Whether what a sum over `new` adds to the known ones is about sites that are not in it, who may know of more sums."""
    others = [members for members in dict.fromkeys(known) if members != new]
    sites = {_site(one) for one in new}
    columns = sorted(new.union(*others))
    table = np.array([[float(one in members) for one in columns] for members in (*others, new)])
    if _adds_nothing(table) or not _adds_nothing(table[:, [_site(one) in sites for one in columns]]):
        return False
    larger = [members for members in others if new < members]
    return not any(2 * len(new) > len(one) or len(one - new) == min_sites for one in larger)


def _shown(
    new: Members, known: Collection[Members], min_sites: int, itself: frozenset[str] | None
) -> frozenset[str]:
    # The same set again may be another question, which the sums that differ from it were asked, too.
    others = [members for members in dict.fromkeys(known) if members != new]
    columns = sorted(new.union(*others))
    table = np.array([[float(one in members) for one in columns] for members in (*others, new)])
    if _adds_nothing(table):
        return frozenset()
    owners = np.array([_site(one) for one in columns])
    for few in _unions(_groups(table, owners), min_sites):
        if (itself is None or not few >= itself) and _adds_nothing(table[:, ~np.isin(owners, list(few))]):
            return few
    return frozenset()


def _adds_nothing(table: np.ndarray) -> bool:
    """Whether the last row is a combination of those before it."""
    return _rank(table) == _rank(table[:-1])


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
                    "them; use a study with noise.",
                    code="too-many-sums",
                )
            if len(so_far) + len(groups[index]) < min_sites:
                stack.append((so_far | groups[index], index + 1))


@dataclass(frozen=True)
class Entry:
    """A set of members whose numbers were added up, as one of them has signed it."""

    members: Members
    signer: str = ""
    signature: str = ""

    @property
    def statement(self) -> bytes:
        """What its signer has signed."""
        return b"sum " + json.dumps(sorted(self.members)).encode()

    def listed(self) -> list[object]:
        """As messages carry it."""
        return [sorted(self.members), self.signer, self.signature]


def read_entries(value: object, most: int | None = MOST_SETS) -> tuple[Entry, ...]:
    """Return entries out of a message, or refuse it."""
    if not isinstance(value, list) or (most is not None and len(value) > most):
        raise ProtocolError(f"a register is a list of at most {MOST_SETS} earlier sums.", code="bad-register")
    return tuple(_entry(one) for one in value)


def _entry(value: object) -> Entry:
    wrong = ProtocolError(
        "an earlier sum in a register is not a list of members, its signer and a signature.",
        code="bad-register",
    )
    if not isinstance(value, list) or len(value) != 3 or not isinstance(value[0], list):
        raise wrong
    members, signer, signature = value
    if not 0 < len(members) <= MAX_SHARES or not all(
        isinstance(one, str) and _MEMBER.fullmatch(one) for one in members
    ):
        raise wrong
    if (
        not isinstance(signer, str)
        or not isinstance(signature, str)
        or len(signer) > 16
        or len(signature) > 128
    ):
        raise wrong
    return Entry(frozenset(members), signer, signature)


def check_data(value: object) -> str:
    """Return what names a version of data out of a message, or refuse it."""
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{0,16}", value):
        raise ProtocolError(
            "a version of data is named by at most 16 hexadecimal digits.", code="bad-register"
        )
    return value


class Shelf(Protocol):
    """Where what a site knows of earlier sums is kept; `add` has happened when it returns."""

    def hold(self) -> AbstractContextManager[None]:
        """Keep others from reading and writing meanwhile."""
        ...

    def entries(self) -> tuple[Entry, ...]:
        """Return all entries, this site's own and those it was told."""
        ...

    def add(self, entries: Sequence[Entry]) -> None:
        """Keep some more."""
        ...


class MemoryShelf:
    """Entries that are forgotten with the object: for sites of one process."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def hold(self) -> AbstractContextManager[None]:
        """There is nobody else."""
        return nullcontext()

    def entries(self) -> tuple[Entry, ...]:
        """Return all entries."""
        return tuple(self._entries)

    def add(self, entries: Sequence[Entry]) -> None:
        """Keep some more."""
        self._entries += entries


class Register:
    """The sums that a site's data have been part of, and those it was told of.

    Parameters
    ----------
    data
        Names the present version of the data; it tells others nothing about the content.
    shelf
        Where entries are kept, of this version and of earlier ones.
    noisy
        Whether noise covers what is asked for: then nothing is compared, told or kept.
    """

    def __init__(self, data: str = "", shelf: Shelf | None = None, noisy: bool = False) -> None:
        self.data = data
        self._shelf: Shelf = MemoryShelf() if shelf is None else shelf
        self._noisy = noisy
        self._told: set[Members] = set()
        self._admitted: set[Members] = set()

    def tell(self) -> tuple[Entry, ...]:
        """Return what the other sites are told, at the beginning of an epoch."""
        entries = () if self._noisy else self._shelf.entries()
        self._told = {entry.members for entry in entries}
        self._admitted = set()
        return entries[-MOST_SETS:]

    def kept(self) -> dict[str, list[list[str]]]:
        """Return what must be remembered of the epoch in use over a restart, as plain values."""
        return {
            "told": sorted(sorted(one) for one in self._told),
            "admitted": sorted(sorted(one) for one in self._admitted),
        }

    def resume(self, kept: Mapping[str, Sequence[Sequence[str]]]) -> None:
        """Go on with what `kept` returned."""
        self._told = {frozenset(one) for one in kept["told"]}
        self._admitted = {frozenset(one) for one in kept["admitted"]}

    def admit(self, new: Entry, of_others: Collection[Entry], min_sites: int) -> None:
        """Write a sum down before it is opened, or refuse it.

        Raises
        ------
        AggregationError
            If together with earlier sums it would show fewer than `min_sites` sites, or if another run has added a sum of
            which the others of this epoch have not been told.
        """
        # What is on the shelf stays there: a sum over the same sites again needs no reading.
        if self._noisy or new.members in self._admitted:
            return
        with self._shelf.hold():
            kept = {entry.members for entry in self._shelf.entries()}
            # This very sum, and what the roster told everybody, may be on the shelf already: a site that was killed after it
            # wrote them down.
            known_to_all = {new.members, *(entry.members for entry in of_others)}
            if kept - self._told - self._admitted - known_to_all:
                raise AggregationError(
                    "another run has added up data of this site since the sites agreed on keys; agree on keys again. Nothing "
                    "was revealed.",
                    code="other-run",
                )
            entries = (*self._shelf.entries(), *of_others)
            fewest = must_differ_by(new.members, self._counted(new, entries), min_sites)
            if fewest:
                raise AggregationError(
                    "the sites of this sum, or their data, are not those of an earlier sum: together they could show "
                    f"fewer than {fewest} sites. Ask the same sites with the same data again, add at least {fewest} sites "
                    "at once, or use a study with noise. Nothing was revealed.",
                    code="shows-few-sites",
                )
            heard = self._heard(new, of_others)
            if heard:
                self._shelf.add(heard)
        self._admitted |= {new.members, *(entry.members for entry in heard)}

    def _counted(self, new: Entry, entries: Collection[Entry]) -> list[Members]:
        """Sums that are believed: signed here, by two sites, or by one that is in the new sum."""
        here = {new.signer, *map(_site, new.members)}
        return [members for members, signed in _signers(entries).items() if len(signed) > 1 or signed & here]

    def _heard(self, new: Entry, of_others: Collection[Entry]) -> list[Entry]:
        """What adds to the shelf: a sum of its own, two signatures under others, and of no site so many that they fill it."""
        shelf = self._shelf.entries()
        signers, n_of = _signers(shelf), Counter(entry.signer for entry in shelf)
        heard: list[Entry] = []
        for entry in (new, *of_others):
            signed, is_own = signers[entry.members], entry.signer == new.signer
            is_known = entry.signer in signed or new.signer in signed or len(signed) > 1
            if (is_own and entry.signer not in signed) or not (is_known or n_of[entry.signer] >= MOST_SETS):
                signed.add(entry.signer)
                n_of[entry.signer] += 1
                heard.append(entry)
        return heard


def _signers(entries: Collection[Entry]) -> defaultdict[Members, set[str]]:
    found: defaultdict[Members, set[str]] = defaultdict(set)
    for entry in entries:
        found[entry.members].add(entry.signer)
    return found
