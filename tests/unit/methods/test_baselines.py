from dataclasses import replace

import numpy as np
import pytest

import feddbn
from feddbn import AS_THEY_ARE, Average, Dynotears, LocalOnly, Rounds
from feddbn.core.constraints import has_cycle
from feddbn.data import read_sites
from feddbn.federation.protocol.site import Site
from feddbn.runtime.simulated.secure import secure_federation
from support.saying import only


@pytest.fixture(scope="module")
def federation():
    return feddbn.simulate(d=5, n_sites=3, n_samples=300, random_state=4)


@pytest.mark.promise
def test_local_only_is_dynotears_at_each_site(federation):
    model = LocalOnly().fit(federation.sites)
    assert set(model.dbns_) == set(federation.sites)
    alone = Dynotears().fit(federation.sites["site-1"])
    np.testing.assert_allclose(model.dbns_["site-1"].W, alone.W_, atol=1e-10)
    # Nothing is summed over sites.
    assert model.n_rounds_ == 0


@pytest.mark.promise
def test_average_is_the_mean_of_the_local_weights(federation):
    model = Average(w_threshold=0.3).fit(federation.sites)
    local = [Dynotears(w_threshold=0.3).fit(rs).W_raw_ for rs in federation.sites.values()]
    mean = np.mean(local, axis=0)
    np.testing.assert_allclose(model.W_raw_, mean, atol=1e-10)
    np.testing.assert_array_equal(model.W_, np.where(np.abs(mean) >= 0.3, model.W_raw_, 0.0))
    lagged = np.mean([Dynotears().fit(rs).A_raw_ for rs in federation.sites.values()], axis=0)
    np.testing.assert_allclose(model.A_raw_, lagged, atol=1e-10)


LEVELS = [50.0, 20.0, -30.0]


def levelled(levels=LEVELS, unit=1.0):
    fed = feddbn.simulate(d=3, n_sites=5, n_samples=2500, random_state=3)
    return {name: [table * unit + levels for table in tables] for name, tables in fed.sites.items()}


@pytest.mark.slow
def test_an_average_knows_the_level_and_the_noise_of_rows():
    """It is as good as the fit of the pooled rows: with levels, without them, and where it treats recordings alone."""
    rows = levelled()
    average, pooled = Average().fit(rows), Dynotears().fit(rows)
    history = rows["site-0"][0].iloc[-5:]
    np.testing.assert_allclose(average.dbn_.stationary_mean(), LEVELS, atol=0.5)
    ahead = [model.dbn_.forecast(history, 3) for model in (average, pooled)]
    np.testing.assert_allclose(ahead[0].mean, ahead[1].mean, atol=0.3)
    np.testing.assert_allclose(ahead[0].sd, ahead[1].sd, rtol=0.1)
    assert average.score(rows) == pytest.approx(pooled.score(rows), abs=0.05)
    assert average.score(rows) == pytest.approx(
        Average().fit(levelled([0, 0, 0])).score(levelled([0, 0, 0])), abs=0.02
    )
    units = [100.0, 1.0, 0.01]
    errors = [
        method().fit(levelled(unit=units)).dbn_.standard_errors(2500).max() for method in (Average, Dynotears)
    ]
    assert errors[0] == pytest.approx(errors[1], rel=0.2)


def test_an_average_of_masked_sites_is_that_of_sites_in_the_open():
    rows = levelled()
    sites = {name: Site(name, data) for name, data in read_sites(rows).items()}
    masked, plain = Average(federation=secure_federation(sites)).fit(None), Average().fit(rows)
    np.testing.assert_allclose(masked.dbn_.adjacency_matrices, plain.dbn_.adjacency_matrices, atol=1e-6)
    assert masked.n_rounds_ == plain.n_rounds_


@pytest.mark.slow
def test_an_average_of_centred_recordings_has_the_level_that_sums_told_or_none():
    fed = feddbn.simulate(d=3, n_sites=5, n_samples=2500, random_state=3)
    far = {name: [table + 10.0 * k for table in tables] for k, (name, tables) in enumerate(fed.sites.items())}
    model = Average().fit(far)
    assert model.center_ == "recording"
    np.testing.assert_allclose(
        model.dbn_.stationary_mean(), Dynotears().fit(far).dbn_.stationary_mean(), atol=0.1
    )
    blind = Average(prepare=replace(AS_THEY_ARE, center="recording")).fit(far)
    assert blind.dbn_.intercept is None
    assert (blind.dbn_.noise_variances > 0).all()


