"""Simulated federations: what their truth says, variables of other kinds."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import feddbn
from feddbn.analysis.truth import read_truth, write_truth
from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN
from feddbn.sim.simulation import simulate


def test_the_contract_example_gives_frames_and_one_true_network():
    fed = simulate(
        d=10,
        n_lags=1,
        n_sites=10,
        n_samples=512,
        mean_degree=4,
        lag_degree=1,
        w_range=(0.3, 0.5),
        decay=1.5,
        heterogeneity=0.0,
        noise="gaussian",
        noise_scale=1.0,
        random_state=0,
    )
    assert list(fed.sites) == [f"site-{k}" for k in range(10)]
    assert sum(len(frame) - 1 for frames in fed.sites.values() for frame in frames) == 512
    assert list(fed.sites["site-3"][0].columns) == [f"x{i}" for i in range(10)]
    assert isinstance(fed.truth, DBN)
    assert all(truth is fed.truth for truth in fed.truths.values())
    assert fed.is_homogeneous
    assert set(fed.lag_damping.values()) == {1.0}
    assert fed.parameters["mean_degree"] == 4
    assert fed.parameters["random_state"] == 0


@pytest.mark.parametrize("arguments", [{"heterogeneity": 0.2}, {"heterogeneity": "independent"}])
def test_a_heterogeneous_federation_has_a_truth_per_site_and_none_for_all(arguments):
    fed = simulate(n_sites=4, **arguments)
    assert list(fed.truths) == list(fed.sites)
    assert not fed.is_homogeneous
    with pytest.raises(ParameterError) as caught:
        _ = fed.truth
    assert str(caught.value) == (
        "the sites of this federation follow different networks, so there is no single truth; "
        "use .truths, one network per site."
    )


ALL = ["continuous", "binary", "count", "positive", "ordinal:4", "categorical:3"]


@pytest.fixture(scope="module")
def fed():
    return feddbn.simulate(
        d=6, n_sites=3, n_samples=1500, kinds=ALL, mean_degree=3, random_state=4, burn_in=50
    )


def stretches(fed) -> list[pd.DataFrame]:
    return [frame for frames in fed.sites.values() for frame in frames]


@pytest.mark.slow
def test_rows_are_drawn_from_the_truth(fed):
    z = fed.truth.quantile_residuals(stretches(fed), 0)
    assert len(z) == 1500
    assert (np.abs(z.mean(axis=0)) < 4 / np.sqrt(1500)).all()
    np.testing.assert_allclose(z.var(axis=0), 1.0, atol=0.12)
    assert np.abs((z[1:] * z[:-1]).mean(axis=0)).max() < 4 / np.sqrt(1500)


def test_values_and_levels_are_where_they_should_be(fed):
    rows = pd.concat(stretches(fed))
    for name, kind in zip(fed.truth.variables, fed.truth.kinds, strict=True):
        assert len(kind.misfits(rows[name].to_numpy())) == 0
    assert 2 < rows["x2"].mean() < 4.5
    assert abs(rows["x0"].mean()) < 0.5
    shares = rows["x5"].value_counts(normalize=True)
    assert len(shares) == 3
    assert shares.min() > 0.1
    assert fed.truth.edges()["standardised"].abs().min() > 0.05


@pytest.mark.slow
def test_the_graph_is_that_of_the_linear_system_and_seeds_repeat():
    options = {"d": 5, "n_sites": 2, "n_samples": 40, "random_state": 7, "burn_in": 5}
    linear = feddbn.simulate(**options)
    one, other = (feddbn.simulate(**options, kinds=["binary", "count"]) for _ in range(2))
    assert np.array_equal(one.truth.is_edge, linear.truth.is_edge)
    pd.testing.assert_frame_equal(one.sites["site-1"][0], other.sites["site-1"][0])
    assert one.truth.equals(other.truth)
    plain = feddbn.simulate(**options, kinds={"x0": "continuous"})
    np.testing.assert_allclose(plain.truth.W, linear.truth.W)
    np.testing.assert_allclose(plain.truth.A, linear.truth.A)


@pytest.mark.slow
def test_many_networks_stay_within_bounds():
    """Strong and dense: no rate explodes, and what was damped is said."""
    for w_range, most in (((0.3, 0.5), 200), ((0.8, 1.0), 1e6)):
        fed = feddbn.simulate(
            d=5,
            n_sites=1,
            n_samples=100,
            kinds=["count", "positive"],
            w_range=w_range,
            random_state=0,
            burn_in=20,
        )
        rows = fed.sites["site-0"][0]
        assert np.isfinite(rows).all().all()
        assert rows.to_numpy().max() < most
        assert 0 < fed.lag_damping["site-0"] <= 1


def test_score_by_kind_of_networks(fed):
    table = feddbn.score_by_kind(fed.truth, fed.truth)
    assert (table["f1"] == 1).all()
    assert set(table.index.get_level_values("kind")) == {
        "continuous",
        "binary",
        "count",
        "positive",
        "ordinal",
        "categorical",
    }
    blind = feddbn.DBN(np.zeros((6, 6)), np.zeros((1, 6, 6)))
    assert feddbn.score_by_kind(fed.truth, blind)["n_true"].sum() == fed.truth.is_edge.sum()


def test_the_linear_case_is_what_it_always_was():
    fed = feddbn.simulate(d=3, n_sites=2, n_samples=20, random_state=7)
    last = [-1.5155527544892624, -1.2123037046896332, -0.401717273606572]
    np.testing.assert_allclose(fed.sites["site-1"][0].to_numpy()[-1], last, rtol=1e-13)
    weights = [-0.3435064918150852, 0.30990237218568334, 0.42536061941846903]
    np.testing.assert_array_equal(fed.truth.W[fed.truth.W != 0], weights)


@pytest.mark.parametrize("different", [False, True])
def test_a_stored_truth_reads_back(tmp_path, different):
    fed = feddbn.simulate(
        d=4,
        n_sites=2,
        n_samples=60,
        effects="gp",
        heterogeneity="independent" if different else 0.0,
    )
    path = write_truth(fed, tmp_path / "truth.json")
    read = read_truth(path)
    assert (read["site-1"] if different else read).equals(fed.truths["site-1"])
    assert json.loads(path.read_text())["simulated"]["effects"] == "gp"


@pytest.mark.slow
def test_a_drawn_network_with_curves_goes_on_by_its_functions():
    data = feddbn.simulate(d=4, n_sites=1, n_samples=3000, effects="gp", random_state=2)
    truth, rows = data.truth, next(iter(data.sites.values()))[0]
    assert not truth.is_linear
    again = truth.simulate(3000, random_state=0)
    u = truth.residuals(again)
    np.testing.assert_allclose(u.var(axis=0), truth.noise_variances, rtol=0.12)
    of = stats.norm.logpdf(truth.residuals(rows), scale=np.sqrt(truth.noise_variances)).sum()
    assert truth.log_likelihood(rows) == pytest.approx(of, rel=1e-12)
    # Where it goes on its own is where the data are.
    np.testing.assert_allclose(again.std(), rows.std(), rtol=0.15)
    edges = truth.edges()
    row = edges[(edges["shape"] == "curved") & (edges["lag"] == 1)].iloc[0]
    effect, history = truth.effect(row["source"], row["target"], lag=1), rows.iloc[-1:].copy()
    means = []
    for value in (-0.5, 1.0):
        history[row["source"]] = value
        others = {name: 0.0 for name in truth.variables if name != row["target"]}
        means.append(truth.do(others, history, 1, random_state=0).mean[row["target"]].iloc[0])
    assert means[1] - means[0] == pytest.approx(float(np.diff(effect.at([-0.5, 1.0])[:, 0])[0]), abs=1e-9)
