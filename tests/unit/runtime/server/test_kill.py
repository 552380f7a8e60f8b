"""A masked study whose process, server and sites in one, is killed at any commit ends with the same bits."""

import logging

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.federation.protocol.study import StudyResult
from feddbn.runtime.server.conduct import Progress, conduct
from feddbn.runtime.store import Store, run_directory
from support.consortium import NAMES, Consortium, make_study
from support.crash import in_child

pytestmark = pytest.mark.promise

STUDY = make_study(parameters={"n_lags": 1, "check_residuals": False}, attendance={"when_missing": "wait"})


def work(say, place, run):
    sites = Consortium.at(place)
    out = run_directory(sites.place / "out", run)
    runs = sites.place / "runs"
    conduct(sites.restart(), STUDY, run, runs, out, Progress(run, NAMES), logging.getLogger("test").info)
    return StudyResult.from_bytes((out / "result.feddbn").read_bytes()).arrays


@pytest.mark.parametrize("every", [37, pytest.param(5, marks=pytest.mark.slow)])
def test_a_masked_study_killed_at_a_commit_and_again_ends_with_the_same_bits(tmp_path, every):
    """Each run is killed at its commit, then while it goes on, and then it ends."""
    sites = Consortium(tmp_path, policy="approve_by_rule = true\n")
    calm = in_child(work, tmp_path, "calm")
    journal = Store(tmp_path / "runs")
    points = range(2 * calm.n_commits)[::every]
    assert len(points) > 4
    for point in points:
        run = f"run-{point}"
        assert in_child(work, tmp_path, run, at=point).is_killed
        in_child(work, tmp_path, run, at=point // 2)
        found = in_child(work, tmp_path, run).value
        assert calm.value.keys() == found.keys()
        assert all(np.array_equal(calm.value[name], found[name]) for name in found)
        assert journal.records(run, "journal")
    for name in NAMES:
        assert sites.owner(name).audit.account().doubt is None
