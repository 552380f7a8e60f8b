from dataclasses import replace

import numpy as np
import pytest

from feddbn.core.designs.recordings import Block
from feddbn.data import Recording, read_sites
from feddbn.data import Site as DataSite
from feddbn.errors import BudgetExceeded, ParameterError
from feddbn.federation.guards.noise import DpGuard
from feddbn.federation.protocol.site import Here, Site, site_task
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.private_moments import private_moments_plan
from feddbn.methods.oneshot import OneShotDBN
from feddbn.results.scoring import score
from feddbn.runtime.noisy import PrivateFederation
from feddbn.runtime.simulated.private import private_federation
from feddbn.runtime.simulated.secure import secure_federation
from feddbn.sim.simulation import simulate
from support.saying import refused

pytestmark = [
    pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning"),
]


def _private(n_recordings, epsilon, seed=0, d=5, clip_bound=None):
    federation = simulate(
        d=d,
        n_sites=5,
        n_samples=19 * n_recordings,
        n_recordings=n_recordings // 5,
        mean_degree=2,
        random_state=seed,
    )
    plan = private_moments_plan("gram.rows", "recording", epsilon, 1e-5, clip_bound)
    guards = {
        name: DpGuard(plan, np.random.default_rng([seed, k]).bytes, 1.001 * epsilon, 1e-5)
        for k, name in enumerate(federation.sites)
    }
    sites = {name: Site(name, data, (guards[name],)) for name, data in read_sites(federation.sites).items()}
    return federation, PrivateFederation(secure_federation(sites), plan, n_guaranteed=4), guards


def test_oneshot_finds_the_network_under_recording_level_privacy():
    federation, private, guards = _private(300, 8.0)
    model = OneShotDBN(federation=private).fit(None)
    assert score(federation.truth, model.dbn_)["W"]["shd"] <= 1
    assert private.last.noisy.moments.n < 5_700
    for guard in guards.values():
        assert guard.epsilon() == pytest.approx(8.0, rel=2e-3)


def test_a_private_federation_is_made_of_plain_sites_in_one_call():
    made = simulate(d=4, n_sites=4, n_samples=19 * 200, n_recordings=50, mean_degree=2, random_state=5)
    sites = {name: Site(name, data) for name, data in read_sites(made.sites).items()}
    private = private_federation(sites, 8.0, rng=np.random.default_rng(2))
    # Free variances leave directions open, about which a further sum would be asked if it could be paid for.
    model = OneShotDBN(noise_variance="free", federation=private).fit(None)
    skeletons = [(W != 0) | (W != 0).T for W in (model.W_, made.truth.W)]
    # Under noise a link that is a little more likely than not may be wrong.
    assert np.logical_xor(*skeletons).sum() <= 2
    assert model.nongaussian_ is None
    assert private.last.sigma > 0
    assert not any(site.guards for site in sites.values())
    with pytest.raises(BudgetExceeded, match="this site's budget is 8"):
        OneShotDBN(federation=private).fit(None)


def test_asking_for_more_than_moments_on_purpose_is_refused_by_the_sites():
    made = simulate(d=3, n_sites=3, n_samples=19 * 90, n_recordings=30, mean_degree=2, random_state=5)
    sites = {name: Site(name, data) for name, data in read_sites(made.sites).items()}
    private = private_federation(sites, 8.0, clip=60.0, rng=np.random.default_rng(2))
    with refused(BudgetExceeded, "'residuals.shapes'", "inf", code="over-budget"):
        OneShotDBN(noise_variance="free", use_nongaussian=True, federation=private).fit(None)


@pytest.mark.filterwarnings("ignore:these data do not show")
def test_with_little_budget_the_network_becomes_sparse_not_wrong():
    fdr, tpr = [], []
    for seed in range(2):
        federation, private, _ = _private(100, 1.0, seed=seed)
        part = score(federation.truth, OneShotDBN(federation=private).fit(None).dbn_)["W"]
        fdr.append(part["fdr"])
        tpr.append(part["tpr"])
    assert np.nanmean(fdr) < 0.3
    assert np.mean(tpr) < 0.9


def test_second_fit_exceeds_the_budget_and_is_refused_by_the_sites():
    _, private, _ = _private(50, 8.0, clip_bound=50.0)
    OneShotDBN(federation=private).fit(None)
    with refused(BudgetExceeded, code="over-budget"):
        OneShotDBN(federation=private).fit(None)


def test_other_tasks_pass_through_to_the_guards():
    _, private, _ = _private(50, 1.0, clip_bound=50.0)
    assert len(private.sites) == 5
    with refused(BudgetExceeded, "'gram.diagonal'", "inf", code="over-budget"):
        private.sum(Task(GramQuestion(diagonal=True, n_lags=1, variables=private.variables)))


def test_number_of_guaranteed_sites_must_fit():
    _, private, _ = _private(50, 1.0)
    with refused(ParameterError, "n_guaranteed", "6"):
        PrivateFederation(private, private._plan, 6)


def test_rows_of_moments_are_units_too():
    rng = np.random.default_rng(0)
    data = DataSite(("a", "b"), [Recording("r", (Block(rng.normal(size=(9, 2))),))])
    program = site_task("gram.rows")
    here, question = Here("a", data, {}), GramQuestion(n_lags=2, variables=("a", "b"))
    rows = list(program.units(here, question, "row"))
    assert len(rows) == 7
    np.testing.assert_allclose(sum(rows), program.answer(here, question)[1])
    with refused(ParameterError, "center='recording'"):
        list(program.units(here, replace(question, center="recording"), "row"))
    with refused(ParameterError, "unit='person'"):
        list(program.units(here, question, "person"))
