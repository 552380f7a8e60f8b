"""Secure aggregation: what server and sites agree on (Bonawitz et al. 2017, with per-sum secrets).

Theory of operation
-------------------
An *epoch* is one set-up for a batch of sums, each of which uses one *slot*::

    advertise   every site sends a fresh X25519 key, signed with its identity key
    share       every site gets the roster (all signed keys), checks it against its pinned identities,
                draws two secrets for each slot, b and c, and sends Shamir shares of them to every peer
    deliver     the server passes the sealed shares on; sites compute the masks of the batch ahead
    masked      y_i = x_i + PRG(b_i) + sum_{j>i} PRG(s_ij) - sum_{j<i} PRG(s_ij)   modulo 2**64,
                and for each peer a tag of what site i was asked, now and before in this run
    survivors   only if a site is missing: every survivor signs the list of survivors, one list a slot
    unmask      the server names who answered and passes tags and signatures on; each survivor checks that all
                were asked the same and that `threshold` of them signed the same list, and reveals its share of
                b_i for every survivor i and of c_i for every drop-out i, never both for one site; the server
                removes what is left of the masks

s_ij is the pair's seed of this slot. c_i opens the list of site i's seeds *of this slot only*, which the
server has held encrypted since the set-up. So a drop-out reveals nothing about any other sum: in the
original protocol the drop-out's key agreement key is reconstructed, and with keys that live longer than one
sum its earlier inputs, whose self masks were opened then, would become readable.

What a site was asked is the digest of the task, its participants, epoch and slot, and the history of questions
that the state it answers from has seen. If the server tells two sites different things, now or in an earlier
round that was never opened, one of them sees a tag that does not fit and reveals nothing. The study is part of
what sites sign, so sites that were greeted with different studies do not share a roster.

Every site of the roster takes part in every sum: sums over chosen sites could be subtracted from one another.

The threshold is above two thirds of the sites of the *study*, however few of them are on the roster.

Why the list of survivors needs no signature if it is the whole roster: at most K sites, threshold t > 2K/3, c < K/3 of
them hand everything to the server. Let A honest sites be told "all are there" and reveal shares of b only. They
sign no other list for this slot. To open c_j of one site the server needs t sites that signed a list without j,
so K - A >= t; to open b_j as well it needs A + c >= t. Together K + c >= 2t > 4K/3, which is false.

Rules
-----
- A slot masks one input; a repeated attempt takes a new slot; slots only go up; secrets of past slots are
  erased.
- At least `threshold` (more than two thirds of the roster) and at least `min_sites` survivors, or nothing is
  revealed. The site enforces it, whatever the server says.
- One answer to one unmask request per slot.
- A sum is opened only if, together with all earlier sums over the same data, it shows no fewer than `min_sites`
  sites (`privacy.register`). Every advertised key carries what its site has been part of.

Known weaknesses: a site can send any input (nothing here proves it is honest); the server learns who takes
part; site state is in memory, so a restarted site waits for the next epoch, unless it is kept (`privacy.secagg_site`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from feddbn.errors import AggregationError, ParameterError, ProtocolError
from feddbn.privacy.integers import LIMBS, MAX_SHARES, Residues, sum_residues
from feddbn.privacy.keys import KEY_BYTES, AgreementKey, PairKeys, keystream, slot_keys
from feddbn.privacy.register import Entry

# Which sites differ from most, and the refusal to say so where no majority shows it.

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
            f"sites answered with {' and '.join(groups)}; it cannot be told who is wrong, so nothing was added up.",
            code="no-majority",
        )
    return [(site, own, usual) for site, own in sorted(found.items()) if own != usual]


KIND = "secagg"
SIGNATURE_BYTES = 64
Message = tuple[dict[str, Any], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Advert:
    """What a site signs when it begins an epoch: its key, for which run and study, and what its data were part of."""

    run: str
    study: str
    epoch: int
    n_slots: int
    length: int
    site: str
    public: bytes
    data: str
    entries: tuple[Entry, ...]
    min_sites: int

    @property
    def statement(self) -> bytes:
        """The bytes that are signed."""
        listed = [entry.listed() for entry in self.entries]
        numbers = [self.epoch, self.n_slots, self.length, self.min_sites]
        return b"advert " + _canonical(
            [self.run, self.study, *numbers, self.site, self.public.hex(), self.data, listed]
        )


def survivors_statement(order: Order, roster: Roster, names: Sequence[str]) -> bytes:
    """What a survivor signs before the masks of an incomplete sum are opened."""
    return b"survivors " + _canonical([roster.context.hex(), order.context.hex(), list(names)])


@dataclass(frozen=True)
class Roster:
    """The sites of one epoch, in sorted order; share number of a site is its position plus one.

    Vectors up to `length` use masks of that length, which sites can compute before they are asked. `data` names the
    version of each site's data, `entries` are the sums that they know of; `min_sites` is the largest that one asks for.
    """

    run: str
    epoch: int
    n_slots: int
    length: int
    names: tuple[str, ...]
    publics: tuple[bytes, ...]
    threshold: int
    data: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    min_sites: int = 2

    def __post_init__(self) -> None:
        if list(self.names) != sorted(set(self.names)):
            raise ProtocolError(
                "the roster names a site twice or is not sorted; every site may appear once.",
                code="bad-roster",
            )
        if not 2 <= len(self.names) <= MAX_SHARES or len(self.publics) != len(self.names):
            raise ProtocolError(
                f"a roster has 2 to {MAX_SHARES} sites with one key each, got {len(self.names)}.",
                code="bad-roster",
            )
        if not 1 <= self.threshold <= len(self.names):
            raise ProtocolError(
                f"the threshold {self.threshold} does not fit a roster of {len(self.names)} sites.",
                code="bad-roster",
            )

    @cached_property
    def context(self) -> bytes:
        """Digest of the whole roster; it goes into every key two sites derive."""
        keys = [public.hex() for public in self.publics]
        parts = [self.run, self.epoch, self.n_slots, self.length, list(self.names), keys, self.threshold]
        # What sites know of earlier sums is signed with their keys; which of it another can check is its own business.
        parts += [list(self.data), self.min_sites]
        return hashlib.sha256(b"roster " + _canonical(parts)).digest()

    @cached_property
    def positions(self) -> dict[str, int]:
        """Index of each site."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def listed(self) -> list[str]:
        """The sites as a list, as messages carry them."""
        return list(self.names)

    @cached_property
    def members(self) -> frozenset[str]:
        """The sites as a set."""
        return frozenset(self.names)


