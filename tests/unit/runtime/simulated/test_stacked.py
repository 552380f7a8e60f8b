import numpy as np
import pytest

import feddbn
from feddbn import FDBNL, Dynotears
from feddbn.data import read_sites
from feddbn.errors import StateError
from feddbn.federation.protocol.site import Guard, Site
from feddbn.federation.protocol.task import Task
from feddbn.runtime.simulated import stacked
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.stacked import StackedFederation


class Recorder:
    """A federation that keeps every sum it passes on."""

    answered_tasks = None

    def state_of(self, site):
        return self.federation.state_of(site)

    def __init__(self, federation, variables):
        self.federation, self.variables, self.sums = federation, variables, []

    @property
    def sites(self):
        return self.federation.sites

    def sum(self, task):
        answer = self.federation.sum(task)
        self.sums.append((task, answer))
        return answer


def sites_of(n_sites=7, d=5, n_samples=210, seed=0, guards=()):
    data = feddbn.simulate(d=d, n_lags=2, n_sites=n_sites, n_samples=n_samples, random_state=seed).sites
    data = {name: [frame + 0.5 for frame in frames] for name, frames in data.items()}
    return {name: Site(name, item, guards) for name, item in read_sites(data).items()}


def run(kind, sites, **arguments):
    recorder = Recorder(kind(sites), tuple(f"x{i}" for i in range(5)))
    return FDBNL(n_lags=2, federation=recorder, **arguments).fit(None), recorder


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"scale": "federated", "center": "federated"},
        {"schedule": "paper", "weighting": "sites", "lambda_w": 0.35, "lambda_a": 0.35, "max_rounds": 60},
    ],
    ids=["adaptive", "scaled", "paper"],
)
def test_every_sum_of_a_run_is_the_one_the_sites_would_make(arguments):
    model, together = run(StackedFederation, sites_of(), **arguments)
    reference, alone = run(InProcessFederation, sites_of(), **arguments)
    assert len(together.sums) == len(alone.sums)
    for (_, a), (_, b) in zip(together.sums, alone.sums, strict=True):
        assert a.contributors == b.contributors
        np.testing.assert_allclose(a.value, b.value, rtol=0, atol=1e-12 * max(1.0, np.abs(b.value).max()))
    np.testing.assert_allclose(model.W_raw_, reference.W_raw_, atol=1e-12)
    np.testing.assert_allclose(model.A_raw_, reference.A_raw_, atol=1e-12)
    assert model.n_rounds_ == reference.n_rounds_


def test_chunks_do_not_change_the_answer(monkeypatch):
    whole, _ = run(StackedFederation, sites_of())
    monkeypatch.setattr(stacked, "CHUNK", 1)
    one_by_one, _ = run(StackedFederation, sites_of())
    np.testing.assert_allclose(one_by_one.W_raw_, whole.W_raw_, atol=1e-12)


def test_a_site_with_fewer_rows_than_variables_is_no_exception():
    model, _ = run(StackedFederation, sites_of(n_sites=30, n_samples=90))
    reference, _ = run(InProcessFederation, sites_of(n_sites=30, n_samples=90))
    np.testing.assert_allclose(model.W_raw_, reference.W_raw_, atol=1e-12)


def test_guards_are_never_passed_by():
    seen = []

    class Note(Guard):
        def before(self, task, state, channel):
            seen.append(task.name)

    _, recorder = run(StackedFederation, sites_of(guards=(Note(),)), max_rounds=3)
    assert seen.count("fdbnl-step") == 3 * 7
    assert len(recorder.sums) == 4


def test_a_run_starts_with_round_zero():
    federation = StackedFederation(sites_of())
    with pytest.raises(StateError, match="these sites have no state of this run; a run starts with round 0"):
        federation.sum(Task("fdbnl-step", {"C": np.zeros((15, 5))}, {"round": 4}))


def test_other_tasks_and_parts_of_the_federation_are_answered_by_the_sites():
    params = {"n_lags": 2, "center": "none"}
    names = StackedFederation(sites_of()).sites[:2]
    for participants in (None, names):
        task = Task("moments", params=params, participants=participants)
        a, b = StackedFederation(sites_of()).sum(task), InProcessFederation(sites_of()).sum(task)
        assert a.contributors == b.contributors
        np.testing.assert_array_equal(a.value, b.value)


def test_estimators_use_it_for_sites_in_memory():
    fed = feddbn.simulate(d=4, n_sites=40, n_samples=400, random_state=1)
    tasks = []
    model = FDBNL(refit=False).fit(fed.sites, observer=lambda task, answer: tasks.append((task, answer)))
    pooled = Dynotears(refit=False).fit(fed.sites)
    assert len(tasks[-1][1].contributors) == 40
    assert model.objective_ == pytest.approx(pooled.objective_, rel=1e-5)
