"""What the server expects in the replies to each phase of secure aggregation, and whose reply is something else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from feddbn.errors import ProtocolError
from feddbn.privacy.fixed_point import LIMBS
from feddbn.privacy.keys import KEY_BYTES, TAG_BYTES
from feddbn.privacy.majority import odd_ones
from feddbn.privacy.register import check_data, read_entries
from feddbn.privacy.secagg import KIND, SIGNATURE_BYTES, Message, read_integer, rows_of
from feddbn.privacy.shamir import MAX_SHARES

__all__ = ["TOLD", "Asked", "told_by"]

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
            raise ProtocolError(f"site {site!r} did not answer the {answer!r} phase of run {self.run!r}.")
        if meta.get("epoch") != self.epoch or meta.get("site") != site:
            raise ProtocolError(f"site {site!r} answered for another epoch, or for another site.")
        if self.whom is not None and (meta.get("slot") != self.slot or site not in self.whom):
            raise ProtocolError(f"site {site!r} answered for another slot, or twice, or was not asked.")
        vectors = [_masked_vector(site, arrays)] if self.phase == "masked" else []
        try:
            if self.phase == "advertise":
                told_by(meta)
            return vectors + [rows_of(arrays, key, shape) for key, shape in self._shapes().items()]
        except ProtocolError as error:
            raise ProtocolError(f"site {site!r}: {error}") from None

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
        raise ProtocolError(f"site {site!r} sent something that is not a masked vector.")
    return y


def told_by(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a site tells the others with its key: its data, the sums it knows of, the fewest sites it asks for."""
    fewest = read_integer(meta, "min_sites")
    if not 2 <= fewest <= MAX_SHARES:
        raise ProtocolError(f"it asks for sums of at least {fewest} sites.")
    sets = [entry.listed() for entry in read_entries(meta.get("sets"))]
    return {"data": check_data(meta.get("data")), "sets": sets, "min_sites": fewest}
