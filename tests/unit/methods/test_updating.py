"""New rows are added to a fit: the same network as from all rows at once, without the old rows."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import feddbn
from feddbn import AS_THEY_ARE, FDBNL, Dynotears, LatentDBN, MomentSummary, OneShotDBN, Rounds
from feddbn.data import read_sites
from feddbn.errors import DataError, ParameterError
from feddbn.federation.protocol.site import Site
from feddbn.method_table import make_estimator
from feddbn.results.result import Result
from feddbn.runtime.simulated.secure import secure_federation
from support.saying import only, refused

pytestmark = [
    pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning"),
]
SECOND = {"use_nongaussian": False, "check_residuals": False, "features": "linear"}


def made(seed=0, n_sites=3, rows=260, d=3, **more):
    return feddbn.simulate(
        d=d, n_sites=n_sites, n_samples=n_sites * rows, mean_degree=2, random_state=seed, **more
    )


def months(fed, cut, overlap=0):
    """Each site's recording in two parts; the second begins with the last rows of the first again, if asked for."""
    first = {name: [table.iloc[:cut] for table in tables] for name, tables in fed.sites.items()}
    second = {name: [table.iloc[cut - overlap :] for table in tables] for name, tables in fed.sites.items()}
    return first, second


def parts(first, second):
    """Both months as recordings of their own."""
    return {name: [*first[name], *second[name]] for name in first}


def assert_same(found, expected):
    for name in ("W_", "A_"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-10)
    np.testing.assert_allclose(found.dbn_.intercept, expected.dbn_.intercept, atol=1e-9)
    np.testing.assert_allclose(found.dbn_.noise_variances, expected.dbn_.noise_variances, atol=1e-10)
    assert found.n_samples_ == expected.n_samples_


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "offset"),
    [
        (OneShotDBN(1, prepare=AS_THEY_ARE, **SECOND), 1e5),
        (OneShotDBN("auto", max_lags=2, noise_variance="free", prepare=AS_THEY_ARE, **SECOND), 0.0),
        (OneShotDBN(1, prepare=replace(AS_THEY_ARE, center="recording", detrend=1), **SECOND), 30.0),
        (OneShotDBN(1, **SECOND), 0.0),
        (Dynotears(1, check_residuals=False, prepare=AS_THEY_ARE), 30.0),
        (Dynotears(1, check_residuals=False, prepare=replace(AS_THEY_ARE, center="recording")), 0.0),
        (FDBNL(1, prepare=AS_THEY_ARE), 30.0),
        (FDBNL(1, check_residuals=False, prepare=replace(AS_THEY_ARE, center="recording", detrend=1)), 0.0),
        (LatentDBN(1, prepare=AS_THEY_ARE), 30.0),
        (LatentDBN(1), 0.0),
        (MomentSummary(2, prepare=AS_THEY_ARE), 30.0),
        (MomentSummary(1), 0.0),
    ],
)
def test_a_month_more_is_the_fit_of_all_rows(estimator, offset):
    fed = made()
    for tables in fed.sites.values():
        for table in tables:
            table += offset
    first, second = months(fed, 150)
    found = estimator.__sklearn_clone__().fit(first).update(second)
    expected = estimator.__sklearn_clone__().fit(parts(first, second))
    assert_same(found, expected)
    assert np.count_nonzero(found.A_)
    # The new rows matter: without them the weights are others.
    assert np.abs(found.A_ - estimator.__sklearn_clone__().fit(first).A_).max() > 1e-4
    for name in ("graph_", "summary_"):
        if hasattr(expected, name):
            told = [getattr(one, name) for one in (found, expected)]
            assert np.array_equal(*told) if name == "graph_" else told[0].n_sites == told[1].n_sites


def test_a_recording_that_goes_on_is_given_with_its_last_rows_again():
    fed = made(seed=1)
    estimator = OneShotDBN(2, prepare=AS_THEY_ARE, **SECOND)
    first, second = months(fed, 150, overlap=2)
    found = estimator.fit(first).update(second)
    assert_same(found, OneShotDBN(2, prepare=AS_THEY_ARE, **SECOND).fit(fed.sites))


@pytest.mark.slow
def test_several_months_and_a_site_that_comes_later():
    fed = made(seed=2, n_sites=4)
    names = list(fed.sites)
    estimator = OneShotDBN(1, prepare=AS_THEY_ARE, **SECOND).fit(
        {name: fed.sites[name] for name in names[:2]}
    )
    estimator.update({names[2]: fed.sites[names[2]]}).update({names[3]: fed.sites[names[3]]})
    assert_same(estimator, OneShotDBN(1, prepare=AS_THEY_ARE, **SECOND).fit(fed.sites))
    assert list(estimator.sites_.index) == names
    assert estimator.sites_["rows"].tolist() == [261] * 4
    assert estimator.n_rounds_ == 3
    assert only(estimator.findings_, "rows-added").values == {"n_new": 260, "n_before": 780}


