"""The image and its compose file: what matters about them is checked here; they are built where an engine runs."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import runpy
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

import feddbn
from feddbn.cli.main import COMMANDS
from feddbn.cli.manual import commands_below

yaml = pytest.importorskip("yaml")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def instructions():
    """(word, rest) of every line of the Dockerfile; lines that go on are one."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def of(word):
    return [rest for found, rest in instructions() if found == word]


def is_sent_to_the_engine(path):
    """Whether .dockerignore lets a path through; the last line that fits decides."""
    kept = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#") and fnmatch.fnmatch(path, line.lstrip("!")):
            kept = line.startswith("!")
    return kept


def test_packages_come_from_the_lock_with_hashes_and_nothing_else_is_fetched():
    *locked, own = [rest for rest in of("RUN") if "pip install" in rest]
    assert [rest.split()[-1] for rest in locked] == ["/tmp/build.lock", "/tmp/requirements.lock"]
    for rest in locked:
        assert "--require-hashes" in rest
        assert "--only-binary :all:" in rest
    # What is built is built with the tools of the lock: their own hashes were checked.
    assert "--no-build-isolation" in locked[1]
    assert {"--no-index", "--no-deps"} <= set(own.split())
    tools = (DEPLOY / "build.lock").read_text().replace("\\\n", " ").splitlines()
    assert all(re.fullmatch(r"[a-z]+==[\d.]+(\s+--hash=sha256:[0-9a-f]{64})+", line) for line in tools)
    for word, rest in instructions():
        assert word != "ADD"
        assert not re.search(r"\b(curl|wget|apt-get|git)\b|://", rest)


def test_it_runs_as_nobody_special_and_says_whether_it_is_well():
    words = [word for word, _ in instructions()]
    (user,) = of("USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    # Nothing is installed or run after it as another.
    assert not {"RUN", "COPY"} & set(words[words.index("USER") :])
    (health,) = of("HEALTHCHECK")
    assert json.loads(health.partition("CMD ")[2]) == ["python", "/opt/feddbn/healthcheck.py", "/kit"]
    assert json.loads(of("ENTRYPOINT")[0]) == ["feddbn"]
    assert not of("EXPOSE")


def test_only_what_is_named_gets_into_an_image():
    copied = [rest.split()[:-1] for rest in of("COPY") if not rest.startswith("--from")]
    for source in (one for sources in copied for one in sources):
        assert is_sent_to_the_engine(source.replace("*", "1"))
        assert "*" in source or (ROOT / source).is_file()
    for secret in (
        "federation/kits/north/startup/client.key",
        ".env",
        ".venv/bin/python",
        "data.csv",
        "src/feddbn/errors.py",
    ):
        assert not is_sent_to_the_engine(secret), secret


@pytest.mark.parametrize("name", ["server", "site"])
def test_a_service_may_do_no_more_than_it_needs(name):
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True
    assert service["restart"] == "unless-stopped"
    assert service["image"] == f"feddbn:{feddbn.__version__}"
    assert not {"privileged", "network_mode", "cap_add", "devices", "environment", "pid"} & service.keys()
    assert re.fullmatch(r"\$\{KIT_UID:\?[^}]+\}:\$\{KIT_GID:\?[^}]+\}", service["user"])
    known = {path for entry in COMMANDS for path, _ in commands_below(COMMANDS[entry].load(entry), entry)}
    assert " ".join(service["command"]) in known
    places = {volume["target"]: volume for volume in service["volumes"]}
    assert list(places) == (["/kit"] if name == "server" else ["/kit", "/kit/data", "/kit/state"])
    assert [target for target, volume in places.items() if volume.get("read_only")] == list(places)[1:2]
    # The engine would make a missing directory as root, and the site could not write into it.
    assert all(volume["bind"] == {"create_host_path": False} for volume in places.values())


def test_a_site_opens_no_port_and_the_server_the_two_of_the_guide():
    assert "ports" not in COMPOSE["services"]["site"]
    assert COMPOSE["services"]["server"]["ports"] == ["8002:8002", "8003:8003"]


@pytest.fixture(scope="module")
def health():
    return runpy.run_path(str(DEPLOY / "healthcheck.py"))


def kit(place, name, port):
    (place / "startup").mkdir(parents=True)
    values = {"servers": [{"service": {"target": f"server.example.org:{port}"}}]}
    (place / "startup" / name).write_text(json.dumps(values))
    return str(place)


def test_a_server_is_well_while_it_listens(health, tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert health["main"]([kit(tmp_path / "kit", "fed_server.json", port)]) == 0
    assert health["main"]([str(tmp_path / "kit")]) == 1
    assert capsys.readouterr().out == f"the server does not listen at port {port}.\n"


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="connections are read from /proc")
def test_a_site_is_well_while_it_is_connected(health, tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        place = kit(tmp_path / "kit", "fed_client.json", port)
        assert health["main"]([place]) == 1
        with socket.create_connection(("127.0.0.1", port)):
            assert health["main"]([place]) == 0
    assert capsys.readouterr().out == f"the site is not connected to port {port} of its server.\n"


def docker(*arguments, **options):
    if shutil.which("docker") is None:
        pytest.skip("there is no docker client here")
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False, **options)


def test_compose_understands_the_file():
    if docker("compose", "version").returncode != 0:
        pytest.skip("the docker client here has no compose")
    example = ("--env-file", str(DEPLOY / "env.example"))
    done = docker(
        "compose",
        *example,
        "-f",
        str(DEPLOY / "compose.yaml"),
        "--profile",
        "*",
        "config",
        "--format",
        "json",
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["services"]) == {"server", "site"}


def test_the_image_is_built_and_runs(tmp_path):
    if docker("info").returncode != 0:
        pytest.skip("no container engine runs here")
    wheels = list((ROOT / "dist").glob(f"feddbn-{feddbn.__version__}-*.whl"))
    if not wheels:
        pytest.skip("there is no wheel in dist; run `python -m build --wheel` first")
    done = docker(
        "build",
        "-f",
        str(DEPLOY / "Dockerfile"),
        "-t",
        "feddbn:test",
        str(ROOT),
        env={**os.environ, "DOCKER_BUILDKIT": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = docker(
        "run", "--rm", "--read-only", "--tmpfs", "/tmp", "--user", "12345:12345", "feddbn:test", "--version"
    )
    assert said.stdout == f"feddbn {feddbn.__version__}\n", said.stderr
