"""Standardising a Gram matrix."""

from __future__ import annotations

import numpy as np

from feddbn.core.statistics.moments import correlations, nearest_positive, safe_roots


def test_correlations_agree_with_numpy_whatever_the_units() -> None:
    x = np.random.default_rng(0).normal(size=(50, 4)) * [1e-6, 1.0, 1e3, 1e9]
    centred = x - x.mean(axis=0)
    R, root = correlations(centred.T @ centred)
    np.testing.assert_allclose(R, np.corrcoef(x.T), atol=1e-12)
    np.testing.assert_allclose(root, np.sqrt(50) * x.std(axis=0))


def test_a_constant_column_correlates_with_nothing() -> None:
    G = np.array([[4.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    R, root = correlations(G)
    assert root.tolist() == [2.0, 1.0, 1.0]
    assert R.tolist() == [[1.0, 0.0, 0.5], [0.0, 0.0, 0.0], [0.5, 0.0, 1.0]]
    assert safe_roots(np.array([-1e-20, 9.0])).tolist() == [1.0, 3.0]


def test_repairing_moments_leaves_a_constant_column_constant() -> None:
    F = np.array([[1.0, 0.9, 0.0], [0.9, 0.5, 0.0], [0.0, 0.0, 0.0]])
    fixed = nearest_positive(F)
    np.testing.assert_allclose(np.diag(fixed), np.diag(F))
    assert not fixed[2].any()
    assert np.linalg.eigvalsh(fixed[:2, :2])[0] > 0
