"""Parts of answers for two keepers: what a part is bound to, and what keepers sign.

Theory of operation
-------------------
A site splits its answers to a batch of questions into two shares, with a proof that rows could have made them
(`privacy.prio3`). A *part* is the share for one keeper, sealed for it and signed by the site with a *label*: run, study,
number of the batch, digests of its questions, site, keeper, version of the site's data, fewest sites in the sum. Whoever
carries parts can neither read nor change them, nor use one in another run, batch or place.

The two parts of a site have one *report*: the label without the keeper. Keepers tell each other the digest of the report
with their shares of the verifier, so that two parts of different reports are never put together. How many questions of the
batch the site has answered is sealed with the share.

Everything random in a part follows from the site's secret key, its label and the answers. So the same question gets the same
bytes again, and other answers have other randomness.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.encoding import decode, encode
from feddbn.errors import AggregationError, ProtocolError
from feddbn.privacy.keys import KEY_BYTES, Identity, SealingKey, seal_for, verify_signature

NONCE_BYTES = 16
NUMBER_BYTES = 16
"""Bytes of each number in a share of an answer or of a sum."""
MOST_TASKS = 255
_HEX = re.compile("[0-9a-f]*")


class Vdaf(Protocol):
    """What shares and proves an answer: a verifiable distributed aggregation function."""

    @property
    def rand_size(self) -> int:
        """How many random bytes a report takes."""
        ...

    def shard(self, vector: FloatArray, nonce: bytes, rand: bytes) -> tuple[bytes, Sequence[bytes]]:
        """Return what both keepers see, and each one's share."""
        ...

    def verify_init(
        self, verify_key: bytes, keeper_index: int, nonce: bytes, public: bytes, share: bytes
    ) -> tuple[Any, bytes]:
        """Return a keeper's state and its share of the verifier."""
        ...

    def verify_finish(self, state: Any, verifier_shares: Sequence[bytes]) -> bytes:
        """Return a keeper's share of the answer, or raise where the proof does not hold."""
        ...

    def add(self, out_shares: Sequence[bytes]) -> bytes:
        """Return a keeper's share of the sum."""
        ...

    def unshard(self, sums: Sequence[bytes], n_reports: int) -> FloatArray:
        """Return the sum."""
        ...


@dataclass(frozen=True)
class KeeperKeys:
    """What others know of a keeper: the key it signs with, and the one that parts are sealed for."""

    sign: bytes
    seal: bytes

    def to_hex(self) -> str:
        """Return both as 128 hexadecimal digits."""
        return (self.sign + self.seal).hex()

    @classmethod
    def from_hex(cls, text: str) -> KeeperKeys:
        """Inverse of `to_hex`."""
        found = bytes.fromhex(text)
        return cls(found[:KEY_BYTES], found[KEY_BYTES:])

    @classmethod
    def of_seed(cls, seed: bytes) -> KeeperKeys:
        """Public keys of a keeper's 32 secret bytes."""
        return cls(Identity.from_seed(seed).public, SealingKey.from_seed(seed).public)


@dataclass(frozen=True)
class Batch:
    """Questions that are answered, and opened, together.

    `seq` is the number of the first in its run, `lengths` say how many numbers the answer to each has. `known` is the digest
    of an earlier sum by which answers are bounded; empty where there is none.
    """

    run: str
    study: str
    seq: int
    tasks: tuple[str, ...]
    lengths: tuple[int, ...]
    keepers: tuple[str, ...]
    known: str = ""

    @property
    def context(self) -> bytes:
        """What every proof is bound to."""
        return hashlib.sha256(b"feddbn batch " + _canonical(asdict(self))).digest()


@dataclass(frozen=True)
class Label:
    """What a part is bound to."""

    batch: Batch
    site: str
    data: str
    fewest: int
    nonce: str = ""
    public: str = ""
    keeper: str = ""

    @property
    def report(self) -> str:
        """Digest of what the two parts have in common."""
        return hashlib.sha256(b"report " + replace(self, keeper="").bytes).hexdigest()

    @property
    def bytes(self) -> bytes:
        """All of it."""
        return _canonical(asdict(self))


@dataclass(frozen=True)
class Part:
    """One site's part for one keeper."""

    label: Label
    public: bytes
    sealed: bytes


def _canonical(values: Any) -> bytes:
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode()


