"""Probabilities are means over resamples of the rows: checked by hand, and that they cost nothing on clean data."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from feddbn.core.orders.average import Hyper, OrderPosterior

import feddbn
from feddbn import OneShotDBN
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.orders.learn import EdgeOrientation, OrderLearner, bagged
from feddbn.core.statistics.moments import Moments
from feddbn.data import read_sites
from feddbn.errors import SiteRefused
from feddbn.federation.programs.curved import usual_resamples
from feddbn.federation.protocol.site import Site
from feddbn.federation.sums.gram import ResampledMoments, resampling_plan
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.private import private_federation
from feddbn.runtime.simulated.secure import secure_federation

AS_THEY_ARE = {"center": "none", "robust": "off", "gains": "none", "on_disagreement": "ignore"}


def fit(data, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return OneShotDBN(**options).fit(data)


def probabilities(model):
    table = model.edge_probabilities_
    return table.set_index(["source", "target", "lag"])["raw"].sort_index()


def codes(model):
    return {found.code: found for found in model.findings_}


def population(rng, n_recordings=30, n_rows=80, mean=0.0):
    """Recordings in which x acts on y with a strength of each one's own."""
    made = []
    for _ in range(n_recordings):
        x = rng.normal(size=n_rows)
        y = rng.normal(mean) * x + rng.normal(size=n_rows)
        made.append(pd.DataFrame({"x": x, "y": y}))
    return made


def weighted(rows, weights):
    mean = weights @ rows / weights.sum()
    off = rows - mean
    return Moments(float(weights.sum()), mean, (off * weights[:, None]).T @ off)


def spread_by_hand(rows, each, support):
    """Variances of weights over resamples, over what least squares say about them; less a standard error."""
    ratios = []
    for j in range(support.shape[1]):
        parents = np.flatnonzero(support[:, j])

        def fitted(times, parents=parents, j=j):
            root = np.sqrt(times)
            X = np.column_stack([np.ones(len(rows)), rows[:, parents]]) * root[:, None]
            return X, np.linalg.lstsq(X, rows[:, j] * root, rcond=None)[0]

        X, beta = fitted(np.ones(len(rows)))
        s2 = ((rows[:, j] - X @ beta) ** 2).sum() / (len(rows) - X.shape[1])
        known = s2 * np.diag(np.linalg.inv(X.T @ X))[1:]
        ratios += list(np.var([fitted(times)[1][1:] for times in each], axis=0, ddof=1) / known)
    return np.mean(ratios) / (1 + np.sqrt(2 / ((len(each) - 1) * len(ratios))))