@dataclass(frozen=True)
class Order:
    """One request to mask: which slot, for which task, and who takes part (None: the whole roster)."""

    epoch: int
    slot: int
    task_digest: str
    participants: tuple[str, ...] | None = None

    def contributors(self, roster: Iterable[str]) -> frozenset[str]:
        """Sites of the roster whose numbers enter the sum."""
        everybody = frozenset(roster)
        return everybody if self.participants is None else everybody.intersection(self.participants)

    @cached_property
    def context(self) -> bytes:
        """What every survivor of this sum must have been asked."""
        some = b"all" if self.participants is None else _canonical(sorted(self.participants))
        # Nothing before the digest can contain a space, so no two orders give the same bytes.
        head = b"order %d %d %d " % (self.epoch, self.slot, len(some))
        return hashlib.sha256(head + some + self.task_digest.encode()).digest()


def _canonical(parts: list[Any]) -> bytes:
    return json.dumps(parts, separators=(",", ":"), ensure_ascii=True).encode()


def order_of(meta: Mapping[str, Any]) -> Order:
    """Return the order in a request to mask."""
    participants = None if meta.get("participants") is None else read_names(meta, "participants")
    return Order(
        read_integer(meta, "epoch"), read_integer(meta, "slot"), read_text(meta, "task_digest"), participants
    )


def read_integer(meta: Mapping[str, Any], key: str) -> int:
    """Return a whole number out of a message, or refuse the message."""
    value = meta.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ProtocolError(
            f"a secure-aggregation message lacks the whole number {key!r}.", code="bad-message"
        )
    return value


def read_text(meta: Mapping[str, Any], key: str) -> str:
    """Return a text out of a message, or refuse the message."""
    value = meta.get(key)
    if not isinstance(value, str):
        raise ProtocolError(f"a secure-aggregation message lacks the text {key!r}.", code="bad-message")
    return value


def read_names(meta: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a list of different site names out of a message, sorted."""
    value = meta.get(key)
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise ProtocolError(
            f"a secure-aggregation message lacks the list of sites {key!r}.", code="bad-message"
        )
    if len(set(value)) != len(value):
        raise ProtocolError(f"the list {key!r} names a site twice.", code="bad-message")
    return tuple(sorted(value))


def rows_of(arrays: Mapping[str, np.ndarray], key: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a byte array of the given shape out of a message."""
    array = arrays.get(key)
    if array is None or array.dtype != np.uint8 or array.shape != shape:
        raise ProtocolError(
            f"a secure-aggregation message lacks the bytes {key!r} of shape {shape}.", code="bad-message"
        )
    return array


def as_bytes(rows: Sequence[bytes]) -> np.ndarray:
    """(len(rows), length) bytes; every row has the same length."""
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), -1).copy()


def check_min_sites(min_sites: int) -> int:
    """Return `min_sites`, or say why it cannot be below 2."""
    if min_sites < 2:
        raise ParameterError(
            f"min_sites must be at least 2 (a sum of one is the site's own vector), got {min_sites}."
        )
    return min_sites


