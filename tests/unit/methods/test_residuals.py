import warnings

import numpy as np
import pandas as pd
import pytest

from feddbn import AS_THEY_ARE, OneShotDBN
from feddbn.data import read_sites
from feddbn.errors import ResidualsWarning, UnitsWarning
from feddbn.federation.protocol.site import Site
from feddbn.methods.result import Result
from feddbn.methods.simulation import simulate
from feddbn.report.record import read_record
from feddbn.report.verdicts import verdicts
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.private import private_federation
from feddbn.runtime.simulated.secure import secure_federation
from support.saying import only


def made(shocks, measured=0.0, n=300, n_sites=4, seed=1):
    """Sites that follow one network with these shocks, measured with errors of this size."""
    truth = simulate(d=5, n_sites=1, n_samples=10, mean_degree=2.5, random_state=seed).truth
    mixing, sites = np.linalg.inv(np.eye(5) - truth.W), {}
    for k in range(n_sites):
        rng = np.random.default_rng([seed, k])
        u, x = shocks(rng, n), np.zeros((n, 5))
        for t in range(1, n):
            x[t] = (x[t - 1] @ truth.A[0] + u[t]) @ mixing
        x += measured * x.std(axis=0) * rng.standard_normal(x.shape)
        sites[f"s{k}"] = [pd.DataFrame(x[20:], columns=list(truth.variables))]
    return sites, truth


def white(rng, n):
    return rng.standard_normal((n, 5))


def remembering(rng, n):
    u = rng.standard_normal((n, 5))
    for t in range(1, n):
        u[t] = 0.6 * u[t - 1] + 0.8 * u[t]
    return u


def messy(mess, seed):
    return simulate(
        d=8,
        n_sites=8,
        n_samples=1600,
        mean_degree=2.5,
        lag_degree=1,
        w_range=(0.3, 0.6),
        mess=mess,
        random_state=seed,
    )


def fitted(sites, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitsWarning)
        return OneShotDBN(**options).fit(sites)


ABOUT_RESIDUALS = ("lag-added", "noise-memory-removed", "residuals-")


def of_residuals(model):
    return [code for code in model.findings_.codes if code.startswith(ABOUT_RESIDUALS)]


def test_nothing_is_said_of_clean_data():
    sites, _ = made(white)
    model = fitted(sites)
    assert model.residuals_.violations == model.residuals_.acted_on == ()
    assert model.residuals_.n_effective == model.residuals_.n_rows == model.n_samples_
    assert of_residuals(model) == []
    plain = fitted(sites, check_residuals=False)
    assert plain.residuals_ is None
    np.testing.assert_array_equal(plain.W_, model.W_)
    pd.testing.assert_frame_equal(plain.edge_probabilities_, model.edge_probabilities_)


def test_the_memory_of_noise_is_taken_off_and_said():
    sites, truth = made(remembering)
    model, plain = fitted(sites), fitted(sites, check_residuals=False)
    np.testing.assert_array_equal(model.W_ != 0, truth.W != 0)
    np.testing.assert_array_equal(model.A_ != 0, truth.A != 0)
    assert (plain.A_ != 0).sum() > (truth.A != 0).sum() + 3
    assert of_residuals(model) == ["noise-memory-removed"]
    assert only(model.findings_, "noise-memory-removed").values["memory"] == pytest.approx(0.6, abs=0.06)
    # The variance of the noise is that of all of it, not of what is new in a row.
    np.testing.assert_allclose(model.dbn_.noise_variances, 1.0, rtol=0.2)
    stored = Result.from_estimator(model).to_dict()
    assert stored["diagnostics"]["residuals"]["acted_on"] == ["memory"]
    assert stored["diagnostics"]["residuals"]["noise_memory"] == pytest.approx(0.6, abs=0.06)
    verdict = only(verdicts(read_record(stored)), "verdict-residuals")
    assert verdict.level == "good"


@pytest.mark.parametrize("seed", [103, 114])
def test_rows_taken_early_or_late_look_like_noise_with_a_memory_which_is_taken_off(seed):
    fed = messy({"jitter": 0.3}, seed)
    model, plain = fitted(fed.sites), fitted(fed.sites, check_residuals=False)
    assert ((plain.A_ != 0) != (fed.truth.A != 0)).sum() > 7
    np.testing.assert_array_equal(model.A_ != 0, fed.truth.A != 0)
    assert model.residuals_.acted_on == ("memory",)


