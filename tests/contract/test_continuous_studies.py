"""A network in continuous time among deployed sites: masks, the noise of masked studies, policies."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("cryptography")
import feddbn
from feddbn.analysis import studies  # noqa: F401 (registers the methods)
from feddbn.errors import SiteRefused
from feddbn.federation.guards.study_plan import plan_of, scope_of
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import of_task, tasks_in
from support.consortium import Consortium, Liar, by_rule
from support.saying import refused
from support.study_files import ABOUT

NAMES = ("x0", "x1", "x2")
TRUTH = np.array([[-0.5, 0.5, 0], [0, -0.8, 0], [0, 0, -0.4]])
NETWORK = feddbn.RateNetwork.driven(TRUTH, noise=[1.0, 1.0, 1.0], variables=NAMES)
STUDY = {"step": "1h", "shortest": 0.25, "longest": 16}


def frames(rng, network, n_recordings=4, n=160):
    found = []
    for _ in range(n_recordings):
        times = np.round(np.cumsum(rng.exponential(0.5, n)), 4)
        values = network.sample(times, random_state=rng).to_numpy() + np.array([70, 120, 37])
        values[rng.random(values.shape) > 0.7] = np.nan
        values[np.isnan(values).all(axis=1), 0] = 70.0
        at = pd.Timestamp("2026-03-01") + pd.to_timedelta(times - times[0], unit="h")
        found.append(pd.DataFrame(values, columns=NAMES).assign(at=at.round("s")))
    return found


class TimedSites(Consortium):
    """Sites whose rows are at times of their own."""

    def __init__(self, place, tables, policy):
        super().__init__(
            place,
            {name: [one[list(NAMES)].to_numpy() for one in own] for name, own in tables.items()},
            policy,
        )
        for name, own in tables.items():
            for number, frame in enumerate(own):
                frame.to_csv(place / name / "data" / f"r{number:03d}.csv", index=False, float_format="%.17g")
            path = place / name / "feddbn_site.toml"
            path.write_text('time = "at"\nirregular = "keep"\n' + path.read_text())


def study(method="continuous", parameters=None, **privacy):
    return Study(
        name="s",
        about=ABOUT,
        method=method,
        variables=NAMES,
        sites=tuple(f"s{k}" for k in range(4)),
        parameters=STUDY if parameters is None else parameters,
        privacy={"secure_aggregation": True, "min_sites": 3, **privacy},
    )


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(900)
    return {f"s{k}": frames(rng, NETWORK) for k in range(4)}


def conducted(sites, asked):
    """The result of a study, and the names and lengths of the sums that its server has read."""
    result, heard = sites.curious(asked)
    assert not isinstance(result, Exception), result
    return result, [(task.name, len(value)) for task, value in heard]


@pytest.mark.slow
@pytest.mark.parametrize("protection", ["exact", "noise"])
def test_deployed_sites_learn_the_rates_that_one_process_learns(tmp_path, tables, protection):
    sites = TimedSites(tmp_path, tables, by_rule("gram.lags"))
    asked = study(**({"protection": "exact"} if protection == "exact" else {}))
    result, seen = conducted(sites, asked)
    assert [name for name, _ in seen] == list(tasks_in(plan_of(asked)))
    for name, length in seen:
        assert (1, length) == of_task(plan_of(asked), name)
    alone = feddbn.ContinuousDBN(**STUDY).fit(tables, time="at")
    edges = {(row["source"], row["target"]) for _, row in alone.edges_.iterrows()}
    assert ("x0", "x1") in edges
    A = np.asarray(result.arrays["A_raw"])
    np.testing.assert_allclose(A[0], alone.A_[0], atol=1e-6 if protection == "exact" else 0.15)


def test_an_owner_allows_it_by_name(tmp_path, tables):
    sites = TimedSites(tmp_path, tables, by_rule())
    with refused(SiteRefused, code="tasks-not-allowed"):
        Liar(sites, study())


@pytest.mark.parametrize(
    ("method", "parameters", "code"),
    [
        ("continuous", {}, "other-clock"),
        ("continuous", {"step": "0.5"}, "other-clock"),
        ("oneshot", {}, "irregular-times"),
    ],
)
def test_a_study_with_another_clock_hears_why_before_it_begins(tmp_path, tables, method, parameters, code):
    sites = TimedSites(tmp_path, tables, by_rule("gram.lags"))
    with refused(SiteRefused, code=code):
        Liar(sites, study(method, parameters))


def test_what_a_study_may_ask_is_its_own_bins():
    scope = scope_of(study(), 3)
    assert 0 in scope.lags
    assert scope.parameters["longest"] == 16
