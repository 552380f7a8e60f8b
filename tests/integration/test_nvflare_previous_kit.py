"""A federation whose kits the previous version made runs studies with this one, nothing in the kits changed.

What the stored policy does not list is refused: what came later has to be allowed by the owners. It does not say that it
approves by rule, so the owners approve studies one by one.
"""

import json

import pytest
from typer.testing import CliRunner

pytest.importorskip("nvflare")
from feddbn import AS_THEY_ARE
from feddbn.cli.main import app
from feddbn.federation.protocol.study import Attendance, StudyResult
from feddbn.runtime.engines.interface import engine_of
from feddbn.runtime.server.results import read_outcome
from support.conformance import PARAMETERS, assert_same, in_process, plans
from support.nvflare_federation import SERVER, NVFlareFederation
from support.previous_kit import lay_out
from support.study_files import as_toml
from support.trials import SITES

pytestmark = pytest.mark.usefixtures("light")


@pytest.fixture(scope="module")
def previous(tmp_path_factory, frames):
    """A server and three sites, the files in their kits' `local` as the previous version left them."""
    chosen = {site: frames[site] for site in SITES}
    federation = NVFlareFederation(tmp_path_factory.mktemp("previous"), chosen)
    lay_out(federation.kits[SERVER], "server")
    for site in SITES:
        kit = federation.kits[site]
        lay_out(kit, "site", site)
        (kit / "data").mkdir()
        (kit / "data.csv").rename(kit / "data" / "recording.csv")
    with federation as running:
        yield running


def approve(federation, study, run_id):
    """Let every owner type the command."""
    path = federation.root / f"{run_id}.toml"
    path.write_text(as_toml(study))
    for site in SITES:
        done = CliRunner().invoke(
            app, ["site", "approve", str(path), "--kit", str(federation.kits[site]), "--yes", "--json"]
        )
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["digest"] == study.digest


def test_studies_of_every_method_run_under_the_stored_policy(previous, frames):
    """Studies that do not look around first: tasks that did not exist are not allowed by a policy of that time."""
    variables = next(iter(frames.values())).columns
    studies = {}
    for name, parameters in PARAMETERS.items():
        check = {"check_residuals": False, "resamples": 0} if name == "oneshot" else {}
        plain = {**parameters, "prepare": {**AS_THEY_ARE, "period": []}, **check}
        studies[f"{name}-masked"] = plans(SITES, variables, (name,), parameters=plain)[f"{name}-masked"]
    for name, study in studies.items():
        approve(previous, study, name)
    jobs = {name: previous.console.submit(study, name) for name, study in studies.items()}
    data = {site: previous.kits[site] / "data" for site in SITES}
    for name, job in jobs.items():
        status = previous.console.wait(job)
        folder = previous.console.fetch(job, previous.root / "out" / name)
        assert status == "FINISHED:COMPLETED", (folder / "outcome.json").read_text()
        found = StudyResult.from_bytes((folder / "result.feddbn").read_bytes())
        assert_same(found, in_process(studies[name], data))
        for site in SITES:
            assert (previous.state(site) / name / "result.feddbn").exists()


def refused(previous, frames, run, approved=True, **changes):
    """Send a study that every site refuses; return why, and what the outcome says."""
    variables = next(iter(frames.values())).columns
    study = plans(SITES, variables, ("oneshot",))["oneshot-masked"].model_copy(update=changes)
    if approved:
        approve(previous, study, run)
    job = previous.console.submit(study, run)
    previous.console.wait(job)
    outcome = read_outcome(previous.console.fetch(job, previous.root / "out" / run))
    assert set(outcome["reasons"]) == set(SITES)
    (code,) = set(outcome["reasons"].values())
    return code, outcome["sentence"]


def test_a_task_that_came_later_is_refused_by_name(previous, frames):
    code, sentence = refused(previous, frames, "looking")
    assert code == "tasks-not-allowed"
    assert "survey.first, residuals.checks" in sentence


def test_a_study_that_nobody_approved_is_refused_with_the_command_to_type(previous, frames):
    at_once = Attendance(when_missing="abort")
    code, sentence = refused(previous, frames, "unheard", approved=False, name="unheard", attendance=at_once)
    assert code == "not-approved"
    assert "`feddbn site approve" in sentence
    for site in SITES:
        done = CliRunner().invoke(app, ["site", "log", "--kit", str(previous.kits[site]), "--run", "unheard"])
        assert "refused" in done.output


def test_only_its_lead_can_send_a_study_that_names_one(previous, frames):
    code, sentence = refused(previous, frames, "of-another", lead="other@example.org")
    assert code == "other-lead"
    assert previous.plan.admin in sentence


def test_the_site_check_finds_nothing_wrong_with_such_a_kit(previous):
    for site in SITES:
        found = engine_of(previous.kits[site]).check_site(previous.kits[site])
        assert [one for one in found if one.level == "error"] == []
        assert {"settings-read", "classes-ours", "certificate", "server-answers"} <= {
            one.code for one in found
        }
