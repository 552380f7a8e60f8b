"""What every engine does for the people of a federation; one engine is one folder beside this file.

`Engine` makes kits, checks them and runs server and sites. `Session` is the lead's side: send, watch, stop, resume and
fetch. A run outlives the engine's jobs: resuming is sending the same study again under the same name, and the server's
journal does the rest. What an engine cannot do it refuses with one sentence.

`FederationPlan` says who takes part; `Presence` which sites are there, as the lead sees it; `engine` and `engine_of` give
an engine by its name or by a kit, imported when it is first used.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from feddbn.errors import (
    FeddbnError,
    FederationError,
    FileError,
    ParameterError,
    StateError,
    missing_extra,
)
from feddbn.federation.protocol.messages import check_run_id
from feddbn.federation.protocol.study import Study, study_from_json
from feddbn.findings import Finding
from feddbn.privacy.membership import SITE_NAME
from feddbn.privacy.membership import Note as Note
from feddbn.runtime.store import write_atomically
from feddbn.settings import whole
from feddbn.words import say

SILENT_S = 25.0
"""Sites report every 10 s. One that missed two reports is silent."""

_NEAR_ENOUGH_S = 60.0
LATE_S = 10.0
"""A site that has not answered for so long is named."""


@dataclass(frozen=True)
class Presence:
    """One site: whether it can be asked now, and when it was last heard of.

    `heard` is in seconds since 1970 by the server's clock; None if it never was.
    """

    site: str
    is_here: bool
    heard: float | None = None

    @property
    def since(self) -> str:
        """When it was last heard of, as text; empty if it never was."""
        return "" if self.heard is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.heard))

    def finding(self, now: float | None = None) -> Finding:
        """Return how it stands."""
        if self.is_here:
            return Finding("site-here", "good", {"site": self.site})
        if self.heard is None:
            return Finding("site-away", "warning", {"site": self.site})
        seconds = (time.time() if now is None else now) - self.heard
        return Finding("site-silent", "error", {"site": self.site, "heard": self.heard, "seconds": seconds})


class SeenSites:
    """What a lead remembers of sites, since servers forget those that are gone for long; a damaged file is begun anew."""

    def __init__(self, path: Path) -> None:
        self._path = Path(path)

    def completed(self, there: Iterable[Presence], named: Iterable[str] = ()) -> list[Presence]:
        """Return what the server says, and those that it no longer knows or that somebody names; remember them all.

        A site that is there reports all the time, and a page looks every two seconds: of it a minute is near enough.
        """
        before = self._read()
        found = {one.site: one for one in there}
        for site in (*before, *named):
            found.setdefault(site, Presence(site, False, before.get(site)))
        heard = {one.site: one.heard for one in found.values() if one.heard is not None}
        if any(_is_news(one, before.get(one.site)) for one in found.values()):
            self._path.parent.mkdir(exist_ok=True, mode=0o700)
            write_atomically(self._path, json.dumps(heard).encode())
        return sorted(found.values(), key=lambda one: one.site)

    def _read(self) -> dict[str, float]:
        try:
            return {str(k): float(v) for k, v in json.loads(self._path.read_text(encoding="utf-8")).items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}


def _is_news(one: Presence, remembered: float | None) -> bool:
    """Whether what is remembered of a site would mislead: it was never heard, went silent since, or a minute has passed."""
    if one.heard is None or one.heard == remembered:
        return False
    return remembered is None or not one.is_here or abs(one.heard - remembered) >= _NEAR_ENOUGH_S


_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


NO_SERVER = "none"
"""The server's name in the plan of a federation that has none."""


@dataclass(frozen=True)
class FederationPlan:
    """Who takes part and where the server listens."""

    name: str
    server: str
    sites: tuple[str, ...]
    port: int = 8002
    admin_port: int = 8003
    admin: str = "lead@example.org"
    organisation: str = "feddbn"
    valid_days: int = 360
    keepers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = (("name", self.name), *(("sites", site) for site in self.sites))
        for what, value in (*names, *(("keepers", keeper) for keeper in self.keepers)):
            if not SITE_NAME.fullmatch(value):
                raise ParameterError(
                    f"{what} has {value!r}; use letters, digits, '-' and '_', a letter or digit first."
                )
        if not _HOST.fullmatch(self.server):
            raise ParameterError(f"server has {self.server!r}; give the host name that the sites can reach.")
        twice = sorted({site for site in self.sites if self.sites.count(site) > 1})
        if twice or not self.sites:
            said = f"sites has {twice[0]!r} twice" if twice else "sites is empty"
            raise ParameterError(f"{said}; give at least one name and no name twice.")
        if self.server in self.sites or "server" in self.sites:
            raise ParameterError("a site cannot have the server's name.")
        if len({*self.keepers, *self.sites, "server"}) != len(self.keepers) + len(self.sites) + 1:
            raise ParameterError("keepers must have names of their own, each once, that no site has.")
        if not re.fullmatch(r"[^@\s]+@[^@\s]+", self.admin):
            raise ParameterError(f"lead must look like an e-mail address, got {self.admin!r}.")
        for what, port in (("port", self.port), ("admin_port", self.admin_port)):
            whole(1, 65535).check(what, port)


