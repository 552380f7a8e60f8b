"""Products of readings by the time between them: what a site answers, whose readings these are, and what noise takes."""

from dataclasses import replace

import numpy as np
import pytest

from feddbn.core.designs.recordings import Block
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.errors import DataError, ParameterError, ProtocolError
from feddbn.federation.guards.sampling_noise import SamplingNoise
from feddbn.federation.protocol.site import Channel, Here, Site, site_task
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.lags import (
    LagCountsQuestion,
    LagsQuestion,
    SummedLags,
    clock_of,
    lag_design,
)
from feddbn.runtime.simulated.secure import secure_federation

NAMES = ("a", "b", "c")
LEVEL = np.array([80.0, 120.0, 37.0])


def readings(rng, n=40, share=0.5):
    times = np.sort(rng.uniform(0, 24, n))
    values = LEVEL + rng.normal(size=(n, 3)) * [10, 15, 0.5]
    values[rng.random(values.shape) > share] = np.nan
    return times - times[0], values


def site_of(*recordings, step="1h"):
    items = [
        ArrayRecording(f"r{k}", (Block(values, times=times),)) for k, (times, values) in enumerate(recordings)
    ]
    return MemorySite(NAMES, items, step=step)


def question(design=None, kind=LagsQuestion, **more):
    design = design or lag_design(NAMES, "1h", 0.25, 8)
    bins = {"clock": design.clock, "first": design.first, "n_bins": design.n_bins}
    return kind(**({"n_lags": 0, "variables": design.variables} | bins | more))


def asked(data, what):
    return site_task(what.name).answer(Here("s", data, {}), what)[1]


def by_hand(recordings, design, level=None, length=1.0):
    """The same, pair by pair."""
    every = np.concatenate([values for _, values in recordings])
    level = np.nanmean(every, axis=0) if level is None else level
    counts, products, delays = np.zeros((3, *design.shape))
    for times, values in recordings:
        for r, s in np.ndindex(len(times), len(times)):
            delay = (times[r] - times[s]) * length
            b = 0 if r == s else int(np.searchsorted(design.edges, delay))
            if r != s and not (delay > 0 and 1 <= b <= design.n_bins):
                continue
            product = np.outer(values[r] - level, values[s] - level)
            there = ~np.isnan(product)
            counts[b] += there
            products[b] += np.where(there, product, 0.0)
            delays[b] += there * delay
    return counts, products, delays, np.nansum(every, axis=0)


