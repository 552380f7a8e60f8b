import numpy as np
import pytest

from feddbn.sim import SimulationSettings, federated, simulate_arrays
from feddbn.sim.series import advance, draw_shocks


def _simulate(seed=0, **arguments):
    return simulate_arrays(SimulationSettings(**arguments), np.random.default_rng(seed))


def _systems(arrays):
    return list(arrays.systems.values())


def test_rows_of_all_sites_add_up_to_the_usable_rows_asked_for():
    arrays = _simulate(d=3, n_lags=2, n_sites=4, n_samples=103, n_recordings=3)
    usable = {site: [len(rows) - 2 for rows in recordings] for site, recordings in arrays.recordings.items()}
    assert list(usable) == ["site-0", "site-1", "site-2", "site-3"]
    assert [sum(sizes) for sizes in usable.values()] == [26, 26, 26, 25]
    assert usable["site-0"] == [9, 9, 8]
    assert all(rows.shape[1] == 3 for recordings in arrays.recordings.values() for rows in recordings)


def test_site_sizes_are_obeyed():
    arrays = _simulate(d=3, n_sites=3, site_sizes=(5, 50, 500))
    assert [len(recordings[0]) for recordings in arrays.recordings.values()] == [6, 51, 501]


def test_same_seed_gives_the_same_bits():
    for arguments in (
        {},
        {"heterogeneity": 0.3, "n_recordings": 2},
        {"n_clusters": 3, "graph": "scale-free"},
    ):
        first, second = _simulate(seed=5, **arguments), _simulate(seed=5, **arguments)
        for site in first.recordings:
            for one, two in zip(first.recordings[site], second.recordings[site], strict=True):
                assert one.tobytes() == two.tobytes()
            assert first.systems[site].W.tobytes() == second.systems[site].W.tobytes()
            assert first.systems[site].A.tobytes() == second.systems[site].A.tobytes()


def test_another_seed_or_a_used_generator_gives_other_data():
    settings = SimulationSettings(d=4, n_sites=2)
    rng = np.random.default_rng(0)
    first, second = simulate_arrays(settings, rng), simulate_arrays(settings, rng)
    other = simulate_arrays(settings, np.random.default_rng(1))
    assert not np.array_equal(first.recordings["site-0"][0], second.recordings["site-0"][0])
    assert not np.array_equal(first.recordings["site-0"][0], other.recordings["site-0"][0])


def test_network_does_not_depend_on_noise_or_sample_size():
    first, second = _simulate(n_samples=100), _simulate(n_samples=300, noise="laplace")
    np.testing.assert_array_equal(_systems(first)[0].W, _systems(second)[0].W)


def test_homogeneous_sites_share_one_system_and_different_series():
    arrays = _simulate(d=5, n_sites=4)
    assert arrays.is_homogeneous
    assert arrays.clusters is None
    rows = [recordings[0][:20] for recordings in arrays.recordings.values()]
    assert not np.array_equal(rows[0], rows[1])


def test_sites_around_a_backbone_share_most_edges_and_independent_ones_do_not():
    def overlap(arrays):
        masks = [system.W != 0 for system in _systems(arrays)]
        return np.mean([(a & b).sum() / a.sum() for i, a in enumerate(masks) for b in masks[:i]])

    near = _simulate(d=15, n_sites=6, heterogeneity=0.1)
    far = _simulate(d=15, n_sites=6, heterogeneity="independent")
    assert not near.is_homogeneous
    assert overlap(near) > 0.75
    assert overlap(far) < 0.35


def test_clusters_are_even_and_share_their_system():
    arrays = _simulate(n_sites=7, n_clusters=3, heterogeneity=0.2)
    assert list(arrays.clusters.values()) == [0, 1, 2, 0, 1, 2, 0]
    assert arrays.systems["site-0"] is arrays.systems["site-3"]
    assert arrays.systems["site-0"] is not arrays.systems["site-1"]


