"""Simulated federations with variables of other kinds: they are what their truth says, and stay within bounds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.errors import ParameterError
from feddbn.methods.truth import read_truth, write_truth
from feddbn.metrics import edge_scores, kind_scores

ALL = ["continuous", "binary", "count", "positive", "ordinal:4", "categorical:3"]


@pytest.fixture(scope="module")
def fed():
    return feddbn.simulate(
        d=6, n_sites=3, n_samples=1500, kinds=ALL, mean_degree=3, random_state=4, burn_in=50
    )


def stretches(fed) -> list[pd.DataFrame]:
    return [frame for frames in fed.sites.values() for frame in frames]


def test_rows_are_drawn_from_the_truth(fed):
    checks = fed.truth.residual_diagnostics(stretches(fed))
    assert (checks["n"] == 1500).all()
    assert (checks["mean"].abs() < 4 / np.sqrt(1500)).all()
    assert checks["variance_ratio"].between(0.88, 1.12).all()
    assert checks["autocorrelation"].abs().max() < 4 / np.sqrt(1500)
    table = fed.truth.calibration(stretches(fed), 5)
    assert (np.abs(table["seen"] - table["predicted"]) < 4 * table["error"] + 1e-9)[table["n"] > 30].all()


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


def test_sites_clusters_and_sizes():
    fed = feddbn.simulate(
        d=3,
        n_sites=4,
        site_sizes=[5, 9, 6, 7],
        n_recordings=2,
        n_clusters=2,
        kinds=["binary"],
        n_lags=2,
        burn_in=3,
    )
    assert [len(frame) for frame in fed.sites["site-1"]] == [7, 6]
    assert fed.clusters == {"site-0": 0, "site-1": 1, "site-2": 0, "site-3": 1}
    assert fed.truths["site-0"] is fed.truths["site-2"]
    assert not fed.is_homogeneous
    static = feddbn.simulate(d=3, n_lags=0, n_sites=1, n_samples=8, kinds=["ordinal:3"])
    assert static.sites["site-0"][0].shape == (8, 3)


def test_truths_are_files(fed, tmp_path):
    stored = read_truth(write_truth(fed, tmp_path / "truth.json"))
    assert stored.equals(feddbn.DBN.from_dict(fed.truth.to_dict()))
    assert stored.kinds == fed.truth.kinds
    assert fed.truth.forecast(fed.sites["site-0"][0], 1, random_state=0).mean.shape == (1, 11)


def test_what_cannot_be_combined_is_refused():
    for options, words in (
        ({"effects": "gp"}, "effects='gp'"),
        ({"interactions": 1}, "interactions=1"),
        ({"mess": "spikes"}, "mess="),
        ({"noise": "laplace"}, "noise='laplace'"),
    ):
        with pytest.raises(ParameterError, match=words):
            feddbn.simulate(d=3, kinds=["binary"], **options)
    with pytest.raises(ParameterError, match="kinds='binary'"):
        feddbn.simulate(d=3, kinds="binary")
    with pytest.raises(ParameterError, match="kinds names 'y'"):
        feddbn.simulate(d=3, kinds={"y": "binary"})
    with pytest.raises(ParameterError, match="'colour'"):
        feddbn.simulate(d=3, kinds=["colour"])


def test_scores_by_kind_add_up():
    rng = np.random.default_rng(0)
    truth, found = (rng.random((2, 6, 6)) < 0.3 for _ in range(2))
    kinds = ["count", "binary", "count", "continuous", "binary", "binary"]
    whole, parts = edge_scores(truth, found), kind_scores(truth, found, kinds)
    assert list(parts) == ["count", "binary", "continuous"]
    for name in ("n_true", "n_true_positives", "n_false_positives", "n_false_negatives", "shd"):
        assert sum(part[name] for part in parts.values()) == whole[name]
    only = kind_scores(truth[:, :, [0, 2]][:, [0, 2]], found[:, :, [0, 2]][:, [0, 2]], ["count"] * 2)
    assert list(only) == ["count"]
    with pytest.raises(ParameterError, match="kinds"):
        kind_scores(truth, found, kinds[:3])


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
