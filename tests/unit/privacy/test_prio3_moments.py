"""Moments in shares: honest answers open to their sum, and what no rows could have made does not pass."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from feddbn.core.statistics.moments import Moments, symmetric, upper_triangle
from feddbn.errors import AggregationError
from feddbn.privacy.prio3 import moments as circuit
from feddbn.privacy.prio3.field import FIELD128
from feddbn.privacy.prio3.moments import Limits, MomentsVdaf

KEY, NONCE = bytes(range(32)), bytes(range(16))
P = FIELD128.modulus
IMAGINARY = pow(7, (P - 1) // 4, P)
"""Its square is -1 modulo p: what makes squares negative."""


def rand(vdaf, seed=0):
    return np.random.default_rng(seed).bytes(vdaf.rand_size)


def verified(vdaf, report, nonce=NONCE, order=(0, 1)):
    """The keepers' shares of a report, or AggregationError."""
    public, shares = report
    states = [vdaf.verify_init(KEY, k, nonce, public, shares[order[k]]) for k in (0, 1)]
    told = [share for _, share in states]
    return [vdaf.verify_finish(state, told) for state, _ in states]


def opened(vdaf, vectors):
    """The sum of vectors by way of two keepers."""
    found = []
    for k, vector in enumerate(vectors):
        nonce = bytes([k]) * 16
        found.append(verified(vdaf, vdaf.shard(vector, nonce, rand(vdaf, k)), nonce))
    return vdaf.unshard([vdaf.add(one) for one in zip(*found, strict=True)], len(vectors))


def refused(act, code):
    with pytest.raises(AggregationError) as caught:
        act()
    assert caught.value.code == code


def rows(q, n=200, seed=0, scale=1.0):
    """Rows of columns that depend on each other, of very different sizes."""
    rng, same = np.random.default_rng(seed), np.random.default_rng(99)
    mix = np.eye(q) + 0.5 * same.normal(size=(q, q)) / np.sqrt(q)
    return scale * (0.3 + rng.normal(size=(n, q)) @ mix) * 10.0 ** same.uniform(-3, 3, q)


def gram(q, n=200, seed=0, scale=1.0):
    return Moments.of_rows(rows(q, n, seed, scale)).to_sums()


def answer(parts, seed):
    """A vector with these parts, all of the same rows or of none."""
    rng = np.random.default_rng(seed)
    made = []
    for kind, size in parts:
        if kind == "numbers":
            made.append(rng.normal(size=size) * 10.0 ** rng.uniform(-6, 9, size))
        elif kind == "gram":
            made.append(gram(size, seed=seed))
        else:
            made.append(0.9 * upper_triangle(Moments.of_rows(rows(size, seed=seed)).scatter))
    return np.concatenate(made)


