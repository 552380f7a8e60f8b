import builtins

import numpy as np
import pytest

from feddbn.core.designs.recordings import lagged_rows
from feddbn.core.statistics.moments import Moments, sums_length
from feddbn.errors import MissingExtra, ProtocolError
from feddbn.federation.protocol.task import run_program
from feddbn.federation.sums import gram
from feddbn.federation.sums.gram import GramQuestion, bootstrap_program, resampling_plan
from support.saying import refused
from support.sites import federation_of, memory_site

LAGS = 2
NAMES = ("x0", "x1", "x2")


def walking(seed, lengths, level=0.0):
    rng = np.random.default_rng(seed)
    return memory_site(*(level + np.cumsum(rng.normal(size=(n, 3)), axis=0) for n in lengths))


def run(sites, n_replicates=6, **options):
    return run_program(bootstrap_program(NAMES, LAGS, n_replicates, **options), federation_of(sites))


def pooled(sites, replicate, resampling, unit, seed):
    """The resample written out: rows are copied as often as their unit was drawn, then pooled."""
    rows = []
    for data in sites.values():
        plan = resampling_plan(data, LAGS, 4, unit)
        counts = plan.counts(resampling, seed, replicate)
        chunks = [c for r in data.recordings() for c in lagged_rows(r.blocks(), LAGS)]
        for chunk, sizes, units in zip(chunks, plan.sizes, plan.units, strict=True):
            start = 0
            for size, number in zip(sizes, units, strict=True):
                rows += [chunk[start : start + size]] * int(counts[number])
                start += size
    return Moments.of_rows(np.concatenate(rows))


