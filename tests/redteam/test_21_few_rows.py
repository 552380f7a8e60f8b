"""Two studies over the same sites with other variables or other limits: their sums differ by enough rows, or by none."""

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.federation.guards.dominance import DominanceGuard
from feddbn.federation.guards.row_set_guard import RowSetGuard
from feddbn.federation.sums.gram import GramQuestion
from feddbn.runtime.store import STORE
from support.hostile import Server, Sites
from support.saying import refused
from support.states import changed

pytestmark = pytest.mark.usefixtures("light")

LEAST = 10
VICTIM = "s1"
AT = 77
PARAMETERS = (
    'check_residuals = false\nprepare = {gains = "none", center = "none", detrend = 0, period = []}\n'
)


@pytest.fixture
def sites(tmp_path):
    """Four sites, one of which lacks a single cell of the last variable."""
    made = Sites(tmp_path, d=4)
    made.data[VICTIM][0][AT, 3] = np.nan
    made.write(VICTIM)
    made.restart(VICTIM)
    return made


def asked(sites, run, variables, n_lags=1, parameters="", **more):
    """What a server that asks for moments gets: number of rows, and the products of the first two columns."""
    study = sites.study("oneshot", parameters=parameters, variables=variables)
    sites.greet(study.model_copy(update={"parameters": {**study.parameters, "n_lags": n_lags}}), run)
    question = GramQuestion(n_lags=n_lags, variables=tuple(variables), **more)
    value = Server(sites, run).keys().sum(question, 0).value
    q = (n_lags + 1) * len(variables)
    products = np.zeros((q, q))
    products[np.triu_indices(q)] = value[1 + q :]
    return value[0], products[:2, :2]


def rows_of(sites, variables, n_lags=1):
    """Rows of all sites without an empty cell in these variables, as nobody should be able to tell them apart."""
    found = []
    for name in sites.names:
        x = sites.data[name][0][:, : len(variables)]
        lagged = np.hstack([x[n_lags - lag : len(x) - lag] for lag in range(n_lags + 1)])
        found.append(lagged[~np.isnan(lagged).any(axis=1), :2])
    return np.vstack(found)


def test_what_the_difference_of_two_studies_would_show(sites, monkeypatch):
    monkeypatch.setattr(RowSetGuard, "reads", lambda self, here, task: (here, task))
    n_first, first = asked(sites, "run-1", ("x0", "x1", "x2"))
    n_second, second = asked(sites, "run-2", ("x0", "x1", "x2", "x3"))
    victim = sites.data[VICTIM][0][[AT, AT + 1], :2]
    assert n_first - n_second == 2
    np.testing.assert_allclose(first - second, np.triu(victim.T @ victim), atol=1e-5)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("restart", [False, True])
def test_two_studies_with_other_variables_differ_by_enough_rows(sites, order, restart):
    counts = []
    for number, variables in enumerate((("x0", "x1", "x2"), ("x0", "x1", "x2", "x3"))[::order]):
        if number and restart:
            for name in sites.names:
                sites.restart(name)
        n, products = asked(sites, f"run-{number}", variables)
        rows = rows_of(sites, variables)
        counts.append(n)
        # An honest study has nearly all rows.
        assert len(rows) - 2 * LEAST <= n <= len(rows)
        np.testing.assert_allclose(products / n, np.triu(rows.T @ rows) / len(rows), rtol=0.2, atol=0.5)
    difference = counts[0] - counts[1]
    # Either the rows of both are the same, or they differ by enough.
    assert abs(difference) >= LEAST or difference == 0
    if order < 0:
        assert difference == 0


def test_more_lags_are_no_way_around(sites):
    n_first, _ = asked(sites, "run-1", ("x0", "x1", "x2"), n_lags=1)
    n_second, _ = asked(sites, "run-2", ("x0", "x1", "x2", "x3"), n_lags=2)
    # One row of each site more, because it has no second predecessor.
    assert n_first - n_second - len(sites.names) >= LEAST


def test_asking_for_the_same_again_changes_nothing(sites):
    found = [
        asked(sites, f"run-{k}", names)
        for k, names in enumerate([("x0", "x1", "x2"), ("x0", "x1", "x2", "x3")] * 2)
    ]
    for first, again in zip(found[:2], found[2:], strict=True):
        assert first[0] == again[0]
        np.testing.assert_array_equal(first[1], again[1])


@pytest.mark.parametrize("order", [("none", "site"), ("site", "none")])
@pytest.mark.parametrize("size", [7.0, 9.0])
def test_sums_with_and_without_robust_rows_show_no_single_cell(sites, order, size):
    """A hostile server asks for both and subtracts: without the guard the difference is the far cell times its row."""
    sites.data[VICTIM][0][120, 0] = size * sites.data[VICTIM][0][:, 0].std()
    sites.write(VICTIM)
    sites.restart(VICTIM)
    names = ("x0", "x1", "x2")
    found = {robust: asked(sites, f"run-{robust}", names, robust=robust) for robust in order}
    (n_first, first), (n_second, second) = (found[robust] for robust in order)
    # The row and those that have it as a lag are gone, with as many others as it takes to hide them.
    assert n_first - n_second >= LEAST
    x, y = sites.data[VICTIM][0][120, :2]
    assert abs((first - second)[0, 1] / y) != pytest.approx(abs(x), rel=0.05)
    assert found["site"][1][0, 0] < 1e5


def test_what_sums_with_and_without_robust_rows_would_show(sites, monkeypatch):
    for guard in (RowSetGuard, DominanceGuard):
        monkeypatch.setattr(guard, "reads", lambda self, here, task: (here, task))
    sites.data[VICTIM][0][120, 0] = 1e3
    sites.write(VICTIM)
    sites.restart(VICTIM)
    names = ("x0", "x1", "x2")
    (_, off), (_, on) = (asked(sites, f"run-{one}", names, robust=one) for one in ("none", "site"))
    x, y = sites.data[VICTIM][0][120, :2]
    assert (off - on)[0, 1] / y == pytest.approx(x, rel=0.01)


def test_a_study_alone_has_all_its_rows(sites):
    variables = ("x0", "x1", "x2", "x3")
    n, products = asked(sites, "run-1", variables)
    rows = rows_of(sites, variables)
    assert n == len(rows)
    np.testing.assert_allclose(products, np.triu(rows.T @ rows), atol=1e-5)


def test_a_damaged_book_of_rows_stops_what_it_is_about(sites):
    asked(sites, "run-1", ("x0", "x1"))
    state = sites.places[VICTIM] / "state"
    assert (state / STORE).stat().st_mode & 0o077 == 0
    other = 'CAST(replace(CAST(content AS TEXT), \'"rows": "\', \'"rows": "!\') AS BLOB)'
    assert changed(state, f"UPDATE lines SET content = {other} WHERE place = '_ledger'")
    sites.restart(VICTIM)
    with refused(Exception, code="withheld"):
        asked(sites, "run-2", ("x0", "x1", "x2"))
