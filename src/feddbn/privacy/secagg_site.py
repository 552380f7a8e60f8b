"""The site's half of secure aggregation; see `feddbn.privacy.secagg` for the protocol.

`SecAggSite.handle` takes a decoded message and returns a decoded reply. A message that breaks a rule raises
and leaves the site as it was, except that a slot once used stays used.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import AggregationError, ProtocolError, StateError
from feddbn.privacy.integers import (
    MAX_SHARES,
    encode_fixed,
    split_secret,
)
from feddbn.privacy.keys import (
    KEY_BYTES,
    TAG_BYTES,
    AgreementKey,
    Identity,
    PairKeys,
    RandomBytes,
    commitment,
    open_sealed,
    pair_tags,
    seal,
    verify_signature,
)
from feddbn.privacy.policy import DEFAULT_MIN_SITES, lowest_threshold
from feddbn.privacy.register import Entry, Register, check_data, member, read_entries
from feddbn.privacy.secagg import (
    KIND,
    SIGNATURE_BYTES,
    Advert,
    Epoch,
    Message,
    Order,
    Roster,
    as_bytes,
    check_min_sites,
    order_of,
    read_integer,
    read_names,
    refuse_below,
    require_everybody,
    rows_of,
    slot_secrets,
    survivors_statement,
)

# How a site checks the roster that a server proposes: whom it will be added up with, and what these have been part of.


def checked_roster(
    site: SecAggSite,
    epoch: Epoch,
    pinned: Mapping[str, bytes],
    meta: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
) -> Roster:
    """Return the roster in a message: enough sites, a high threshold, every key signed for this run and study."""
    listed = meta.get("names")
    names = read_names(meta, "names")
    if list(names) != listed:
        raise ProtocolError("the roster is not sorted by name.", code="bad-roster")
    n_sites = len(names)
    publics = tuple(row.tobytes() for row in rows_of(arrays, "publics", (n_sites, KEY_BYTES)))
    signatures = [row.tobytes() for row in rows_of(arrays, "signatures", (n_sites, SIGNATURE_BYTES))]
    threshold = read_integer(meta, "threshold")
    data, sets = meta.get("data"), meta.get("sets")
    if not isinstance(data, list) or not isinstance(sets, list) or not len(data) == len(sets) == n_sites:
        raise ProtocolError("the roster does not say what its sites have been part of.", code="bad-roster")
    asked = [_fewest(value) for value in _listed(meta, "min_sites", n_sites)]
    fewest = max(asked, default=2)
    refuse_below(
        n_sites, max(fewest, site.min_sites), "this site does not join so small a roster", "small-roster"
    )
    # Of the study, not of the roster: a server that leaves honest sites out does not make colluding ones a third.
    lowest = lowest_threshold(max(n_sites, site.n_sites), fewest)
    if threshold < lowest:
        raise AggregationError(
            f"the threshold {threshold} is too low for {n_sites} sites; it must be {lowest}.",
            code="low-threshold",
        )
    known: set[Entry] = set()
    signers = {member(key, "")[:-1]: key for key in pinned.values()}
    for at, (name, public) in enumerate(zip(names, publics, strict=True)):
        if name not in pinned:
            raise AggregationError(
                f"site {name!r} is on the roster, but no identity key is pinned for it here.",
                code="not-pinned",
            )
        told = read_entries(sets[at])
        numbers = (epoch.number, epoch.n_slots, epoch.length)
        advert = Advert(site.run, site.study, *numbers, name, public, check_data(data[at]), told, asked[at])
        if not verify_signature(pinned[name], signatures[at], advert.statement):
            raise AggregationError(
                f"the key advertised for site {name!r} is not signed by its pinned identity for this study.",
                code="wrong-signature",
            )
        known |= {entry for entry in told if _is_vouched_for(entry, signers, name)}
    if site.name not in names or publics[names.index(site.name)] != epoch.key.public:
        raise AggregationError(
            "the roster does not carry the key this site has advertised.", code="foreign-key"
        )
    about = (
        tuple(map(str, data)),
        tuple(sorted(known, key=lambda entry: (entry.statement, entry.signer))),
        fewest,
    )
    return Roster(site.run, epoch.number, epoch.n_slots, epoch.length, names, publics, threshold, *about)


def _listed(meta: Mapping[str, Any], key: str, n: int) -> list[Any]:
    value = meta.get(key)
    if not isinstance(value, list) or len(value) != n:
        raise ProtocolError(f"the roster lacks {key!r} of each of its sites.", code="bad-roster")
    return value


def _fewest(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 2 <= value <= MAX_SHARES:
        raise ProtocolError("the roster names a number of fewest sites that is none.", code="bad-roster")
    return value


def _is_vouched_for(entry: Entry, signers: Mapping[str, bytes], teller: str) -> bool:
    """Whether a sum that a site tells of was signed by one of its members; who that is may not be known here.

    A made-up sum would keep honest sites from adding up their data: nobody can make one up for others.
    """
    key = signers.get(entry.signer)
    if key is None:
        return False
    try:
        signature = bytes.fromhex(entry.signature)
    except ValueError:
        signature = b""
    is_member = any(one.startswith(f"{entry.signer}:") for one in entry.members)
    if not is_member or not verify_signature(key, signature, entry.statement):
        raise AggregationError(
            f"site {teller!r} tells of an earlier sum that its members have not signed.", code="unsigned-sum"
        )
    return True


MAX_SLOTS = 4096
MOST_AHEAD = 2**20


class SecAggSite:
    """One site's state machine for one run.

    Parameters
    ----------
    name
        This site's name.
    identity
        Its signing key.
    pinned
        Public identity keys of every site that may take part, by name; given by people, never by the server.
    run
        Name of the run; a message for another run is refused.
    random_bytes
        Source of secret randomness, such as ``os.urandom``.
    min_sites
        Fewest contributors to any sum.
    study
        Digest of the study; sites of one roster were all greeted with the same.
    n_sites
        How many sites the study has: the threshold is above two thirds of them. 0: as many as are on the roster.
    register
        The sums that this site's data have been part of.
    opening
        Called with the sites of a sum before this site helps to open it; it may refuse.
    """

    def __init__(
        self,
        name: str,
        identity: Identity,
        pinned: Mapping[str, bytes],
        run: str,
        random_bytes: RandomBytes,
        min_sites: int = DEFAULT_MIN_SITES,
        study: str = "",
        n_sites: int = 0,
        register: Register | None = None,
        opening: Callable[[frozenset[str]], None] = lambda contributors: None,
    ) -> None:
        self.name = name
        self.run = run
        self.study = study
        self.n_sites = n_sites
        self._register = Register() if register is None else register
        self._opening = opening
        self.min_sites = check_min_sites(min_sites)
        self._identity = identity
        self._pinned = dict(pinned)
        self._random_bytes = random_bytes
        self._epoch: Epoch | None = None
        if self._pinned.get(name) != identity.public:
            raise AggregationError(
                f"the identity pinned for site {name!r} is not this site's own key.", code="foreign-key"
            )

    def handle(
        self,
        meta: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        answer: Callable[[], FloatArray],
        history: Callable[[], str] = str,
    ) -> Message:
        """Return the reply to one message.

        `answer` computes this site's vector and is called only to be masked; `history` then tells what the state it was
        computed from has been asked before.
        """
        if meta.get("kind") != KIND or meta.get("run") != self.run:
            raise ProtocolError(
                f"this message is not a secure-aggregation message of run {self.run!r}.", code="other-run"
            )
        phase = meta.get("phase")
        if phase == "advertise":
            return self.advertise(*(read_integer(meta, key) for key in ("epoch", "n_slots", "length")))
        if phase == "masked":
            return self.masked(order_of(meta), answer, history)
        phases = {one.__name__: one for one in (self.share, self.deliver, self.survivors, self.unmask)}
        if phase in phases:
            return phases[phase](meta, arrays)
        raise ProtocolError(f"secure aggregation has no phase {phase!r}.", code="unknown-phase")

    def advertise(self, epoch: int, n_slots: int, length: int = 0) -> Message:
        """Begin an epoch: a fresh key, signed; everything of the epoch before is forgotten.

        Masks for vectors up to `length` are computed ahead, as soon as the shares are delivered.
        """
        if epoch < 0 or (self._epoch is not None and epoch <= self._epoch.number):
            raise ProtocolError(
                f"epoch {epoch} of run {self.run!r} has been begun before; epochs only go up.",
                code="old-epoch",
            )
        if not 1 <= n_slots <= MAX_SLOTS:
            raise ProtocolError(f"an epoch has 1 to {MAX_SLOTS} slots, got {n_slots}.", code="bad-slots")
        if length < 0 or length * n_slots > MOST_AHEAD:
            raise ProtocolError(
                f"masks for {n_slots} vectors of length {length} cannot be computed ahead.", code="bad-slots"
            )
        key = AgreementKey.fresh(self._random_bytes)
        self._epoch = Epoch(self.name, epoch, n_slots, length, key)
        data, entries = self._register.data, self._register.tell()
        about = (self.name, key.public, data, entries, self.min_sites)
        advert = Advert(self.run, self.study, epoch, n_slots, length, *about)
        signature = self._identity.sign(advert.statement)
        sets = [entry.listed() for entry in entries]
        told = {"data": data, "sets": sets, "min_sites": self.min_sites}
        return {**self._reply("advert", epoch), **told}, {
            "public": as_bytes([key.public])[0],
            "signature": as_bytes([signature])[0],
        }

    def share(self, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Message:
        """Check the roster, draw the secrets of every slot and seal a share of them for each peer."""
        state = self.epoch(read_integer(meta, "epoch"))
        if state.roster is not None:
            raise ProtocolError(
                "this site has shared its secrets of this epoch already.", code="shared-twice"
            )
        roster = checked_roster(self, state, self._pinned, meta, arrays)
        pairs = {
            peer: state.key.agree(self.name, peer, public, roster.context)
            for peer, public in zip(roster.names, roster.publics, strict=True)
            if peer != self.name
        }
        n_slots, n_sites = state.n_slots, len(roster.names)
        own = self._random_bytes(n_slots * 2 * KEY_BYTES)
        shares = split_secret(own, roster.threshold, n_sites, self._random_bytes)
        secrets = slot_secrets(own, [pairs.get(peer) for peer in roster.names], n_slots)
        sealed = []
        for position, peer in enumerate(roster.names):
            if peer == self.name:
                sealed.append(bytes(len(own) + 16))
            else:
                sealed.append(seal(pairs[peer].seal_to_peer, shares[position], roster.context))
        commitments, lists = [], []
        for slot in range(n_slots):
            b, c = (secrets[slot, which].tobytes() for which in (0, 1))
            commitments += [commitment(b), commitment(c)]
            lists.append(seal(c, secrets[slot, 2 : 2 + n_sites].tobytes(), roster.context))
        state.roster, state.pairs, state.secrets = roster, pairs, secrets
        state.own_share = shares[roster.positions[self.name]]
        return self._reply("shares", state.number), {
            "sealed": as_bytes(sealed),
            "commitments": as_bytes(commitments).reshape(n_slots, 2, KEY_BYTES),
            "seed_lists": as_bytes(lists),
        }

    def deliver(self, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Message:
        """Open the peers' shares; the epoch is then ready for sums."""
        state = self.epoch(read_integer(meta, "epoch"))
        roster = state.roster
        if roster is None or state.shares is not None:
            raise ProtocolError(
                "shares can be delivered once, after this site has sent its own.", code="delivered-twice"
            )
        n_sites, size = len(roster.names), state.n_slots * 2 * KEY_BYTES
        sealed = rows_of(arrays, "sealed", (n_sites, size + 16))
        rows = []
        for position, peer in enumerate(roster.names):
            if peer == self.name:
                rows.append(state.own_share)
            else:
                rows.append(
                    open_sealed(state.pairs[peer].seal_from_peer, sealed[position].tobytes(), roster.context)
                )
        by_peer = as_bytes(rows).reshape(n_sites, state.n_slots, 2, KEY_BYTES)
        state.shares = np.ascontiguousarray(by_peer.transpose(1, 2, 0, 3))
        # Sealing keys are used once; what is left of the pair is the list of slot seeds.
        state.pairs = {}
        ahead = state.n_slots if state.length else 0
        state.masks = [state.new_mask(slot, state.length) for slot in range(ahead)]
        return self._reply("ready", state.number), {}

    def masked(
        self, order: Order, answer: Callable[[], FloatArray], history: Callable[[], str] = str
    ) -> Message:
        """Return this site's vector under all its masks."""
        state = self._spent(order)
        vector = answer()
        y = encode_fixed(vector, len(state.masking_roster.names))
        y += state.mask(order.slot, len(vector))
        asked = order.context + history().encode()
        halves = as_bytes(pair_tags(state.tag_keys_of(order.slot), asked)).reshape(-1, 2, TAG_BYTES)
        # Towards peers before this site in the roster it is the second of the pair, towards others the first.
        me = state.masking_roster.positions[self.name]
        tags = np.concatenate([halves[:me, 1], halves[me:, 0]])
        state.expected = np.concatenate([halves[:me, 0], halves[me:, 1]])
        state.expected[me] = tags[me]
        return {**self._reply("masked", order.epoch), "slot": order.slot}, {"y": y, "tags": tags}

    def _spent(self, order: Order) -> Epoch:
        """Return the epoch, with a slot of it spent on an order.

        The slot is spent before the input exists: no later error can lead to a second input under its masks.
        """
        state = self.epoch(order.epoch)
        if state.roster is None or state.shares is None:
            raise ProtocolError("this epoch is not ready; shares have not been delivered.", code="not-ready")
        if not state.next_slot <= order.slot < state.n_slots:
            raise ProtocolError(
                f"slot {order.slot} is spent or does not exist; the next of this epoch is {state.next_slot} "
                f"of {state.n_slots}. One mask never hides two inputs.",
                code="spent-slot",
            )
        require_everybody(order, state.roster)
        state.next_slot = order.slot + 1
        state.masked, state.expected, state.signed = order, None, None
        return state

    def survivors(self, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Message:
        """Sign who sent an input for one slot; a second, different list of the same slot is not signed."""
        state, order, roster = self._open_input(meta)
        names = self._checked_survivors(state, roster, meta, arrays)
        if state.signed not in (None, names):
            raise AggregationError(
                "this site has signed another list of survivors of this slot.", code="other-survivors"
            )
        state.signed = names
        signature = self._identity.sign(survivors_statement(order, roster, names))
        reply = {**self._reply("survivors", state.number), "slot": order.slot}
        return reply, {"signature": as_bytes([signature])[0]}

    def unmask(self, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Message:
        """Reveal, for one slot, the share of b of each survivor and of c of each drop-out."""
        state, order, roster = self._open_input(meta)
        names = self._checked_survivors(state, roster, meta, arrays)
        if state.signed not in (None, names):
            raise AggregationError(
                "this site has signed another list of survivors of this slot.", code="other-survivors"
            )
        alive = frozenset(names)
        if alive != roster.members:
            self._require_signatures(order, roster, names, arrays)
        assert state.shares is not None
        if alive != state.admitted:
            fewest = max(self.min_sites, roster.min_sites)
            self._register.admit(self._entry(roster, alive), roster.entries, fewest)
            state.admitted = alive
        self._opening(alive)
        state.masked, state.expected = None, None
        slot = order.slot
        shares = state.shares[slot, 0].copy()
        for position, name in enumerate(roster.names):
            if name not in alive:
                shares[position] = state.shares[slot, 1, position]
        state.erase(slot)
        return {**self._reply("unmask", state.number), "slot": slot}, {"shares": shares}

    def _open_input(self, meta: Mapping[str, Any]) -> tuple[Epoch, Order, Roster]:
        """The slot that a message is about, if this site has sent an input for it and not helped to open it."""
        state = self.epoch(read_integer(meta, "epoch"))
        slot = read_integer(meta, "slot")
        order, roster = state.masked, state.roster
        is_open = state.shares is not None and state.expected is not None
        if order is None or roster is None or not is_open or order.slot != slot:
            raise ProtocolError(
                f"this site has no open input in slot {slot}; it unmasks each slot at most once.",
                code="no-open-input",
            )
        return state, order, roster

    def _checked_survivors(
        self, state: Epoch, roster: Roster, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> tuple[str, ...]:
        """Who sent an input: enough sites of the roster, all of which were asked what this site was asked."""
        # Most sums have no drop-out.
        is_whole = meta.get("survivors") == roster.listed
        names = roster.names if is_whole else read_names(meta, "survivors")
        if not roster.members.issuperset(names):
            raise ProtocolError(
                "the unmask request names a site that is not on the roster.", code="bad-survivors"
            )
        if self.name not in names:
            raise ProtocolError(
                "the unmask request calls this site a drop-out, although it has sent its input.",
                code="bad-survivors",
            )
        refuse_below(
            len(names), max(roster.threshold, self.min_sites), "too few sites sent their input", "few-inputs"
        )
        tags = rows_of(arrays, "tags", (len(names), TAG_BYTES))
        expected = state.expected
        assert expected is not None
        # A site needs no tag of its own; what it sent comes back.
        wanted = expected if is_whole else expected[[roster.positions[name] for name in names]]
        if not hmac.compare_digest(wanted.tobytes(), tags.tobytes()):
            name = names[int(np.argmax(np.any(wanted != tags, axis=1)))]
            raise AggregationError(
                f"site {name!r} was asked something else than this site, now or before; nothing was revealed.",
                code="asked-otherwise",
            )
        return names

    def _require_signatures(
        self, order: Order, roster: Roster, names: tuple[str, ...], arrays: Mapping[str, np.ndarray]
    ) -> None:
        signatures = rows_of(arrays, "signatures", (len(names), SIGNATURE_BYTES))
        statement = survivors_statement(order, roster, names)
        n_signed = sum(
            verify_signature(self._pinned[name], signature.tobytes(), statement)
            for name, signature in zip(names, signatures, strict=True)
        )
        refuse_below(
            n_signed, roster.threshold, "too few sites signed this list of survivors", "few-signatures"
        )

    def _entry(self, roster: Roster, alive: frozenset[str]) -> Entry:
        """The sum as the register keeps it, signed: others believe it if one of its members says so."""
        members = frozenset(
            member(self._pinned[name], data)
            for name, data in zip(roster.names, roster.data, strict=True)
            if name in alive
        )
        signer = member(self._identity.public, "")[:-1]
        return Entry(members, signer, self._identity.sign(Entry(members).statement).hex())

    @property
    def guaranteed_contributors(self) -> int:
        """Fewest sites whose numbers are in any sum this site helps to open."""
        roster = None if self._epoch is None else self._epoch.roster
        return self.min_sites if roster is None else max(roster.threshold, self.min_sites)

    @property
    def held(self) -> Epoch | None:
        """All that this site must remember of the epoch in use."""
        return self._epoch

    def hold(self, epoch: Epoch | None) -> None:
        """Go on with what was kept over a restart (`privacy.secagg_site`)."""
        self._epoch = epoch

    def epoch(self, epoch: int) -> Epoch:
        """Return this site's half of an epoch; a site that has forgotten it, or never joined it, says so."""
        if self._epoch is None or self._epoch.number != epoch:
            raise StateError(
                f"this site is not in epoch {epoch} of run {self.run!r}; it joins at the next epoch.",
                code="no-epoch",
            )
        return self._epoch

    def _reply(self, phase: str, epoch: int) -> dict[str, Any]:
        return {"kind": KIND, "phase": phase, "run": self.run, "epoch": epoch, "site": self.name}


# What a site knows of an epoch of secure aggregation as plain values, so that a site that was restarted can go on.
#
# It holds every secret of the epoch: whoever stores it seals it, and stores it before an answer that depends on it leaves.
# Masks that were computed ahead are not part of it; they are computed again.

_NUMBERS = ("number", "n_slots", "length", "next_slot", "n_erased")


def kept_epoch(epoch: Epoch) -> Message:
    """Return everything of an epoch that cannot be computed again."""
    roster, order, peers = epoch.roster, epoch.masked, sorted(epoch.pairs)
    meta: dict[str, Any] = {name: getattr(epoch, name) for name in ("site", *_NUMBERS)}
    meta["own_share"] = epoch.own_share.hex()
    for name in ("signed", "admitted"):
        sites = getattr(epoch, name)
        meta[name] = None if sites is None else sorted(sites)
    if roster is not None:
        meta["roster"] = {name: getattr(roster, name) for name in ("names", "threshold", "data", "min_sites")}
        meta["roster"]["publics"] = [public.hex() for public in roster.publics]
        meta["roster"]["entries"] = [entry.listed() for entry in roster.entries]
    if order is not None:
        meta["masked"] = [order.slot, order.task_digest, order.participants]
    kept = {"secrets": epoch.secrets, "shares": epoch.shares, "expected": epoch.expected}
    arrays = {name: array for name, array in kept.items() if array is not None}
    arrays["key"] = as_bytes([epoch.key.private.private_bytes_raw()])[0]
    if peers:
        meta["peers"] = peers
        arrays["pairs"] = as_bytes([b"".join(vars(epoch.pairs[peer]).values()) for peer in peers])
    return meta, arrays


def epoch_from(message: Message, run: str) -> Epoch:
    """Inverse of `kept_epoch`."""
    meta, arrays = message
    try:
        number, n_slots, length, next_slot, n_erased = (int(meta[name]) for name in _NUMBERS)
        seed = arrays["key"].tobytes()
        epoch = Epoch(
            str(meta["site"]),
            number,
            n_slots,
            length,
            AgreementKey.fresh(lambda n: seed),
            own_share=bytes.fromhex(meta["own_share"]),
            secrets=arrays["secrets"],
            shares=arrays.get("shares"),
            next_slot=next_slot,
            n_erased=n_erased,
            expected=arrays.get("expected"),
            signed=None if meta["signed"] is None else tuple(meta["signed"]),
            admitted=None if meta["admitted"] is None else frozenset(meta["admitted"]),
        )
        if "roster" in meta:
            told = meta["roster"]
            names, publics, data = told["names"], map(bytes.fromhex, told["publics"]), told["data"]
            # One by one: what many sites tell together may be more than one may tell.
            entries = tuple(entry for one in told["entries"] for entry in read_entries([one]))
            about = (int(told["threshold"]), tuple(data), entries, int(told["min_sites"]))
            epoch.roster = Roster(run, number, n_slots, length, tuple(names), tuple(publics), *about)
        if "masked" in meta:
            slot, digest, some = meta["masked"]
            epoch.masked = Order(number, int(slot), str(digest), None if some is None else tuple(some))
        for peer, row in zip(meta.get("peers", ()), arrays.get("pairs", ()), strict=True):
            epoch.pairs[str(peer)] = PairKeys(*(part.tobytes() for part in np.split(row, 4)))
        return epoch
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"the masks that were kept of run {run!r} cannot be read: {error!r}.", code="damaged-state"
        ) from None
