"""Answers that are not linear in a site's moments have poles where each site's own numbers are: a server that chooses
penalties and units would read them off sums. Sites answer only for those of the study's schedule.
"""

import numpy as np
import pytest

from feddbn.core.penalised.path import make_schedule
from feddbn.errors import SiteRefused
from feddbn.federation.guards.study_plan import check_tasks, tasks_of
from feddbn.federation.programs import fdbnl
from feddbn.federation.programs.pfdbnl import questions as pfdbnl
from feddbn.federation.protocol.study import Study
from feddbn.privacy.policy import SitePolicy
from support.hostile import Server, Sites
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")

Q, D, ROWS = 6, 3, 199.0


@pytest.fixture
def sites(tmp_path):
    return Sites(tmp_path, k=4, rows=200)


def begin(sites, method, parameters=""):
    sites.greet(sites.study(method, parameters=parameters), "run")
    return Server(sites, "run", n_slots=30).keys()


def consensus(sites, **changed):
    """An honest first round of FDBNL, with changes."""
    given = {"weighting": "samples", "n_total": 4 * ROWS, "round": 0, "ask": "gradient", "rho2_before": 1.0}
    given |= {"rho2": 1.0, "relaxation": 1.0, "C": np.zeros((Q, D)), "origin": np.zeros(Q)}
    given |= {"scale": np.ones(Q), "metric": np.ones(Q)}
    return fdbnl.StepQuestion(n_lags=1, variables=sites.variables, **(given | changed))


def personal(sites, **changed):
    """An honest first round of PFDBNL, with changes."""
    given = {
        "n_sites": 4,
        "run": 0,
        "weighting": "samples",
        "mu": 0.5,
        "lambda_w": 0.05,
        "lambda_a": 0.05,
    }
    given |= {
        "w_threshold": 0.2,
        "a_threshold": 0.2,
        "acyclicity": "expm",
        "average": "running",
        "n_slots": 1,
    }
    given |= {"mean_rows": ROWS, "origin": np.zeros(Q), "scale": np.ones(Q), "metric": np.ones(Q)}
    given |= {"C": np.zeros((1, Q, D)), "round": 0, "stage": "warm", "serial": 0}
    given |= {"rho": 2.0, "rho1": 1.0, "rho2": 2.0, "rho2_before": 2.0, "alpha": None, "acyclic_steps": 0}
    given |= {"is_exact": False, "is_ordered": False, "in_series": True, "tol": 1e-3}
    given |= {"optimum": "order", "is_proven": True}
    return pfdbnl.StepQuestion(n_lags=1, variables=sites.variables, **(given | changed))


POLE = np.where(np.arange(Q) == 1, 1.0, 1e13)


OTHER_ROUNDS = [
    {"ask": "zero"},
    {"ask": "step", "round": 1},
    {"ask": "gram", "round": 1},
    {"metric": POLE, "round": 1},
    {"scale": np.full(Q, 2.0), "round": 1},
    {"origin": np.ones(Q), "round": 1},
    {"n_total": 1000.0, "round": 1},
]


def test_rounds_are_gradients_in_one_unit(sites):
    server = begin(sites, "fdbnl", 'schedule = "rounds"')
    server.sum(consensus(sites), 0)
    # Another point is what rounds are about.
    server.sum(consensus(sites, round=1, C=np.full((Q, D), 0.1)), 1, 0)
    for changed in OTHER_ROUNDS:
        with pytest.raises(SiteRefused):
            server.sum(consensus(sites, **changed), 2, 1)
    # What was refused has not ended the run.
    server.sum(consensus(sites, round=2, C=np.full((Q, D), 0.2)), 2, 1)


