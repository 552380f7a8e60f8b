"""Rounds in which sites go on from what they keep: a server chooses no penalties and units, which have poles where a site's
own numbers are, and no site goes on from another history than the others.
"""

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.core.penalised.path import make_schedule
from feddbn.errors import SiteRefused
from feddbn.federation.guards.study_plan import check_tasks, tasks_of
from feddbn.federation.programs import fdbnl
from feddbn.federation.programs.pfdbnl import questions as pfdbnl
from feddbn.federation.protocol.study import Study
from feddbn.privacy.policy import SitePolicy
from support.consortium import Consortium, Liar, Refused, by_rule, spread
from support.saying import refused

pytestmark = pytest.mark.promise

Q, D, ROWS = 6, 3, 199.0
POLE = np.where(np.arange(Q) == 1, 1.0, 1e13)


@pytest.fixture
def sites(tmp_path):
    return Consortium(tmp_path, spread(4, D), by_rule())


def personal(sites, **changed):
    """An honest first round of PFDBNL, with changes."""
    given = {
        "n_sites": 4, "run": 0, "weighting": "samples", "mu": 0.5, "lambda_w": 0.05, "lambda_a": 0.05,
        "w_threshold": 0.2, "a_threshold": 0.2, "acyclicity": "expm", "average": "running",
        "mean_rows": ROWS, "origin": np.zeros(Q), "scale": np.ones(Q), "metric": np.ones(Q),
        "C": np.zeros((Q, D)), "round": 0, "stage": "warm", "serial": 0, "rho": 2.0, "rho1": 1.0, "rho2": 2.0,
        "rho2_before": 2.0, "alpha": None, "acyclic_steps": 0, "is_exact": False, "is_ordered": False,
        "in_series": True, "tol": 1e-3, "optimum": "order", "is_proven": True,
    }  # fmt: skip
    return pfdbnl.StepQuestion(n_lags=1, variables=sites.variables, **(given | changed))


# Penalties and units ------------------------------------------------------------------------------------------------------
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
    {"C": np.full((Q, D), 2e6)},
    {"metric": POLE},
    {"scale": np.full(Q, 2.0)},
    {"mean_rows": 100.0},
    {"in_series": False},
]


# A run has few refusals.
@pytest.mark.parametrize("part", [0, 1, 2])
def test_rounds_of_pfdbnl_have_the_penalties_of_the_study(sites, part):
    liar = Liar(sites, sites.study("pfdbnl"))
    liar.sum(personal(sites))
    for changed in OTHER_PERSONAL_ROUNDS[part::3]:
        with pytest.raises(Refused):
            liar.sum(personal(sites, **{"run": 1} | changed), seq=1)
    # What was refused has not ended the run.
    liar.sum(personal(sites, run=1), seq=1)


def test_the_same_rounds_are_answered_where_they_are_honest(sites):
    Liar(sites, sites.study("pfdbnl", {"mu": 1.0})).sum(personal(sites, mu=1.0))


def test_a_grid_of_many_pulls_is_refused_before_the_run(sites):
    def greeted(n):
        select = {"grid": {"mu": [0.1 * (k + 1) for k in range(n)]}, "n_blocks": 1, "share": 0.3}
        values = sites.study("pfdbnl").model_dump() | {"goal": "select", "select": select}
        study = Study(**values)
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


OTHER_PAPER_ROUNDS = [
    {"ask": "zero", "rho2": 0.5},
    {"ask": "zero", "rho2": 1.1},
    {"ask": "zero", "metric": POLE},
    {"ask": "zero", "round": 1},
    {"ask": "step", "round": 1, "rho2": 1.05},
    {"ask": "step", "round": 1, "rho2": 1.1**2},
    {"ask": "step", "round": 10**6, "rho2": 1.1**500},
]


def test_rounds_of_the_paper_have_its_penalties_where_an_owner_lists_them(tmp_path, sites):
    paper = sites.study("fdbnl", {"schedule": "paper"})
    with refused(SiteRefused, "step.fdbnl", code="tasks-not-allowed"):
        Liar(sites, paper)
    sites = Consortium(tmp_path / "allowed", sites.data, by_rule("step.fdbnl"))

    def consensus(**changed):
        given = {"weighting": "samples", "n_total": 4 * ROWS, "round": 0, "rho2_before": 1.0, "rho2": 1.0}
        given |= {"relaxation": 1.0, "C": np.zeros((Q, D)), "origin": np.zeros(Q)}
        given |= {"scale": np.ones(Q), "metric": np.ones(Q)}
        return fdbnl.StepQuestion(n_lags=1, variables=sites.variables, **(given | changed))

    liar = Liar(sites, paper)
    liar.sum(consensus(ask="zero"))
    liar.sum(consensus(ask="step", round=1, rho2=1.1))
    for changed in OTHER_PAPER_ROUNDS:
        with pytest.raises(Refused):
            liar.sum(consensus(**changed), seq=2)
    liar.sum(consensus(ask="step", round=2, rho2=1.1**2), seq=2)


# One history for all ------------------------------------------------------------------------------------------------------
@pytest.fixture
def liar(sites):
    return Liar(sites, sites.study("pfdbnl")).keys()


C = np.random.default_rng(0).normal(size=(Q, D))


def test_no_round_tells_one_site_to_go_on_and_the_others_to_begin_anew(sites, liar):
    """A list with an entry for each site would, and the others' parts would cancel."""
    question = personal(sites, C=C)
    with pytest.raises(Refused):
        liar.sum(question, params=question.params | {"counted": [-1, -1, 0, -1]})


def test_answers_of_sites_that_were_told_that_others_of_theirs_counted_do_not_add_up(sites, liar):
    liar.sum(personal(sites, C=C))
    message, replies = liar.request(personal(sites, round=1, C=C)), {}
    for name in sites.names:
        replies |= liar.ask({name: message}, 1, 0 if name == "s2" else -1)
    liar.masks.collect(replies)
    assert not liar.ask(liar.masks.unmask_requests(None), 1, 0)
    assert set(liar.codes.values()) == {"asked-otherwise"}


def test_a_state_made_by_a_question_to_one_site_only_is_not_added_up(sites, liar):
    # Round 0 asks the victim something else than the others; it is masked and never opened.
    lies = {name: personal(sites, C=C if name == "s1" else C + 1.0) for name in sites.names}
    liar.mask_each(lies)
    liar.closed(personal(sites, round=1, C=C), "asked-otherwise", after=0)


def test_a_state_in_other_units_is_not_gone_on_with(sites, liar):
    # With a huge scale the others would add next to nothing to the victim's numbers.
    lies = {name: personal(sites, scale=np.full(Q, 1.0 if name == "s1" else 1e4)) for name in sites.names}
    liar.mask_each(lies)
    liar.refused(personal(sites, round=1, C=C), "changed-in-run", after=0)
