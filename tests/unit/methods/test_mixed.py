"""`MixedDBN`: networks of variables of any kind are found, fitted and told."""

import warnings

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn import MixedDBN, OneShotDBN, Prepare
from feddbn.core.penalised.path import Status
from feddbn.data import read_sites
from feddbn.errors import DataError
from feddbn.federation.protocol.site import Site
from feddbn.runtime.simulated.in_process import InProcessFederation
from support.saying import only

pytestmark = pytest.mark.promise

NAMES = ("x", "b", "c", "k", "o")
KINDS = {"b": "binary", "c": "count", "k": ["u", "v", "w"], "o": {"ordinal": ["low", "mid", "high"]}}


def recording(rng, n=400):
    """x drives itself and b; b the count; the count's past drives k; k drives o."""
    x = np.zeros((n, 5))
    for t in range(1, n):
        x[t, 0] = 0.6 * x[t - 1, 0] + rng.normal()
        x[t, 1] = rng.random() < 1 / (1 + np.exp(0.3 - 1.3 * x[t, 0]))
        x[t, 2] = rng.poisson(np.exp(0.2 + 0.9 * x[t, 1]))
        weights = np.exp([0.0, -1.0 + 0.9 * np.log1p(x[t - 1, 2]), 1.0 - 1.0 * np.log1p(x[t - 1, 2])])
        x[t, 3] = rng.choice(3, p=weights / weights.sum())
        x[t, 4] = np.digitize(1.6 * (x[t, 3] == 1) - 1.2 * (x[t, 3] == 2) + rng.logistic(), [-0.8, 0.9])
    return x[1:]


def sites(seed=1, n_sites=4, n=400):
    rng = np.random.default_rng(seed)
    return {f"s{i}": pd.DataFrame(recording(rng, n), columns=list(NAMES)) for i in range(n_sites)}


TRUE = {("x", "x", 1), ("x", "b", 0), ("b", "c", 0), ("c", "k", 1), ("k", "o", 0)}


def as_numbers(kinds=KINDS):
    return {**kinds, "k": {"categorical": 3}, "o": {"ordinal": 3}} if kinds is KINDS else kinds


def edges_of(fit):
    table = fit.edge_probabilities_
    return {(row.source, row.target, row.lag) for row in table.itertuples() if abs(row.weight) > 0}


@pytest.fixture(scope="module")
def fit():
    return MixedDBN(kinds=as_numbers()).fit(sites())


def test_edges_of_all_kinds_are_found_and_directed(fit):
    assert edges_of(fit) == TRUE
    assert fit.status_ is Status.EXACT
    assert fit.n_rounds_ <= 10
    assert fit.n_samples_ == 4 * 398
    assert not fit.findings_
    assert fit.dbn_.open_edges == ()


def test_coefficients_are_those_that_made_the_rows(fit):
    x, b, c, k, o = fit.nodes_
    assert x.causes == ((0, 1),)
    assert x.coefficients[0][0, 0] == pytest.approx(0.6, abs=0.06)
    assert x.dispersion == pytest.approx(1.0, abs=0.1)
    assert b.coefficients[0][0, 0] == pytest.approx(1.3, abs=0.25)
    assert c.coefficients[0][0, 0] == pytest.approx(0.9, abs=0.12)
    assert c.dispersion == 0
    np.testing.assert_allclose(k.coefficients[0], [[0.9, -1.0]], atol=0.3)
    away = (o.coefficients[0][:, 0] - [1.6, -1.2]) / np.sqrt(np.diag(o.covariance)[2:])
    assert np.abs(away).max() < 3
    # A weight is the one coefficient, or the length of several.
    assert fit.W_[0, 1] == b.coefficients[0][0, 0]
    assert fit.W_[3, 4] == pytest.approx(np.linalg.norm(o.coefficients[0]))


def test_the_network_does_not_depend_on_the_split(fit):
    pieces = {f"t{i}": [frame.iloc[:150], frame.iloc[150:]] for i, frame in enumerate(sites().values())}
    one = MixedDBN(kinds=as_numbers()).fit(pieces)
    other = MixedDBN(kinds=as_numbers()).fit({"all": [part for parts in pieces.values() for part in parts]})
    np.testing.assert_allclose(one.W_, other.W_, atol=1e-8)
    np.testing.assert_allclose(one.A_, other.A_, atol=1e-8)


def test_a_level_that_some_sites_never_saw_and_one_that_is_rare():
    data = sites()
    for name in ("s0", "s1"):
        frame = data[name]
        data[name] = frame[frame["k"] != 2].reset_index(drop=True)
    data["s3"].loc[5, "k"] = 3.0
    fit = MixedDBN(kinds={**as_numbers(), "k": {"categorical": 4}}).fit(data)
    assert fit.kinds_["k"].levels in (("0, 3", "1", "2"), ("0", "1, 3", "2"))
    assert only(fit.findings_, "rare-levels").about == ("k",)
    assert fit.dbn_.kinds[3].levels == fit.kinds_["k"].levels
    assert ("k", "o", 0) in edges_of(fit) or ("o", "k", 0) in edges_of(fit)


