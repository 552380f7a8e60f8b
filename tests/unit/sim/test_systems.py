import numpy as np
import pytest
from scipy import stats

from feddbn.core.constraints import has_cycle
from feddbn.model.step import NOISE_FAMILIES, draw_noise
from feddbn.sim import systems
from feddbn.sim.settings import SimulationSettings
from feddbn.sim.systems import (
    MAX_RADIUS,
    System,
    draw_dag,
    draw_system,
    vary_system,
)


def _edges(system):
    return system.W != 0, system.A != 0


def test_spectral_radius_is_that_of_the_reduced_form():
    W = np.array([[0.0, 0.5], [0.0, 0.0]])
    A = np.array([[[0.8, 0.0], [0.4, 0.1]]])
    # (I - W)^{-1} = [[1, .5], [0, 1]], so A (I - W)^{-1} = [[.8, .4], [.4, .3]].
    expected = max(np.linalg.eigvalsh([[0.8, 0.4], [0.4, 0.3]]))
    assert System(W, A, np.arange(2)).spectral_radius == pytest.approx(expected)
    # x_t = .5 x_{t-1} + .3 x_{t-2}: z^2 - .5 z - .3 = 0.
    two = System(np.zeros((1, 1)), np.array([[[0.5]], [[0.3]]]), np.arange(1))
    assert two.spectral_radius == pytest.approx(np.abs(np.roots([1, -0.5, -0.3])).max())
    assert System(np.zeros((3, 3)), np.zeros((0, 3, 3)), np.arange(3)).spectral_radius == 0


@pytest.mark.parametrize("n_lags", [0, 1, 3])
def test_every_drawn_system_is_stable_acyclic_and_weighted_as_asked(n_lags):
    settings = SimulationSettings(d=10, n_lags=n_lags, decay=2.0)
    rng = np.random.default_rng(1)
    for _ in range(30):
        system = draw_system(settings, rng)
        assert system.spectral_radius <= MAX_RADIUS
        assert system.lag_damping == 1
        assert not has_cycle(system.W != 0)
        sizes = np.abs(system.W[system.W != 0])
        assert sizes.min() >= 0.3
        assert sizes.max() <= 0.5
        for lag in range(n_lags):
            lag_sizes = np.abs(system.A[lag][system.A[lag] != 0]) * 2.0**lag
            assert np.all((lag_sizes >= 0.3 - 1e-12) & (lag_sizes <= 0.5 + 1e-12))


def test_unstable_draws_are_redrawn(monkeypatch):
    settings = SimulationSettings(d=4, mean_degree=3, w_range=(0.6, 0.9))

    def damped_share():
        systems_ = [draw_system(settings, np.random.default_rng(seed)) for seed in range(60)]
        assert max(s.spectral_radius for s in systems_) <= MAX_RADIUS + 1e-9
        return np.mean([s.lag_damping < 1 for s in systems_])

    assert damped_share() == 0
    monkeypatch.setattr(systems, "MAX_DRAWS", 1)
    assert damped_share() > 0.1


def test_a_system_that_no_draw_makes_stable_is_damped_and_says_so():
    settings = SimulationSettings(d=6, mean_degree=5, lag_degree=6, w_range=(2.0, 3.0))
    system = draw_system(settings, np.random.default_rng(0))
    assert system.lag_damping < 1
    assert system.spectral_radius == pytest.approx(MAX_RADIUS)
    assert (system.A != 0).all()


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 1.0])
def test_the_share_of_replaced_edges_is_the_one_asked_for(share):
    settings = SimulationSettings(d=15)
    rng = np.random.default_rng(2)
    lost_share = []
    for _ in range(40):
        backbone = draw_system(settings, rng)
        varied = vary_system(backbone, share, settings, rng)
        lost, total = 0, 0
        for before, after in zip(_edges(backbone), _edges(varied), strict=True):
            n_lost = int((before & ~after).sum())
            assert abs(n_lost - share * before.sum()) < 1
            assert (after & ~before).sum() == n_lost
            lost, total = lost + n_lost, total + int(before.sum())
        lost_share.append(lost / total)
        assert varied.spectral_radius <= MAX_RADIUS
        assert not has_cycle(varied.W != 0)
    assert np.mean(lost_share) == pytest.approx(share, abs=0.01)


def test_mean_degree_counts_edges_in_both_directions():
    rng = np.random.default_rng(0)
    d, n_draws = 10, 2000
    counts = [draw_dag(d, 4, rng)[0].sum() for _ in range(n_draws)]
    # Binomial(45, 4/9): mean 20, variance 100/9.
    assert abs(np.mean(counts) - 20) < 5 * np.sqrt(100 / 9 / n_draws)
    assert np.var(counts) == pytest.approx(100 / 9, rel=0.2)


ORACLES = {
    "gaussian": stats.norm(),
    "exponential": stats.expon(loc=-1),
    "gumbel": stats.gumbel_r(loc=-np.euler_gamma * np.sqrt(6) / np.pi, scale=np.sqrt(6) / np.pi),
    "laplace": stats.laplace(scale=np.sqrt(0.5)),
    "uniform": stats.uniform(loc=-np.sqrt(3), scale=2 * np.sqrt(3)),
}


@pytest.mark.parametrize("family", NOISE_FAMILIES)
def test_every_family_is_the_standardised_distribution_it_is_named_after(family):
    oracle, scales = ORACLES[family], np.array([0.5, 1.0, 3.0])
    assert oracle.mean() == pytest.approx(0, abs=1e-12)
    assert oracle.var() == pytest.approx(1)
    draws = draw_noise(family, scales, (20_000,), np.random.default_rng(7)) / scales
    assert min(stats.kstest(column, oracle.cdf).pvalue for column in draws.T) > 0.001
