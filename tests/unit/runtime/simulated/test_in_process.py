"""Sites that are asked together answer what each would answer alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import feddbn
import feddbn.federation.programs
from feddbn import FDBNL, PFDBNL, Dynotears, simulate
from feddbn.core.penalised import lasso
from feddbn.data import read_sites
from feddbn.errors import StateError
from feddbn.federation.programs.fdbnl import StepQuestion
from feddbn.federation.protocol.site import _REGISTRY, Guard, Here, Site, answer_of_one
from feddbn.federation.protocol.task import Sum, Task
from feddbn.federation.sums.survey import SurveyQuestion
from feddbn.runtime.simulated import in_process
from feddbn.runtime.simulated.in_process import InProcessFederation
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")

PAPER = {
    "schedule": "paper",
    "rounds.alpha": "shared",
    "rounds.average": "participants",
    "rounds.weighting": "sites",
    "rounds.refit": False,
}


class OneByOne(InProcessFederation):
    """Sites that are asked one after the other, as in a deployment."""

    def sum(self, task: Task) -> Sum:
        names = self.sites if task.participants is None else tuple(sorted(task.participants))
        return Sum(np.sum([self.site(name).answer(task) for name in names], axis=0), names)


def made(kind: type[InProcessFederation], data: Any, guards: tuple[Guard, ...] = ()) -> InProcessFederation:
    return kind({name: Site(name, site, guards) for name, site in read_sites(data).items()})


def shifted(n_sites: int = 7, n_samples: int = 210) -> dict[str, Any]:
    data = simulate(d=5, n_lags=2, n_sites=n_sites, n_samples=n_samples, random_state=0).sites
    return {name: [frame + 0.5 for frame in frames] for name, frames in data.items()}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"weighting": "sites"},
        {"schedule": "rounds"},
        {"schedule": "rounds", "prepare.scale": "federated", "prepare.center": "none"},
        {
            "schedule": "paper",
            "weighting": "sites",
            "lambda_w": 0.35,
            "lambda_a": 0.35,
            "rounds.max_rounds": 60,
        },
    ],
    ids=["gram", "sites", "rounds", "scaled", "paper"],
)
@pytest.mark.parametrize("n_samples", [210, 21], ids=["many rows", "fewer rows than variables"])
def test_every_sum_of_fdbnl_is_the_one_that_sites_alone_would_make(
    arguments: dict[str, Any], n_samples: int
) -> None:
    data = shifted(n_samples=n_samples)
    sums: dict[type, list[Sum]] = {}
    models = {}
    for kind in (InProcessFederation, OneByOne):
        heard: list[Sum] = []
        models[kind] = FDBNL(n_lags=2, federation=made(kind, data), **arguments).fit(
            None, observer=lambda task, answer, heard=heard: heard.append(answer)
        )
        sums[kind] = heard
    for together, alone in zip(sums[InProcessFederation], sums[OneByOne], strict=True):
        assert together.contributors == alone.contributors
        largest = max(1.0, float(np.abs(alone.value).max()))
        np.testing.assert_allclose(together.value, alone.value, rtol=0, atol=1e-9 * largest)
    together, alone = models[InProcessFederation], models[OneByOne]
    np.testing.assert_allclose(together.W_raw_, alone.W_raw_, atol=1e-9)
    assert together.n_rounds_ == alone.n_rounds_


@pytest.mark.parametrize(
    "settings",
    [
        {"mu": 0.5},
        {"mu": np.inf},
        {"mu": 0.5, "participation": 0.5},
        {"mu": 1.0, "n_clusters": 2},
        {"mu": 0.3, "rounds.acyclicity": "logdet"},
        {"mu": 0.3, "lambda_w": 0.0, "lambda_a": 0.0},
        {"mu": 0.3, "lambda_w": 100.0, "lambda_a": 100.0},
        {
            "mu": 0.3,
            "forbidden_edges": [("x0", "x1", 0), ("x2", "x1", 1)],
            "required_edges": [("x3", "x0", 0)],
        },
        pytest.param({"mu": "auto", "rounds.max_rounds": 30}, marks=pytest.mark.slow),
        {**PAPER, "mu": 0.1, "rounds.max_rounds": 30},
        {**PAPER, "mu": 0.1, "rounds.max_rounds": 30, "participation": 0.5, "rounds.alpha": "site"},
    ],
    ids=str,
)
@pytest.mark.parametrize("w_range", [(0.3, 0.5), (0.5, 2.0)], ids=["weak", "strong"])
def test_pfdbnl_of_sites_together_is_that_of_sites_alone(
    settings: dict[str, Any], w_range: tuple[float, float]
) -> None:
    # "auto" is many fits.
    d, n_sites = (3, 4) if settings["mu"] == "auto" else (5, 7)
    fed = simulate(
        d=d, n_sites=n_sites, n_samples=40 * n_sites, heterogeneity=0.3, w_range=w_range, random_state=5
    )
    together, alone = (
        PFDBNL(federation=made(kind, fed.sites), **settings).fit(None)
        for kind in (InProcessFederation, OneByOne)
    )
    assert together.n_rounds_ == alone.n_rounds_
    assert together.objective_ == pytest.approx(alone.objective_, rel=1e-9)
    np.testing.assert_allclose(together.dbn_.W, alone.dbn_.W, atol=1e-9)
    for name, dbn in alone.dbns_.items():
        np.testing.assert_allclose(together.dbns_[name].W, dbn.W, atol=1e-9)
        np.testing.assert_allclose(together.dbns_[name].A, dbn.A, atol=1e-9)


@pytest.mark.parametrize(
    ("module", "limit", "value"),
    [(in_process, "_NUMBERS_TOGETHER", 1), (lasso, "_ROOM", 0)],
    ids=["one site at a time", "no room for inverses"],
)
def test_limits_of_memory_do_not_change_the_answer(
    monkeypatch: pytest.MonkeyPatch, module: Any, limit: str, value: int
) -> None:
    fed = simulate(d=4, n_sites=5, n_samples=200, random_state=1)
    plenty = PFDBNL(mu=0.5).fit(fed.sites)
    monkeypatch.setattr(module, limit, value)
    little = PFDBNL(mu=0.5).fit(fed.sites)
    np.testing.assert_allclose(little.dbn_.W, plenty.dbn_.W, atol=1e-10)


def test_guards_are_never_passed_by() -> None:
    class Count(Guard):
        n = 0

        def before(self, task: Any, state: Any, channel: Any) -> None:
            self.n += task.name in ("step.fdbnl", "step.personal")

    fed = simulate(d=4, n_sites=3, n_samples=120, random_state=1)
    for method in (FDBNL(schedule="rounds"), PFDBNL()):
        guard = Count()
        model = method.set_params(federation=made(InProcessFederation, fed.sites, (guard,))).fit(None)
        assert guard.n == 3 * len(model.history_) > 0


def test_a_run_starts_with_round_zero() -> None:
    heard: list[Task] = []
    FDBNL(n_lags=2, schedule="rounds").fit(shifted(), observer=lambda task, answer: heard.append(task))
    later = next(task for task in heard if task.name == "step.fdbnl" and task.question.round > 0)
    with refused(StateError, code="no-state"):
        made(InProcessFederation, shifted()).sum(later)


def test_answers_that_add_up_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The law behind `adds_up`: the sites' answers add up to the answer of one site with their added arrays."""
    assert [name for name, task in _REGISTRY.items() if task.adds_up.__name__ != "<lambda>"] == ["step.fdbnl"]
    federation, heard = made(OneByOne, shifted()), []
    FDBNL(n_lags=2, schedule="rounds", federation=federation, check_residuals=False).fit(
        None, observer=lambda task, answer: heard.append((task, answer))
    )
    program = _REGISTRY["step.fdbnl"]
    task, answer = heard[-1]
    (key,) = program.adds_up(task.question)
    states = [federation.state_of(name) for name in federation.sites]
    state = {**states[0], key: np.sum([state[key] for state in states], axis=0)}
    here = Here("all", federation.site("site-0").data, state)
    np.testing.assert_allclose(
        answer_of_one(program, here, task.question)[1], answer.value, rtol=1e-12, atol=1e-12
    )
    first = next(task.question for task, _ in heard if isinstance(task.question, StepQuestion))
    assert first.round == 0
    assert program.adds_up(first) == ()


