import math

import numpy as np
import pytest

from feddbn.core.designs.recordings import lagged_rows
from feddbn.core.statistics.moments import Moments
from feddbn.errors import BudgetExceeded, ParameterError, ProtocolError
from feddbn.federation.guards.noise import DpGuard
from feddbn.federation.guards.site_guards import AuditGuard
from feddbn.federation.protocol.site import PLAIN, Channel, Here, Site
from feddbn.federation.protocol.task import Task, number, run_program, whole
from feddbn.federation.sums.private_moments import (
    UnitNormsQuestion,
    private_moments,
    private_moments_plan,
)
from feddbn.privacy.audit import parse_entries
from feddbn.privacy.gaussian import noise_multiplier
from feddbn.privacy.ledger import GaussianRelease, Ledger, UnprotectedRelease
from feddbn.privacy.noise_plan import ClipRule, NoisePlan, multiplier_for, norm_edges
from feddbn.runtime.simulated.secure import secure_federation
from support.questions import make_question
from support.saying import refused
from support.sites import memory_site


def _units(here, question, unit):
    for recording in here.data.recordings():
        rows = np.concatenate(list(lagged_rows(recording.blocks(), question.n_lags)))
        for part in [rows] if unit == "recording" else rows[:, None, :]:
            yield Moments.of_rows(part).to_sums()


def _run(here, question):
    return {"seen": np.ones(1)}, sum(_units(here, question, "recording"))


def _exact(data):
    return _run(Here("a", data, {}), TASK.question)[1]


FIELDS = {"n_lags": whole(default=1), "i": whole(default=0), "clip_bound": number(default=None)}
DpMoments = make_question("dp-moments", _run, _units, lambda question: 15, **FIELDS)
DpWhole = make_question("dp-whole", lambda here, question: (here.state, np.full(4, 10.0)))
TASK = Task(DpMoments())
WHOLE = Task(DpWhole())


def _data(rng, n_recordings=30, d=2, length=12, scale=1.0):
    return memory_site(*(scale * rng.normal(size=(length, d)) for _ in range(n_recordings)))


def _plan(bound=50.0, epsilon=1.0, **more):
    return NoisePlan(
        "recording", multiplier_for(epsilon, 1e-5), {"dp-moments": ClipRule(bound, "gram")}, **more
    )


def _guard(plan=None, seed=0, budget=2.0, **more):
    return DpGuard(plan or _plan(), np.random.default_rng(seed).bytes, budget, 1e-5, **more)


def test_answer_is_noisy_and_state_is_kept():
    rng = np.random.default_rng(0)
    data = _data(rng)
    site = Site("a", data, (_guard(),))
    noisy, exact = site.answer(TASK), _exact(data)
    assert np.all(noisy != exact)
    whole = make_question("dp-state", lambda here, question: ({"seen": np.ones(1)}, np.zeros(2)))
    plan = NoisePlan("recording", 1.0, {"dp-state": ClipRule(2.0)})
    site = Site("a", data, (_guard(plan, budget=None),))
    site.answer(Task(whole()))
    assert site.state["seen"] == 1.0


def test_noise_has_the_calibrated_size_and_the_unit_is_clipped():
    rng = np.random.default_rng(1)
    data = _data(rng, n_recordings=1)
    exact = _exact(data)
    guard = _guard(_plan(bound=1e6), budget=None)
    site = Site("a", data, (guard,))
    errors = np.array([(site.answer(TASK) - exact)[1:5] for _ in range(400)])
    assert errors.std() == pytest.approx(noise_multiplier(1.0, 1e-5) * 1e6, rel=0.06)
    assert guard.last.n_clipped == 0
    small = _guard(_plan(bound=1e-3), budget=None)
    clipped = Site("a", data, (small,)).answer(TASK)
    assert small.last.n_clipped == 1
    assert np.linalg.norm(clipped) < 1.0