def test_clusters_without_heterogeneity_have_nothing_in_common():
    arrays = _simulate(d=15, n_sites=4, n_clusters=2)
    first, second = arrays.systems["site-0"], arrays.systems["site-1"]
    assert not np.array_equal(first.order, second.order)
    shared = (first.W != 0) & (second.W != 0)
    assert not np.any(first.W[shared] == second.W[shared])


@pytest.mark.parametrize(("level", "degree"), [("low", 3), ("high", 8)])
def test_connectivity_sets_the_mean_degree(level, degree):
    counts = [
        (_systems(_simulate(seed=s, n_sites=1, n_samples=1, connectivity=level))[0].W != 0).sum()
        for s in range(100)
    ]
    assert np.mean(counts) == pytest.approx(degree * 10 / 2, rel=0.07)


def test_mixed_connectivity_alternates_and_the_low_sites_are_part_of_the_backbone():
    arrays = _simulate(n_sites=4, connectivity="mixed")
    low, high, low_again, high_again = _systems(arrays)
    assert low is low_again
    assert high is high_again
    assert np.all((low.W == 0) | (low.W == high.W))
    assert (low.W != 0).sum() == round(3 / 8 * (high.W != 0).sum())


def test_mixed_connectivity_of_independent_sites_alternates():
    arrays = _simulate(n_sites=20, connectivity="mixed", heterogeneity="independent")
    counts = np.array([(system.W != 0).sum() for system in _systems(arrays)])
    assert counts[::2].mean() == pytest.approx(15, abs=3)
    assert counts[1::2].mean() == pytest.approx(40, abs=3)


def test_a_static_network_solves_its_structural_equation():
    arrays = _simulate(d=4, n_lags=0, n_sites=1, n_samples=50_000, noise_scale=(0.5, 1, 2, 3))
    rows, system = arrays.recordings["site-0"][0], _systems(arrays)[0]
    assert rows.shape == (50_000, 4)
    residuals = rows - rows @ system.W
    np.testing.assert_allclose(residuals.std(axis=0), [0.5, 1, 2, 3], rtol=0.02)
    np.testing.assert_allclose(np.corrcoef(residuals.T), np.eye(4), atol=0.025)


def test_structural_residuals_are_the_noise_that_was_drawn():
    arrays = _simulate(d=6, n_lags=2, n_sites=1, n_samples=300)
    system = _systems(arrays)[0]
    shocks = draw_shocks([302], [np.random.default_rng(9)], "uniform", np.ones(6), n_burned=10)
    (rows,) = advance([system], shocks, n_burned=10)
    residuals = rows[2:] - rows[2:] @ system.W - rows[1:-1] @ system.A[0] - rows[:-2] @ system.A[1]
    drawn = np.random.default_rng(9).uniform(-np.sqrt(3), np.sqrt(3), size=(312, 6))
    np.testing.assert_allclose(residuals, drawn[12:], atol=1e-12)


def test_recordings_that_advance_together_equal_recordings_alone():
    arrays = _simulate(d=5, n_lags=2, n_sites=4, n_samples=80, heterogeneity="independent")
    systems = _systems(arrays)
    sizes = [10, 25, 10, 25]

    shocks = draw_shocks(
        sizes, [np.random.default_rng(seed) for seed in range(4)], "gaussian", np.ones(5), 20
    )

    together = advance(systems, shocks, n_burned=20)
    for r in range(4):
        (alone,) = advance([systems[r]], [shocks[r]], n_burned=20)
        np.testing.assert_allclose(together[r], alone, atol=1e-12)


@pytest.mark.parametrize("arguments", [{}, {"n_recordings": 2, "heterogeneity": 0.3}, {"n_lags": 2}])
def test_recordings_made_in_parts_are_those_made_at_once(arguments, monkeypatch):
    asked = {"d": 4, "n_sites": 30, "n_samples": 30 * 12, **arguments}
    whole = _simulate(seed=2, **asked)
    monkeypatch.setattr(federated, "_NUMBERS_TOGETHER", 10_000)
    for site, recordings in _simulate(seed=2, **asked).recordings.items():
        for part, expected in zip(recordings, whole.recordings[site], strict=True):
            np.testing.assert_allclose(part, expected, rtol=1e-12, atol=1e-13)
