"""The smallest effect that is found: the formulas against regressions that are drawn again and again."""

import numpy as np
import pytest

from feddbn import AS_THEY_ARE, FDBNL
from feddbn.core.statistics.power import effect_above_price, effect_above_threshold


def drawn(rng, n, k, effect):
    """Rows of a target, a cause with this effect, and k other columns."""
    X = rng.normal(size=(n, k + 1))
    return X, effect * X[:, 0] + X[:, 1:].sum(axis=1) + rng.normal(size=n)


@pytest.mark.parametrize(("n", "k", "factor"), [(120, 5, 2.0), (600, 15, 1.0), (300, 40, 2.0)])
def test_an_effect_of_this_size_pays_its_price_in_four_of_five_samples(n, k, factor):
    rng, effect = np.random.default_rng(700), effect_above_price(n, k, factor)
    found = 0
    for _ in range(400):
        X, y = drawn(rng, n, k, effect)
        G, r = X.T @ X, X.T @ y
        rss = [y @ y - r[k:] @ np.linalg.solve(G[k:, k:], r[k:]) for k in (0, 1)]
        found += n * np.log(rss[1] / rss[0]) > factor * np.log(n)
    assert found / 400 == pytest.approx(0.8, abs=0.06)


@pytest.mark.parametrize("n", [200, 1000])
def test_a_weight_of_this_size_is_above_the_threshold_in_four_of_five_fits(n):
    rng, found = np.random.default_rng(701), 0
    effect = effect_above_threshold(n, 4, FDBNL().a_threshold)
    for _ in range(40):
        x = rng.normal(size=(n + 1, 2))
        x[1:, 1] += effect * x[:-1, 0]
        found += FDBNL(check_residuals=False, prepare=AS_THEY_ARE).fit({"a": x}).A_[0][0, 1] != 0
    assert found / 40 == pytest.approx(0.8, abs=0.12)


def test_without_rows_nothing_is_found():
    assert effect_above_price(8, 8) == np.inf
    assert effect_above_threshold(8, 8, 0.2) == np.inf
