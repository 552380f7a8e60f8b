"""Prio3: what is changed is refused, shares add up, and one share alone says nothing."""

import numpy as np
import pytest

from feddbn.errors import AggregationError
from feddbn.privacy.prio3 import flp
from feddbn.privacy.prio3.field import FIELD64, FIELD128
from feddbn.privacy.prio3.prio3 import NONCE_SIZE, VERIFY_KEY_SIZE, Prio3
from feddbn.privacy.prio3.xof import Xof
from support.vdaf_circuits import Bits, Count, Histogram, SumVec

CONTEXT = b"a study"
RNG = np.random.default_rng(903)
KEY, NONCE = RNG.bytes(VERIFY_KEY_SIZE), RNG.bytes(NONCE_SIZE)
PRIVATE = 0xFFFF0000


def begun(vdaf, public_share, inputs, nonce=NONCE, context=CONTEXT, keys=(KEY, KEY)):
    return [
        vdaf.verify_init(key, context, j, nonce, public_share, share)
        for j, (key, share) in enumerate(zip(keys, inputs, strict=True))
    ]


def opened(vdaf, public_share, inputs, **given):
    states = begun(vdaf, public_share, inputs, **given)
    message = vdaf.verifier_shares_to_message(CONTEXT, [share for _, share in states])
    return [vdaf.verify_next(state, message) for state, _ in states]


def refusal(vdaf, public_share, inputs, **given):
    with pytest.raises(AggregationError) as refused:
        opened(vdaf, public_share, inputs, **given)
    return refused.value.code


def sharded(vdaf, meas, seed=904, **given):
    return vdaf.shard(CONTEXT, meas, NONCE, np.random.default_rng(seed).bytes(vdaf.rand_size), **given)


def changed(encoded, place):
    return encoded[:place] + bytes([encoded[place] ^ 1]) + encoded[place + 1 :]


VDAF = Prio3(SumVec(5, 200, 6), PRIVATE)
VALUES = [0, 200, 17, 1, 128]


def test_an_honest_report_is_opened_as_it_is():
    shares = opened(VDAF, *sharded(VDAF, VDAF.valid.encode(VALUES)))
    assert VDAF.valid.decode(VDAF.aggregate(shares)) == VALUES


@pytest.mark.parametrize("part", ["measurement", "wire seed", "gadget polynomial", "leader's blind"])
def test_a_change_anywhere_in_the_leaders_share_is_refused(part):
    public_share, (leader, helper) = sharded(VDAF, VDAF.valid.encode(VALUES))
    size, n = VDAF.field.encoded_size, VDAF.valid.meas_len
    place = {
        "measurement": 7 * size,
        "wire seed": (n + 3) * size,
        "gadget polynomial": (n + VDAF.valid.gadgets[0].arity + 5) * size,
        "leader's blind": len(leader) - 3,
    }[part]
    assert refusal(VDAF, public_share, [changed(leader, place), helper]) == "bad-proof"


def test_every_element_of_the_proof_counts():
    vdaf = Prio3(Histogram(4, 2), PRIVATE)
    public_share, (leader, helper) = sharded(vdaf, vdaf.valid.encode(1))
    for place in range(0, len(leader) - 32, vdaf.field.encoded_size):
        assert refusal(vdaf, public_share, [changed(leader, place), helper]) == "bad-proof"


@pytest.mark.parametrize("place", [0, 31, 32, 63])
def test_a_changed_part_of_the_joint_randomness_is_refused(place):
    public_share, inputs = sharded(VDAF, VDAF.valid.encode(VALUES))
    assert refusal(VDAF, changed(public_share, place), inputs) == "bad-proof"


def test_a_part_that_is_made_up_after_the_verifiers_agree_is_refused():
    # One aggregator's claim about the other's commitment: the sums may fit, the seeds do not.
    public_share, inputs = sharded(VDAF, VDAF.valid.encode(VALUES))
    states = begun(VDAF, public_share, inputs)
    message = VDAF.verifier_shares_to_message(CONTEXT, [share for _, share in states])
    with pytest.raises(AggregationError) as refused:
        VDAF.verify_next(states[0][0], changed(message, 0))
    assert refused.value.code == "bad-proof"


def test_a_report_holds_for_one_nonce_context_and_key_only():
    public_share, inputs = sharded(VDAF, VDAF.valid.encode(VALUES))
    other = RNG.bytes(VERIFY_KEY_SIZE)
    assert refusal(VDAF, public_share, inputs, nonce=changed(NONCE, 0)) == "bad-proof"
    assert refusal(VDAF, public_share, inputs, context=b"another study") == "bad-proof"
    assert refusal(VDAF, public_share, inputs, keys=(KEY, other)) == "bad-proof"
    assert len(opened(VDAF, public_share, inputs, keys=(other, other))) == 2
    assert refusal(Prio3(SumVec(5, 200, 6), PRIVATE + 1), public_share, inputs) == "bad-proof"