def assert_same(found, expected):
    counts, products, delays, totals = expected
    np.testing.assert_array_equal(found.sums.counts, counts)
    np.testing.assert_allclose(found.sums.products, products, rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose(found.sums.delays, delays, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.totals, totals, rtol=1e-12)


def test_an_answer_is_what_pairs_add_up_to():
    rng = np.random.default_rng(900)
    recordings = [readings(rng) for _ in range(3)]
    what = question()
    vector = asked(site_of(*recordings), what)
    assert len(vector) == what.length == site_task(what.name).length(what)
    found = SummedLags.from_sums(vector, what.lag_design)
    assert_same(found, by_hand(recordings, what.lag_design))
    assert found.sums.n_recordings == 3
    assert found.sums.time == pytest.approx(sum(times[-1] for times, _ in recordings))
    np.testing.assert_allclose(found.means, np.nanmean(np.concatenate([v for _, v in recordings]), axis=0))
    # Sums of single readings by bin are not told.
    assert not found.sums.later.any()
    assert not found.sums.earlier.any()
    np.testing.assert_allclose(found.to_sums(what.lag_design), vector)


def test_recordings_may_lose_their_own_means():
    rng = np.random.default_rng(901)
    recordings = [readings(rng) for _ in range(3)]
    what = question(center="recording")
    assert what.transformations == ("means",)
    found = SummedLags.from_sums(asked(site_of(*recordings), what), what.lag_design)
    parts = [by_hand([one], what.lag_design, np.nanmean(one[1], axis=0)) for one in recordings]
    np.testing.assert_allclose(found.sums.products, sum(part[1] for part in parts), rtol=1e-9, atol=1e-7)


def test_cells_that_are_left_out_are_zeros():
    rng = np.random.default_rng(902)
    data = site_of(readings(rng))
    told = (rng.random(question().lag_design.shape) < 0.5).astype(float)
    whole, part = (asked(data, question(cells=cells)) for cells in (None, told))
    mask = np.concatenate([np.tile(told.ravel(), 3), np.diagonal(told[0]), np.ones(2)])
    np.testing.assert_array_equal(part, whole * mask)
    fewer = question(cells=told).telling(~told.astype(bool))
    assert not asked(data, fewer)[:-2].any()


@pytest.mark.parametrize(("step", "length"), [("1h", 1.0), ("15min", 0.25), ("2h", 2.0), ("1D", 24.0)])
def test_rows_on_a_grid_answer_as_readings_at_these_times_do(step, length):
    """A grid of rows, with a gap, and the same readings with their times in hours."""
    rng = np.random.default_rng(903)
    values = LEVEL + rng.normal(size=(30, 3))
    values[rng.random(values.shape) < 0.3] = np.nan
    places = np.concatenate([np.arange(12), np.arange(20, 38)])
    blocks = (Block(values[:12], time=0), Block(values[12:], time=20))
    grid = MemorySite(NAMES, [ArrayRecording("r0", blocks)], step=step)
    design = lag_design(NAMES, step, 1, 8)
    on_grid = asked(grid, question(design))
    np.testing.assert_allclose(on_grid, asked(site_of((places * length, values)), question(design)))
    found = SummedLags.from_sums(on_grid, design)
    assert_same(found, by_hand([(places * length, values)], design))


def test_rows_without_a_clock_are_counted_and_no_pair_reaches_over_an_unknown_gap():
    rng = np.random.default_rng(904)
    parts = [LEVEL + rng.normal(size=(15, 3)) for _ in range(2)]
    data = MemorySite(NAMES, [ArrayRecording("r", (Block(parts[0]), Block(parts[1])))])
    design = lag_design(NAMES, None, 1, 6)
    assert design.clock == "rows"
    found = SummedLags.from_sums(asked(data, question(design)), design)
    level = np.concatenate(parts).mean(axis=0)
    both = [by_hand([(np.arange(15.0), part)], design, level) for part in parts]
    np.testing.assert_allclose(found.sums.products, both[0][1] + both[1][1], rtol=1e-9, atol=1e-8)
    assert found.sums.n_recordings == 1


def test_a_site_with_another_clock_refuses():
    one = (np.arange(5.0), np.ones((5, 3)))
    for step, code in ((None, "no-clock"), ("0.5", "other-clock")):
        with pytest.raises(DataError) as caught:
            asked(site_of(one, step=step), question())
        assert caught.value.code == code
    with pytest.raises(DataError) as caught:
        asked(site_of(one), question(lag_design(NAMES)))
    assert caught.value.code == "other-clock"


def test_steps_are_read_and_those_of_no_fixed_length_refused():
    assert clock_of(None) == clock_of("") == ("rows", 1.0)
    assert clock_of("0.5") == ("numbers", 0.5)
    assert clock_of("90min") == ("hours", 1.5)
    assert clock_of("W") == ("hours", 168.0)
    for step in ("MS", "B", "-1", "0", "nan", "soon"):
        with pytest.raises(ParameterError):
            clock_of(step)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_lags": 1},
        {"fold": (0, 2, 200)},
        {"center": "recording", "degree": 1},
        {"log_scales": np.zeros(3)},
        {"row_model": np.zeros((4, 3))},
        {"first": -50},
        {"clock": "days"},
        {"n_bins": 0},
        {"cells": np.full((1, 3, 3), 0.5)},
        {"kinds": ("continuous",) * 3},
    ],
)
def test_what_has_no_meaning_is_refused_where_the_question_is_made(wrong):
    with pytest.raises(ProtocolError):
        question(**wrong)
    cells = np.ones(question().lag_design.shape)
    cells[0, 0, 0] = 0.5
    with pytest.raises(ProtocolError):
        question(cells=cells)


