"""Robust rows under noise, and what new rows have of them."""

import numpy as np
import pandas as pd
import pytest

from feddbn import Prepare
from feddbn.data import read_sites
from feddbn.errors import ParameterError
from feddbn.federation.protocol.site import Here, Site, site_task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.methods.oneshot import OneShotDBN
from feddbn.results.scoring import score
from feddbn.runtime.simulated.private import private_federation
from feddbn.sim.simulation import simulate
from support.saying import refused

pytestmark = [
    pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning"),
]

NAMES = ("a", "b")


def recordings(n=6, rows=40, seed=0):
    rng = np.random.default_rng(seed)
    return [pd.DataFrame(rng.normal(size=(rows, 2)) * (1.0, 50.0), columns=NAMES) for _ in range(n)]


def units(frames, question, unit="recording"):
    data = read_sites({"one": frames})["one"]
    return list(site_task(question.name).units(Here("one", data, {}), question, unit))


def test_under_noise_no_recording_decides_about_the_cells_of_another():
    frames = recordings(n=3)
    frames[0].iloc[7, 0] = 80.0
    own = GramQuestion(n_lags=1, variables=NAMES, robust="recording")
    vectors = units(frames, own)
    # All rows stay, and the far cell counts as the median.
    assert [v[0] for v in vectors] == [39.0, 39.0, 39.0]
    assert abs(vectors[0][1] - frames[0]["a"].drop(7)[1:].sum()) < 1.0
    loud = [frames[0], frames[1] * 1e3, frames[2]]
    np.testing.assert_array_equal(units(loud, own)[0], vectors[0])
    for more in ({"robust": "site"}, {"log_scales": np.zeros(2)}):
        with refused(ParameterError, code="own-scales"):
            units(frames, GramQuestion(n_lags=1, variables=NAMES, **more))
    with refused(ParameterError, code="robust-mixes"):
        units(frames, own, "row")


def private_fit(made, unit="recording", **prepare):
    sites = {name: Site(name, data) for name, data in read_sites(made.sites).items()}
    private = private_federation(sites, 8.0, unit=unit, rng=np.random.default_rng(2))
    model = OneShotDBN(federation=private, prepare=Prepare(**prepare)).fit(None)
    found = score(made.truth, model.dbn_)
    return model.treatment_["robust"], found["W"]["shd"] + found["A"]["shd"]


@pytest.mark.slow
def test_spikes_turn_no_network_over_at_a_generous_epsilon_and_nothing_is_paid_for_it():
    made = simulate(
        d=5,
        n_sites=5,
        n_samples=12_000,
        n_recordings=60,
        mean_degree=2,
        random_state=1,
        corruptions={"spikes": 0.01},
    )
    robust, wrong = private_fit(made)
    assert robust == "recording"
    assert wrong <= 1
    assert private_fit(made, robust="off")[0] == "none"


def test_new_rows_are_robust_as_the_old_ones_were():
    made = simulate(d=3, n_sites=3, n_samples=900, random_state=0, corruptions={"spikes": 0.01})
    rows = Prepare(missing="drop", gains="none", on_disagreement="warn")
    model = OneShotDBN(prepare=rows).fit(made.sites)
    assert model.treatment_["robust"] == "site"
    more = simulate(d=3, n_sites=3, n_samples=900, random_state=0, corruptions={"spikes": 0.01})
    before = model._tally.moments.scatter
    after = model.update(more.sites)
    np.testing.assert_allclose(np.diag(after._tally.moments.scatter), 2 * np.diag(before), rtol=0.2)


def chained(shocks, n_sites=4, rows=300):
    """x -> y -> z within a row, and .3 of each stays; `shocks` draws the noise."""
    found = {}
    for k in range(n_sites):
        u, values = shocks((rows, 3)), np.zeros((rows, 3))
        for t in range(rows):
            last = values[t - 1] if t else np.zeros(3)
            for j in range(3):
                values[t, j] = 0.3 * last[j] + (0.6 * values[t, j - 1] if j else 0.0) + u[t, j]
        found[f"s{k}"] = pd.DataFrame(values, columns=list("xyz"))
    return found


@pytest.mark.slow
def test_shocks_that_travel_stay_and_errors_that_come_alone_do_not():
    rng = np.random.default_rng(0)

    def rare(shape):
        return rng.normal(size=shape) * np.where(rng.random(shape) < 0.04, 12.0, 1.0)

    travelling = chained(rare)
    model = OneShotDBN(features="linear").fit(travelling)
    assert model.treatment_["robust"] == "shocks"
    exact = OneShotDBN(features="linear", prepare=Prepare(robust="off")).fit(travelling)
    np.testing.assert_allclose(model.W_, exact.W_, atol=0.02)
    np.testing.assert_allclose(exact.W_[[0, 1], [1, 2]], 0.6, atol=0.06)
    # A value that no shock reaches changes nothing, though shocks stay.
    travelling["s1"].iloc[100, 2] = 1e5
    again = OneShotDBN(features="linear").fit(travelling)
    assert again.treatment_["robust"] == "shocks"
    np.testing.assert_allclose(again.W_, model.W_, atol=0.03)
    alone = chained(lambda shape: rng.normal(size=shape))
    for frame in alone.values():
        frame += np.where(rng.random(frame.shape) < 0.01, 30.0, 0.0)
    model = OneShotDBN(features="linear").fit(alone)
    assert model.treatment_["robust"] == "site"
    np.testing.assert_allclose(model.W_[[0, 1], [1, 2]], 0.6, atol=0.08)
