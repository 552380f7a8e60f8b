from itertools import combinations

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.linalg import null_space
from scipy.stats import norm

from feddbn.errors import DataError
from reproduction.ranking import (
    average_parent_sets,
    direction_sums,
    g_prior_log_bayes_factor,
    own_past,
    regulator_columns,
    score_pairs,
    score_parent_sets,
)


class Shape:
    """d variables, p lags, m features: where the columns are."""

    def __init__(self, d: int, n_lags: int, m: int) -> None:
        self.at = (d, n_lags)
        self.d, self.r, self.q = d, d * n_lags, (1 + n_lags + n_lags * m) * d
        self.columns = regulator_columns(self.q, d, n_lags)

    def own(self, target: int) -> np.ndarray:
        return own_past(*self.at, target)


def _rows(rng: np.random.Generator, design: Shape, n: int) -> np.ndarray:
    mixing = np.eye(design.q) + 0.4 * rng.standard_normal((design.q, design.q)) / np.sqrt(design.q)
    rows = rng.standard_normal((n, design.q)) @ mixing
    columns = design.columns
    for target in range(design.d):
        rows[:, target] += 0.8 * rows[:, columns[(target + 1) % design.r, 0]]
    return rows


def _centred_cross(rows: np.ndarray) -> np.ndarray:
    centred = rows - rows.mean(axis=0)
    return centred.T @ centred


def _brute_force(rows: np.ndarray, design: Shape, rates: np.ndarray, g: float):
    """Probabilities, mean effects and evidence by least squares on the rows, one parent set at a time."""
    n, d, r = len(rows), design.d, design.r
    features = design.columns
    probability, effect = np.zeros((r, d)), np.zeros((r, d))
    evidence = 0.0
    for target in range(d):
        y = rows[:, target]
        common = np.column_stack([np.ones(n), rows[:, design.own(target)]])
        candidates = [a for a in range(r) if a % d != target]
        rss_null = _rss(common, y)
        found = []
        for size in (0, 1, 2):
            for chosen in combinations(candidates, size):
                X = rows[:, features[list(chosen)].ravel()]
                rss = _rss(np.column_stack([common, X]), y)
                r2 = 1.0 - rss / rss_null
                n_free = n - common.shape[1]
                likelihood = -n_free / 2 * np.log(1 - g / (1 + g) * r2) - X.shape[1] / 2 * np.log(1 + g)
                prior = np.prod([rates[a] if a in chosen else 1 - rates[a] for a in candidates])
                found.append((chosen, likelihood, prior, _effects(common, X, y, design.columns.shape[1], g)))
        priors = np.array([prior for _, _, prior, _ in found])
        joint = np.exp([likelihood for _, likelihood, _, _ in found]) * priors / priors.sum()
        evidence += np.log(joint.sum()) - (n - common.shape[1]) / 2 * np.log(rss_null / n)
        for (chosen, _, _, effects), share in zip(found, joint / joint.sum(), strict=True):
            for a, value in zip(chosen, effects, strict=True):
                probability[a, target] += share
                effect[a, target] += share * value
    return probability, effect, evidence


def _rss(X: np.ndarray, y: np.ndarray) -> float:
    coefficient = np.linalg.lstsq(X, y, rcond=None)[0]
    return float(np.sum((y - X @ coefficient) ** 2))


def _effects(common: np.ndarray, X: np.ndarray, y: np.ndarray, m: int, g: float) -> list[float]:
    """Shrunken contribution of each regulator, projected on its first feature after the common columns."""
    if X.shape[1] == 0:
        return []
    clean = X - common @ np.linalg.lstsq(common, X, rcond=None)[0]
    residual = y - common @ np.linalg.lstsq(common, y, rcond=None)[0]
    coefficient = g / (1 + g) * np.linalg.lstsq(clean, residual, rcond=None)[0]
    result = []
    for start in range(0, X.shape[1], m):
        block = clean[:, start : start + m]
        contribution = block @ coefficient[start : start + m]
        result.append(float(contribution @ block[:, 0] / (block[:, 0] @ block[:, 0])))
    return result