def test_continuous_variables_alone_are_least_squares_and_no_step_is_asked():
    rng = np.random.default_rng(1)
    x = np.zeros((400, 3))
    for t in range(1, 400):
        x[t] = rng.normal(size=3)
        x[t, 0] += 0.7 * x[t - 1, 0]
        x[t, 1] += 0.8 * x[t, 0]
    asked = []
    fit = MixedDBN().fit({"a": x[:200], "b": x[200:]}, observer=lambda task, answer: asked.append(task.name))
    assert asked == ["gram.kinds"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = OneShotDBN(noise_variance="free", prepare=Prepare(center="none")).fit(
            {"a": x[:200], "b": x[200:]}
        )
    np.testing.assert_allclose(fit.A_[0][0, 0], other.A_[0][0, 0], rtol=1e-6)
    assert (fit.W_ != 0).sum() == 1


def test_a_variable_with_one_value_is_told_and_breaks_nothing():
    data = {name: frame.assign(b=0.0) for name, frame in sites().items()}
    fit = MixedDBN(kinds=as_numbers()).fit(data)
    assert only(fit.findings_, "one-value").about == ("b",)
    assert fit.nodes_[1].causes == ()
    assert 1 / (1 + np.exp(-fit.nodes_[1].intercept[0])) < 1e-3


def test_wide_counts_are_negative_binomial_and_it_is_said():
    rng = np.random.default_rng(2)
    x = rng.normal(size=600)
    wide = rng.negative_binomial(1.5, 1.5 / (1.5 + np.exp(1 + 0.6 * x)))
    fit = MixedDBN(0, kinds={"c": "count"}).fit(
        {
            "a": pd.DataFrame({"x": x[:300], "c": wide[:300]}),
            "b": pd.DataFrame({"x": x[300:], "c": wide[300:]}),
        }
    )
    assert fit.nodes_[1].dispersion == pytest.approx(1 / 1.5, abs=0.15)
    assert "overdispersed" in fit.findings_.codes


def test_likelihoods_decide_what_gaussian_scores_leave_open():
    rng = np.random.default_rng(5)
    x = rng.normal(size=1500)
    c = rng.poisson(np.exp(0.2 + 0.8 * x))
    data = {"a": pd.DataFrame({"c": c.astype(float), "x": x})}
    decided = MixedDBN(0, kinds={"c": "count"}).fit(data)
    assert edges_of(decided) == {("x", "c", 0)}
    assert decided.orientation_["oriented"].all()
    row = decided.edge_probabilities_.iloc[0]
    assert row["probability"] > 0.95
    left = MixedDBN(0, kinds={"c": "count"}, review=False).fit(data)
    assert len(left.dbn_.open_edges) == 1


def test_values_that_cannot_be_are_refused_at_the_site():
    data = sites(n=30)
    data["s1"].loc[3, "c"] = 1.5
    with pytest.raises(DataError, match=r"has 1\.5 in column 'c'"):
        MixedDBN(kinds=as_numbers()).fit(data)
    held = InProcessFederation({name: Site(name, one) for name, one in read_sites(data).items()})
    with pytest.raises(DataError, match=r"variable.*'c'.*1\.5"):
        MixedDBN(kinds=as_numbers(), federation=held).fit(None)


def test_constraints_and_inputs_are_kept():
    fit = MixedDBN(
        kinds=as_numbers(), forbidden_edges=[("x", "b", 0)], required_edges=[("b", "o", 1)], exogenous=["x"]
    ).fit(sites(n=200))
    assert fit.W_[0, 1] == 0
    assert fit.A_[0][1, 4] != 0
    assert not fit.A_[0][1:, 0].any()


def test_levels_that_recordings_differ_in_are_no_edges_and_are_told():
    rng = np.random.default_rng(3)
    data = {}
    for i in range(6):
        level = 2.0 * rng.normal()
        x, y = rng.normal(size=(2, 150)) + level
        data[f"s{i}"] = pd.DataFrame({"x": x, "y": y, "b": (rng.random(150) < 0.5) * 1.0})
    fit = MixedDBN(kinds={"b": "binary"}).fit(data)
    assert edges_of(fit) == set()
    assert only(fit.findings_, "own-levels-of-kinds").values["evidence"] > 0
    fixed = {name: frame.assign(b=float(i % 2)) for i, (name, frame) in enumerate(data.items())}
    fit = MixedDBN(kinds={"b": "binary"}).fit(fixed)
    assert only(fit.findings_, "one-value-a-recording").about == ("b",)
    # Without such levels nothing is said.
    same = {name: frame - [frame["x"].mean(), frame["y"].mean(), 0.0] for name, frame in data.items()}
    assert MixedDBN(kinds={"b": "binary"}).fit(same).findings_ == []


@pytest.mark.slow
def test_networks_of_twelve_variables_of_three_kinds_are_recovered():
    found = []
    kinds = ["continuous", "binary", "count"]
    for seed in range(30, 33):
        made = feddbn.simulate(d=12, n_sites=4, n_samples=600, kinds=kinds, random_state=seed)
        fit = MixedDBN(kinds={f"x{j}": kinds[j % 3] for j in range(12)}).fit(made.sites)
        truth, edges = made.truth.is_edge, fit.dbn_.is_edge
        found.append(2 * (truth & edges).sum() / (truth.sum() + edges.sum()))
    assert np.mean(found) > 0.94
