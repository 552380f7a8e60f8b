import numpy as np
import pytest

from feddbn.core.designs.cells import FilledSite, TreatedSite, block_deviations, limits_of, site_profile
from feddbn.core.designs.design import ONE_MEAN, Nuisance
from feddbn.core.designs.recordings import Block, Recording
from feddbn.core.statistics.survey import deviations
from feddbn.data.memory import ArrayRecording, MemorySite


def site(*segments):
    blocks = tuple(Block(np.asarray(x)) for x in segments)
    return MemorySite(("a", "b"), [ArrayRecording("r", blocks)])


def values_of(data):
    return np.concatenate([block.values for r in data.recordings() for block in r.blocks()])


def test_a_segment_cut_into_blocks_deviates_as_the_whole():
    x = np.random.default_rng(0).normal(size=(50, 2))
    cut = [Block(x[:11]), Block(x[11:12], False), Block(x[12:30], False), Block(x[30:], False)]
    parts = [deviation for _, deviation in block_deviations(cut)]
    # The block of one row is shorter than the reach of the median; its neighbours see less of each other.
    np.testing.assert_allclose(np.concatenate(parts)[15:], deviations(x)[15:])
    apart = [deviation for _, deviation in block_deviations([Block(x[:20]), Block(x[20:])])]
    np.testing.assert_allclose(apart[0], deviations(x[:20]))
    np.testing.assert_allclose(apart[1], deviations(x[20:]))


def test_far_cells_are_empty_by_the_sites_own_scale_or_if_it_is_small_by_the_common_one():
    rng = np.random.default_rng(1)
    x = 10 * rng.normal(size=(200, 2))
    x[50, 0] = 500.0
    limits = limits_of(site(x), np.array([1.0, 0.0]))
    assert 60 < limits[0] < 200
    assert np.isinf(limits[1])
    treated = values_of(TreatedSite(site(x), limits))
    assert np.isnan(treated[50, 0])
    assert np.isnan(treated).sum() == 1
    few = limits_of(site(x[:20]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(few, 12.0)


def test_a_profile_is_of_all_recordings_of_a_site():
    x = np.random.default_rng(2).normal(size=(120, 2))
    found = site_profile(site(x[:60], 3 * x[60:]), 0)
    assert found is not None
    both = np.concatenate([x[:60] - x[:60].mean(0), 3 * (x[60:] - x[60:].mean(0))])
    np.testing.assert_allclose(np.exp(found[0][:2]), both.std(axis=0), rtol=0.08)


def test_a_profile_is_that_of_the_cells_without_the_cycles_of_the_site():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, 3)) @ np.array([[1.0, 0.6, 0.0], [0.0, 1.0, -0.5], [0.0, 0.0, 1.0]])
    t = np.arange(400.0)
    cycles = np.column_stack([k * np.sin(2 * np.pi * t / 24 + k) for k in (1, 2, 3)])
    plain = site_profile(MemorySite(("a", "b", "c"), [ArrayRecording("r", (Block(x),))]), 1)
    found = site_profile(MemorySite(("a", "b", "c"), [ArrayRecording("r", (Block(x + cycles),))]), 1)
    assert plain is not None
    assert found is not None
    np.testing.assert_allclose(found[0], plain[0], atol=0.03)
    # With the cycles standard deviations are up to twice as large, and correlations others.
    assert np.log((x + cycles).std(axis=0) / x.std(axis=0)).max() > 0.5


@pytest.mark.parametrize("n", [1, 2, 3])
def test_segments_shorter_than_the_window_are_read(n):
    x = np.arange(2.0 * n).reshape(n, 2)
    assert [d.shape for _, d in block_deviations([Block(x)])] == [(n, 2)]


def rows_of(recording: Recording):
    return np.concatenate([block.values for block in recording.blocks()])


def recorded_site(*segments, times=None):
    times = times or [None] * len(segments)
    blocks = tuple(Block(np.asarray(x), time=t) for x, t in zip(segments, times, strict=True))
    return MemorySite(("a", "b"), [ArrayRecording("r", blocks)])


def test_nuisances_are_taken_off_the_present_cells_of_a_whole_recording():
    t = np.arange(60.0)
    x = np.stack([3 + 0.5 * t, 2 * np.sin(2 * np.pi * t / 12)], axis=1)
    x[7, 0] = np.nan
    filled = FilledSite(
        recorded_site(x[:20], x[30:], times=[0, 30]), Nuisance("recording", 1, (12.0,)), None, 0
    )
    found = rows_of(next(iter(filled.recordings())))
    assert np.isnan(found[7, 0])
    np.testing.assert_allclose(np.nan_to_num(found), 0, atol=1e-9)


def test_cells_are_drawn_with_the_right_moments_and_the_same_every_time():
    rng = np.random.default_rng(0)
    n = 5000
    x = np.zeros((n, 2))
    e = rng.normal(size=(n, 2))
    for t in range(1, n):
        x[t, 0] = 0.6 * x[t - 1, 0] + e[t, 0]
        x[t, 1] = 0.8 * x[t, 0] + e[t, 1]
    Z = np.hstack([x[1:], x[:-1]])
    model = np.vstack([Z.mean(axis=0), np.cov(Z.T)])
    holes = np.where(rng.random((n, 2)) < 0.3, np.nan, x)
    recording = next(iter(FilledSite(recorded_site(holes), ONE_MEAN, model, 5).recordings()))
    found = rows_of(recording)
    assert not np.isnan(found).any()
    present = ~np.isnan(holes)
    assert np.array_equal(found[present], holes[present])
    assert np.array_equal(found, rows_of(recording))
    F = np.hstack([found[1:], found[:-1]])
    np.testing.assert_allclose(np.corrcoef(F.T), np.corrcoef(Z.T), atol=0.05)
    np.testing.assert_allclose(F.std(axis=0), Z.std(axis=0), rtol=0.05)


def test_a_segment_that_begins_with_an_empty_row_is_filled():
    x = np.random.default_rng(1).normal(size=(10, 2))
    x[0] = np.nan
    model = np.vstack([np.zeros(4), np.eye(4)])
    found = rows_of(next(iter(FilledSite(recorded_site(x, x), ONE_MEAN, model, 0).recordings())))
    assert np.isfinite(found).all()
