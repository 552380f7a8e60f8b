"""Sums that a server would subtract from one another differ by enough rows, or by none: studies over other variables, lags
or limits, models of rows.
"""

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.errors import SiteRefused
from feddbn.federation.guards.dominance import DominanceGuard
from feddbn.federation.guards.row_set_guard import RowSetGuard
from feddbn.federation.sums.gram import GramQuestion
from feddbn.runtime.store import STORE
from support.consortium import Consortium, Liar, by_rule, plain, raw, spread
from support.saying import refused

pytestmark = pytest.mark.promise

LEAST = 10
VICTIM, AT = "s1", 77
THREE, FOUR = ("x0", "x1", "x2"), ("x0", "x1", "x2", "x3")


def off(monkeypatch, *guards):
    """Answer as if there were no such rule."""
    for guard in guards:
        monkeypatch.setattr(guard, "reads", lambda self, here, task: (here, task))


@pytest.fixture
def sites(tmp_path):
    """Four sites, one of which lacks a single cell of the last variable."""
    data = spread(4, 4)
    data[VICTIM][0][AT, 3] = np.nan
    return Consortium(tmp_path, data, by_rule())


def asked(sites, run, variables=FOUR, n_lags=1, **more):
    """What a server that asks for moments gets: number of rows, and the products of the first two columns."""
    study = sites.study("oneshot", {"n_lags": n_lags}, variables=variables)
    value = Liar(sites, study, run).sum(GramQuestion(n_lags=n_lags, variables=variables, **more)).value
    q = (n_lags + 1) * len(variables)
    products = np.zeros((q, q))
    products[np.triu_indices(q)] = value[1 + q :]
    return value[0], products[:2, :2]


def rows_of(sites, variables):
    """Rows of all sites without an empty cell in these variables, as nobody should be able to tell them apart."""
    found = []
    for (x,) in sites.data.values():
        lagged = np.hstack([x[1:, : len(variables)], x[:-1, : len(variables)]])
        found.append(lagged[~np.isnan(lagged).any(axis=1), :2])
    return np.vstack(found)


# Two studies --------------------------------------------------------------------------------------------------------------
def test_what_the_difference_of_two_studies_would_show(sites, monkeypatch):
    off(monkeypatch, RowSetGuard)
    (n_first, first), (n_second, second) = asked(sites, "run-1", THREE), asked(sites, "run-2")
    victim = sites.data[VICTIM][0][[AT, AT + 1], :2]
    assert n_first - n_second == 2
    np.testing.assert_allclose(first - second, np.triu(victim.T @ victim), atol=1e-5)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("restart", [False, True])
def test_two_studies_with_other_variables_differ_by_enough_rows(sites, order, restart):
    found = {}
    for variables in (THREE, FOUR)[::order]:
        if restart:
            sites.restart()
        n, products = found[variables] = asked(sites, f"run-{len(variables)}", variables)
        rows = rows_of(sites, variables)
        # An honest study has nearly all rows.
        assert len(rows) - 2 * LEAST <= n <= len(rows)
        np.testing.assert_allclose(products / n, np.triu(rows.T @ rows) / len(rows), rtol=0.2, atol=0.5)
    difference = found[THREE][0] - found[FOUR][0]
    assert difference >= LEAST if order > 0 else difference == 0
    for variables, (n, _) in found.items():
        assert asked(sites, f"again-{len(variables)}", variables)[0] == n


def test_more_lags_are_no_way_around(sites):
    n_first, _ = asked(sites, "run-1", THREE, n_lags=1)
    n_second, _ = asked(sites, "run-2", FOUR, n_lags=2)
    # One row of each site more, because it has no second predecessor.
    assert n_first - n_second - len(sites.names) >= LEAST


@pytest.mark.parametrize("order", [("none", "site"), ("site", "none")])
@pytest.mark.parametrize("size", [7.0, 9.0])
def test_sums_with_and_without_robust_rows_show_no_single_cell(sites, order, size):
    """A hostile server asks for both and subtracts: without the guard the difference is the far cell times its row."""
    (x,) = sites.data[VICTIM]
    x[120, 0] = size * x[:, 0].std()
    sites.offer(VICTIM, x)
    found = {robust: asked(sites, f"run-{robust}", THREE, robust=robust) for robust in order}
    (n_first, first), (n_second, second) = (found[robust] for robust in order)
    # The row and those that have it as a lag are gone, with as many others as it takes to hide them.
    assert n_first - n_second >= LEAST
    assert abs((first - second)[0, 1] / x[120, 1]) != pytest.approx(abs(x[120, 0]), rel=0.05)
    assert found["site"][1][0, 0] < 1e5


def test_what_sums_with_and_without_robust_rows_would_show(sites, monkeypatch):
    off(monkeypatch, RowSetGuard, DominanceGuard)
    (x,) = sites.data[VICTIM]
    x[120, 0] = 1e3
    sites.offer(VICTIM, x)
    (_, without), (_, bounded) = (asked(sites, f"run-{one}", THREE, robust=one) for one in ("none", "site"))
    assert (without - bounded)[0, 1] / x[120, 1] == pytest.approx(1e3, rel=0.01)