def test_a_second_fit_on_the_same_federation_does_not_see_the_first() -> None:
    fed = simulate(d=4, n_sites=4, n_samples=200, random_state=2)
    federation = made(InProcessFederation, fed.sites)
    for settings in ({"lambda_w": 0.2}, {"prepare.center": "recording"}, {"n_lags": 2}):
        for method in (FDBNL, PFDBNL):
            again = method(federation=federation, **settings).fit(None)
            np.testing.assert_array_equal(again.W_, method(**settings).fit(fed.sites).W_)


def test_estimators_ask_sites_in_memory_together() -> None:
    fed = feddbn.simulate(d=4, n_sites=40, n_samples=400, random_state=1)
    answers: list[Sum] = []
    model = FDBNL(refit=False).fit(fed.sites, observer=lambda task, answer: answers.append(answer))
    assert len(answers[-1].contributors) == 40
    assert model.objective_ == pytest.approx(Dynotears(refit=False).fit(fed.sites).objective_, rel=1e-5)


def test_a_sum_has_the_same_bits_however_many_sites_are_asked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = Task(SurveyQuestion(n_lags=1, variables=tuple(f"x{j}" for j in range(5))))
    data, found = shifted(n_sites=23, n_samples=690), []
    for size in (1024, 5, 1):
        monkeypatch.setattr(in_process, "_SITES_TOGETHER", size)
        found.append(made(InProcessFederation, data).sum(task).value.tobytes())
    assert found[0] == found[1] == found[2]