def test_errors_of_measurement_are_warned_of():
    sites, _ = made(white, measured=1.0, n=1500)
    with pytest.warns(ResidualsWarning):
        model = fitted(sites)
    assert only(model.findings_, "residuals-memory").values["echo"] > 3.7
    assert "memory" in model.residuals_.violations
    verdict = only(verdicts(read_record(Result.from_estimator(model).to_dict())), "verdict-residuals")
    assert verdict.level == "error"


@pytest.mark.slow
def test_hidden_common_causes_are_warned_of_and_directions_between_their_effects_left_open():
    sites = messy({"hidden-causes": None}, 104).sites
    with pytest.warns(ResidualsWarning):
        model = fitted(sites)
    told = only(model.findings_, "residuals-hidden")
    assert told.values["causes"] == [["x1", "x2", "x6"], ["x3", "x5", "x6"]]
    assert model.residuals_.violations[0] == "hidden"
    assert model.residuals_.hidden_causes == (("x1", "x2", "x6"), ("x3", "x5", "x6"))
    assert model.residuals_.hidden_gain > 50
    edges = {(a, b) for a, b in np.argwhere(model.W_).tolist() if {a, b} <= {1, 2, 6} or {a, b} <= {3, 5, 6}}
    assert edges
    assert {(f"x{a}", f"x{b}") for a, b in edges} <= set(model.dbn_.open_edges)
    stored = Result.from_estimator(model).to_dict()
    verdict = only(verdicts(read_record(stored)), "verdict-residuals")
    assert verdict.level == "error"
    doubted = model.hidden_[model.hidden_["could_be_hidden"]]
    truth = messy({"hidden-causes": None}, 104).truth
    true = {(*ends, 0) for ends in zip(*np.nonzero(truth.W), strict=True)}
    true |= {(i, j, 1) for _, i, j in zip(*np.nonzero(truth.A), strict=True)}
    names = list(truth.variables)
    wrong = [(names.index(e.source), names.index(e.target), e.lag) not in true for e in doubted.itertuples()]
    assert len(doubted) >= 8
    assert all(wrong)
    could = only(model.findings_, "could-be-hidden").values
    assert (len(could["edges"]), could["n_edges"]) == (len(doubted), len(model.hidden_))
    by_edge = [edge["could_be_hidden"] for edge in stored["edges"]]
    assert sum(by_edge) == len(doubted)
    plain = fitted(sites, check_residuals=False)
    np.testing.assert_array_equal(plain.W_, model.W_)
    assert plain.hidden_["could_be_hidden"].isna().all()


@pytest.mark.parametrize("mess", ["unequal-noise", "unit-variance"])
def test_unequal_variances_alone_are_no_hidden_cause(mess):
    model = fitted(messy({mess: None}, 104).sites)
    assert model.noise_variance_ == "free"
    assert model.residuals_.hidden_causes == ()
    assert not {"residuals-hidden", "could-be-hidden"} & set(model.findings_.codes)
    assert not model.hidden_["could_be_hidden"].any()
    assert model.hidden_["robustness"].between(0.01, 1).all()


def test_every_violation_is_told():
    def changing(rng, n):
        return rng.standard_t(3, (n, 5)) * np.where(np.arange(n) < n // 2, 1.0, 3.0)[:, None]

    sites, _ = made(changing)
    sites["s0"] = [sites["s0"][0] * 3]
    model = fitted(sites, prepare=AS_THEY_ARE)
    assert {"volatility", "thirds", "spread", "tails"} <= set(model.residuals_.violations)
    assert model.residuals_.n_effective < 0.8 * model.residuals_.n_rows
    assert set(of_residuals(model)) == {f"residuals-{name}" for name in model.residuals_.violations}


def test_masks_change_nothing_and_noise_leaves_it_out():
    sites, _ = made(remembering)
    here = {name: Site(name, data) for name, data in read_sites(sites).items()}
    plain = fitted(None, federation=InProcessFederation(here))
    masked = fitted(None, federation=secure_federation(here))
    assert plain.n_rounds_ == masked.n_rounds_ == 6
    assert masked.residuals_.noise_memory == pytest.approx(plain.residuals_.noise_memory, abs=1e-6)
    np.testing.assert_allclose(masked.W_, plain.W_, atol=1e-7)
    noisy = private_federation(here, 50.0, clip=500.0, rng=np.random.default_rng(0))
    assert fitted(None, federation=noisy).residuals_ is None
