"""Variables that look computed from others are named; strong effects are not taken for arithmetic."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.core.statistics.moments import Moments
from feddbn.errors import DependentColumnsWarning
from feddbn.results.identities import near_identities
from feddbn.words import say
from support.saying import only

pytestmark = [
    pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning"),
]


def pressures(seed: int = 0, n: int = 3000, noise: float = 3.0, level: float = 1.0) -> pd.DataFrame:
    """Slow pressures of a patient; map is a mean of the other two with an error of its own, pulse drives one of them."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(n, 3)) * [10.0, 6.0, 8.0]
    x = np.zeros((n, 3))
    for t in range(n):
        x[t] = 0.6 * x[t - 1] + u[t] if t else u[t]
        x[t, 1] += 0.3 * x[t, 0]
    sbp, dbp = level * 120 + x[:, 0], level * 65 + x[:, 1]
    mean = (sbp + 2 * dbp) / 3 + noise * rng.normal(size=n)
    return pd.DataFrame({"sbp": sbp, "dbp": dbp, "map": mean, "pulse": level * 80 + x[:, 2]})


def lagged(x: np.ndarray) -> Moments:
    return Moments.of_rows(np.hstack([x[1:], x[:-1]]))


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_a_weighted_mean_is_named_with_the_weights_of_least_squares(level):
    frame = pressures(level=level)
    (found,) = near_identities(lagged(frame.to_numpy()), 4)
    assert (found.column, found.others) == (2, (0, 1))
    A = frame[["sbp", "dbp"]].iloc[1:].assign(one=1.0).to_numpy()
    y = frame["map"].to_numpy()[1:]
    weights, rest = np.linalg.lstsq(A, y, rcond=None)[:2]
    assert found.weights == pytest.approx(weights[:2], rel=1e-9)
    assert found.explained == pytest.approx(1 - rest[0] / ((y - y.mean()) ** 2).sum(), rel=1e-9)


@pytest.mark.parametrize(
    ("made", "members"),
    [
        (lambda x, e: x[:, 0] + x[:, 1] + 0.3 * e, {0, 1, 3}),
        (lambda x, e: x[:, 0] - x[:, 2] + 0.3 * e, {0, 2, 3}),
        (lambda x, e: x[:, 1] + 0.1 * e, {1, 3}),
        (lambda x, e: -2.54 * x[:, 1] + 0.002 * e, {1, 3}),
        (lambda x, e: x.mean(axis=1) + 0.1 * e, {0, 1, 2, 3}),
    ],
    ids=["sum", "difference", "copy", "multiple", "mean of three"],
)
def test_sums_differences_copies_and_means_are_named(made, members):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2000, 3))
    x[1:] += 0.5 * x[:-1]
    (found,) = near_identities(lagged(np.column_stack([x, made(x, rng.normal(size=2000))])), 4)
    assert set(found.members) == members


@pytest.mark.parametrize(
    "made",
    [
        lambda x, e, before: 0.9 * x[:, 0] + 0.9 * x[:, 1] + 0.3 * e,
        lambda x, e, before: x[:, 0] + x[:, 1] + 0.8 * before[:, 2] + 0.3 * e,
        lambda x, e, before: x[:, 0] + 0.3 * e,
    ],
    ids=["other weights", "something of its own before", "a strong effect of weight one"],
)
def test_strong_effects_are_not(made):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2000, 3))
    y = made(x, rng.normal(size=2000), np.vstack([x[:1], x[:-1]]))
    assert near_identities(lagged(np.column_stack([x, y])), 4) == []


@pytest.mark.slow
def test_hardly_any_clean_network_with_strong_weights_has_one():
    n_found = 0
    for seed in range(600, 640):
        scales = np.random.default_rng(seed).uniform(0.3, 2, 8).tolist()
        data = feddbn.simulate(
            d=8,
            n_sites=1,
            n_samples=1000,
            mean_degree=2,
            w_range=(0.3, 2.0),
            noise_scale=scales,
            random_state=seed,
        )
        n_found += bool(near_identities(lagged(np.asarray(data.sites["site-0"][0])), 8))
    assert n_found <= 1


def test_few_rows_dependent_columns_and_inputs_are_no_identity():
    x = pressures().to_numpy()
    assert near_identities(lagged(x[:40]), 4) == []
    assert near_identities(lagged(x), 4, inputs=(2,)) == []
    twice = near_identities(lagged(np.column_stack([x, x[:, 0] + x[:, 3]])), 5)
    assert [one.column for one in twice] == [2]


def test_links_among_members_lose_their_direction_and_keep_their_probability():
    frame = pressures()
    model = feddbn.OneShotDBN(features="linear").fit({"a": frame[:1500], "b": frame[1500:]})
    found = only(model.findings_, "near-identity")
    assert (found.about, found.level) == (("map", "sbp", "dbp"), "warning")
    assert set(found.cure["prepare.definitions"]) == {"map"}
    assert "map" in say(found)
    table = model.edge_probabilities_.query("lag == 0")
    inside = table[table["source"].isin(found.about) & table["target"].isin(found.about)]
    assert inside["probability"].max() <= 0.5
    assert inside["presence"].max() > 0.99
    both = inside.merge(inside, left_on=["source", "target"], right_on=["target", "source"])
    assert both["probability_x"].tolist() == both["probability_y"].tolist()
    assert not inside["oriented"].any()
    edges = {(s, t) for s, t in zip(model.orientation_["source"], model.orientation_["target"], strict=True)}
    assert {edge for edge in edges if set(edge) <= set(found.about)} <= set(model.dbn_.open_edges)


def test_a_direction_that_was_given_stays():
    frame, forbidden = pressures(), [("map", "sbp", 0), ("map", "dbp", 0)]
    model = feddbn.OneShotDBN(features="linear", forbidden_edges=forbidden).fit({"a": frame})
    assert "near-identity" in model.findings_.codes
    table = model.edge_probabilities_.query("lag == 0 and target == 'map' and source in ['sbp', 'dbp']")
    assert table["probability"].min() > 0.99
    assert not {("sbp", "map"), ("dbp", "map")} & set(model.dbn_.open_edges)


@pytest.mark.parametrize("method", [feddbn.FDBNL, feddbn.Dynotears, feddbn.Average])
def test_other_methods_name_it_and_leave_the_same_edges_open(method):
    frame = pressures()
    with pytest.warns(DependentColumnsWarning):
        model = method().fit({"a": frame[:1500], "b": frame[1500:]})
    members = set(only(model.findings_, "near-identity").about)
    edges = {(e.source, e.target) for e in model.dbn_.edges().itertuples() if e.lag == 0}
    assert {edge for edge in edges if set(edge) <= members} <= set(model.dbn_.open_edges)
    clean = method().fit({"a": frame.drop(columns="map")})
    assert "near-identity" not in clean.findings_.codes


def test_a_check_names_it():
    assert "near-identity" in feddbn.check({"a": pressures()}).codes
