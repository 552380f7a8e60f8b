import numpy as np
import pytest

from feddbn.errors import AggregationError, ParameterError
from feddbn.privacy.fixed_point import (
    absolute_error_bound,
    decode_fixed,
    encode_fixed,
    sum_residues,
)


def test_mixed_magnitudes_keep_nine_digits_in_one_vector():
    rng = np.random.default_rng(0)
    scale = np.array([1e6, 1e12, 1.0, 1e-3, 1e-8])
    parts = [rng.uniform(0.5, 1.0, 5) * scale for _ in range(64)]
    total = decode_fixed(sum_residues([encode_fixed(part, 64) for part in parts], 5))
    np.testing.assert_allclose(total, np.sum(parts, axis=0), rtol=1e-9)


def test_negative_numbers_are_residues_from_above():
    residues = encode_fixed(np.array([-1.0, -(2.0**-64), -0.0, 2.0**-64]), 1)
    top = 2**64 - 1
    # Minus x is the complement of x, which is one step below -x: within the error bound.
    assert residues.tolist() == [[top, top - 1, 0, 1], [top - 1, top, 0, 0]]
    assert decode_fixed(residues).tolist() == [-1.0, -(2.0**-63), 0.0, 2.0**-64]


def test_number_below_resolution_becomes_zero():
    assert decode_fixed(encode_fixed(np.array([1e-21]), 1)).tolist() == [0.0]
    assert absolute_error_bound(3) == 3 * 2.0**-64


def test_more_fractional_bits_resolve_smaller_numbers():
    x = np.array([1e-21, -3e-25])
    back = decode_fixed(encode_fixed(x, 1, fractional_bits=110), fractional_bits=110)
    np.testing.assert_allclose(back, x, rtol=1e-7)


def test_number_that_could_overflow_is_refused_with_its_size():
    limit = 2.0**62 / 10
    encode_fixed(np.array([limit * 0.99]), 10)
    with pytest.raises(AggregationError, match="could overflow a sum over 10 sites; rescale the variables"):
        encode_fixed(np.array([1.0, -limit]), 10)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_number_that_is_not_finite_is_refused(bad):
    with pytest.raises(AggregationError, match="NaN or infinity, which cannot be masked; nothing was sent"):
        encode_fixed(np.array([1.0, bad]), 3)


def test_fractional_bits_out_of_range_are_named():
    with pytest.raises(ParameterError, match="fractional_bits must be between 0 and 120, got 121"):
        encode_fixed(np.zeros(1), 1, fractional_bits=121)


def _integers(residues):
    return [int(low) + (int(high) << 64) for low, high in zip(*residues.tolist(), strict=True)]


@pytest.mark.parametrize("n_parts", [1, 2, 3, 40])
@pytest.mark.parametrize("plus", [0, 1, 2**63])
def test_keystream_bytes_and_residues_add_modulo_two_to_128(n_parts, plus):
    rng = np.random.default_rng(1)
    arrays = [np.frombuffer(rng.bytes(16 * 7), dtype=np.uint64).reshape(2, 7) for _ in range(n_parts)]
    expected = [(sum(column) + plus) % 2**128 for column in zip(*map(_integers, arrays), strict=True)]
    assert _integers(sum_residues([a.tobytes() for a in arrays], 7, plus)) == expected
    assert _integers(sum_residues(arrays, 7, plus)) == expected


def test_carries_are_kept_when_every_limb_is_full():
    full = np.full((2, 1), 2**64 - 1, dtype=np.uint64)
    assert _integers(sum_residues([full] * 5, 1)) == [2**128 - 5]
    assert _integers(sum_residues([full, full], 1)) == [2**128 - 2]
    assert _integers(sum_residues([full], 1, plus=1)) == [0]


def test_empty_vector_has_an_empty_sum():
    assert decode_fixed(sum_residues([encode_fixed(np.zeros(0), 2)], 0)).shape == (0,)
