"""Effects on natural scales, coefficients and stored forms, against closed forms and statsmodels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from feddbn.core.kinds import Kind
from feddbn.errors import FileError
from feddbn.model.dbn import DBN
from support.mixed_networks import effect, mixed_network
from support.networks import make_node

Z = 1.959963984540054


def logistic(x):
    return 1 / (1 + np.exp(-x))


@pytest.fixture(scope="module")
def dbn() -> DBN:
    return mixed_network(covariance=True)


@pytest.fixture(scope="module")
def rows(dbn) -> pd.DataFrame:
    return dbn.simulate(200, 2, burn_in=50)


def test_a_probability_against_its_cause(dbn, rows):
    found = dbn.effect("temp", "alarm", 1, rows)
    visits = np.log1p(rows["visits"].to_numpy()[:-1])
    p = logistic(-0.8 + 0.9 * 1.3 - 0.4 * visits)
    assert found.at([1.3])[0, 0] == pytest.approx(p.mean(), rel=1e-10)
    # The delta method by hand.
    slope = p * (1 - p)
    gradient = np.array([slope.mean(), 1.3 * slope.mean(), (visits * slope).mean()])
    error = np.sqrt(gradient @ dbn.nodes[3].covariance @ gradient)
    lower, upper = found.band([1.3])
    assert lower[0, 0] == pytest.approx(p.mean() - Z * error, rel=1e-6)
    assert upper[0, 0] == pytest.approx(p.mean() + Z * error, rel=1e-6)


def test_a_rate_from_level_to_level(dbn, rows):
    found = dbn.effect("alarm", "visits", 1, rows)
    base = np.exp(0.5 + 0.3 * rows["temp"].to_numpy()[:-1])
    middle, lower, upper = found.change(0, "1")
    assert middle[0] == pytest.approx(((np.exp(0.5) - 1) * base).mean(), rel=1e-10)
    temp = rows["temp"].to_numpy()[:-1]
    gradient = np.array([middle[0], ((np.exp(0.5) - 1) * base * temp).mean(), (np.exp(0.5) * base).mean()])
    error = np.sqrt(gradient @ dbn.nodes[2].covariance @ gradient)
    assert upper[0] - lower[0] == pytest.approx(2 * Z * error, rel=1e-6)


def test_changes_of_linear_targets_are_coefficients(dbn, rows):
    assert dbn.effect("temp", "temp", 1, rows).change(0.0, 1.0)[0] == pytest.approx(0.5)
    ward = dbn.effect("ward", "temp", 1, rows)
    assert [ward.change("north", level)[0][0] for level in ("south", "west")] == pytest.approx([0.6, -0.7])
    pain = dbn.effect("pain", "ward", 0, rows)
    for one, other in (("no", "some"), ("some", "bad")):
        assert abs(pain.change(one, other)[0].sum()) < 1e-12


def test_as_statsmodels_says():
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(0)
    flag = rng.integers(0, 2, size=400) * 1.0
    x = rng.normal(size=400)
    y = np.concatenate([[0.0], (rng.random(399) < logistic(-0.3 + 0.8 * flag[:-1] + 0.5 * x[:-1])) * 1.0])
    design = sm.add_constant(np.stack([flag, x], axis=1)[:-1])
    fit = sm.Logit(y[1:], design).fit(disp=0)
    b, V = fit.params, fit.cov_params()
    nodes = [
        make_node(Kind("binary"), (), 0.0, ()),
        make_node(Kind(), (), 0.0, (), 1.0),
        make_node(Kind("binary"), ((0, 1), (1, 1)), b[0], (effect((b[1],)), effect((b[2],))), 1.0, V),
    ]
    dbn = DBN.from_nodes(nodes, ["flag", "x", "y"])
    margins = fit.get_margeff(dummy=True)
    rows = pd.DataFrame({"flag": flag, "x": x, "y": y})
    middle, lower, upper = dbn.effect("flag", "y", 1, rows).change(0, 1)
    assert middle[0] == pytest.approx(margins.margeff[0], rel=1e-6)
    assert (upper[0] - lower[0]) / (2 * Z) == pytest.approx(margins.margeff_se[0], rel=1e-5)
    table = dbn.coefficients().query("target == 'y'")
    np.testing.assert_allclose(table["error"], fit.bse[1:], rtol=1e-9)
    np.testing.assert_allclose(table[["lower", "upper"]], fit.conf_int()[1:], rtol=1e-6)
    np.testing.assert_allclose(table["ratio"], np.exp(b[1:]))
    law = dbn.nodes[2].law(design[:, 1:])
    assert law.log_density(y[1:]).sum() == pytest.approx(fit.llf)


def test_tables_and_words(dbn):
    found = dbn.effect("ward", "temp", 1)
    table = found.to_frame()
    assert table["value"].tolist() == ["north", "south", "west"]
    assert set(table["outcome"]) == {"mean"}
    assert table["effect"].diff().iloc[1] == pytest.approx(0.6)
    counts = dbn.effect("visits", "alarm", 1).to_frame(21)
    assert counts["value"].map(float.is_integer).all()
    assert (counts["upper"] > counts["lower"]).all()
    scale = dbn.coefficients().set_index(["source", "target"])["scale"]
    assert scale["temp", "visits"] == "log rate"
    edges = dbn.edges().set_index(["source", "target"])
    assert edges.loc[("temp", "alarm"), "ratio"] == pytest.approx(np.exp(0.9))
    assert np.isnan(edges.loc[("ward", "temp"), "ratio"])
    assert np.isnan(edges.loc[("alarm", "temp"), "ratio"])
    assert edges.loc[("visits", "alarm"), "standardised"] < 0 < edges.loc[("ward", "ward"), "standardised"]
    assert (edges["standardised"].abs() < 1).all()
    assert "shape=diamond" in dbn.to_dot()


def test_a_higher_slope_means_a_higher_level():
    """The sign of an ordinal effect: what its words say."""
    node = make_node(Kind("ordinal", ("a", "b", "c")), ((0, 1),), (0.0, 1.0), (effect((0.7,)),))
    low, high = (node.law(np.array([[x]])).probabilities[0] for x in (0.0, 1.0))
    odds = [(1 - p[0]) / p[0] for p in (low, high)]
    assert odds[1] / odds[0] == pytest.approx(np.exp(0.7))


def test_without_a_covariance_there_are_no_bounds():
    bare = mixed_network()
    assert np.isnan(bare.effect("temp", "alarm", 1).band([0.0])).all()
    assert bare.coefficients()["error"].isna().all()


def test_damaged_files_are_named(dbn):
    good = dbn.to_dict()

    def damaged(change) -> dict:
        copy = DBN.from_dict(good).to_dict()
        change(copy["nodes"])
        return copy

    for change in (
        lambda c: c.pop(),
        lambda c: c[0]["terms"][0].update(sources=[["nobody", 1]]),
        lambda c: c[0]["terms"][0].update(coefficients=[[9.0]]),
        lambda c: c[0].pop("levels"),
    ):
        with pytest.raises(FileError, match="damaged"):
            DBN.from_dict(damaged(change))
    with pytest.raises(FileError, match="nodes"):
        DBN.from_dict({**good, "nodes": "x"})
