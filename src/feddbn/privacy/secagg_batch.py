"""The sites of one process masked together, at the speed of a few large array operations.

Only a simulation may do this. Every site spends its slot by its own rules, under its own keys; what leaves it
is bit for bit what it sends alone (`SecAggSite.masked`). What is shared is arithmetic: numbers of all sites
are encoded at once, and the tags of a pair, which both ends compute, are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.privacy.fixed_point import LIMBS, encode_fixed
from feddbn.privacy.keys import TAG_BYTES, pair_tags
from feddbn.privacy.secagg import Message, Order
from feddbn.privacy.secagg_site import SecAggSite

__all__ = ["mask_together"]


@lru_cache(maxsize=4)
def _places(n_sites: int) -> np.ndarray:
    """Where the two halves of each pair's tags belong in a table [from, to], flattened: (i, j), then (j, i)."""
    first, second = np.triu_indices(n_sites, 1)
    return np.column_stack([first * n_sites + second, second * n_sites + first]).ravel()


def mask_together(sites: Sequence[SecAggSite], order: Order, vectors: FloatArray) -> dict[str, Message]:
    """Return the replies of all sites of a roster, in its order, to one order; the slots are spent already.

    Parameters
    ----------
    sites
        Every site of the roster, sorted by name, each of which has spent `order`'s slot.
    vectors
        (K, n) what they send.
    """
    epochs = [site.epoch(order.epoch) for site in sites]
    n_sites, n = vectors.shape
    slot, context = order.slot, order.context
    y = encode_fixed(vectors.ravel(), n_sites, sites[0].fractional_bits).reshape(LIMBS, n_sites, n)
    digests: list[bytes] = []
    for k, epoch in enumerate(epochs):
        y[:, k] += epoch.mask(slot, n)
        digests += pair_tags(epoch.tag_keys_of(slot, k + 1), context)
    tags = np.zeros((n_sites * n_sites, TAG_BYTES), dtype=np.uint8)
    tags[_places(n_sites)] = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, TAG_BYTES)
    tags = tags.reshape(n_sites, n_sites, TAG_BYTES)
    replies = {}
    for k, (site, epoch) in enumerate(zip(sites, epochs, strict=True)):
        epoch.expected = tags[:, k]
        replies[site.name] = site.masked_reply(order, y[:, k], tags[k])
    return replies
