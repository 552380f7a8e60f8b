"""How a site checks the roster that a server proposes: whom it will be added up with, and what these have been part of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from feddbn.errors import AggregationError, ProtocolError
from feddbn.privacy.keys import KEY_BYTES, verify_signature
from feddbn.privacy.secagg import (
    SIGNATURE_BYTES,
    Advert,
    Roster,
    lowest_threshold,
    read_integer,
    read_names,
    read_sets,
    refuse_below,
    rows_of,
)
from feddbn.privacy.secagg_epoch import Epoch

__all__ = ["checked_roster"]


class Joining(Protocol):
    """Who is asked to join: its name, run and study, and the fewest sites it takes."""

    name: str
    run: str
    study: str
    min_sites: int


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
    refuse_below(n_sites, site.min_sites, "this site does not join so small a roster")
    lowest = lowest_threshold(n_sites, site.min_sites)
    if threshold < lowest:
        raise AggregationError(
            f"the threshold {threshold} is too low for {n_sites} sites; it must be {lowest}."
        )
    known = set[frozenset[str]]()
    for at, (name, public) in enumerate(zip(names, publics, strict=True)):
        if name not in pinned:
            raise AggregationError(
                f"site {name!r} is on the roster, but no identity key is pinned for it here."
            )
        told = read_sets(sets[at])
        numbers = (epoch.number, epoch.n_slots, epoch.length)
        advert = Advert(site.run, site.study, *numbers, name, public, str(data[at]), told)
        if not verify_signature(pinned[name], signatures[at], advert.statement):
            raise AggregationError(
                f"the key advertised for site {name!r} is not signed by its pinned identity for this study."
            )
        known.update(told)
    if site.name not in names or publics[names.index(site.name)] != epoch.key.public:
        raise AggregationError("the roster does not carry the key this site has advertised.")
    about = (tuple(map(str, data)), frozenset(known))
    return Roster(site.run, epoch.number, epoch.n_slots, epoch.length, names, publics, threshold, *about)