@pytest.mark.parametrize("resampling", ["bootstrap", "stability"])
@pytest.mark.parametrize("unit", ["blocks", "recordings"])
def test_resampled_sums_equal_pooled_resampled_rows_for_the_same_draws(resampling, unit):
    sites = {
        "one": walking(0, [40, 2, 17, 9]),
        "two": walking(1, [25, 30, 8]),
        "three": walking(2, [60]),
    }
    found = run(sites, resampling=resampling, block_length=4, unit=unit, seed=3)
    for replicate in range(-1, 6):
        ours = found.full if replicate < 0 else found.replicates[replicate]
        expected = pooled(sites, replicate, resampling, unit, 3)
        assert ours.n == expected.n
        np.testing.assert_allclose(ours.mean, expected.mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(ours.scatter, expected.scatter, rtol=1e-10, atol=1e-9)


def test_draws_depend_on_seed_replicate_and_site_and_on_nothing_else():
    one, two = walking(0, [200]), walking(1, [200])
    plan, again, other = (resampling_plan(s, LAGS, 5, "blocks") for s in (one, walking(0, [200]), two))
    counts = plan.counts("bootstrap", 7, 3)
    np.testing.assert_array_equal(counts, again.counts("bootstrap", 7, 3))
    assert plan.n_units == other.n_units == 40
    for different in (
        plan.counts("bootstrap", 8, 3),
        plan.counts("bootstrap", 7, 4),
        other.counts("bootstrap", 7, 3),
    ):
        assert not np.array_equal(counts, different)


def test_whoever_knew_the_draws_could_solve_for_single_blocks_so_draws_are_seeded_by_private_rows():
    data = walking(0, [50])
    plan = resampling_plan(data, LAGS, 4, "blocks")
    found = run({"s": data}, 40, block_length=4)
    counts = np.stack([plan.counts("bootstrap", 0, r) for r in range(40)])
    totals = np.stack([m.n * m.mean for m in found.replicates])
    recovered = np.linalg.lstsq(counts, totals, rcond=None)[0]
    block = next(iter(lagged_rows(next(data.recordings()).blocks(), LAGS)))[:4]
    np.testing.assert_allclose(recovered[0], block.sum(axis=0), atol=1e-8)
    guessed = resampling_plan(walking(99, [50]), LAGS, 4, "blocks")
    wrong = np.stack([guessed.counts("bootstrap", 0, r) for r in range(40)])
    assert np.abs(np.linalg.lstsq(wrong, totals, rcond=None)[0][0] - block.sum(axis=0)).max() > 0.1


def test_many_replicates_are_asked_in_several_sums_with_the_same_answer(monkeypatch):
    sites = {"one": walking(0, [50]), "two": walking(1, [30])}
    whole = run(sites, 7)
    monkeypatch.setattr(gram, "FLOATS_PER_TASK", 3 * sums_length(9))
    monkeypatch.setattr(gram, "_FLOATS_AT_ONCE", 3 * 81)
    parts = run(sites, 7)
    assert len(parts.replicates) == 7
    for a, b in zip((whole.full, *whole.replicates), (parts.full, *parts.replicates), strict=True):
        np.testing.assert_allclose(a.scatter, b.scatter, rtol=1e-12, atol=1e-9)


def test_large_levels_do_not_cost_digits():
    near, far = run({"s": walking(0, [80])}, 2), run({"s": walking(0, [80], level=1e7)}, 2)
    np.testing.assert_allclose(far.full.scatter, near.full.scatter, rtol=1e-6)


def test_a_site_with_many_recordings_resamples_recordings_and_one_with_few_resamples_blocks():
    assert resampling_plan(walking(0, [10] * 25), LAGS, 4, "auto").n_units == 25
    assert resampling_plan(walking(0, [42] * 2), LAGS, 4, "auto").n_units == 20
    assert resampling_plan(walking(0, [10, 2, 1, 10]), LAGS, 4, "recordings").n_units == 2


def test_a_site_without_usable_rows_adds_nothing():
    with_empty = run({"one": walking(0, [50]), "two": walking(1, [2])})
    alone = run({"one": walking(0, [50])})
    assert with_empty.replicates[2].n == alone.replicates[2].n
    np.testing.assert_allclose(with_empty.replicates[2].scatter, alone.replicates[2].scatter)


def test_politis_white_blocks_are_longer_for_slow_series():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(400, 3))
    slow = np.zeros((400, 3))
    for t in range(1, 400):
        slow[t] = 0.9 * slow[t - 1] + noise[t]
    n_fast, n_slow, n_constant = (
        resampling_plan(memory_site(x), LAGS, "politis-white", "blocks").n_units
        for x in (noise, slow, np.ones((50, 3)))
    )
    assert n_slow < n_fast / 4
    assert n_constant == 48


def test_politis_white_says_which_extra_is_missing(monkeypatch):
    original = builtins.__import__

    def without_arch(name, *rest, **more):
        if name.startswith("arch"):
            raise ImportError(name)
        return original(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without_arch)
    with refused(MissingExtra, "arch", "feddbn[bootstrap]"):
        resampling_plan(walking(0, [50]), LAGS, "politis-white", "blocks")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"resampled": "rows"}, "resampled="),
        ({"block_length": 0}, "block_length"),
        ({"stop": 0, "first": 0}, "'first'"),
        ({"n_lags": 1}, "'origin'"),
        ({"nonce": 1}, "'nonce'"),
    ],
)
def test_malformed_tasks_are_refused(change, name):
    given = {"n_lags": 2, "variables": NAMES, "first": -1, "stop": 1, "resampling": "bootstrap"}
    given |= {"block_rule": "given", "block_length": 4, "resampled": "auto", "seed": 0}
    with refused(ProtocolError, name, code="bad-question"):
        GramQuestion.read({**given, **change}, {"origin": np.zeros(9)})


def test_a_sum_of_the_wrong_length_is_refused():
    federation = federation_of({"s": walking(0, [50])})
    program = bootstrap_program(NAMES, LAGS, 2)
    first = next(program)
    program.send(federation.sum(first))
    with refused(ProtocolError, 3, code="bad-sum"):
        program.send(federation.sum(first))
