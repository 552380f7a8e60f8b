import copy
import json
import pickle

import numpy as np
import pytest

import feddbn
from feddbn.errors import ParameterError
from feddbn.methods.simulation import TrueNetwork
from feddbn.methods.truth import read_truth, write_truth
from feddbn.metrics import curve_error
from feddbn.sim import EFFECTS
from support.saying import refused

SETTING = {"d": 5, "n_lags": 2, "n_sites": 3, "n_samples": 300, "random_state": 4}


def _noise(fed):
    return np.vstack([fed.truth.residuals([np.asarray(frames[0])]) for frames in fed.sites.values()])


@pytest.mark.parametrize("effects", EFFECTS)
@pytest.mark.parametrize("interactions", [0, 3])
def test_what_functions_and_products_leave_is_the_noise_of_the_linear_data(effects, interactions):
    plain = feddbn.simulate(**SETTING)
    fed = feddbn.simulate(**SETTING, effects=effects, interactions=interactions)
    np.testing.assert_allclose(_noise(fed), _noise(plain), atol=1e-8)
    assert len(fed.truth.interactions) == interactions
    assert fed.truth.is_linear == (effects == "linear" and not interactions)


def test_the_linear_case_is_what_it_always_was():
    fed = feddbn.simulate(d=3, n_sites=2, n_samples=20, random_state=7)
    last = [-1.5155527544892624, -1.2123037046896332, -0.401717273606572]
    np.testing.assert_allclose(fed.sites["site-1"][0].to_numpy()[-1], last, rtol=1e-13)
    weights = [-0.3435064918150852, 0.30990237218568334, 0.42536061941846903]
    np.testing.assert_array_equal(fed.truth.W[fed.truth.W != 0], weights)
    messy = feddbn.simulate(d=3, n_sites=2, n_samples=20, random_state=7, mess=["tanh", "offsets"])
    last = [5.955364072553807, 9.200164995701176, -1.1732600913096631]
    np.testing.assert_allclose(messy.sites["site-1"][0].to_numpy()[-1], last, rtol=1e-13)


def test_the_same_seed_gives_the_same_bits_and_functions():
    one, two = (feddbn.simulate(**SETTING, effects="mixed", interactions=0.4) for _ in range(2))
    for site in one.sites:
        assert one.sites[site][0].to_numpy().tobytes() == two.sites[site][0].to_numpy().tobytes()
    for a, b in zip(one.truth.functions(), two.truth.functions(), strict=True):
        np.testing.assert_equal(a, b)
    assert one.truth.interactions == two.truth.interactions


def test_an_effect_is_asked_for_by_names_or_positions_and_is_a_function_of_raw_values():
    truth = feddbn.simulate(**SETTING, effects="sigmoid", noise_scale=3).truth
    edge = truth.edges().query("lag == 1").iloc[0]
    effect = truth.effect(edge.source, edge.target, lag=1)
    i, j = (truth.variables.index(name) for name in (edge.source, edge.target))
    x = np.linspace(-9, 9, 50)
    np.testing.assert_array_equal(effect(x), truth.effect(i, j, 1)(x))
    assert effect.kind == "sigmoid"
    assert effect.weight == truth.A[0, i, j]
    z = (x - effect.centre) / effect.scale
    np.testing.assert_allclose(effect(x), effect.weight * effect.scale * effect.curve(z))
    assert np.ptp(effect(x)) > abs(effect.weight) * effect.scale
    points, adds = effect.points(5)
    np.testing.assert_allclose(points, effect.centre + effect.scale * np.array([-3, -1.5, 0, 1.5, 3]))
    np.testing.assert_array_equal(adds, effect(points))


def test_effects_of_a_linear_network_are_lines():
    truth = feddbn.simulate(**SETTING).truth
    edge = truth.edges().iloc[0]
    effect = truth.effect(edge.source, edge.target, int(edge.lag))
    np.testing.assert_array_equal(effect([1.0, -2.0]), edge.weight * np.array([1.0, -2.0]))
    assert effect.kind == "linear"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_curves_can_be_found_again_from_the_data(seed):
    """An independent look: smooth the target, less all other effects, over bins of the cause."""
    fed = feddbn.simulate(d=4, n_sites=1, n_samples=20_000, effects="gp", mean_degree=2, random_state=seed)
    x, truth = fed.sites["site-0"][0].to_numpy(), fed.truth
    edge = truth.edges().iloc[0]
    i, j, lag = truth.variables.index(edge.source), truth.variables.index(edge.target), int(edge.lag)
    cause = x[1 - lag : len(x) - lag, i]
    effect = truth.effect(i, j, lag)
    left = truth.residuals([x])[:, j] + effect(cause)
    cuts = np.quantile(cause, np.linspace(0, 1, 81))
    bins = np.clip(np.searchsorted(cuts, cause) - 1, 0, 79)
    means = np.array([left[bins == b].mean() for b in range(80)])
    centres = np.array([cause[bins == b].mean() for b in range(80)])
    error = curve_error(effect, lambda v: np.interp(v, centres, means), cause)
    assert error < 0.1
    assert curve_error(effect, lambda v: 0 * v, cause) > 2.5 * error


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (("x9", "x0", 0), "source"),
        (("x0", "x9", 0), "target"),
        (("x0", "x0", 0), "'x0'"),
        (("x0", "x1", 3), "lag"),
        (("x0", "x1", 0.5), "lag"),
    ],
)
def test_an_effect_that_is_not_there_is_refused(asked, named):
    with refused(ParameterError, named):
        feddbn.simulate(**SETTING, effects="gp").truth.effect(*asked)


