"""A stochastic tester looks for violations of what the books claim: at the guard, and at real sites under masks.

Many releases in one: units that each move a coordinate of their own are as many experiments, since noise on coordinates is
independent. A coordinate with a unit and one without are outcomes on neighbouring data sets.
"""

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")
from feddbn.core.designs.recordings import Block
from feddbn.data import Recording
from feddbn.data import Site as DataSite
from feddbn.errors import FeddbnError, NotEnoughSites
from feddbn.federation.guards.noise import DpGuard
from feddbn.federation.protocol.messages import WITHHELD, Request, digest_of, encode_request
from feddbn.federation.protocol.site import Site, site_task
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.private_moments import (
    UnitNormsQuestion,
    private_moments_plan,
    study_noise_plan,
)
from feddbn.privacy.noise_plan import ClipRule, NoisePlan, multiplier_for, norm_edges
from support.dp_tester import curve_violation, violation
from support.entropy import seeded
from support.noisy_sites import VARIABLES, NoisySites, make, noise_rows
from support.questions import make_question

pytestmark = pytest.mark.promise

WIDTH = 500


def _units(here, question, unit):
    return iter(np.eye(WIDTH) if here.data.variables == ("with",) else ())


Many = make_question(
    "dp-many", lambda here, question: (here.state, np.zeros(WIDTH)), _units, lambda question: WIDTH
)


def many_outcomes(multiplier, n_calls=60):
    """Outcomes with and without a unit, WIDTH in each release."""
    random_bytes = np.random.default_rng(0).bytes
    plan = NoisePlan("recording", multiplier, {"dp-many": ClipRule(1.0)})
    found = []
    for which in ("with", "without"):
        site = Site("a", DataSite((which,), []), (DpGuard(plan, random_bytes, None, 1e-5),))
        found.append(np.concatenate([site.answer(Task(Many())) for _ in range(n_calls)]))
    return found


def test_the_guard_keeps_its_epsilon_and_half_the_noise_is_found_out():
    epsilon, delta = 3.0, 1e-5
    honest = multiplier_for(epsilon, delta)
    assert violation(*many_outcomes(honest), epsilon, delta) <= 0
    assert violation(*many_outcomes(honest / 2), epsilon, delta) > 0


def site_of(lengths, scale=1.0):
    rng = np.random.default_rng(0)
    items = [Recording(str(i), (Block(scale * noise_rows(rng, n)),)) for i, n in enumerate(lengths)]
    return DataSite(VARIABLES, items)


def answers_or_refusals(data, guard, n):
    """The first number of each answer, NaN for a refusal."""
    found = []
    for _ in range(n):
        site = Site("a", data, (guard,))
        try:
            found.append(site.answer(Task(GramQuestion(n_lags=5, variables=VARIABLES)))[0])
        except FeddbnError:
            found.append(np.nan)
    return found


class RefusingGuard(DpGuard):
    """As it was: it computes the plain answer first, and so refuses for what it finds in the data."""

    def make(self, program, here, task, channel):
        program.answer(here, task.question)
        return super().make(program, here, task, channel)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # The only recording with a usable row; a recording that overflows.
        (site_of([3, 12]), site_of([3])),
        (site_of([12, 12], 1e200), site_of([12], 1e200)),
    ],
)
def test_a_refusal_does_not_tell_what_is_in_the_data(one, other):
    plan = private_moments_plan("gram.rows", "recording", 1.0, 1e-5, 5.0)
    guard = DpGuard(plan, seeded(), None, 1e-5)
    assert (
        violation(answers_or_refusals(one, guard, 60), answers_or_refusals(other, guard, 60), 1.0, 1e-5) <= 0
    )


def test_a_guard_that_refuses_for_the_data_is_found_out():
    plan = private_moments_plan("gram.rows", "recording", 1.0, 1e-5, 5.0)
    guard = RefusingGuard(plan, seeded(), None, 1e-5)
    outcomes = (answers_or_refusals(site_of(lengths), guard, 60) for lengths in ([3, 12], [3]))
    assert violation(*outcomes, 1.0, 1e-5) > 0


