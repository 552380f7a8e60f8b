"""NVFlare's simulator on site folders, in any version of NVFlare."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support.bridge import Bridge

TESTS = Path(__file__).parents[1]
ADAPTER = "feddbn.adapters.nvflare"
_NEEDS = {"2.5": ["websockets"]}


def overlay(version: str) -> str:
    """A folder with another version of NVFlare, kept for the next time; "" is the installed one."""
    if not version:
        return ""
    place = Path(tempfile.gettempdir()) / f"feddbn-nvflare-{version}"
    if not (place / "nvflare").is_dir():
        more = _NEEDS.get(version[:3], [])
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", f"{place}.new"]
        done = subprocess.run([*command, f"nvflare=={version}", *more], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(
                f"nvflare {version} cannot be installed here: {done.stderr.strip().splitlines()[-1:]}"
            )
        shutil.rmtree(place, ignore_errors=True)
        os.rename(f"{place}.new", place)
    return str(place)


def write_job(job: Path, n_sites: int, controller: str, executor: str = f"{ADAPTER}.FeddbnExecutor", **given):
    config = job / "app" / "config"
    config.mkdir(parents=True)
    meta = {"name": "study", "resource_spec": {}, "min_clients": n_sites, "deploy_map": {"app": ["@ALL"]}}
    server = {"format_version": 2, "server": {"task_request_interval": 0.05}}
    server["workflows"] = [{"id": "study", "path": controller, "args": given}]
    client = {"format_version": 2, "default_task_fetch_interval": 0.05}
    client["executors"] = [{"tasks": ["feddbn"], "executor": {"path": executor, "args": {}}}]
    (job / "meta.json").write_text(json.dumps(meta))
    (config / "config_fed_server.json").write_text(json.dumps({**server, "components": []}))
    (config / "config_fed_client.json").write_text(json.dumps({**client, "components": []}))
    return config


def start(job: Path, sites, folders: str, version="", more=(), **environment) -> subprocess.Popen:
    """Begin `nvflare simulator`; `folders` is what the sites' owners set as FEDDBN_SITE."""
    work = job.with_name("simulated")
    (work / "local").mkdir(parents=True)
    allowed = [f"{ADAPTER}.FeddbnController", f"{ADAPTER}.FeddbnExecutor", *more]
    (work / "local" / "resources.json").write_text(json.dumps({"class_allow_list": allowed}))
    path = [overlay(version), *[one for one in sys.path if one], str(TESTS)]
    values = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "HOME": str(job.parent)}
    values |= {"FEDDBN_SITE": folders, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-c", "import sys; from nvflare.cli import main; sys.exit(main())"]
    names = ",".join(sites)
    with open(job.with_name("log.txt"), "wb") as log:
        return subprocess.Popen(
            [*command, "simulator", str(job), "-w", str(work), "-c", names, "-t", str(len(sites))],
            env=values,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def simulated(root: Path, sites, folders: str, version="", timeout_s=60.0):
    """The exchange of a running simulator."""
    root.mkdir(parents=True)
    bridges = [f"support.nvflare_bridge.Bridge{one}" for one in ("Controller", "Executor")]
    write_job(root / "job", len(sites), *bridges, timeout_s=timeout_s)

    def begin(environment):
        return [start(root / "job", sites, folders, version, bridges, **environment)]

    return Bridge(root / "bridge", begin)
