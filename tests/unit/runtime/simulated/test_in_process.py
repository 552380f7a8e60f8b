"""Fits by rounds over sites of one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from feddbn import FDBNL, PFDBNL, simulate
from feddbn.core.penalised import lasso
from feddbn.data import read_sites
from feddbn.errors import StateError
from feddbn.federation.protocol.site import Guard, Site
from feddbn.federation.protocol.task import Task
from feddbn.runtime.simulated.in_process import InProcessFederation
from support.saying import refused


def made(data: Any, guards: tuple[Guard, ...] = ()) -> InProcessFederation:
    return InProcessFederation({name: Site(name, site, guards) for name, site in read_sites(data).items()})


def shifted(n_sites: int = 7, n_samples: int = 210) -> dict[str, Any]:
    data = simulate(d=5, n_lags=2, n_sites=n_sites, n_samples=n_samples, random_state=0).sites
    return {name: [frame + 0.5 for frame in frames] for name, frames in data.items()}


def test_limits_of_memory_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = simulate(d=4, n_sites=5, n_samples=200, random_state=1)
    plenty = PFDBNL(mu=0.5).fit(fed.sites)
    monkeypatch.setattr(lasso, "_ROOM", 0)
    little = PFDBNL(mu=0.5).fit(fed.sites)
    np.testing.assert_allclose(little.dbn_.W, plenty.dbn_.W, atol=1e-10)


def test_guards_are_never_passed_by() -> None:
    class Count(Guard):
        n = 0

        def before(self, task: Any, state: Any, channel: Any) -> None:
            self.n += task.name in ("step.fdbnl", "step.personal")

    fed = simulate(d=4, n_sites=3, n_samples=120, random_state=1)
    for method in (FDBNL(schedule="paper"), PFDBNL()):
        guard = Count()
        model = method.set_params(federation=made(fed.sites, (guard,))).fit(None)
        assert guard.n == 3 * len(model.history_) > 0


def test_a_run_starts_with_round_zero() -> None:
    heard: list[Task] = []
    FDBNL(n_lags=2, schedule="paper").fit(shifted(), observer=lambda task, answer: heard.append(task))
    later = next(task for task in heard if task.name == "step.fdbnl" and task.question.round > 0)
    with refused(StateError, code="no-state"):
        made(shifted()).sum(later)


def test_a_second_fit_on_the_same_federation_does_not_see_the_first() -> None:
    fed = simulate(d=4, n_sites=4, n_samples=200, random_state=2)
    federation = made(fed.sites)
    for settings in ({"lambda_w": 0.2}, {"prepare.center": "recording", "n_lags": 2}):
        for method in (FDBNL, PFDBNL):
            again = method(federation=federation, **settings).fit(None)
            np.testing.assert_array_equal(again.W_, method(**settings).fit(fed.sites).W_)
