"""`core.orders.learn`: shares of explained variance, against regressions on rows."""

from __future__ import annotations

import numpy as np
import pytest

from feddbn.core.orders.learn import explained_shares, refit
from feddbn.core.statistics.moments import Moments


def shares_of(rows: np.ndarray, support: np.ndarray) -> np.ndarray:
    moments = Moments.of_rows(rows)
    return explained_shares(moments.scatter, refit(moments, support)[0])


def network() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((401, 3)).cumsum(axis=0) * 0.3 + rng.standard_normal((401, 3))
    rows = np.hstack([x[1:], x[:-1]])
    support = np.zeros((6, 3), dtype=bool)
    support[[0, 3, 4], 1] = True
    support[[1, 5, 4], 2] = True
    return rows, support


def test_the_shares_of_a_target_add_up_to_its_r_squared():
    rows, support = network()
    shares = shares_of(rows, support)
    for j in range(3):
        X = np.column_stack([rows[:, support[:, j]], np.ones(len(rows))])
        residual = rows[:, j] - X @ np.linalg.lstsq(X, rows[:, j], rcond=None)[0]
        assert shares[:, j].sum() == pytest.approx(1 - residual.var() / rows[:, j].var(), abs=1e-10)
    assert not shares[:, 0].any(), "a variable without parents has nothing explained"


def test_shares_depend_on_neither_units_nor_origins():
    rows, support = network()
    units = np.tile([1e-3, 10.0, 500.0], 2)
    np.testing.assert_allclose(
        shares_of(rows * units + 7.0 * units, support), shares_of(rows, support), atol=1e-9
    )


def test_of_uncorrelated_parents_the_share_is_the_squared_correlation():
    rng = np.random.default_rng(1)
    a, b, noise = np.linalg.qr(rng.standard_normal((300, 4)) - 0.0)[0].T[:3]
    a, b, noise = (v - v.mean() for v in (a, b, noise))
    y = 0.6 * a - 0.3 * b + noise
    rows = np.column_stack([a, b, y])
    support = np.zeros((3, 3), dtype=bool)
    support[:2, 2] = True
    shares = shares_of(rows, support)
    assert shares[0, 2] == pytest.approx(np.corrcoef(a, y)[0, 1] ** 2, abs=0.03)
    assert shares[1, 2] > 0, "an effect with its correlation counts, whatever its sign"


def test_a_parent_that_only_corrects_another_has_a_negative_share():
    rng = np.random.default_rng(2)
    level = rng.standard_normal(2000)
    a = level + 0.3 * rng.standard_normal(2000)
    b = level + 0.3 * rng.standard_normal(2000)
    y = 1.5 * a - 0.5 * b + rng.standard_normal(2000)
    support = np.zeros((3, 3), dtype=bool)
    support[:2, 2] = True
    shares = shares_of(np.column_stack([a, b, y]), support)
    assert shares[1, 2] < 0 < shares[0, 2]


def test_neighbouring_lags_that_cancel_explain_nothing_together():
    scatter = np.array(
        [[1.0, 0.0, 0.5, 0.5], [0.0, 1.0, 0.5, 0.5], [0.5, 0.5, 1.0, 0.0], [0.5, 0.5, 0.0, 1.0]]
    )
    C = np.zeros((4, 2))
    C[0, 1], C[2, 1] = 0.8, -0.8
    shares = explained_shares(scatter, C)
    assert shares[0, 1] == pytest.approx(-0.4)
    scatter[0, 1] = scatter[1, 0] = 0.5
    assert explained_shares(scatter, C)[0, 1] == pytest.approx(0.0)
