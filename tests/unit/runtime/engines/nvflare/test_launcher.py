import importlib.util
import os
import subprocess
import sys

import pytest

pytest.importorskip("nvflare")
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobProcessArgs, JobReturnCode
from nvflare.apis.workspace import Workspace
from nvflare.app_common.job_launcher.process_launcher import ProcessJobLauncher

from feddbn.errors import StateError
from feddbn.runtime.engines.nvflare.components import (
    SERVER_MODULES,
    SITE_MODULES,
    WarmServerLauncher,
    WarmSiteLauncher,
    process_name,
)
from feddbn.runtime.engines.nvflare.kit import start_environment

JOB = "0a1b2c3d-0000-0000-0000-000000000000"


class Forked:
    """Stands for the process to fork from; notes what it is asked."""

    def __init__(self, refusal=None):
        self.refusal = refusal
        self.asked = []
        self.pid = 4711

    def launch(self, *request):
        if self.refusal:
            raise StateError(self.refusal)
        self.asked.append(request)
        return self

    def start(self):
        self.asked.append("start")

    def close(self):
        self.asked.append("close")

    def poll(self):
        return -9

    def wait(self):
        return -9


@pytest.fixture
def context(tmp_path):
    for name in ("startup", "local", JOB):
        (tmp_path / name).mkdir()
    context = FLContext()
    values = {
        JobProcessArgs.EXE_MODULE: ("-m", "some.module"),
        JobProcessArgs.JOB_ID: ("-n", JOB),
        JobProcessArgs.AUTH_TOKEN: ("-t", "secret"),
    }
    context.set_prop(FLContextKey.WORKSPACE_OBJECT, Workspace(str(tmp_path), "site-a"))
    context.set_prop(FLContextKey.JOB_PROCESS_ARGS, values)
    return context


@pytest.fixture
def cold(monkeypatch):
    started = []
    monkeypatch.setattr(
        ProcessJobLauncher, "launch_job", lambda self, meta, ctx: started.append(meta) or "cold"
    )
    return started


@pytest.mark.parametrize("kind", [WarmSiteLauncher, WarmServerLauncher])
def test_a_job_is_forked_with_the_command_and_environment_of_nvflares_own_launcher(kind, context, cold):
    launcher = kind()
    launcher._warm = warm = Forked()
    handle = launcher.launch_job({"job_id": JOB}, context)
    ((module, arguments, environment, name),) = warm.asked
    assert (module, arguments) == ("some.module", ["-n", JOB])
    assert environment["NVFLARE_JOB_AUTH_TOKEN"] == "secret"
    assert {k: v for k, v in environment.items() if k in os.environ and k != "PYTHONPATH"} == {
        k: v for k, v in os.environ.items() if k != "PYTHONPATH"
    }
    assert set(filter(None, sys.path)) <= set(environment["PYTHONPATH"].split(os.pathsep))
    assert name == process_name(JOB) == "job 0a1b2c3d"
    assert handle.poll() == JobReturnCode.EXECUTION_ERROR
    assert not cold


def test_a_job_that_cannot_be_forked_starts_in_a_fresh_interpreter(context, cold):
    launcher = WarmSiteLauncher()
    launcher._warm = Forked("the process to fork from is not ready.")
    assert launcher.launch_job({"job_id": JOB}, context) == "cold"
    assert cold == [{"job_id": JOB}]


def test_a_job_that_brings_code_is_never_forked(context, cold, tmp_path):
    launcher = WarmSiteLauncher()
    launcher._warm = warm = Forked()
    os.makedirs(Workspace(str(tmp_path), "site-a").get_app_custom_dir(JOB))
    assert launcher.launch_job({"job_id": JOB}, context) == "cold"
    assert not warm.asked


def test_imports_begin_with_the_site_and_end_with_it(context):
    launcher = WarmSiteLauncher()
    assert launcher._warm.pid is None
    launcher._warm = warm = Forked()
    for event in (EventType.SYSTEM_START, EventType.BEFORE_JOB_LAUNCH, EventType.SYSTEM_END):
        launcher.handle_event(event, context)
    assert warm.asked == ["start", "close"]
    assert context.get_prop(FLContextKey.JOB_LAUNCHER) == [launcher]


def test_every_module_to_import_ahead_exists():
    assert not [name for name in (*SITE_MODULES, *SERVER_MODULES) if importlib.util.find_spec(name) is None]


@pytest.mark.parametrize("modules", ["SITE_MODULES", "SERVER_MODULES"])
def test_importing_ahead_starts_no_thread_and_leaves_tensors_out(modules):
    """Else no job could be forked, and every one would take seconds of imports: NVFlare asks for tensors in each of them."""
    program = (
        "import importlib, os; from feddbn.runtime.engines.nvflare import components as launcher\n"
        f"for name in launcher.{modules}: importlib.import_module(name)\n"
        "from nvflare.fuel.utils.import_utils import optional_import\n"
        "_, has_tensors = optional_import('nvflare.app_opt.pt.decomposers', name='TensorDecomposer')\n"
        "print(len(os.listdir('/proc/self/task')), has_tensors)"
    )
    values = {**start_environment(), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=values, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-2:] == ["1", "False"]
