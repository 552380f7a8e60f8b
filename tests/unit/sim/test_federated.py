"""Simulated federations: seeds, backbones and hidden variables."""

import numpy as np
import pytest

import feddbn
import feddbn.metrics
from feddbn.sim import simulation


@pytest.mark.parametrize("arguments", [{}, {"heterogeneity": 0.3, "n_recordings": 2}])
def test_same_seed_gives_the_same_bits_and_another_or_a_used_generator_does_not(arguments):
    first, second = (feddbn.simulate(random_state=5, **arguments) for _ in range(2))
    for site in first.sites:
        for one, two in zip(first.sites[site], second.sites[site], strict=True):
            assert one.to_numpy().tobytes() == two.to_numpy().tobytes()
        assert first.truths[site].equals(second.truths[site])
    rng = np.random.default_rng(5)
    feddbn.simulate(random_state=rng, **arguments)
    for other in (feddbn.simulate(random_state=one, **arguments) for one in (rng, 6)):
        assert not np.array_equal(first.sites["site-0"][0], other.sites["site-0"][0])
    # The network depends on neither noise nor sample size.
    longer = feddbn.simulate(random_state=5, **arguments, n_samples=700, noise="laplace")
    np.testing.assert_array_equal(first.truths["site-0"].W, longer.truths["site-0"].W)


def test_sites_around_a_backbone_share_most_edges_and_independent_ones_do_not():
    def overlap(fed):
        masks = [dbn.W != 0 for dbn in fed.truths.values()]
        return np.mean([(a & b).sum() / a.sum() for i, a in enumerate(masks) for b in masks[:i]])

    assert overlap(feddbn.simulate(d=15, n_sites=6, heterogeneity=0.1)) > 0.75
    assert overlap(feddbn.simulate(d=15, n_sites=6, heterogeneity="independent")) < 0.35


def test_rows_are_split_evenly_unless_site_sizes_say_otherwise():
    def rows(**more):
        fed = feddbn.simulate(d=3, n_sites=3, n_samples=10, **more)
        return [len(frame) - 1 for (frame,) in fed.sites.values()]

    assert rows() == [4, 3, 3]
    assert rows(site_sizes=[7, 1, 90]) == [7, 1, 90]


@pytest.mark.parametrize("arguments", [{}, {"n_recordings": 2, "heterogeneity": 0.3}, {"n_lags": 2}])
def test_recordings_made_in_parts_are_those_made_at_once(arguments, monkeypatch):
    asked = {"d": 4, "n_sites": 30, "n_samples": 30 * 12, "random_state": 2, **arguments}
    whole = feddbn.simulate(**asked)
    monkeypatch.setattr(simulation, "_NUMBERS_TOGETHER", 10_000)
    for site, recordings in feddbn.simulate(**asked).sites.items():
        for part, expected in zip(recordings, whole.sites[site], strict=True):
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
    again = feddbn.simulate(**SETTINGS, n_latent=0)
    np.testing.assert_array_equal(made.sites["site-1"][0], again.sites["site-1"][0])
    marks = made.ancestral_truth().marks
    causes = np.stack([made.truth.W, *made.truth.A]) != 0
    assert (np.moveaxis(marks == "-->", 2, 0) == causes).all()


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
        **{**SETTINGS, "n_samples": 20000, "random_state": 5, "w_range": (0.6, 0.9)}, n_latent=3
    )
    truth = made.ancestral_truth()
    assert (truth.marks == "<->").any()
    found = feddbn.LatentDBN().fit(made.sites)
    scores = feddbn.metrics.mark_scores(truth.marks, found.graph_)
    assert scores.adjacency_f1 > 0.8
    assert scores.orientation_precision > 0.7