def test_probabilities_are_the_mean_of_those_of_rows_drawn_by_hand():
    n, names = 6, ["x", "y"]
    data = {"a": population(np.random.default_rng(711), n_rows=60, mean=0.3)}
    options = {
        "use_nongaussian": False,
        "check_residuals": False,
        "features": "linear",
        "noise_variance": "free",
    }
    model = fit(data, resamples=n, **options, prepare=AS_THEY_ARE)
    tables = [frame.to_numpy() for frame in data["a"]]
    rows = np.concatenate([np.concatenate([x[1:], x[:-1]], axis=1) for x in tables])
    of_recording = np.repeat(np.arange(len(tables)), 59)
    plan = resampling_plan(read_sites(data)["a"], 1, "auto", "auto")
    assert plan.n_units == len(tables)
    each = [plan.counts("bootstrap", 0, b)[of_recording] for b in range(n)]
    limits, learner = EdgeConstraints.none(2, 1), OrderLearner("free")
    found = learner.learn(Moments.of_rows(rows), limits, np.random.default_rng(0))
    spread = spread_by_hand(rows, each, found.support)
    assert spread > 2
    part = np.sqrt(1 - 1 / spread)
    posteriors = [
        learner.learn_again(
            weighted(rows, 1 - part + part * times), limits, found, np.random.default_rng([0, b])
        ).probability
        for b, times in enumerate(each)
    ]
    assert np.ptp(posteriors, axis=0).max() > 0.1
    said = probabilities(model)
    for (i, j), value in np.ndenumerate(np.mean(posteriors, axis=0)):
        if i != j:
            assert said[names[i % 2], names[j], i // 2] == pytest.approx(value, abs=1e-6)
    assert model.n_resamples_ == n


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits_and_masks_change_nothing():
    rng = np.random.default_rng(701)
    data = {name: population(rng, 12, 40) for name in "abcd"}
    sites = {name: Site(name, one) for name, one in read_sites(data).items()}
    plain, again, masked = (
        fit(None, federation=make(dict(sites)), resamples=4)
        for make in (InProcessFederation, InProcessFederation, secure_federation)
    )
    assert probabilities(plain).equals(probabilities(again))
    np.testing.assert_allclose(probabilities(plain), probabilities(masked), atol=1e-6)
    other = fit(data, resamples=4, random_state=5)
    assert not probabilities(plain).equals(probabilities(other))


@pytest.mark.slow
def test_clean_data_lose_no_edge_and_no_network():
    kept = lost = 0
    for seed in range(700, 705):
        data = feddbn.simulate(d=5, n_sites=3, n_samples=400, random_state=seed)
        before, after = fit(data.sites, resamples=0), fit(data.sites)
        np.testing.assert_array_equal(before.W_, after.W_)
        assert after.n_rounds_ == before.n_rounds_ + 1
        assert after.n_resamples_ == usual_resamples(5)
        true = data.truth.is_edge.reshape(-1, 5)
        names = list(data.truth.variables)
        now, then = probabilities(after), probabilities(before)
        for i, j in np.argwhere(true):
            key = (names[i % 5], names[j], i // 5)
            kept += now[key] > 0.9
            lost += then[key] > 0.9 >= now[key]
    assert kept > 40
    assert lost <= 1


@pytest.mark.slow
def test_probabilities_fall_where_recordings_differ():
    options = {"features": "linear", "use_nongaussian": False, "prepare": AS_THEY_ARE}
    sure, less = [], []
    for seed in range(710, 720):
        rows = {"a": population(np.random.default_rng(seed))}
        for n, found in ((0, sure), (12, less)):
            table = fit(rows, resamples=n, **options).edge_probabilities_
            links = table[(table["source"] == "x") & (table["target"] == "y") & (table["lag"] == 0)]
            found.append(float(links["presence"].iloc[0]))
    # No such link is there on average: whoever is sure of it counts rows and not recordings.
    assert np.sum(np.array(sure) > 0.92) >= 4
    assert np.sum(np.array(less) > 0.92) <= np.sum(np.array(sure) > 0.92) - 3


class Refusing(InProcessFederation):
    """Sites of before, whose policies list no resamples."""

    def sum(self, task):
        if task.name == "gram.resamples":
            raise SiteRefused("not allowed")
        return super().sum(task)


def test_a_fit_goes_on_where_a_site_refuses_and_says_so():
    data = feddbn.simulate(d=3, n_sites=3, n_samples=150, random_state=702).sites
    sites = {name: Site(name, one) for name, one in read_sites(data).items()}
    model, plain = fit(None, federation=Refusing(sites), resamples=5), fit(data, resamples=0)
    assert probabilities(model).equals(probabilities(plain))
    assert model.n_resamples_ == 0
    found = codes(model)["probabilities-not-resampled"]
    assert (found.level, found.values["reason"]) == ("unknown", "refused")
    assert "probabilities-not-resampled" not in codes(plain)


def test_under_noise_nothing_is_resampled():
    data = feddbn.simulate(d=3, n_sites=3, n_samples=400, random_state=703).sites
    sites = {name: Site(name, one) for name, one in read_sites(data).items()}
    private = private_federation(sites, 50.0, rng=np.random.default_rng(0))
    model = fit(None, federation=private, resamples=5)
    assert codes(model)["probabilities-not-resampled"].values["reason"] == "noise"


@pytest.mark.slow
def test_noise_with_a_memory_curves_gaps_and_rare_events_are_resampled():
    rng = np.random.default_rng(704)
    noise = np.zeros((2000, 3))
    for t in range(1, 2000):
        noise[t] = 0.7 * noise[t - 1] + rng.normal(size=3) * (1 + 2 * (t // 100 % 2))
    a = noise[:, 0]
    remembering = pd.DataFrame({"a": a, "b": 0.9 * a + noise[:, 1], "c": 0.9 * a + noise[:, 2]})
    model = fit({"s": [remembering]}, resamples=3, prepare=AS_THEY_ARE)
    assert model.residuals_.noise_memory is not None
    assert model.n_resamples_ == 3
    x = rng.normal(size=(800, 2))
    x[1:, 1] += np.sin(2.5 * x[:-1, 0])
    bent = fit({"s": [pd.DataFrame(x, columns=["u", "v"])]}, features="spline", resamples=3)
    assert (bent.n_resamples_, bent.features_) == (3, "spline")
    assert probabilities(bent)["u", "v", 1] > 0.9
    gaps = remembering.mask(rng.random(remembering.shape) < 0.15)
    assert fit({"s": [gaps]}, resamples=3).n_resamples_ == 3
    rare = pd.DataFrame(x, columns=["u", "v"]).assign(event=(np.arange(800) == 400) * 1.0)
    assert np.isfinite(probabilities(fit({"s": [rare]}, resamples=6))).all()


def test_replicates_about_other_moments_have_these_as_their_whole():
    rng = np.random.default_rng(0)
    rows, other = rng.normal(size=(50, 3)), rng.normal(size=(80, 3)) @ np.diag([1.0, 5.0, 0.1])
    wanted = Moments.of_rows(other)
    found = ResampledMoments(Moments.of_rows(rows), (Moments.of_rows(rows[:25]),)).about(wanted)
    np.testing.assert_allclose(
        found.full.scatter / found.full.n, wanted.scatter / wanted.n, rtol=1e-6, atol=1e-8
    )
    assert np.linalg.eigvalsh(found.replicates[0].scatter).min() > 0
    assert found.replicates[0].n == 25


def test_directions_are_as_firm_as_resamples_agree():
    data = feddbn.simulate(d=3, n_sites=1, n_samples=200, random_state=0)
    (frame,) = data.sites["site-0"]
    learned = OrderLearner().learn(
        Moments.of_rows(frame.to_numpy()), EdgeConstraints.none(3, 0), np.random.default_rng(0)
    )
    edges = (EdgeOrientation(0, 1, 50.0), EdgeOrientation(1, 2, np.inf), EdgeOrientation(0, 2, 12.0, True))
    learned = replace(learned, orientation=edges)
    one, two = np.zeros((3, 3)), np.zeros((3, 3))
    one[0, 1], two[0, 1], two[1, 0] = 1.0, 0.6, 0.4
    prior = Hyper(0.1, 0.1, 1.0, 1.0)
    found = bagged(learned, [OrderPosterior(one, prior, 5), OrderPosterior(two, prior, 5)], 2.0)
    np.testing.assert_allclose(found.posterior.probability, (one + two) / 2)
    first, second, third = found.orientation
    assert first.score_difference == pytest.approx(2 * np.log(0.8 / 0.2))
    assert not first.oriented
    assert np.isinf(second.score_difference)
    # The mean over what draws of the difference would say, drawn here.
    drawn = 12 + 2 * np.sqrt(12) * np.random.default_rng(0).normal(size=400_000)
    share = np.mean(1 / (1 + np.exp(-drawn / 2)))
    assert third.score_difference == pytest.approx(2 * np.log(share / (1 - share)), rel=0.01)


def test_fewer_resamples_of_more_variables():
    assert [usual_resamples(d) for d in (3, 40, 41, 200, 201)] == [12, 12, 4, 4, 0]
