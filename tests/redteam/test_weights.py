"""Sums under the secret weights that rows have in masked studies: what reads a row without them fails with them.

That columns do not differ in few rows, and sums not by few, are rules of their own: in ratios a weight cancels.
"""

import numpy as np
import pytest

from feddbn.core.designs.weights import WORTH, WeightedSite
from feddbn.data import read_sites
from feddbn.federation.guards.weights import RowWeights
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from support.consortium import Consortium, Liar, by_rule, plain, raw

pytestmark = pytest.mark.promise

D, N = 4, 500
NAMES = tuple(f"x{j}" for j in range(D))


def series(seed, n=N):
    rng = np.random.default_rng(seed)
    x = np.zeros((n + 20, D))
    for t in range(1, n + 20):
        x[t] = 0.5 * x[t - 1] + rng.normal(size=D)
    return x[20:]


def second_moments(values, key, n_lags=1):
    """(q + 1, q + 1) what one site tells of the columns 1, x_t, x_{t-1}; without a key it is exact."""
    site = read_sites({"a": values}, variables=NAMES, missing="keep")["a"]
    answer = Site("a", site, (RowWeights(key),) if key else ()).answer(
        Task(GramQuestion(n_lags=n_lags, variables=NAMES))
    )
    q = 1 + (n_lags + 1) * D
    found = np.zeros((q, q))
    found[np.triu_indices(q)] = answer
    return found + np.triu(found, 1).T


def last_row(moments):
    """The last row of a recording, solved from sums at two lags: S_xx(t) - S_xx(t-1) = aa' - bb', totals differ by a - b."""
    now, before = slice(1, 1 + D), slice(1 + D, 1 + 2 * D)
    step = moments[0, now] - moments[0, before]
    both = moments[now, now] - moments[before, before] + np.outer(step, step)
    return (both @ step - (step @ both @ step) / (2 * step @ step) * step) / (step @ step)


def row_beside(moments, known):
    """The row that is not among the `known` ones (n, 1 + 2 D), from what the sums have beyond these."""
    first = np.linalg.eigh(moments - known.T @ known)[1][:, -1]
    return (first / first[0])[1:]


def test_ends_of_a_recording_are_hidden():
    exact, weighted = (
        [np.abs(last_row(second_moments(series(k), key)) - series(k)[-1]).max() for k in range(30)]
        for key in (b"", b"secret")
    )
    assert max(exact) < 1e-6
    assert np.median(weighted) > 4 * series(0).std()


def test_a_row_is_hidden_from_who_knows_all_others():
    errors = {b"": [], b"secret": []}
    for seed in range(20):
        x = series(seed)
        rows = np.hstack([np.ones((N - 1, 1)), x[1:], x[:-1]])
        for key, found in errors.items():
            moments = second_moments(x, key) / (WORTH if key else 1.0)
            found.append(np.abs(row_beside(moments, np.delete(rows, 200, axis=0)) - rows[200, 1:]).max())
    assert max(errors[b""]) < 1e-6
    assert np.median(errors[b"secret"]) > 2 * series(0).std()


def test_all_answers_have_the_same_weights():
    """Other variables, other lags and later rows tell nothing new about the rows that were told of."""
    x = series(0)
    first = second_moments(x, b"secret")
    np.testing.assert_array_equal(second_moments(x, b"secret"), first)
    # One lag more is one row less, and a row more is one row more: with their weights, and nothing else.
    left_out = first[:5, :5] - second_moments(x, b"secret", n_lags=2)[:5, :5]
    one_more = second_moments(np.vstack([x, x[:1]]), b"secret")[:5, :5] - first[:5, :5]
    for found, row in ((left_out, x[1]), (one_more, x[0])):
        np.testing.assert_allclose(found / found[0, 0], np.outer([1, *row], [1, *row]), atol=1e-9)
        assert abs(found[0, 0] / WORTH - 1) > 0.1


@pytest.mark.parametrize(("n_known", "is_solved"), [(5, False), (11, True)])
def test_columns_that_everybody_knows_tell_weights_only_where_their_products_are_more_than_rows(
    n_known, is_solved
):
    """Of 60 rows 5 known columns tell 21 numbers, and 11 tell 78: then weights are known, and hide nothing."""
    n, names = 60, tuple(f"k{j}" for j in range(n_known))
    known = np.random.default_rng(0).normal(size=(n, n_known))
    site = read_sites({"a": known}, variables=names, missing="keep")["a"]
    told = Site("a", site, (RowWeights(b"secret"),)).answer(Task(GramQuestion(n_lags=0, variables=names)))
    columns = np.hstack([np.ones((n, 1)), known])
    products = np.stack([np.outer(row, row)[np.triu_indices(n_known + 1)] for row in columns], axis=1)
    guess = WORTH + np.linalg.lstsq(products, told - products.sum(axis=1) * WORTH, rcond=None)[0]
    (recording,) = WeightedSite(site, b"secret").recordings()
    (block,) = recording.blocks()
    error = np.sqrt(np.mean((guess / block.weights - 1) ** 2))
    assert error < 1e-9 if is_solved else error > 0.2


@pytest.mark.parametrize("protection", ["weights", "exact"])
def test_a_deployed_study_has_them_unless_it_asks_for_exact_sums(tmp_path, protection):
    sites = Consortium(tmp_path, plain(rows=300, d=3, seed=2), by_rule())
    found = []
    for run in ("one", "two"):
        liar = Liar(sites, sites.study(privacy={"protection": protection}), run)
        found.append(liar.sum(raw("gram.rows", {"n_lags": 1, "variables": sites.variables})).value)
    rows = np.concatenate([np.hstack([one[1:], one[:-1]]) for (one,) in sites.data.values()])
    off = np.abs(found[0][1:7] - rows.sum(axis=0)).max()
    assert off < 1e-6 if protection == "exact" else 1 < off < 40
    # Another run asks about the same rows, and they weigh the same.
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