def test_an_update_survives_a_pickle_and_masks():
    fed = made(seed=3, n_sites=4)
    first, second = months(fed, 150)
    kept = pickle.loads(pickle.dumps(OneShotDBN(1, prepare=AS_THEY_ARE, **SECOND).fit(first)))
    sites = {name: Site(name, data) for name, data in read_sites(second).items()}
    kept.set_params(federation=secure_federation(sites)).update(None)
    expected = OneShotDBN(1, prepare=AS_THEY_ARE, **SECOND).fit(parts(first, second))
    np.testing.assert_allclose(kept.A_, expected.A_, atol=1e-8)


@pytest.mark.slow
def test_a_stored_result_goes_on(tmp_path):
    fed = made(seed=4)
    first, second = months(fed, 150)
    fitted = OneShotDBN(1, prepare=AS_THEY_ARE, **SECOND).fit(first)
    assert "sums" not in Result.from_estimator(fitted).to_dict()
    path = Result.from_estimator(fitted, keep_sums=True).save(tmp_path / "r.json")
    stored = Result.load(path)
    again = make_estimator("oneshot", stored.parameters)
    again.take_up(stored.sums, pd.DataFrame(stored.sites).set_index("name"), stored.n_rounds, "r.json")
    np.testing.assert_array_equal(again.A_, fitted.A_)
    assert_same(again.update(second), fitted.update(second))


def test_what_the_new_rows_alone_would_need_is_said():
    fed = made(seed=5, rows=400)
    first, second = months(fed, 200)
    for k, tables in enumerate(second.values()):
        for table in tables:
            table += 5.0 * k
    found = OneShotDBN(1, **SECOND).fit(first)
    assert found.center_ == "none"
    found.update(second)
    assert only(found.findings_, "treated-as-before").values == {"own_means": True}
    assert found.center_ == "none"


def test_an_update_that_fails_leaves_the_fit_as_it_was():
    fed = made(seed=6)
    first, second = months(fed, 150)
    fitted = OneShotDBN(1, prepare=AS_THEY_ARE, **SECOND).fit(first)
    A, n = fitted.A_.copy(), fitted.n_samples_
    wrong = {
        name: [table.rename(columns={"x0": "y0"}) for table in tables] for name, tables in second.items()
    }
    with pytest.raises(DataError, match="x0"):
        fitted.update(wrong)
    with pytest.raises(DataError):
        fitted.update({name: [table.iloc[:1] for table in tables] for name, tables in second.items()})
    np.testing.assert_array_equal(fitted.A_, A)
    assert fitted.n_samples_ == n
    fitted.update(second)
    assert fitted.n_samples_ > n


def test_what_cannot_be_updated_says_so():
    fed = made(seed=7, n_sites=2, rows=150)
    first, second = months(fed, 100)
    with pytest.raises(NotFittedError):
        OneShotDBN(1).update(second)
    for options in ({"schedule": "paper"}, {"weighting": "sites"}):
        iterative = FDBNL(1, rounds=Rounds(max_rounds=3), **options).fit(first)
        with refused(ParameterError, *options.values(), code="cannot-update"):
            iterative.update(second)
        with refused(ParameterError, *options.values(), code="cannot-update"):
            Result.from_estimator(iterative, keep_sums=True)
        with refused(ParameterError, *options.values(), code="cannot-update"):
            feddbn.confidence(FDBNL(1, **options), first, n_replicates=2)
    mean = feddbn.Average(1).fit(first)
    with refused(ParameterError, "Average", code="cannot-update"):
        mean.update(second)
    with refused(ParameterError, code="curved"):
        OneShotDBN(1, features="quadratic").fit(first).update(second)
    gaps = {name: [table.copy() for table in tables] for name, tables in first.items()}
    for tables in gaps.values():
        tables[0].iloc[::7, 0] = np.nan
    with refused(ParameterError, "missing='fill'", code="cells-filled"):
        OneShotDBN(1).fit(gaps).update(second)


def test_an_update_does_not_speak_of_noise_that_nobody_added():
    first, second = months(made(seed=4), 150)
    fitted = OneShotDBN(1).fit(first).update(second)
    assert "not-looked-at-under-noise" not in fitted.findings_.codes


@pytest.mark.parametrize("center", ["none", "recording"])
def test_what_an_update_has_added_is_the_difference_of_two_tallies(center):
    first, second = months(made(), 150)
    learner = OneShotDBN(1, prepare=replace(AS_THEY_ARE, center=center), **SECOND)
    base, alone = (learner.fit(part)._tally for part in (first, second))
    both = base.plus(alone)
    found = both.minus(base)
    assert (found.moments.n, found.n_parts, found.rank) == (alone.moments.n, 1, alone.rank)
    np.testing.assert_allclose(found.moments.mean, alone.moments.mean, atol=1e-10)
    np.testing.assert_allclose(found.moments.scatter, alone.moments.scatter, atol=1e-8)
    other = replace(base, treatment=replace(base.treatment, robust="site"))
    for whole, part in ((base, both), (both, other), (both, replace(base, n_lags=2))):
        with refused(DataError, code="no-update"):
            whole.minus(part)