def test_average_may_keep_cycles_and_says_so():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    forward = np.hstack([x, x + 0.1 * rng.normal(size=(200, 1))])
    sites = {"a": forward * [1, 2], "b": forward * [2, 1]}
    model = Average(n_lags=0, lambda_w=0.01, w_threshold=0.05).fit(sites)
    # Each site reads the order off its own scales, and the two orders contradict each other.
    assert has_cycle(model.W_ != 0)
    assert model.has_cycles_
    assert model.findings_.codes[0] == "mean-has-cycles"


def made(corruptions, seed=20, d=6):
    return feddbn.simulate(
        d=d, n_sites=8, n_samples=1600, mean_degree=2, random_state=seed, corruptions=corruptions
    )


def n_wrong(truth, dbn):
    found = feddbn.score(truth, dbn)
    return found["W"]["shd"] + found["A"]["shd"]


@pytest.mark.parametrize("corruptions", [["trend", "offsets"], {"missing": 0.1}])
def test_a_site_alone_treats_its_rows_as_dynotears_on_its_rows_does(corruptions):
    """Dynotears learns from the moments that were asked for, a local fit from those that the site makes again."""
    fed = made(corruptions)
    model = LocalOnly().fit(fed.sites)
    for name in ("site-0", "site-5"):
        alone = Dynotears().fit(fed.sites[name])
        assert model.treatments_[name] == alone.treatment_
        one, other = model.dbns_[name].adjacency_matrices, alone.dbn_.adjacency_matrices
        np.testing.assert_allclose(one, other, atol=1e-6)
        told = [one.values["finding"] for one in model.findings_.of("of-site") if one.values["site"] == name]
        assert told == [one.to_dict() for one in alone.findings_ if one.to_dict() in told]
        assert told
    assert model.treatment_ is None


@pytest.mark.parametrize(("corruptions", "code"), [("cycle", "own-courses"), ("gains", "own-scales")])
def test_what_sums_find_is_done_at_every_site_and_said(corruptions, code):
    fed = made(corruptions)
    model, common = Average().fit(fed.sites), feddbn.FDBNL().fit(fed.sites)
    assert model.treatment_ == common.treatment_
    assert model.center_ == model.treatment_["center"]
    assert code in model.findings_.codes
    assert n_wrong(fed.truth, model.dbn_) <= 3


@pytest.mark.slow
def test_sites_of_an_average_lose_the_trends_that_sums_found():
    fed = made(["trend", "offsets"])
    model = Average().fit(fed.sites)
    assert (model.treatment_["degree"], model.treatment_["periods"]) == (1, [])
    by_name = replace(AS_THEY_ARE, detrend=1)
    # A first look tells how many recordings there are, and so how much of the series their trends took along.
    looks = replace(by_name, missing="fill")
    local = [Dynotears(prepare=looks).fit(rows).W_raw_ for rows in fed.sites.values()]
    np.testing.assert_allclose(model.W_raw_, np.mean(local, axis=0), atol=1e-6)
    assert only(model.findings_, "own-courses").values["degree"] == 1
    given = Average(prepare=by_name).fit(fed.sites)
    np.testing.assert_allclose(given.W_raw_, model.W_raw_, atol=1e-9)


@pytest.mark.slow
def test_clean_rows_of_baselines_stay_as_they_are():
    fed = made(None)
    plain = replace(AS_THEY_ARE, center="auto")
    assert np.array_equal(Average().fit(fed.sites).W_raw_, Average(prepare=plain).fit(fed.sites).W_raw_)
    model, as_is = LocalOnly().fit(fed.sites), LocalOnly(prepare=plain).fit(fed.sites)
    assert not model.findings_
    assert all(model.dbns_[name].equals(as_is.dbns_[name]) for name in fed.sites)


def test_a_site_that_stays_out_is_not_counted():
    fed = made("other-units")
    model = Average().fit(fed.sites)
    (odd,) = model.site_notes_
    others = {name: rows for name, rows in fed.sites.items() if name != odd}
    np.testing.assert_array_equal(model.W_raw_, Average().fit(others).W_raw_)
    assert only(model.findings_, "sites-disagree").values["n"] == 1


def test_few_rows_have_no_scale_to_judge_their_own_cells_by():
    """Of 64 sites of eight rows some have a cell that is far from the others by chance."""
    fed = feddbn.simulate(d=10, n_sites=64, n_samples=512, random_state=1)
    assert not LocalOnly(rounds=Rounds(max_rounds=1)).fit(fed.sites).findings_
