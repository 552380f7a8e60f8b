"""Fields of Prio3: against Python's integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddbn.errors import AggregationError
from feddbn.privacy.prio3.field import FIELD64, FIELD128

BOTH = pytest.mark.parametrize("field", [FIELD64, FIELD128], ids=repr)


def numbers(field):
    """Whole numbers modulo p, with those near the ends of limbs and of the field."""
    p = field.modulus
    ends = [0, 1, p - 1, p // 2] + [2**k for k in range(0, p.bit_length(), 16)]
    near = st.builds(lambda end, step: (end + step) % p, st.sampled_from(ends), st.integers(-30, 30))
    return st.one_of(st.integers(0, p - 1), near)


def listed(field, elements):
    return [int(x) for x in field.ints(elements).ravel()]


@BOTH
def test_moduli_and_generators_are_the_drafts(field):
    expected = {
        "Field64": (2**32 * 4294967295 + 1, 2**32),
        "Field128": (2**66 * 4611686018427387897 + 1, 2**66),
    }
    modulus, order = expected[field.name]
    assert field.modulus == modulus
    assert field.root(order) == pow(7, (modulus - 1) // order, modulus)
    assert field.encoded_size == {"Field64": 8, "Field128": 16}[field.name]


@BOTH
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_arithmetic_is_that_of_integers(field, data):
    p = field.modulus
    pairs = data.draw(st.lists(st.tuples(numbers(field), numbers(field)), min_size=1, max_size=20))
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    a, b = field.array(xs), field.array(ys)
    assert listed(field, a) == xs
    assert listed(field, field.add(a, b)) == [(x + y) % p for x, y in pairs]
    assert listed(field, field.sub(a, b)) == [(x - y) % p for x, y in pairs]
    assert listed(field, field.neg(a)) == [-x % p for x in xs]
    assert listed(field, field.mul(a, b)) == [x * y % p for x, y in pairs]
    assert listed(field, field.sum(a)) == [sum(xs) % p]
    assert listed(field, field.total([a, b, b])) == [(x + 2 * y) % p for x, y in pairs]
    assert listed(field, field.powers(a, 5)[:, 4]) == [pow(x, 5, p) for x in xs]
    assert field.encode(a) == b"".join(x.to_bytes(field.encoded_size, "little") for x in xs)
    assert listed(field, field.decode(field.encode(a), len(xs))) == xs
    whole = [x for x in xs if x]
    assert listed(field, field.mul(field.inverse(field.array(whole)), field.array(whole))) == [1] * len(whole)


@BOTH
def test_integers_of_any_size_and_sign_and_whole_arrays(field):
    p = field.modulus
    assert listed(field, field.array([-1, -(2**200), 3 * p + 5])) == [p - 1, -(2**200) % p, 5]
    small = np.array([-(2**62), -1, 0, 2**62])
    assert listed(field, field.array(small)) == [int(x) % p for x in small]
    assert [int(x) for x in field.ints(field.array(small), signed=True)] == small.tolist()
    large = np.array([2**64 - 1, 2**63], dtype=np.uint64)
    assert listed(field, field.array(large)) == [int(x) % p for x in large]
    table = field.array(np.arange(6).reshape(2, 3))
    assert listed(field, field.mul(table, field.array([[10], [100]]))) == [0, 10, 20, 300, 400, 500]
    assert listed(field, field.sum(table, axis=0)) == [3, 5, 7]
    nothing = field.zeros(0)
    assert listed(field, field.mul(field.add(nothing, nothing), nothing)) == []
    assert listed(field, field.sum(field.zeros((2, 0)))) == [0, 0]
    with pytest.raises(TypeError):
        field.array([1.5])
    with pytest.raises(TypeError):
        table * table
    with pytest.raises(ZeroDivisionError):
        field.inverse([1, 0])


@BOTH
def test_small_weights_times_elements_are_exact(field):
    rng = np.random.default_rng(901)
    xs = [int.from_bytes(rng.bytes(16), "little") % field.modulus for _ in range(400)] + [
        field.modulus - 1
    ] * 600
    weights = np.concatenate(
        [rng.integers(-1, 2, (5, 1000)), np.full((1, 1000), 2**26), np.full((1, 1000), -1)]
    )
    expected = [sum(int(w) * x for w, x in zip(row, xs, strict=True)) % field.modulus for row in weights]
    assert listed(field, field.combine(weights, field.array(xs))) == expected
    with pytest.raises(ValueError):
        field.combine(np.full((1, 1000), 2**27), field.array(xs))
    with pytest.raises(ValueError):
        field.combine(weights, field.array(xs)[1:])
    # More elements than are taken at once.
    many = np.resize(field.array(xs), 20_000)
    assert listed(field, field.combine(np.ones((1, 20_000), dtype=np.int8), many)) == [
        20 * sum(xs) % field.modulus
    ]


@BOTH
@pytest.mark.parametrize("n", [1, 2, 8, 32])
def test_transform_evaluates_at_roots_of_unity_and_back(field, n):
    rng = np.random.default_rng(902)
    p, w = field.modulus, field.root(n)
    rows = [[int.from_bytes(rng.bytes(16), "little") % p for _ in range(n)] for _ in range(3)]
    values = field.ntt(field.array(rows))
    expected = [sum(c * pow(w, i * j, p) for j, c in enumerate(row)) % p for row in rows for i in range(n)]
    assert listed(field, values) == expected
    assert listed(field, field.inverse_ntt(values)) == [c for row in rows for c in row]
    assert pow(w, n, p) == 1
    assert n == 1 or pow(w, n // 2, p) == p - 1


@BOTH
def test_encodings_that_are_none_are_refused(field):
    size = field.encoded_size
    for encoded in (field.modulus.to_bytes(size, "little"), b"\xff" * size):
        with pytest.raises(AggregationError) as refused:
            field.decode(bytes(size) + encoded, 2)
        assert refused.value.code == "bad-encoding"
    with pytest.raises(AggregationError):
        field.decode(bytes(size - 1), 1)
    assert listed(field, field.decode((field.modulus - 1).to_bytes(size, "little"), 1)) == [field.modulus - 1]
