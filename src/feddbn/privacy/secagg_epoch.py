"""What one site knows in one epoch of secure aggregation: its secrets slot by slot, the masks they make, and how
they are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from feddbn.privacy.fixed_point import LIMBS, Residues, sum_residues
from feddbn.privacy.keys import KEY_BYTES, AgreementKey, PairKeys, keystream, slot_keys
from feddbn.privacy.secagg import Order, Roster, as_bytes

__all__ = ["Epoch", "slot_secrets"]


@dataclass
class Epoch:
    """Everything secret of one epoch; dropped when the next begins."""

    site: str
    number: int
    n_slots: int
    length: int
    key: AgreementKey
    stream: Callable[[bytes, int, bool], bytes]
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

    def tag_keys_of(self, slot: int, first: int = 0) -> list[bytes]:
        """Key of the tags with each site of the roster, from position `first`, in one slot; zeros for this site
        itself.
        """
        return _keys(self.secrets[slot, 2 + len(self.masking_roster.names) + first :])

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
                parts.append(self.stream(seed, width * LIMBS * 8, is_minus))
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
