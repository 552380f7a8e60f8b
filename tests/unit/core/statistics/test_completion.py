"""Second moments where not everybody has measured everything."""

from __future__ import annotations

import numpy as np

from feddbn.core.statistics.moments import completed, nearest_positive


def _moments(seed: int, q: int = 5) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(40, q)) @ np.random.default_rng(seed + 1).normal(size=(q, q))
    return x.T @ x / len(x)


def test_a_site_like_the_federation_is_completed_to_the_federation() -> None:
    F = _moments(0)
    rows = np.array([0, 2, 3])
    assert np.allclose(completed(F[np.ix_(rows, rows)], rows, F), F)


def test_a_completed_matrix_keeps_what_was_measured_and_is_positive() -> None:
    F, G, rows = _moments(0), _moments(2)[:3, :3], np.array([1, 2, 4])
    whole = completed(G, rows, F)
    assert np.array_equal(whole[np.ix_(rows, rows)], G)
    assert np.linalg.eigvalsh(whole)[0] > -1e-12


def test_positive_moments_stay_as_they_are() -> None:
    F = _moments(4)
    assert np.allclose(nearest_positive(F), F)


def test_contradicting_moments_are_raised_to_the_size_of_the_contradiction() -> None:
    # Correlations .9, .9 and -.9 cannot hold together: the smallest eigenvalue is -.8.
    R = np.array([[1.0, 0.9, 0.9], [0.9, 1.0, -0.9], [0.9, -0.9, 1.0]])
    scale = np.array([1.0, 2.0, 3.0])
    F = R * np.outer(scale, scale)
    repaired = nearest_positive(F)
    assert np.allclose(np.diag(repaired), np.diag(F))
    correlations = repaired / np.outer(scale, scale)
    assert np.linalg.eigvalsh(correlations)[0] > 0.2
    assert np.all(np.sign(correlations) == np.sign(R))
