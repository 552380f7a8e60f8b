"""What kits name in their configuration: launchers that fork, memory given back, a terminal that people can read.

*Launchers* fork a job from a process with everything imported, or start it in the ordinary way; a kit without them uses
NVFlare's own. Only installed code is ever run this way: a job that brings code of its own (which the kits refuse in the first
place) starts in a fresh interpreter.

*Memory.* Most of what grows in a server is not in use. Every streamed message has a buffer of a megabyte in a cycle of
references that waits for the garbage collector's rare full pass; and when such buffers are freed, small blocks live between
them, so that the allocator keeps them: after a dozen studies 20 MB were free and held, 22 MB in use, as after six. Beside
these the transport keeps a record of every job's and every session's connection, and times of its messages, for good.

*Terminal.* A site's terminal shows studies, warnings, and in plain words whether the server can be reached; the engine's own
log, ``log.txt`` in the kit, has everything.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import re
import shlex
import time
from collections.abc import Callable, Collection, Sequence
from threading import Thread
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, JobConstants, RunProcessKey, SystemComponents
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.job_scheduler_spec import DispatchInfo
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.process_launcher import ProcessHandle
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher
from nvflare.fuel.f3.stats_pool import StatsPoolManager
from nvflare.utils import job_launcher_utils

from feddbn.errors import StateError
from feddbn.runtime.server.warm_start import WarmStart

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
    "feddbn.adapters.nvflare_kit",
    "feddbn.runtime.site.masking",
    "feddbn.federation.programs",
)

SERVER_MODULES = (
    "nvflare.private.fed.app.server.runner_process",
    "nvflare.app_common.job_schedulers.job_scheduler",
    "nvflare.app_common.state_persistors.storage_state_persistor",
    "nvflare.app_common.storages.filesystem_storage",
    *_COMMON,
    "feddbn.runtime.engines.nvflare.server",
    "feddbn.adapters.nvflare_kit",
    "feddbn.analysis.studies",
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
        job_launcher_utils.add_custom_dir_to_path(code, environment)
        # NVFlare 2.8 has the credentials in the command.
        if hasattr(job_launcher_utils, "get_credential_env"):
            said = fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS) or {}
            environment.update(job_launcher_utils.get_credential_env(said))
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


LARGE_BYTES = 256 * 1024

# From glibc's malloc.h.
_M_MMAP_THRESHOLD = -3


# Jobs and sessions are named by one; sites and the server are not.
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _libc(name: str) -> Any:
    """Return a function of glibc, or None elsewhere."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None


def keep_large_blocks_apart() -> bool:
    """Let blocks of `LARGE_BYTES` or more have pages of their own; return whether the allocator agreed.

    Such a block goes back to the system when it is freed, whatever lives beside it. glibc begins with a lower limit but
    raises it with every such block that is freed, up to 32 MB, unless the limit is set. It is set for this process, not
    by an environment variable, which job processes would inherit: there it would slow down arithmetic on large arrays.
    """
    mallopt = _libc("mallopt")
    return bool(mallopt and mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES))


def release_memory() -> bool:
    """Collect cycles and give free memory back to the system; return whether the allocator had any."""
    gc.collect()
    trim = _libc("malloc_trim")
    return bool(trim and trim(0))


def forget_ended(connections: Any, running: Collection[str]) -> list[str]:
    """Drop what the transport keeps of jobs and sessions that have ended; return the names of their ends.

    `running` are the ids of the jobs that run: one may have lost its connection and be about to connect again.
    """
    ended = []
    for name, end in list(connections.sfm_endpoints.items()):
        found = _ID.search(name)
        if found and found[0] not in running and not end.connections:
            connections.remove_endpoint(name)
            ended.append(name)
    living = {*running, *(number for name in list(connections.sfm_endpoints) for number in _ID.findall(name))}
    for pool in list(StatsPoolManager.pools.values()):
        times = getattr(pool, "cat_bins", None)
        if times:
            with pool.update_lock:
                for what in [w for w in times if _ID.search(w) and living.isdisjoint(_ID.findall(w))]:
                    del times[what]
    return ended


def returned(engine: Any) -> list[tuple[str, str]]:
    """Return running jobs and sites of theirs that were started again since, and know these by their new token."""
    found = []
    for job_id, about in list(engine.run_processes.items()):
        sites = about.get(RunProcessKey.PARTICIPANTS) or {}
        for token, site in list(sites.items()):
            now = engine.client_manager.name_to_clients.get(site.name)
            if now is not None and now.token != token:
                sites[now.token] = now
                del sites[token]
                found.append((job_id, str(site.name)))
    return found


