"""NVFlare as an engine, and the lead's side of it: submit, watch, fetch and resume, over NVFlare's admin session."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from threading import get_ident
from typing import Any, TextIO, cast

from feddbn.errors import FederationError, FileError, MissingExtra, StateError, reading
from feddbn.federation.protocol.messages import check_run_id
from feddbn.federation.protocol.study import Study
from feddbn.findings import Finding
from feddbn.runtime.engines.interface import (
    SILENT_S,
    Engine,
    FederationPlan,
    Job,
    Note,
    Presence,
    Process,
    Session,
    Watch,
    sites_needed,
)
from feddbn.runtime.engines.nvflare.housekeeping import PROGRESS_TOPIC, drivers_left_out, forget_jobs
from feddbn.runtime.engines.nvflare.kit import (
    has_calls,
    has_signed,
    make_kits,
    make_more_kits,
    place_stores,
    sign_note,
    start_command,
    start_environment,
)
from feddbn.runtime.store import iso_time

_RUNNING, _DONE = "RUNNING", "FINISHED"
_CODES = {
    "SUBMITTED": "job-waits",
    "APPROVED": "job-waits",
    "DISPATCHED": "job-starts",
    "RUNNING": "job-runs",
    "FINISHED:COMPLETED": "job-finished",
    "FINISHED:ABORTED": "job-aborted",
    "FINISHED:EXECUTION_EXCEPTION": "job-stopped",
    "FINISHED:ABNORMAL": "job-stopped",
    "FINISHED:CAN_NOT_SCHEDULE": "job-lacks-sites",
    "FINISHED:FAILED_TO_RUN": "job-not-started",
    "FINISHED:ABANDONED": "job-given-up",
}
_COLLAB, _KIT = "nvflare.collab.runtime", "feddbn.adapters.nvflare_kit"
_NO_REPLY = "no_reply"
_CALL_S, _AT_ONCE_S = 5.0, 2.0


def write_job(study: Study, run_id: str, directory: Path, sync_timeout_s: float = 180.0) -> Path:
    """Write the NVFlare job of a study: two configuration files, no code; return its directory."""
    job = Path(directory) / check_run_id(run_id)
    config = job / "app" / "config"
    config.mkdir(parents=True)
    needed = sites_needed(study)
    meta = {
        "name": run_id,
        "resource_spec": {},
        "min_clients": needed,
        "mandatory_clients": list(study.sites) if needed == len(study.sites) else [],
        "deploy_map": {"app": ["server", *study.sites]},
    }
    given = {"study": study.to_json(), "run_id": run_id}
    server, client = _by_calls(given, sync_timeout_s) if has_calls() else _by_tasks(given)
    for path, values in (
        (job / "meta.json", meta),
        (config / "config_fed_server.json", server),
        (config / "config_fed_client.json", client),
    ):
        path.write_text(json.dumps(values, indent=1), encoding="utf-8")
    return job


def _by_calls(given: dict[str, Any], sync_timeout_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
    controls = {"server_obj_id": "study", "collab_obj_ids": [], "sync_task_timeout": sync_timeout_s}
    controller = {"id": "controller", "path": f"{_COLLAB}.controller.CollabController", "args": controls}
    executor = {"path": f"{_COLLAB}.executor.CollabExecutor", "args": {"client_obj_id": "site"}}
    # Kits allow classes by these paths, so they stay whatever moves.
    study_class = {"id": "study", "path": "feddbn.runtime.nvflare_server.FeddbnServer", "args": given}
    site_class = {"id": "site", "path": "feddbn.runtime.nvflare_site.FeddbnSite", "args": {}}
    server = {
        "format_version": 2,
        # Sites fetch only the two set-up tasks this way; by default that takes 2 s each.
        "server": {"task_request_interval": 0.2},
        "workflows": [controller],
        "components": [study_class],
    }
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["*"], "executor": executor}],
        "components": [site_class],
    }
    return server, client


def _by_tasks(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """NVFlare 2.8 has no calls: sites fetch each message as a task, and look for one ten times a second."""
    controller = {"id": "controller", "path": f"{_KIT}.KitController", "args": given}
    executor = {"path": f"{_KIT}.KitExecutor", "args": {}}
    server = {
        "format_version": 2,
        "server": {"task_request_interval": 0.1},
        "workflows": [controller],
        "components": [],
    }
    client = {
        "format_version": 2,
        "executors": [{"tasks": ["feddbn"], "executor": executor}],
        "components": [],
    }
    return server, client


class NVFlareSession(Session):
    """An admin session."""

    def __init__(self, kit: Path, timeout_s: float = 20.0) -> None:
        super().__init__(kit)
        self._admin = _lead_of(self.kit)
        self._timeout_s = timeout_s
        self._session: Any = None
        # Imported now, before what a study is tried out with: each of NVFlare's loggers looks through all modules.
        _flare_api()

    def __enter__(self) -> NVFlareSession:
        # NVFlare's connection logs every attempt; without a handler Python would print that to the terminal.
        logging.getLogger().addHandler(logging.NullHandler())
        user, kit = str(self._admin["username"]), str(self.kit.resolve())
        try:
            with _silence(), drivers_left_out():
                self._session = _flare_api().new_secure_session(user, kit, timeout=self._timeout_s)
        except Exception as error:
            place = f"{self._admin.get('host')}:{self._admin.get('port')}"
            raise FederationError(
                f"the server {place} cannot be reached with the kit {self.kit}: {error}.", code="no-server"
            ) from None
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(Exception), _silence():
            self._session.close()

    def submit(self, study: Study, run_id: str) -> str:
        """Send a study, new or resumed, under its run id; return NVFlare's job id."""
        with tempfile.TemporaryDirectory() as directory:
            return self.submit_job(write_job(study, run_id, Path(directory)))

    def submit_job(self, job: Path) -> str:
        """Send a job's directory; return NVFlare's job id."""
        return str(self._ask(self._session.submit_job, str(job)))

    def presence(self) -> list[Presence]:
        """Return the sites that the server lists; each is called, and one that answers is there.

        NVFlare keeps a site on its list for ten minutes after its last report. A site whose process has ended cannot be
        called at all, which is told at once. One that is called in vain may be frozen, cut off or just slow: it is silent
        when it has not reported either.
        """
        info = self._ask(self._session.get_system_info)
        heard = {str(client.name): float(client.last_connect_time or 0.0) for client in info.client_info}
        start = time.monotonic()
        answered = self._answering(list(heard)) if heard else set()
        is_at_once = time.monotonic() - start < _AT_ONCE_S
        # By the server's clock; ours may be behind it.
        now = max(time.time(), *heard.values()) if heard else 0.0
        return [
            Presence(site, site in answered or not (is_at_once or now - when > SILENT_S), when)
            for site, when in sorted(heard.items())
        ]

    def _answering(self, sites: list[str]) -> set[str]:
        """Return those of the sites that answer a call."""
        try:
            with _silence():
                self._session.set_timeout(_CALL_S)
                said = self._session.get_client_job_status(sites)
        except Exception:
            # NVFlare makes an error of it where none of them does.
            return set()
        finally:
            self._session.unset_timeout()
        return {str(one.get("client_name")) for one in said or () if one.get("status") != _NO_REPLY}

    def jobs(self) -> list[Job]:
        """Return all jobs, the newest first."""
        rows = self._ask(self._session.list_jobs, True)
        return sorted((_job(row) for row in rows), key=lambda job: job.submitted, reverse=True)

    def progress(self, job_id: str) -> dict[str, Any] | None:
        """Return what the running study says about itself, or None if it does not run (yet)."""
        try:
            with _silence():
                answer = self._session.do_app_command(job_id, PROGRESS_TOPIC, None)
        except Exception:
            # NVFlare answers with several kinds of error while a job starts and ends.
            return None
        return dict(answer) if answer else None

    def wait(
        self, job_id: str, watch: Watch | None = None, timeout_s: float = 0.0, poll_s: float = 0.25
    ) -> str:
        """Wait until a job has ended; return NVFlare's status.

        Asked ever more rarely, down to every three seconds: the server notes every question in its audit log.
        """
        start = time.monotonic()
        while True:
            status = str(self._ask(self._session.get_job_meta, job_id).get("status"))
            if status.startswith(_DONE):
                return status
            if watch is not None and status == _RUNNING:
                values = self.progress(job_id)
                if values is not None:
                    watch(values)
            if timeout_s and time.monotonic() - start > timeout_s:
                raise FederationError(
                    f"job {job_id} did not end within {timeout_s:.0f} s; its status is {status}."
                )
            time.sleep(poll_s)
            poll_s = min(1.05 * poll_s, 3.0)

    def fetch(self, job_id: str, out: Path) -> Path:
        """Download a job's files and put the study's own into `out`."""
        out = Path(out)
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as directory:
            place = Path(str(self._ask(self._session.download_job_result, job_id, directory)))
            found = {path.name: path for path in sorted(place.rglob("*")) if path.is_file()}
            if "outcome.json" not in found:
                raise StateError(
                    f"job {job_id} left no outcome; the server's log says why.", code="no-outcome"
                )
            for name in ("outcome.json", "result.feddbn", "events.jsonl"):
                if name in found:
                    shutil.copy(found[name], out / name)
        return out

    def abort(self, job_id: str) -> None:
        """Stop a job; its run can be resumed."""
        self._ask(self._session.abort_job, job_id)

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            with _silence():
                return call(*arguments)
        except Exception as error:
            raise FederationError(f"the server answered: {error}") from None


