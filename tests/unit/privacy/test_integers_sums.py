import numpy as np
import pytest

from feddbn.errors import AggregationError
from feddbn.privacy.integers import decode_fixed, encode_fixed, sum_residues
from support.saying import refused

pytestmark = pytest.mark.promise


def test_mixed_magnitudes_keep_nine_digits_in_one_vector():
    rng = np.random.default_rng(0)
    scale = np.array([1e6, 1e12, 1.0, 1e-3, 1e-8])
    parts = [rng.uniform(0.5, 1.0, 5) * scale for _ in range(64)]
    total = decode_fixed(sum_residues([encode_fixed(part, 64) for part in parts], 5), 64)
    np.testing.assert_allclose(total, np.sum(parts, axis=0), rtol=1e-9)


def test_a_number_is_its_nearest_whole_and_a_signed_rest():
    residues = encode_fixed(np.array([-1.0, -(2.0**-63), 2.5, 2.75]), 1)
    top = 2**64
    # One summand: 63 bits of the rest, of which 2.5 has half a unit and 2.75 is a quarter below 3.
    assert residues.tolist() == [[0, top - 1, 2**62, top - 2**61], [top - 1, 0, 2, 3]]
    assert decode_fixed(residues, 1).tolist() == [-1.0, -(2.0**-63), 2.5, 2.75]


def test_number_below_resolution_becomes_zero():
    assert decode_fixed(encode_fixed(np.array([1e-21]), 1), 1).tolist() == [0.0]


@pytest.mark.parametrize("n_summands", [1, 2, 3, 4, 7, 8, 255])
def test_rests_of_as_many_summands_as_announced_never_wrap(n_summands):
    for half in (0.5, -0.5, 1.5, -1.5, 0.4999999999999999):
        part = encode_fixed(np.array([half]), n_summands)
        total = decode_fixed(sum_residues([part] * n_summands, 1), n_summands)
        assert total[0] == pytest.approx(n_summands * half, rel=1e-15)


def test_number_that_could_overflow_is_refused_with_its_size():
    limit = 2.0**62 / 10
    # Their norm is beyond the limit, but no number is.
    encode_fixed(np.full(3, limit * 0.99), 10)
    with refused(AggregationError, 10, code="too-large"):
        encode_fixed(np.array([1.0, -limit]), 10)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_number_that_is_not_finite_is_refused(bad):
    with refused(AggregationError, code="not-finite"):
        encode_fixed(np.array([1.0, bad]), 3)


@pytest.mark.parametrize("n_parts", [1, 2, 3, 40])
@pytest.mark.parametrize("plus", [0, 1, 2**63])
def test_keystream_bytes_and_residues_add_modulo_two_to_64(n_parts, plus):
    rng = np.random.default_rng(1)
    arrays = [np.frombuffer(rng.bytes(16 * 7), dtype=np.uint64).reshape(2, 7) for _ in range(n_parts)]
    columns = zip(*(array.ravel().tolist() for array in arrays), strict=True)
    expected = [(sum(column) + plus) % 2**64 for column in columns]
    assert sum_residues([a.tobytes() for a in arrays], 7, plus).ravel().tolist() == expected
    assert sum_residues(arrays, 7, plus).ravel().tolist() == expected


def test_complement_plus_one_takes_a_part_away():
    rng = np.random.default_rng(2)
    part = np.frombuffer(rng.bytes(16 * 5), dtype=np.uint64).reshape(2, 5)
    assert not sum_residues([part, ~part], 5, plus=1).any()


def test_empty_vector_has_an_empty_sum():
    assert decode_fixed(sum_residues([encode_fixed(np.zeros(0), 2)], 0), 2).shape == (0,)
