import numpy as np
import pytest
from scipy.stats import norm

from feddbn.core.designs import cells, recordings
from feddbn.core.designs.cells import BoundedSite, FilledSite, site_profile
from feddbn.core.designs.design import ONE_MEAN, Nuisance
from feddbn.core.designs.recordings import Block, Recording
from feddbn.data import Recording as DataRecording
from feddbn.data import Site


def site(*segments):
    blocks = tuple(Block(np.asarray(x)) for x in segments)
    return Site(("a", "b"), [DataRecording("r", blocks)])


def values_of(data):
    return np.concatenate([block.values for r in data.recordings() for block in r.blocks()])


def bounded_by_hand(x, scale=None):
    """One recording without a trend, by the definition; columns one by one."""
    found = x.copy()
    for j, column in enumerate(x.T):
        here = column[~np.isnan(column)]
        n = len(x) // 3
        slope = (np.nanmedian(column[-n:]) - np.nanmedian(column[:n])) / (len(x) - n)
        line = np.nanmedian(column - slope * np.arange(len(x))) + slope * np.arange(len(x))
        distance = np.abs(column - line)[~np.isnan(column)]
        s = max(np.median(distance) / norm.ppf(0.75), np.quantile(distance, 0.8) / norm.ppf(0.9))
        for t in range(len(x)):
            z = (column[t] - line[t]) / (s if scale is None else scale[j])
            if abs(z) > 5:
                found[t, j] = line[t] + s * np.sign(z) * max(10 - abs(z), 0)
        assert len(here) > 20
    return found


@pytest.mark.parametrize("scope", ["site", "recording"])
def test_far_cells_are_bounded_as_defined_and_all_others_stay_bit_for_bit(scope):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 2)) * (1.0, 50.0) + (0.0, 37.0) + 0.02 * np.arange(200)[:, None]
    x[[3, 50, 51], 0] += (7.0, 400.0, -9.0)
    x[70, 1], x[80:90, 1] = -999.0, np.nan
    found = values_of(BoundedSite(site(x), scope))
    np.testing.assert_allclose(found, bounded_by_hand(x), rtol=1e-12)
    other = found != x
    assert np.argwhere(other & ~np.isnan(x)).tolist() == [[3, 0], [50, 0], [51, 0], [70, 1]]
    line = np.median(x[:, 0] - 0.02 * np.arange(200))
    # What lies farther than ten robust standard deviations counts as the median.
    assert found[50, 0] == pytest.approx(line + 0.02 * 50, abs=0.5)
    assert abs(found[3, 0] - line) < 5


def test_gaussian_cells_stay_and_no_cell_has_much_influence_however_large():
    x = np.random.default_rng(2).normal(size=(5000, 2))
    np.testing.assert_array_equal(values_of(BoundedSite(site(x))), x)
    spread = []
    for size in (4.0, 6.0, 8.0, 12.0, 1e3, 1e9):
        worse = x.copy()
        worse[100, 0] = size
        spread.append(values_of(BoundedSite(site(worse)))[100, 0])
    np.testing.assert_allclose(spread, [4.0, 4.0, 2.0, 0.0, 0.0, 0.0], atol=0.35)


def test_levels_bursts_and_heavy_shares_stay_and_so_do_rests_counts_and_yes_no():
    rng = np.random.default_rng(3)
    n = 300
    level = rng.normal(size=n) + 40.0 * (np.arange(n) >= 200)
    bursts = rng.normal(size=n) + 30.0 * (rng.random(n) < 0.3)
    counts, rare = rng.poisson(0.4, size=n), np.where(rng.random(n) < 0.05, rng.lognormal(3, 1, n), 0.0)
    for column in (level, bursts, counts, rare, (rng.random(n) < 0.02) * 1.0, np.full(n, 7.0)):
        x = np.column_stack([column, np.zeros(n)])
        np.testing.assert_array_equal(values_of(BoundedSite(site(x))), x)


