"""`ChangingDBN`: what changes is found with its edges, what does not is left alone."""

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn import AS_THEY_ARE, ChangingDBN, OneShotDBN, Prepare
from feddbn.data import read_sites
from feddbn.errors import ParameterError
from feddbn.federation.protocol.site import Site
from feddbn.results.result import Result
from feddbn.runtime.simulated.in_process import InProcessFederation
from support.saying import only

pytestmark = [
    pytest.mark.promise,
    pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning"),
]
D, ROWS, CHANGE = 4, 300, 160


def sites(before, after, n_sites=5, seed=0, variances=(1.0, 1.0), levels=(0.0, 0.0)):
    """Rows whose network (W, A) changes at row CHANGE."""
    rng = np.random.default_rng(seed)
    found = {}
    for k in range(n_sites):
        x, rows = np.zeros(D), []
        for t in range(-50, ROWS):
            W, A = after if t >= CHANGE else before
            noise = rng.normal(size=D)
            noise[1] = noise[1] * np.sqrt(variances[t >= CHANGE]) + levels[t >= CHANGE]
            x = (x @ A + noise) @ np.linalg.inv(np.eye(D) - W)
            rows.append(x)
        found[f"s{k}"] = np.array(rows[50:])
    return found


def network():
    W, A = np.zeros((D, D)), 0.3 * np.eye(D)
    W[0, 1], W[1, 2], A[0, 3] = 0.6, -0.5, 0.5
    return W, A


def changed():
    W, A = (C.copy() for C in network())
    W[1, 2], A[0, 3], A[2, 3] = 0.5, 0.0, 0.4
    return W, A


@pytest.fixture(scope="module")
def fit():
    return ChangingDBN().fit(sites(network(), changed()))


def test_a_clear_change_is_found_with_its_edges(fit):
    assert len(fit.segments_) == 2
    assert abs(fit.segments_["start"][1] - CHANGE) <= fit.block_rows_
    assert fit.segments_["stop"].tolist() == [fit.segments_["start"][1], ROWS]
    assert fit.segments_["rows"].sum() == fit.n_samples_ == 5 * (ROWS - 1)
    found = {(row.source, row.target, row.lag): row for row in fit.changes_.itertuples()}
    assert set(found) == {("x1", "x2", 0), ("x0", "x3", 1), ("x2", "x3", 1)}
    assert found["x1", "x2", 0].before < -0.3
    assert found["x1", "x2", 0].after > 0.3
    assert found["x0", "x3", 1].after == 0.0
    assert found["x2", "x3", 1].before == 0.0
    assert (fit.changes_["probability"] > 0.99).all()
    assert not len(fit.variance_changes_)


def test_every_segment_has_its_network_and_forecasts_use_the_last_and_say_so(fit):
    for dbn, (W, A) in zip(fit.dbns_by_segment_, (network(), changed()), strict=True):
        np.testing.assert_allclose(dbn.W, W, atol=0.12)
        np.testing.assert_allclose(dbn.A[0], A, atol=0.12)
        np.testing.assert_allclose(dbn.noise_variances, 1.0, atol=0.15)
    assert fit.dbn_ is fit.dbns_by_segment_[-1]
    assert "changes" in fit.findings_.codes
    assert np.argmin(fit.change_scores_) == 1


def test_a_result_stores_what_changed(fit):
    facts = Result.from_estimator(fit).to_dict()["diagnostics"]
    assert facts["segments"][1]["start"] == fit.segments_["start"][1]
    assert facts["changes"][0].keys() == {*fit.changes_.columns}
    stored = [feddbn.DBN.from_dict(one) for one in facts["networks_by_segment"]]
    np.testing.assert_array_equal(stored[0].W, fit.dbns_by_segment_[0].W)


def test_without_a_change_it_is_the_network_of_the_one_round_method():
    data = sites(network(), network(), seed=1)
    fit = ChangingDBN().fit(data)
    one = OneShotDBN(
        features="linear", use_nongaussian=False, check_residuals=False, prepare=Prepare(missing="drop")
    ).fit(data)
    assert len(fit.segments_) == 1
    assert not len(fit.changes_)
    np.testing.assert_array_equal(fit.W_, one.W_)
    np.testing.assert_array_equal(fit.A_, one.A_)
    np.testing.assert_array_equal(fit.dbn_.intercept, one.dbn_.intercept)
    np.testing.assert_array_equal(fit.dbn_.noise_variances, one.dbn_.noise_variances)
    assert fit.dbn_.open_edges == one.dbn_.open_edges


@pytest.mark.parametrize(
    ("change", "what"),
    [({"variances": (1.0, 5.0)}, "noise variance"), ({"levels": (0.0, 2.0)}, "level")],
)
def test_variances_and_levels_are_told_apart_from_edges(change, what):
    fit = ChangingDBN().fit(sites(network(), network(), seed=2, **change))
    assert len(fit.segments_) == 2
    assert not len(fit.changes_)
    assert fit.variance_changes_[["target", "what"]].to_numpy().tolist() == [["x1", what]]
    assert fit.variance_changes_["after"][0] > fit.variance_changes_["before"][0] + 1
    np.testing.assert_array_equal(fit.dbns_by_segment_[0].W, fit.dbns_by_segment_[1].W)


