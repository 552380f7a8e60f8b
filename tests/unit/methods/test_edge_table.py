"""`methods.edge_table`: the order of edges and the ranking of pairs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from feddbn import OneShotDBN, simulate
from feddbn.errors import ParameterError, ResidualsWarning
from feddbn.methods.edge_table import edge_table, pair_ranking

NAMES = ("a", "b")


def table() -> pd.DataFrame:
    probability = np.array([[0.0, 1.0], [0.3, 0.0], [1.0, 0.9], [0.1, 0.99]])
    C = np.array([[0.0, 0.2], [0.0, 0.0], [0.8, 0.1], [0.0, 0.5]])
    shares = np.array([[0.7, 0.1], [0.0, 0.3]])
    return edge_table(probability, C, shares, NAMES)


def test_likely_edges_are_ordered_by_strength_and_the_others_by_probability():
    found = table()
    assert list(found.columns) == ["source", "target", "lag", "weight", "probability", "strength"]
    assert found[["source", "target", "lag"]].to_numpy().tolist() == [
        ["a", "a", 1],
        ["b", "b", 1],
        ["a", "b", 0],
        ["a", "b", 1],
        ["b", "a", 0],
        ["b", "a", 1],
    ]
    assert found.strength.tolist() == [0.7, 0.3, 0.1, 0.1, 0.0, 0.0]
    assert found.weight.tolist() == [0.8, 0.5, 0.2, 0.1, 0.0, 0.0]


def test_a_pair_stands_where_its_highest_edge_stands():
    places = pair_ranking(table(), NAMES)
    assert places[0, 0] > places[1, 1] > places[0, 1] > places[1, 0] >= 0
    turned = pair_ranking(table(), ("b", "a"))
    np.testing.assert_array_equal(turned, places[::-1, ::-1])


def test_pairs_that_nothing_tells_apart_share_a_place_and_a_reversed_link_stands_above_none():
    probability = np.zeros((3, 3))
    probability[0, 1] = 1.0
    shares = np.zeros((3, 3))
    shares[0, 1] = 0.4
    places = pair_ranking(edge_table(probability, shares, shares, ("a", "b", "c")), ("a", "b", "c"))
    assert places.tolist() == [[0, 2, 0], [1, 0, 0], [0, 0, 0]]


def test_a_wrong_table_or_wrong_names_are_refused():
    with pytest.raises(ParameterError, match=r"table.*'strength'.*edge_probabilities_"):
        pair_ranking(table().drop(columns="strength"), NAMES)
    with pytest.raises(ParameterError, match=r"variables.*'b'"):
        pair_ranking(table(), ("a", "c"))


def test_the_estimator_orders_its_table_so_and_warns_of_slow_levels():
    fed = simulate(d=4, n_samples=800, n_sites=2, random_state=3)
    model = OneShotDBN(noise_variance="free").fit(fed.sites)
    assert not [text for text in model.warnings_ if "unit root" in text]
    shares = model.edge_probabilities_.drop_duplicates(["source", "target"]).groupby("target").strength.sum()
    assert ((shares >= -1e-9) & (shares <= 1)).all(), "shares of a target add up to its R squared"
    slow = {name: [frame.cumsum() for frame in frames] for name, frames in fed.sites.items()}
    with pytest.warns(ResidualsWarning):
        slow_model = OneShotDBN(noise_variance="free").fit(slow)
    said = [text for text in slow_model.warnings_ if "unit root" in text]
    assert len(said) == 1
