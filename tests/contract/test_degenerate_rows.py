"""Rows from which nothing can be told apart: every method says so, in an error with a reason or in a finding."""

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.errors import DataError
from feddbn.method_table import METHODS

pytestmark = pytest.mark.promise

NAMES = list("abcd")
LOADS = np.array([0.7, -1.2, 0.9, 1.4])
# Not those that learn nothing, or learn at each site alone.
FITTED = [m.cls for m in METHODS.values() if m.cls not in ("LocalOnly", "MomentSummary")]


def one_shock(rng):
    """All variables are multiples of one."""
    return rng.normal(size=(120, 1)) * LOADS


def one_shock_that_travels(rng):
    """One shock a row for all variables, which remember it for different times."""
    x = one_shock(rng)
    for t in range(1, len(x)):
        x[t] += [0.2, 0.4, 0.6, 0.8] * x[t - 1]
    return x


def a_constant(rng):
    return np.column_stack([rng.normal(size=(120, 3)), np.full(120, 5.0)])


def all_constant(rng):
    return np.ones((120, 4))


def sum_and_copy(rng):
    x = rng.normal(size=(120, 4))
    return np.column_stack([x[:, 0], x[:, 1], x[:, 0] + x[:, 1], x[:, 0]])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("rows", "method"),
    [
        *((rows, method) for rows in (one_shock_that_travels, a_constant, sum_and_copy) for method in FITTED),
        *(
            (rows, method)
            for rows in (one_shock, all_constant)
            for method in ("OneShotDBN", "PFDBNL", "Dynotears")
        ),
    ],
)
def test_rows_that_tell_nothing_are_said_to(rows, method):
    sites = {
        name: pd.DataFrame(rows(np.random.default_rng(k)), columns=NAMES) for k, name in enumerate("stuv")
    }
    try:
        model = getattr(feddbn, method)().fit(sites)
    except DataError as error:
        told = error.values.get("columns", error.code)
    else:
        warned = {one.code for one in model.findings_ if one.level == "warning"}
        told = warned & {"dependent-column", "one-value"}
        assert np.isfinite(model.W_).all()
        assert np.isfinite(model.A_).all()
    refused = {a_constant: ("d",), all_constant: tuple(NAMES), one_shock: "all-dependent"}
    assert told in (
        {"dependent-column"},
        {"one-value"},
        refused.get(rows),
    )