def test_a_study_alone_has_all_its_rows_and_a_damaged_book_of_rows_stops_the_next(sites):
    n, products = asked(sites, "run-1")
    rows = rows_of(sites, FOUR)
    assert n == len(rows)
    np.testing.assert_allclose(products, np.triu(rows.T @ rows), atol=1e-5)
    assert (sites.state(VICTIM) / STORE).stat().st_mode & 0o077 == 0
    other = 'CAST(replace(CAST(content AS TEXT), \'"rows": "\', \'"rows": "!\') AS BLOB)'
    assert sites.damage(VICTIM, f"UPDATE lines SET content = {other} WHERE place = '_ledger'")
    sites.restart(VICTIM)
    with refused(SiteRefused, VICTIM, code="withheld"):
        asked(sites, "run-2", THREE)


# One run ------------------------------------------------------------------------------------------------------------------
def one_run(place, n_empty=0, n_far=0, k=3, policy=None, **parameters):
    """Sites of two variables, one with far and empty cells, and a server that asks about rows without lags."""
    data = plain(k, rows=150, seed=3)
    (victim,) = data["s1"]
    victim[20 : 20 + 4 * n_far : 4, 0] += 100.0
    victim[21 : 21 + 3 * n_empty : 3, 0] = np.nan
    sites = Consortium(place, data, policy or by_rule())
    return sites, Liar(sites, sites.study(parameters={"n_lags": 0, **parameters}))


def moments(sites, arrays=None, n_lags=0, **more):
    return raw("gram.rows", {"n_lags": n_lags, "variables": sites.variables, **more}, arrays)


def test_far_cells_are_not_switched_on_and_off(tmp_path):
    sites, liar = one_run(tmp_path, n_far=1)
    # Without bounds one far cell would be refused for itself (`dominance`).
    without_them = liar.sum(moments(sites, robust="site")).value
    liar.refused(moments(sites), "changed-in-run", "cells")
    # Neither a second greeting nor a restart makes a site forget, and one lag more is the same run.
    sites.restart()
    liar.again()
    for n_lags in (0, 1):
        liar.refused(moments(sites, n_lags=n_lags), "changed-in-run", "cells")
    # The same question gets the same answer.
    np.testing.assert_array_equal(liar.sum(moments(sites, robust="site")).value, without_them)


def model(scale):
    """Means 0, and variances and covariances by which empty cells are filled in."""
    return {"row_model": np.vstack([np.zeros(2), np.array([[scale**2, 0.9 * scale], [0.9 * scale, 1.0]])])}


def test_few_rows_with_empty_cells_are_left_out_whatever_the_model(tmp_path):
    """Two models differ by what they make of rows with empty cells: of one row that is its other cell, squared."""
    sites, liar = one_run(tmp_path, n_empty=1)
    small, large = (liar.sum(moments(sites, model(scale))).value for scale in (1.0, 1e6))
    np.testing.assert_array_equal(small, large)
    complete = [rows[~np.isnan(rows).any(axis=1)] for (rows,) in sites.data.values()]
    assert small[0] == sum(map(len, complete)) == 449
    np.testing.assert_allclose(small[1:3], np.concatenate(complete).sum(axis=0), rtol=1e-9)


def test_many_rows_with_empty_cells_are_filled_in_by_a_model_that_changes_a_few_times_only(tmp_path):
    sites, liar = one_run(tmp_path, n_empty=12)
    assert {liar.sum(moments(sites, model(1.0 + k))).value[0] for k in range(8)} == {450}
    liar.refused(moments(sites, model(20.0)), "changed-in-run", "model")


def test_sums_of_few_rows_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    rows = np.cumsum(rng.standard_cauchy(size=(40, 2)), axis=0)
    sites = Consortium(tmp_path, {f"s{i}": [rows[: 9 + 20 * (i > 0)]] for i in range(3)}, by_rule())
    Liar(sites, sites.study(parameters={"n_lags": 0})).refused(moments(sites), "few-rows", "9 rows", 10)


def test_sites_are_compared_with_one_pair_of_sums_only(tmp_path):
    policy = by_rule().replace('"gram.pairs"', '"gram.pairs", "agree"')
    sites, liar = one_run(tmp_path, k=5, policy=policy, **{"prepare.on_disagreement": "exclude"})
    answer = liar.sum(
        raw("survey.first", {"n_lags": 0, "variables": sites.variables, "profiles": "whole"})
    ).value
    about = {"n_lags": 0, "variables": sites.variables, "n_sites": 5.0}
    sums = {"total": answer[-6:-3], "squares": answer[-3:]}
    assert liar.sum(raw("agree", about, sums)).contributors == sites.names
    liar.refused(raw("agree", about, {**sums, "total": sums["total"] + 100.0}), "changed-in-run", "compared")
    # Sums with and without those who stay out would show these.
    liar.sum(moments(sites, abstain=True))
    liar.refused(moments(sites), "changed-in-run", "abstain")