def test_a_question_travels():
    what = question(cells=np.ones(question().lag_design.shape), robust="site")
    again = LagsQuestion.read(what.params, what.arrays)
    assert again.params == what.params
    assert again.lag_design == what.lag_design
    counts = question(kind=LagCountsQuestion, least=10)
    assert LagCountsQuestion.read(counts.params, counts.arrays) == counts


def test_extreme_readings_do_not_decide():
    """One reading of 10,000 in the way of 600: bounded cells bring it back, and leave all others as they are."""
    rng = np.random.default_rng(905)
    clean = [readings(rng, n=100) for _ in range(4)]
    dirty = [(times, values.copy()) for times, values in clean]
    at = tuple(np.argwhere(~np.isnan(dirty[1][1]))[7])
    dirty[1][1][at] = 10_000.0
    plain, bounded = question(), question(robust="site")
    exact = asked(site_of(*clean), plain)
    np.testing.assert_allclose(asked(site_of(*clean), bounded), exact)
    size = 3 * int(np.prod(plain.lag_design.shape))
    apart = [np.abs(asked(site_of(*dirty), what)[:size] - exact[:size]).max() for what in (plain, bounded)]
    assert apart[0] > 1e6
    assert apart[1] < 5e3


def test_sums_of_sites_add_up_under_masks():
    rng = np.random.default_rng(906)
    sites = {f"s{k}": site_of(*(readings(rng) for _ in range(2))) for k in range(4)}
    what = question()
    federation = secure_federation({name: Site(name, data) for name, data in sites.items()}, 3)
    total = federation.sum(Task(what)).value
    np.testing.assert_allclose(total, sum(asked(data, what) for data in sites.values()), rtol=0, atol=1e-6)


def test_counts_say_where_there_are_enough_readings():
    rng = np.random.default_rng(907)
    data = site_of(*(readings(rng, n=20, share=0.4) for _ in range(2)))
    design = lag_design(NAMES, "1h", 0.25, 8)
    found = asked(data, question(kind=LagCountsQuestion, least=10)).reshape(design.shape)
    np.testing.assert_array_equal(found, question().n_readings(data) >= 10)
    assert 0 < found.mean() < 1


def test_sums_add_up_over_sites_only_in_the_same_bins():
    a, b = (question(lag_design(NAMES, "1h", 0.25, longest)) for longest in (8, 16))
    data = site_of(readings(np.random.default_rng(910)))
    one, other = (SummedLags.from_sums(asked(data, what), what.lag_design) for what in (a, b))
    # The longer question has the bins of the shorter one, bit for bit, and more.
    shared = slice(0, a.n_bins + 1)
    np.testing.assert_array_equal(one.sums.products, other.sums.products[shared])
    assert replace(one.sums, time=1.0).time == 1.0


@pytest.mark.slow
def test_noise_by_default_is_a_share_of_the_error_and_none_where_nothing_is_told():
    """Many sites of one kind: what their answers vary by, and what each adds to its own."""
    rng = np.random.default_rng(911)
    told = np.ones(question().lag_design.shape)
    told[:, 2] = told[:, :, 2] = 0.0
    what = question(cells=told)
    program, exact, noise = site_task(what.name), [], []
    for k in range(60):
        data = site_of(*(readings(rng, n=80) for _ in range(3)))
        guard = SamplingNoise(bytes([k]) * 32)
        noisy = guard.make(program, Here("s", data, {}), Task(what), Channel())[1]
        again = SamplingNoise(bytes([k]) * 32).make(program, Here("s", data, {}), Task(what), Channel())[1]
        np.testing.assert_array_equal(noisy, again)
        exact.append(asked(data, what))
        noise.append(noisy - exact[-1])
    size = int(np.prod(told.shape))
    products = slice(size, 2 * size)
    off = (told == 0).ravel()
    assert not np.array(noise)[:, products][:, off].any()
    share = np.std(noise, axis=0)[products][~off] / np.std(exact, axis=0)[products][~off]
    assert 0.2 < np.median(share) < 0.6
