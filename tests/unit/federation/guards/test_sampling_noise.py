"""Noise of a share of each sum's own sampling error: its size, its draws, and what works under it."""

import numpy as np
import pytest

import feddbn
from feddbn.data import read_sites
from feddbn.errors import SiteRefused
from feddbn.federation.guards.sampling_noise import SamplingNoise, about_noise, few_rows
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.survey import SurveyQuestion
from feddbn.privacy.gaussian import gaussian_epsilon
from feddbn.privacy.ledger import GaussianRelease, Ledger
from feddbn.privacy.noise_plan import NOMINAL_DELTA, nominal_multiplier

NAMES = ("u", "v", "w")


def site_of(values, key=b"key", **options):
    data = read_sites({"a": values}, variables=NAMES, missing="keep")["a"]
    return Site("a", data, (SamplingNoise(key, **options),) if key else ())


def asked(n_lags=0, **fields):
    return Task(GramQuestion(n_lags=n_lags, variables=NAMES, **fields))


def rows(n, seed=0, level=0.0):
    return np.random.default_rng(seed).normal(size=(n, 3)) @ np.diag([1.0, 2.0, 0.5]) + level


def test_noise_is_three_tenths_of_the_sampling_error():
    values = rows(800)
    exact = site_of(values, None).answer(asked())
    drawn = np.array([site_of(values, f"{k}".encode()).answer(asked()) for k in range(300)]) - exact
    products = np.einsum("ti,tj->tij", values, values)[:, *np.triu_indices(3)]
    errors = np.sqrt(800) * np.concatenate([values, products], axis=1).std(axis=0)
    np.testing.assert_allclose(drawn[:, 1:].std(axis=0) / errors, 0.3, atol=0.05)
    np.testing.assert_allclose(drawn[:, 1:].mean(axis=0) / errors, 0.0, atol=0.06)
    # How many rows there are is told as it is.
    assert not drawn[:, 0].any()


def test_far_levels_do_not_blow_it_up():
    """A variance is as uncertain at a level of a thousand deviations as at zero."""
    spread = []
    for level in (0.0, 1000.0):
        values, found = rows(800, level=level), []
        for k in range(60):
            n, *sums = site_of(values, f"{k}".encode()).answer(asked())
            found.append(sums[3] / n - (sums[0] / n) ** 2)
        spread.append(np.std(found))
    assert spread[1] == pytest.approx(spread[0], rel=0.3)


def test_cells_that_are_bounded_are_bounded_in_the_noise():
    values = rows(200)
    values[0, 0] = -999.0
    task = asked(robust="site")
    exact = site_of(values, None).answer(task)
    noise = [site_of(values, f"{k}".encode()).answer(task) - exact for k in range(60)]
    assert np.abs(noise).max() < 1e3


def test_the_same_question_about_the_same_rows_has_the_same_noise():
    values = rows(300)
    first = site_of(values).answer(asked())
    np.testing.assert_array_equal(site_of(values).answer(asked()), first)
    # An origin chooses no rows: moments about it are those of the same draw.
    about = site_of(values).answer(asked(origin=np.ones(3)))
    np.testing.assert_allclose(about[1:4], first[1:4] - first[0], atol=0.02)
    exact = site_of(values, None).answer(asked())
    others = [
        site_of(values, b"other").answer(asked()) - exact,
        site_of(values).answer(asked(center="recording"))[1:4],
        site_of(rows(300, level=1e-9)).answer(asked()) - exact,
    ]
    assert all(np.abs(one[1:4] - (first - exact)[1:4]).max() > 0.1 for one in (others[0], others[2]))


def test_a_look_has_one_noise_whichever_rows_are_held_out():
    first, again = (
        site_of(rows(300)).answer(Task(SurveyQuestion(n_lags=1, variables=NAMES, fold=fold)))
        for fold in ((), (0, 1, 250))
    )
    np.testing.assert_array_equal(first, again)


def test_too_few_rows_to_tell_the_error_are_refused():
    with pytest.raises(SiteRefused) as refused:
        site_of(rows(2)).answer(asked(n_lags=1))
    assert refused.value.code == "no-noise"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning")
def test_what_a_site_keeps_grows_by_its_parts_and_rounds_go_on():
    data = feddbn.simulate(d=4, n_sites=3, n_samples=900, random_state=1)
    for make in (
        lambda **k: feddbn.PFDBNL(**k),
        lambda **k: feddbn.OneShotDBN(features="spline", **k),
        feddbn.OneShotDBN,
    ):
        exact = make().fit(data.sites)
        noisy = make(federation=feddbn.simulated(data.sites, protection="noise")).fit(None)
        assert 0 < np.abs(noisy.W_ - exact.W_).max() < 0.05
        assert ((noisy.W_ != 0) == (exact.W_ != 0)).all()
        assert {one.code for one in noisy.findings_} == {one.code for one in exact.findings_}


def test_it_compares_as_the_table_says_and_as_the_accountant_counts():
    pytest.importorskip("dp_accounting")
    length = 1 + 16 + 16 * 17 // 2
    for n, epsilon in ((1_000, 13.6), (5_000, 5.3), (20_000, 2.4)):
        multiplier = nominal_multiplier(n, length, 1)
        assert gaussian_epsilon(NOMINAL_DELTA, multiplier) == pytest.approx(epsilon, abs=0.06)
        booked = Ledger((GaussianRelease("gram.rows", multiplier, "row"),))
        assert booked.epsilon(NOMINAL_DELTA) == pytest.approx(epsilon, abs=0.06)


def test_what_is_said_about_it():
    fields = {
        "name": "s",
        "method": "oneshot",
        "variables": [f"v{i}" for i in range(8)],
        "sites": ["a", "b", "c"],
    }
    masked = Study(**fields, parameters={"n_lags": 1}, privacy={"secure_aggregation": True})
    values = about_noise(masked, 5_000, 1_000, 1).values
    assert values["row"] == pytest.approx(13.6, abs=0.06)
    assert values["all"] > values["row"]
    assert values["recording"] is None
    assert few_rows(masked, 999).code == "noise-few-rows"
    assert few_rows(masked, 1_000) is None
    for privacy in (
        {},
        {"secure_aggregation": True, "protection": "exact"},
        {"secure_aggregation": True, "epsilon": 1.0},
    ):
        other = Study(**fields, privacy=privacy)
        assert about_noise(other, 153, 1_000) is None
        assert few_rows(other, 10) is None


def test_what_answers_compare_to_adds_up():
    guard = SamplingNoise(b"key", rows=2000)
    site = Site("a", read_sites({"a": rows(300)}, variables=NAMES)["a"], (guard,))
    assert guard.epsilon() is None
    precision = 0.0
    for n_lags in (0, 1):
        task = asked(n_lags)
        site.answer(task)
        precision += guard.last_noise(task) ** -2
        assert guard.epsilon() == pytest.approx(gaussian_epsilon(NOMINAL_DELTA, precision**-0.5))
    assert precision > 1.1 * guard.last_noise(task) ** -2
