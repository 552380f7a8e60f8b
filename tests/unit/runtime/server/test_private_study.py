"""Several modules: a whole study with noise on the deployed path.

Through messages, fence and masks it chooses what the same noise gives in one process.
"""

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")
from feddbn.analysis import studies  # noqa: F401 (registers the methods)
from feddbn.core.statistics.moments import Moments
from feddbn.data import read_sites
from feddbn.errors import NotEnoughSites, ParameterError
from feddbn.federation.guards.noise import DpGuard, Promise
from feddbn.federation.guards.study_plan import tasks_of
from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.messages import WITHHELD
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Study, study_method
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.private_moments import guaranteed_sites, study_noise_plan
from feddbn.methods.oneshot import OneShotDBN
from feddbn.privacy.keys import Identity, pinned_keys
from feddbn.runtime.noisy import PrivateFederation, noise_aware
from feddbn.runtime.server.conduct import run_study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.simulated.secure import secure_federation
from feddbn.runtime.site.masking import SiteMasking
from feddbn.sim.simulation import simulate
from support.entropy import Entropy, seeded
from support.faults import Fault, FaultyExchange, LocalExchange, MemoryJournal, MemoryStore
from support.saying import refused

MADE = simulate(d=4, n_sites=5, n_samples=19 * 100, n_recordings=20, mean_degree=2, random_state=3)
DATA = read_sites(MADE.sites)
NAMES = tuple(sorted(DATA))
VARIABLES = DATA[NAMES[0]].variables
IDENTITIES = {name: Identity.from_seed(bytes([k + 1]) * 32) for k, name in enumerate(NAMES)}
MOMENTS = Task(GramQuestion(n_lags=1, variables=VARIABLES))


def make_study(method="oneshot", masked=True, clip=None, epsilon=4.0, parameters=None, **attendance):
    return Study(
        name="s",
        method=method,
        variables=VARIABLES,
        sites=NAMES,
        parameters={"n_lags": 1} if parameters is None else parameters,
        privacy={"secure_aggregation": masked, "epsilon": epsilon, "delta": 1e-5, "clip": clip},
        attendance=attendance or {"when_missing": "abort"},
    )


def guard(study, name):
    privacy = study.privacy
    rng = np.random.default_rng([7, NAMES.index(name)])
    promise = Promise(privacy.epsilon, privacy.delta)
    return DpGuard(study_noise_plan(study), rng.bytes, None, privacy.delta, promise=promise)


def exchange_of(study, tell=None):
    entropy = Entropy()

    def make(name):
        masked = SiteMasking(name, IDENTITIES[name], pinned_keys(IDENTITIES), 3, None, entropy=entropy(name))
        kept = guard(study, name)
        return SiteEndpoint(
            Site(name, DATA[name]),
            MemoryStore(name),
            guards=lambda run, plan: [kept],
            masked=masked,
            on_event=tell,
        )

    return LocalExchange(NAMES, make)


def coordinator_of(study, log=None, exchange=None):
    return Coordinator(
        exchange or exchange_of(study), study, "run-1", log or MemoryJournal(), pause_s=0.0, opening_s=0.0
    )


def in_process(study):
    sites = {name: Site(name, site, (guard(study, name),)) for name, site in DATA.items()}
    n_guaranteed = guaranteed_sites(study)
    secure = secure_federation(sites, threshold=n_guaranteed, random_bytes=seeded())
    return PrivateFederation(secure, study_noise_plan(study), n_guaranteed)


@pytest.mark.parametrize(
    ("clip", "parameters", "asked"),
    [
        (None, {"prepare.robust": "auto"}, {"counts.norms"}),
        (60.0, {"prepare.robust": "off", "features": "auto"}, set()),
    ],
)
def test_a_deployed_study_with_noise_gives_the_network_of_the_same_noise_in_process(clip, parameters, asked):
    study = make_study(clip=clip, epsilon=8.0, parameters={"n_lags": 1, **parameters})
    assert set(study_noise_plan(study).rules) == {"gram.rows"} | asked
    assert set(tasks_of(study)) == {"gram.rows"} | asked
    expected = study_method("oneshot").run(study.parameters, in_process(study))
    found, received = run_study(coordinator_of(study), study)
    assert received == NAMES
    for name, array in expected.arrays.items():
        np.testing.assert_allclose(found.arrays[name], array, rtol=1e-6, atol=1e-9, err_msg=name)
    assert np.any(found.arrays["W"] != 0)


