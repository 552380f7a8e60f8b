"""What a site knows of an epoch of secure aggregation as plain values, so that a site that was restarted can go on.

It holds every secret of the epoch: whoever stores it seals it, and stores it before an answer that depends on it leaves.
Masks that were computed ahead are not part of it; they are computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from feddbn.errors import StateError
from feddbn.privacy.keys import AgreementKey, PairKeys
from feddbn.privacy.register import read_entries
from feddbn.privacy.secagg import Message, Order, Roster, as_bytes
from feddbn.privacy.secagg_epoch import Epoch

__all__ = ["epoch_from", "kept_epoch"]

Stream = Callable[[bytes, int, bool], bytes]


def kept_epoch(epoch: Epoch) -> Message:
    """Return everything of an epoch that cannot be computed again."""
    meta: dict[str, Any] = {
        "site": epoch.site,
        "number": epoch.number,
        "n_slots": epoch.n_slots,
        "length": epoch.length,
        "next_slot": epoch.next_slot,
        "n_erased": epoch.n_erased,
        "signed": None if epoch.signed is None else list(epoch.signed),
        "admitted": None if epoch.admitted is None else sorted(epoch.admitted),
        "own_share": epoch.own_share.hex(),
    }
    arrays = {"key": as_bytes([epoch.key.private.private_bytes_raw()])[0], "secrets": epoch.secrets}
    if epoch.roster is not None:
        meta["roster"] = _roster_fields(epoch.roster)
    if epoch.masked is not None:
        some = epoch.masked.participants
        meta["masked"] = [epoch.masked.slot, epoch.masked.task_digest, None if some is None else list(some)]
    if epoch.pairs:
        meta["peers"] = sorted(epoch.pairs)
        arrays["pairs"] = as_bytes([_joined(epoch.pairs[peer]) for peer in sorted(epoch.pairs)])
    for name, array in (("shares", epoch.shares), ("expected", epoch.expected)):
        if array is not None:
            arrays[name] = array
    return meta, arrays


def epoch_from(message: Message, run: str, stream: Stream) -> Epoch:
    """Inverse of `kept_epoch`."""
    meta, arrays = message
    try:
        epoch = _read(meta, arrays, run, stream)
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"the masks that were kept of run {run!r} cannot be read: {error!r}.") from None
    return epoch


def _read(meta: dict[str, Any], arrays: dict[str, np.ndarray], run: str, stream: Stream) -> Epoch:
    seed = arrays["key"].tobytes()
    epoch = Epoch(
        str(meta["site"]),
        int(meta["number"]),
        int(meta["n_slots"]),
        int(meta["length"]),
        AgreementKey.fresh(lambda n: seed),
        stream,
    )
    epoch.secrets = arrays["secrets"]
    epoch.own_share = bytes.fromhex(meta["own_share"])
    epoch.next_slot, epoch.n_erased = int(meta["next_slot"]), int(meta["n_erased"])
    epoch.signed = None if meta["signed"] is None else tuple(meta["signed"])
    epoch.admitted = None if meta["admitted"] is None else frozenset(meta["admitted"])
    if "roster" in meta:
        epoch.roster = _roster(meta["roster"], run, epoch)
    if "masked" in meta:
        slot, digest, some = meta["masked"]
        epoch.masked = Order(epoch.number, int(slot), str(digest), None if some is None else tuple(some))
    if "peers" in meta:
        rows = zip(meta["peers"], arrays["pairs"], strict=True)
        epoch.pairs = {str(peer): _pair(row.tobytes()) for peer, row in rows}
    epoch.shares, epoch.expected = arrays.get("shares"), arrays.get("expected")
    return epoch


def _roster_fields(roster: Roster) -> dict[str, Any]:
    return {
        "names": list(roster.names),
        "publics": [public.hex() for public in roster.publics],
        "threshold": roster.threshold,
        "data": list(roster.data),
        "entries": [entry.listed() for entry in roster.entries],
        "min_sites": roster.min_sites,
    }


def _roster(fields: dict[str, Any], run: str, epoch: Epoch) -> Roster:
    return Roster(
        run,
        epoch.number,
        epoch.n_slots,
        epoch.length,
        tuple(fields["names"]),
        tuple(bytes.fromhex(public) for public in fields["publics"]),
        int(fields["threshold"]),
        tuple(fields["data"]),
        # One by one: what many sites tell together may be more than one may tell.
        tuple(entry for one in fields["entries"] for entry in read_entries([one])),
        int(fields["min_sites"]),
    )


def _joined(pair: PairKeys) -> bytes:
    return pair.seal_to_peer + pair.seal_from_peer + pair.seeds + pair.tags


def _pair(joined: bytes) -> PairKeys:
    quarter = len(joined) // 4
    return PairKeys(*(joined[k * quarter : (k + 1) * quarter] for k in range(4)))
