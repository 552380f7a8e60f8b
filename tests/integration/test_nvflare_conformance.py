"""Every method gives on NVFlare, over mutual TLS, what it gives in one process."""

import pytest

pytest.importorskip("nvflare")
from feddbn.federation.protocol.study import StudyResult
from support.conformance import PARAMETERS, assert_same, in_process, plans
from support.trials import SITES

pytestmark = pytest.mark.usefixtures("light")

NAMES = [*(f"{m}{kind}" for m in PARAMETERS for kind in ("", "-masked")), "pfdbnl-sampled"]
SMOKE = "pfdbnl-masked"


@pytest.fixture(scope="module")
def finished(federation, frames, request):
    """The studies that tests of this session look at, run at the same time."""
    variables = next(iter(frames.values())).columns
    tests = [item for item in request.session.items if "finished" in getattr(item, "fixturenames", ())]
    asked = {test.callspec.params["name"] for test in tests if hasattr(test, "callspec")}
    studies = {name: study for name, study in plans(SITES, variables).items() if name in asked}
    console = federation.console
    jobs = {name: console.submit(study, f"conformance-{name}") for name, study in studies.items()}
    out = {}
    for name, job in jobs.items():
        status = console.wait(job)
        folder = console.fetch(job, federation.root / "out" / f"conformance-{name}")
        out[name] = (studies[name], status, folder)
    return out


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.smoke] * (name == SMOKE)) for name in NAMES]
)
def test_a_study_gives_the_same_network_as_in_process(finished, federation, name):
    study, status, folder = finished[name]
    assert status == "FINISHED:COMPLETED", (folder / "outcome.json").read_text()
    found = StudyResult.from_bytes((folder / "result.feddbn").read_bytes())
    assert_same(found, in_process(study, federation.data()))
    for site in study.sites:
        kept = StudyResult.from_bytes(
            (federation.state(site) / f"conformance-{name}" / "result.feddbn").read_bytes()
        )
        assert_same(kept, found)


def test_a_sites_terminal_tells_studies_and_no_engine(finished, federation):
    lines = federation.terminal(SITES[0]).splitlines()
    assert any(f"site {SITES[0]} is connected" in line for line in lines)
    for name, (study, _, _) in finished.items():
        began = f"study {study.name!r} from lead@example.org began (run conformance-{name})"
        assert any(began in line for line in lines)
    assert not [line for line in lines if " - INFO - " in line or "aux handler" in line]
