import numpy as np
import pytest

from feddbn.core.statistics.moments import Moments
from feddbn.errors import DataError, ParameterError
from feddbn.privacy.clipping import (
    choose_clip,
    clip_to,
    clipped_sum,
    gaussian_share,
    gram_weights,
    norm_edges,
    norm_histogram,
)
from feddbn.privacy.noise_plan import ClipRule, NoisePlan


def test_clip_keeps_the_direction_and_bounds_the_norm():
    v = np.array([3.0, 4.0])
    assert clip_to(v, 5.0) is v
    np.testing.assert_allclose(clip_to(v, 1.0), [0.6, 0.8])
    assert np.linalg.norm(np.array([2.0, 1.0]) * clip_to(v, 1.0, np.array([2.0, 1.0]))) == pytest.approx(1.0)


def test_vector_that_is_not_finite_cannot_be_bounded():
    with pytest.raises(DataError, match="not finite, so its influence cannot be bounded"):
        clip_to(np.array([1.0, np.nan]), 1.0)


def test_gram_weights_make_the_frobenius_norm():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(9, 4))
    sums = Moments.of_rows(Z).to_sums()
    expected = np.sqrt(9.0**2 * 4 + 9 * np.sum(Z.sum(axis=0) ** 2) + np.sum((Z.T @ Z) ** 2))
    assert np.linalg.norm(gram_weights(4, count=2.0, total=3.0) * sums) == pytest.approx(expected)


def test_one_unit_moves_the_sum_by_at_most_the_bound():
    rng = np.random.default_rng(1)
    units = [rng.normal(size=5) * 10.0**k for k in range(-2, 4)]
    whole = clipped_sum(units, 2.0, 5)
    assert (whole.n_units, whole.n_clipped) == (6, sum(np.linalg.norm(u) > 2 for u in units))
    for left_out in range(6):
        rest = clipped_sum(units[:left_out] + units[left_out + 1 :], 2.0, 5)
        assert np.linalg.norm(whole.value - rest.value) <= 2.0 + 1e-12


@pytest.mark.parametrize("weighted", [False, True])
def test_shares_of_noise_add_up_to_the_calibrated_variance(weighted):
    rng = np.random.default_rng(2)
    weights = np.linspace(0.5, 2.0, 4000) if weighted else None
    total = sum(gaussian_share(4000, 3.0, 7, rng, weights) for _ in range(7))
    scaled = total if weights is None else total * weights
    assert scaled.std() == pytest.approx(3.0, rel=0.04)
    assert abs(scaled.mean()) < 0.2


def test_noise_of_a_gram_matrix_is_a_symmetric_gaussian_matrix():
    rng = np.random.default_rng(3)
    q = 60
    noise = gaussian_share(1 + q + q * (q + 1) // 2, 2.0, 1, rng, gram_weights(q))
    rows, columns = np.triu_indices(q)
    matrix_part = noise[1 + q :]
    assert matrix_part[rows == columns].std() == pytest.approx(2.0, rel=0.25)
    assert matrix_part[rows != columns].std() == pytest.approx(2.0 / np.sqrt(2), rel=0.06)


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
    with pytest.raises(DataError, match="empty at this noise level; give the clipping bound instead"):
        choose_clip(np.ones(5), norm_edges()[:5], 1.0)
    with pytest.raises(ParameterError, match=r"quantile must lie in \(0, 1\], got 0"):
        choose_clip(np.ones(5), norm_edges()[:5], 1.0, quantile=0)


def _plan(unit="recording", bound=2.0, norm="flat", **more):
    return NoisePlan(unit, 1.5, {"t": ClipRule(bound, norm)}, **more)


def test_sensitivity_of_units_rows_and_whole_vectors():
    assert _plan().sensitivity(2.0, True, 3) == 2.0
    assert _plan("row").sensitivity(2.0, True, 3) == 8.0
    assert _plan().sensitivity(2.0, False, 3) == 4.0


def test_noise_is_spread_over_the_sites_that_are_sure_to_be_honest():
    assert _plan(n_colluding=2).n_shares(7) == 5
    assert _plan(n_colluding=2).n_shares(1) == 1


def test_protected_vector_is_clipped_and_has_the_planned_noise():
    rng = np.random.default_rng(5)
    units = [np.full(20_000, 1.0)]
    noisy = _plan().protect("t", units[0], units, 0, 4, rng)
    assert (noisy.n_units, noisy.n_clipped) == (1, 1)
    # sigma = 1.5 * 2, of which a quarter of the variance is this site's share.
    assert (noisy.value - 2.0 / np.sqrt(20_000)).std() == pytest.approx(1.5, rel=0.03)
    whole = _plan().protect("t", units[0], None, 0, 1, rng)
    assert (whole.value - 2.0 / np.sqrt(20_000)).std() == pytest.approx(1.5 * 4.0, rel=0.03)
    assert (whole.n_units, whole.n_clipped) == (1, 1)


def test_expected_noise_is_there_even_for_units_that_need_no_clipping():
    rng = np.random.default_rng(6)
    vector = np.zeros(10)
    noisy = _plan(norm="gram").protect("t", vector, [vector], 0, 1, rng)
    assert noisy.n_clipped == 0
    assert np.all(noisy.value != 0)


def test_bound_may_be_left_to_the_task_and_scales_the_noise():
    rng = np.random.default_rng(7)
    plan = NoisePlan("recording", 1.0, {"t": ClipRule(None, noise_factor=2.0)})
    assert plan.multiplier_of("t") == 2.0
    big = plan.protect("t", np.zeros(20_000), [np.zeros(20_000)], 0, 1, rng, clip_bound=10)
    assert big.value.std() == pytest.approx(20.0, rel=0.03)
    for wrong in (None, 0, -1.0, True, "3", float("inf")):
        with pytest.raises(ParameterError, match="this task must name a positive clip_bound"):
            plan.protect("t", np.zeros(2), [], 0, 1, rng, clip_bound=wrong)


def test_vector_that_is_no_gram_matrix_is_refused_by_the_gram_norm():
    with pytest.raises(ParameterError, match="length 8 is not a count, totals and the upper triangle"):
        ClipRule(1.0, "gram").weights(8)
    assert ClipRule(1.0, "gram").weights(6) is not None
    assert ClipRule(1.0).weights(8) is None


def test_plan_for_a_budget_is_calibrated():
    plan = NoisePlan.for_budget("row", 1.0, 1e-5, {"t": ClipRule(1.0)}, n_releases=4, n_colluding=1)
    assert plan.multiplier == pytest.approx(2 * NoisePlan.for_budget("row", 1.0, 1e-5, {}).multiplier)
    assert plan.n_colluding == 1


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ClipRule(0.0), "bound must be positive and finite, got 0"),
        (lambda: ClipRule(1.0, noise_factor=-1.0), "noise_factor must be positive and finite, got -1"),
        (lambda: NoisePlan("recording", 0.0, {}), "multiplier must be positive and finite, got 0"),
        (lambda: NoisePlan("person", 1.0, {}), "unit must be 'recording' or 'row', got 'person'"),
        (lambda: NoisePlan("row", 1.0, {}, -1), "n_colluding must not be negative, got -1"),
    ],
)
def test_impossible_plans_are_refused(make, sentence):
    with pytest.raises(ParameterError, match=sentence):
        make()
