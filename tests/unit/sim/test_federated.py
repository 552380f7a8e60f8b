"""Simulated federations with hidden variables: what sites see, what is true, and what is refused."""

import numpy as np
import pytest

import feddbn
import feddbn.metrics
from feddbn.sim import federated
from feddbn.sim.federated import simulate_arrays
from feddbn.sim.settings import SimulationSettings


def _simulate(seed=0, **arguments):
    return simulate_arrays(SimulationSettings(**arguments), np.random.default_rng(seed))


def _systems(arrays):
    return list(arrays.systems.values())


@pytest.mark.parametrize("arguments", [{}, {"heterogeneity": 0.3, "n_recordings": 2}])
def test_same_seed_gives_the_same_bits_and_another_or_a_used_generator_does_not(arguments):
    first, second = _simulate(seed=5, **arguments), _simulate(seed=5, **arguments)
    for site in first.recordings:
        for one, two in zip(first.recordings[site], second.recordings[site], strict=True):
            assert one.tobytes() == two.tobytes()
        assert first.systems[site].W.tobytes() == second.systems[site].W.tobytes()
        assert first.systems[site].A.tobytes() == second.systems[site].A.tobytes()
    rng, settings = np.random.default_rng(5), SimulationSettings(**arguments)
    simulate_arrays(settings, rng)
    for other in (simulate_arrays(settings, rng), _simulate(seed=6, **arguments)):
        assert not np.array_equal(first.recordings["site-0"][0], other.recordings["site-0"][0])
    # The network depends on neither noise nor sample size.
    longer = _simulate(seed=5, **arguments, n_samples=700, noise="laplace")
    np.testing.assert_array_equal(_systems(first)[0].W, _systems(longer)[0].W)


def test_sites_around_a_backbone_share_most_edges_and_independent_ones_do_not():
    def overlap(arrays):
        masks = [system.W != 0 for system in _systems(arrays)]
        return np.mean([(a & b).sum() / a.sum() for i, a in enumerate(masks) for b in masks[:i]])

    near = _simulate(d=15, n_sites=6, heterogeneity=0.1)
    far = _simulate(d=15, n_sites=6, heterogeneity="independent")
    assert overlap(near) > 0.75
    assert overlap(far) < 0.35


@pytest.mark.parametrize("arguments", [{}, {"n_recordings": 2, "heterogeneity": 0.3}, {"n_lags": 2}])
def test_recordings_made_in_parts_are_those_made_at_once(arguments, monkeypatch):
    asked = {"d": 4, "n_sites": 30, "n_samples": 30 * 12, **arguments}
    whole = _simulate(seed=2, **asked)
    monkeypatch.setattr(federated, "_NUMBERS_TOGETHER", 10_000)
    for site, recordings in _simulate(seed=2, **asked).recordings.items():
        for part, expected in zip(recordings, whole.recordings[site], strict=True):
            np.testing.assert_allclose(part, expected, rtol=1e-12, atol=1e-13)


SETTINGS = {"d": 4, "n_sites": 3, "n_samples": 3000, "mean_degree": 2, "random_state": 3}


def test_sites_see_the_first_variables_of_a_larger_network():
    made = feddbn.simulate(**SETTINGS, n_latent=2)
    assert all(list(frame.columns) == ["x0", "x1", "x2", "x3"] for (frame,) in made.sites.values())
    whole = made.whole["site-0"]
    assert whole.variables == ("x0", "x1", "x2", "x3", "hidden0", "hidden1")
    np.testing.assert_array_equal(made.truth.W, whole.W[:4, :4])
    np.testing.assert_array_equal(made.truth.A, whole.A[:, :4, :4])
    assert made.parameters["n_latent"] == 2
    assert made.parameters["d"] == 4


def test_without_hidden_variables_nothing_changes():
    made = feddbn.simulate(**SETTINGS)
    again = feddbn.simulate(**SETTINGS, n_latent=0, latent_strength=5.0)
    np.testing.assert_array_equal(made.sites["site-1"][0], again.sites["site-1"][0])
    marks = made.ancestral_truth().marks
    causes = np.stack([made.truth.W, *made.truth.A]) != 0
    assert (np.moveaxis(marks == "-->", 2, 0) == causes).all()


def test_strength_and_past_of_hidden_variables():
    plain, strong, brief = (
        feddbn.simulate(**SETTINGS, n_latent=2, **options).whole["site-0"]
        for options in ({}, {"latent_strength": 1.5}, {"latent_lagged": False})
    )
    np.testing.assert_allclose(strong.W[4:], 1.5 * plain.W[4:])
    np.testing.assert_array_equal(strong.W[:4], plain.W[:4])
    assert not brief.A[:, 4:].any()
    assert not brief.A[:, :, 4:].any()
    assert brief.W[4:].any()


def test_the_rows_are_those_of_the_whole_network():
    """Products of rows follow the covariances that the whole network implies for what is seen."""
    made = feddbn.simulate(**{**SETTINGS, "n_samples": 60000}, n_latent=2)
    whole = made.whole["site-0"]
    through = np.linalg.inv(np.eye(6) - whole.W)
    S, step = np.eye(6), whole.A[0] @ through
    for _ in range(400):
        S = step.T @ S @ step + through.T @ through
    rows = np.concatenate([frame.to_numpy() for (frame,) in made.sites.values()])
    np.testing.assert_allclose(np.cov(rows.T), S[:4, :4], atol=0.12 * S[:4, :4].max())


def test_a_hidden_cause_shows_in_the_truth_and_is_found():
    made = feddbn.simulate(
        **{**SETTINGS, "n_samples": 20000, "random_state": 5}, n_latent=3, latent_strength=2.0
    )
    truth = made.ancestral_truth()
    assert (truth.marks == "<->").any()
    found = feddbn.LatentDBN().fit(made.sites)
    scores = feddbn.metrics.mark_scores(truth.marks, found.graph_)
    assert scores.adjacency_f1 > 0.8
    assert scores.orientation_precision > 0.7
