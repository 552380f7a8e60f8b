"""Curved effects: learned where they are, not where they are not; the same from sites as from one table."""

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn import OneShotDBN
from feddbn.core.designs.features import FeatureMap, register_feature_map
from feddbn.errors import ParameterError
from reproduction import corruptions
from support.saying import only

pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning")]


def bent(n=900, seed=0, offsets=0.0, n_sites=3):
    """x0 -> x1 by a bump, x1 -> x2 by a line, x2 at lag 1 -> x0 by a step; three sites."""
    rng = np.random.default_rng(seed)
    sites = {}
    for k in range(n_sites):
        x = np.zeros((n // n_sites + 20, 3))
        u = rng.normal(size=x.shape) * [0.6, 0.7, 1.0]
        for t in range(1, len(x)):
            x[t, 0] = np.tanh(3 * x[t - 1, 2]) + u[t, 0]
            x[t, 1] = 2.0 * np.exp(-2 * x[t, 0] ** 2) + u[t, 1]
            x[t, 2] = 0.8 * x[t, 1] + u[t, 2]
        level = rng.normal(size=3) * offsets
        sites[f"site-{k}"] = pd.DataFrame(x[20:] + level, columns=["a", "b", "c"])
    return sites


TRUE_W = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
TRUE_A = np.array([[0, 0, 0], [0, 0, 0], [1, 0, 0]], dtype=bool)


def is_right(model):
    return np.array_equal(model.W_ != 0, TRUE_W) and np.array_equal(model.A_[0] != 0, TRUE_A)


def test_auto_takes_splines_where_effects_are_curved_and_says_so():
    model = OneShotDBN().fit(bent())
    assert model.features_ == "spline"
    assert is_right(model)
    assert {(*part.term.sources[0], part.target) for part in model.dbn_.parts} == {(0, 0, 1), (2, 1, 0)}
    told = only(model.findings_, "curves")
    assert (told.values["n_curves"], told.values["n_edges"]) == (2, 3)
    assert told.cure == {"features": "linear"}
    assert model.orientation_.set_index(["source", "target"]).loc[("a", "b"), "oriented"]
    linear = OneShotDBN(features="linear").fit(bent())
    assert "curvature" in linear.residuals_.violations
    assert "curvature" in only(linear.findings_, "residuals").values["violations"]


def test_a_learned_curve_is_near_the_true_one_and_within_its_band():
    effect = OneShotDBN().fit(bent(3000)).dbn_.effect("a", "b", 0)
    x = np.linspace(-1.2, 1.2, 25)
    true = 2.0 * np.exp(-2 * x**2)
    found = effect.at(x)[:, 0]
    assert np.abs((found - found.mean()) - (true - true.mean())).max() < 0.25


def test_straight_lines_stay_what_they_are_bit_for_bit():
    sites = feddbn.simulate(d=6, n_sites=4, n_samples=600, random_state=5).sites
    auto, linear = OneShotDBN().fit(sites), OneShotDBN(features="linear").fit(sites)
    assert auto.features_ == "linear"
    assert auto.n_rounds_ == linear.n_rounds_
    np.testing.assert_array_equal(auto.W_, linear.W_)
    pd.testing.assert_frame_equal(auto.edge_probabilities_, linear.edge_probabilities_)


def test_other_units_give_the_same_network():
    sites = bent()
    factor = np.array([1e-3, 50.0, 7.0])
    scaled = {name: table * factor for name, table in sites.items()}
    one, other = OneShotDBN().fit(sites), OneShotDBN().fit(scaled)
    np.testing.assert_array_equal(one.W_ != 0, other.W_ != 0)
    np.testing.assert_allclose(other.W_, one.W_ * factor[None, :] / factor[:, None], rtol=0.05, atol=1e-9)
    x = np.linspace(-1, 1, 5)
    first, second = one.dbn_.effect("a", "b", 0), other.dbn_.effect("a", "b", 0)
    np.testing.assert_allclose(second.at(x * factor[0]), first.at(x) * factor[1], rtol=0.05, atol=1.0)


def test_levels_of_sites_and_empty_cells_do_not_matter():
    sites = bent(1500, offsets=4.0)
    rng = np.random.default_rng(0)
    gappy = {name: table.mask(rng.random(table.shape) < 0.05) for name, table in sites.items()}
    assert is_right(OneShotDBN().fit(sites))
    model = OneShotDBN().fit(gappy)
    assert model.features_ == "spline"
    assert is_right(model)


def test_constraints_hold():
    model = OneShotDBN(
        features="spline", forbidden_edges=[("a", "b", 0)], required_edges=[("b", "c", 1)], n_lags="auto"
    ).fit(bent())
    assert model.W_[0, 1] == 0
    assert model.A_[0, 1, 2] != 0


@pytest.mark.usefixtures("registries")
def test_squares_and_functions_of_ones_own_are_bases_too():
    sites = bent()
    square = OneShotDBN(features="quadratic").fit(sites)
    assert square.features_ == "quadratic"
    assert square.W_[0, 1] != 0

    def waves(values):
        return np.stack([np.sin(2 * values), np.cos(2 * values)], axis=-1)

    own = OneShotDBN(features=waves).fit(sites)
    assert own.W_[0, 1] != 0
    assert own.features_.endswith("waves")
    register_feature_map(FeatureMap("tests.with-value", lambda x: x, 1, has_identity=True))
    with pytest.raises(ParameterError, match=r"features='tests\.with-value'"):
        OneShotDBN(features="tests.with-value").fit(sites)


def test_two_variables_that_act_only_together_are_found_by_their_product():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1500, 3))
    for t in range(1, len(x)):
        x[t, 2] += 0.8 * x[t - 1, 0] * x[t - 1, 1]
    alone = OneShotDBN(features="spline").fit({"s": x})
    together = OneShotDBN(features="spline", interactions=True).fit({"s": x})
    assert not alone.A_[0, :2, 2].any()
    (product,) = [part for part in together.dbn_.parts if part.term.basis == "product"]
    assert (product.term.sources, product.target) == (((0, 1), (1, 1)), 2)
    assert product.coefficients[0, 0] == pytest.approx(0.8 * x[:, 0].std() * x[:, 1].std(), rel=0.15)


