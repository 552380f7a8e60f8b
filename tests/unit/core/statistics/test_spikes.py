import numpy as np
import pytest

from feddbn.core.statistics.survey import far_cells_are_errors, far_sums, far_sums_length

EVERY = np.ones(3, dtype=bool)


def series(seed, shocks, n=2000):
    """A chain a -> b -> c within a moment and a row later, with heavy shocks or with glitches on top."""
    rng = np.random.default_rng(seed)
    e = rng.normal(size=(n, 3))
    hit = rng.random((n, 3)) < 0.01
    size = 20 * rng.choice([-1, 1], size=(n, 3))
    if shocks:
        e[hit] += size[hit]
    x = np.zeros((n, 3))
    for t in range(1, n):
        x[t, 0] = 0.3 * x[t - 1, 0] + e[t, 0]
        x[t, 1] = 0.5 * x[t, 0] + e[t, 1]
        x[t, 2] = 0.5 * x[t, 1] + 0.4 * x[t - 1, 0] + e[t, 2]
    if not shocks:
        x[hit] += size[hit]
    return x / 1.2


def judged(x, suspects=EVERY):
    """With values whose running median is 0."""
    sizes = np.abs(x)
    return far_cells_are_errors(far_sums(sizes, sizes > 12, x), suspects)


@pytest.mark.parametrize("seed", range(4))
def test_glitches_are_errors_and_shocks_are_not(seed):
    for shocks in (False, True):
        wrong, _, is_sure = judged(series(seed, shocks))
        assert wrong.tolist() == [not shocks] * 3
        assert is_sure


def test_sums_add_up_over_rows_that_do_not_touch():
    x = series(9, True)
    sizes = np.abs(x)
    far = sizes > 12
    far[499] = far[500] = False
    whole = far_sums(sizes, far, x)
    assert len(whole) == far_sums_length(3)
    parts = [far_sums(sizes[part], far[part], x[part]) for part in (slice(500), slice(500, None))]
    np.testing.assert_allclose(parts[0] + parts[1], whole)


def test_without_far_cells_nothing_is_wrong():
    wrong, _, is_sure = judged(np.random.default_rng(0).normal(size=(500, 3)))
    assert not wrong.any()
    assert not is_sure


def test_sensors_that_fail_together_do_not_look_like_shocks():
    x = np.random.default_rng(1).normal(size=(3000, 3))
    x[np.random.default_rng(2).random(3000) < 0.02] = 100.0
    wrong, _, _ = judged(x)
    assert wrong.all()


def test_bursts_stay_and_the_errors_of_other_variables_go():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(3000, 3))
    starts = np.arange(50, 2950, 100)
    for step in range(3):
        x[starts + step, 0] += rng.uniform(20, 60, size=len(starts))
    x[rng.random(3000) < 0.02, 1] += 40.0
    found = judged(x, np.array([True, True, False]))
    assert found.errors.tolist() == [False, True, False]
    assert found.bursts.tolist() == [True, False, False]


def test_a_code_that_stands_for_several_rows_is_no_burst():
    x = np.random.default_rng(4).normal(size=(3000, 3))
    for step in range(3):
        x[np.arange(50, 2950, 100) + step, 0] = -999.0
    found = judged(x, np.array([True, False, False]))
    assert found.errors.tolist() == [True, False, False]
    assert not found.bursts.any()


def test_two_errors_side_by_side_do_not_make_a_burst():
    x = np.random.default_rng(5).normal(size=(3000, 3))
    x[np.arange(50, 2950, 100), 0] += 40.0
    x[51, 0] += 50.0
    found = judged(x, np.array([True, False, False]))
    assert found.errors.tolist() == [True, False, False]
    assert not found.bursts.any()


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 0.15])
def test_errors_at_any_time_are_no_bursts(share):
    rng = np.random.default_rng(6)
    for _ in range(50):
        x = rng.normal(size=(1600, 3))
        hit = rng.random(x.shape) < share
        x[hit] += rng.uniform(20, 60, size=hit.sum())
        assert not judged(x).bursts.any()


def test_cells_with_far_neighbours_are_counted_by_hand():
    x = np.array([[20.0], [30.0], [0.0], [20.0], [20.0], [0.0], [40.0]])
    sums = far_sums(np.abs(x), np.abs(x) > 12, x)
    assert sums[:3].tolist() == [5.0, 0.0, 2.0]  # Three of five are 20, which is taken for a code.
    x[3] = 50.0
    assert far_sums(np.abs(x), np.abs(x) > 12, x)[:3].tolist() == [5.0, 4.0, 2.0]
