import numpy as np

from feddbn.core.designs.cells import FilledSite
from feddbn.core.designs.nuisance import ONE_MEAN, Nuisance
from feddbn.core.designs.recordings import Block, Recording
from feddbn.data.memory import ArrayRecording, MemorySite


def rows_of(recording: Recording):
    return np.concatenate([block.values for block in recording.blocks()])


def site(*segments, times=None):
    times = times or [None] * len(segments)
    blocks = tuple(Block(np.asarray(x), time=t) for x, t in zip(segments, times, strict=True))
    return MemorySite(("a", "b"), [ArrayRecording("r", blocks)])


def test_nuisances_are_taken_off_the_present_cells_of_a_whole_recording():
    t = np.arange(60.0)
    x = np.stack([3 + 0.5 * t, 2 * np.sin(2 * np.pi * t / 12)], axis=1)
    x[7, 0] = np.nan
    filled = FilledSite(site(x[:20], x[30:], times=[0, 30]), Nuisance("recording", 1, (12.0,)), None, 0)
    found = rows_of(next(iter(filled.recordings())))
    assert np.isnan(found[7, 0])
    np.testing.assert_allclose(np.nan_to_num(found), 0, atol=1e-9)


def test_cells_are_drawn_with_the_right_moments_and_the_same_every_time():
    rng = np.random.default_rng(0)
    n = 20_000
    x = np.zeros((n, 2))
    e = rng.normal(size=(n, 2))
    for t in range(1, n):
        x[t, 0] = 0.6 * x[t - 1, 0] + e[t, 0]
        x[t, 1] = 0.8 * x[t, 0] + e[t, 1]
    Z = np.hstack([x[1:], x[:-1]])
    model = np.vstack([Z.mean(axis=0), np.cov(Z.T)])
    holes = np.where(rng.random((n, 2)) < 0.3, np.nan, x)
    recording = next(iter(FilledSite(site(holes), ONE_MEAN, model, 5).recordings()))
    found = rows_of(recording)
    assert not np.isnan(found).any()
    present = ~np.isnan(holes)
    assert np.array_equal(found[present], holes[present])
    assert np.array_equal(found, rows_of(recording))
    F = np.hstack([found[1:], found[:-1]])
    np.testing.assert_allclose(np.corrcoef(F.T), np.corrcoef(Z.T), atol=0.03)
    np.testing.assert_allclose(F.std(axis=0), Z.std(axis=0), rtol=0.03)


def test_a_segment_that_begins_with_an_empty_row_is_filled():
    x = np.random.default_rng(1).normal(size=(10, 2))
    x[0] = np.nan
    model = np.vstack([np.zeros(4), np.eye(4)])
    found = rows_of(next(iter(FilledSite(site(x, x), ONE_MEAN, model, 0).recordings())))
    assert np.isfinite(found).all()
