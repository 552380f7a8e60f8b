import numpy as np
import pytest

from feddbn.errors import AggregationError, ParameterError
from feddbn.privacy.integers import combine_shares, lagrange_at_zero, split_secret
from support.saying import refused

pytestmark = pytest.mark.promise


def test_published_case_of_draft_mcgrew_tss_03_section_9():
    shares = {1: bytes.fromhex("B9FA07E185"), 2: bytes.fromhex("F5409B4511")}
    assert combine_shares(shares, 2) == bytes.fromhex("7465737400")


def test_published_case_is_also_produced_when_its_coefficient_is_drawn():
    # With threshold 2 a share is secret + x a, so the published share 1 fixes the drawn coefficient a.
    secret = bytes.fromhex("7465737400")
    drawn = bytes(a ^ b for a, b in zip(secret, bytes.fromhex("B9FA07E185"), strict=True))
    assert [s.hex().upper() for s in split_secret(secret, 2, 2, lambda n: drawn)] == [
        "B9FA07E185",
        "F5409B4511",
    ]


def test_one_share_fewer_is_refused_and_opens_nothing():
    rng = np.random.default_rng(1)
    secret = rng.bytes(32)
    shares = split_secret(secret, 4, 5, rng.bytes)
    three = {x: shares[x - 1] for x in (1, 2, 3)}
    with refused(AggregationError, 3, 4, code="too-few-shares"):
        combine_shares(three, 4)
    assert combine_shares(three, 3) != secret


def test_shares_below_threshold_are_uniform_whatever_the_secret():
    # For each of two secrets the first share takes every byte value exactly once as the coefficient runs
    # over GF(256).
    for secret in (b"\x00", b"\xa7"):
        seen = {split_secret(secret, 2, 2, lambda n, a=a: bytes([a]))[0] for a in range(256)}
        assert len(seen) == 256


def test_largest_roster_works_and_a_larger_one_is_refused():
    rng = np.random.default_rng(2)
    shares = split_secret(b"key", 200, 255, rng.bytes)
    assert combine_shares({x: shares[x - 1] for x in range(56, 256)}, 200) == b"key"
    with pytest.raises(ParameterError, match="threshold=2 and n_shares=256 must satisfy"):
        split_secret(b"key", 2, 256, rng.bytes)


def test_lagrange_weights_reject_repeated_or_impossible_points():
    with refused(AggregationError, code="bad-shares"):
        lagrange_at_zero([1, 1])
    with refused(AggregationError, code="bad-shares"):
        lagrange_at_zero([0, 1])


def test_shares_of_different_length_are_refused():
    with pytest.raises(AggregationError, match="different lengths"):
        combine_shares({1: b"ab", 2: b"a"}, 2)
