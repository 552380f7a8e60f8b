import numpy as np
import pytest

from feddbn.core.statistics.spikes import far_cells_are_errors, far_sums, far_sums_length

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
    return np.abs(x) / 1.2


@pytest.mark.parametrize("seed", range(4))
def test_glitches_are_errors_and_shocks_are_not(seed):
    for shocks in (False, True):
        sizes = series(seed, shocks)
        wrong, is_sure = far_cells_are_errors(far_sums(sizes, sizes > 12), EVERY)
        assert wrong.tolist() == [not shocks] * 3
        assert is_sure


def test_sums_add_up_over_rows_that_do_not_touch():
    sizes = series(9, True)
    far = sizes > 12
    far[499] = far[500] = False
    whole = far_sums(sizes, far)
    assert len(whole) == far_sums_length(3)
    np.testing.assert_allclose(far_sums(sizes[:500], far[:500]) + far_sums(sizes[500:], far[500:]), whole)


def test_without_far_cells_nothing_is_wrong():
    sizes = np.abs(np.random.default_rng(0).normal(size=(500, 3)))
    wrong, is_sure = far_cells_are_errors(far_sums(sizes, sizes > 12), EVERY)
    assert not wrong.any()
    assert not is_sure


def test_sensors_that_fail_together_do_not_look_like_shocks():
    sizes = np.abs(np.random.default_rng(1).normal(size=(3000, 3)))
    sizes[np.random.default_rng(2).random(3000) < 0.02] = 100.0
    wrong, _ = far_cells_are_errors(far_sums(sizes, sizes > 12), EVERY)
    assert wrong.all()
