from dataclasses import replace

import numpy as np
import pytest

from feddbn.core.constraints import EdgeConstraints
from feddbn.federation.programs.oneshot import OneShotOptions, checked_oneshot_program, oneshot_program
from feddbn.federation.protocol.task import run_program
from feddbn.federation.sums.prepare import AS_THEY_ARE
from support.sites import federation_of

D = 4
W = np.zeros((D, D))
W[0, 1], W[1, 2], W[0, 3] = 0.6, -0.5, 0.5
A = np.zeros((D, D))
A[2, 2], A[3, 0] = 0.5, 0.4


def federation(shocks, n=400, n_sites=3, A2=None):
    """Sites whose series follow W and A with these shocks: ``shocks(rng, n) -> (n, D)``."""
    sites = []
    for k in range(n_sites):
        rng = np.random.default_rng(k)
        u, x = shocks(rng, n), np.zeros((n, D))
        for t in range(2, n):
            lagged = x[t - 1] @ A + (0.0 if A2 is None else x[t - 2] @ A2)
            x[t] = (lagged + u[t]) @ np.linalg.inv(np.eye(D) - W)
        sites.append([x[50:]])
    return federation_of(sites)


def white(rng, n):
    return rng.standard_normal((n, D))


def remembering(rng, n):
    u = rng.standard_normal((n, D))
    for t in range(1, n):
        u[t] += 0.7 * u[t - 1]
    return u


def run(fed, checked=True, **options):
    seen = []
    options = OneShotOptions(prepare=replace(AS_THEY_ARE, center="auto"), **options)
    program = checked_oneshot_program if checked else oneshot_program
    given = (tuple(f"x{j}" for j in range(D)), EdgeConstraints.none(D, options.n_lags), options)
    found = run_program(
        program(*given, np.random.default_rng(0)), fed, lambda task, answer: seen.append(task.name)
    )
    return found, seen


def test_clean_data_cost_one_sum_and_nothing_changes():
    fed = federation(white)
    (outcome, report), seen = run(fed)
    plain, _ = run(fed, checked=False)
    assert seen == ["gram.rows", "residuals.checks"]
    assert outcome.n_sums == 2
    assert report.found == report.left == ()
    assert report.n_effective == outcome.moments.n
    np.testing.assert_array_equal(outcome.learned.support, plain.learned.support)


def test_the_memory_of_noise_is_taken_off():
    fed = federation(remembering)
    plain, _ = run(fed, checked=False)
    (outcome, report), seen = run(fed)
    truth = np.concatenate([W, A]) != 0
    assert (plain.learned.support != truth).sum() > 3
    np.testing.assert_array_equal(outcome.learned.support, truth)
    assert report.noise_memory == pytest.approx(0.7, abs=0.05)
    assert report.left == ()
    assert seen[-3:] == ["residuals.checks", "gram.rows", "residuals.checks"]
    assert outcome.n_sums == len(seen)
    # One lag is what was asked for.
    assert outcome.n_lags == 1


def test_a_network_whose_effects_come_again_turned_round_is_looked_at():
    rng = np.random.default_rng(0)
    sites = [[remembering(rng, 400) @ np.linalg.inv(np.eye(D) - W)] for _ in range(3)]
    (outcome, report), _ = run(federation_of(sites))
    assert report.noise_memory == pytest.approx(0.7, abs=0.05)
    np.testing.assert_array_equal(outcome.learned.support, np.concatenate([W, np.zeros((D, D))]) != 0)


def test_a_lag_is_added_only_where_the_number_is_left_open():
    A2 = np.zeros((D, D))
    A2[1, 3], A2[0, 2] = 0.5, -0.5
    fed = federation(white, A2=A2)
    (outcome, report), _ = run(fed)
    assert outcome.n_lags == 1
    assert "memory" in report.left
    assert report.lag_gain > 50
    (outcome, report), seen = run(fed, choose_n_lags=True)
    assert (outcome.n_lags, report.n_lags_added, report.left) == (2, 1, ())
    np.testing.assert_array_equal(outcome.learned.support, np.concatenate([W, A, A2]) != 0)
    assert outcome.n_sums == len(seen)


def test_changing_variances_count_fewer_rows():
    def wandering(rng, n):
        level = np.repeat(rng.choice([-1.2, 1.2], n // 10 + 1), 10)[:n]
        return rng.standard_normal((n, D)) * np.exp(level / 2)[:, None]

    fed = federation(wandering)
    plain, _ = run(fed, checked=False)
    (outcome, report), _ = run(fed)
    assert "volatility" in report.left
    assert report.n_effective < 0.8 * outcome.moments.n
    assert outcome.moments.n == plain.moments.n


def test_forbidden_edges_stay_forbidden_at_a_lag_more():
    from feddbn.federation.programs.oneshot import limits_over

    constraints = EdgeConstraints.from_edges(("a", "b"), 1, [("a", "b", 1)], None)
    longer = limits_over(constraints, 2, 2)
    assert longer.allowed.shape == (6, 2)
    assert not longer.allowed[4, 1]
    assert longer.allowed[5].all()
    assert not longer.required[4:].any()
    np.testing.assert_array_equal(limits_over(constraints, 1, 2).allowed, constraints.allowed)