def test_the_server_of_a_study_admits_the_noise_instead_of_taking_it_for_edges():
    study = make_study(clip=200.0, epsilon=3.0)
    found, _ = run_study(coordinator_of(study), study)
    unaware = coordinator_of(study)
    unaware.hello()
    sums = Moments.from_sums(unaware.sum(MOMENTS).value, 2 * len(VARIABLES))
    naive = OneShotDBN().fit_moments(sums, VARIABLES)
    assert np.count_nonzero(found.arrays["W"]) < np.count_nonzero(naive.W)


def test_a_resumed_study_reads_the_same_noise_from_its_journal():
    study, log = make_study(), MemoryJournal()
    first = noise_aware(coordinator_of(study, log), study)
    first._federation.hello()
    value = first.sum(MOMENTS).value
    resumed = noise_aware(coordinator_of(study, log), study)
    np.testing.assert_array_equal(resumed.sum(MOMENTS).value, value)
    assert resumed.last.sigma == first.last.sigma


def test_missing_sites_change_the_noise_of_a_sum_and_the_server_knows():
    study = make_study(clip=60.0, when_missing="continue", min_sites=4, max_wait_s=5.0)
    sigmas = {}
    for away in ((), (NAMES[0],)):
        faulty = FaultyExchange(exchange_of(study), Fault(), np.random.default_rng(0))
        coordinator = coordinator_of(study, exchange=faulty)
        coordinator.hello()
        faulty.away = set(away)
        private = noise_aware(coordinator, study)
        assert len(private.sum(MOMENTS).contributors) == 5 - len(away)
        sigmas[len(away)] = private.last.sigma
    # Each adds a third of the variance: four sites are guaranteed, and one of them may tell its share.
    plan = study_noise_plan(study)
    assert sigmas[1] == pytest.approx(plan.multiplier * 60.0 * np.sqrt(4 / 3))
    assert sigmas[0] == pytest.approx(plan.multiplier * 60.0 * np.sqrt(5 / 3))


def test_without_masks_every_site_adds_all_of_the_noise():
    study = make_study(masked=False, clip=60.0)
    private = noise_aware(coordinator_of(study), study)
    private._federation.hello()
    private.sum(MOMENTS)
    expected = study_noise_plan(study).multiplier * 60.0 * np.sqrt(5)
    assert private.last.sigma == pytest.approx(expected)


def test_a_task_that_would_break_the_promise_is_refused_by_the_sites():
    study, events = make_study(clip=60.0), []
    coordinator = coordinator_of(study, exchange=exchange_of(study, events.append))
    coordinator.hello()
    with pytest.raises(NotEnoughSites, match=WITHHELD):
        coordinator.sum(Task(GramQuestion(diagonal=True, n_lags=1, variables=VARIABLES)))
    assert events[-1].code == "over-budget"
    assert "'gram.diagonal'" in events[-1].sentence
    private = noise_aware(coordinator, study)
    private.sum(MOMENTS)
    with pytest.raises(NotEnoughSites, match=WITHHELD):
        private.sum(MOMENTS)
    assert events[-1].code == "over-budget"
    assert "'gram.rows'" in events[-1].sentence


@pytest.mark.promise
@pytest.mark.parametrize(
    ("method", "parameters", "said"),
    [
        ("fdbnl", {}, ("'fdbnl'", "oneshot")),
        ("oneshot", {"features": "spline"}, ("features = 'spline'", "features = 'linear'")),
    ],
)
def test_noise_with_other_sums_than_linear_moments_is_refused_before_anything_is_sent(
    method, parameters, said
):
    study = make_study(method, parameters=parameters)
    with refused(ParameterError, "privacy.epsilon", *said):
        run_study(coordinator_of(study), study)


@pytest.mark.parametrize(("unit", "robust"), [("row", "none"), ("recording", "recording")])
def test_rows_are_robust_where_recordings_are_protected_and_as_they_are_where_rows_are(unit, robust):
    study = make_study(clip=200.0, epsilon=8.0)
    study = study.model_copy(update={"privacy": study.privacy.model_copy(update={"unit": unit})})
    found, _ = run_study(coordinator_of(study), study)
    assert found.summary["result"]["diagnostics"]["treatment"]["robust"] == robust


def test_a_study_without_noise_has_no_noise_plan():
    study = make_study(epsilon=None)
    with refused(ParameterError, "noise"):
        study_noise_plan(study)
    assert guaranteed_sites(make_study(masked=False)) == 1
    assert guaranteed_sites(make_study()) == 4
