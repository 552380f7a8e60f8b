import numpy as np
import pytest

from feddbn.core.statistics.moments import Moments
from feddbn.errors import DataError, ParameterError
from feddbn.privacy.noise_plan import (
    ClipRule,
    NoisePlan,
    choose_clip,
    effective_count,
    gram_weights,
    moments_of_noisy_sums,
    multiplier_for,
    norm_edges,
    norm_histogram,
    repair_psd,
)
from support.saying import refused


def test_gram_weights_make_the_frobenius_norm():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(9, 4))
    sums = Moments.of_rows(Z).to_sums()
    expected = np.sqrt(9.0**2 * 4 + 9 * np.sum(Z.sum(axis=0) ** 2) + np.sum((Z.T @ Z) ** 2))
    assert np.linalg.norm(gram_weights(4, count=2.0, total=3.0) * sums) == pytest.approx(expected)


def test_bound_is_chosen_from_a_noisy_histogram():
    rng = np.random.default_rng(4)
    edges = norm_edges()
    units = [np.array([x]) for x in rng.uniform(10, 1000, 400)]
    histogram = np.sum(norm_histogram(units, edges), axis=0)
    noisy = histogram + rng.normal(scale=2.0, size=len(edges))
    bound = choose_clip(noisy, edges, 2.0, quantile=0.5)
    assert 400 < bound < 800
    assert edges[1] / edges[0] == pytest.approx(np.sqrt(2))


def test_norms_beyond_the_edges_go_into_the_last_bin():
    (one,) = norm_histogram([np.array([1e30])], norm_edges(), np.ones(1))
    assert one[-1] == one.sum() == 1.0


def test_bound_cannot_be_chosen_from_noise_alone():
    with pytest.raises(DataError):
        choose_clip(np.ones(5), norm_edges()[:5], 1.0)
    with refused(ParameterError, 0, 1):
        choose_clip(np.ones(5), norm_edges()[:5], 1.0, quantile=0)


def _plan(unit="recording", bound=2.0, norm="flat", **more):
    return NoisePlan(unit, 1.5, {"t": ClipRule(bound, norm)}, **more)


def test_sensitivity_of_units_rows_and_whole_vectors():
    assert _plan().sensitivity("t", 2.0, True, 3) == 2.0
    assert _plan().sensitivity("t", 2.0, False, 3) == 4.0
    # Four lagged rows go, three come; vectors of any sign may point in opposite directions, those of moments may not.
    assert _plan("row").sensitivity("t", 2.0, True, 3) == 14.0
    assert _plan("row", norm="gram").sensitivity("t", 2.0, True, 3) == 10.0
    heavy = NoisePlan("row", 1.5, {"t": ClipRule(2.0, "gram", total_weight=1.5)})
    assert heavy.sensitivity("t", 2.0, True, 3) == 14.0


def test_noise_is_spread_over_the_sites_that_are_sure_to_be_honest():
    assert _plan(n_colluding=2).n_shares(7) == 5
    assert _plan(n_colluding=2).n_shares(1) == 1


def test_protected_vector_is_clipped_and_has_the_planned_noise():
    random_bytes = np.random.default_rng(5).bytes
    units = [np.full(20_000, 1.0)]
    noisy = _plan().protect("t", units, True, 20_000, 0, 4, random_bytes)
    assert (noisy.n_units, noisy.n_clipped) == (1, 1)
    # sigma = 1.5 * 2, of which a quarter of the variance is this site's share.
    assert (noisy.value - 2.0 / np.sqrt(20_000)).std() == pytest.approx(1.5, rel=0.03)
    whole = _plan().protect("t", units, False, 20_000, 0, 1, random_bytes)
    assert whole.value.std() == pytest.approx(6.0, rel=0.03)
    assert (whole.n_units, whole.n_clipped) == (1, 1)


def test_a_site_without_units_sends_noise_like_any_other():
    empty = _plan().protect("t", [], True, 2_000, 0, 1, np.random.default_rng(6).bytes)
    assert empty.value.std() == pytest.approx(3.0, rel=0.1)
    assert empty.n_units == 0


