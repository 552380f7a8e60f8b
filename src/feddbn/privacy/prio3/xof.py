"""Seeds and random field elements from TurboSHAKE128 (RFC 9861), as the VDAF draft has it (XofTurboShake128).

The hashed message is ``len(tag) || tag || len(seed) || seed || binder``. The domain separation tag says which
version of the draft, which algorithm and which use of it a stream is for, and ends with the application's context,
so that no two uses share a stream.
"""

from __future__ import annotations

import numpy as np

from feddbn.errors import MissingExtra
from feddbn.privacy.prio3.field import Elements, Field

try:
    from Crypto.Hash import TurboSHAKE128
except ImportError as error:  # pragma: no cover
    raise MissingExtra("pycryptodome", "keepers") from error

__all__ = ["SEED_SIZE", "VERSION", "Xof", "derive_seed", "domain_tag", "expand"]

VERSION = 18
"""The draft whose encodings these are (draft-irtf-cfrg-vdaf-18)."""
SEED_SIZE = 32
"""Bytes of a seed."""


def domain_tag(algorithm: int, usage: int, context: bytes) -> bytes:
    """Return the tag of one use (`usage`) of one VDAF (`algorithm`) in one application (`context`)."""
    return bytes([VERSION, 0]) + algorithm.to_bytes(4, "big") + usage.to_bytes(2, "big") + context


class Xof:
    """A stream of bytes from a seed, a domain separation tag and a binder."""

    def __init__(self, seed: bytes, tag: bytes, binder: bytes) -> None:
        message = len(tag).to_bytes(2, "little") + tag + len(seed).to_bytes(1, "little") + seed + binder
        self._stream = TurboSHAKE128.new(data=message, domain=1)

    def next(self, length: int) -> bytes:
        """Return the next bytes."""
        return bytes(self._stream.read(length))

    def next_vec(self, field: Field, length: int) -> Elements:
        """Return the next elements: chunks of the stream one after another, without those that are not below p."""
        found: list[Elements] = []
        while missing := length - sum(map(len, found)):
            drawn = np.frombuffer(bytearray(self.next(missing * field.encoded_size)), dtype=field.dtype)
            found.append(drawn[~field.too_large(drawn)])
        return np.concatenate(found) if found else field.zeros(0)


def derive_seed(seed: bytes, tag: bytes, binder: bytes) -> bytes:
    """Return a new seed."""
    return Xof(seed, tag, binder).next(SEED_SIZE)


def expand(field: Field, seed: bytes, tag: bytes, binder: bytes, length: int) -> Elements:
    """Return `length` random elements from a seed."""
    return Xof(seed, tag, binder).next_vec(field, length)