def test_inputs_stay_and_so_do_cells_around_pulses_of_inputs_or_of_what_rests():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(200, 2))
    x[50, 0], x[50:53, 1], x[120, 1] = 60.0, 30.0, 30.0
    known = values_of(BoundedSite(site(x), inputs=(0,)))
    assert np.argwhere(known != x).tolist() == [[120, 1]]
    # Without being told, a spike is a spike.
    assert np.argwhere(values_of(BoundedSite(site(x))) != x)[:, 0].tolist() == [50, 50, 51, 52, 120]
    x[:, 0] = 0.0
    x[50, 0] = 1.0
    assert np.argwhere(values_of(BoundedSite(site(x))) != x).tolist() == [[120, 1]]
    cut = Site(
        ("a", "b"), [DataRecording("r", (Block(x[:51]), Block(x[51:52], False), Block(x[52:], False)))]
    )
    np.testing.assert_array_equal(values_of(BoundedSite(cut)), values_of(BoundedSite(site(x))))


def test_short_recordings_go_by_the_median_of_their_site_and_few_cells_have_no_scale():
    rng = np.random.default_rng(5)
    parts = [rng.normal(size=(4, 2)) for _ in range(40)]
    parts[7][2, 0] = 1e4
    data = Site(("a", "b"), [DataRecording(str(k), (Block(x),)) for k, x in enumerate(parts)])
    found, before = values_of(BoundedSite(data)), np.concatenate(parts)
    assert np.argwhere(found != before).tolist() == [[30, 0]]
    assert abs(found[30, 0]) < 0.5
    # By itself each of them has too few cells.
    np.testing.assert_array_equal(values_of(BoundedSite(data, "recording")), before)


def test_by_recordings_none_acts_on_another_and_by_sites_all_have_one_scale():
    rng = np.random.default_rng(6)
    parts = [rng.normal(size=(60, 2)), 20 * rng.normal(size=(60, 2)) + 500]
    parts[0][10, 0] = 9.0

    def seen(scope, *given):
        data = Site(("a", "b"), [DataRecording(str(k), (Block(x),)) for k, x in enumerate(given)])
        return values_of(BoundedSite(data, scope))

    for scope, is_bounded in (("recording", True), ("site", False)):
        assert (seen(scope, *parts)[10, 0] != 9.0) == is_bounded
    np.testing.assert_array_equal(seen("recording", *parts)[:60], seen("recording", parts[0]))


def test_far_cells_are_counted_and_a_site_without_any_is_read_once():
    rng = np.random.default_rng(8)
    x = rng.normal(size=(400, 2)) + 0.05 * np.arange(400)[:, None]
    parts = tuple(Block(part, k == 0) for k, part in enumerate(np.split(x, 8)))
    readings = []

    class Watched(DataRecording):
        def blocks(self):
            readings.append(self.name)
            return super().blocks()

    assert BoundedSite(Site(("a", "b"), [Watched("r", parts)])).n_far().tolist() == [0, 0]
    assert readings == ["r"]
    x[[5, 200, 390], 1] += (6.6, -30.0, 9.0)
    x[7, 0] += 5.2
    found = BoundedSite(Site(("a", "b"), [Watched("r", parts)]))
    assert found.n_far().tolist() == [0, 3]
    assert len(readings) == 3
    assert found.is_still.tolist() == [False, False]


def test_long_data_are_judged_by_rows_at_equal_distances(monkeypatch):
    rng = np.random.default_rng(7)
    x = rng.normal(size=(5000, 2)) + 0.01 * np.arange(5000)[:, None]
    x[rng.integers(0, 5000, 20), 0] += 100.0
    whole = values_of(BoundedSite(site(x)))
    monkeypatch.setattr(cells, "_MOST_ROWS", 600)
    cut = tuple(Block(part, k == 0) for k, part in enumerate(np.split(x, [7, 2000, 2001, 4100])))
    few = values_of(BoundedSite(Site(("a", "b"), [DataRecording("r", cut)])))
    np.testing.assert_array_equal(few != x, whole != x)
    np.testing.assert_allclose(few, whole, atol=0.5)
    kept = cells._Evenly(np.empty((0, 1)))
    for part in np.split(np.arange(5000.0)[:, None], [7, 2000, 2001, 4100]):
        kept.add(part)
    np.testing.assert_array_equal(kept.rows[:, 0], kept.places)
    assert 300 < len(kept.rows) <= 600
    assert kept.places[1] == 16


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
    plain = site_profile(Site(("a", "b", "c"), [DataRecording("r", (Block(x),))]), 1)
    found = site_profile(Site(("a", "b", "c"), [DataRecording("r", (Block(x + cycles),))]), 1)
    assert plain is not None
    assert found is not None
    np.testing.assert_allclose(found[0], plain[0], atol=0.03)
    # With the cycles standard deviations are up to twice as large, and correlations others.
    assert np.log((x + cycles).std(axis=0) / x.std(axis=0)).max() > 0.5


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("scope", ["site", "recording"])
def test_sites_of_hardly_any_rows_are_read(n, scope):
    x = np.arange(2.0 * n).reshape(n, 2)
    np.testing.assert_array_equal(values_of(BoundedSite(site(x), scope)), x)


