import importlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from feddbn.errors import FileError, ParameterError
from feddbn.federation.protocol.study import Study
from feddbn.runtime.engines.interface import FederationPlan
from feddbn.runtime.engines.nvflare.engine import write_job
from feddbn.runtime.engines.nvflare.housekeeping import JOBS
from feddbn.runtime.engines.nvflare.kit import ALLOWED_CLASSES, make_kits, place_stores, start_command
from support.saying import refused


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": "a b"}, "'a b'"),
        ({"sites": ("a", "../b")}, r"sites has '\.\./b'; use letters"),
        ({"sites": ("a", "a")}, "'a'"),
        ({"sites": ()}, "sites"),
        ({"sites": ("a", "host")}, "server"),
        ({"server": "ho st"}, "'ho st'"),
        ({"admin": "somebody"}, "'somebody'"),
        ({"port": 0}, "port"),
        ({"admin_port": 70000}, "admin_port"),
    ],
)
def test_an_impossible_plan_gives_one_sentence(changes, sentence):
    values = {"name": "fed", "server": "host", "sites": ("a", "b"), **changes}
    with pytest.raises(ParameterError, match=sentence):
        FederationPlan(**values)


def test_a_job_carries_configuration_and_no_code(tmp_path):
    study = Study(
        name="s",
        method="m",
        variables=("u",),
        sites=("a", "b"),
        attendance={"when_missing": "continue", "min_sites": 1},
    )
    job = write_job(study, "run-1", tmp_path)
    assert sorted(p.name for p in job.rglob("*") if p.is_file()) == [
        "config_fed_client.json",
        "config_fed_server.json",
        "meta.json",
    ]
    meta = json.loads((job / "meta.json").read_text())
    assert (meta["min_clients"], meta["mandatory_clients"]) == (1, [])
    assert meta["deploy_map"] == {"app": ["server", "a", "b"]}
    named = {c["path"] for p in job.rglob("config_fed*") for c in json.loads(p.read_text())["components"]}
    assert named <= set(ALLOWED_CLASSES)
    strict = Study(name="s", method="m", variables=("u",), sites=("a", "b"))
    meta = json.loads((write_job(strict, "run-2", tmp_path) / "meta.json").read_text())
    assert (meta["min_clients"], meta["mandatory_clients"]) == (2, ["a", "b"])


def test_a_directory_that_is_no_kit_is_refused(tmp_path):
    with refused(FileError, "sub_start.sh", code="no-kit"):
        start_command(tmp_path)


def make_kit(place, script):
    (place / "startup").mkdir()
    (place / "startup" / "sub_start.sh").write_text(script)
    return place


def test_a_participant_that_ends_with_an_error_is_started_again(tmp_path):
    """As a site is whose server did not answer its registration in time."""
    log = tmp_path / "log"
    kit = make_kit(tmp_path, f'echo "$@" >> {log}; test $(wc -l < {log}) -ge 3')
    done = subprocess.run(
        start_command(kit), env={**os.environ, "FEDDBN_RESTART_S": "0"}, capture_output=True, check=False
    )
    assert done.returncode == 0
    assert log.read_text().split() == ["--once"] * 3
    assert len(done.stderr.decode().splitlines()) == 2


def test_what_a_kits_script_prints_is_shown_unless_the_log_has_a_stream_of_its_own(tmp_path):
    kit = make_kit(tmp_path, "echo engine; echo study >&2")
    done = subprocess.run(start_command(kit), capture_output=True, check=True)
    assert done.stdout.decode().split() == ["engine"]
    (kit / "local").mkdir()
    (kit / "local" / "log_config.json").write_text('{"stream": "ext://sys.stderr"}')
    done = subprocess.run(start_command(kit), capture_output=True, check=True)
    assert (done.stdout.decode().split(), done.stderr.decode().split()) == ([], ["study"])


def test_a_participant_that_is_asked_to_stop_stops(tmp_path):
    log = tmp_path / "log"
    process = subprocess.Popen(start_command(make_kit(tmp_path, f"echo $$ > {log}; exec sleep 600")))
    end = time.monotonic() + 300
    while not (log.exists() and log.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text()), 0)


def test_kits_fork_jobs_and_tidy_up_with_classes_that_no_job_may_name(tmp_path):
    pytest.importorskip("nvflare")
    kits = make_kits(FederationPlan("fed", "host", ("a",)), tmp_path)
    for kit, launcher in (("host", "WarmServerLauncher"), ("a", "WarmSiteLauncher")):
        values = json.loads((kits[kit] / "local" / "resources.json").read_text())
        paths = {component["id"]: component["path"] for component in values["components"]}
        assert paths["process_launcher"] == f"feddbn.runtime.nvflare_launcher.{launcher}"
        assert ("memory_tidy" in paths) is (kit == "host")
        assert values["class_allow_list"] == list(ALLOWED_CLASSES)
        for path in (paths["process_launcher"], paths.get("memory_tidy", paths["process_launcher"])):
            module, _, name = path.rpartition(".")
            assert hasattr(importlib.import_module(module), name)
            assert path not in ALLOWED_CLASSES


def test_a_server_keeps_its_jobs_below_its_kit_wherever_that_was_unpacked(tmp_path):
    here = tmp_path / "moved"
    (here / "local").mkdir(parents=True)
    elsewhere = Path(__file__).parents[4] / "support" / "previous_kit" / "server" / "resources.json"
    made = elsewhere.read_text().replace("@KIT@", "/founders/machine/kits/host")
    (here / "local" / "resources.json").write_text(made)
    place_stores(here)
    placed = (here / "local" / "resources.json").read_text()
    # Nothing else changes.
    assert json.loads(placed) == json.loads(made.replace("/founders/machine/kits/host", str(here)))
    assert str(here / JOBS) in placed
    (here / "local" / "resources.json").write_text("{}")
    with refused(FileError, "resources.json", code="damaged-kit"):
        place_stores(here)