@pytest.mark.slow
@pytest.mark.parametrize(("n_guaranteed", "n_colluding", "share"), [(1, 0, 1), (9, 0, 9), (9, 5, 4)])
def test_share_of_noise_follows_the_channel(n_guaranteed, n_colluding, share):
    data = _data(np.random.default_rng(2), n_recordings=1)
    exact = _exact(data)
    site = Site("a", data, (_guard(_plan(bound=1e6, n_colluding=n_colluding), budget=None),))
    channel = Channel(masked=n_guaranteed > 1, n_guaranteed=n_guaranteed)
    errors = np.array([(site.answer(TASK, channel) - exact)[1:5] for _ in range(400)])
    assert errors.std() == pytest.approx(noise_multiplier(1.0, 1e-5) * 1e6 / math.sqrt(share), rel=0.06)


@pytest.mark.slow
def test_rows_as_units_pay_for_every_lag_they_are_part_of():
    data = _data(np.random.default_rng(3), n_recordings=1)
    exact = _exact(data)
    plan = NoisePlan("row", 1.0, {"dp-moments": ClipRule(1e6, "gram")})
    site = Site("a", data, (_guard(plan, budget=None),))
    errors = np.array([(site.answer(TASK) - exact)[1:5] for _ in range(400)])
    assert errors.std() == pytest.approx(math.sqrt(2**2 + 1**2) * 1e6, rel=0.06)


@pytest.mark.slow
def test_answer_that_cannot_be_split_is_clipped_whole_with_the_diameter_as_sensitivity():
    plan = NoisePlan("recording", 1.0, {"dp-whole": ClipRule(2.0)})
    site = Site("a", _data(np.random.default_rng(4)), (_guard(plan, budget=None),))
    answers = np.array([site.answer(WHOLE) for _ in range(1500)])
    np.testing.assert_allclose(answers.mean(axis=0), 1.0, atol=0.5)
    assert answers.std() == pytest.approx(4.0, rel=0.06)


def test_budget_is_enforced_by_the_site_before_anything_is_computed():
    site = Site("a", _data(np.random.default_rng(5)), (_guard(budget=1.2),))
    site.answer(TASK)
    with refused(BudgetExceeded, "1.4", code="over-budget"):
        site.answer(TASK)


def test_task_without_a_rule_is_infinite_and_refused_under_a_budget():
    guard = _guard(budget=100.0)
    site = Site("a", _data(np.random.default_rng(6)), (guard,))
    with refused(BudgetExceeded, "dp-whole", code="over-budget"):
        site.answer(WHOLE)
    open_guard = _guard(budget=None)
    Site("a", _data(np.random.default_rng(6)), (open_guard,)).answer(WHOLE)
    assert open_guard.ledger.releases == (UnprotectedRelease("dp-whole"),)
    assert math.isinf(open_guard.epsilon())


def test_budget_holds_over_a_restart():
    before = Ledger((GaussianRelease("dp-moments", noise_multiplier(1.0, 1e-5)),))
    site = Site("a", _data(np.random.default_rng(7)), (_guard(budget=1.2, ledger=before),))
    with pytest.raises(BudgetExceeded):
        site.answer(TASK)


def test_audit_log_says_unit_noise_and_epsilon_so_far():
    lines = []
    guard = _guard()
    audit = AuditGuard("a", lines.append, lambda: "now", spending=guard)
    site = Site("a", _data(np.random.default_rng(8)), (guard, audit))
    site.answer(TASK, Channel(masked=True, n_guaranteed=3))
    site.answer(TASK, PLAIN)
    first, second = parse_entries(lines)
    assert (first.protection, first.unit, first.delta) == ("masked and noise", "recording", 1e-5)
    assert first.epsilon == pytest.approx(1.0, rel=1e-3)
    assert second.protection == "noise"
    assert second.epsilon > first.epsilon
    assert first.noise_multiplier == pytest.approx(noise_multiplier(1.0, 1e-5))
    assert Ledger.replay([first, second]) == guard.ledger


def _private_federation(plan, n_sites=6, n_recordings=200, budget=10.0, seed=9):
    rng = np.random.default_rng(seed)
    guards = {
        f"s{k}": DpGuard(plan, np.random.default_rng([seed, k]).bytes, budget, 1e-5) for k in range(n_sites)
    }
    data = {name: _data(rng, n_recordings) for name in guards}
    return {name: Site(name, data[name], (guards[name],)) for name in guards}, data, guards


