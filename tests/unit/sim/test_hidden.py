"""Simulated federations with hidden variables: what sites see, what is true, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import feddbn
import feddbn.metrics
from feddbn.errors import ParameterError
from support.saying import refused

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


def test_networks_of_sites_have_their_own_truths():
    made = feddbn.simulate(**{**SETTINGS, "heterogeneity": "independent"}, n_latent=1)
    assert made.ancestral_truth("site-1").variables == ("x0", "x1", "x2", "x3")
    with pytest.raises(ParameterError):
        made.ancestral_truth()
    with refused(ParameterError, "'nobody'"):
        made.ancestral_truth("nobody")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"n_latent": -1}, "n_latent"),
        ({"n_latent": 1, "latent_strength": "much"}, "latent_strength"),
        ({"n_latent": 1, "latent_lagged": "no"}, "latent_lagged"),
        ({"n_latent": 1, "mess": "spikes"}, "n_latent=1"),
        ({"n_latent": 1, "effects": "gp"}, "n_latent=1"),
    ],
)
def test_what_cannot_be_is_refused(options, name):
    with refused(ParameterError, name):
        feddbn.simulate(**{**SETTINGS, "n_samples": 60}, **options)
