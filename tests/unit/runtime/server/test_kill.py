"""A masked study whose process, server and sites in one, is killed (SIGKILL) at random moments ends with the same bits."""

import logging
import shutil

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.federation.protocol.study import StudyResult
from feddbn.runtime.server.conduct import Progress, conduct
from feddbn.runtime.store import Store, run_directory
from support.owned_sites import NAMES, OwnedSites, killed, make_study

pytestmark = pytest.mark.usefixtures("light")

STUDY = make_study(parameters={"n_lags": 1, "check_residuals": False}, attendance={"when_missing": "wait"})


def work(sites, run="run-1"):
    out = run_directory(sites.place / "out", run)
    conduct(
        sites.exchange(),
        STUDY,
        run,
        sites.place / "runs",
        out,
        Progress(run, NAMES),
        logging.getLogger("test").info,
    )
    return StudyResult.from_bytes((out / "result.feddbn").read_bytes()).arrays


@pytest.mark.parametrize("n_kills", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_a_masked_study_killed_at_random_moments_ends_with_the_same_bits(tmp_path, n_kills):
    rng = np.random.default_rng(n_kills)
    sites = OwnedSites(tmp_path / "calm", "approve_by_rule = true\n")
    # A copy: the same keys and the same data.
    shutil.copytree(tmp_path / "calm", tmp_path / "killed")
    calm = work(sites)
    beside = OwnedSites.at(tmp_path / "killed")
    journal = Store(beside.place / "runs")
    for kill in range(n_kills):
        # Each run is killed a few times, then the next begins.
        run = f"run-{kill // 4}"
        killed(lambda say, run=run: work(beside, run), rng.uniform(0.02, 1.0))
        if kill % 4 == 3:
            found = work(beside, run)
            assert calm.keys() == found.keys()
            assert all(np.array_equal(calm[name], found[name]) for name in calm)
            assert journal.records(run, "journal")
    for name in NAMES:
        audit = beside.owner(name).audit
        assert audit.account().doubt is None
