"""The description: where columns are, what is refused, what travels.

Rows of a design: where columns are, and that no cut of the stream changes them.
"""

import numpy as np
import pytest

from feddbn.core.designs.design import Basis, Design, Group, Term, design_rows
from feddbn.core.designs.features import FeatureMap, register_feature_map, square_features
from feddbn.core.designs.recordings import Block
from feddbn.errors import ParameterError
from support.saying import refused

NAMES = ("a", "b", "c")


def test_a_linear_design_has_one_column_per_variable_and_lag() -> None:
    design = Design.linear(NAMES, 2)
    assert (design.d, design.n_lags, design.q, design.is_linear) == (3, 2, 9, True)
    assert design.groups[4] == Group(variable=1, lag=1, columns=(4,))
    assert [g.columns for g in design.groups] == [(k,) for k in range(9)]


def test_columns_of_one_variable_at_one_lag_are_one_edge_in_whatever_terms_they_are() -> None:
    terms = (Term(Basis(), (0, 1, 2)), Term(Basis("bend"), (1,)), Term(Basis("curve"), (2,)))
    design = Design(NAMES[:2], terms)
    edges = {(g.variable, g.lag): g.columns for g in design.groups}
    assert edges[0, 0] == (0,)
    assert edges[1, 1] == (3, 7)
    assert edges[1, 2] == (5, *range(14, 20))
    assert sorted(c for columns in edges.values() for c in columns) == list(range(design.q))


def test_the_digest_of_a_design_does_not_change_between_releases() -> None:
    # Owners approve digests: a change here needs a new DESIGN_VERSION.
    assert Design.linear(("x", "y"), 1).digest[:16] == "3e7bb9c7abde51ff"


def test_ways_to_write_the_same_design_are_equal() -> None:
    one = Design.curved(NAMES, 1, Basis("bend"), origin=(-0.0,) * 3)
    other = Design.curved(NAMES, 1, Basis("bend"), origin=(0,) * 3)
    assert one == other
    assert one.digest == other.digest


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Design.linear(("a", "a"), 1), ("variables=",)),
        (lambda: Design.linear(NAMES, -1), ("n_lags=-1",)),
        (lambda: Design(NAMES, (Term(Basis("bend"), (0,)),)), ("first term",)),
        (lambda: Term(Basis(), (1, 0)), ("lags=(1, 0)",)),
        (lambda: Basis("cubic"), ("'cubic'", "spline")),
        (lambda: Basis(3), ("name=3",)),
        (lambda: Design.curved(NAMES, 1, Basis(), scale=(1, 0, 1)), ("scale=",)),
        (lambda: Design.curved(NAMES, 1, Basis(), origin=(1,)), ("origin", 3)),
        (lambda: Design.coded(("a", "b"), 1, ["count"]), ("kinds", 1, 2)),
    ],
)
def test_an_impossible_design_is_refused_by_name(make, names) -> None:
    """A site reads designs that a server sent."""
    with refused(ParameterError, *names):
        make()


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"version": 2}, ("version 2", "version 1")),
        ({"extra": 1}, ("Design", "extra")),
        ({"terms": [{"basis": {}}]}, ("Term", "lags")),
        ({"nuisance": None}, ("Nuisance", "None")),
        ({"n_columns": 7}, (7, 6)),
    ],
)
def test_a_description_that_was_tampered_with_is_refused(change, names) -> None:
    with refused(ParameterError, *names):
        Design.from_dict({**Design.linear(NAMES, 1).to_dict(), **change})


@pytest.mark.usefixtures("registries")
def test_a_site_whose_map_of_that_name_differs_is_told_so() -> None:
    register_feature_map(FeatureMap("of-two-minds", lambda v: v, 1))
    data = Design.curved(NAMES, 1, Basis("of-two-minds")).to_dict()
    register_feature_map(FeatureMap("of-two-minds", lambda v: np.stack([v, v], -1), 2))
    with refused(ParameterError, 12, 18):
        Design.from_dict(data)


def _all(stream):
    return np.concatenate([chunk.values for chunk in stream])


def test_lags_do_not_cross_into_a_new_segment():
    x = np.random.default_rng(2).standard_normal((20, 2))
    design = Design.curved(("a", "b"), 2, Basis("bend"))
    together = _all(design_rows(design, [Block(x[:8]), Block(x[8:])]))
    apart = [_all(design_rows(design, [Block(part)])) for part in (x[:8], x[8:])]
    np.testing.assert_array_equal(together, np.concatenate(apart))
    assert len(together) == 6 + 10


def test_a_design_points_at_the_columns_it_names():
    x = np.random.default_rng(4).standard_normal((12, 3)) + 5.0
    origin, scale = np.array([5.0, 4.0, 5.5]), np.array([1.0, 2.0, 0.5])
    design = Design.curved(NAMES, 2, Basis("bend"), origin=origin, scale=scale)
    rows = _all(design_rows(design, [Block(x)]))
    assert rows.shape == (10, design.q)
    z = (x - origin) / scale
    columns = {(group.variable, group.lag): list(group.columns) for group in design.groups}
    for (variable, lag), at in columns.items():
        value = z[2 - lag : 12 - lag, variable]
        np.testing.assert_allclose(rows[:, at], np.column_stack([value, square_features(value)]))