def _flare_api() -> Any:
    try:
        return import_module("nvflare.fuel.flare_api.flare_api")
    except ImportError:
        raise MissingExtra("nvflare", "nvflare") from None


def _lead_of(kit: Path) -> dict[str, Any]:
    """Return who a lead's kit belongs to and where its server is; refuse a directory that is no such kit."""
    path = Path(kit) / "startup" / "fed_admin.json"
    if not path.exists():
        raise FileError(
            f"{kit} is not an administrator's kit: startup/fed_admin.json is missing.", code="no-kit"
        )
    try:
        admin: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["admin"]
    except (OSError, ValueError, KeyError) as error:
        raise FileError(f"{path} cannot be read: {error}; unpack the kit again.") from None
    return {"username": Path(kit).resolve().name, **admin}


def _job(row: Any) -> Job:
    status = str(row.get("status"))
    run = str(row.get("job_name") or row.get("name"))
    return Job(
        run=run,
        job=str(row.get("job_id")),
        status=status,
        submitted=_iso(row.get("submit_time") or row.get("submit_time_iso") or ""),
        duration=str(row.get("duration") or ""),
        is_running=status == _RUNNING,
        has_ended=status.startswith(_DONE),
        code=_CODES.get(status, "job-other"),
        was_stopped=status == "FINISHED:ABORTED",
    )