def rows_of(recording: Recording):
    return np.concatenate([block.values for block in recording.blocks()])


def recorded_site(*segments, times=None):
    times = times or [None] * len(segments)
    blocks = tuple(Block(np.asarray(x), time=t) for x, t in zip(segments, times, strict=True))
    return Site(("a", "b"), [DataRecording("r", blocks)])


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


def test_two_readers_of_one_recording_and_a_reader_that_stops_draw_the_same_cells():
    x = np.random.default_rng(1).normal(size=(40, 2))
    x[::3, 0] = np.nan
    model = np.vstack([np.zeros(4), np.eye(4)])
    recording = next(iter(FilledSite(recorded_site(*np.split(x, 4)), ONE_MEAN, model, 0).recordings()))
    once = rows_of(recording)
    next(recording.blocks())
    both = [(a.values, b.values) for a, b in zip(recording.blocks(), recording.blocks(), strict=True)]
    first, second = (np.concatenate([pair[k] for pair in both]) for k in (0, 1))
    for found in (rows_of(recording), first, second):
        np.testing.assert_array_equal(found, once)


def test_a_shock_has_no_company_in_the_rows_of_another_segment_or_far_away():
    x = np.random.default_rng(3).normal(size=(200, 2))
    x[99, 0], x[100, 1] = 30.0, 30.0
    shock, error = BoundedSite(site(x)), BoundedSite(site(x[:100], x[100:]))
    assert shock.known.company[1] > 4 * max(error.known.company[1], 1.0)


def test_rows_are_looked_at_by_segments_however_they_are_read(monkeypatch):
    monkeypatch.setattr(recordings, "PIECE_ROWS", 30)
    x = np.arange(200.0).reshape(100, 2)
    whole = recordings.pieces([Block(x[:70]), Block(x[70:])])
    parts = [Block(part, k in (0, 3)) for k, part in enumerate(np.split(x, [5, 5, 70, 71]))]
    read = list(recordings.pieces(parts))
    assert [len(one) for one, _ in read] == [30, 30, 10, 30]
    for (one, _), (other, _) in zip(read, whole, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_segment_that_begins_with_an_empty_row_is_filled():
    x = np.random.default_rng(1).normal(size=(10, 2))
    x[0] = np.nan
    model = np.vstack([np.zeros(4), np.eye(4)])
    found = rows_of(next(iter(FilledSite(recorded_site(x, x), ONE_MEAN, model, 0).recordings())))
    assert np.isfinite(found).all()


def test_a_far_cell_is_brought_back_to_where_the_cycle_of_its_recording_is_then():
    rng, t = np.random.default_rng(11), np.arange(400.0)
    cycle = 4.0 * np.column_stack([np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 24)])
    clean = 10.0 + cycle + 0.3 * rng.normal(size=(400, 2))
    wrong = clean.copy()
    places = rng.choice(400, 8, replace=False)
    wrong[places, 0] += 40.0
    data = Site(("a", "b"), [DataRecording("r", (Block(wrong.copy()),))])
    (recording,) = BoundedSite(data).recordings()
    found = rows_of(recording)
    np.testing.assert_allclose(found[places, 0], (10.0 + cycle)[places, 0], atol=1.0)
    # Of noise of .3 about the cycle nothing is far; by the spread of the cycle itself, 2.8, a cell 12 off would stay.
    others = np.delete(np.arange(400), places)
    np.testing.assert_array_equal(found[others], wrong[others])
    wrong[7, 0] += 12.0
    (recording,) = BoundedSite(Site(("a", "b"), [DataRecording("r", (Block(wrong),))])).recordings()
    assert abs(rows_of(recording)[7, 0] - 10.0 - cycle[7, 0]) < 1.0
    assert BoundedSite(data).n_far().tolist() == [8, 0]