Watch = Callable[[dict[str, Any]], None]


Tell = Callable[[str], None]


@dataclass(frozen=True)
class Process:
    """What runs a server or a site in the foreground."""

    command: Sequence[str]
    environment: Mapping[str, str]

    def become(self) -> NoReturn:
        """Turn this process into it; what it writes is for its owner only."""
        os.umask(0o077)
        os.execvpe(self.command[0], list(self.command), self.environment)


@dataclass(frozen=True)
class Job:
    """One attempt of the engine at a run; `status` is in the engine's words, `code` that of its finding.

    `was_stopped`: on request of a person.
    """

    run: str
    job: str
    status: str
    submitted: str
    duration: str
    is_running: bool
    has_ended: bool
    code: str = "job-other"
    was_stopped: bool = False

    @property
    def words(self) -> str:
        """How it stands, for its lead."""
        return say(Finding(self.code, "note", {"run": self.run, "status": self.status.lower()}), "lead")


def run_state(values: Mapping[str, Any]) -> Finding:
    """Return how a run stands: `values` are those of its progress, or of ``outcome.json``."""
    state, sentence = str(values.get("state", "")), str(values.get("sentence") or "").rstrip(".")
    if state == "finished":
        absent = tuple(str(one.get("site")) for one in values.get("absent") or ())
        return Finding("run-finished", "warning" if absent else "good", about=absent)
    if state == "stopped":
        return Finding("run-stopped", "error", {"sentence": sentence})
    if state == "collecting":
        return Finding(
            "run-collects", "note", {"sentence": sentence or str(values.get("last") or "").rstrip(".")}
        )
    if state == "failed":
        return Finding("run-failed", "error")
    awaited = values.get("awaited")
    waits = sorted(awaited.items()) if isinstance(awaited, Mapping) else ()
    late = {str(site): float(seconds) for site, seconds in waits if float(seconds) >= LATE_S}
    counts = {"sums": int(values.get("sums", 0)), "late": late}
    counts |= {name: len(values.get(name) or ()) for name in ("present", "sites")}
    return Finding("run-goes-on" if state == "running" else "run-starts", "note", counts, tuple(late))


def sites_that_refuse(values: Mapping[str, Any]) -> list[Finding]:
    """Return which sites take no part and what they said; `values` are those of a run's progress or outcome."""
    said = values.get("said") or {}
    return [
        Finding("site-refuses", "warning", {"site": site, **words}, (site,)) for site, words in said.items()
    ]


def alarms_in(outcome: Mapping[str, Any]) -> list[Finding]:
    """Return what a run that updates another and those before it found changed, as its ``outcome.json`` says."""
    looks = ((outcome.get("summary") or {}).get("monitor") or {}).get("looks") or ()
    return [Finding.from_dict(one) for look in looks for one in look["alarms"]]