@pytest.mark.slow
def test_skewed_noise_that_turned_an_edge_is_no_curve():
    # The linear fit has an edge turned round here, so residuals bend, and Gaussian evidence alone would be for curves.
    fed = corruptions.simulate(
        {"unequal-noise": None},
        d=8,
        n_sites=8,
        n_samples=1600,
        mean_degree=2.5,
        lag_degree=1,
        noise="exponential",
        random_state=1003,
    )
    assert OneShotDBN().fit(fed.sites).features_ == "linear"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_rare_large_shocks_are_no_reason_for_curves():
    truth = feddbn.simulate(
        d=8, n_lags=1, n_sites=1, n_samples=10, mean_degree=2.5, w_range=(0.3, 0.6), random_state=940
    ).truth
    rng, mixing = np.random.default_rng([940, 5]), np.linalg.inv(np.eye(8) - truth.W)
    sites = {}
    for name in "abcd":
        # Two values, of mean 0 and variance 1: kurtosis 22.
        shocks = ((rng.random((700, 8)) < 0.04) - 0.04) / np.sqrt(0.04 * 0.96)
        x = np.zeros((700, 8))
        for t in range(1, 700):
            x[t] = (x[t - 1] @ truth.A[0] + shocks[t]) @ mixing
        sites[name] = pd.DataFrame(x[200:], columns=list(truth.variables))
    for robust in ("auto", "off"):
        model = feddbn.OneShotDBN(n_lags=1, prepare=feddbn.Prepare(robust=robust)).fit(sites)
        assert model.features_ == "linear"
        np.testing.assert_array_equal(model.W_ != 0, truth.W != 0)
        np.testing.assert_array_equal(model.A_ != 0, truth.A != 0)
