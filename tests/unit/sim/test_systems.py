import numpy as np
import pytest

from feddbn.core.graphs.constraints import has_cycle
from feddbn.sim import SimulationSettings, systems
from feddbn.sim.systems import MAX_RADIUS, System, draw_system, thin_system, vary_system


def _edges(system):
    return system.W != 0, system.A != 0


def test_spectral_radius_is_that_of_the_reduced_form():
    W = np.array([[0.0, 0.5], [0.0, 0.0]])
    A = np.array([[[0.8, 0.0], [0.4, 0.1]]])
    # (I - W)^{-1} = [[1, .5], [0, 1]], so A (I - W)^{-1} = [[.8, .4], [.4, .3]].
    expected = max(np.linalg.eigvalsh([[0.8, 0.4], [0.4, 0.3]]))
    assert System(W, A, np.arange(2)).spectral_radius == pytest.approx(expected)


def test_spectral_radius_of_two_lags_solves_the_characteristic_equation():
    # x_t = .5 x_{t-1} + .3 x_{t-2}: z^2 - .5 z - .3 = 0.
    system = System(np.zeros((1, 1)), np.array([[[0.5]], [[0.3]]]), np.arange(1))
    assert system.spectral_radius == pytest.approx(np.abs(np.roots([1, -0.5, -0.3])).max())


def test_a_static_system_has_radius_zero():
    assert System(np.zeros((3, 3)), np.zeros((0, 3, 3)), np.arange(3)).spectral_radius == 0


def test_damping_scales_the_radius_exactly_and_keeps_the_edges():
    settings = SimulationSettings(d=8, n_lags=3, w_range=(0.5, 2.0))
    system = draw_system(settings, 4, np.random.default_rng(0))
    damped = system.damped(0.7)
    assert damped.spectral_radius == pytest.approx(0.7 * system.spectral_radius)
    np.testing.assert_array_equal(damped.A != 0, system.A != 0)
    assert damped.lag_damping == pytest.approx(0.7 * system.lag_damping)


@pytest.mark.parametrize("n_lags", [0, 1, 3])
def test_every_drawn_system_is_stable_acyclic_and_weighted_as_asked(n_lags):
    settings = SimulationSettings(d=10, n_lags=n_lags, a_range=(0.2, 0.3), decay=2.0)
    rng = np.random.default_rng(1)
    for _ in range(30):
        system = draw_system(settings, 4, rng)
        assert system.spectral_radius <= MAX_RADIUS
        assert system.lag_damping == 1
        assert not has_cycle(system.W != 0)
        sizes = np.abs(system.W[system.W != 0])
        assert sizes.min() >= 0.3
        assert sizes.max() <= 0.5
        for lag in range(n_lags):
            lag_sizes = np.abs(system.A[lag][system.A[lag] != 0]) * 2.0**lag
            assert np.all((lag_sizes >= 0.2 - 1e-12) & (lag_sizes <= 0.3 + 1e-12))


def test_unstable_draws_are_redrawn(monkeypatch):
    settings = SimulationSettings(d=4, w_range=(0.6, 0.9))

    def damped_share():
        systems_ = [draw_system(settings, 3, np.random.default_rng(seed)) for seed in range(60)]
        assert max(s.spectral_radius for s in systems_) <= MAX_RADIUS + 1e-9
        return np.mean([s.lag_damping < 1 for s in systems_])

    assert damped_share() == 0
    monkeypatch.setattr(systems, "MAX_DRAWS", 1)
    assert damped_share() > 0.1


def test_a_system_that_no_draw_makes_stable_is_damped_and_says_so():
    settings = SimulationSettings(d=6, lag_degree=6, w_range=(2.0, 3.0))
    system = draw_system(settings, 5, np.random.default_rng(0))
    assert system.lag_damping < 1
    assert system.spectral_radius == pytest.approx(MAX_RADIUS)
    assert (system.A != 0).all()


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 1.0])
def test_the_share_of_replaced_edges_is_the_one_asked_for(share):
    settings = SimulationSettings(d=15)
    rng = np.random.default_rng(2)
    lost_share = []
    for _ in range(40):
        backbone = draw_system(settings, 4, rng)
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


def test_edges_that_stay_keep_their_weights():
    settings = SimulationSettings(d=10, n_lags=2)
    rng = np.random.default_rng(3)
    backbone = draw_system(settings, 4, rng)
    varied = vary_system(backbone, 0.4, settings, rng)
    for before, after in ((backbone.W, varied.W), (backbone.A, varied.A)):
        stays = (before != 0) & (after != 0)
        assert stays.any()
        np.testing.assert_array_equal(before[stays], after[stays])


def test_a_complete_graph_can_only_lose_edges():
    settings = SimulationSettings(d=5)
    rng = np.random.default_rng(4)
    backbone = draw_system(settings, 4, rng)
    varied = vary_system(backbone, 0.3, settings, rng)
    assert (backbone.W != 0).sum() == 10
    assert (varied.W != 0).sum() == 7


def test_a_thinned_system_holds_a_part_of_W_and_all_of_A():
    rng = np.random.default_rng(5)
    backbone = draw_system(SimulationSettings(d=10), 8, rng)
    thin = thin_system(backbone, 3 / 8, rng)
    n_edges = (backbone.W != 0).sum()
    assert (thin.W != 0).sum() == round(3 / 8 * n_edges)
    assert np.all((thin.W == 0) | (thin.W == backbone.W))
    np.testing.assert_array_equal(thin.A, backbone.A)
    assert thin.spectral_radius <= MAX_RADIUS
