"""How `feddbn study submit` and `resume` wait for sites that come later, against a session that plays an engine."""

from __future__ import annotations

import json
from threading import Event
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from feddbn.cli import study as study_commands
from feddbn.cli.main import app
from feddbn.cli.study import MOST_CUT_OFF, Awaited, EarlySession, wait_for_one
from feddbn.errors import FederationError, StateError
from support.study_files import study_text

STUDY = study_text('[attendance]\nwhen_missing = "collect"\nwindow_h = 48\n')
AWAITS = {
    "state": "collecting",
    "awaited": ["west"],
    "until": 9e9,
    "sentence": "awaited until 2255: west.",
}


class Engine:
    """Jobs end with the outcomes given, one after the other; `here` are the sites connected at each look."""

    def __init__(self, outcomes, here=(("west",),), was_stopped=False):
        self.outcomes, self.here = list(outcomes), list(here)
        self.sent, self.was_stopped = 0, was_stopped

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def claim(self, study, run_id):
        pass

    def studies_sent(self):
        """It was sent before: its plan is not looked at again."""
        return {"r": None}

    def begin(self, study, run_id, tell):
        self.sent += 1
        return f"job-{self.sent}"

    def wait(self, job, watch=None):
        return "FINISHED"

    def job_of(self, run_id):
        return SimpleNamespace(was_stopped=self.was_stopped)

    def sites(self):
        found = self.here.pop(0) if len(self.here) > 1 else self.here[0]
        if found is None:
            raise FederationError("the server cannot be reached.")
        return list(found)

    def fetch(self, job, out):
        outcome = self.outcomes[min(self.sent, len(self.outcomes)) - 1]
        if outcome is None:
            raise StateError("job left no outcome; the server's log says why.")
        out.mkdir(exist_ok=True)
        (out / "outcome.json").write_text(json.dumps(outcome))
        return out


@pytest.fixture
def sent(monkeypatch, tmp_path):
    """Send a study through an engine; return what was printed and the exit code."""
    waited = []
    monkeypatch.setattr(study_commands.time, "sleep", waited.append)

    def quick(session, awaited, run_id):
        wait_for_one(session, awaited, run_id, wait=waited.append)

    monkeypatch.setattr(study_commands, "wait_for_one", quick)
    (tmp_path / "study.toml").write_text(STUDY)

    def send(engine):
        monkeypatch.setattr(study_commands, "_session", lambda kit: engine)
        options = ["--kit", tmp_path, "--run", "r", "--wait", "--out", tmp_path / "out"]
        return CliRunner().invoke(
            app, ["study", "submit", *map(str, [tmp_path / "study.toml", *options])]
        ), waited

    return send


def test_a_study_is_sent_again_when_an_awaited_site_is_there(sent):
    engine = Engine([AWAITS, {"state": "finished", "summary": {}}], [(), None, ("north",), ("north", "west")])
    done, waited = sent(engine)
    assert done.exit_code == 0, done.output
    assert AWAITS["sentence"] in done.output
    assert engine.sent == 2
    # Four looks, ever more rarely.
    assert len(waited) == 4
    assert waited == sorted(waited)


def test_a_window_that_closed_ends_the_wait_with_the_server_s_sentence(sent):
    done, _ = sent(Engine([AWAITS, {"state": "stopped", "sentence": "closed without west."}]))
    assert done.exit_code != 0
    assert "closed without west." in done.output
    assert "feddbn study resume r" in done.output


def test_a_run_that_a_person_has_stopped_is_not_sent_again(sent):
    engine = Engine([{"state": "failed"}], was_stopped=True)
    done, _ = sent(engine)
    assert done.exit_code != 0
    assert engine.sent == 1


def test_jobs_that_are_cut_off_again_and_again_are_left_alone(sent):
    engine = Engine([{"state": "failed"}, None, *[{"state": "failed"}] * 9])
    done, _ = sent(engine)
    assert done.exit_code != 0
    assert engine.sent == MOST_CUT_OFF + 1


def test_a_collection_whose_time_has_passed_says_so_where_nobody_is_there():
    awaited = Awaited(frozenset({"west"}), 10.0, "collecting keys.")
    with pytest.raises(FederationError, match="feddbn study resume r"):
        wait_for_one(Engine([], [()]), awaited, "r", clock=lambda: 11.0, wait=lambda seconds: None)
    # Somebody is: the server is asked, and says who is missing.
    wait_for_one(Engine([], [("north",)]), awaited, "r", clock=lambda: 11.0, wait=lambda seconds: None)


def test_results_of_an_open_collection_say_who_is_awaited(monkeypatch, tmp_path):
    engine = Engine([AWAITS])
    engine.sent = 1
    engine.job_of = lambda run_id: SimpleNamespace(has_ended=True, job="job-1")
    monkeypatch.setattr(study_commands, "_session", lambda kit: engine)
    done = CliRunner().invoke(
        app, ["study", "results", "r", "--kit", str(tmp_path), "--out", str(tmp_path / "out")]
    )
    assert done.exit_code != 0
    assert all(part in done.output for part in (AWAITS["sentence"], "feddbn study resume r"))


class Session:
    """Opened when `may_open` is set; counts."""

    def __init__(self, error=None):
        self.may_open, self.closed, self.n_open = Event(), Event(), 0
        self.error = error

    def __enter__(self):
        assert self.may_open.wait(10)
        if self.error:
            raise self.error
        self.n_open += 1
        return self

    def __exit__(self, *error):
        self.closed.set()


def test_it_is_opened_beside_the_caller_and_closed_after_use():
    session = Session()
    early = EarlySession(session)  # does not wait
    session.may_open.set()
    with early as opened:
        assert opened is session
        assert not session.closed.is_set()
    assert session.n_open == 1
    assert session.closed.is_set()


def test_what_goes_wrong_is_told_when_it_is_entered():
    session = Session(FederationError("the server cannot be reached."))
    session.may_open.set()
    early = EarlySession(session)
    with pytest.raises(FederationError, match="reached"), early:
        pass
    early.give_up()
    assert not session.closed.is_set()


@pytest.mark.parametrize("is_slow", [False, True])
def test_one_that_is_not_wanted_any_more_is_closed_even_if_it_opens_late(monkeypatch, is_slow):
    monkeypatch.setattr(study_commands, "_LINGER_S", 0.01 if is_slow else 10)
    session = Session()
    early = EarlySession(session)
    if is_slow:
        early.give_up()
        assert not session.closed.is_set()
        session.may_open.set()
    else:
        session.may_open.set()
        early.give_up()
    assert session.closed.wait(10)
