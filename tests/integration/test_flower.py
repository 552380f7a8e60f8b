"""Flower with TLS and registered site keys gives what one process gives; a stranger's key is refused."""

import time

import pytest

pytest.importorskip("flwr")
from feddbn.federation.protocol.study import StudyResult
from feddbn.methods.treated import AS_THEY_ARE
from feddbn.runtime.engines.flower.kit import make_flower_kits
from feddbn.runtime.engines.plan import FederationPlan
from support.conformance import PARAMETERS, assert_same, in_process, make_study, plans
from support.flower_federation import SERVER, FlowerFederation

SITES = ("site-a", "site-b")


@pytest.fixture(scope="module")
def flower(tmp_path_factory, frames):
    chosen = {site: frames[site] for site in SITES}
    with FlowerFederation(tmp_path_factory.mktemp("flower"), SITES, chosen) as running:
        yield running


NAMES = ("fdbnl", "oneshot", "oneshot-masked")


@pytest.fixture(scope="module")
def finished(flower, frames):
    """Three studies at the same time; a round takes seconds on Flower, so only the one in the clear looks at its data."""
    variables = next(iter(frames.values())).columns
    attendance = {"timeout_s": 240.0}
    few = {**PARAMETERS["fdbnl"], **AS_THEY_ARE, "max_rounds": 3}
    plain = {**PARAMETERS["oneshot"], **AS_THEY_ARE, "check_residuals": False}
    studies = {
        **plans(SITES, variables, ("oneshot",), attendance=attendance, parameters=plain),
        "oneshot": make_study("oneshot", SITES, variables, attendance=attendance),
        "fdbnl": make_study("fdbnl", SITES, variables, parameters=few, attendance=attendance),
    }
    runs = {name: flower.submit(studies[name], f"flower-{name}") for name in NAMES}
    return {name: (studies[name], flower.outcome(run)) for name, run in runs.items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_study_gives_the_same_network_as_in_process(finished, flower, name):
    study, outcome = finished[name]
    assert outcome["state"] == "finished", outcome
    path = flower.kits[SERVER] / "runs" / f"flower-{name}" / "result.feddbn"
    data = {site: flower.kits[site] / "data.csv" for site in SITES}
    assert_same(StudyResult.from_bytes(path.read_bytes()), in_process(study, data))
    for site in SITES:
        assert (flower.kits[site] / "state" / f"flower-{name}" / "result.feddbn").exists()


def test_a_site_whose_key_is_not_registered_is_refused(flower, tmp_path):
    stranger = make_flower_kits(FederationPlan("demo", SERVER, ("site-x",)), tmp_path)["site-x"]
    flower.start_node("site-a", key=stranger / "site.key")
    process = flower.processes["site-a-stranger"]
    end = time.monotonic() + 240
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.2)
    assert process.poll() not in (None, 0)
    assert "Failed to activate SuperNode" in (flower.root / "site-a-stranger.log").read_text()
