"""The deployment guide, followed literally from a clean directory to a downloaded result."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("nvflare")
from support.nvflare_federation import children, free_ports

GUIDE = Path(__file__).parents[2] / "docs" / "deployment.md"
STEP = re.compile(r"<!-- guide: (run|background|file (\S+)) -->\n```\w+\n(.*?)```", re.DOTALL)


def steps():
    return [(kind.split()[0], name, text) for kind, name, text in STEP.findall(GUIDE.read_text())]


def test_following_the_guide_ends_with_a_result(tmp_path):
    port, admin_port = free_ports(2)
    stand_ins = {"server.example.org": "localhost", "8002": str(port), "8003": str(admin_port)}
    tools = tmp_path / "bin"
    tools.mkdir()
    program = "import sys; from feddbn.cli.main import main; sys.exit(main())"
    (tools / "feddbn").write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{program}' \"$@\"\n")
    (tools / "feddbn").chmod(0o755)
    (tools / "python3").symlink_to(sys.executable)
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PATH": f"{tools}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "OMP_NUM_THREADS": "1",
    }
    place = tmp_path / "clean"
    place.mkdir()
    started = []
    try:
        for kind, name, text in steps():
            for old, new in stand_ins.items():
                text = text.replace(old, new)
            if kind == "file":
                (place / name).write_text(text)
            elif kind == "background":
                with open(tmp_path / f"log-{len(started)}", "wb") as log:
                    started.append(
                        subprocess.Popen(
                            ["bash", "-c", text],
                            cwd=place,
                            env=environment,
                            stdout=log,
                            stderr=subprocess.STDOUT,
                            start_new_session=True,
                        )
                    )
                wait_for_port(port)
            else:
                if "feddbn study submit" in text:
                    wait_for_sites(place, environment, 3)
                done = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", text],
                    cwd=place,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=600,
                    check=False,
                )
                assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert {"dbn.json", "outcome.json", "events.jsonl", "result.npz"} <= {
            p.name for p in (place / "result").iterdir()
        }
        assert (place / "north" / "state" / "first-run" / "result.feddbn").exists()
    finally:
        for process in started:
            for pid in [*children(process.pid), process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


def wait_for_port(port, timeout_s=240):
    """The guide's reader sees the server come up; the script waits for its port."""
    import socket

    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    raise TimeoutError("the server's port did not open")


def wait_for_sites(place, environment, n, timeout_s=240):
    """Unpack the lead's kit, as the step itself does, and wait until the sites are connected."""
    subprocess.run(["tar", "-xzf", "lead@example.org.tgz"], cwd=place, check=True)
    command = ["feddbn", "study", "status", "--json", "--kit", "lead@example.org"]
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode == 0 and len(json.loads(done.stdout)["sites"]) == n:
            return
        time.sleep(0.5)
    raise TimeoutError("the sites did not connect")


def test_the_guide_has_every_kind_of_step():
    kinds = [kind for kind, _, _ in steps()]
    assert kinds.count("background") == 4
    assert "file" in kinds
    assert kinds.count("run") >= 5
