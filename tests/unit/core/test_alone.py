import numpy as np
import pytest
from scipy.stats import norm

from feddbn.core import alone
from feddbn.core.alone import FEWEST_PARTS, MARGIN, N_PARTS, Verdict, compared
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
    return np.concatenate(parts)


def in_parts(rows, n_parts=N_PARTS):
    return [Moments.of_rows(part) for part in np.array_split(rows, n_parts)]


def test_weights_without_the_held_out_rows_are_those_of_least_squares_on_the_others(rng):
    rows, support = rows_of(80, rng), WEIGHTS != 0
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


def test_the_likelihood_of_later_rows_is_that_of_their_residuals(rng):
    rows = rows_of(60, rng)
    earlier, later, level = rows[:80], rows[80:], np.full(D, 0.1)
    B, parameters = WEIGHTS * 0.9, np.arange(1.0, D + 1)
    residual = [part[:, :D] - part @ B - level for part in (earlier, later)]
    sd = np.sqrt(np.square(residual[0]).sum(axis=0) / (80 - parameters))
    expected = norm(0, sd).logpdf(residual[1]).sum() + residual[1].size / 2 * np.log(2 * np.pi)
    found = alone._log_likelihood(Moments.of_rows(later), Moments.of_rows(earlier), B, level, parameters)
    assert found == pytest.approx(expected, rel=1e-12)


def test_small_and_uncertain_differences_are_none():
    assert Verdict(0.5, 0.1, 100, 20, 3, 4).sign == 1
    assert Verdict(-0.5, 0.1, 100, 20, 3, 4).sign == -1
    assert Verdict(0.5, 0.4, 100, 20, 3, 4).sign == 0
    assert Verdict(-0.9 * MARGIN / 2 * 4, 1e-6, 100, 20, 3, 4).sign == 0
    assert Verdict(-0.5, 0.1, 100, 4, 3, 4).sign == 0
    one = Verdict(-0.5, 0.1, 100, 20, 3, 4)
    assert Verdict.from_array(one.to_array()) == one
    assert one.to_dict()["verdict"] == "worse"


def test_a_network_of_many_rows_is_better_for_a_small_site_and_another_one_is_worse(rng):
    rows = rows_of(150, rng)
    other = WEIGHTS.copy()
    other[[0, D + 3], [1, 0]] = 0.0
    right = compared(in_parts(rows), 1.0, WEIGHTS, np.zeros(D), FREE, 1e5)
    wrong = compared(in_parts(rows), 1.0, other, np.zeros(D), FREE, 1e5)
    assert right.gain > 0
    assert right.sign >= 0
    assert wrong.sign == -1
    assert not compared(in_parts(rows[:20]), 1.0, WEIGHTS, None, FREE, 1e5).is_told
    assert not compared(in_parts(rows, FEWEST_PARTS - 1), 1.0, WEIGHTS, None, FREE, 1e5).is_told


def test_the_network_that_made_the_rows_is_hardly_ever_worse_and_errors_are_those_of_gains():
    rngs = [np.random.default_rng(1000 + seed) for seed in range(60)]
    found = [compared(in_parts(rows_of(60, rng)), 1.0, WEIGHTS, np.zeros(D), FREE, 1e5) for rng in rngs]
    assert {(one.n_rows, one.n_parts) for one in found} == {(118, 12)}
    # One in forty by the level of the test; and the network of all sites is mostly a little better.
    assert [one.sign for one in found].count(-1) <= 2
    assert np.mean([one.gain > 0 for one in found]) > 0.6
    assert np.std([one.gain for one in found]) == pytest.approx(
        np.mean([one.error for one in found]), rel=0.5
    )
