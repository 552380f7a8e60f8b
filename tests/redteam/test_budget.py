"""A budget cannot be won back by touching a log, and half a line does not block it."""

import json
import math

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")
from typer.testing import CliRunner

from feddbn.cli.main import app
from feddbn.errors import FileError, NotEnoughSites
from feddbn.federation.protocol.task import Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.runtime.site.check import check_settings
from feddbn.runtime.store import STORE, FileStore, SealedLog
from support.consortium import Consortium, by_rule, plain
from support.saying import only
from support.states import changed, log_lines, rewrite_log

pytestmark = pytest.mark.promise


def consortium(place, policy="max_epsilon = 5.0\n"):
    return Consortium(place, plain(rows=12, n_recordings=3), by_rule(more=policy))


def ask(sites, run="two", **privacy):
    """Ask for moments with noise in a run of its own."""
    sites.restart()
    study = sites.study(
        privacy={"epsilon": 1.0, "clip": 5.0, **privacy}, attendance={"when_missing": "abort"}
    )
    server = sites.coordinator(study, run)
    server.hello()
    return server.sum(Task(GramQuestion(n_lags=1, variables=sites.variables)))


@pytest.fixture
def sites(tmp_path):
    made = consortium(tmp_path)
    ask(made, "one")
    return made


def test_an_untouched_log_is_added_up_and_what_is_left_is_shown(sites):
    found = only(check_settings(sites.place / "s0" / "feddbn_site.toml"), "budget").values
    assert (found["limit"], found["spent"]) == (5.0, pytest.approx(1.0))
    ask(sites)
    assert sites.noise_guard("s0").epsilon() == pytest.approx(1.45, abs=0.05)


def edited(state):
    entry = json.loads(log_lines(state, "one")[0])
    entry["noise_multiplier"] = 999.0
    rewrite_log(state, "one", [json.dumps(entry)])


def put_back_from_before(state):
    changed(state, "DELETE FROM lines WHERE place = '_audit'")
    SealedLog(state / "other", "audit", FileError).append("one", "nothing")
    (state / STORE).write_bytes((state / "other" / STORE).read_bytes())


@pytest.mark.parametrize(
    "tamper",
    [
        edited,
        put_back_from_before,
        lambda state: rewrite_log(state, "one", []),
        lambda state: (state / STORE).unlink(),
        lambda state: (state / "_audit.head").unlink(),
    ],
)
def test_a_log_that_was_touched_stops_the_site_and_leaves_nothing_to_spend(sites, tamper):
    tamper(sites.state())
    for run, study in (("two", {}), ("one", {}), ("three", {"epsilon": None})):
        with pytest.raises(NotEnoughSites):
            ask(sites, run, **study)
    # The owner is told, and everything counts as spent.
    found = only(check_settings(sites.place / "s0" / "feddbn_site.toml"), "budget-unknown")
    assert "feddbn site verify --adopt" in found.values["doubt"]
    assert math.isinf(sites.owner().audit.account().spent("recording", 1e-5))


def test_noise_for_rows_does_not_count_as_noise_for_recordings(tmp_path):
    sites = consortium(tmp_path, "")
    ask(sites, "rows", unit="row")
    sites.set_policy("approve_by_rule", 'max_epsilon = 1.5\nunit = "recording"\napprove_by_rule')
    with pytest.raises(NotEnoughSites):
        ask(sites, epsilon=0.5)
    assert math.isinf(sites.noise_guard("s0").epsilon())


def test_the_owner_may_take_logs_without_a_head_as_complete(sites):
    (sites.state() / "_audit.head").unlink()
    # What kits of the engine are known by.
    (sites.place / "s0" / "startup").mkdir()
    (sites.place / "s0" / "local").symlink_to(".")
    done = CliRunner().invoke(app, ["site", "verify", "--adopt", "--kit", str(sites.place / "s0")])
    assert done.exit_code == 0, done.output
    assert "epsilon 1 of 5" in done.output
    ask(sites)


def test_an_answer_that_was_booked_and_never_left_costs_and_hides_nothing(tmp_path, monkeypatch):
    """Killed between the entry of the audit log and the record: asked again, the site draws new noise and books it, too."""
    sites = consortium(tmp_path)
    save = FileStore.save

    def killed(self, record):
        if self.site == "s0" and record.vector is not None:
            raise KeyboardInterrupt
        save(self, record)

    with monkeypatch.context() as patched:
        patched.setattr(FileStore, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            ask(sites, "one", epsilon=2.0)
    booked = sites.noise_guard("s0").epsilon()
    assert math.isfinite(booked)
    # The study's promise is for one answer, and two are in the books: the run cannot go on, a new one can.
    with pytest.raises(NotEnoughSites):
        ask(sites, "one", epsilon=2.0)
    assert ask(sites, epsilon=2.0).value is not None
    assert sites.noise_guard("s0").epsilon() > booked > sites.noise_guard("s2").epsilon() / 2