class Session(ABC):
    """A lead's connection to the server, a context manager; what was sent before is known without connecting.

    `connects`: whether there is a server that knows which sites are there.
    """

    connects = True

    def __init__(self, kit: Path) -> None:
        self.kit = Path(kit)

    @property
    def lead(self) -> str:
        """Whose kit it is: a kit's folder has the name of its lead."""
        return self.kit.resolve().name

    @abstractmethod
    def __enter__(self) -> Session: ...

    @abstractmethod
    def __exit__(self, *error: object) -> None: ...

    @abstractmethod
    def presence(self) -> list[Presence]:
        """Return what the server knows of the sites, silent ones included."""

    def sites(self) -> list[str]:
        """Return the names of the sites that are connected and not silent."""
        return sorted(one.site for one in self.presence() if one.is_here)

    def known_sites(self, named: Iterable[str] = ()) -> list[Presence]:
        """Return all sites that this lead has seen or that are named, connected, silent or never there."""
        return SeenSites(self.kit / "runs" / "seen_sites").completed(self.presence(), named)

    @abstractmethod
    def jobs(self) -> list[Job]:
        """Return all jobs, the newest first."""

    @abstractmethod
    def submit(self, study: Study, run_id: str) -> str:
        """Send a study, new or resumed, under its run id; return the engine's job id."""

    @abstractmethod
    def progress(self, job_id: str) -> dict[str, Any] | None:
        """Return what the running study says about itself, or None if it does not run (yet)."""

    @abstractmethod
    def wait(self, job_id: str, watch: Watch | None = None) -> str:
        """Wait until a job has ended; return its status."""

    def outcome(self, job_id: str) -> dict[str, Any]:
        """Return how a run of a job that has ended stands, as ``outcome.json`` says; nothing if there is none."""
        with tempfile.TemporaryDirectory() as place, contextlib.suppress(FeddbnError, OSError, ValueError):
            path = self.fetch(job_id, Path(place)) / "outcome.json"
            return dict(json.loads(path.read_text(encoding="utf-8")))
        return {}

    @abstractmethod
    def abort(self, job_id: str) -> None:
        """Stop a job; its run can be resumed."""

    @abstractmethod
    def fetch(self, job_id: str, out: Path) -> Path:
        """Put outcome, result and events of a job that has ended into `out`."""

    def told_when_sent(self, run_id: str) -> list[str]:
        """Return what a lead is told when a study was sent and is not waited for."""
        return [f"run {run_id} was sent."]

    def told_when_left(self, run_id: str) -> str:
        """Return what a lead is told who does not wait any longer."""
        return (
            f"run {run_id} goes on; see `feddbn study status {run_id}`, `results {run_id}`, `stop {run_id}`."
        )

    def folder_of(self, run_id: str) -> Path | None:
        """Return the folder in which a run's files are carried; None where messages are sent."""
        return None

    def job_of(self, run_id: str) -> Job:
        """Return the newest job of a run."""
        for job in self.jobs():
            if job.run == run_id:
                return job
        raise StateError(f"the server knows no job of run {run_id!r}.", code="unknown-run")

    def begin(self, study: Study, run_id: str, tell: Tell = lambda sentence: None) -> str:
        """Send a study whose sites are there and remember it for `study_of`; return the engine's job id.

        `tell` hears which of its sites are missing where it can begin without them.
        """
        known = self.known_sites(study.sites)
        here = [one.site for one in known if one.is_here]
        missing = [say(one.finding(), "lead") for one in known if one.site in study.sites and not one.is_here]
        needed = sites_needed(study)
        if len(study.sites) - len(missing) < needed:
            # An engine may let such a study wait for ever without a word.
            raise StateError(
                f"the study {study.name!r} needs {needed} of its {len(study.sites)} sites, but {', '.join(missing)}; "
                f"connected: {', '.join(here) or 'none'}. Start the sites or leave them out of the study.",
                code="sites-away",
            )
        for words in missing:
            tell(f"{words}; the study begins without it.")
        job = self.submit(study, run_id)
        path = self._memory(run_id)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        path.write_text(study.to_json(), encoding="utf-8")
        return job

    def claim(self, study: Study, run_id: str) -> None:
        """Refuse a study under a name that was sent with another."""
        path = self._memory(run_id)
        if path.exists() and path.read_text(encoding="utf-8") != study.to_json():
            raise StateError(
                f"run {run_id!r} was sent with another study; give this one another name with --run.",
                code="other-study",
            )

    def study_of(self, run_id: str) -> Study:
        """Return the study that was sent under this name."""
        path = self._memory(run_id)
        if not path.exists():
            raise StateError(f"no run {run_id!r} was sent with the kit {self.kit}.", code="unknown-run")
        return study_from_json(path.read_text(encoding="utf-8"))

    def studies_sent(self) -> dict[str, Study]:
        """Return every run that was sent with this kit, and its study; what cannot be read is left out."""
        found = {}
        for path in sorted((self.kit / "runs").glob("*.json")):
            with contextlib.suppress(FeddbnError, OSError, UnicodeDecodeError):
                found[path.stem] = study_from_json(path.read_text(encoding="utf-8"))
        return found

    def _memory(self, run_id: str) -> Path:
        return self.kit / "runs" / f"{check_run_id(run_id)}.json"


def sites_needed(study: Study) -> int:
    """Return how many sites must be there: all of them, unless the study may go on without some or waits for them."""
    if study.attendance.collects:
        return 1
    if study.attendance.when_missing != "continue":
        return len(study.sites)
    return min(study.attendance.min_sites, len(study.sites))


