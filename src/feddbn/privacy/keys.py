"""Identity keys, agreed keys and keystreams; every primitive is the `cryptography` package's.

identity    Ed25519, one for each site, made once, its public half pinned at every other site before any run
agreement   X25519, fresh in every epoch, signed with the identity key
derivation  HKDF-SHA256 of the agreed secret, bound to run, epoch, roster and the two names
masks       ChaCha20 keystream under a key that is used for one mask of one sum
tags        keyed BLAKE2b, by which sites tell each other what they were asked, one key for each sum
shares      ChaCha20-Poly1305 between two sites, one message for each key
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from feddbn.errors import AggregationError, MissingExtra, ParameterError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:  # pragma: no cover - exercised by installing without the extra
    raise MissingExtra("cryptography", "privacy") from error

KEY_BYTES = 32
TAG_BYTES = 16
RandomBytes = Callable[[int], bytes]
_ZERO_NONCE = bytes(16)
_LABEL = b"feddbn secure aggregation 1 "


@dataclass(frozen=True)
class Identity:
    """A site's long-lived signing key; `public` is what its peers pin."""

    private: Ed25519PrivateKey

    @classmethod
    def from_seed(cls, seed: bytes) -> Identity:
        """Identity of 32 secret bytes; make them with ``os.urandom(32)`` and keep them at the site."""
        if len(seed) != KEY_BYTES:
            raise ParameterError(f"an identity seed has {KEY_BYTES} bytes, got {len(seed)}.")
        return cls(ed25519.Ed25519PrivateKey.from_private_bytes(seed))

    @property
    def public(self) -> bytes:
        """32 bytes that every peer pins."""
        return self.private.public_key().public_bytes_raw()

    def sign(self, statement: bytes) -> bytes:
        """Ed25519 signature (64 bytes)."""
        return self.private.sign(_LABEL + statement)


def verify_signature(public: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether the owner of `public` signed `statement`."""
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(signature, _LABEL + statement)
    except InvalidSignature:
        return False
    return True


def pinned_keys(identities: Mapping[str, Identity]) -> dict[str, bytes]:
    """Return the public keys that each site of a simulation pins for all sites."""
    return {name: identity.public for name, identity in identities.items()}


@dataclass(frozen=True)
class PairKeys:
    """What two sites share: a sealing key for each direction, the sources of mask seeds and of tag keys."""

    seal_to_peer: bytes
    seal_from_peer: bytes
    seeds: bytes
    tags: bytes


@dataclass(frozen=True)
class AgreementKey:
    """A site's X25519 key of one epoch."""

    private: X25519PrivateKey

    @classmethod
    def fresh(cls, random_bytes: RandomBytes) -> AgreementKey:
        """Return a new key from the site's own randomness."""
        return cls(x25519.X25519PrivateKey.from_private_bytes(random_bytes(KEY_BYTES)))

    @property
    def public(self) -> bytes:
        """32 bytes to advertise."""
        return self.private.public_key().public_bytes_raw()

    def agree(self, me: str, peer: str, peer_public: bytes, context: bytes) -> PairKeys:
        """Keys shared with `peer`; equal at both ends only if both saw the same `context` (run, epoch,
        roster).
        """
        try:
            secret = self.private.exchange(x25519.X25519PublicKey.from_public_bytes(peer_public))
        except ValueError:
            raise AggregationError(
                f"the key advertised for site {peer!r} is not a valid X25519 key.", code="bad-key"
            ) from None
        first, second = sorted((me, peer))
        info = (
            _LABEL
            + context
            + hashlib.sha256(first.encode()).digest()
            + hashlib.sha256(second.encode()).digest()
        )
        okm = HKDF(algorithm=hashes.SHA256(), length=4 * KEY_BYTES, salt=None, info=info).derive(secret)
        up, down, seeds, tags = okm[:32], okm[32:64], okm[64:96], okm[96:]
        return PairKeys(up, down, seeds, tags) if me == first else PairKeys(down, up, seeds, tags)


def keystream(key: bytes, n_bytes: int, complement: bool = False) -> bytes:
    """First `n_bytes` of the ChaCha20 keystream under `key`, or their complement; a key makes one stream."""
    return Cipher(ChaCha20(key, _ZERO_NONCE), mode=None).encryptor().update(_pad(n_bytes, complement))


@lru_cache(maxsize=8)
def _pad(n_bytes: int, complement: bool) -> bytes:
    return (b"\xff" if complement else b"\x00") * n_bytes


def slot_keys(pair_seed: bytes, n_slots: int) -> bytes:
    """32 bytes for each slot of an epoch, in slot order."""
    return keystream(pair_seed, n_slots * KEY_BYTES)


def pair_tags(keys: Sequence[bytes], context: bytes) -> list[bytes]:
    """32 bytes for each peer by which two sites know that they were asked the same: keyed BLAKE2b (RFC 7693).

    Of two sites the one whose name comes first sends the first half, the other the second. A key serves one
    context at each end, and neither half says anything about the other half, or about any other context.
    """
    return [hashlib.blake2b(context, key=key, digest_size=2 * TAG_BYTES).digest() for key in keys]


def commitment(secret: bytes) -> bytes:
    """SHA-256 commitment to a random 32-byte secret, so that a wrong share is noticed when the secret is
    opened.
    """
    return hashlib.sha256(_LABEL + b"commitment" + secret).digest()


def seal(key: bytes, plaintext: bytes, context: bytes) -> bytes:
    """Encrypt and authenticate one message under a key that seals nothing else."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), plaintext, context)


def open_sealed(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Inverse of `seal`; a changed byte, another key or another context raises."""
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), sealed, context)
    except InvalidTag:
        raise AggregationError(
            "a sealed message was altered, or sealed for another site, run or roster.", code="altered-seal"
        ) from None
