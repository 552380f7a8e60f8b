"""How a site checks the roster that a server proposes: whom it will be added up with, and what these have been part of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from feddbn.errors import AggregationError, ProtocolError
from feddbn.privacy.keys import KEY_BYTES, verify_signature
from feddbn.privacy.register import Entry, check_data, member, read_entries
from feddbn.privacy.secagg import (
    SIGNATURE_BYTES,
    Advert,
    Roster,
    lowest_threshold,
    read_integer,
    read_names,
    refuse_below,
    rows_of,
)
from feddbn.privacy.secagg_epoch import Epoch
from feddbn.privacy.shamir import MAX_SHARES

__all__ = ["checked_roster"]


class Joining(Protocol):
    """Who is asked to join: its name, run and study, and the fewest sites it takes, and how many the study has."""

    name: str
    run: str
    study: str
    min_sites: int
    n_sites: int


def checked_roster(
    site: Joining,
    epoch: Epoch,
    pinned: Mapping[str, bytes],
    meta: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
) -> Roster:
    """Return the roster in a message: enough sites, a high threshold, every key signed for this run and study."""
    listed = meta.get("names")
    names = read_names(meta, "names")
    if list(names) != listed:
        raise ProtocolError("the roster is not sorted by name.")
    n_sites = len(names)
    publics = tuple(row.tobytes() for row in rows_of(arrays, "publics", (n_sites, KEY_BYTES)))
    signatures = [row.tobytes() for row in rows_of(arrays, "signatures", (n_sites, SIGNATURE_BYTES))]
    threshold = read_integer(meta, "threshold")
    data, sets = meta.get("data"), meta.get("sets")
    if not isinstance(data, list) or not isinstance(sets, list) or not len(data) == len(sets) == n_sites:
        raise ProtocolError("the roster does not say what its sites have been part of.")
    asked = [_fewest(value) for value in _listed(meta, "min_sites", n_sites)]
    fewest = max(asked, default=2)
    refuse_below(n_sites, max(fewest, site.min_sites), "this site does not join so small a roster")
    # Of the study, not of the roster: a server that leaves honest sites out does not make colluding ones a third.
    lowest = lowest_threshold(max(n_sites, site.n_sites), fewest)
    if threshold < lowest:
        raise AggregationError(
            f"the threshold {threshold} is too low for {n_sites} sites; it must be {lowest}."
        )
    known: dict[frozenset[str], Entry] = {}
    signers = {member(key, "")[:-1]: key for key in pinned.values()}
    for at, (name, public) in enumerate(zip(names, publics, strict=True)):
        if name not in pinned:
            raise AggregationError(
                f"site {name!r} is on the roster, but no identity key is pinned for it here."
            )
        told = read_entries(sets[at])
        numbers = (epoch.number, epoch.n_slots, epoch.length)
        advert = Advert(site.run, site.study, *numbers, name, public, check_data(data[at]), told, asked[at])
        if not verify_signature(pinned[name], signatures[at], advert.statement):
            raise AggregationError(
                f"the key advertised for site {name!r} is not signed by its pinned identity for this study."
            )
        known |= {entry.members: entry for entry in told if _is_vouched_for(entry, signers, name)}
    if site.name not in names or publics[names.index(site.name)] != epoch.key.public:
        raise AggregationError("the roster does not carry the key this site has advertised.")
    about = (tuple(map(str, data)), tuple(known.values()), fewest)
    return Roster(site.run, epoch.number, epoch.n_slots, epoch.length, names, publics, threshold, *about)


def _listed(meta: Mapping[str, Any], key: str, n: int) -> list[Any]:
    value = meta.get(key)
    if not isinstance(value, list) or len(value) != n:
        raise ProtocolError(f"the roster lacks {key!r} of each of its sites.")
    return value


def _fewest(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 2 <= value <= MAX_SHARES:
        raise ProtocolError("the roster names a number of fewest sites that is none.")
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
        raise AggregationError(f"site {teller!r} tells of an earlier sum that its members have not signed.")
    return True