def test_bound_may_be_left_to_the_task_and_scales_the_noise():
    random_bytes = np.random.default_rng(7).bytes
    plan = NoisePlan("recording", 1.0, {"t": ClipRule(None, noise_factor=2.0)})
    assert plan.multiplier_of("t") == 2.0
    big = plan.protect("t", [np.zeros(20_000)], True, 20_000, 0, 1, random_bytes, clip_bound=10)
    assert big.value.std() == pytest.approx(20.0, rel=0.03)
    for wrong in (None, 0, -1.0, True, "3", float("inf")):
        with refused(ParameterError, "clip_bound"):
            plan.protect("t", [], True, 2, 0, 1, random_bytes, clip_bound=wrong)
    with refused(ParameterError, "2e+30"):
        plan.protect("t", [], True, 2, 0, 1, random_bytes, clip_bound=1e30)
    with refused(ParameterError, 1048576, 2000000):
        plan.protect("t", [], True, 2_000_000, 0, 1, random_bytes, clip_bound=1.0)


def test_vector_that_is_no_gram_matrix_is_refused_by_the_gram_norm():
    with refused(ParameterError, 8):
        ClipRule(1.0, "gram").weights(8)
    assert ClipRule(1.0, "gram").weights(6) is not None
    np.testing.assert_array_equal(ClipRule(1.0).weights(8), np.ones(8))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ClipRule(0.0), "0"),
        (lambda: ClipRule(1.0, noise_factor=-1.0), "noise_factor"),
        (lambda: NoisePlan("recording", 0.0, {}), "0"),
        (lambda: NoisePlan("person", 1.0, {}), "recording"),
        (lambda: NoisePlan("row", 1.0, {}, -1), "n_colluding"),
    ],
)
def test_impossible_plans_are_refused(make, sentence):
    with refused(ParameterError, sentence):
        make()


def test_epsilon_for_which_a_grid_has_no_proof_is_refused():
    for wrong in (1e-8, 2000.0):
        with refused(ParameterError, "2e-07", 1800):
            multiplier_for(wrong, 1e-5)
    with refused(ParameterError, "epsilon"):
        multiplier_for(-1.0, 1e-5)


def test_repair_raises_only_the_eigenvalues_below_the_floor():
    matrix = np.diag([3.0, 1.0, -2.0])
    repaired, n = repair_psd(matrix, 0.5)
    np.testing.assert_allclose(repaired, np.diag([3.0, 1.0, 0.5]), atol=1e-12)
    assert n == 1
    same, none = repair_psd(np.eye(3), 0.5)
    np.testing.assert_allclose(same, np.eye(3), atol=1e-12)
    assert none == 0


def test_without_noise_moments_stay_what_they_are():
    rng = np.random.default_rng(0)
    exact = Moments.of_rows(rng.normal(size=(200, 3)) + 1.0)
    noisy = moments_of_noisy_sums(exact.to_sums(), 3, 0.0)
    assert noisy.moments.n == pytest.approx(200)
    np.testing.assert_allclose(noisy.moments.scatter, exact.scatter, rtol=1e-9)
    np.testing.assert_allclose(noisy.moments.mean, exact.mean)


def test_effective_count_is_the_count_whose_chance_covariance_is_as_large():
    # Two independent variables: the spread of their noisy sample covariance tells the number of rows it is
    # worth.
    rng = np.random.default_rng(1)
    n, sigma = 400, 60.0
    covariances = [
        np.mean(rng.normal(size=n) * rng.normal(size=n)) + rng.normal() * sigma / n for _ in range(4000)
    ]
    assert effective_count(np.eye(2), n, sigma) == pytest.approx(1 / np.var(covariances), rel=0.08)


def test_effective_count_does_not_depend_on_the_order_of_variables_and_falls_with_noise():
    rng = np.random.default_rng(2)
    covariance = np.cov(rng.normal(size=(4, 50)))
    shuffled = covariance[::-1, ::-1]
    assert effective_count(covariance, 100, 5.0) == pytest.approx(effective_count(shuffled, 100, 5.0))
    counts = [effective_count(covariance, 100, s) for s in (0.0, 1.0, 10.0)]
    assert counts[0] == 100
    assert counts == sorted(counts, reverse=True)


def test_much_noise_is_repaired_and_counted_as_few_rows():
    rng = np.random.default_rng(3)
    q = 6
    exact = Moments.of_rows(rng.normal(size=(300, q)))
    sigma = 250.0
    vector = exact.to_sums() + rng.normal(scale=sigma / gram_weights(q))
    vector[0] = 300.0
    noisy = moments_of_noisy_sums(vector, q, sigma)
    assert noisy.n_repaired > 0
    assert noisy.n_rows == 300.0
    assert noisy.moments.n < 30
    assert np.linalg.eigvalsh(noisy.moments.scatter)[0] > 0


def test_noise_that_swallows_the_count_is_refused():
    with pytest.raises(DataError):
        moments_of_noisy_sums(np.concatenate([[-3.0], np.zeros(5)]), 2, 1.0)
