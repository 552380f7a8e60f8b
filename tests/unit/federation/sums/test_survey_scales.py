"""feddbn.federation.sums.survey: scales under noise, and far cells left out by them."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from feddbn import Prepare
from feddbn.core.statistics.survey import N_BINS
from feddbn.data import read_sites
from feddbn.errors import BudgetExceeded, ParameterError
from feddbn.federation.guards.noise import DpGuard
from feddbn.federation.protocol.site import Here, Site, site_task
from feddbn.federation.protocol.task import Sum, Task, run_program
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.private_moments import SPIKES_SHARE, private_moments_plan
from feddbn.federation.sums.survey import DeviationSharesQuestion, above_noise, scales_program
from feddbn.methods.oneshot import OneShotDBN
from feddbn.results.scoring import score
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.private import private_federation
from feddbn.sim.simulation import simulate
from support.saying import only, refused

pytestmark = pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning")

NAMES = ("a", "b")


def recordings(n=6, rows=40, seed=0, scale=(1.0, 50.0)):
    rng = np.random.default_rng(seed)
    return [pd.DataFrame(rng.normal(size=(rows, 2)) * scale, columns=NAMES) for _ in range(n)]


def site_of(frames, name="one"):
    return read_sites({name: frames})[name]


def units(data, question, unit="recording"):
    return list(site_task(question.name).units(Here("one", data, {}), question, unit))


def told_scales(shares):
    """What the server reads off a sum."""
    program = scales_program(NAMES, 1)
    next(program)
    with pytest.raises(StopIteration) as end:
        program.send(Sum(np.ravel(shares), ("one",)))
    return end.value.value


def question():
    return DeviationSharesQuestion(n_lags=1, variables=NAMES)


def test_a_recording_moves_the_sum_by_at_most_one_whatever_is_in_it():
    frames = recordings()
    frames[0].iloc[:, :] = 0.0
    frames[1].iloc[3, 0] = 1e30
    frames[2].iloc[5:30, 1] = np.nan
    vectors = units(site_of(frames), question())
    assert len(vectors) == 6
    assert all(len(v) == 2 * N_BINS and (v >= 0).all() for v in vectors)
    norms = [np.linalg.norm(v) for v in vectors]
    # All cells of the first do not move: both of its distributions are one bin, so the bound is reached.
    assert norms[0] == pytest.approx(1.0)
    assert max(norms) <= 1.0 + 1e-12
    # One recording more or less changes no other vector.
    for kept, whole in zip(units(site_of(frames[1:]), question()), vectors[1:], strict=True):
        np.testing.assert_array_equal(kept, whole)


def test_scales_are_medians_of_deviations_from_running_medians():
    frames = {name: recordings(seed=k) for k, name in enumerate("xyz")}
    sites = {name: Site(name, site_of(given, name)) for name, given in frames.items()}
    scales = run_program(scales_program(NAMES, 1), InProcessFederation(sites))
    moved = [(f - f.rolling(7, center=True).median()).abs() for given in frames.values() for f in given]
    # Bins are half an octave wide, pandas leaves out the three rows at either end, and smallest bins may stand alone.
    every = pd.concat(moved)
    np.testing.assert_allclose(scales, every[every > 0].median() / norm.ppf(0.75), rtol=0.1)


def test_bins_within_the_noise_are_empty_and_a_scale_needs_some():
    assert above_noise(np.array([3.9, 4.1, -9.0]), 1.0).tolist() == [0.0, 4.1, 0.0]

    shares = np.zeros((2, N_BINS))
    shares[:, 96:99] = 5.0
    # A bin that noise has filled stands alone; three bins apart are no scale.
    shares[0, 3] = 14.0
    alone = told_scales(shares)
    assert alone[0] == alone[1] > 0
    shares[1] = 0.0
    shares[1, [90, 95, 96]] = 9.0
    assert told_scales(shares)[1] == 0


def test_noise_alone_seldom_makes_a_scale_far_too_small():
    """Too small a scale would throw good cells away; these numbers of recordings are at the border of what can be read."""
    rng = np.random.default_rng(0)
    true = units(site_of(recordings(n=1, rows=20_000)), question())[0]
    lowest = []
    for n_recordings in (60, 100, 200):
        for _ in range(100):
            told = above_noise(n_recordings * true + rng.normal(scale=2.0, size=len(true)), 2.0)
            lowest.append(told_scales(told))
    found = np.array(lowest) / told_scales(true)
    assert 0.1 < np.mean(found > 0) < 1.0
    assert found[found > 0].min() > 0.4


@pytest.mark.parametrize("clip", [None, 60.0])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_all_releases_together_cost_epsilon_by_an_independent_accountant(epsilon, clip):
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting import pld

    plan = private_moments_plan("gram.rows", "recording", epsilon, 1e-5, clip, spikes_share=SPIKES_SHARE)
    names = {"survey.shares", "gram.rows"} | ({"counts.norms"} if clip is None else set())
    assert set(plan.rules) == names
    book = pld.PLDAccountant(value_discretization_interval=1e-3)
    for name in names:
        book.compose(dp_accounting.GaussianDpEvent(plan.multiplier_of(name)))
    assert book.get_epsilon(1e-5) == pytest.approx(epsilon, rel=2e-3)
    alone = pld.PLDAccountant(value_discretization_interval=1e-3)
    alone.compose(dp_accounting.GaussianDpEvent(plan.multiplier_of("survey.shares")))
    assert alone.get_epsilon(1e-5) < 0.4 * epsilon


def test_noise_of_the_released_sum_has_the_planned_size():
    plan = private_moments_plan("gram.rows", "recording", 4.0, 1e-5, 60.0, spikes_share=SPIKES_SHARE)
    guard = DpGuard(plan, np.random.default_rng(3).bytes, None, 1e-5)
    data = site_of(recordings())
    task = Task(question())
    plain = Site("one", data).answer(task)
    noise = Site("one", data, (guard,)).answer(task) - plain
    # One of 2 * 192 numbers varies by 4 %, so four standard errors are 15 %.
    assert np.std(noise) == pytest.approx(plan.multiplier_of("survey.shares"), rel=0.15)
    assert plan.noise_in_sum("survey.shares", 1.0, 1, 9, 4) == pytest.approx(
        1.5 * plan.multiplier_of("survey.shares")
    )
    assert [release.task for release in guard.ledger.releases] == ["survey.shares"]


def test_under_noise_no_recording_decides_about_the_cells_of_another():
    frames = recordings(n=3)
    frames[0].iloc[7, 0] = 8.0
    limits = np.array([1.0, 50.0])
    common = GramQuestion(n_lags=1, variables=NAMES, limits=limits, far=6.0, own_limits=False)
    vectors = units(site_of(frames), common)
    # The far cell is in two lagged rows, which are gone; the count is the first number.
    assert [v[0] for v in vectors] == [37.0, 39.0, 39.0]
    loud = [frames[0], frames[1] * 1e3, frames[2]]
    np.testing.assert_array_equal(units(site_of(loud), common)[0], vectors[0])
    own = GramQuestion(n_lags=1, variables=NAMES, limits=limits, far=6.0)
    gains = GramQuestion(n_lags=1, variables=NAMES, log_scales=np.zeros(2))
    for question in (own, gains):
        with refused(ParameterError, code="own-scales"):
            units(site_of(frames), question)
    with refused(ParameterError, code="limits-mix"):
        units(site_of(frames), common, "row")


def test_single_rows_cannot_be_protected_and_a_share_must_leave_something():
    with refused(ParameterError, "unit='row'", "spikes='remove'"):
        private_federation({"a": Site("a", site_of(recordings()))}, 1.0, unit="row", spikes=True)
    with refused(ParameterError, "unit='row'"):
        units(site_of(recordings()), question(), "row")
    with refused(ParameterError, "spikes_share", 0, "0.9"):
        private_moments_plan("gram.rows", "recording", 1.0, 1e-5, spikes_share=0.9)


def spiky_sites(n_recordings=300, mess=None):
    made = simulate(
        d=5,
        n_sites=5,
        n_samples=40 * n_recordings,
        n_recordings=n_recordings // 5,
        mean_degree=2,
        random_state=1,
        mess=mess,
    )
    return made, {name: Site(name, data) for name, data in read_sites(made.sites).items()}


def test_spikes_are_left_out_at_a_generous_epsilon_and_it_is_said():
    made, sites = spiky_sites(mess={"spikes": 0.01})
    wrong = {}
    for spikes in ("keep", "remove"):
        private = private_federation(sites, 8.0, spikes=spikes == "remove", rng=np.random.default_rng(2))
        model = OneShotDBN(federation=private, prepare=Prepare(spikes=spikes)).fit(None)
        found = score(made.truth, model.dbn_)
        wrong[spikes] = found["W"]["shd"] + found["A"]["shd"]
    assert model.treatment_["spikes"] == list(made.truth.variables)
    only(model.findings_, "outliers-removed-under-noise")
    assert wrong["remove"] <= 1
    assert wrong["keep"] >= 5
    with refused(BudgetExceeded, 8, code="over-budget"):
        OneShotDBN(federation=private, prepare=Prepare(spikes="remove")).fit(None)


def test_what_noise_hides_and_what_nobody_paid_for_is_said():
    _, sites = spiky_sites(50)
    poor = private_federation(sites, 2.0, clip=60.0, spikes=True, rng=np.random.default_rng(2))
    said = OneShotDBN(federation=poor, prepare=Prepare(spikes="remove")).fit(None).findings_
    assert only(said, "scales-hidden-by-noise").about == ("x0", "x1", "x2", "x3", "x4")
    plain = private_federation(sites, 8.0, clip=60.0, rng=np.random.default_rng(2))
    said = OneShotDBN(federation=plain, prepare=Prepare(spikes="remove")).fit(None).findings_
    only(said, "outliers-kept-under-noise")