@pytest.mark.parametrize("clip_bound", [None, 20.0])
def test_private_moments_over_secure_sums_cost_their_epsilon_and_are_close(clip_bound):
    plan = private_moments_plan("dp-moments", "recording", 8.0, 1e-5, clip_bound)
    sites, data, guards = _private_federation(plan)
    federation = secure_federation(sites)
    result = run_program(private_moments(TASK, plan, n_guaranteed=5, quantile=0.9), federation)
    exact = Moments.from_sums(sum(_exact(data[name]) for name in sites), 4)
    correlation = exact.scatter / exact.n
    np.testing.assert_allclose(result.noisy.moments.scatter / result.noisy.moments.n, correlation, atol=0.2)
    for guard in guards.values():
        assert guard.epsilon() == pytest.approx(8.0, rel=2e-3)
        assert len(guard.ledger.releases) == (2 if clip_bound is None else 1)
    assert 10 < result.clip_bound < 60
    assert result.noisy.moments.n < exact.n


def test_noise_of_the_private_sum_is_what_the_server_reckons_with():
    plan = private_moments_plan("dp-moments", "recording", 1.0, 1e-5, 5.0)
    sites, data, _ = _private_federation(plan, n_recordings=3, budget=None)
    exact = sum(
        np.sum([_clip(u) for u in _units(Here("a", data[name], {}), TASK.question, "recording")], axis=0)
        for name in sites
    )
    federation = secure_federation(sites)
    differences = []
    for i in range(60):
        answer = federation.sum(Task(DpMoments(i=i, clip_bound=5.0)))
        differences.append((answer.value - exact)[0:5])
    reckoned = noise_multiplier(1.0, 1e-5) * 5.0 * math.sqrt(6 / 5)
    assert np.std(differences) == pytest.approx(reckoned, rel=0.15)


def _clip(unit):
    weights = ClipRule(5.0, "gram").weights(len(unit))
    return unit * min(1.0, 5.0 / np.linalg.norm(weights * unit))


def test_share_of_the_budget_for_the_bound_must_be_a_share():
    with refused(ParameterError, "bound_share", 0, 1):
        private_moments_plan("dp-moments", "recording", 1.0, 1e-5, bound_share=1.0)


def test_private_moments_without_lags_in_the_task():
    kind = make_question(
        "dp-static",
        _run,
        _units,
        lambda question: 6,
        n_lags=whole(default=0),
        clip_bound=number(default=None),
    )
    plan = private_moments_plan("dp-static", "recording", 5.0, 1e-5, 20.0)
    sites, _, _ = _private_federation(plan)
    result = run_program(private_moments(Task(kind()), plan, 5), secure_federation(sites))
    assert result.noisy.moments.q == 2


def test_unit_norms_counts_every_unit_once():
    data = _data(np.random.default_rng(10), n_recordings=17)
    site = Site("a", data)
    histogram = site.answer(Task(UnitNormsQuestion(of=TASK.question, unit="recording")))
    assert histogram.sum() == 17
    assert len(histogram) == len(norm_edges())
    assert Site("a", data).answer(Task(UnitNormsQuestion(of=TASK.question, unit="row"))).sum() == 17 * 11


def test_unit_norms_of_what_has_no_units_is_refused():
    site = Site("a", _data(np.random.default_rng(11)))
    with refused(ProtocolError, "dp-whole", code="bad-question"):
        site.answer(Task(UnitNormsQuestion(of=WHOLE.question, unit="recording")))
    with refused(ProtocolError, "unit", "day", "recording", "row", code="bad-question"):
        UnitNormsQuestion.read({"of": "dp-moments", "unit": "day"}, {})


def test_nothing_is_answered_while_it_is_not_known_what_was_spent():
    site = Site("a", _data(np.random.default_rng(0)), (_guard(doubt="the log of run-1 is damaged."),))
    with refused(BudgetExceeded, code="budget-unknown"):
        site.answer(TASK)