@pytest.mark.parametrize(
    "ask",
    [
        lambda truth: truth.forecast(np.zeros((2, 5)), 3),
        lambda truth: truth.do({"x0": 1.0}, np.zeros((2, 5)), 3),
        lambda truth: truth.simulate(10),
        lambda truth: truth.total_effects(3),
        lambda truth: truth.effects(),
        lambda truth: truth.stationary_covariance(),
        lambda truth: truth.log_likelihood(np.zeros((9, 5))),
    ],
)
def test_formulas_for_linear_networks_are_refused_where_effects_are_curved(ask):
    with pytest.raises(ParameterError):
        ask(feddbn.simulate(**SETTING, effects="gp").truth)


def test_a_linear_truth_answers_as_any_network():
    truth = feddbn.simulate(**SETTING).truth
    plain = feddbn.DBN(truth.W, truth.A, truth.variables, noise_variances=truth.noise_variances)
    assert truth.equals(plain)
    np.testing.assert_array_equal(truth.total_effects(4), plain.total_effects(4))
    np.testing.assert_array_equal(truth.stationary_covariance(), plain.stationary_covariance())
    assert truth.simulate(5, random_state=1).equals(plain.simulate(5, random_state=1))


@pytest.mark.parametrize("different", [False, True])
def test_a_stored_truth_has_a_table_of_every_function(tmp_path, different):
    fed = feddbn.simulate(
        **SETTING, effects="spline", interactions=2, heterogeneity="independent" if different else 0.0
    )
    path = write_truth(fed, tmp_path / "truth.json")
    stored = json.loads(path.read_text())
    network = stored["sites"]["site-1"] if different else stored
    truth = fed.truths["site-1"]
    assert len(network["functions"]) == len(truth.edges())
    assert len(network["interactions"]) == 2
    for row in network["functions"]:
        effect = truth.effect(row["source"], row["target"], row["lag"])
        np.testing.assert_allclose(effect(row["values"]), row["adds"], atol=1e-12)
        assert row["kind"] == effect.kind
    read = read_truth(path)
    assert (read["site-1"] if different else read).equals(truth)
    assert stored["simulated"]["effects"] == "spline"


def test_a_linear_truth_is_stored_as_ever(tmp_path):
    stored = json.loads(write_truth(feddbn.simulate(**SETTING), tmp_path / "t.json").read_text())
    assert "functions" not in stored
    assert "interactions" not in stored


def test_columns_that_a_mess_adds_have_straight_edges():
    fed = feddbn.simulate(**SETTING, effects="gp", mess=["sum-column", "duplicate"])
    copied = fed.truth.variables[-1]
    source = copied.removesuffix("_copy")
    assert fed.truth.effect(source, copied).kind == "linear"
    x = np.asarray(fed.sites["site-0"][0])
    left = fed.truth.residuals([x])
    np.testing.assert_allclose(left[:, -2:], 0, atol=1e-12)
    assert left[:, :5].std() == pytest.approx(1, abs=0.15)


def test_a_mess_of_rows_leaves_networks_functions_and_noise(tmp_path):
    clean = feddbn.simulate(**SETTING, effects="threshold", interactions=1)
    messy = feddbn.simulate(
        **SETTING, effects="threshold", interactions=1, mess={"offsets": 2.0, "missing": 0.1}
    )
    assert messy.truth.equals(clean.truth)
    a, b = (fed.sites["site-0"][0].to_numpy() for fed in (clean, messy))
    shift = (b - a)[:, 0]
    assert np.nanstd(shift) < 1e-12


def test_a_truth_can_be_copied_and_pickled():
    truth = feddbn.simulate(**SETTING, effects="gp").truth
    edge = truth.edges().iloc[0]
    x = np.linspace(-2, 2, 5)
    for twin in (copy.deepcopy(truth), pickle.loads(pickle.dumps(truth))):
        assert isinstance(twin, TrueNetwork)
        asked = edge.source, edge.target, int(edge.lag)
        np.testing.assert_array_equal(twin.effect(*asked)(x), truth.effect(*asked)(x))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"effects": "sine"}, "effects"),
        ({"interactions": 1.5}, "interactions"),
        ({"interactions": True}, "interactions"),
        ({"interactions": float("nan")}, "interactions"),
        ({"interactions": 2, "n_lags": 0}, "interactions=2"),
        ({"interactions": 201}, "interactions=201"),
        ({"effects": "gp", "mess": "tanh"}, "tanh"),
        ({"interactions": 1, "mess": {"squares": 0.5}}, "squares"),
    ],
)
def test_impossible_effects_are_named(arguments, named):
    with refused(ParameterError, named):
        feddbn.simulate(**{**SETTING, **arguments})