OTHER_PERSONAL_ROUNDS = [
    {"rho": 3.0},
    {"rho2": 0.1, "rho2_before": 0.1},
    {"rho2": 2.2, "round": 5},
    {"rho2_before": 2.2},
    {"mu": 1.0},
    {"mu": float("inf")},
    {"lambda_w": 0.06},
    {"lambda_a": 0.0},
    {"w_threshold": 0.0},
    {"a_threshold": 0.3},
    {"C": np.full((1, Q, D), 2e6)},
    {"metric": POLE},
    {"scale": np.full(Q, 2.0)},
    {"mean_rows": 100.0},
    {"in_series": False},
]


# A run has few refusals.
@pytest.mark.parametrize("part", [0, 1, 2])
def test_rounds_of_pfdbnl_have_the_penalties_of_the_study(sites, part):
    server = begin(sites, "pfdbnl")
    server.sum(personal(sites), 0)
    for changed in OTHER_PERSONAL_ROUNDS[part::3]:
        with pytest.raises(SiteRefused):
            server.sum(personal(sites, **{"run": 1} | changed), 1, 0)
    server.sum(personal(sites, run=1), 1, 0)


def test_the_same_rounds_are_answered_where_they_are_honest(sites):
    server = begin(sites, "pfdbnl", "mu = 1.0")
    server.sum(personal(sites, mu=1.0), 0)


def test_a_grid_of_many_pulls_is_refused_before_the_run(sites):
    def greeted(n):
        grid = {"mu": [0.1 * (k + 1) for k in range(n)]}
        held_out = {"n_blocks": 1, "share": 0.3}
        study = sites.study("pfdbnl").model_copy(update={"goal": "select"})
        study = Study(**{**study.model_dump(), "select": {"grid": grid, **held_out}})
        return check_tasks(SitePolicy(tasks=(*tasks_of(study),)), study)

    greeted(pfdbnl.MOST_PULLS)
    with refused(SiteRefused, 17, 16, code="too-many-pulls"):
        greeted(pfdbnl.MOST_PULLS + 1)


def test_penalties_of_the_paper_grow_by_whole_rounds():
    schedule = make_schedule("paper", 3, 1.0)
    rho2 = 1.0
    for round_ in range(200):
        assert schedule.has_rho2(rho2, round_)
        assert not schedule.has_rho2(rho2 * 1.1, round_)
        assert not schedule.has_rho2(rho2 * 1.05, round_ + 2)
        assert schedule.has_rho2(rho2 * 1.05, round_ + 2, in_turns=True)
        rho2 *= 1.1
    assert not schedule.has_rho2(0.5, 10)
    assert not schedule.has_rho2(0.0, 10)


PAPER = 'schedule = "paper"'


def test_owners_allow_the_schedule_of_the_paper_by_name(sites):
    with refused(SiteRefused, "paper", "schedules = gram"):
        begin(sites, "fdbnl", PAPER)


OTHER_PAPER_ROUNDS = [
    {"ask": "zero", "rho2": 0.5},
    {"ask": "zero", "rho2": 1.1},
    {"ask": "zero", "metric": POLE},
    {"ask": "zero", "round": 1},
    {"ask": "step", "round": 1, "rho2": 1.05},
    {"ask": "step", "round": 1, "rho2": 1.1**2},
    {"ask": "step", "round": 10**6, "rho2": 1.1**500},
    {"ask": "gradient", "round": 1},
]


def test_rounds_of_the_paper_have_its_penalties(sites):
    for name, place in sites.places.items():
        policy = place / "policy.toml"
        policy.write_text(policy.read_text().replace('["gram", "rounds"]', '["paper"]'))
        sites.restart(name)
    server = begin(sites, "fdbnl", PAPER)
    server.sum(consensus(sites, ask="zero"), 0)
    server.sum(consensus(sites, ask="step", round=1, rho2=1.1), 1, 0)
    for changed in OTHER_PAPER_ROUNDS:
        with pytest.raises(SiteRefused):
            server.sum(consensus(sites, **changed), 2, 1)
    server.sum(consensus(sites, ask="step", round=2, rho2=1.1**2), 2, 1)
