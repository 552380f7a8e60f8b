import numpy as np
import pytest

from feddbn.data import read_sites
from feddbn.errors import StateError
from feddbn.federation.protocol.site import Guard, Site
from feddbn.federation.protocol.task import Task
from feddbn.methods.fdbnl import FDBNL
from feddbn.methods.simulation import simulate
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.stacked_answers import StackedAnswers

MADE = simulate(d=4, n_sites=3, n_samples=90, random_state=1)


def _sites():
    return {name: Site(name, data) for name, data in read_sites(MADE.sites).items()}


class Recorder(InProcessFederation):
    """Remembers every FDBNL task of a run, with what each site answered."""

    def __init__(self, sites):
        super().__init__(sites)
        self.tasks = []

    def sum(self, task):
        self.tasks.append(task)
        return super().sum(task)


@pytest.mark.parametrize("settings", [{}, {"schedule": "paper", "weighting": "sites", "max_rounds": 12}])
def test_answers_together_are_the_answers_of_the_sites(settings):
    recorder = Recorder(_sites())
    FDBNL(federation=recorder, **settings).fit(None)
    tasks = [task for task in recorder.tasks if task.name == "fdbnl-step"]
    alone, together = _sites(), StackedAnswers(_sites())
    asked = set()
    for task in tasks:
        asked.add(task.params["ask"])
        expected = np.array([alone[name].answer(task) for name in sorted(alone)])
        np.testing.assert_allclose(together(task), expected, rtol=1e-9, atol=1e-10)
    assert asked == ({"zero", "step"} if settings else {"gradient"})


def test_other_tasks_some_sites_and_guarded_sites_are_left_to_the_sites():
    sites = _sites()
    assert StackedAnswers(sites)(Task("summary", params={"n_lags": 1})) is None
    assert StackedAnswers(sites)(Task("fdbnl-step", participants=("site-0",))) is None
    sites["site-0"].guards = (Guard(),)
    assert StackedAnswers(sites)(Task("fdbnl-step")) is None


def test_a_round_without_a_first_one_is_refused():
    with pytest.raises(StateError, match="a run starts with round 0"):
        StackedAnswers(_sites())(Task("fdbnl-step", params={"round": 3}))
