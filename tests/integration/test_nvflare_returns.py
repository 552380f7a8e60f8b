"""A site that is killed and started again goes on with the runs it was in, without a word from the lead."""

import numpy as np
import pytest

pytest.importorskip("nvflare")
from feddbn.federation.protocol.study import Privacy
from support.nvflare_federation import SERVER
from support.trials import assert_nothing_executed_twice, in_process, make_study, result_of, wait_for_sum

pytestmark = pytest.mark.usefixtures("light")


@pytest.fixture
def federation(federation):
    federation.slow_down()
    yield federation
    federation.hurry()
    federation.revive()


def test_a_site_that_comes_back_is_used_by_the_running_study(federation):
    plain = make_study("back", rounds=12, when_missing="wait", max_wait_s=200.0)
    masks = {"secure_aggregation": True, "protection": "exact", "min_sites": 3}
    studies = {"back": plain, "back-masked": plain.model_copy(update={"privacy": Privacy(**masks)})}
    jobs = {run: federation.console.submit(study, run) for run, study in studies.items()}
    for run in studies:
        wait_for_sum(federation, run, 2)
    federation.kill("site-b")
    said = len(federation.terminal("site-b"))
    federation.start("site-b")
    federation.hurry()
    for run, study in studies.items():
        assert federation.console.wait(jobs[run]).endswith("COMPLETED"), federation.log(SERVER)[-6000:]
        # Masks round, in the last digits.
        found, expected = result_of(federation, jobs[run], run), in_process(federation, study)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 if run == "back-masked" else 0)
        assert_nothing_executed_twice(federation, run)
    told = federation.terminal("site-b")[said:].splitlines()
    assert told
    assert not [line for line in told if "ME=" in line or "SID:" in line], told
