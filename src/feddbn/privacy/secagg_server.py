"""The server's half of secure aggregation; see `feddbn.privacy.secagg` for the protocol.

The server holds masked vectors, sealed shares and encrypted seed lists. It can open one thing: the sum over
the survivors of a slot, and only with the help of at least `threshold` of them.

`SecAggServer` makes requests and takes replies, as decoded messages; it does no I/O. Replies are keyed by
site name; who is missing has dropped out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import AggregationError, ProtocolError
from feddbn.privacy.fixed_point import (
    DEFAULT_FRACTIONAL_BITS,
    LIMBS,
    decode_fixed,
    sum_residues,
)
from feddbn.privacy.keys import KEY_BYTES, TAG_BYTES, commitment, keystream, open_sealed
from feddbn.privacy.secagg import (
    DEFAULT_MIN_SITES,
    KIND,
    SIGNATURE_BYTES,
    Message,
    Order,
    Roster,
    as_bytes,
    check_min_sites,
    read_sets,
    refuse_below,
    require_everybody,
    rows_of,
    usual_threshold,
)
from feddbn.privacy.shamir import combine_shares

__all__ = ["OpenedSum", "SecAggServer"]

Replies = Mapping[str, Message]


@dataclass(frozen=True)
class OpenedSum:
    """The sum over `contributors`; `dropped` were on the roster and sent nothing."""

    value: FloatArray
    contributors: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass
class _Slot:
    """One sum under way."""

    order: Order
    length: int | None = None
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    tags: dict[str, np.ndarray] = field(default_factory=dict)
    survivors: tuple[str, ...] = ()


class SecAggServer:
    """The server's state machine for one run.

    Parameters
    ----------
    run
        Name of the run.
    min_sites
        Fewest contributors to any sum.
    threshold
        Shares that open a secret, or None for `default_threshold` of each roster.
    """

    def __init__(
        self,
        run: str,
        min_sites: int = DEFAULT_MIN_SITES,
        threshold: int | None = None,
        fractional_bits: int = DEFAULT_FRACTIONAL_BITS,
    ) -> None:
        self.run = run
        self.min_sites = check_min_sites(min_sites)
        self._threshold = threshold
        self._fractional_bits = fractional_bits
        self._epoch = -1
        self._n_slots = 0
        self._length = 0
        self._adverts: dict[str, tuple[bytes, bytes, str, list[list[str]]]] = {}
        self._pending: Roster | None = None
        self._roster: Roster | None = None
        self._commitments: dict[str, np.ndarray] = {}
        self._seed_lists: dict[str, np.ndarray] = {}
        self._next_slot = 0
        self._slot: _Slot | None = None

    @property
    def roster(self) -> tuple[str, ...]:
        """Sites of the current epoch, or none before the first."""
        return () if self._roster is None else self._roster.names

    @property
    def slots_left(self) -> int:
        """How many sums the current epoch can still hide."""
        return 0 if self._roster is None else self._n_slots - self._next_slot

    def begin_epoch(self, n_slots: int, length: int = 0) -> Message:
        """Ask for fresh keys; whatever was under way is forgotten. Masks up to `length` are made ahead."""
        self._epoch += 1
        self._n_slots, self._length = n_slots, length
        self._pending, self._roster, self._slot, self._next_slot = None, None, None, 0
        self._adverts, self._commitments, self._seed_lists = {}, {}, {}
        return {**self._meta("advertise"), "n_slots": n_slots, "length": length}, {}

    def roster_request(self, replies: Replies) -> Message:
        """Collect the signed keys and send everybody's to everybody."""
        for site, (meta, arrays) in replies.items():
            self._check(meta, site, "advert")
            public = rows_of(arrays, "public", (KEY_BYTES,)).tobytes()
            signature = rows_of(arrays, "signature", (SIGNATURE_BYTES,)).tobytes()
            self._adverts[site] = (public, signature, str(meta.get("data")), _listed(meta.get("sets")))
        names = tuple(sorted(self._adverts))
        refuse_below(len(names), self.min_sites, "too few sites answered the call for keys")
        threshold = self._threshold
        if threshold is None:
            threshold = usual_threshold(len(names), self.min_sites)
        publics = tuple(self._adverts[name][0] for name in names)
        refuse_below(len(names), threshold, "too few sites answered the call for keys")
        data = tuple(self._adverts[name][2] for name in names)
        sets = frozenset(frozenset(members) for name in names for members in self._adverts[name][3])
        self._pending = Roster(
            self.run, self._epoch, self._n_slots, self._length, names, publics, threshold, data, sets
        )
        signatures = [self._adverts[name][1] for name in names]
        return (
            {
                **self._meta("share"),
                "names": list(names),
                "threshold": threshold,
                "data": [self._adverts[name][2] for name in names],
                "sets": [self._adverts[name][3] for name in names],
            },
            {"publics": as_bytes(publics), "signatures": as_bytes(signatures)},
        )

    def deliveries(self, replies: Replies) -> dict[str, Message]:
        """Sort the sealed shares by receiver; every site of the roster must have sent its own."""
        roster = self._setting_up()
        missing = [name for name in roster.names if name not in replies]
        if missing:
            raise AggregationError(
                f"site {missing[0]!r} dropped out of the set-up; begin a new epoch without it."
            )
        size, n_sites = self._n_slots * 2 * KEY_BYTES, len(roster.names)
        outgoing: dict[str, np.ndarray] = {}
        for name in roster.names:
            meta, arrays = replies[name]
            self._check(meta, name, "shares")
            outgoing[name] = rows_of(arrays, "sealed", (n_sites, size + 16))
            self._commitments[name] = rows_of(arrays, "commitments", (self._n_slots, 2, KEY_BYTES))
            self._seed_lists[name] = rows_of(arrays, "seed_lists", (self._n_slots, n_sites * KEY_BYTES + 16))
        return {
            name: (
                self._meta("deliver"),
                {"sealed": np.stack([outgoing[peer][position] for peer in roster.names])},
            )
            for position, name in enumerate(roster.names)
        }

    def ready(self, replies: Replies) -> None:
        """Note that every site of the roster holds its shares; the slots can be used."""
        for name in self._setting_up().names:
            if name not in replies:
                raise AggregationError(
                    f"site {name!r} dropped out of the set-up; begin a new epoch without it."
                )
            self._check(replies[name][0], name, "ready")
        self._roster = self._pending

    def open_slot(self, task_digest: str, participants: tuple[str, ...] | None = None) -> Order:
        """Take the next slot for a task; a repeated attempt takes another."""
        if self._roster is None or self.slots_left == 0:
            raise AggregationError("no slot is left in this epoch; begin a new one before the next sum.")
        order = Order(self._epoch, self._next_slot, task_digest, participants)
        require_everybody(order, self._roster)
        self._next_slot += 1
        self._slot = _Slot(order)
        return order

    def masked_request(self, order: Order) -> dict[str, Any]:
        """Meta of the request to mask."""
        meta = {**self._meta("masked"), "slot": order.slot, "task_digest": order.task_digest}
        participants = None if order.participants is None else sorted(order.participants)
        return {**meta, "participants": participants}

    def collect(self, replies: Replies) -> int | None:
        """Keep masked inputs; return their length, or None if there is none yet."""
        slot = self._under_way()
        members = self._roster.members if self._roster is not None else frozenset()
        for site, (meta, arrays) in sorted(replies.items()):
            self._check(meta, site, "masked")
            y = arrays.get("y")
            if meta.get("slot") != slot.order.slot or site not in members or site in slot.inputs:
                raise ProtocolError(
                    f"site {site!r} sent an input for another slot, or twice, or is not on the roster."
                )
            if y is None or y.dtype != np.uint64 or y.ndim != 2 or len(y) != LIMBS:
                raise ProtocolError(f"site {site!r} sent something that is not a masked vector.")
            if slot.length not in (None, y.shape[1]):
                raise ProtocolError(
                    f"site {site!r} answered with length {y.shape[1]}, others with {slot.length}."
                )
            slot.length = y.shape[1]
            slot.tags[site] = rows_of(arrays, "tags", (len(members), TAG_BYTES))
            slot.inputs[site] = y
        return slot.length

    @property
    def lacks_sites(self) -> bool:
        """Whether the sum under way lacks a site of the roster; the survivors then sign who they are."""
        return self._roster is not None and len(self._under_way().inputs) < len(self._roster.names)

    def survivor_requests(self) -> dict[str, Message]:
        """For each survivor: who survived and what they were asked, to be signed; refuse below the threshold."""
        slot, roster = self._under_way(), self._roster
        assert roster is not None
        survivors = tuple(sorted(slot.inputs))
        refuse_below(len(survivors), max(roster.threshold, self.min_sites), "too few sites sent their input")
        slot.survivors = survivors
        meta = {**self._meta("survivors"), "slot": slot.order.slot, "survivors": list(survivors)}
        tags = np.stack([slot.tags[site] for site in survivors], axis=1)
        return {site: (meta, {"tags": tags[roster.positions[site]]}) for site in survivors}

    def unmask_requests(self, signed: Replies | None = None) -> dict[str, Message]:
        """For each survivor: who survived, what they were asked and, if a site is missing, who signed the list."""
        slot = self._under_way()
        more: dict[str, np.ndarray] = {}
        if self.lacks_sites:
            blank = np.zeros(SIGNATURE_BYTES, dtype=np.uint8)
            rows = dict.fromkeys(slot.inputs, blank)
            for site, (meta, arrays) in (signed or {}).items():
                self._check(meta, site, "survivors")
                rows[site] = rows_of(arrays, "signature", (SIGNATURE_BYTES,))
            more["signatures"] = np.stack([rows[site] for site in sorted(rows)])
        return {
            site: ({**meta, "phase": "unmask"}, {**arrays, **more})
            for site, (meta, arrays) in self.survivor_requests().items()
        }

    def open(self, replies: Replies) -> OpenedSum:
        """Return the sum of the survivors' vectors."""
        slot, roster = self._under_way(), self._roster
        assert roster is not None
        n_sites, threshold = len(roster.names), roster.threshold
        shares: dict[int, bytes] = {}
        for site, (meta, arrays) in replies.items():
            self._check(meta, site, "unmask")
            if meta.get("slot") != slot.order.slot or site not in slot.survivors:
                raise ProtocolError(f"site {site!r} revealed shares of another slot, or was not asked.")
            shares[roster.positions[site] + 1] = rows_of(arrays, "shares", (n_sites, KEY_BYTES)).tobytes()
        refuse_below(len(shares), threshold, "too few sites helped to open the sum")
        self._slot = None
        secrets = combine_shares(shares, threshold)
        masks, n_minus = self._left_over_masks(slot, roster, secrets)
        n = slot.inputs[slot.survivors[0]].shape[1]
        total = sum_residues(masks, max(n, roster.length), n_minus)[:, :n]
        for site in slot.survivors:
            total += slot.inputs[site]
        value = decode_fixed(total, n_sites, self._fractional_bits)
        dropped = tuple(name for name in roster.names if name not in slot.survivors)
        return OpenedSum(value, slot.survivors, dropped)

    def _left_over_masks(self, slot: _Slot, roster: Roster, secrets: bytes) -> tuple[list[Any], int]:
        """Masks that cancel what is left, and how many of them are complements: survivors' self masks, and
        pair masks whose other end dropped out.
        """
        order, survivors = slot.order, set(slot.survivors)
        n_bytes = max(slot.inputs[slot.survivors[0]].shape[1], roster.length) * LIMBS * 8
        masks: list[Any] = []
        n_minus = 0
        for position, name in enumerate(roster.names):
            secret = secrets[position * KEY_BYTES : (position + 1) * KEY_BYTES]
            which = 0 if name in survivors else 1
            if commitment(secret) != self._commitments[name][order.slot, which].tobytes():
                raise AggregationError(
                    f"the shares of site {name!r} do not open what it committed to; some were altered."
                )
            if name in survivors:
                masks.append(keystream(secret, n_bytes, True))
                n_minus += 1
                continue
            table = open_sealed(secret, self._seed_lists[name][order.slot].tobytes(), roster.context)
            for other, peer in enumerate(roster.names):
                if peer in survivors:
                    seed = table[other * KEY_BYTES : (other + 1) * KEY_BYTES]
                    # The survivor `peer` added this mask if its name comes first, and subtracted it
                    # otherwise.
                    was_added = peer < name
                    masks.append(keystream(seed, n_bytes, was_added))
                    n_minus += was_added
        return masks, n_minus

    def _setting_up(self) -> Roster:
        if self._pending is None:
            raise ProtocolError("no epoch is being set up; ask for keys first.")
        return self._pending

    def _under_way(self) -> _Slot:
        if self._slot is None:
            raise ProtocolError("no sum is under way; open a slot first.")
        return self._slot

    def _meta(self, phase: str) -> dict[str, Any]:
        return {"kind": KIND, "phase": phase, "run": self.run, "epoch": self._epoch}

    def _check(self, meta: Mapping[str, Any], site: str, phase: str) -> None:
        if (meta.get("kind"), meta.get("phase"), meta.get("run")) != (KIND, phase, self.run):
            raise ProtocolError(f"site {site!r} did not answer the {phase!r} phase of run {self.run!r}.")
        if meta.get("epoch") != self._epoch or meta.get("site") != site:
            raise ProtocolError(f"site {site!r} answered for another epoch, or for another site.")


def _listed(sets: object) -> list[list[str]]:
    """What a site says it has been part of, as messages carry it."""
    return [sorted(members) for members in read_sets(sets)]
