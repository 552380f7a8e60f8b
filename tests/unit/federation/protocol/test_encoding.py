"""Bytes and back; whatever is not ours is refused with one kind of error."""

from __future__ import annotations

import hashlib
import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from feddbn.errors import ProtocolError
from feddbn.federation.protocol.encoding import decode, encode, own_meta
from support.saying import refused

SAMPLE = encode(
    {"task": "moments", "round": 3, "nested": {"a": [1, 2.5, None, True]}},
    {"C": np.arange(6.0).reshape(2, 3), "mask": np.array([True, False]), "n": np.array(7, dtype=np.int64)},
)


def seal(body: bytes) -> bytes:
    """Return a message with a right magic and checksum around any body."""
    return SAMPLE[:8] + hashlib.sha256(body).digest() + body


def with_header(header: object, payload: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return seal(struct.pack("<I", len(text)) + text + payload)


def test_round_trip_keeps_values_types_and_shapes() -> None:
    meta, arrays = decode(SAMPLE)
    assert meta == {"task": "moments", "round": 3, "nested": {"a": [1, 2.5, None, True]}}
    np.testing.assert_array_equal(arrays["C"], np.arange(6.0).reshape(2, 3))
    assert arrays["mask"].dtype == bool
    assert arrays["n"].shape == ()
    assert int(arrays["n"]) == 7
    arrays["C"][0, 0] = 9.0
    assert encode(*decode(SAMPLE)) == SAMPLE


@given(
    array=hnp.arrays(
        st.sampled_from([np.float64, np.float32, np.int64, np.uint32, np.bool_, np.uint8]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    meta=st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text(), max_size=3),
)
def test_any_array_and_plain_values_round_trip(array: np.ndarray, meta: dict[str, object]) -> None:
    back, arrays = decode(encode(meta, {"a": array}))
    assert back == meta
    assert arrays["a"].dtype == array.dtype
    np.testing.assert_array_equal(arrays["a"], array)


def test_big_endian_and_transposed_arrays_arrive_whole() -> None:
    for array in (np.arange(6.0).reshape(2, 3).T, np.arange(3, dtype=">f8")):
        np.testing.assert_array_equal(decode(encode({}, {"a": array}))[1]["a"], array)


@given(data=st.data())
def test_mutated_bytes_raise_nothing_but_protocol_errors(data: st.DataObject) -> None:
    message = bytearray(SAMPLE)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(message) - 1))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert"]))
        if kind == "flip":
            message[at] ^= data.draw(st.integers(1, 255))
        elif kind == "cut" and at > 0:
            del message[at:]
        else:
            message[at:at] = data.draw(st.binary(min_size=1, max_size=8))
    if bytes(message) != SAMPLE:
        with pytest.raises(ProtocolError):
            decode(bytes(message))


@given(data=st.data())
def test_mutated_bodies_with_a_right_checksum_decode_or_raise_protocol_errors(data: st.DataObject) -> None:
    body = bytearray(SAMPLE[40:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        meta, arrays = decode(seal(bytes(body)))
    except ProtocolError:
        return
    assert isinstance(meta, dict)
    assert all(isinstance(array, np.ndarray) for array in arrays.values())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    header=json_values
    | st.fixed_dictionaries({"meta": json_values, "arrays": json_values})
    | st.fixed_dictionaries(
        {
            "meta": st.just({}),
            "arrays": st.lists(
                st.tuples(
                    json_values, st.sampled_from(["<f8", "|b1", "|O", "<U4"]) | json_values, json_values
                ),
                max_size=2,
            ),
        }
    ),
    payload=st.binary(max_size=16),
)
def test_any_header_decodes_or_raises_protocol_errors(header: object, payload: bytes) -> None:
    try:
        decode(with_header(header, payload))
    except ProtocolError:
        return


@given(st.binary(max_size=100))
def test_random_bytes_are_refused(message: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(message)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"", "no-message"),
        (b"hello world, this is not it", "no-message"),
        (SAMPLE[:6] + b"\x09\x00" + SAMPLE[8:], "other-format"),
        (SAMPLE[:-1], "damaged"),
        (SAMPLE[:8], "damaged"),
        (seal(SAMPLE[40:] + b"x"), "bytes-left"),
        (seal(struct.pack("<I", 2**31) + b"{}"), "bad-header"),
        (with_header([]), "bad-header"),
        (seal(struct.pack("<I", 200_000) + b"[" * 200_000), "bad-header"),
        (with_header({"meta": {}, "arrays": [["a", "|O", [1]]]}, b"12345678"), "bad-header"),
        (with_header({"meta": {}, "arrays": [["a", "<f8", [-1]]]}), "bad-header"),
        (with_header({"meta": {}, "arrays": [["a", "<f8", [2**40]]]}), "bad-header"),
        (with_header({"meta": {}, "arrays": [["a", "<f8", [0, 2**70]]]}), "bad-header"),
    ],
)
def test_malformed_messages_are_refused_with_the_reason(message: bytes, code: str) -> None:
    with refused(ProtocolError, code=code):
        decode(message)


@pytest.mark.parametrize("dtype", ["O", "U3", "c16", "M8[s]"])
def test_arrays_that_are_no_plain_numbers_cannot_be_sent(dtype: str) -> None:
    with refused(ProtocolError, "'a'", code="no-plain-numbers"):
        encode({}, {"a": np.zeros(2, dtype=dtype)})


def test_plain_values_of_an_own_message_are_read_without_its_arrays():
    meta = {"kind": "refusal", "sentence": "no", "n": [1, 2.5, None]}
    assert own_meta(encode(meta, {"x": np.arange(5.0)})) == decode(encode(meta))[0] == meta
