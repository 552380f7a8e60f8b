"""A small stateful method for tests of the runtimes: each site walks towards the federation's mean."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from feddbn.errors import ParameterError
from feddbn.federation.protocol.site import SiteTask, register_site_task
from feddbn.federation.protocol.study import (
    Study,
    StudyMethod,
    StudyResult,
    register_personal_result,
    register_study_method,
)
from feddbn.federation.protocol.task import Question, Task, array, number, run_program, text
from feddbn.federation.sums.gram import GramQuestion


@dataclass(frozen=True, kw_only=True)
class WalkQuestion(Question):
    """One step towards a centre, after a pause."""

    name = "walk"
    purpose = "test: one step towards the common mean"
    # Where a site stands is what it remembers; its mean at the start stands for no rows that a guard could count.
    reads_rows = False

    step: float = number(0.0)
    pause_s: float = number(0.0)
    slow_site: str = text(default="")
    slow_s: float = number(0.0, default=0.0)
    centre: np.ndarray = array("d")


def _walk(here, question):
    data, state = here.data, here.state
    if "mean" not in state:
        rows = np.concatenate([block.values for rec in data.recordings() for block in rec.blocks()])
        state = {"mean": rows.mean(axis=0), "dual": np.zeros(rows.shape[1]), "count": np.array([0.0])}
    # The federations of the tests name a file that ends all pauses; no name, no file.
    if not Path(os.environ.get("FEDDBN_TEST_QUICK", "")).is_file():
        time.sleep(question.pause_s)
    if question.slow_site and question.slow_site == os.environ.get("FEDDBN_TEST_SITE"):
        time.sleep(question.slow_s)
    local = 0.5 * (state["mean"] + question.centre) - state["dual"]
    dual = state["dual"] + question.step * (local - question.centre)
    return {"mean": state["mean"], "dual": dual, "count": state["count"] + 1}, np.append(local, 1.0)


register_site_task(SiteTask(WalkQuestion, _walk))


def _program(parameters, variables, sites):
    rng = np.random.default_rng(int(parameters.get("seed", 0)))
    centre = np.zeros(len(variables))
    rounds = int(parameters.get("rounds", 5))
    share = float(parameters.get("participation", 1.0))
    usual = {"step": 0.1, "pause_s": float(parameters.get("pause_s", 0.0))}
    slow = {key: parameters[key] for key in ("slow_site", "slow_s") if key in parameters}
    for k in range(rounds):
        chosen = None
        params = usual | slow if k == parameters.get("slow_round") else usual
        if share < 1.0:
            n = max(1, round(share * len(sites)))
            chosen = tuple(sorted(rng.choice(sites, size=n, replace=False).tolist()))
        answer = yield Task(WalkQuestion(centre=centre, **params), chosen, {"round": float(k)})
        centre = answer.value[:-1] / answer.value[-1]
    return StudyResult({"centre": centre}, {"rounds": rounds, "variables": list(variables)})


def _check(parameters):
    if int(parameters.get("rounds", 5)) < 1:
        raise ParameterError(f"rounds must be at least 1, got {parameters['rounds']}.")


def _personal(state, result):
    return {"dual": state["dual"], "count": state["count"]}


def _run(parameters, federation):
    return run_program(_program(parameters, federation.variables, federation.sites), federation)


def _moments(parameters, federation):
    """The sum of the sites' moments, as it arrives; noise makes of it what no estimator should be given as it is."""
    question = GramQuestion(n_lags=1, variables=federation.variables)
    return StudyResult({"total": federation.sum(Task(question)).value})


register_study_method(StudyMethod("walk", _run, _check))
register_study_method(StudyMethod("total", _moments, takes_noise=True))
register_personal_result("walk", _personal)


def walk_of_two(**changes):
    """A study of two sites that walk."""
    values = {"name": "s", "method": "walk", "variables": ("u", "v"), "sites": ("a", "b")}
    return Study(**{**values, "parameters": {"n_lags": 1}, **changes})
