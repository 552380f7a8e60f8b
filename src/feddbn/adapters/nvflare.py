"""Studies over plain NVFlare: bytes in the tasks of a controller and an executor; a job names both and brings no code.

A site's folder is said at the site, never by the job: in its environment as ``FEDDBN_SITE`` (``{site}`` in it is the site's
name), else it is ``local`` of its kit. The server keeps runs in its ``FEDDBN_RUNS``, else in ``feddbn_runs`` of its kit.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nvflare.apis.controller_spec import SendOrder, Task
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.lighter.spec import Builder

from feddbn.engine import Endpoint, Exchange, conduct
from feddbn.engine.site import SiteCalled
from feddbn.errors import StillCollecting
from feddbn.federation.protocol.study import parse_study

TASK, BYTES, _FETCHED = "feddbn", "bytes", "feddbn_fetched"
CLASSES = ("feddbn.adapters.nvflare.FeddbnController", "feddbn.adapters.nvflare.FeddbnExecutor")
_LOGS = ("site_log_streamer", "log_receiver")


class FeddbnBuilder(Builder):  # type: ignore[misc]
    """Makes start-up kits that run studies and nothing else; in ``project.yml`` it stands after NVFlare's StaticFileBuilder.

    Only the two classes of studies are allowed, nobody brings code or opens a shell, and no log leaves a site. `store` is
    where the server keeps jobs: NVFlare by itself keeps them among temporary files.
    """

    def __init__(self, store: str) -> None:
        self.store = Path(store)

    def build(self, project: Any, ctx: Any) -> None:
        """Change the settings of the server's kit and of the clients'."""
        for participant in (project.get_server(), *project.get_clients()):
            local = Path(ctx.get_local_dir(participant))
            path = local / "resources.json.default"
            resources = json.loads(path.read_text(encoding="utf-8"))
            resources |= {"class_list_enforcement_mode": "enforce", "class_allow_list": list(CLASSES)}
            resources["allow_log_streaming"] = False
            parts = {one["id"]: one for one in resources["components"]}
            resources["components"] = [one for name, one in parts.items() if name not in _LOGS]
            if "job_manager" in parts:
                parts["job_manager"]["args"]["uri_root"] = str(self.store / "jobs")
                storage = resources["snapshot_persistor"]["args"]["storage"]
                storage["args"]["root_dir"] = str(self.store / "snapshots")
            path.write_text(json.dumps(resources, indent=2), encoding="utf-8")
            path = local / "authorization.json.default"
            rights = json.loads(path.read_text(encoding="utf-8"))
            roles = rights["permissions"]
            roles["project_admin"] = dict(roles["lead"])
            for role in roles.values():
                role |= {"byoc": "none", "shell_commands": "none"}
            path.write_text(json.dumps(rights, indent=2), encoding="utf-8")


class FeddbnController(Controller):  # type: ignore[misc]
    """Runs the study in the file `study` of the job's ``config``; `run` is its name, and one of an earlier run goes on."""

    def __init__(self, study: str = "study.toml", run: str = "") -> None:
        super().__init__(task_check_period=0.05)
        self.study, self.run, self.timeout_s = study, run, 60.0
        self.tasks: dict[str, Task] = {}

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Run or resume the study; an error ends the job. If it still waits for sites, a later job goes on."""
        try:
            self.conduct(lambda messages: self.exchange(messages, abort_signal, fl_ctx), fl_ctx)
        except StillCollecting as error:
            self.log_info(fl_ctx, str(error))
        except Exception as error:
            self.system_panic(str(error), fl_ctx)

    def conduct(self, exchange: Exchange, fl_ctx: Any) -> None:
        """Run the study and copy what is downloaded with the job."""
        workspace, job = fl_ctx.get_engine().get_workspace(), fl_ctx.get_job_id()
        path = Path(workspace.get_app_config_dir(job), Path(self.study).name)
        study, run = parse_study(path.read_text(encoding="utf-8"), path.name), self.run or job
        runs = Path(os.environ.get("FEDDBN_RUNS") or Path(workspace.get_root_dir(), "feddbn_runs"))
        self.timeout_s = study.attendance.timeout_s
        try:
            conduct(study, exchange, runs, run=run, here=self.sites(fl_ctx))
        finally:
            for made in [runs / run / name for name in ("outcome.json", "result.feddbn", "events.jsonl")]:
                if made.exists():
                    shutil.copy(made, workspace.get_run_dir(job))

    def sites(self, fl_ctx: Any) -> frozenset[str]:
        """Return the names of the job's sites."""
        return frozenset(str(client.name) for client in fl_ctx.get_engine().get_clients())

    def exchange(self, messages: Mapping[str, bytes], abort_signal: Any, fl_ctx: Any) -> dict[str, bytes]:
        """Send one task to each site; return the replies that came in time."""
        here, end = self.sites(fl_ctx), time.monotonic() + self.timeout_s
        self.tasks = {
            site: Task(TASK, Shareable({BYTES: messages[site]})) for site in messages if site in here
        }
        for site, task in self.tasks.items():
            self.send(task, fl_ctx, targets=[site], send_order=SendOrder.ANY)
        while self.awaited() and time.monotonic() < end:
            if abort_signal.triggered:
                raise RuntimeError("the job was stopped")
            time.sleep(0.01)
        for task in self.tasks.values():
            self.cancel_task(task, fl_ctx=fl_ctx)
        replies = {site: (_result(task) or {}).get(BYTES) for site, task in self.tasks.items()}
        return {site: reply for site, reply in replies.items() if isinstance(reply, bytes)}

    def awaited(self) -> list[str]:
        """Return the sites that have not answered the last message yet."""
        return [site for site, task in self.tasks.items() if _result(task) is None]

    def start_controller(self, fl_ctx: Any) -> None:
        """Do nothing; NVFlare wants it said."""

    stop_controller = start_controller


def _result(task: Any) -> Any:
    return next((sent.result for sent in list(task.client_tasks) if sent.result is not None), None)


class FeddbnExecutor(Executor):  # type: ignore[misc]
    """Answers for the site in whose process it runs."""

    endpoint: Endpoint | None = None

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Mark what this site fetches from its server: other sites can send it tasks, too, and are not answered."""
        if event_type == EventType.AFTER_PULL_TASK:
            fl_ctx.set_prop(_FETCHED, True, private=True, sticky=False)

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """Return the endpoint's reply."""
        message = shareable.get(BYTES)
        if task_name != TASK or not fl_ctx.get_prop(_FETCHED) or not isinstance(message, bytes):
            return make_reply(ReturnCode.TASK_UNKNOWN)
        self.endpoint = self.endpoint or self.open(fl_ctx)
        return Shareable({BYTES: self.endpoint.handle(message)})

    def open(self, fl_ctx: Any) -> Endpoint:
        """Return the endpoint of this site's folder, told who sent the job."""
        workspace, name = fl_ctx.get_engine().get_workspace(), fl_ctx.get_identity_name()
        folder = os.environ.get("FEDDBN_SITE", "").replace("{site}", name) or workspace.get_site_config_dir()
        meta = Path(workspace.get_job_meta_path(fl_ctx.get_job_id()))
        job = json.loads(meta.read_text(encoding="utf-8")) if meta.exists() else {}
        return SiteCalled(name, folder, str(job.get("submitter_name") or ""))
