"""The description: where columns are, what is refused, what travels.

Rows of a design: where columns are, and that no cut of the stream changes them.
"""

import numpy as np
import pytest

from feddbn.core.designs.design import Basis, Design, Group, Nuisance, Term, design_rows
from feddbn.core.designs.features import FeatureMap, register_feature_map, smooth
from feddbn.core.designs.recordings import Block
from feddbn.errors import ParameterError
from support.saying import refused

NAMES = ("a", "b", "c")


def test_a_linear_design_has_one_column_per_variable_and_lag() -> None:
    design = Design.linear(NAMES, 2)
    assert (design.d, design.n_lags, design.q, design.is_linear) == (3, 2, 9, True)
    assert design.groups[4] == Group(variable=1, lag=1, columns=(4,))
    assert [g.columns for g in design.groups] == [(k,) for k in range(9)]
    assert design.own(1).tolist() == [4, 7]


def test_the_features_of_a_regulator_stand_behind_the_lagged_values() -> None:
    design = Design.features(NAMES, 2, Basis("quadratic", smoothing=0.5))
    assert (design.q, design.n_lags, design.is_linear) == (9 + 12, 2, False)
    assert design.groups[0] == Group(0, 1, (9, 10))
    assert design.groups[4] == Group(1, 2, (17, 18))
    assert design.own(2).tolist() == [5, 8]


def test_columns_of_one_variable_at_one_lag_are_one_edge_in_whatever_terms_they_are() -> None:
    terms = (Term(Basis(), (0, 1, 2)), Term(Basis("quadratic"), (1,)), Term(Basis("spline"), (2,)))
    design = Design(NAMES[:2], terms)
    edges = {(g.variable, g.lag): g.columns for g in design.groups}
    assert edges[0, 0] == (0,)
    assert edges[1, 1] == (3, 8, 9)
    assert edges[1, 2] == (5, 13, 14, 15)
    assert sorted(c for columns in edges.values() for c in columns) == list(range(design.q))


def test_the_digest_of_a_design_does_not_change_between_releases() -> None:
    # Owners approve digests: a change here needs a new DESIGN_VERSION.
    assert Design.linear(("x", "y"), 1).digest[:16] == "46d9d96aecf6ef9c"
    label = Design.features(("x", "y"), 2, Basis("spline", smoothing=0.5), Nuisance("label", baseline="rest"))
    assert label.digest[:16] == "cd608cf454d5ff60"


def test_ways_to_write_the_same_design_are_equal() -> None:
    one = Design.features(NAMES, 1, Basis("linear"), Nuisance("label", baseline=1.0), (-0.0,) * 3)
    other = Design.features(NAMES, 1, Basis("linear"), Nuisance("label", baseline=True), (0,) * 3)
    assert one == other
    assert one.digest == other.digest


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Design.linear(("a", "a"), 1), ("variables=",)),
        (lambda: Design.linear(NAMES, -1), ("n_lags=-1",)),
        (lambda: Design.features(NAMES, 0, Basis("linear")), ("n_lags=0",)),
        (lambda: Design(NAMES, (Term(Basis(smoothing=0.5), (0,)),)), ("first term",)),
        (lambda: Term(Basis(), (1, 0)), ("lags=(1, 0)",)),
        (lambda: Term(Basis(), (0,), "yes"), ("is_edge='yes'",)),
        (lambda: Basis("cubic"), ("'cubic'", "spline")),
        (lambda: Basis(3), ("name=3",)),
        (lambda: Basis("spline", (0, 1)), ("knots", "(0.0, 1.0)")),
        (lambda: Basis(smoothing=float("nan")), ("smoothing=", "nan")),
        (lambda: Design.features(NAMES, 1, Basis(), scale=(1, 0, 1)), ("scale=",)),
        (lambda: Design.features(NAMES, 1, Basis(), origin=(1,)), ("origin", 3)),
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
        ({"terms": [{"basis": {}}]}, ("Term", "is_edge")),
        ({"nuisance": None}, ("Nuisance", "None")),
        ({"n_columns": 7}, (7, 6)),
    ],
)
def test_a_description_that_was_tampered_with_is_refused(change, names) -> None:
    with refused(ParameterError, *names):
        Design.from_dict({**Design.linear(NAMES, 1).to_dict(), **change})


@pytest.mark.usefixtures("registries")
def test_a_site_whose_map_of_that_name_differs_is_told_so() -> None:
    register_feature_map(FeatureMap("of-two-minds", lambda v, k: v, lambda k: 1))
    data = Design.features(NAMES, 1, Basis("of-two-minds")).to_dict()
    register_feature_map(FeatureMap("of-two-minds", lambda v, k: np.stack([v, v], -1), lambda k: 2))
    with refused(ParameterError, 9, 12):
        Design.from_dict(data)


def _any_design(d: int, n_lags: int, name: str, smoothing: float = 1.0, **public) -> Design:
    return Design.features([f"x{i}" for i in range(d)], n_lags, Basis(name, smoothing=smoothing), **public)


def _all(stream):
    return np.concatenate([chunk.values for chunk in stream])


def test_neither_lags_nor_smoothing_cross_into_a_new_segment():
    x = np.random.default_rng(2).standard_normal((20, 2))
    design = _any_design(2, 2, "quadratic", 0.3)
    together = _all(design_rows(design, [Block(x[:8]), Block(x[8:])]))
    apart = [_all(design_rows(design, [Block(part)])) for part in (x[:8], x[8:])]
    np.testing.assert_array_equal(together, np.concatenate(apart))
    assert len(together) == 6 + 10


def test_a_design_points_at_the_columns_it_names():
    x = np.random.default_rng(4).standard_normal((12, 3)) + 5.0
    origin, scale = np.array([5.0, 4.0, 5.5]), np.array([1.0, 2.0, 0.5])
    design = _any_design(3, 2, "quadratic", 0.7, origin=origin, scale=scale)
    rows = _all(design_rows(design, [Block(x)]))
    assert rows.shape == (10, design.q)
    z = (x - origin) / scale
    e = smooth(z, 0.7)
    np.testing.assert_allclose(rows[:, design.own(1)], np.column_stack([z[1:-1, 1], z[:-2, 1]]))
    columns = design.edge_columns
    np.testing.assert_allclose(rows[:, columns[2]], np.column_stack([e[1:-1, 2], e[1:-1, 2] ** 2]))
    np.testing.assert_allclose(rows[:, columns[3 + 1]], np.column_stack([e[:-2, 1], e[:-2, 1] ** 2]))
