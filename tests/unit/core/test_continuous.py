"""Sums of products by the time between readings, against a double loop; the learner, against theory and a Kalman filter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import expm, solve_continuous_lyapunov
from scipy.optimize import minimize

from feddbn.core import continuous
from feddbn.core.continuous import learn_rates
from feddbn.core.designs.lags import LagSums, lag_sums
from feddbn.errors import DataError
from reproduction.differential import diffusion

EDGES = np.array([0.0, 0.3, 0.9, 2.0])
PARTS = ("counts", "products", "delays", "later", "earlier")


def some_recordings(seed: int, n: int = 3, d: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        rows = int(rng.integers(4, 30))
        times = np.sort(rng.uniform(0, 8, rows))
        times[2] = times[1]
        values = rng.standard_normal((rows, d))
        values[rng.random((rows, d)) < 0.4] = np.nan
        found.append((times, values))
    return found


def by_loops(recordings: list[tuple[np.ndarray, np.ndarray]], edges: np.ndarray) -> dict[str, np.ndarray]:
    d = recordings[0][1].shape[1]
    found = {part: np.zeros((len(edges), d, d)) for part in PARTS}
    for times, values in recordings:
        cells = [(t, i, v) for t, row in zip(times, values, strict=True) for i, v in enumerate(row)]
        for a, (s, i, x) in enumerate(cells):
            for b, (t, j, y) in enumerate(cells):
                delay = s - t
                if np.isnan(x) or np.isnan(y) or delay < 0 or delay > edges[-1]:
                    continue
                if delay == 0:
                    if i == j and a != b:
                        continue
                    place = 0
                else:
                    place = next((k for k in range(1, len(edges)) if edges[k - 1] < delay <= edges[k]), -1)
                    if place < 0:
                        continue
                for part, number in zip(PARTS, (1.0, x * y, delay, x, y), strict=True):
                    found[part][place, i, j] += number
    return found


@pytest.mark.parametrize("edges", [EDGES, EDGES + 0.2])
def test_sums_are_those_of_a_double_loop(edges: np.ndarray) -> None:
    recordings = some_recordings(1)
    sums, truth = lag_sums(recordings, edges), by_loops(recordings, edges)
    for part in PARTS:
        np.testing.assert_allclose(getattr(sums, part), truth[part], atol=1e-12)
    assert sums.n_recordings == 3
    assert sums.time == pytest.approx(sum(t[-1] - t[0] for t, _ in recordings))


def test_a_delay_on_an_edge_belongs_to_the_bin_before_it() -> None:
    sums = lag_sums([(np.array([0.0, 1.0, 2.0]), np.ones((3, 1)))], [0, 1, 2])
    assert sums.counts[:, 0, 0].tolist() == [3, 2, 1]


def test_sums_of_sites_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = some_recordings(2, n=5)
    whole = lag_sums(recordings, EDGES)
    parts = lag_sums(recordings[:2], EDGES) + lag_sums(recordings[2:], EDGES)
    monkeypatch.setattr("feddbn.core.designs.lags._ROWS_AT_ONCE", 20)
    for other in (parts, lag_sums(iter(recordings), EDGES)):
        for part in (*PARTS, "n_recordings", "time"):
            np.testing.assert_allclose(getattr(whole, part), getattr(other, part), atol=1e-12)


def test_a_recording_without_readings_counts_nothing() -> None:
    empty = (np.array([0.0, 4.0]), np.full((2, 3), np.nan))
    with_it, without = lag_sums([*some_recordings(3), empty], EDGES), lag_sums(some_recordings(3), EDGES)
    assert (with_it.n_recordings, with_it.time) == (without.n_recordings, without.time)
    assert np.array_equal(with_it.counts, without.counts)


def test_what_cannot_be_added_up_is_refused() -> None:
    one = (np.array([0.0, 1.0]), np.ones((2, 1)))
    with pytest.raises(ValueError, match="edges"):
        lag_sums([one], [1, 1])
    with pytest.raises(ValueError, match="recordings"):
        lag_sums([], EDGES)
    with pytest.raises(DataError):
        lag_sums([(np.array([1.0, 0.0]), np.ones((2, 1)))], EDGES)
    with pytest.raises(DataError):
        lag_sums([(np.array([0.0, 1.0]), np.array([[1.0], [np.inf]]))], EDGES)
    with pytest.raises(ValueError, match="do not belong"):
        lag_sums([(np.zeros(3), np.ones((2, 1)))], EDGES)
    with pytest.raises(ValueError, match="add up"):
        _ = lag_sums([one], [0, 1]) + lag_sums([one], [0, 2])
    assert isinstance(lag_sums([one], [0, 1]), LagSums)


FEEDBACK = np.array([[-0.6, 0.0, 0.35], [0.4, -0.8, 0.0], [0.0, -0.3, -0.5]])
NOISE = np.diag([1.0, 0.7, 1.4])


def exact_sums(
    A: np.ndarray, Q: np.ndarray, edges: np.ndarray, nugget: float = 0.0, levels: float = 0.0
) -> LagSums:
    """Sums as of endless readings at random times: every product is what it is expected to be."""
    d, S = len(A), solve_continuous_lyapunov(A, -Q)
    at = np.concatenate([[0.0], (edges[1:] + edges[:-1]) / 2])
    rate, time = 1.0, 4e4
    counts = np.concatenate([[rate * time * 0.4], rate**2 * time * np.diff(edges)])[:, None, None] * np.ones(
        (d, d)
    )
    counts[0] += np.diag(np.full(d, rate * time * 0.6))
    delays = np.linspace(np.append(0.0, edges[:-1]), np.append(0.0, edges[1:]), 41)
    weights = np.full(41, 1 / 40) * np.where(np.arange(41) % 40 == 0, 0.5, 1.0)
    bins = np.einsum("q,qbij->bij", weights, expm(A * delays[..., None, None]))
    covariance = bins @ S + levels * (np.eye(d) + 0.5)
    covariance[0] += nugget * np.eye(d)
    none = np.zeros_like(counts)
    return LagSums(edges, counts, counts * covariance, counts * at[:, None, None], none, none, 50.0, time)


FINE = np.concatenate([[0.0], np.geomspace(0.1, 12, 16)])


@pytest.mark.slow
@pytest.mark.parametrize(("nugget", "levels"), [(0.0, 0.0), (0.3, 0.6)])
def test_expected_moments_give_the_rates_back(nugget: float, levels: float) -> None:
    found = learn_rates(
        exact_sums(FEEDBACK, NOISE, FINE, nugget, levels), np.random.default_rng(0), moves=200
    )
    np.testing.assert_array_equal(found.probabilities > 0.5, FEEDBACK != 0)
    np.testing.assert_allclose(found.rates, FEEDBACK, atol=2e-3)
    np.testing.assert_allclose(found.noise, NOISE, atol=5e-3)
    np.testing.assert_allclose(found.nugget, nugget, atol=5e-3)
    np.testing.assert_allclose(found.stationary, solve_continuous_lyapunov(FEEDBACK, -NOISE), atol=5e-3)
    assert (found.levels is not None) == (levels > 0)
    if found.levels is not None:
        np.testing.assert_allclose(found.levels, levels * (np.eye(3) + 0.5), atol=5e-3)
    assert found.misfit < 1e-2


@pytest.mark.slow
def test_noise_that_variables_share_is_no_edge() -> None:
    shared = NOISE + 0.4 * (np.ones((3, 3)) - np.eye(3))
    found = learn_rates(exact_sums(FEEDBACK, shared, FINE), np.random.default_rng(0), moves=200)
    np.testing.assert_array_equal(found.probabilities > 0.5, FEEDBACK != 0)
    np.testing.assert_allclose(found.noise, shared, atol=5e-3)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits_and_units_do_not_matter() -> None:
    sums, units = exact_sums(FEEDBACK, NOISE, FINE), np.array([10.0, 0.1, 3.0])
    one, two = (learn_rates(sums, np.random.default_rng(1), moves=50) for _ in range(2))
    assert np.array_equal(one.probabilities, two.probabilities)
    assert np.array_equal(one.rates, two.rates)
    scaled = LagSums(
        sums.edges,
        sums.counts,
        sums.products * np.multiply.outer(units, units),
        *(getattr(sums, name) for name in ("delays", "later", "earlier", "n_recordings", "time")),
    )
    other = learn_rates(scaled, np.random.default_rng(1), moves=50)
    np.testing.assert_allclose(other.rates * np.multiply.outer(1 / units, units), one.rates, atol=1e-6)


def test_derivatives_are_those_of_small_differences() -> None:
    of = continuous._moments(exact_sums(FEEDBACK, NOISE, FINE), 1)
    of = replace(of, spread=np.zeros_like(of.spread))
    point = continuous._Point(FEEDBACK, NOISE + 0.1, np.full(3, 0.2), 0.1 + np.eye(3))
    vector, step = point.vector, 1e-6
    np.testing.assert_array_equal(continuous._Point.of(vector, 3).vector, vector)
    numeric = [
        (
            continuous._expected(continuous._Point.of(vector + change, 3), of)
            - continuous._expected(continuous._Point.of(vector - change, 3), of)
        )
        / (2 * step)
        for change in step * np.eye(len(vector))
    ]
    np.testing.assert_allclose(continuous._jacobian(point, of), np.stack(numeric, axis=1), atol=1e-7)


def test_subsets_are_those_of_regressions() -> None:
    rng = np.random.default_rng(4)
    X, price = rng.standard_normal((40, 5)), np.full(5, 1.5)
    X[:, 1] += X[:, 0]
    y = X[:, 0] - 0.4 * X[:, 3] + rng.standard_normal(40)

    def evidence(chosen: np.ndarray) -> float:
        left = y - (X[:, chosen] @ np.linalg.lstsq(X[:, chosen], y, rcond=None)[0] if chosen.any() else 0.0)
        return float(-(left @ left) / 2 - price[chosen].sum())

    subsets = continuous._Subsets(X.T @ X, X.T @ y, price, np.zeros(5, dtype=bool))
    for k in (0, 3, 1, 0, 4, 0, 3):
        gains = subsets.gains()
        for j in range(5):
            other = subsets.chosen.copy()
            other[j] = not other[j]
            assert gains[j] == pytest.approx(evidence(other) - evidence(subsets.chosen), abs=1e-8)
        subsets.flip(k)
    every = [np.array([(m >> k) & 1 for k in range(5)], dtype=bool) for m in range(32)]
    weights = np.exp([evidence(chosen) for chosen in every])
    truth = (weights[:, None] * np.array(every)).sum(axis=0) / weights.sum()
    fresh = continuous._Subsets(X.T @ X, X.T @ y, price, np.zeros(5, dtype=bool))
    np.testing.assert_allclose(continuous._probable(fresh, rng, 4000), truth, atol=0.03)


def test_a_variable_that_says_nothing_is_refused_by_name() -> None:
    sums = exact_sums(FEEDBACK, NOISE, FINE)
    counts = sums.counts.copy()
    counts[2:, 1, 1] = 3
    few = LagSums(
        sums.edges,
        counts,
        *(getattr(sums, name) for name in ("products", "delays", "later", "earlier", "n_recordings", "time")),
    )
    with pytest.raises(DataError, match="'b'") as caught:
        learn_rates(few, np.random.default_rng(0), variables=("a", "b", "c"))
    assert caught.value.code == "too-few-pairs"


@pytest.mark.parametrize("step", [0.0, 0.5, 1.0, 1.3])
def test_readings_on_a_lattice_are_told_from_those_at_random_times(step: float) -> None:
    rng = np.random.default_rng(5)
    times = [step * np.arange(800) if step else np.cumsum(rng.exponential(0.7, 800)) for _ in range(3)]
    recordings = [(t, np.where(rng.random((800, 2)) < 0.4, 1.0, np.nan)) for t in times]
    edges = 2.0 ** ((np.arange(-4, 10) - 0.5) / 2)
    assert continuous._lattice(lag_sums(recordings, edges)) == pytest.approx(step, rel=1e-6)


def simulated(times: np.ndarray, rng: np.random.Generator, share: float) -> np.ndarray:
    """Readings of the system with feedback at some times; a share of the cells is read."""
    x = diffusion(FEEDBACK, NOISE, times, rng)
    x[rng.random(x.shape) >= share] = np.nan
    return x


@pytest.mark.slow
@pytest.mark.parametrize(("is_regular", "share"), [(False, 0.5), (True, 0.6)])
def test_moments_scatter_as_bartlett_says(is_regular: bool, share: float) -> None:
    rng = np.random.default_rng(6)
    edges = 2.0 ** ((np.arange(0, 7) - 0.5) / 2)
    grid = np.arange(250.0) if is_regular else np.cumsum(rng.exponential(0.8, 250))
    drawn, spread = [], np.zeros(())
    S = solve_continuous_lyapunov(FEEDBACK, -NOISE)
    scale = np.sqrt(np.diag(S))
    for _ in range(150):
        times = grid if is_regular else np.cumsum(rng.exponential(0.8, 250))
        sums = lag_sums([(times, simulated(times, rng, share))], edges)
        of = continuous._moments(sums, 1)
        # About the true mean and in the true units, as the formula has them.
        drawn.append(
            (sums.products / np.maximum(sums.counts, 1))[of.bins, of.later, of.earlier]
            / (scale[of.later] * scale[of.earlier])
        )
    truth = continuous._Point(
        FEEDBACK * np.multiply.outer(1 / scale, scale),
        NOISE / np.multiply.outer(scale, scale),
        np.zeros(3),
        np.zeros((3, 3)),
    )
    how = continuous._readings(sums, 4.0)
    spread = continuous._spread(truth, of, how, np.diff(np.concatenate([[0.0], edges])))
    seen = np.cov(np.stack(drawn).T)
    ratio = np.diag(seen) / np.diag(spread)
    assert 0.85 < np.median(ratio) < 1.2
    # Correlations between moments, too: 150 draws leave an error of .08 in each.
    both = [np.asarray(m) / np.sqrt(np.multiply.outer(np.diag(m), np.diag(m))) for m in (seen, spread)]
    apart = (both[0] - both[1])[np.triu_indices(len(seen), 1)]
    assert np.sqrt(np.mean(apart**2)) < 0.12
    assert np.linalg.eigvalsh(spread).min() > 0


def minus_log_likelihood(
    A: np.ndarray, Q: np.ndarray, recordings: list[tuple[np.ndarray, np.ndarray]]
) -> float:
    """A Kalman filter, reading by reading."""
    S, total = solve_continuous_lyapunov(A, -Q), 0.0
    for times, values in recordings:
        E = expm(A * np.diff(times, prepend=times[0])[:, None, None])
        mean, P = np.zeros(len(A)), S
        for grown, row in zip(E, values, strict=True):
            mean, P = grown @ mean, S + grown @ (P - S) @ grown.T
            for i in np.flatnonzero(~np.isnan(row)):
                gain, error = P[:, i] / P[i, i], row[i] - mean[i]
                total += (np.log(P[i, i]) + error**2 / P[i, i]) / 2
                mean, P = mean + gain * error, P - np.multiply.outer(gain, P[i])
    return float(total)


@pytest.mark.slow
def test_rates_are_near_those_of_the_highest_likelihood() -> None:
    rng = np.random.default_rng(8)
    A, Q = np.array([[-0.7, 0.5], [0.0, -0.5]]), np.diag([1.0, 0.8])
    recordings = []
    for _ in range(3):
        times = np.cumsum(rng.exponential(0.7, 200))
        x = diffusion(A, Q, times, rng)
        x[rng.random(x.shape) < 0.4] = np.nan
        recordings.append((times, x - np.nanmean(x, axis=0)))
    found = learn_rates(lag_sums(recordings, FINE), rng, moves=200)
    np.testing.assert_array_equal(found.rates != 0, A != 0)

    def of(p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.array([[-np.exp(p[0]), p[1]], [0.0, -np.exp(p[2])]]), np.diag(np.exp(p[3:]))

    start = np.array([np.log(0.7), 0.5, np.log(0.5), 0.0, 0.0])
    best = minimize(lambda p: minus_log_likelihood(*of(p), recordings), start, options={"maxiter": 8})
    errors = np.sqrt(np.diag(found.covariance)).reshape(2, 2)
    apart = (found.rates - of(best.x)[0])[A != 0] / errors[A != 0]
    # Both come from the same readings; each entry by itself would be within 2 errors of the truth.
    assert np.abs(apart).max() < 2
    assert np.abs((found.rates - A)[A != 0] / errors[A != 0]).max() < 3