class Engine(ABC):
    """One way to carry a federation, by its name in ``--engine``; `instead` ends the sentence of what it does not do.

    `has_server`: whether sites and lead connect to a machine with an address. `has_keepers`: whether keepers have kits.
    """

    name: str
    instead: str
    has_server = True
    has_keepers = False

    @abstractmethod
    def make_kits(self, plan: FederationPlan, directory: Path) -> dict[str, Path]:
        """Write one kit per participant below ``directory/kits``; return participant -> kit."""

    def federation_in(self, directory: Path) -> tuple[list[Path], str] | None:
        """Return folders that may list the keys of all sites, and the name of the federation whose kits were made there."""
        return None

    def make_more_kits(self, names: Sequence[str], directory: Path, others: Path) -> dict[str, Path]:
        """Write kits for some more sites; `others` is a folder with the public keys of those that are there."""
        raise self._cannot("add sites")

    def sign(self, note: Note, directory: Path, others: Path) -> Note:
        """Sign a note on the sites of the federation in `directory`, here with the key in `others`."""
        from feddbn.runtime.site.kit_files import read_identity

        identity = read_identity(others / "identity.key")
        note = replace(note, authority=identity.public.hex())
        return note.signed(identity.sign(note.statement))

    def has_signed(self, kit: Path, note: Note) -> bool | None:
        """Whether who may add sites to a kit has signed a note; None if the kit does not know who that is."""
        from feddbn.privacy.keys import verify_signature

        key = self.authority_key(kit)
        if key is None:
            return None
        return note.authority == key and verify_signature(
            bytes.fromhex(key), bytes.fromhex(note.signature), note.statement
        )

    def authority_key(self, kit: Path) -> str | None:
        """Return the public key of who may add sites to a kit."""
        from feddbn.runtime.site.kit_files import read_authority_key

        return read_authority_key(kit)

    @abstractmethod
    def check_site(self, kit: Path, study: Study | None = None) -> list[Finding]:
        """Return the findings for a site's kit, and whether it could join `study` if one is given."""

    @abstractmethod
    def site_settings(self, kit: Path) -> Path:
        """Return where the settings file of a site's kit is."""

    def server_process(self, kit: Path) -> Process:
        """Return what runs a server's kit, made ready to start."""
        raise self._cannot("start a server")

    def site_process(self, kit: Path) -> Process:
        """Return what runs a site's kit."""
        raise self._cannot("start a site")

    def session(self, kit: Path) -> Session:
        """Return a session with a lead's kit, not yet connected."""
        raise self._cannot("send, watch and fetch studies")

    def _cannot(self, what: str) -> FederationError:
        return FederationError(
            f"feddbn does not {what} on the engine {self.name!r}; {self.instead}.", code="engine-cannot"
        )


DEFAULT_ENGINE = "nvflare"
SITE_SETTINGS = "feddbn_site.toml"
_ENGINES = {
    "nvflare": ("feddbn.runtime.engines.nvflare.engine", "startup"),
    "files": ("feddbn.runtime.engines.files.engine", "files.toml"),
    "platform": ("feddbn.runtime.engines.platform.engine", SITE_SETTINGS),
}
"""Name -> the module whose `ENGINE` it is, and what only its kits hold."""
_GONE = {
    "flower": (
        "whoever reaches a Flower server's port can run code at the sites and read their keys",
        "ca.pem",
    )
}
"""Engines of earlier versions -> why it is not offered, and what only its kits hold."""


def engine_names() -> tuple[str, ...]:
    """Return the names of all engines."""
    return tuple(_ENGINES)


def engine(name: str = DEFAULT_ENGINE) -> Engine:
    """Return the engine of this name."""
    if name in _GONE:
        raise ParameterError(
            f"engine {name!r} is no longer offered, because {_GONE[name][0]}; choose {' or '.join(_ENGINES)}.",
            code="engine-gone",
        )
    if name not in _ENGINES:
        raise ParameterError(
            f"engine {name!r} is not known; choose {' or '.join(_ENGINES)}.", code="unknown-engine"
        )
    try:
        found: Engine = import_module(_ENGINES[name][0]).ENGINE
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None
    return found


def is_kit(folder: Path) -> bool:
    """Whether a folder is a kit of some engine."""
    return any((Path(folder) / mark).exists() for _, mark in (_ENGINES | _GONE).values())


def engine_of(kit: Path) -> Engine:
    """Return the engine a kit was made for; of what is no kit, the default, which will say what is missing.

    Raises
    ------
    FileError
        If the kit is one of an engine that is not offered any more.
    """
    marks = {name: mark for name, (_, mark) in (_ENGINES | _GONE).items()}
    # Other kits may have settings in the same place.
    marks["platform"] = marks.pop("platform")
    found = next((name for name, mark in marks.items() if (Path(kit) / mark).exists()), DEFAULT_ENGINE)
    if found in _GONE:
        raise FileError(
            f"{kit} is a kit of the engine {found!r}, which is no longer offered, because {_GONE[found][0]}; destroy it "
            f"and make new kits with `feddbn federation init`, which uses {DEFAULT_ENGINE}.",
            code="engine-gone",
        )
    return engine(found)