@pytest.mark.parametrize("value", [2, -1, FIELD128.modulus // 2])
def test_a_measurement_that_is_not_valid_cannot_be_proved(value):
    meas = VDAF.valid.encode(VALUES).copy()
    meas[11] = VDAF.field.array([value])[0]
    assert refusal(VDAF, *sharded(VDAF, meas)) == "bad-proof"
    one = Prio3(Histogram(6, 2), PRIVATE)
    assert refusal(one, *sharded(one, one.field.array([1, 0, 1, 0, 0, 0]))) == "bad-proof"
    assert refusal(one, *sharded(one, one.field.zeros(6))) == "bad-proof"


def test_shares_are_linear_and_sums_of_sums():
    reports = [VALUES, [1, 2, 3, 4, 5], [200] * 5]
    shares = [opened(VDAF, *sharded(VDAF, VDAF.valid.encode(one), seed=k)) for k, one in enumerate(reports)]
    sums = [VDAF.aggregate(list(of_one)) for of_one in zip(*shares, strict=True)]
    assert VDAF.valid.decode(VDAF.aggregate(sums)) == np.sum(reports, axis=0).tolist()


def test_only_the_leaders_share_and_commitment_depend_on_the_measurement():
    first = sharded(VDAF, VDAF.valid.encode(VALUES))
    second = sharded(VDAF, VDAF.valid.encode([9] * 5))
    assert first[1][1] == second[1][1]
    assert first[0][32:] == second[0][32:]
    assert first[0][:32] != second[0][:32]
    # The leader's share is the measurement less a stream that does not depend on it.
    n, field = VDAF.valid.meas_len, VDAF.field
    masks = [
        field.sub(VDAF.valid.encode(values), field.decode(leader[: n * field.encoded_size], n))
        for values, (_, (leader, _)) in ((VALUES, first), ([9] * 5, second))
    ]
    assert field.encode(masks[0]) == field.encode(masks[1])


def test_a_leaders_share_is_spread_over_the_field():
    vdaf = Prio3(Bits(2000, 50), PRIVATE)
    vdaf.valid.output_len = 2000
    _, (leader, _) = sharded(vdaf, vdaf.field.zeros(2000))
    counts = np.bincount(np.frombuffer(leader[: 2000 * 16], dtype=np.uint8), minlength=256)
    # Chi-square with 255 degrees of freedom: mean 255, standard deviation 22.6.
    assert abs(((counts - 125.0) ** 2 / 125.0).sum() - 255) < 5 * 22.6


def test_bytes_of_another_length_or_above_the_modulus_are_refused():
    public_share, (leader, helper) = sharded(VDAF, VDAF.valid.encode(VALUES))
    too_large = b"\xff" * 16 + leader[16:]
    for public, inputs in (
        (public_share[1:], [leader, helper]),
        (public_share, [leader[1:], helper]),
        (public_share, [too_large, helper]),
        (public_share, [leader, helper + b"\0"]),
    ):
        assert refusal(VDAF, public, inputs) == "bad-encoding"
    shares = [share for _, share in begun(VDAF, public_share, [leader, helper])]
    for wrong in (shares[:1], [shares[0], shares[1][1:]], [b"\xff" * 16 + shares[0][16:], shares[1]]):
        with pytest.raises(AggregationError) as refused:
            VDAF.verifier_shares_to_message(CONTEXT, wrong)
        assert refused.value.code == "bad-encoding"
    with pytest.raises(AggregationError):
        VDAF.shard(CONTEXT, VDAF.valid.encode(VALUES), NONCE, b"too short")
    with pytest.raises(ValueError):
        sharded(VDAF, VDAF.valid.encode(VALUES)[1:])
    with pytest.raises(ValueError):
        VDAF.verify_init(KEY, CONTEXT, 2, NONCE, public_share, helper)
    with pytest.raises(ValueError):
        Prio3(Count(), PRIVATE, num_shares=1)


class Combined(Bits):
    """Numbers x, and bits of a random combination of them with signs that are known only after x is fixed."""

    n, n_bits, output_len, early_len = 6, 8, 6, 6

    def __init__(self, signs=None):
        super().__init__(self.n_bits, 4)
        self.meas_len, self.eval_output_len, self.signs = self.n + self.n_bits, 2, signs

    def bound(self, early_seed):
        return Combined(
            np.frombuffer(Xof(early_seed, b"signs", b"").next(self.n), dtype=np.uint8) % 2 * 2 - 1.0
        )

    def wires(self, meas, joint_rand, num_shares):
        return super().wires(meas[self.n :], joint_rand, num_shares)

    def outputs(self, meas, joint_rand, num_shares, gadget_outputs):
        field = self.field
        value = field.sum(field.mul(meas[self.n :], 2 ** np.arange(self.n_bits)))
        shifted = field.mul(128, pow(num_shares, -1, field.modulus))
        claimed = field.sub(value, shifted)
        wanted = field.combine(self.signs[None, :], meas[: self.n])[0]
        return np.stack([field.sum(gadget_outputs[0]), field.sub(claimed, wanted)])

    def truncate(self, meas):
        return meas[: self.n]

    def rest(self, x, seed):
        return self.field.array((int(self.bound(seed).signs @ x) + 128 >> np.arange(self.n_bits)) & 1)


EARLY = Prio3(Combined(), PRIVATE)
X = np.array([3, -1, 20, 0, 7, -11])


def early_report(rest=EARLY.valid.rest, x=X):
    seeds = []

    def extend(seed):
        seeds.append(seed)
        return rest(x, seed)

    return sharded(EARLY, EARLY.field.array(x), extend=extend), seeds


def test_a_measurement_can_go_on_with_what_follows_from_its_first_elements():
    (public_share, inputs), seeds = early_report()
    assert len(public_share) == 128
    shares = opened(EARLY, public_share, inputs)
    assert EARLY.field.ints(EARLY.aggregate(shares), signed=True).tolist() == X.tolist()
    assert early_report()[1] == seeds
    assert early_report(x=X + np.eye(6, dtype=int)[0])[1] != seeds


def test_what_follows_from_another_seed_is_refused():
    honest = EARLY.valid.rest
    (public_share, inputs), _ = early_report(rest=lambda x, seed: honest(x, bytes(32)))
    assert refusal(EARLY, public_share, inputs) == "bad-proof"


@pytest.mark.parametrize("place", [0, 32, 64, 96, 127])
def test_a_changed_part_of_either_seed_is_refused(place):
    (public_share, inputs), _ = early_report()
    assert refusal(EARLY, changed(public_share, place), inputs) == "bad-proof"


def test_seeds_of_two_stages_have_hashes_of_their_own():
    (public_share, _), _ = early_report()
    parts = [public_share[k : k + 32] for k in range(0, 128, 32)]
    assert len({*parts, EARLY.seed(CONTEXT, parts[:2]), EARLY.seed(CONTEXT, parts[:2], early=True)}) == 6


def test_circuits_with_an_early_seed_need_a_rest_and_joint_randomness():
    with pytest.raises(ValueError, match="extend"):
        sharded(EARLY, EARLY.field.array(X))
    count = Count()
    count.early_len = 1
    with pytest.raises(ValueError, match="joint randomness"):
        Prio3(count, PRIVATE)


@pytest.mark.parametrize("field", [FIELD64, FIELD128], ids=repr)
@pytest.mark.parametrize(("length", "n"), [(3, 4), (7, 8), (4, 4), (10, 16), (1, 2)])
def test_missing_values_and_values_elsewhere_follow_from_interpolation(field, length, n):
    rng, p = np.random.default_rng(905), field.modulus
    coefficients = [int.from_bytes(rng.bytes(16), "little") % p for _ in range(length)]
    w, t = field.root(n), int.from_bytes(rng.bytes(16), "little") % p

    def value(x):
        return sum(c * pow(x, k, p) for k, c in enumerate(coefficients)) % p

    everywhere = [value(pow(w, k, p)) for k in range(n)]
    whole = flp._completed(field, field.array(everywhere[:length]), n)
    assert [int(x) for x in field.ints(whole)] == everywhere
    assert int(field.ints(field.sum(field.mul(whole, flp._lagrange(field, n, t))))) == value(t)
    with pytest.raises(AggregationError) as refused:
        flp._lagrange(field, n, w)
    assert refused.value.code == "bad-point"


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_gadgets_of_any_degree_are_proved_and_checked(degree):
    # x (x - 1) ... (x - degree + 1): x is one of 0, ..., degree - 1; seven calls.
    polynomial = np.poly1d([1])
    for root in range(degree):
        polynomial *= np.poly1d([1, -root])

    class OneOf(flp.Valid):
        field = FIELD64
        meas_len = eval_output_len = output_len = 7
        joint_rand_len = 0
        gadgets = (flp.PolyEval([round(c) for c in polynomial.coeffs[::-1]]),)
        gadget_calls = (7,)

        def wires(self, meas, joint_rand, num_shares):
            return [meas[:, None]]

        def outputs(self, meas, joint_rand, num_shares, gadget_outputs):
            return gadget_outputs[0]

        def truncate(self, meas):
            return meas

    vdaf = Prio3(OneOf(), PRIVATE)
    values = np.arange(7) % degree
    shares = opened(vdaf, *sharded(vdaf, vdaf.field.array(values)))
    assert vdaf.field.ints(vdaf.aggregate(shares)).tolist() == values.tolist()
    values[3] = degree
    assert refusal(vdaf, *sharded(vdaf, vdaf.field.array(values))) == "bad-proof"
