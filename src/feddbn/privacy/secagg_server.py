"""The server's half of secure aggregation; see `feddbn.privacy.secagg` for the protocol.

The server holds masked vectors, sealed shares and encrypted seed lists. It can open one thing: the sum over
the survivors of a slot, and only with the help of at least `threshold` of them.

`SecAggServer` makes requests and takes replies, as decoded messages; it does no I/O. Replies are keyed by
site name; who is missing has dropped out. `sift` keeps the replies of sites that sent something else away from the
others, so that one bad site costs its own part and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import AggregationError, ProtocolError
from feddbn.privacy.integers import (
    LIMBS,
    MAX_SHARES,
    combine_shares,
    decode_fixed,
    sum_residues,
)
from feddbn.privacy.keys import KEY_BYTES, TAG_BYTES, commitment, keystream, open_sealed
from feddbn.privacy.policy import DEFAULT_MIN_SITES, usual_threshold
from feddbn.privacy.register import check_data, read_entries
from feddbn.privacy.secagg import (
    KIND,
    SIGNATURE_BYTES,
    Message,
    Order,
    Roster,
    as_bytes,
    check_min_sites,
    odd_ones,
    read_integer,
    refuse_below,
    require_everybody,
    rows_of,
)

# What the server expects in the replies to each phase of secure aggregation, and whose reply is something else.

TOLD = ("data", "sets", "min_sites")

# What a reply calls itself, where that is not the name of the phase.
_ANSWERS = {"advertise": "advert", "share": "shares", "deliver": "ready"}


@dataclass(frozen=True)
class Asked:
    """A phase that sites were asked for.

    Attributes
    ----------
    phase, run, epoch
        What their replies must be about.
    n_slots, n_sites
        Slots of the epoch, sites of its roster.
    slot
        The slot, for phases about one.
    whom
        Who may reply; None is everybody.
    """

    phase: str
    run: str
    epoch: int
    n_slots: int
    n_sites: int
    slot: int | None = None
    whom: frozenset[str] | None = None

    def sift(self, replies: Mapping[str, Message]) -> tuple[dict[str, Message], dict[str, str]]:
        """Return the replies that can be used, and for every other site what is wrong with its own.

        Of masked vectors those of another length than most cannot be used.
        """
        good: dict[str, Message] = {}
        odd: dict[str, str] = {}
        for site, reply in sorted(replies.items()):
            try:
                self.read(site, reply)
                good[site] = reply
            except ProtocolError as error:
                odd[site] = str(error)
        if self.phase == "masked":
            lengths = {site: arrays["y"].shape[1] for site, (_, arrays) in good.items()}
            for site, length, usual in odd_ones(lengths, "length"):
                odd[site] = f"site {site!r} answered with length {length}, most with {usual}."
                del good[site]
        return good, odd

    def read(self, site: str, reply: Message) -> list[np.ndarray]:
        """Return the arrays of a site's reply; raise what is wrong with it, with the site's name."""
        meta, arrays = reply
        answer = _ANSWERS.get(self.phase, self.phase)
        if (meta.get("kind"), meta.get("phase"), meta.get("run")) != (KIND, answer, self.run):
            raise ProtocolError(
                f"site {site!r} did not answer the {answer!r} phase of run {self.run!r}.", code="other-phase"
            )
        if meta.get("epoch") != self.epoch or meta.get("site") != site:
            raise ProtocolError(
                f"site {site!r} answered for another epoch, or for another site.", code="other-epoch"
            )
        if self.whom is not None and (meta.get("slot") != self.slot or site not in self.whom):
            raise ProtocolError(
                f"site {site!r} answered for another slot, or twice, or was not asked.", code="other-slot"
            )
        vectors = [_masked_vector(site, arrays)] if self.phase == "masked" else []
        try:
            if self.phase == "advertise":
                told_by(meta)
            return vectors + [rows_of(arrays, key, shape) for key, shape in self._shapes().items()]
        except ProtocolError as error:
            raise ProtocolError(f"site {site!r}: {error}", code="bad-reply") from None

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """What a reply holds as bytes."""
        n_slots, n_sites = self.n_slots, self.n_sites
        shapes: dict[str, dict[str, tuple[int, ...]]] = {
            "advertise": {"public": (KEY_BYTES,), "signature": (SIGNATURE_BYTES,)},
            "share": {
                "sealed": (n_sites, n_slots * 2 * KEY_BYTES + 16),
                "commitments": (n_slots, 2, KEY_BYTES),
                "seed_lists": (n_slots, n_sites * KEY_BYTES + 16),
            },
            "masked": {"tags": (n_sites, TAG_BYTES)},
            "survivors": {"signature": (SIGNATURE_BYTES,)},
            "unmask": {"shares": (n_sites, KEY_BYTES)},
        }
        return shapes.get(self.phase, {})


def _masked_vector(site: str, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    y = arrays.get("y")
    if y is None or y.dtype != np.uint64 or y.ndim != 2 or len(y) != LIMBS:
        raise ProtocolError(f"site {site!r} sent something that is not a masked vector.", code="bad-reply")
    return y


def told_by(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a site tells the others with its key: its data, the sums it knows of, the fewest sites it asks for."""
    fewest = read_integer(meta, "min_sites")
    if not 2 <= fewest <= MAX_SHARES:
        raise ProtocolError(f"it asks for sums of at least {fewest} sites.", code="bad-reply")
    sets = [entry.listed() for entry in read_entries(meta.get("sets"))]
    return {"data": check_data(meta.get("data")), "sets": sets, "min_sites": fewest}


