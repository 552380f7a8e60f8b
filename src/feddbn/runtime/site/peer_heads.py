"""What sites hold of each other's audit logs, in their stores.

A site gives its head at the greeting and at the end of a run; the server carries it to the others. Each checks it
with the key it has pinned, keeps the one that reaches furthest, and gives a receipt for it. A site that is shown its own
signature under a longer log than it has knows that its log was rolled back. The server can keep heads from arriving;
`feddbn site verify` shows how old those are that did.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from feddbn.errors import FileError
from feddbn.privacy.audit import (
    Head,
    Receipt,
    against_log,
    contradiction,
    is_signed,
    read_head,
    read_receipt,
    signed_receipt,
    well_formed,
)
from feddbn.runtime.site.audit import SiteAudit
from feddbn.runtime.store import Store

MOST_ODD = 8
PEERS = "_peers"


@dataclass(frozen=True)
class Peer:
    """What is known of one other site: its head that reaches furthest, heads that contradict what was held then, and its
    receipt: its word that it holds a head of this site.
    """

    site: str
    held: Head | None = None
    odd: tuple[Head, ...] = field(default=())
    receipt: Receipt | None = None


_PEER = TypeAdapter(Peer)


class PeerHeads:
    """A site's end of the exchange of heads; `keys` are those that its owner has pinned."""

    def __init__(
        self, audit: SiteAudit, keys: Mapping[str, bytes], warn: Callable[[str], None] = lambda sentence: None
    ) -> None:
        self._audit = audit
        self._keys = {site: key for site, key in keys.items() if site != audit.site}
        self._warn = warn
        self._store = Store(audit.state)
        self._read: dict[str, tuple[bytes, Peer]] = {}

    def head(self) -> dict[str, Any] | None:
        """Return this site's head, to be carried to the others."""
        head = self._audit.head()
        return None if head is None else head.fields()

    def hear(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the heads and receipts that came from others; return receipts.

        What is malformed, or not signed by a pinned key, is passed over: the server could have made it up.
        """
        most = len(self._keys)
        receipts = [self._keep(head) for head in well_formed(meta.get("heads"), read_head, most)]
        given = [
            word for word in well_formed(meta.get("receipts"), read_receipt, most) if self._keep_receipt(word)
        ]
        entries = self._audit.entries() if given else []
        for receipt in given:
            wrong = against_log(receipt.head, entries)
            if wrong is not None:
                self._tell(
                    f"this site's own audit log was rolled back: {receipt.holder} holds its signed head, and {wrong}; "
                    "restore the state from a copy, and trust no budget before that."
                )
        return {"receipts": [receipt.fields() for receipt in receipts if receipt is not None]}

    def all(self) -> list[Peer]:
        """Return what is known of each other site, sorted by name; what is damaged counts as nothing."""
        return [self._load(site) for site in sorted(self._keys)]

    def _keep(self, head: Head) -> Receipt | None:
        key, identity = self._keys.get(head.site), self._audit.identity
        if key is None or identity is None or not is_signed(head, key):
            return None
        with self._store.hold():
            peer = self._load(head.site)
            held = peer.held or head
            wrong = contradiction(held, head)
            # The same contradiction again, which the server can send as often as it likes, is not told again.
            is_news = wrong is not None and head not in peer.odd and len(peer.odd) < MOST_ODD
            if is_news:
                self._put(replace(peer, odd=(*peer.odd, head)))
            elif peer.held is None or head.n_entries > held.n_entries:
                held = head
                self._put(replace(peer, held=held))
        if is_news:
            self._tell(f"{wrong}; ask its owner.")
        return signed_receipt(identity, self._audit.site, held)

    def _keep_receipt(self, receipt: Receipt) -> bool:
        """Keep a receipt for a head of this site, if it is one and reaches further than the last."""
        key, own, head = self._keys.get(receipt.holder), self._audit.key, receipt.head
        if key is None or own is None or head.site != self._audit.site:
            return False
        if not is_signed(receipt, key) or not is_signed(head, own):
            return False
        with self._store.hold():
            peer = self._load(receipt.holder)
            is_news = peer.receipt is None or head.n_entries > peer.receipt.head.n_entries
            if is_news:
                self._put(replace(peer, receipt=receipt))
        return is_news

    def _tell(self, sentence: str) -> None:
        self._audit.note("warning", "heads", sentence, asked_by=self._audit.site)
        self._warn(sentence)

    def _load(self, site: str) -> Peer:
        """Return what is held of a site; its signatures are checked when it has changed."""
        stored = self._store.get(PEERS, site)
        if stored is None:
            return Peer(site)
        if site not in self._read or self._read[site][0] != stored:
            self._read[site] = (stored, self._checked(site, stored))
        return self._read[site][1]

    def _checked(self, site: str, stored: bytes) -> Peer:
        try:
            peer = _PEER.validate_json(stored)
        except ValidationError:
            self._warn(f"what this site held of {site}'s audit log was damaged and is begun anew.")
            return Peer(site)
        # Whoever can write the store cannot make up heads; what is not signed is forgotten.
        key, own = self._keys[site], self._audit.key
        held = peer.held if peer.held is not None and is_signed(peer.held, key) else None
        receipt = peer.receipt
        if receipt is not None and (
            own is None or not is_signed(receipt, key) or not is_signed(receipt.head, own)
        ):
            receipt = None
        return Peer(site, held, tuple(head for head in peer.odd if is_signed(head, key)), receipt)

    def _put(self, peer: Peer) -> None:
        self._store.put(PEERS, peer.site, _PEER.dump_json(peer))


def own_heads(state: Path, site: str, key: bytes) -> list[Head]:
    """Return the heads of this site that others have given receipts for, as its own store holds them."""
    found, store = [], Store(state)
    for name in store.names(PEERS):
        with contextlib.suppress(ValidationError):
            receipt = _PEER.validate_json(store.get(PEERS, name) or b"").receipt
            if receipt is not None and receipt.head.site == site and is_signed(receipt.head, key):
                found.append(receipt.head)
    return found


@dataclass(frozen=True)
class Export:
    """What a person hands to another: a site's head, those it holds, also odd ones, and the receipts it has."""

    site: str
    own: Head | None
    held: tuple[Head, ...]
    odd: tuple[Head, ...]
    receipts: tuple[Receipt, ...]
    type: Literal["feddbn audit heads"] = "feddbn audit heads"
    version: Literal[1] = 1


_EXPORT = TypeAdapter(Export)


def export_heads(heads: PeerHeads, audit: SiteAudit) -> str:
    """Return, as JSON to hand to another person, this site's head, those it holds and the receipts it has."""
    peers = heads.all()
    exported = Export(
        audit.site,
        audit.head(),
        tuple(peer.held for peer in peers if peer.held is not None),
        tuple(head for peer in peers for head in peer.odd),
        tuple(peer.receipt for peer in peers if peer.receipt is not None),
    )
    return _EXPORT.dump_json(exported, indent=1).decode() + "\n"


def read_export(path: Path, keys: Mapping[str, bytes]) -> Export:
    """Return the heads in a file from another person; every signature is checked with the pinned keys."""
    try:
        found = _EXPORT.validate_json(Path(path).read_bytes())
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}.") from None
    except ValidationError:
        raise FileError(
            f"{path} does not hold heads of audit logs; `feddbn site verify --out` writes them.",
            code="no-heads",
        ) from None
    own = found.own
    for word in (*(() if own is None else (own,)), *found.held, *found.odd, *found.receipts):
        signer = word.site if isinstance(word, Head) else word.holder
        if signer not in keys or not is_signed(word, keys[signer]):
            raise FileError(
                f"{path} holds a head that {signer} did not sign, or its key is not in peers.toml.",
                code="not-signed",
            )
    if own is not None and own.site != found.site:
        raise FileError(f"{path} is of {found.site}, but its own head is of {own.site}.", code="foreign-head")
    return found


def compare(heads: PeerHeads, audit: SiteAudit, other: Export) -> list[str]:
    """Return everything in which another person's heads contradict this site's log or the heads it holds."""
    found: list[str] = []
    entries = audit.entries()
    for head in (*other.held, *other.odd, *(receipt.head for receipt in other.receipts)):
        wrong = against_log(head, entries) if head.site == audit.site else None
        if wrong is not None:
            found.append(f"{other.site} holds a head of this site's log, and {wrong}")
    known: Sequence[Peer] = heads.all()
    for peer in known:
        shown = [
            head
            for head in (other.own, *other.held, *other.odd)
            if head is not None and head.site == peer.site
        ]
        for head in shown if peer.held is not None else ():
            assert peer.held is not None
            wrong = contradiction(peer.held, head) or contradiction(head, peer.held)
            if wrong is not None:
                found.append(wrong)
    return list(dict.fromkeys(found))