def error(vector, wanted, parts):
    """The largest error: of products relative to the root of their squares, of numbers to themselves."""
    worst, start = 0.0, 0
    for kind, size in parts:
        m = size + (kind == "gram")
        stop = start + (size if kind == "numbers" else m * (m + 1) // 2)
        got, true = vector[start:stop], wanted[start:stop]
        if kind == "numbers":
            worst = max(worst, np.max(np.abs(got - true) / np.abs(true), initial=0.0))
        else:
            root = np.sqrt(np.diag(symmetric(true, m)))
            worst = max(worst, np.abs(symmetric(got - true, m) / np.outer(root, root)).max())
        start = stop
    return worst


LAYOUTS = {
    "gram": [("gram", 3)],
    "one column": [("gram", 1)],
    "tried": [("gram", 2), ("numbers", 1), ("scatter", 2), ("numbers", 1), ("scatter", 2), ("numbers", 1)],
    "resamples": [("gram", 2)] * 3,
    "numbers": [("numbers", 5)],
    "nothing else": [("scatter", 2)],
    "two kinds": [("gram", 2), ("scatter", 3), ("numbers", 4), ("gram", 1)],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_honest_answers_open_to_their_sum(layout):
    parts = LAYOUTS[layout]
    vectors = [answer(parts, seed) for seed in range(3)]
    sizes = {size for kind, size in parts if kind == "gram"}
    known = tuple(sum(gram(size, seed=seed) for seed in range(3)) for size in sizes)
    limits = Limits(known, min_rows=50, max_rows=1_000)
    vdaf = MomentsVdaf(parts, 10, b"a question", limits)
    got = opened(vdaf, vectors)
    np.testing.assert_allclose(got, sum(map(vdaf.rounded, vectors)), rtol=1e-12)
    assert error(got, sum(vectors), parts) < (1e-10 if layout not in ("nothing else", "two kinds") else 1e-7)
    assert all(set(vdaf.fitted(vector).weights) <= {1.0} for vector in vectors)


def test_random_parts_open_to_their_sum():
    rng = np.random.default_rng(5)
    kinds = ("gram", "scatter", "numbers")
    for seed in range(4):
        parts = [(str(rng.choice(kinds)), int(rng.integers(1, 4))) for _ in range(rng.integers(1, 5))]
        vectors = [answer(parts, seed), answer(parts, seed + 100)]
        vdaf = MomentsVdaf(parts, 2, b"", Limits(max_rows=500))
        assert error(opened(vdaf, vectors), sum(vectors), parts) < 1e-7


def test_counts_are_whole_and_blocks_may_be_empty():
    vdaf = MomentsVdaf([("gram", 2)] * 2, 9, b"", Limits(min_rows=100, max_rows=200))
    vector = np.concatenate([gram(2), np.zeros(6)])
    got = opened(vdaf, [vector, vector])
    assert got[0] == 400.0
    assert not got[6:].any()


def test_numbers_far_apart_keep_their_digits():
    vdaf = MomentsVdaf([("numbers", 4)], 100, b"")
    vector = np.array([1e-9, -3.0, 2.5e15, 0.0])
    np.testing.assert_allclose(opened(vdaf, [vector] * 2), 2 * vector, rtol=1e-10)


def test_collinear_and_constant_columns_and_fewer_rows_than_columns():
    x = rows(2, n=5)
    made = np.column_stack([x, x[:, 0] + 2 * x[:, 1], np.zeros(5), np.full(5, 7.0), x[:, 0]])
    vector = Moments.of_rows(made).to_sums()
    for limits in (Limits(max_rows=100), Limits((4 * vector,), max_rows=100)):
        vdaf = MomentsVdaf([("gram", 6)], 4, b"", limits)
        got, wanted = symmetric(opened(vdaf, [vector]), 7), symmetric(vector, 7)
        root = np.sqrt(np.where(np.diag(wanted) > 0, np.diag(wanted), 1.0))
        assert np.abs((got - wanted) / np.outer(root, root)).max() < 1e-6


# A site whose mean squares are larger than those of all.


def test_a_site_with_larger_squares_weighs_less():
    known = sum(gram(3, n=2_000, seed=seed) for seed in range(4))
    limits = Limits((known,), max_rows=5_000, weighs=True)
    vdaf = MomentsVdaf([("gram", 3), ("numbers", 1)], 4, b"", limits)
    vector = np.append(gram(3, n=2_000, seed=5, scale=2.0), 8.0)
    plain = MomentsVdaf([("gram", 3), ("numbers", 1)], 4, b"", replace(limits, weighs=False))
    refused(lambda: plain.fitted(vector), "not-provable")
    fitted = vdaf.fitted(vector)
    (weight,) = fitted.weights
    assert 0.25 < weight < 0.5
    np.testing.assert_allclose(fitted.vector, weight * vector, rtol=1e-10)
    np.testing.assert_allclose(opened(vdaf, [vector]), weight * vector, rtol=1e-6)
    # In some direction its products are all that the limits allow.
    mean = known[1:4] / known[0]
    S = symmetric(known[4:], 3) / known[0] - np.outer(mean, mean)
    own = Moments.from_sums(fitted.vector[:-1], 3).about(mean)
    assert np.linalg.eigvals(np.linalg.solve(1.5 * 2_000 * S, own)).max() == pytest.approx(1.0)
    refused(lambda: vdaf.fitted(np.append(gram(3, n=2_000, scale=5.0), 0.0)), "not-provable")


def test_known_sums_that_somebody_made_larger_are_noticed():
    honest = [gram(3, n=500, seed=seed) for seed in range(8)]
    parts = [("gram", 3)]
    true = Limits((sum(honest),))
    assert true.found_again(parts, sum(honest)) == pytest.approx(1.0)
    larger = Limits((sum(honest) + gram(3, n=500, seed=9, scale=100.0),))
    assert larger.found_again(parts, sum(honest)) < 0.01
    assert Limits().found_again(parts, sum(honest)) == 1.0


def test_limits_read_back():
    limits = Limits((gram(2) / 3,), 1.25, 10, 500, 1e3, True)
    again = Limits.from_dict(limits.to_dict())
    assert again.to_dict() == limits.to_dict()
    np.testing.assert_array_equal(again.known[0], limits.known[0])
    for bad in (
        {"kappa": 0.5},
        {"min_rows": 10, "max_rows": 5},
        {"known": (np.zeros(3),)},
        {"largest": np.inf},
    ):
        refused(lambda bad=bad: Limits(**bad), "bad-limits")


# What an honest site refuses to send.


def changed(vector, place, value):
    vector = vector.copy()
    vector[place] = value
    return vector


@pytest.mark.parametrize(
    ("vector", "code"),
    [
        (changed(gram(2), 4, 1e3 * np.abs(gram(2)).max()), "not-provable"),
        (changed(gram(2), 1, 1e6 * np.abs(gram(2)[1])), "not-provable"),
        (changed(gram(2), 0, -200.0), "not-provable"),
        (gram(2, n=20), "not-provable"),
        (gram(2, n=2_000), "not-provable"),
        (gram(2, scale=1e9), "not-provable"),
        (changed(gram(2), 3, np.nan), "not-finite"),
        (gram(3), "bad-length"),
    ],
    ids=["not psd", "totals", "negative", "few rows", "many rows", "large", "nan", "length"],
)
def test_an_honest_site_does_not_send_what_cannot_be_proved(vector, code):
    vdaf = MomentsVdaf([("gram", 2)], 4, b"", Limits(min_rows=50, max_rows=1_000))
    refused(lambda: vdaf.shard(vector, NONCE, rand(vdaf)), code)


def test_columns_that_rounding_would_swallow_are_refused():
    rng = np.random.default_rng(4)
    vdaf = MomentsVdaf([("gram", 2)], 4, b"", Limits(max_rows=1_000))
    for scale, level, fits in (
        (1.0, 1e5, True),
        (1e-2, 0.0, True),
        (1e-8, 0.0, False),
        (8e-8, 1.0, False),
        (0.0, 7.0, True),
    ):
        x = np.column_stack([rng.normal(size=200), level + scale * rng.normal(size=200)])
        vector = Moments.of_rows(x).to_sums()
        if not fits:
            refused(lambda vector=vector: vdaf.fitted(vector), "not-provable")
            continue
        got, wanted = Moments.from_sums(vdaf.rounded(vector), 2), Moments.of_rows(x)
        np.testing.assert_allclose(got.mean, wanted.mean, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(np.diag(got.scatter), np.diag(wanted.scatter), rtol=1e-3, atol=1e-6)


def test_noise_that_leaves_a_matrix_slightly_indefinite_is_taken_off():
    x = rows(3)
    x[:, 2] = x[:, 0]
    vector = Moments.of_rows(x).to_sums()
    vector[-1] *= 1 - 1e-5
    vdaf = MomentsVdaf([("gram", 3)], 4, b"", Limits(max_rows=1_000))
    assert -1e-4 < vdaf.fitted(vector).distance < -1e-6
    assert error(opened(vdaf, [vector]), vector, [("gram", 3)]) < 1e-4


def test_too_much_at_once_is_refused():
    refused(lambda: MomentsVdaf([("gram", 2)], 1 << 100, b""), "too-large")
    refused(
        lambda: MomentsVdaf([("numbers", 1)], 4, b"").shard(np.array([2e18]), NONCE, bytes(128)),
        "not-provable",
    )


# A hostile site writes what it wants into its report, and makes the best proof it can.


class Hostile(MomentsVdaf):
    """Sends a measurement that `tamper` has changed, with bits of projections as near as there are."""

    def __init__(self, *given, tamper, late=lambda bits: bits):
        super().__init__(*given)
        self._tamper, self._bits = tamper, late

    def _early(self, vector):
        early = super()._early(vector)
        self._tamper(early, self._layout)
        return early % P

    def _late(self, early, seed):
        layout = self._layout
        values = FIELD128.array(early[layout.projected])
        seen = circuit._projected(seed, values)
        shifted = [int(v) + (1 << (layout.n_bits - 1)) for v in FIELD128.ints(seen, signed=True)]
        bits = [(v >> k) & 1 for v in shifted for k in range(layout.n_bits)]
        return FIELD128.array(self._bits(np.array(bits, dtype=object)))


def again(early, layout):
    """Everything that follows from R and N, as if nothing were wrong: u and z by roots modulo p where there are some."""
    for block in layout.blocks:
        R = np.zeros((block.m, block.m), dtype=object)
        R[np.triu_indices(block.m)] = early[block.root : block.root + block.m * (block.m + 1) // 2]
        early[block.entries] = (R.T @ R)[np.triu_indices(block.m)] % P
    for k, (i, a, j, b, c) in enumerate(layout.checks):
        D = (a * early[i] + b * early[j] + c) % P
        root = sqrt_mod(D)
        early[layout.u.start + k], early[layout.z.start + k] = (0, D) if root is None else (root, 0)


def sqrt_mod(a):
    """A square root modulo p, or None (Tonelli and Shanks)."""
    if pow(a, (P - 1) // 2, P) != 1:
        return 0 if a == 0 else None
    s = ((P - 1) & (1 - P)).bit_length() - 1
    odd = (P - 1) >> s
    x, b, g = pow(a, (odd + 1) // 2, P), pow(a, odd, P), pow(7, odd, P)
    while b != 1:
        m, power = 0, b
        while power != 1:
            power, m = power * power % P, m + 1
        t = pow(g, 1 << (s - m - 1), P)
        x, b, g, s = x * t % P, b * t * t % P, t * t % P, m
    return x


def one_more(place):
    def tamper(early, layout):
        early[place(layout)] += 1

    return tamper


def negative_square(early, layout):
    early[layout.blocks[0].root + 5] *= IMAGINARY
    again(early, layout)


def negative_count(early, layout):
    block = layout.blocks[0]
    early[block.root] *= IMAGINARY
    early[layout.rows.start] = -early[layout.rows.start]
    again(early, layout)


def inconsistent_totals(early, layout):
    # Totals ten times what n and squares allow: the diagonal of R has to be imaginary.
    block = layout.blocks[0]
    R = early[block.root : block.root + 6]
    R[3] = sqrt_mod((R[1] ** 2 + R[3] ** 2 - (10 * R[1]) ** 2) % P) or IMAGINARY * R[3]
    R[1] *= 10
    again(early, layout)


def many_rows(early, layout):
    # A million times the rows there may be.
    block = layout.blocks[0]
    early[block.root : block.root + 6] *= 1_000
    early[layout.rows.start] *= 1_000_000
    again(early, layout)


def few_rows(early, layout):
    block = layout.blocks[0]
    early[block.root : block.root + 6] //= 100
    early[layout.rows.start] //= 10_000
    again(early, layout)


def rows_of_none(early, layout):
    early[layout.flags.start] = 0
    again(early, layout)


def large_squares(early, layout):
    # A column that is a hundred times as large as there can be, beside the same number of rows.
    early[layout.blocks[0].root + 5] = 100 << 40
    again(early, layout)


def cancelling(early, layout):
    # Two huge entries whose squares cancel: x^2 + (ix)^2 = 0 modulo p.
    block = layout.blocks[0]
    early[block.root + 2] += 1 << 90
    early[block.root + 4] += IMAGINARY << 90
    again(early, layout)


HOSTILE = {
    "an entry that is not R'R": one_more(lambda layout: 4),
    "a count that is not R'R": one_more(lambda layout: 0),
    "another u": one_more(lambda layout: layout.u.start),
    "another z": one_more(lambda layout: layout.z.start),
    "another N": one_more(lambda layout: layout.rows.start),
    "a flag of 2": one_more(lambda layout: layout.flags.start),
    "a negative square": negative_square,
    "a negative count": negative_count,
    "totals that do not fit the count": inconsistent_totals,
    "more rows than there may be": many_rows,
    "fewer rows than there must be": few_rows,
    "rows of a block without any": rows_of_none,
    "squares above the limit": large_squares,
    "huge numbers that cancel": cancelling,
}
BOUNDED = {
    "another Q": one_more(lambda layout: layout.blocks[0].rest[0]),
    "another Z": one_more(lambda layout: layout.blocks[0].rest[1]),
}
ONLY_LARGE = {name for name, tamper in HOSTILE.items() if tamper.__name__ != "tamper"}


def setting(is_known):
    known = (4 * gram(2),) if is_known else ()
    return [("gram", 2)], 4, b"context", Limits(known, min_rows=50, max_rows=1_000)


def all_zero(valid, meas, seed=3):
    """Whether a circuit accepts a whole measurement."""
    drawn = np.random.default_rng(seed).integers(0, 2**62, size=valid.joint_rand_len)
    joint = FIELD128.mul(FIELD128.array(drawn), FIELD128.array(drawn[::-1]))
    (wires,) = valid.wires(meas, joint, 1)
    out = valid.outputs(meas, joint, 1, [valid.gadgets[0].eval(FIELD128, wires)])
    return not any(FIELD128.ints(out))


@pytest.mark.parametrize("name", [*HOSTILE, *BOUNDED])
def test_keepers_refuse_what_is_tampered_with(name):
    given = setting(name in BOUNDED)
    hostile = Hostile(*given, tamper=(HOSTILE | BOUNDED)[name])
    report = hostile.shard(gram(2), NONCE, rand(hostile))
    refused(lambda: verified(MomentsVdaf(*given), report), "bad-proof")


@pytest.mark.parametrize("name", sorted(ONLY_LARGE))
def test_wrong_reports_would_pass_without_projections(name, monkeypatch):
    hostile = Hostile(*setting(False), tamper=HOSTILE[name])
    early = FIELD128.array(hostile._early(gram(2)))
    layout, seed = hostile._layout, bytes(32)
    meas = np.concatenate([early, hostile._late(FIELD128.ints(early), seed)])
    assert not all_zero(circuit.MomentsValid(layout, seed), meas)
    # Without projections their bits stand for zero.
    monkeypatch.setattr(circuit, "_projected", lambda seed, values: FIELD128.zeros(circuit.N_PROJECTIONS))
    zero = np.zeros((circuit.N_PROJECTIONS, layout.n_bits), dtype=np.int64)
    zero[:, -1] = 1
    meas = np.concatenate([early, FIELD128.array(zero.ravel())])
    assert all_zero(circuit.MomentsValid(layout, seed), meas)


def test_bits_must_be_bits():
    def not_bits(bits):
        # The same numbers: a two in place of the next digit's one.
        place = next(k for k in range(1, len(bits)) if bits[k] and not bits[k - 1])
        bits[place], bits[place - 1] = 0, 2
        return bits

    hostile = Hostile(*setting(False), tamper=lambda early, layout: None, late=not_bits)
    report = hostile.shard(gram(2), NONCE, rand(hostile))
    refused(lambda: verified(MomentsVdaf(*setting(False)), report), "bad-proof")


def test_a_hostile_site_that_does_nothing_wrong_passes():
    for is_known in (False, True):
        hostile = Hostile(*setting(is_known), tamper=lambda early, layout: None)
        assert (
            len(verified(MomentsVdaf(*setting(is_known)), hostile.shard(gram(2), NONCE, rand(hostile)))) == 2
        )


def test_one_large_number_shows_in_every_other_projection():
    # Whatever the others are: at most half of the projections can pass, and about half do.
    rng = np.random.default_rng(0)
    T = 1 << 20
    for v0 in (2 * T + 1, 3 * T, 10 * T):
        values = np.append(v0, rng.integers(-T, T, 30) // 8)
        passing = [
            abs(one) <= T for k in range(40) for one in circuit._projected_whole(bytes([k]) * 32, values)
        ]
        assert len(passing) == 5_120
        assert np.mean(passing) < 0.5 + 4 * np.sqrt(0.25 / 5_120)


def test_projections_of_shares_are_those_of_whole_numbers():
    rng = np.random.default_rng(1)
    values = rng.integers(-(2**60), 2**60, 9_000)
    P_ = np.concatenate([piece for _, piece in circuit._ternary(bytes(32), len(values))], axis=1)
    assert set(np.unique(P_)) == {-1, 0, 1}
    assert abs(np.mean(P_ == 0) - 0.5) < 0.002
    wanted = [int(v) for v in P_.astype(np.int64).astype(object) @ values.astype(object)]
    assert circuit._projected_whole(bytes(32), values) == wanted
    assert list(FIELD128.ints(circuit._projected(bytes(32), FIELD128.array(values)), signed=True)) == wanted


def test_squares_of_whole_numbers_are_exact():
    rng = np.random.default_rng(2)
    for bits, m in itertools.product((1, 30, 59), (1, 7, 60)):
        root = np.triu(rng.integers(-(2**bits), 2**bits, (m, m)))
        wanted = (root.astype(object).T @ root.astype(object))[np.triu_indices(m)]
        assert list(circuit._squared(root)) == list(wanted)


# A report is for one nonce, context and place, and nobody can change it on the way.


def test_a_report_is_for_one_nonce_context_and_setting():
    parts, n_sites, context, limits = setting(False)
    vdaf = MomentsVdaf(parts, n_sites, context, limits)
    report = vdaf.shard(gram(2), NONCE, rand(vdaf))
    assert len(verified(vdaf, report)) == 2
    refused(lambda: verified(vdaf, report, nonce=bytes(16)), "bad-proof")
    for other in (
        MomentsVdaf(parts, n_sites, b"another context", limits),
        MomentsVdaf(parts, n_sites + 1, context, limits),
        MomentsVdaf(parts, n_sites, context, Limits(min_rows=49, max_rows=1_000)),
    ):
        refused(lambda other=other: verified(other, report), "bad-proof")
    refused(lambda: verified(vdaf, report, order=(1, 0)), "bad-encoding")


def test_shares_cannot_be_changed_on_the_way():
    vdaf = MomentsVdaf(*setting(True))
    public, (first, second) = vdaf.shard(gram(2), NONCE, rand(vdaf))
    places = {
        "answer": 0,
        "root": 16 * 7,
        "bits": 16 * vdaf._layout.bits.start,
        "proof": len(first) - 64,
        "blind": len(first) - 1,
    }

    def flipped(data, place):
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    for place in places.values():
        refused(lambda place=place: verified(vdaf, (public, [flipped(first, place), second])), "bad-proof")
    for place in (0, 40):
        refused(lambda place=place: verified(vdaf, (public, [first, flipped(second, place)])), "bad-proof")
    for place in range(0, len(public), 32):
        refused(lambda place=place: verified(vdaf, (flipped(public, place), [first, second])), "bad-proof")


def test_more_reports_than_sites_are_not_opened():
    vdaf = MomentsVdaf([("numbers", 1)], 1, b"")
    shares = verified(vdaf, vdaf.shard(np.ones(1), NONCE, rand(vdaf)))
    assert vdaf.unshard(shares, 1) == 1.0
    refused(lambda: vdaf.unshard(shares, 2), "too-many")