def refuse_below(n: int, needed: int, what: str, code: str) -> None:
    """Raise unless at least `needed` sites are there."""
    if n < needed:
        raise AggregationError(
            f"{what}: {n} sites, but {needed} are needed; nothing was revealed.", code=code
        )


def require_everybody(order: Order, roster: Roster) -> None:
    """Refuse a sum over some of the sites: two such sums can be subtracted from one another."""
    left_out = roster.members - order.contributors(roster.members)
    if left_out:
        raise ProtocolError(
            f"under secure aggregation every site takes part in every sum; this one leaves {min(left_out)!r} out. "
            "Ask all of them (participation = 1).",
            code="some-sites-only",
        )


# What one site knows in one epoch of secure aggregation: its secrets slot by slot, the masks they make, and how
# they are forgotten.


@dataclass
class Epoch:
    """Everything secret of one epoch; dropped when the next begins."""

    site: str
    number: int
    n_slots: int
    length: int
    key: AgreementKey
    roster: Roster | None = None
    pairs: dict[str, PairKeys] = field(default_factory=dict)
    own_share: bytes = b""
    # (n_slots, 2 + 2 K, 32): for each slot b, c, the seeds of the masks and the keys of the tags with each peer.
    secrets: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, KEY_BYTES), dtype=np.uint8))
    masks: list[Residues | None] = field(default_factory=list)  # of each slot, computed ahead
    shares: np.ndarray | None = None  # (n_slots, 2, K, 32): this site's share of everybody's b and c
    next_slot: int = 0
    n_erased: int = 0
    masked: Order | None = None
    expected: np.ndarray | None = None  # (K, 16): tag of each peer that was asked the same as this site
    signed: tuple[str, ...] | None = None  # the survivors of the slot in use, if this site signed a list
    admitted: frozenset[str] | None = None  # the sites of the last sum that the register let pass

    @property
    def masking_roster(self) -> Roster:
        """The roster, once it is known."""
        assert self.roster is not None
        return self.roster

    def tag_keys_of(self, slot: int) -> list[bytes]:
        """Key of the tags with each site of the roster in one slot; zeros for this site itself."""
        return _keys(self.secrets[slot, 2 + len(self.masking_roster.names) :])

    def mask(self, slot: int, n: int) -> Residues:
        """(2, n) sum of all this site's masks of one slot, computed ahead if `n` was foreseen."""
        ahead = self.masks[slot] if self.masks and n <= self.length else None
        return self.new_mask(slot, n) if ahead is None else ahead[:, :n]

    def new_mask(self, slot: int, n: int) -> Residues:
        """(2, n) sum of this site's masks of one slot: its own, and one with each peer."""
        width = max(n, self.length)
        parts: list[Residues | bytes] = [keystream(self.secrets[slot, 0].tobytes(), width * LIMBS * 8)]
        n_minus = 0
        names = self.masking_roster.names
        for peer, seed in zip(names, _keys(self.secrets[slot, 2 : 2 + len(names)]), strict=True):
            if peer != self.site:
                # Of two sites the one whose name comes first adds their mask, the other subtracts it.
                is_minus = peer < self.site
                parts.append(keystream(seed, width * LIMBS * 8, is_minus))
                n_minus += is_minus
        return sum_residues(parts, width, plus=n_minus)[:, :n]

    def erase(self, slot: int) -> None:
        """Forget the secrets of every slot up to `slot`, so that a later break-in cannot open them."""
        assert self.shares is not None
        done = slice(self.n_erased, slot + 1)
        self.shares[done] = 0
        self.secrets[done] = 0
        if self.masks:
            self.masks[done] = [None] * (slot + 1 - self.n_erased)
        self.n_erased = slot + 1


def slot_secrets(own: bytes, pairs: Sequence[PairKeys | None], n_slots: int) -> np.ndarray:
    """(n_slots, 2 + 2 K, 32): own secrets b and c, seeds and tag keys of each slot; zeros with the site itself."""
    nothing = bytes(n_slots * KEY_BYTES)
    streams = [nothing if pair is None else slot_keys(pair.seeds, n_slots) for pair in pairs]
    streams += [nothing if pair is None else slot_keys(pair.tags, n_slots) for pair in pairs]
    shared = as_bytes(streams).reshape(len(streams), n_slots, KEY_BYTES).transpose(1, 0, 2)
    mine = np.frombuffer(own, dtype=np.uint8).reshape(n_slots, 2, KEY_BYTES)
    return np.concatenate([mine, shared], axis=1)


def _keys(rows: np.ndarray) -> list[bytes]:
    joined = rows.tobytes()
    return [joined[i : i + KEY_BYTES] for i in range(0, len(joined), KEY_BYTES)]
