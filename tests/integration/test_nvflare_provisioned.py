"""A consortium on NVFlare: the lines of the manual, typed, with a server and three clients as processes and TLS between them.

The result has the bits of the same study by files. Kits that NVFlare provisions with our builder let nobody bring code.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("nvflare")
pytest.importorskip("cryptography")
from feddbn.federation.protocol.study import StudyResult, parse_study
from support.consortium import NAMES
from support.file_kits import FileKits

pytestmark = [pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "platforms.md").read_text(encoding="utf-8")
PATIENCE_S = 300.0


def lines() -> list[str]:
    (block,) = re.findall(r"<!-- guide: nvflare -->\n```sh\n(.*?)```", PAGE, re.S)
    return [line.partition("  #")[0].rstrip() for line in block.splitlines()]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


class Machine:
    """One machine that stands for all: a folder, in which lines are typed; what they started ends with it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        tools = place / "bin"
        tools.mkdir()
        for name, module in (("feddbn", "feddbn.cli"), ("nvflare", "nvflare.cli")):
            start = f"import sys; from {module}{'.main' * (name == 'feddbn')} import main; sys.exit(main())"
            (tools / name).write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{start}' \"$@\"\n")
        (tools / "python3").write_text(f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n")
        for tool in tools.iterdir():
            tool.chmod(0o755)
        path = os.pathsep.join((str(tools), os.environ["PATH"]))
        found = os.pathsep.join(one for one in sys.path if one)
        places = {"HOME": str(place), "TMPDIR": str(place), "MPLCONFIGDIR": str(place / "mpl")}
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.environment = {**os.environ, **places, **threads, "PATH": path, "PYTHONPATH": found}

    def types(self, line: str) -> str:
        """Type a line until it ends well, as long as a person would; what it starts in the background goes on."""
        end = time.monotonic() + PATIENCE_S
        while True:
            with open(self.place / "said.txt", "w+b") as said:
                done = subprocess.run(
                    ["bash", "-c", line],
                    cwd=self.place,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    timeout=PATIENCE_S,
                    check=False,
                )
                said.seek(0)
                told = said.read().decode(errors="replace")
            if done.returncode == 0:
                return told
            assert time.monotonic() < end, f"{line}: {told}"
            time.sleep(2.0)

    def end(self) -> None:
        """Kill what was started here, until nothing is left."""
        while found := [
            pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._knows(pid)
        ]:
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)

    def _knows(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return f"HOME={self.place}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    try:
        yield made
    finally:
        made.end()


def tables(columns):
    rng = np.random.default_rng(7)
    for name in NAMES:
        x = rng.normal(size=(240, len(columns)))
        for t in range(1, len(x)):
            x[t] += 0.5 * x[t - 1]
            x[t, 2] += 0.8 * x[t - 1, 0]
        yield name, pd.DataFrame(x, columns=columns)


def written(machine: Machine) -> Path:
    """The files of `deploy/nvflare` as a consortium of one machine would change them; return the study."""
    shutil.copytree(ROOT / "deploy" / "nvflare", machine.place / "deploy" / "nvflare")
    project = machine.place / "deploy" / "nvflare" / "project.yml"
    text = project.read_text(encoding="utf-8").replace("server.example.org", "localhost")
    text = text.replace("8002", str(free_port())).replace("/srv/feddbn", str(machine.place))
    project.write_text(text, encoding="utf-8")
    study = machine.place / "deploy" / "nvflare" / "job" / "app" / "config" / "study.toml"
    # Two runs have the same bits where no noise is drawn.
    with open(study, "a", encoding="utf-8") as file:
        file.write('protection = "exact"\n')
    return study


def test_the_lines_of_the_manual_end_with_the_bits_of_a_study_by_files(machine):
    path = written(machine)
    study = parse_study(path.read_text(encoding="utf-8"), "study.toml")
    install, init, provision, name, server, approve, site, submit, wait, download = lines()
    assert install.startswith("pip install")

    def typed(line, **words):
        line = f"{name}; {line}".replace("server.example.org", "localhost")
        for old, new in words.items():
            line = line.replace(old, new)
        return machine.types(line)

    typed(init)
    typed(provision)
    by_files = FileKits(machine.place / "files")
    for owner, table in tables(study.variables):
        for kit in (machine.place / "kits" / "kits" / owner, by_files.kits[owner]):
            table.to_csv(kit / "data" / "r000.csv", index=False)
    typed(server)
    for owner in NAMES:
        typed(f"{approve} --yes", north=owner)
        typed(site, north=owner)
    job = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", typed(submit))[0]
    typed(wait, ID=job)
    typed(download, ID=job)
    (kept,) = (machine.place / "runs").rglob("result.feddbn")
    assert kept.read_bytes() in [
        one.read_bytes() for one in (machine.place / "result").rglob("result.feddbn")
    ]
    assert by_files.run(study).state == "finished"
    found, expected = (StudyResult.from_bytes(one).arrays for one in (kept.read_bytes(), by_files.result()))
    assert set(found) == set(expected)
    assert np.any(found["A"])
    for array in expected:
        np.testing.assert_array_equal(found[array], expected[array])


@pytest.mark.promise
def test_kits_allow_two_classes_and_nobody_brings_code(machine):
    written(machine)
    machine.types(lines()[2])
    kits = machine.place / "federation" / "studies" / "prod_00"
    for name in ("localhost", *NAMES):
        resources = json.loads((kits / name / "local" / "resources.json.default").read_text())
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert {one.rpartition(".")[2] for one in resources["class_allow_list"]} == {
            "FeddbnController",
            "FeddbnExecutor",
        }
        assert "/tmp/nvflare" not in json.dumps(resources)
        rights = json.loads((kits / name / "local" / "authorization.json.default").read_text())
        assert {(one["byoc"], one["shell_commands"]) for one in rights["permissions"].values()} == {
            ("none", "none")
        }
        assert not resources["allow_log_streaming"]
