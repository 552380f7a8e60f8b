"""NVFlare job launchers that fork a job from a process with everything imported, or start it in the ordinary way.

Named in ``local/resources.json`` of kits; a kit without them uses NVFlare's own. Only installed code is ever run
this way: a job that brings code of its own (which the kits refuse in the first place) starts in a fresh interpreter.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Sequence
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, JobConstants
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.process_launcher import ProcessHandle
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher
from nvflare.utils.job_launcher_utils import add_custom_dir_to_path, get_credential_env

from feddbn.errors import StateError
from feddbn.runtime.deployed.warm_start import WarmStart

__all__ = ["SERVER_MODULES", "SITE_MODULES", "WarmServerLauncher", "WarmSiteLauncher", "process_name"]

_log = logging.getLogger("feddbn.site")
_DRIVERS = "nvflare.fuel.f3.drivers"
# What job processes were seen to import, by name: some of it lies above this layer. NVFlare loads every driver it finds
# installed, whichever is used. A module that is missing in this list costs time, nothing else.
_COMMON = (
    "nvflare.app_common.decomposers.numpy_decomposers",
    "nvflare.app_common.executors.client_api_executor",
    "nvflare.app_common.widgets.convert_to_fed_event",
    "nvflare.collab.runtime.controller",
    "nvflare.collab.runtime.executor",
    "nvflare.fuel.utils.fobs.decomposers.core_decomposers",
    *(f"{_DRIVERS}.{name}" for name in ("file_driver", "tcp_driver", "grpc_driver")),
    *(f"{_DRIVERS}.{name}" for name in ("aio_tcp_driver", "aio_grpc_driver", "aio_http_driver")),
    __name__,
)
SITE_MODULES = (
    "nvflare.private.fed.app.client.worker_process",
    "nvflare.app_common.resource_consumers.gpu_resource_consumer",
    "nvflare.app_common.resource_managers.gpu_resource_manager",
    *_COMMON,
    "feddbn.runtime.engines.nvflare.site",
    "feddbn.runtime.deployed.masking",
    "feddbn.federation.programs",
)
SERVER_MODULES = (
    "nvflare.private.fed.app.server.runner_process",
    "nvflare.app_common.job_schedulers.job_scheduler",
    "nvflare.app_common.state_persistors.storage_state_persistor",
    "nvflare.app_common.storages.filesystem_storage",
    *_COMMON,
    "feddbn.runtime.engines.nvflare.server",
    "feddbn.methods.studies",
    "feddbn.methods.fdbnl",
    "feddbn.methods.oneshot",
    "feddbn.methods.pfdbnl",
    "sklearn.base",
    "scipy.stats",
)


def process_name(job_id: str) -> str:
    """Return the name under which `ps -o comm` shows a job that was forked."""
    return f"job {job_id[:8]}"


class _Warm:
    """What both launchers do before they fall back on NVFlare's."""

    def __init__(self, modules: Sequence[str]) -> None:
        super().__init__()
        # Not started here: NVFlare builds this component in every job's process too.
        self._warm = WarmStart(modules)

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Start importing with the site, end with it."""
        if event_type == EventType.SYSTEM_START:
            self._prepare()
        elif event_type == EventType.SYSTEM_END:
            self._warm.close()
        super().handle_event(event_type, fl_ctx)  # type: ignore[misc]

    def _prepare(self) -> None:
        try:
            self._warm.start()
        except (StateError, OSError) as error:
            self.logger.warning("%s", error)  # type: ignore[attr-defined]

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: Any) -> Any:
        """Return the handle of the started job."""
        try:
            job = self._fork(job_meta, fl_ctx)
        except (StateError, OSError) as error:
            self.logger.info("The job starts in a fresh interpreter: %s", error)  # type: ignore[attr-defined]
            return super().launch_job(job_meta, fl_ctx)  # type: ignore[misc]
        self.logger.info("Launch the job in process ID: %s (fork)", job.pid)  # type: ignore[attr-defined]
        return ProcessHandle(process_adapter=job)

    def _fork(self, job_meta: dict[str, Any], fl_ctx: Any) -> Any:
        workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
        job_id = str(job_meta.get(JobConstants.JOB_ID))
        code = workspace.get_app_custom_dir(job_id)
        if os.path.exists(code):
            raise StateError("it brings code.")
        # The environment and command of NVFlare's own launcher.
        environment = os.environ.copy()
        add_custom_dir_to_path(code, environment)
        environment.update(get_credential_env(fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS) or {}))
        _, flag, module, *arguments = shlex.split(self.get_command(job_meta, fl_ctx), True)  # type: ignore[attr-defined]
        if flag != "-m":
            raise StateError("its command is not `python -m`.")
        return self._warm.launch(module, arguments, environment, process_name(job_id))


class WarmSiteLauncher(_Warm, ClientProcessJobLauncher):  # type: ignore[misc]
    """Starts a site's jobs, and says on its terminal when it is there."""

    def __init__(self) -> None:
        super().__init__(SITE_MODULES)

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Say that studies can come."""
        if event_type == EventType.AFTER_CLIENT_REGISTER:
            _log.info("site %s is connected to its server and waits for studies", fl_ctx.get_identity_name())
        super().handle_event(event_type, fl_ctx)


class WarmServerLauncher(_Warm, ServerProcessJobLauncher):  # type: ignore[misc]
    """Starts the server's jobs."""

    def __init__(self) -> None:
        super().__init__(SERVER_MODULES)