RNG = np.random.default_rng(3)
ODD = {
    "no row": np.zeros((0, 2)),
    "one row": np.ones((1, 2)),
    "three rows": RNG.normal(size=(3, 2)),
    "constant": np.ones((9, 2)),
    "empty cells": np.where(RNG.random((9, 2)) < 0.3, np.nan, 1.0),
    "all cells empty": np.full((9, 2), np.nan),
    "overflow": 1e200 * RNG.normal(size=(9, 2)),
    "largest": np.full((9, 2), 1.7e308),
}
ASKED = [
    {},
    {"center": "recording"},
    {"center": "recording", "degree": 3},
    {"center": "recording", "degree": 2, "periods": (4.0,)},
    {"n_lags": 5},
    {"origin": np.full(4, 1e99)},
]


@pytest.mark.parametrize("asked", ASKED)
def test_no_recording_makes_a_question_fail(asked):
    plan = private_moments_plan("gram.rows", "recording", 1.0, 1e-5, 5.0)
    question = GramQuestion(**{"n_lags": 1, "variables": VARIABLES, **asked})
    for values in ODD.values():
        data = DataSite(VARIABLES, [Recording("r", (Block(values),))])
        answer = Site("a", data, (DpGuard(plan, seeded(), None, 1e-5),)).answer(Task(question))
        assert np.all(np.isfinite(answer))


N_BINS, N_RUNS = 40, 6
QUESTION = UnitNormsQuestion(of=GramQuestion(n_lags=1, variables=VARIABLES), unit="recording")


def sites_with_one_recording_in_each_of_many_bins(place):
    """Site a has recordings whose norms lie a bin apart; the others hold what is in other bins."""
    rng = np.random.default_rng(1)
    rows = noise_rows(rng)
    spread = [rows * 100.0 * 2 ** (i / 4) for i in range(N_BINS)]
    others = {name: [noise_rows(rng, scale=1e-3)] for name in ("b", "c")}
    # What is tested is the noise: no rule about rows stands before it.
    return NoisySites(place, {"a": spread, **others}, "min_rows = 1\nmin_rows_per_parameter = 0\n")


def deployed_outcomes(sites, is_halved, monkeypatch):
    """Bins with one unit, and empty bins, as site c sees them: it takes its own share off the opened sum."""
    if is_halved:
        deviations = NoisePlan.sigma
        monkeypatch.setattr(NoisePlan, "sigma", lambda *args: deviations(*args) / 2)
    study = sites.study(epsilon=30.0)
    exact = site_task("counts.norms").answer(sites.exchange.endpoints["a"]._site.here, QUESTION)[1]
    occupied, empty = exact == 1, exact == 0
    assert occupied.sum() >= N_BINS - 2
    empty[: np.searchsorted(norm_edges(), 10.0)] = False
    one, other = [], []
    for run in range(N_RUNS):
        opened = sites.coordinator(study, f"run-{int(is_halved)}-{run}").sum(Task(QUESTION)).value
        seen = opened - sites.guard("c").last.value
        one.append(seen[occupied])
        other.append(seen[empty])
    return np.concatenate(one), np.concatenate(other), study_noise_plan(study)


def test_real_sites_under_masks_keep_what_the_books_claim_and_half_the_noise_is_found_out(
    tmp_path, monkeypatch
):
    sites = sites_with_one_recording_in_each_of_many_bins(tmp_path)
    one, other, plan = deployed_outcomes(sites, False, monkeypatch)
    multiplier = plan.multiplier_of("counts.norms")
    assert curve_violation(one, other, multiplier) <= 0
    assert np.std(other) == pytest.approx(multiplier, rel=0.25)
    one, other, _ = deployed_outcomes(sites, True, monkeypatch)
    assert curve_violation(one, other, multiplier) > 0


def test_asking_again_gives_the_same_numbers_or_nothing(tmp_path):
    sites = make(tmp_path, policy="require_masking = false\n")
    study = sites.study(masked=False, clip=5.0)
    sites.coordinator(study)
    task = Task(GramQuestion(n_lags=1, variables=VARIABLES))
    endpoint = sites.exchange.endpoints["a"]
    meta = {**task.fields(), "digest": digest_of(task)}
    request = encode_request(Request("task", "run-1", 0, -1, meta, dict(task.arrays)))
    replies = [endpoint.handle(request) for _ in range(3)]
    assert replies[0] == replies[1] == replies[2]
    assert len(sites.guard("a").ledger.releases) == 1
    fresh = sites.coordinator(study, "run-2")
    fresh.sum(task)
    with pytest.raises(NotEnoughSites, match=WITHHELD):
        fresh.sum(task)