Replies = Mapping[str, Message]


@dataclass(frozen=True)
class OpenedSum:
    """The sum over `contributors`; `dropped` were on the roster and sent nothing.

    `altered` is a site whose shares were wrong and not needed, if there is one.
    """

    value: FloatArray
    contributors: tuple[str, ...]
    dropped: tuple[str, ...]
    altered: str = ""


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
    ) -> None:
        self.run = run
        self.min_sites = check_min_sites(min_sites)
        self._threshold = threshold
        self._epoch = -1
        self._n_slots = 0
        self._length = 0
        self._adverts: dict[str, tuple[bytes, bytes, dict[str, Any]]] = {}
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

    def sift(self, phase: str, replies: Replies) -> tuple[dict[str, Message], dict[str, str]]:
        """Return the replies to a phase that can be used, and for every other site what is wrong with its own."""
        return self._asked(phase).sift(replies)

    def roster_request(self, replies: Replies) -> Message:
        """Collect the signed keys and send everybody's to everybody."""
        asked = self._asked("advertise")
        for site, reply in replies.items():
            public, signature = (rows.tobytes() for rows in asked.read(site, reply))
            self._adverts[site] = (public, signature, told_by(reply[0]))
        names = tuple(sorted(self._adverts))
        refuse_below(len(names), self.min_sites, "too few sites answered the call for keys", "few-keys")
        threshold = self._threshold
        if threshold is None:
            threshold = usual_threshold(len(names), self.min_sites)
        publics = tuple(self._adverts[name][0] for name in names)
        refuse_below(len(names), threshold, "too few sites answered the call for keys", "few-keys")
        told = {key: [self._adverts[name][2][key] for name in names] for key in TOLD}
        about: dict[str, Any] = {"data": tuple(told["data"]), "min_sites": max(told["min_sites"])}
        self._pending = Roster(
            self.run, self._epoch, self._n_slots, self._length, names, publics, threshold, **about
        )
        signatures = [self._adverts[name][1] for name in names]
        return (
            {**self._meta("share"), "names": list(names), "threshold": threshold, **told},
            {"publics": as_bytes(publics), "signatures": as_bytes(signatures)},
        )

    def deliveries(self, replies: Replies) -> dict[str, Message]:
        """Sort the sealed shares by receiver; every site of the roster must have sent its own."""
        roster = self._setting_up()
        missing = [name for name in roster.names if name not in replies]
        if missing:
            raise AggregationError(
                f"site {missing[0]!r} dropped out of the set-up; begin a new epoch without it.",
                code="dropped-out",
            )
        outgoing: dict[str, np.ndarray] = {}
        asked = self._asked("share")
        for name in roster.names:
            read = asked.read(name, replies[name])
            outgoing[name], self._commitments[name], self._seed_lists[name] = read
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
                    f"site {name!r} dropped out of the set-up; begin a new epoch without it.",
                    code="dropped-out",
                )
            self._asked("deliver").read(name, replies[name])
        self._roster = self._pending

    def open_slot(self, task_digest: str, participants: tuple[str, ...] | None = None) -> Order:
        """Take the next slot for a task; a repeated attempt takes another."""
        if self._roster is None or self.slots_left == 0:
            raise AggregationError(
                "no slot is left in this epoch; begin a new one before the next sum.", code="no-slot"
            )
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
        """Keep masked inputs that went through `sift`; return their length, or None if there is none yet."""
        slot = self._under_way()
        asked = self._asked("masked")
        for site, reply in sorted(replies.items()):
            y, tags = asked.read(site, reply)
            if slot.length not in (None, y.shape[1]):
                raise ProtocolError(
                    "masked vectors of different lengths cannot be added up.", code="different-lengths"
                )
            slot.length = y.shape[1]
            slot.tags[site], slot.inputs[site] = tags, y
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
        refuse_below(
            len(survivors),
            max(roster.threshold, self.min_sites),
            "too few sites sent their input",
            "few-inputs",
        )
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
            for site, reply in (signed or {}).items():
                (rows[site],) = self._asked("survivors").read(site, reply)
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
        asked = self._asked("unmask")
        for site, reply in replies.items():
            (rows,) = asked.read(site, reply)
            shares[roster.positions[site] + 1] = rows.tobytes()
        refuse_below(len(shares), threshold, "too few sites helped to open the sum", "few-helpers")
        self._slot = None
        secrets, altered = self._secrets(slot, roster, shares)
        masks, n_minus = self._left_over_masks(slot, roster, secrets)
        n = slot.inputs[slot.survivors[0]].shape[1]
        total = sum_residues(masks, max(n, roster.length), n_minus)[:, :n]
        for site in slot.survivors:
            total += slot.inputs[site]
        value = decode_fixed(total, n_sites)
        dropped = tuple(name for name in roster.names if name not in slot.survivors)
        return OpenedSum(value, slot.survivors, dropped, altered)

    def _secrets(self, slot: _Slot, roster: Roster, shares: Mapping[int, bytes]) -> tuple[bytes, str]:
        """Return the secrets of the slot, and the site whose altered shares were left out, if one can be spared."""
        secrets = combine_shares(shares, roster.threshold)
        closed = self._closed(slot, roster, secrets)
        if not closed:
            return secrets, ""
        if len(shares) > roster.threshold:
            for left_out in sorted(shares)[: roster.threshold]:
                secrets = combine_shares(
                    {number: share for number, share in shares.items() if number != left_out},
                    roster.threshold,
                )
                if not self._closed(slot, roster, secrets):
                    return secrets, roster.names[left_out - 1]
        raise AggregationError(
            f"the shares that were revealed do not open the masks of site {closed!r}: it has set them up wrongly, or another "
            "site has altered its shares. Nothing was opened.",
            code="altered-shares",
        )

    def _closed(self, slot: _Slot, roster: Roster, secrets: bytes) -> str:
        """Return the first site whose secret is not what it committed to, or nothing."""
        for position, name in enumerate(roster.names):
            secret = secrets[position * KEY_BYTES : (position + 1) * KEY_BYTES]
            which = 0 if name in slot.survivors else 1
            if commitment(secret) != self._commitments[name][slot.order.slot, which].tobytes():
                return name
        return ""

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
            raise ProtocolError("no epoch is being set up; ask for keys first.", code="no-epoch")
        return self._pending

    def _under_way(self) -> _Slot:
        if self._slot is None:
            raise ProtocolError("no sum is under way; open a slot first.", code="no-sum")
        return self._slot

    def _meta(self, phase: str) -> dict[str, Any]:
        return {"kind": KIND, "phase": phase, "run": self.run, "epoch": self._epoch}

    def _asked(self, phase: str) -> Asked:
        """What the replies to a phase must be."""
        n_sites = 0 if self._pending is None else len(self._pending.names)
        slot, whom = None, None
        if phase in ("masked", "unmask"):
            under_way = self._under_way()
            slot = under_way.order.slot
            whom = frozenset(
                under_way.survivors if phase == "unmask" else set(self.roster) - under_way.inputs.keys()
            )
        return Asked(phase, self.run, self._epoch, self._n_slots, n_sites, slot, whom)
