"""Laws of secure sums: equal to plain sums for every drop-out set above the threshold, closed below it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feddbn.errors import AggregationError
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Task, whole
from feddbn.privacy.integers import combine_shares, decode_fixed, encode_fixed, split_secret, sum_residues
from feddbn.privacy.policy import default_threshold
from feddbn.runtime.simulated.secure import secure_federation
from support.questions import Values, give_values, make_question

pytestmark = pytest.mark.promise

Vector = make_question("secure-property-vector", give_values, round=whole(default=0))
TASK = Task(Vector())

finite = st.floats(-1e12, 1e12, allow_nan=False)


@given(st.lists(st.lists(finite, min_size=3, max_size=3), min_size=1, max_size=12))
def test_sum_of_residues_is_the_sum_within_the_bound(rows):
    parts = np.array(rows)
    total = decode_fixed(sum_residues([encode_fixed(part, len(parts)) for part in parts], 3), len(parts))
    exact = np.array([float(sum(_fraction(x) for x in column)) for column in parts.T])
    n = len(parts)
    bound = n * 2.0 ** (n.bit_length() - 65) + 2.0**-52 * np.abs(exact)
    assert np.all(np.abs(total - exact) <= bound)


def _fraction(x):
    from fractions import Fraction

    return Fraction(float(x))


@given(finite)
def test_one_number_survives_the_ring_within_a_step(x):
    assert abs(decode_fixed(encode_fixed(np.array([x]), 1), 1)[0] - x) <= 2.0**-64 + 2.0**-53 * abs(x)


@given(st.data())
def test_masked_sum_equals_plain_sum_for_every_drop_out_set_above_the_threshold(data):
    n_sites = data.draw(st.integers(3, 9), label="sites")
    names = [f"s{i}" for i in range(n_sites)]
    threshold = data.draw(st.integers(default_threshold(n_sites), n_sites), label="threshold")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), label="seed"))
    before = data.draw(st.sets(st.sampled_from(names)), label="lost before their input")
    after = data.draw(st.sets(st.sampled_from(names)), label="lost after their input")
    lost_reply = data.draw(st.booleans(), label="the input was sent, but lost")
    vectors = {name: rng.normal(size=5) * 10.0 ** rng.integers(-6, 9, 5) for name in names}

    def fault(site, phase):
        if phase == "masked" and site in before:
            return "reply lost" if lost_reply else "request lost"
        return "request lost" if phase in ("survivors", "unmask") and site in after else None

    sites = {name: Site(name, Values(vectors[name])) for name in names}
    federation = secure_federation(sites, threshold=threshold, random_bytes=rng.bytes, fault=fault)
    survivors = [name for name in names if name not in before]
    helpers = [name for name in survivors if name not in after]
    if len(survivors) < threshold or len(helpers) < threshold:
        with pytest.raises(AggregationError) as caught:
            federation.sum(TASK)
        assert caught.value.code in ("few-inputs", "few-signatures", "few-helpers")
        return
    answer = federation.sum(TASK)
    assert answer.contributors == tuple(survivors)
    assert federation.last_dropped == tuple(sorted(before))
    parts = np.array([vectors[name] for name in survivors])
    assert np.all(np.abs(answer.value - parts.sum(axis=0)) <= 1e-9 * np.abs(parts).sum(axis=0))


@given(st.data())
@settings(max_examples=settings.default.max_examples // 10)
def test_sums_go_on_over_many_slots_and_epochs_with_the_sites_of_the_first(data):
    names = [f"s{i}" for i in range(6)]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), label="seed"))
    vectors = {name: rng.normal(size=4) for name in names}
    lost: set[str] = set()
    sites = {name: Site(name, Values(vectors[name])) for name in names}
    federation = secure_federation(
        sites,
        random_bytes=rng.bytes,
        fault=lambda site, phase: "request lost" if phase == "masked" and site in lost else None,
    )
    first: set[str] | None = None
    for round_number in range(12):
        lost.clear()
        lost |= data.draw(st.sets(st.sampled_from(names), max_size=2), label="lost")
        task = Task(Vector(round=round_number))
        present = set(names) - lost
        if len(present) < 5 or (first is not None and present != first):
            with pytest.raises(AggregationError):
                federation.sum(task)
            continue
        first = present
        answer = federation.sum(task)
        assert answer.contributors == tuple(sorted(present))
        np.testing.assert_allclose(
            answer.value, sum(vectors[name] for name in present), rtol=1e-9, atol=1e-12
        )


@given(st.data())
def test_any_threshold_many_shares_open_the_secret(data):
    n = data.draw(st.integers(1, 20))
    threshold = data.draw(st.integers(1, n))
    secret = data.draw(st.binary(min_size=1, max_size=40))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    shares = split_secret(secret, threshold, n, rng.bytes)
    chosen = data.draw(st.sets(st.integers(1, n), min_size=threshold))
    assert combine_shares({x: shares[x - 1] for x in chosen}, threshold) == secret


def test_sixty_four_sites_with_as_many_drop_outs_as_the_threshold_allows():
    rng = np.random.default_rng(0)
    names = [f"s{i:02d}" for i in range(64)]
    vectors = {name: rng.normal(size=21) * 1e3 for name in names}
    lost = set(rng.choice(names, 64 - default_threshold(64), replace=False))
    federation = secure_federation(
        {name: Site(name, Values(vectors[name])) for name in names},
        random_bytes=rng.bytes,
        fault=lambda site, phase: "request lost" if phase == "masked" and site in lost else None,
    )
    federation.agree_on_keys(1)
    answer = federation.sum(TASK)
    assert len(answer.contributors) == default_threshold(64)
    np.testing.assert_allclose(answer.value, sum(vectors[n] for n in answer.contributors), rtol=1e-9)