def _iso(at: object) -> str:
    """A time of NVFlare, most in seconds since 1970, as ISO text."""
    try:
        return iso_time(float(str(at)))
    except ValueError:
        return str(at)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """NVFlare's session prints; a command's output is ours. What other threads print meanwhile stays."""
    with contextlib.redirect_stdout(cast(TextIO, _OtherThreads(sys.stdout))):
        yield


class _OtherThreads:
    """A stream without what the thread that made it writes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._silent = stream, get_ident()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return len(text) if get_ident() == self._silent else self._stream.write(text)


class NVFlareEngine(Engine):
    """Kits made by `nvflare provision`, jobs without code, an admin session for the lead."""

    name = "nvflare"
    instead = "send it with `feddbn study submit`"

    def make_kits(self, plan: FederationPlan, directory: Path) -> dict[str, Path]:
        """Provision and harden one kit per participant."""
        return make_kits(plan, directory)

    def federation_in(self, directory: Path) -> tuple[list[Path], str] | None:
        """Look for the project of a certificate authority."""
        path = directory / "authority" / "project.json"
        if not path.exists():
            return None
        with reading(f"the project {path}", "JSON"):
            name = str(json.loads(path.read_text(encoding="utf-8"))["name"])
        return [path.parent, *(kit / "local" for kit in sorted((directory / "kits").glob("*")))], name

    def make_more_kits(self, names: Sequence[str], directory: Path, others: Path) -> dict[str, Path]:
        """Provision kits for some more sites, with the same certificate authority."""
        return make_more_kits(names, directory, others)

    def sign(self, note: Note, directory: Path, others: Path) -> Note:
        """Sign with the certificate authority's key."""
        return note.signed(sign_note(note.statement, directory))

    def has_signed(self, kit: Path, note: Note) -> bool | None:
        """Hold it against the authority whose certificates the kit trusts."""
        return has_signed(kit, note.statement, bytes.fromhex(note.signature))

    def check_site(self, kit: Path, study: Study | None = None) -> list[Finding]:
        """Check data, policy, rights, certificate, clock and the way to the server."""
        # Imported here: it reads data, which a lead's session never does.
        from feddbn.runtime.engines.nvflare.kit import check_site

        return check_site(kit, study)

    def site_settings(self, kit: Path) -> Path:
        """Return its place among the kit's local files."""
        return Path(kit) / "local" / "feddbn_site.toml"

    def server_process(self, kit: Path) -> Process:
        """Return what runs the server; jobs that are too old are forgotten before it starts.

        A kit is made at one machine and unpacked at another, so its stores are placed here.
        """
        from feddbn.runtime.settings import read_server_settings

        process = self.site_process(kit)
        place_stores(kit)
        forget_jobs(kit, read_server_settings(kit / "local" / "feddbn_server.toml").keep_days)
        return process

    def site_process(self, kit: Path) -> Process:
        """Return what runs the site and starts it again after a failure."""
        return Process(start_command(kit), start_environment())

    def session(self, kit: Path) -> NVFlareSession:
        """Return the lead's admin session."""
        return NVFlareSession(kit)


ENGINE = NVFlareEngine()
