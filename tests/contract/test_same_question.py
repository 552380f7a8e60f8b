"""A question means the same at every site: who answers makes no difference, and no question of a study names a site."""

import json
from dataclasses import replace

import numpy as np
import pytest

import feddbn
from feddbn import PersonalRounds
from feddbn.data import read_sites
from feddbn.federation.protocol.site import Site, site_task
from feddbn.runtime.simulated.in_process import InProcessFederation

NAMES = ("berlin", "oslo", "quito", "turin")


class Renamed(InProcessFederation):
    """Every site answers twice, once under another's name."""

    def __init__(self, data):
        sites = read_sites(dict(zip(NAMES, data, strict=True)))
        super().__init__({name: Site(name, site) for name, site in sites.items()})
        self.seen = {}

    def sum(self, task):
        """Compare, then answer as usual."""
        text = json.dumps(task.fields())
        assert not [name for name in NAMES if name in text], text
        program = site_task(task.name)
        names = self.sites if task.participants is None else tuple(sorted(task.participants))
        for k, name in enumerate(names):
            here = self.site(name).here
            other = replace(here, name=names[k - 1])
            answers = [program.answer(one, task.question) for one in (here, other)]
            np.testing.assert_array_equal(answers[0][1], answers[1][1])
            assert answers[0][0].keys() == answers[1][0].keys()
        self.seen[task.name] = self.seen.get(task.name, 0) + 1
        return super().sum(task)


def series(rng, n=240, d=3, empty=0.0):
    x = np.zeros((n, d))
    for t in range(1, n):
        x[t] = 0.5 * x[t - 1] + rng.normal(size=d)
        x[t, 1:] += 0.7 * x[t, :-1]
    x[rng.random(x.shape) < empty] = np.nan
    return x


QUICK = PersonalRounds(max_rounds=4)
CASES = {
    "oneshot": (lambda f: feddbn.OneShotDBN(federation=f, features="spline", use_nongaussian=True), 0.0),
    "gaps": (lambda f: feddbn.OneShotDBN(federation=f), 0.05),
    "changing": (lambda f: feddbn.ChangingDBN(federation=f), 0.0),
    "mixed": (lambda f: feddbn.MixedDBN(federation=f), 0.0),
    "fdbnl": (lambda f: feddbn.FDBNL(federation=f, lambda_w="auto"), 0.0),
    "pfdbnl": (lambda f: feddbn.PFDBNL(federation=f, rounds=QUICK), 0.0),
    "some of the sites": (lambda f: feddbn.PFDBNL(federation=f, participation=0.5, rounds=QUICK), 0.0),
}


@pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning")
@pytest.mark.parametrize("case", CASES)
def test_a_site_answers_the_same_under_any_name(case):
    make, empty = CASES[case]
    rng = np.random.default_rng(0)
    federation = Renamed([series(rng, empty=empty) for _ in NAMES])
    make(federation).fit(None)
    assert federation.seen
