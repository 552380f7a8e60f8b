"""Named arrays and small plain values as bytes, and back: for messages and for stored state.

Layout: 8-byte magic with the format version, SHA-256 of the rest, 4-byte header length, JSON header, raw little-endian
array data. No pickle: decoding can create numbers and text, never code. Anything malformed raises `ProtocolError`
and a decoder never allocates more than the message is long.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from feddbn.errors import ProtocolError

FORMAT_VERSION = 1
_MAGIC = b"FEDDBN" + struct.pack("<H", FORMAT_VERSION)
_DIGEST = 32
_DTYPES = ("<f8", "<f4", "<i8", "<u8", "<i4", "<u4", "|b1", "|u1")


def encode(meta: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> bytes:
    """Return one self-checking byte string for plain JSON values and arrays of numbers."""
    table, chunks = [], []
    for name, array in (arrays or {}).items():
        little = np.asarray(array, order="C")
        little = little.astype(little.dtype.newbyteorder("<"), copy=False)
        if little.dtype.str not in _DTYPES:
            raise ProtocolError(
                f"array {name!r} has dtype {array.dtype}, which messages cannot carry.",
                code="no-plain-numbers",
            )
        table.append([name, little.dtype.str, list(little.shape)])
        chunks.append(little.tobytes())
    header = json.dumps({"meta": dict(meta), "arrays": table}, allow_nan=True, separators=(",", ":")).encode()
    body = struct.pack("<I", len(header)) + header + b"".join(chunks)
    return _MAGIC + hashlib.sha256(body).digest() + body


def decode(message: bytes, most_words: int | None = None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Inverse of `encode`: (meta, arrays). The arrays are fresh and writable; `most_words` bounds the bytes of the header."""
    if message[:6] != _MAGIC[:6]:
        raise ProtocolError(
            "these bytes are not a feddbn message; the first bytes do not match.", code="no-message"
        )
    if message[:8] != _MAGIC:
        raise ProtocolError(
            f"this message has another format version; this package reads version {FORMAT_VERSION}.",
            code="other-format",
        )
    start = 8 + _DIGEST
    body = message[start:]
    if len(body) < 4 or hashlib.sha256(body).digest() != message[8:start]:
        raise ProtocolError("this message is damaged; its checksum does not match.", code="damaged")
    (header_length,) = struct.unpack("<I", body[:4])
    if most_words is not None and header_length > most_words:
        raise ProtocolError(
            f"this message has {header_length:,} bytes of words; the limit is {most_words:,}.",
            code="too-long",
        )
    try:
        header = json.loads(body[4 : 4 + header_length])
        meta, table = dict(header["meta"]), list(header["arrays"])
        arrays: dict[str, np.ndarray] = {}
        offset = 4 + header_length
        for name, dtype, shape in table:
            if dtype not in _DTYPES or any(not isinstance(s, int) or s < 0 for s in shape):
                raise ValueError(f"array {name!r}")
            count = 1
            for size in shape:
                count *= size
            n_bytes = count * np.dtype(dtype).itemsize
            if offset + n_bytes > len(body):
                raise ValueError(f"array {name!r} is longer than the message")
            arrays[str(name)] = (
                np.frombuffer(body, dtype=dtype, count=count, offset=offset).reshape(shape).copy()
            )
            offset += n_bytes
    except (ValueError, KeyError, TypeError, OverflowError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"this message has a malformed header ({error}).", code="bad-header") from None
    if offset != len(body):
        raise ProtocolError("this message has bytes after its last array.", code="bytes-left")
    return meta, arrays


def own_meta(message: bytes) -> dict[str, Any]:
    """Return the plain values of a message that this process has made itself: nothing is checked, no array is read."""
    start = 8 + _DIGEST
    (length,) = struct.unpack("<I", message[start : start + 4])
    return dict(json.loads(message[start + 4 : start + 4 + length])["meta"])