def start_again(engine: Any, job_id: str, site: str, patience_s: float = 60.0) -> bool:
    """Have a site that is back start its part of a job that still runs; it may take a moment until it can."""
    end = time.monotonic() + patience_s
    while job_id in engine.run_processes and time.monotonic() < end:
        with engine.new_context() as fl_ctx:
            job = engine.get_component(SystemComponents.JOB_MANAGER).get_job(job_id, fl_ctx)
            sites = engine.run_processes[job_id][RunProcessKey.PARTICIPANTS]
            job.meta[JobMetaKey.JOB_CLIENTS] = [one.to_dict() for one in sites.values()]
            can, token = engine.check_client_resources(job, {site: {}}, fl_ctx).get(site, (False, ""))
            if can:
                engine.start_client_job(job, {site: DispatchInfo("app", {}, token)}, fl_ctx)
                return True
        time.sleep(1.0)
    return False


class MemoryTidy(FLComponent):  # type: ignore[misc]
    """Sets the limit when the server starts; forgets and releases after each job; has sites that are back go on with jobs.

    These events are told only in the process that outlives jobs. Kits name this class, so what a server does beside jobs is
    done here.
    """

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Listen for the server's start, for sites that register and for the end of jobs."""
        if event_type == EventType.SYSTEM_START:
            keep_large_blocks_apart()
        elif event_type == EventType.CLIENT_REGISTER_PROCESSED:
            try:
                engine = fl_ctx.get_engine()
                for job_id, site in returned(engine):
                    # The site waits for the answer to its registration until this returns.
                    Thread(target=self._go_on, args=(engine, job_id, site), daemon=True).start()
            except Exception as error:
                # The run can be resumed, as ever; another NVFlare may keep its records elsewhere.
                self.logger.warning("a site that is back does not go on by itself: %s", error)
        elif event_type == EventType.JOB_COMPLETED:
            try:
                engine = fl_ctx.get_engine()
                forget_ended(engine.cell.core_cell.communicator.conn_manager, list(engine.run_processes))
            except Exception as error:
                # Nothing depends on it, and another NVFlare may keep its records elsewhere.
                self.logger.debug("what has ended is not forgotten: %s", error)
            release_memory()

    def _go_on(self, engine: Any, job_id: str, site: str) -> None:
        try:
            if start_again(engine, job_id, site):
                self.logger.info("site %s is back and goes on with job %s", site, job_id)
        except Exception as error:
            self.logger.warning("site %s is back and does not go on by itself: %s", site, error)


SITE = "feddbn.site"
_TRANSPORT = "nvflare.fuel.f3"
_LOST = re.compile(
    r"cannot send to 'server'|no connection to server|Connector \[\S+ ACTIVE .*failed with exception (?P<why>.*)"
)

_MOST_WORDS = 200
_FOUND = re.compile(r"Connection \[.* => .*\] is created")


class StudiesOnly(logging.Filter):
    """Passes what the site says and warnings; of all that the engine's transport says it makes one line about a lost server.

    A server that cannot be reached is told again after `every_s`.
    """

    def __init__(self, every_s: float = 300.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._every_s = every_s
        self._clock = clock
        self._is_lost = False
        # Reason -> when it was last told; the engine mentions it in some of its lines only.
        self._told: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the terminal shows a record."""
        name = str(getattr(record, "fullName", record.name))
        if name.startswith(SITE):
            return True
        if name.startswith(_TRANSPORT):
            # What else the transport warns of is about its own paths: a job's process that is not there yet, or any more.
            self._tell_of_the_server(record.getMessage())
            return False
        return record.levelno > logging.INFO

    def _tell_of_the_server(self, message: str) -> None:
        """Say once that the server is gone and why, or that it is back, if the message is about that."""
        lost = _LOST.search(message)
        if lost is not None:
            self._is_lost = True
            why = (lost["why"] or "")[:_MOST_WORDS].strip()
            now = self._clock()
            if now - self._told.get(why, -self._every_s) >= self._every_s and (why or not self._told):
                self._told[why] = now
                said = "the server cannot be reached; this site keeps trying"
                logging.getLogger(SITE).warning("%s%s", said, f" ({why})" if why else "")
        elif self._is_lost and _FOUND.search(message):
            self._is_lost, self._told = False, {}
            logging.getLogger(SITE).info("the server can be reached again")
