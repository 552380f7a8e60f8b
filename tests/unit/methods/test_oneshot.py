import warnings

import numpy as np
import pytest

from feddbn import simulate
from feddbn.core.penalised.path import Status
from feddbn.core.statistics.moments import Moments
from feddbn.errors import ParameterError, UnitsWarning
from feddbn.methods.oneshot import OneShotDBN
from support.saying import only

pytestmark = pytest.mark.promise


def quiet_fit(data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitsWarning)
        return OneShotDBN(**options).fit(data)


def resplit(federation, n_sites):
    """The same recordings dealt to another number of sites."""
    tables = [table for recordings in federation.sites.values() for table in recordings]
    return {f"s{k}": tables[k::n_sites] for k in range(n_sites)}


def test_the_number_of_sites_does_not_change_the_network():
    fed = simulate(d=5, n_samples=640, n_sites=64, random_state=0)
    fits = [quiet_fit(resplit(fed, k)) for k in (1, 10, 64)]
    for other in fits[1:]:
        assert np.array_equal(fits[0].W_ != 0, other.W_ != 0)
        np.testing.assert_allclose(fits[0].W_, other.W_, atol=1e-10)
        np.testing.assert_allclose(fits[0].A_, other.A_, atol=1e-10)
    # One site has nobody to be compared with, and ten rows are too few to compare.
    assert [fit.n_rounds_ for fit in fits] == [4, 5, 3]
    assert all(fit.residuals_.violations == () for fit in fits)


def test_512_rows_of_ten_variables_are_enough():
    fed = simulate(d=10, n_samples=512, n_sites=1, random_state=1)
    assert ((quiet_fit(fed.sites).W_ != 0) != (fed.truth.W != 0)).sum() <= 1


def links(W):
    return (W != 0) | (W.T != 0)


@pytest.mark.parametrize("noise", ["gaussian", "exponential"])
def test_rescaled_variables_switch_to_free_variances_and_are_recovered(noise):
    """Some links are near one half with so few rows: at most one in twenty is wrong."""
    wrong = there = 0
    for seed in range(3):
        fed = simulate(d=10, n_samples=512, n_sites=1, noise=noise, random_state=seed)
        factors = np.random.default_rng(seed).uniform(0.5, 2, 10)
        model = OneShotDBN().fit({k: [t * factors for t in v] for k, v in fed.sites.items()})
        assert model.noise_variance_ == "free"
        assert model.units_ is None
        wrong += (links(model.W_) != links(fed.truth.W)).sum() // 2
        there += links(fed.truth.W).sum() // 2
    assert wrong <= there / 20


def test_a_network_that_rests_on_the_units_is_reported():
    # A pair without a past: only the equal noise variances tell which causes which.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 2))
    x[:, 1] += x[:, 0]
    with pytest.warns(UnitsWarning):
        model = OneShotDBN(noise_variance="equal").fit({"a": x})
    told = only(model.findings_, "rests-on-units")
    assert (told.level, told.values["n_open"], told.cure) == ("warning", 1, {"noise_variance": "free"})
    assert model.W_[0, 1] != 0
    assert model.units_.varsortability == 1.0


def test_weights_are_least_squares_on_the_chosen_parents():
    fed = simulate(d=5, n_samples=400, n_sites=2, random_state=1)
    shifted = {k: [t + 5.0 for t in v] for k, v in fed.sites.items()}
    model = quiet_fit(shifted)
    Z = np.concatenate(
        [np.hstack([t.to_numpy()[1:], t.to_numpy()[:-1]]) for v in shifted.values() for t in v]
    )
    C = np.vstack([model.W_, *model.A_])
    for j in range(5):
        S = np.flatnonzero(C[:, j])
        X = np.column_stack([Z[:, S], np.ones(len(Z))])
        beta = np.linalg.lstsq(X, Z[:, j], rcond=None)[0]
        np.testing.assert_allclose(C[S, j], beta[:-1], rtol=1e-6)
        assert model.dbn_.intercept[j] == pytest.approx(beta[-1], rel=1e-6)


def test_tables_and_names():
    fed = simulate(d=4, n_samples=400, n_sites=2, random_state=0, variables=["a", "b", "c", "d"])
    model = quiet_fit(fed.sites)
    assert list(model.feature_names_in_) == ["a", "b", "c", "d"]
    assert sorted(model.order_) == ["a", "b", "c", "d"]
    assert list(model.orientation_.columns) == ["source", "target", "score_difference", "oriented"]
    assert len(model.orientation_) == np.count_nonzero(model.W_)
    table = model.edge_probabilities_
    edge, link = (
        ["source", "target", "lag", "weight", "probability"],
        ["presence", "direction", "oriented"],
    )
    assert list(table.columns) == [*edge, "strength", *link]
    assert len(table) == 4 * 3 + 16
    assert table.probability.clip(upper=0.5).is_monotonic_decreasing
    assert table[table.probability > 0.5].strength.is_monotonic_decreasing, "the strongest first"
    assert ((table.probability > 0.5) == (table.weight != 0)).mean() > 0.95
    assert model.dbn_.variables == ("a", "b", "c", "d")
    assert model.n_samples_ == 400
    assert model.status_ is Status.EXACT


def test_required_and_forbidden_edges_hold():
    fed = simulate(d=5, n_samples=300, n_sites=2, random_state=0)
    required, forbidden = [("x4", "x0", 0), ("x0", "x0", 1)], [("*", "x1", 0)]
    model = quiet_fit(fed.sites, required_edges=required, forbidden_edges=forbidden)
    assert model.W_[4, 0] != 0
    assert model.A_[0, 0, 0] != 0
    assert not model.W_[:, 1].any()
    row = model.orientation_.query("source == 'x4' and target == 'x0'").iloc[0]
    assert row.score_difference >= 0


def test_n_lags_auto_finds_the_lag():
    fed = simulate(d=5, n_lags=2, n_samples=1500, n_sites=3, lag_degree=2, random_state=0)
    model = quiet_fit(fed.sites, n_lags="auto", max_lags=4)
    assert model.n_lags_ == 2
    assert model.A_.shape == (2, 5, 5)
    assert len(model.lag_scores_) == 5


def lagged_moments(fed, d):
    rows = [np.hstack([t.to_numpy()[1:], t.to_numpy()[:-1]]) for v in fed.sites.values() for t in v]
    return Moments.of_rows(np.concatenate(rows)), [f"x{i}" for i in range(d)]


def test_learning_from_moments_gives_the_network_of_the_rows():
    fed = simulate(d=5, n_samples=300, n_sites=3, random_state=2)
    moments, names = lagged_moments(fed, 5)
    model = quiet_fit(fed.sites)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitsWarning)
        network = OneShotDBN().fit_moments(moments, names)
    np.testing.assert_allclose(network.W, model.W_, atol=1e-9)
    np.testing.assert_allclose(network.A, model.A_, atol=1e-9)
    with pytest.raises(ParameterError, match=r"10.*n_lags=2.*15"):
        OneShotDBN(n_lags=2).fit_moments(moments, names)
    with pytest.raises(ParameterError, match="features='quadratic'"):
        OneShotDBN(features="quadratic").fit_moments(moments, names)


def test_few_rows_do_not_make_equal_variances_look_different():
    kinds = []
    for seed in range(200, 206):
        fed = simulate(d=5, n_samples=25, n_sites=5, w_range=(0.5, 2.0), random_state=seed)
        kinds.append(quiet_fit(fed.sites, n_restarts=0).noise_variance_)
    assert kinds.count("free") <= 1