def make_parts(
    label: Label,
    vector: FloatArray,
    n_answered: int,
    vdaf: Vdaf,
    identity: Identity,
    keepers: Mapping[str, KeeperKeys],
) -> dict[str, bytes]:
    """Return a site's part for each keeper of the batch; the same again for the same answers."""
    answers = hashlib.sha256(
        np.ascontiguousarray(vector, dtype="<f8").tobytes() + bytes([n_answered])
    ).digest()
    secret = hashlib.sha256(identity.sign(b"secret of parts " + label.bytes + answers)).digest()

    def drawn(what: str, n_bytes: int) -> bytes:
        return hashlib.shake_256(secret + what.encode()).digest(n_bytes)

    nonce = drawn("nonce", NONCE_BYTES)
    public, shares = vdaf.shard(vector, nonce, drawn("shares", vdaf.rand_size))
    label = replace(label, nonce=nonce.hex(), public=hashlib.sha256(public).hexdigest())
    parts = {}
    for keeper, share in zip(label.batch.keepers, shares, strict=True):
        own = replace(label, keeper=keeper)
        content = bytes([n_answered]) + share
        sealed = seal_for(keepers[keeper].seal, content, own.bytes, drawn(f"seal {keeper}", KEY_BYTES))
        parts[keeper] = signed(
            identity, label.site, "part", asdict(own), {"public": _array(public), "sealed": _array(sealed)}
        )
    return parts


def read_part(message: bytes, batch: Batch, site: str, keeper: str, key: bytes) -> Part:
    """Return a site's part for a keeper; one that belongs elsewhere, or that the site did not sign, is refused."""
    meta, arrays = read_signed(message, site, "part", key)
    part = _part(meta, arrays)
    if (part.label.batch, part.label.site, part.label.keeper) != (batch, site, keeper):
        raise AggregationError(
            f"the part of site {site!r} is for another run, study, batch, site or keeper.", code="other-part"
        )
    return part


def peek(message: bytes) -> Label:
    """Return the label of a part without looking at its signature: for whoever carries it."""
    _, arrays = decode(message)
    if "message" not in arrays:
        raise ProtocolError("a part for a keeper is malformed.", code="bad-part")
    return _part(*decode(arrays["message"].tobytes())).label


def _part(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Part:
    try:
        values = dict(meta)
        batch = dict(values.pop("batch"))
        tasks, keepers = tuple(map(str, batch["tasks"])), tuple(map(str, batch["keepers"]))
        if len(tasks) > MOST_TASKS:
            raise ValueError("too many questions")
        lengths = tuple(map(int, batch["lengths"]))
        words = str(batch["run"]), str(batch["study"])
        of = Batch(*words, int(batch["seq"]), tasks, lengths, keepers, str(batch["known"]))
        texts = {name: str(values[name]) for name in ("site", "data", "nonce", "public", "keeper")}
        if not all(_HEX.fullmatch(texts[name]) for name in ("data", "nonce", "public")):
            raise ValueError("no hexadecimal digits")
        label = Label(of, fewest=int(values["fewest"]), **texts)
        public, sealed = arrays["public"].tobytes(), arrays["sealed"].tobytes()
        if _canonical(asdict(label)) != _canonical(meta):
            raise ValueError("more than a label")
        if hashlib.sha256(public).hexdigest() != label.public or len(label.nonce) != 2 * NONCE_BYTES:
            raise ValueError("another public share")
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"a part for a keeper is malformed ({error}).", code="bad-part") from None
    return Part(label, public, sealed)


# What keepers say, and what sites sign: a message within a message, with the signature of its writer.


def signed(
    identity: Identity, by: str, kind: str, meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> bytes:
    """Return a message with the signature of its writer."""
    inner = encode(meta, arrays)
    signature = identity.sign(_statement(by, kind, inner)).hex()
    return encode({"by": by, "kind": kind, "signature": signature}, {"message": _array(inner)})


def read_signed(
    message: bytes, by: str, kind: str, key: bytes
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Inverse of `signed`; what another one wrote, or of another kind, is refused."""
    meta, arrays = decode(message)
    try:
        inner = arrays["message"].tobytes()
        signature = bytes.fromhex(str(meta["signature"]))
        is_signed = verify_signature(key, signature, _statement(by, kind, inner))
    except (KeyError, ValueError):
        is_signed = False
    if not is_signed:
        raise AggregationError(f"this is no {kind} that {by!r} has signed.", code="not-signed")
    return decode(inner)


def _statement(by: str, kind: str, inner: bytes) -> bytes:
    return b"keepers " + _canonical([kind, by]) + hashlib.sha256(inner).digest()


def sum_context(batch: Batch, sites: Sequence[str], n_tasks: int) -> bytes:
    """What a keeper's share of a sum is sealed with."""
    return b"sum " + batch.context + _canonical([list(sites), n_tasks])


def _array(content: bytes) -> np.ndarray:
    return np.frombuffer(content, dtype=np.uint8)
