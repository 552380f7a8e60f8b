import itertools

import numpy as np
import pytest

from feddbn.core.orders.parents import Objective, ParentRegressions, ParentSelection, columns_of

EVERYTHING = (1 << 6) - 1


def rows(rng, n=200, q=6):
    z = rng.standard_normal((n, q)) @ rng.standard_normal((q, q))
    return z - z.mean(axis=0)


def rss_of(z, node, parents):
    X = z[:, list(parents)]
    beta = np.linalg.lstsq(X, z[:, node], rcond=None)[0] if parents else np.zeros(0)
    return float(np.sum((z[:, node] - X @ beta) ** 2))


def test_fit_agrees_with_least_squares_on_the_rows():
    z = rows(np.random.default_rng(0))
    regressions = ParentRegressions(z.T @ z, len(z), 3)
    fit = regressions.fit(1, (0, 4))
    assert fit.rss * regressions.total[1] == pytest.approx(rss_of(z, 1, (0, 4)))
    for m in (2, 3, 5):
        after = rss_of(z, 1, (0, 4, m))
        assert fit.gain[m] * regressions.total[1] == pytest.approx(rss_of(z, 1, (0, 4)) - after)
    assert fit.gain[[0, 1, 4]].tolist() == [0, 0, 0]
    for k, m in enumerate((0, 4)):
        rest = tuple(c for c in (0, 4) if c != m)
        assert fit.loss[k] * regressions.total[1] == pytest.approx(rss_of(z, 1, rest) - rss_of(z, 1, (0, 4)))


@pytest.mark.parametrize("noise_variance", [None, 1.0])
def test_selection_with_exchange_finds_the_best_of_all_subsets(noise_variance):
    found_best = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        z = rng.standard_normal((100, 6))
        z[:, 0] += 0.5 * z[:, 2] - 0.4 * z[:, 4]
        z -= z.mean(axis=0)
        regressions = ParentRegressions(z.T @ z, len(z), 1)
        objective = Objective(100.0, np.full(6, 2 * np.log(100)), regressions.total, noise_variance)
        selection = ParentSelection(regressions, objective, [()])
        parents, cost = selection.select(0, (), EVERYTHING - 1, exchange=True)
        subsets = itertools.chain.from_iterable(itertools.combinations(range(1, 6), k) for k in range(6))
        best = min(objective.cost(0, regressions.fit(0, s), s) for s in subsets)
        assert cost == pytest.approx(objective.cost(0, regressions.fit(0, parents), parents))
        found_best += cost == pytest.approx(best)
    assert found_best >= 19


def test_required_columns_stay_and_non_candidates_never_enter():
    z = rows(np.random.default_rng(1))
    regressions = ParentRegressions(z.T @ z, len(z), 2)
    objective = Objective(200.0, np.full(6, 1e9), regressions.total, None)
    required = ParentSelection(regressions, objective, [(5,), ()])
    assert required.select(0, (2, 3), EVERYTHING)[0] == (5,)
    cheap = Objective(200.0, np.full(6, 0.0), regressions.total, None)
    candidates = columns_of(np.array([False, False, True, False, True, False]))
    assert ParentSelection(regressions, cheap, [(), ()]).select(0, (), candidates)[0] == (2, 4)