@pytest.mark.parametrize(("d", "n_lags", "m"), [(4, 1, 1), (4, 1, 2), (3, 2, 1), (3, 2, 3)])
def test_model_average_equals_enumeration_with_least_squares(d, n_lags, m):
    rng = np.random.default_rng([d, n_lags, m])
    design = Shape(d, n_lags, m)
    rows = _rows(rng, design, 60)
    scores = score_parent_sets(_centred_cross(rows), 60, 1, *design.at, ridge=0.0)
    posterior = average_parent_sets(scores, edge_rate=0.2, n_hub_steps=0)
    probability, effect, evidence = _brute_force(rows, design, np.full(design.r, 0.2), 60.0)
    np.testing.assert_allclose(posterior.probability, probability, atol=1e-8)
    spread = rows.std(axis=0)
    weight = posterior.weight * spread[None, :d] / spread[design.columns[:, 0]][:, None]
    np.testing.assert_allclose(weight, effect, atol=1e-7)
    assert posterior.log_marginal_likelihood == pytest.approx(evidence, abs=1e-6)


def test_hub_steps_replace_each_rate_by_its_posterior_mean():
    design = Shape(4, 1, 1)
    rows = _rows(np.random.default_rng(5), design, 40)
    scores = score_parent_sets(_centred_cross(rows), 40, 1, *design.at, ridge=0.0)
    rates = np.full(4, 0.25)
    for _ in range(3):
        probability, _, _ = _brute_force(rows, design, rates, 40.0)
        rates = (probability.sum(axis=1) + 1.0) / (3 + 1 / 0.25)
    probability, _, _ = _brute_force(rows, design, rates, 40.0)
    posterior = average_parent_sets(scores, edge_rate=0.25, n_hub_steps=3)
    np.testing.assert_allclose(posterior.rates, rates, atol=1e-8)
    np.testing.assert_allclose(posterior.probability, probability, atol=1e-8)


def test_g_prior_bayes_factor_equals_numerical_integration():
    rng = np.random.default_rng(3)
    n, g = 7, 7.0
    common = np.column_stack([np.ones(n), rng.standard_normal(n)])
    # Flat priors on the common coefficients integrate to the likelihood in their orthogonal complement.
    rest = null_space(common.T)
    x = rest.T @ rng.standard_normal(n)
    y = 0.9 * x + rest.T @ rng.standard_normal(n)
    slope = float(x @ y / (x @ x))

    # The integral over b and log sigma on a fine grid; the integrand is negligible at its edges.
    b = np.linspace(slope - 15.0, slope + 15.0, 3001)[:, None]
    log_sigma = np.linspace(-4.0, 4.0, 801)[None, :]
    sigma = np.exp(log_sigma)
    likelihood = np.prod([norm.pdf(y_t, b * x_t, sigma) for x_t, y_t in zip(x, y, strict=True)], axis=0)
    prior = norm.pdf(b, 0.0, sigma * np.sqrt(g / (x @ x)))
    full = trapezoid(trapezoid(likelihood * prior, b, axis=0), log_sigma[0])
    null = trapezoid(np.prod([norm.pdf(y_t, 0.0, sigma[0]) for y_t in y], axis=0), log_sigma[0])
    r2 = np.array(1.0 - np.sum((y - slope * x) ** 2) / np.sum(y**2))
    assert float(g_prior_log_bayes_factor(r2, n - 2, 1, g)) == pytest.approx(np.log(full / null), abs=1e-4)


def test_relabelling_the_variables_relabels_the_probabilities():
    design = Shape(4, 1, 2)
    cross = _centred_cross(_rows(np.random.default_rng(8), design, 50))
    permutation = np.array([2, 0, 3, 1])
    columns = np.concatenate([permutation, 4 + permutation, design.columns[permutation].ravel()])
    plain = average_parent_sets(score_parent_sets(cross, 50, 1, *design.at), edge_rate=0.3)
    moved = average_parent_sets(
        score_parent_sets(cross[np.ix_(columns, columns)], 50, 1, *design.at), edge_rate=0.3
    )
    np.testing.assert_allclose(
        moved.probability, plain.probability[np.ix_(permutation, permutation)], atol=1e-10
    )
    assert moved.log_marginal_likelihood == pytest.approx(plain.log_marginal_likelihood)


def test_probabilities_do_not_depend_on_units():
    design = Shape(4, 1, 1)
    rows = _rows(np.random.default_rng(9), design, 50)
    factor = np.array([3.0, 0.1, 100.0, 1.0])
    first = average_parent_sets(score_parent_sets(_centred_cross(rows), 50, 1, *design.at), edge_rate=0.2)
    scaled = _centred_cross(rows * np.tile(factor, 3))
    second = average_parent_sets(score_parent_sets(scaled, 50, 1, *design.at), edge_rate=0.2)
    np.testing.assert_allclose(first.probability, second.probability, atol=1e-9)