def test_large_means_and_units_do_not_matter():
    plain = sites(network(), changed(), seed=3)
    scale, shift = np.array([1.0, 1e3, 1e-3, 10.0]), np.array([1e6, -1e8, 5.0, 0.0])
    fits = [
        ChangingDBN(noise_variance="free").fit(data)
        for data in (plain, {k: x * scale + shift for k, x in plain.items()})
    ]
    for column in ("source", "target", "lag", "row"):
        assert fits[0].changes_[column].tolist() == fits[1].changes_[column].tolist()
    unit = np.array(
        [scale[int(row.target[1:])] / scale[int(row.source[1:])] for row in fits[0].changes_.itertuples()]
    )
    np.testing.assert_allclose(
        fits[1].changes_["before"] / unit, fits[0].changes_["before"], rtol=1e-4, atol=1e-9
    )


def test_rows_as_they_are_cost_three_sums():
    fit = ChangingDBN(prepare=AS_THEY_ARE).fit(sites(network(), changed()))
    assert fit.n_rounds_ == 3
    assert len(fit.segments_) == 2


@pytest.mark.filterwarnings("ignore::feddbn.errors.ResidualsWarning")
def test_constraints_hold_in_every_segment():
    fit = ChangingDBN(forbidden_edges=[("x2", "x3", 1)], required_edges=[("x3", "x2", 1)]).fit(
        sites(network(), changed())
    )
    for dbn in fit.dbns_by_segment_:
        assert dbn.A[0][2, 3] == 0.0
        assert dbn.A[0][3, 2] != 0.0


def test_residuals_of_a_network_that_changes_say_what_contradicts_it(fit):
    assert fit.residuals_.violations == ()
    assert fit.residuals_.n_rows == fit.n_samples_
    data = sites(network(), changed())
    curved = {name: rows.copy() for name, rows in data.items()}
    for rows in curved.values():
        rows[:, 2] += 0.5 * rows[:, 0] ** 2
    with pytest.warns(feddbn.errors.ResidualsWarning, match="straight lines"):
        found = ChangingDBN().fit(curved)
    assert len(found.segments_) == 2
    assert "curvature" in found.residuals_.violations


def test_a_federation_is_told_which_period_is_the_first():
    frames = {
        name: pd.DataFrame(rows, index=pd.date_range("2024-03-01", periods=ROWS, freq="D"))
        for name, rows in sites(network(), changed()).items()
    }
    held = {
        name: Site(name, site) for name, site in read_sites(frames, label="@time", missing="keep").items()
    }
    federation = InProcessFederation(held)
    fit = ChangingDBN(blocks="month from 2024-03", federation=federation).fit(None)
    # Row 160 is the eighth of August.
    assert fit.segments_["start"].tolist() == ["2024-03", "2024-08"]
    assert fit.segments_["stop"].tolist() == ["2024-08", "2025-01"]
    told = only(fit.findings_, "changes").values
    assert (told["places"], told["by"], told["period"]) == (["2024-08"], "calendar", "month")
    with pytest.raises(ParameterError, match="does"):
        ChangingDBN(blocks="week", federation=federation).fit(None)
    with pytest.raises(ParameterError, match="label='x'"):
        ChangingDBN(blocks="week").fit(frames, label="x")


def test_every_edge_of_every_segment_has_a_probability(fit):
    for s, dbn in enumerate(fit.dbns_by_segment_):
        table = fit.segment_edges_[fit.segment_edges_["segment"] == s]
        assert len(table) == np.count_nonzero(dbn.adjacency_matrices)
        for row in table.itertuples():
            place = [list(dbn.variables).index(name) for name in (row.source, row.target)]
            assert row.weight == dbn.adjacency_matrices[row.lag, place[0], place[1]]
        assert table["probability"].between(0.5, 1.0).all()
    last = fit.segment_edges_[fit.segment_edges_["segment"] == 1]
    assert sorted(fit.edge_probabilities_["weight"]) == sorted(last["weight"])
    stored = Result.from_estimator(fit).to_dict()["edges"]
    assert all(edge["probability"] > 0.5 for edge in stored)


def test_equal_variances_are_those_of_outputs_alone():
    rng = np.random.default_rng(0)
    data = {}
    for name in "abcd":
        u, noise = 10 * rng.normal(size=ROWS), rng.normal(size=(ROWS, 2))
        y = noise[:, 0] + np.concatenate([[0.0], 0.2 * u[:-1]])
        data[name] = pd.DataFrame({"u": u, "y": y, "z": 0.8 * y + noise[:, 1]})
    given = {"noise_variance": "equal", "prepare": Prepare(exogenous=["u"])}
    changing, constant = ChangingDBN(**given).fit(data), OneShotDBN(**given).fit(data)
    assert len(changing.segments_) == 1
    # An input of variance 100 is no noise: those of the outputs, which are 1, become one.
    assert changing.dbn_.noise_variances[1] == changing.dbn_.noise_variances[2]
    np.testing.assert_allclose(changing.dbn_.noise_variances, [100.0, 1.0, 1.0], rtol=0.15)
    np.testing.assert_allclose(changing.dbn_.noise_variances, constant.dbn_.noise_variances, rtol=0.01)
