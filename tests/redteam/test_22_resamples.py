"""Resamples of few recordings: as many sums as recordings would tell them apart, in one run or in several."""

import numpy as np
import pytest

from feddbn.federation.guards.disclosure import ResampleGuard, most_resamples
from feddbn.federation.protocol.site import Here
from feddbn.federation.sums.gram import resampling_plan
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.open_site import read_data
from support.rig import Rig, Server, listing, raw

pytestmark = pytest.mark.usefixtures("light")

N_RECORDINGS, N_ROWS = 8, 40
POLICY = listing("gram.resamples")


@pytest.fixture
def rig(tmp_path):
    rng = np.random.default_rng(0)
    data = {f"s{i}": [rng.normal(size=(N_ROWS, 2)) for _ in range(N_RECORDINGS)] for i in range(3)}
    return Rig(tmp_path, data, POLICY)


def study(rig, replicates, seed=0):
    how = {"replicates": replicates, "unit": "recordings", "seed": seed}
    return rig.study("oneshot", goal="confidence", confidence=how)


def resamples(rig, first, stop, seed=0):
    usual = {"n_lags": 1, "variables": rig.variables, "resampling": "bootstrap", "block_rule": "auto"}
    usual |= {"resampled": "recordings", "seed": seed, "first": first, "stop": stop}
    return raw("gram.resamples", usual, {"origin": np.zeros(4)})


def test_what_as_many_resamples_as_recordings_would_tell(rig, monkeypatch):
    """If the weights were known: how the recordings of each site differ, although only sums over sites are seen."""
    monkeypatch.setattr(ResampleGuard, "reads", lambda self, here, task: (here, task))
    n = 30
    sums = Server(rig, study(rig, n)).sum(resamples(rig, -1, n)).value.reshape(n + 1, -1)
    weights, truth = [], []
    for name in rig.names:
        site = read_data(read_site_settings(rig.place / name / "feddbn_site.toml"))
        plan = resampling_plan(site, 1, "auto", "recordings")
        weights.append(np.stack([plan.counts("bootstrap", 0, b) for b in range(-1, n)]))
        truth += [np.hstack([x[1:], x[:-1]]).sum(axis=0) for x in rig.data[name]]
    found = np.linalg.lstsq(np.hstack(weights), sums, rcond=None)[0]
    by_site = [np.reshape(x, (3, N_RECORDINGS, 4)) for x in (found[:, 1:5], truth)]
    found, truth = (x - x.mean(axis=1, keepdims=True) for x in by_site)
    np.testing.assert_allclose(found, truth, atol=1e-5)


def test_more_resamples_than_the_rule_allows_are_refused(rig):
    most = 3 * (N_RECORDINGS - 1) + 1
    server = Server(rig, study(rig, 30))
    # The data themselves are one of the sums.
    assert server.sum(resamples(rig, -1, most - 1)).contributors == rig.names
    server.refused(resamples(rig, most - 1, most), "too-many-resamples", most + 1, most)


def test_another_seed_in_another_run_after_a_restart_counts_too(rig):
    Server(rig, study(rig, 20), "one").sum(resamples(rig, -1, 20))
    for name in rig.names:
        rig.restart(name)
    # The same again tells nothing new.
    Server(rig, study(rig, 20), "two").sum(resamples(rig, -1, 20))
    third = Server(rig, study(rig, 20, seed=1), "three")
    third.refused(resamples(rig, -1, 20, seed=1), "too-many-resamples", 42)


@pytest.mark.parametrize("n_sites", [1, 3])
@pytest.mark.parametrize("least", [1, 10, 40, 100])
def test_what_is_left_of_a_combination_holds_enough_rows(least, n_sites):
    """Units are made to vanish, the largest first, as long as a combination of the equations can do it."""
    rng = np.random.default_rng(least)
    sizes = rng.integers(1, 40, size=12)
    most = most_resamples(sizes, least, n_sites)
    weights = np.hstack([rng.multinomial(12, np.full(12, 1 / 12), size=most - 1) for _ in range(n_sites)])
    weights = np.vstack([np.ones(12 * n_sites), weights])
    rows = np.tile(sizes, n_sites)
    for order in (np.argsort(rows)[::-1], *(rng.permutation(12 * n_sites) for _ in range(20))):
        kept = _left(weights, order)
        assert rows[kept].sum() >= least


def _left(weights, order):
    """The units that are left after as many as possible have vanished, in this order."""
    space = np.eye(len(weights))
    for unit in order:
        column = space @ weights[:, unit]
        smaller = np.linalg.svd(column[None, :])[2][1:] @ space
        if np.abs(smaller @ weights).max(initial=0.0) > 1e-6:
            space = smaller
    return np.abs(space @ weights).max(axis=0) > 1e-6


def test_a_site_without_enough_rows_answers_none():
    assert most_resamples(np.array([3, 4]), 10, 3) == 0
    assert most_resamples(np.array([]), 10, 3) == 0


def test_a_site_that_abstains_is_not_counted():
    class Asked:
        def abstains(self, state):
            return True

    guard = ResampleGuard(None, None)
    task = type("Task", (), {"question": Asked()})()
    here = Here("a", None, {})
    assert guard.reads(here, task) == (here, task)
