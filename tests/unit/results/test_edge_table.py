"""`results.edge_table`: the order of edges, the ranking of pairs, presence and direction of links as two numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from feddbn.core.orders.average import Hyper, OrderPosterior

from feddbn import FDBNL, OneShotDBN, Prepare, simulate
from feddbn.core.orders.learn import EdgeOrientation, with_directions
from feddbn.errors import ResidualsWarning
from feddbn.results.edge_table import edge_table, links_of, pair_ranking
from feddbn.results.result import Result

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


def test_the_estimator_orders_its_table_so_and_warns_of_slow_levels():
    fed = simulate(d=4, n_samples=800, n_sites=2, random_state=3)
    model = OneShotDBN(noise_variance="free").fit(fed.sites)
    assert not model.findings_.of("slow-levels")
    shares = model.edge_probabilities_.drop_duplicates(["source", "target"]).groupby("target").strength.sum()
    assert ((shares >= -1e-9) & (shares <= 1)).all(), "shares of a target add up to its R squared"
    slow = {name: [frame.cumsum() for frame in frames] for name, frames in fed.sites.items()}
    with pytest.warns(ResidualsWarning):
        slow_model = OneShotDBN(noise_variance="free").fit(slow)
    assert len(slow_model.findings_.of("slow-levels")) == 1


# Equivalence classes that can be counted by hand.


def chain(n=3000, seed=0, noise=np.random.Generator.normal):
    """a -> b -> c within a time step, unequal noise: second moments leave both directions open."""
    rng = np.random.default_rng(seed)
    a = 3 * noise(rng, size=n)
    b = 0.5 * a + noise(rng, size=n)
    c = 0.8 * b + 2 * noise(rng, size=n)
    return pd.DataFrame({"a": a, "b": b, "c": c})


def row(table, source, target):
    (found,) = table[(table["source"] == source) & (table["target"] == target) & (table["lag"] == 0)].to_dict(
        "records"
    )
    return found


@pytest.fixture(scope="module")
def model():
    return OneShotDBN(noise_variance="free").fit(chain())


def test_a_certain_link_has_presence_one_though_its_direction_is_open(model):
    table = model.edge_probabilities_
    for pair in (("a", "b"), ("b", "c")):
        one, other = row(table, *pair), row(table, *pair[::-1])
        assert one["presence"] == other["presence"] == pytest.approx(1.0, abs=1e-3)
        assert one["direction"] + other["direction"] == pytest.approx(1.0)
        assert 0.1 < one["direction"] < 0.9
        assert not one["oriented"]
        assert not other["oriented"]
    assert row(table, "a", "c")["presence"] < 0.05


def test_probability_is_presence_times_direction(model):
    table = model.edge_probabilities_
    known = table[table["direction"].notna()]
    np.testing.assert_allclose(known["probability"], known["presence"] * known["direction"], atol=1e-12)
    lagged = table[table["lag"] > 0]
    assert (lagged["presence"] == lagged["probability"]).all()
    assert (lagged["direction"] == 1).all()
    assert lagged["oriented"].all()


def test_the_network_knows_what_is_open(model):
    assert model.dbn_.open_edges == tuple(
        (e.source, e.target) for e in model.orientation_.itertuples() if not e.oriented
    )
    assert len(model.dbn_.open_edges) == 2
    stored = Result.from_dict(Result.from_estimator(model).to_dict())
    assert stored.dbn.open_edges == model.dbn_.open_edges
    edge = next(e for e in stored.edges if e["lag"] == 0)
    assert edge["oriented"] is False
    assert edge["presence"] == pytest.approx(1.0, abs=1e-3)
    assert edge["direction"] < 0.9


def test_given_one_order_the_direction_comes_from_the_reversal():
    model = OneShotDBN(noise_variance="free").fit(chain())
    found = row(model.edge_probabilities_, "a", "b")
    assert found["presence"] == pytest.approx(1.0)
    assert found["direction"] == pytest.approx(0.5)
    assert not found["oriented"]
    assert np.isnan(row(model.edge_probabilities_, "a", "c")["direction"])


def test_noise_that_is_not_gaussian_settles_directions_and_says_so():
    model = OneShotDBN(noise_variance="free").fit(chain(noise=np.random.Generator.laplace))
    assert model.dbn_.open_edges == ()
    found = row(model.edge_probabilities_, "a", "b")
    assert found["oriented"]
    assert found["direction"] > 0.99
    assert found["presence"] == pytest.approx(1.0, abs=1e-3)


def posterior(probability, n_orders):
    hyper = Hyper(0.1, 0.1, 1.0, 1.0)
    return OrderPosterior(np.asarray(probability), hyper, n_orders)


def test_links_by_hand():
    edge = EdgeOrientation(0, 1, 2 * np.log(4))
    over = links_of(posterior([[0.0, 0.6], [0.2, 0.0]], 10), [edge])
    assert over.presence[0, 1] == over.presence[1, 0] == pytest.approx(0.8)
    assert over.direction[0, 1] == pytest.approx(0.75)
    given = links_of(posterior([[0.0, 0.6], [0.0, 0.0]], 1), [edge])
    assert given.presence[1, 0] == pytest.approx(0.6)
    assert given.direction[0, 1] == pytest.approx(0.8)
    shaped = [EdgeOrientation(0, 1, 2 * np.log(4), by_shape=True)]
    decided = with_directions(posterior([[0.0, 0.6], [0.2, 0.0]], 10), shaped)
    np.testing.assert_allclose(decided.probability, [[0.0, 0.64], [0.16, 0.0]])
    assert links_of(decided, shaped).direction[1, 0] == pytest.approx(0.2)
    sure = links_of(posterior([[0.0, 0.6], [0.0, 0.0]], 1), [EdgeOrientation(0, 1, np.inf)])
    assert sure.direction[0, 1] == 1.0
    assert sure.oriented[1, 0]
    none = links_of(posterior([[0.0, 0.0], [0.0, 0.0]], 5), [])
    assert np.isnan(none.direction).all()
    assert not none.oriented.any()


def test_scaled_variables_leave_the_equivalence_class_open():
    data = chain() * [1.0, 30.0, 0.01]
    model = FDBNL().fit(data)
    assert model.scale_ == "federated"
    links = {frozenset(pair) for pair in model.dbn_.open_edges}
    assert links == {frozenset("ab"), frozenset("bc")}
    known = FDBNL(forbidden_edges=[("b", "a", 0)]).fit(data)
    # The forbidden reversal settles a -> b, and without a collider at b also b -> c.
    assert known.dbn_.open_edges == ()
    assert FDBNL(prepare=Prepare(scale="none")).fit(chain()).dbn_.open_edges == ()


def test_an_edge_has_one_standardised_weight():
    data = chain() * [1.0, 30.0, 0.01]
    result = Result.from_estimator(OneShotDBN(noise_variance="free").fit(data))
    sd = data.iloc[1:].std(ddof=0)
    assert [edge["standardised"] for edge in result.edges] == result.dbn.edges()["standardised"].tolist()
    for edge in result.edges:
        expected = edge["weight"] * sd[edge["source"]] / sd[edge["target"]]
        assert edge["standardised"] == pytest.approx(expected, rel=1e-3)
    assert result.diagnostics["standard_deviations"] == pytest.approx(sd.tolist())
