import numpy as np
import pytest
from scipy.stats import multivariate_normal

from feddbn.core import alone
from feddbn.core.alone import MARGIN, N_FOLDS, Rows, Verdict, blocked, compared
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.designs.recordings import Block, lagged_rows
from feddbn.core.statistics.moments import Moments

D = 4
W = np.zeros((D, D))
W[0, 1], W[1, 2] = 0.6, -0.5
A = np.diag([0.5, 0.4, 0.3, 0.6])
A[3, 0] = 0.4
WEIGHTS = np.concatenate([W, A])
FREE = EdgeConstraints.from_edges(tuple("abcd"), 1, (), None)


@pytest.fixture
def rng():
    return np.random.default_rng(900)


def series(n, rng, weights=WEIGHTS):
    x, inverse = np.zeros((n + 50, D)), np.linalg.inv(np.eye(D) - weights[:D])
    for t in range(1, n + 50):
        x[t] = (x[t - 1] @ weights[D:] + rng.normal(size=D)) @ inverse
    return x[50:]


def rows_of(n, rng, n_recordings=2, weights=WEIGHTS):
    parts = [next(lagged_rows([Block(series(n, rng, weights))], 1, 10**6)) for _ in range(n_recordings)]
    numbers = [np.full(len(part), float(k)) for k, part in enumerate(parts)]
    times = [1.0 + np.arange(len(part)) for part in parts]
    return Rows(np.concatenate(parts), np.concatenate(numbers), np.concatenate(times))


def test_every_row_is_held_out_once_and_shares_no_value_with_rows_that_are_learned_from(rng):
    rows, held = rows_of(53, rng), np.zeros(104)
    seen = [(r, t) for r, t in zip(rows.recording, rows.time, strict=True)]
    for learns, is_held in rows.folds(1):
        held += is_held
        values = {(r, t - lag) for (r, t), here in zip(seen, is_held, strict=True) if here for lag in (0, 1)}
        used = {(r, t - lag) for (r, t), here in zip(seen, learns, strict=True) if here for lag in (0, 1)}
        assert not values & used
    assert (held == 1).all()
    assert len(list(rows.folds(1))) == N_FOLDS


def test_weights_without_the_held_out_rows_are_those_of_least_squares_on_the_others(rng):
    rows, support = rows_of(80, rng).values, WEIGHTS != 0
    later, copies = rows[:30], 3
    # As many copies of the site as sites: then its own second moments are those of all.
    pooled, left = np.tile(rows, (copies, 1)), np.concatenate([rows[30:], *[rows] * (copies - 1)])

    def fitted(z):
        B, level = np.zeros_like(WEIGHTS), np.zeros(D)
        for j in range(D):
            S = np.flatnonzero(support[:, j])
            found = np.linalg.lstsq(np.c_[np.ones(len(z)), z[:, S]], z[:, j], rcond=None)[0]
            level[j], B[S, j] = found[0], found[1:]
        return B, level

    B, level = fitted(pooled)
    found = alone._without(B, level, Moments.of_rows(rows), Moments.of_rows(later), float(len(pooled)))
    for got, expected in zip(found, fitted(left), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-9)


def test_rows_with_empty_cells_count_for_the_density_of_what_they_have(rng):
    rows = rows_of(60, rng).values
    moments = Moments.of_rows(rows)
    model = np.vstack([moments.mean, moments.scatter / moments.n])
    level = np.full(D, 0.1)
    whole = alone._log_likelihoods(rows[:5], model, moments, WEIGHTS, level, np.zeros(D))
    residual = np.eye(2 * D, D) - WEIGHTS
    offset = moments.mean @ residual - level
    variance = ((moments.scatter @ residual) * residual).sum(axis=0) / moments.n + offset**2
    mean, covariance = alone._joint(model, WEIGHTS, level, variance)
    holes = rows[:5].copy()
    holes[[0, 1, 2, 3], [0, 5, 2, 6]] = np.nan
    holes[3, 1] = np.nan
    found = alone._log_likelihoods(holes, model, moments, WEIGHTS, level, np.zeros(D))
    for row, complete, told, exact in zip(holes, rows, found, whole, strict=False):
        for z, got in ((row, told), (complete, exact)):
            o, past = np.flatnonzero(~np.isnan(z)), np.flatnonzero(~np.isnan(z) & (np.arange(2 * D) >= D))
            expected = sum(
                sign * multivariate_normal(mean[k], covariance[np.ix_(k, k)]).logpdf(z[k])
                for sign, k in ((1, o), (-1, past))
            )
            n_now = len(o) - len(past)
            assert got - n_now / 2 * np.log(2 * np.pi) == pytest.approx(expected, abs=1e-6)


def test_the_standard_error_is_that_of_a_mean_where_rows_are_independent(rng):
    x = rng.normal(size=4000)
    mean, error, n_blocks = blocked(x, np.repeat(np.arange(4.0), 1000))
    assert (mean, n_blocks) == (pytest.approx(x.mean()), 40)
    assert error == pytest.approx(1 / np.sqrt(4000), rel=0.25)


def test_small_and_uncertain_differences_are_none():
    assert Verdict(0.5, 0.1, 100, 20, 3, 4).sign == 1
    assert Verdict(-0.5, 0.1, 100, 20, 3, 4).sign == -1
    assert Verdict(0.5, 0.4, 100, 20, 3, 4).sign == 0
    assert Verdict(-0.9 * MARGIN / 2 * 4, 1e-6, 100, 20, 3, 4).sign == 0
    assert Verdict(-0.5, 0.1, 100, 4, 3, 4).sign == 0
    one = Verdict(-0.5, 0.1, 100, 20, 3, 4)
    assert Verdict.from_array(one.to_array()) == one
    assert one.to_dict()["verdict"] == "worse"


@pytest.mark.parametrize("empty", [0.0, 0.2])
def test_a_network_of_many_rows_is_better_for_a_small_site_and_another_one_is_worse(rng, empty):
    rows = rows_of(150, rng)
    rows.values[rng.random(rows.values.shape) < empty] = np.nan
    other = WEIGHTS.copy()
    other[[0, D + 3], [1, 0]] = 0.0
    right = compared(rows, WEIGHTS, np.zeros(D), FREE, 1e5)
    wrong = compared(rows, other, np.zeros(D), FREE, 1e5)
    assert right.gain > 0
    assert right.sign >= 0
    assert wrong.sign == -1
    few = Rows(rows.values[:20], rows.recording[:20], rows.time[:20])
    assert not compared(few, WEIGHTS, None, FREE, 1e5).is_told