def test_lags_of_one_variable_share_a_rate():
    design = Shape(3, 2, 1)
    scores = score_parent_sets(_centred_cross(_rows(np.random.default_rng(4), design, 60)), 60, 1, *design.at)
    posterior = average_parent_sets(scores, edge_rate=0.2, regulator_of=np.array([0, 1, 2, 0, 1, 2]))
    np.testing.assert_array_equal(posterior.rates[:3], posterior.rates[3:])


def test_constant_and_duplicate_columns_stay_finite():
    design = Shape(4, 1, 1)
    rows = _rows(np.random.default_rng(6), design, 40)
    features = design.columns[:, 0]
    rows[:, [3, 7, features[3]]] = 1.0
    rows[:, features[1]] = rows[:, features[0]]
    posterior = average_parent_sets(
        score_parent_sets(_centred_cross(rows), 40, 1, *design.at), edge_rate=0.2, n_hub_steps=0
    )
    assert np.all(np.isfinite(posterior.probability))
    assert np.all(np.isfinite(posterior.weight))
    np.testing.assert_allclose(posterior.probability[0, 2], posterior.probability[1, 2], atol=1e-9)
    assert posterior.probability[:3, 3].max() < 0.2, "a constant target is explained by nothing"


@pytest.mark.parametrize(("noise", "sign"), [("laplace", 1.0), ("laplace", -1.0), ("exponential", 1.0)])
def test_non_gaussian_noise_points_from_cause_to_effect(noise, sign):
    rng = np.random.default_rng([ord(noise[0]), int(sign > 0)])
    x = rng.laplace(size=(4000, 2)) if noise == "laplace" else rng.exponential(size=(4000, 2))
    x[:, 1] += sign * 0.6 * x[:, 0]
    scores = score_pairs(direction_sums([x]))
    assert scores.direction[0, 1] > 0.99
    assert scores.direction[1, 0] < 0.01
    assert scores.score[0, 1] > scores.score[1, 0]
    assert np.sign(scores.partial_correlation[0, 1]) == sign


def test_gaussian_noise_gives_direction_no_systematic_sign():
    z = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(400, 2))
        x[:, 1] += 0.6 * x[:, 0]
        z.append(score_pairs(direction_sums([x])).direction[0, 1])
    assert 0.3 < np.mean(z) < 0.7


def test_sums_equal_the_definition_written_out():
    x = np.random.default_rng(2).laplace(size=(50, 3))
    a, b = x[1:] - x[1:].mean(0), x[:-1] - x[:-1].mean(0)
    w = a - (a * b).sum(0) / (b * b).sum(0) * b
    w = w / w.std(axis=0)
    D = w[:, :, None] * np.tanh(w)[:, None, :] - np.tanh(w)[:, :, None] * w[:, None, :]
    sums = direction_sums([x])
    assert sums.n == 49
    np.testing.assert_allclose(sums.products, w.T @ w, atol=1e-10)
    np.testing.assert_allclose(sums.asymmetry, D.sum(axis=0), atol=1e-10)
    np.testing.assert_allclose(sums.asymmetry_squares, (D**2).sum(axis=0), atol=1e-10)


def test_segments_give_the_sums_of_their_rows_together():
    x = np.random.default_rng(4).laplace(size=(90, 4))
    assert direction_sums([x[:40], x[40:]]).n == 88
    whole = direction_sums([x]) + direction_sums([x])
    np.testing.assert_allclose(whole.products, 2 * direction_sums([x]).products)


def test_a_constant_variable_has_no_edges_and_breaks_nothing():
    x = np.random.default_rng(5).laplace(size=(60, 3))
    x[:, 1] = 4.0
    scores = score_pairs(direction_sums([x])).score
    assert np.all(np.isfinite(scores))
    np.testing.assert_array_equal(scores[1], 0.0)
    np.testing.assert_array_equal(scores[:, 1], 0.0)


def test_a_recording_too_short_for_its_own_ar_fit_is_skipped_and_none_at_all_is_an_error():
    short = direction_sums([np.ones((4, 2))])
    assert short.n == 0
    with pytest.raises(DataError):
        score_pairs(short)
