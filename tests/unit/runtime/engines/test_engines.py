"""Several modules: the engine interface.

Which engine a kit is for, what is refused, what a lead's kit remembers.
"""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import feddbn.cli
from feddbn.errors import FederationError, FileError, MissingExtra, ParameterError, StateError
from feddbn.federation.protocol.study import Study
from feddbn.runtime.engines import interface as registry
from feddbn.runtime.engines.interface import (
    DEFAULT_ENGINE,
    Engine,
    Job,
    Presence,
    Session,
    engine,
    engine_names,
    engine_of,
)
from support.saying import refused

STUDY = Study(name="s", method="m", variables=("u",), sites=("a", "b"))


def test_every_engine_is_found_by_its_name():
    pytest.importorskip("cryptography")
    assert {engine(name).name for name in engine_names()} == set(engine_names())
    assert all(isinstance(engine(name), Engine) for name in engine_names())
    with refused(ParameterError, "'ray'", "nvflare", code="unknown-engine"):
        engine("ray")


def test_the_engine_is_read_from_the_kit(tmp_path):
    assert engine_of(tmp_path).name == DEFAULT_ENGINE
    # An earlier engine's kits are known by such a file; beside `startup` it means nothing.
    (tmp_path / "startup").mkdir()
    (tmp_path / "ca.pem").touch()
    assert engine_of(tmp_path).name == "nvflare"


def test_a_settings_file_alone_is_a_kit_for_a_platform_and_the_last_thing_to_go_by(tmp_path):
    (tmp_path / "feddbn_site.toml").touch()
    assert engine_of(tmp_path).name == "platform"
    (tmp_path / "ca.pem").touch()
    with refused(FileError, code="engine-gone"):
        engine_of(tmp_path)
    (tmp_path / "files.toml").touch()
    assert engine_of(tmp_path).name == "files"


def test_an_engine_that_is_not_installed_is_named_in_one_sentence(monkeypatch):
    def missing(module):
        raise ModuleNotFoundError("No module named 'nvflare.apis'", name="nvflare.apis")

    monkeypatch.setattr(registry, "import_module", missing)
    with pytest.raises(MissingExtra, match=r"feddbn\[nvflare\]"):
        engine("nvflare")


class OnlyKits(Engine):
    """A second engine that makes kits and leaves the rest to tools of its own."""

    name = "pigeon"
    instead = "use its own tools"

    def make_kits(self, plan, directory):
        return {}

    def check_site(self, kit, study=None):
        return []

    def site_settings(self, kit):
        return kit / "site.toml"


def test_what_an_engine_cannot_do_is_refused_with_what_to_do_instead(tmp_path):
    pigeon = OnlyKits()
    for call in (pigeon.server_process, pigeon.site_process, pigeon.session):
        with refused(FederationError, "'pigeon'", pigeon.instead):
            call(tmp_path)


def test_a_second_engine_is_a_row_and_a_module(tmp_path, monkeypatch):
    known = engine_names()
    monkeypatch.setitem(registry._ENGINES, "pigeon", (__name__, "coop"))
    monkeypatch.setattr(registry, "import_module", lambda module: SimpleNamespace(ENGINE=OnlyKits()))
    assert engine_names() == (*known, "pigeon")
    (tmp_path / "coop").mkdir()
    assert engine_of(tmp_path).name == "pigeon"
    with refused(ParameterError, " or ".join(engine_names()), code="unknown-engine"):
        engine("ray")


def test_no_command_names_the_default_engine_or_looks_into_an_engines_folder():
    for path in Path(feddbn.cli.__file__).parent.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert DEFAULT_ENGINE not in text.lower(), path
        # Files have commands of their own.
        own = {"files"} if path.stem in ("keeper", "show", "site", "study") else set()
        assert set(re.findall(r"runtime\.engines\.(\w+)", text)) & set(engine_names()) <= own, path


HEARD = 1e9


class Here(Session):
    """A lead's session without a server: `connected` sites, jobs that are never run."""

    connected, silent = ("a", "b"), ()

    def __init__(self, kit):
        super().__init__(kit)
        self.sent = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def presence(self):
        return [Presence(site, site not in self.silent, HEARD) for site in self.connected]

    def jobs(self):
        rows = [Job(run, job, "WAITING", "", "", False, False) for job, run in enumerate(self.sent)]
        return rows[::-1]

    def submit(self, study, run_id):
        self.sent.append(run_id)
        return str(len(self.sent) - 1)

    def progress(self, job_id):
        return None

    def wait(self, job_id, watch=None):
        return "FINISHED"

    def abort(self, job_id):
        pass

    def fetch(self, job_id, out):
        return out


def test_a_run_keeps_its_study_and_can_be_sent_again(tmp_path):
    session = Here(tmp_path)
    with refused(StateError, "'run-1'", code="unknown-run"):
        session.study_of("run-1")
    session.claim(STUDY, "run-1")
    session.begin(STUDY, "run-1")
    assert Here(tmp_path).study_of("run-1") == STUDY
    session.claim(STUDY, "run-1")
    other = STUDY.model_copy(update={"method": "n"})
    with refused(StateError, "'run-1'", code="other-study"):
        session.claim(other, "run-1")
    session.begin(Here(tmp_path).study_of("run-1"), "run-1")
    assert session.job_of("run-1").job == 1
    with refused(StateError, "'run-2'", code="unknown-run"):
        session.job_of("run-2")


def test_a_study_whose_sites_are_away_is_neither_sent_nor_remembered(tmp_path):
    session = Here(tmp_path)
    session.connected = ("b",)
    with refused(StateError, "2 of its 2", "connected: b", code="sites-away"):
        session.begin(STUDY, "run-1")
    assert session.sent == []
    assert not (tmp_path / "runs" / "run-1.json").exists()
    patient = STUDY.model_copy(
        update={"attendance": STUDY.attendance.model_copy(update={"when_missing": "continue"})}
    )
    told = []
    assert session.begin(patient, "run-1", told.append) == "0"
    assert [sentence.split()[0] for sentence in told] == ["a"]


def test_a_silent_site_is_named_with_the_time_since_when_also_after_the_server_has_forgotten_it(tmp_path):
    session = Here(tmp_path)
    session.silent = ("a",)
    assert session.sites() == ["b"]
    with refused(StateError, "Sep 2001,", "connected: b", code="sites-away"):
        session.begin(STUDY, "run-1")
    session.connected = ("b",)
    (a, b) = Here.known_sites(session)
    assert (a.site, a.is_here, a.since) == ("a", False, "2001-09-09 01:46:40 UTC")
    assert b.is_here
