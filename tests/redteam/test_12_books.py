"""Red team 14 (a12): a budget cannot be won back by touching a log, and half a line does not block it. Real sites."""

import gc
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
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.check import check_settings
from feddbn.runtime.site.owner import Owner
from feddbn.runtime.store import STORE, SealedLog
from support.noisy_sites import VARIABLES, make
from support.saying import only
from support.states import changed, log_lines, rewrite_log

pytestmark = pytest.mark.usefixtures("light")

POLICY = "max_epsilon = 5.0\n"
TASK = Task(GramQuestion(n_lags=1, variables=VARIABLES))


@pytest.fixture
def sites(tmp_path):
    made = make(tmp_path, policy=POLICY)
    made.coordinator(made.study(clip=5.0), "one").sum(TASK)
    return made


def restart(sites):
    sites.exchange.endpoints.clear()
    gc.collect()
    for name in sites.names:
        sites.exchange.restart(name)


def state_of(sites, name="a"):
    return sites.place / name / "state"


def again(sites, run="two", **privacy):
    restart(sites)
    study = sites.study(clip=5.0, **privacy)
    return sites.coordinator(study, run).sum(TASK)


def test_an_untouched_log_is_added_up(sites):
    again(sites)
    assert sites.guard("a").epsilon() == pytest.approx(1.45, abs=0.05)


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
    tamper(state_of(sites))
    for run, study in (("two", {}), ("one", {}), ("three", {"epsilon": None})):
        with pytest.raises(NotEnoughSites):
            again(sites, run, **study)
    # The owner is told, and everything counts as spent.
    found = only(check_settings(sites.place / "a" / "feddbn_site.toml"), "budget-unknown")
    assert "feddbn site verify --adopt" in found.values["doubt"]
    account = Owner(read_site_settings(sites.place / "a" / "feddbn_site.toml")).audit.account()
    assert math.isinf(account.spent("recording", 1e-5))


def test_noise_for_rows_does_not_count_as_noise_for_recordings(tmp_path):
    made = make(tmp_path)
    made.coordinator(made.study(clip=5.0, unit="row"), "rows").sum(TASK)
    for name in made.names:
        (made.place / name / "policy.toml").write_text(
            'approve_by_rule = true\nmax_epsilon = 1.5\nunit = "recording"\n'
        )
    with pytest.raises(NotEnoughSites):
        again(made, epsilon=0.5)
    assert math.isinf(made.guard("a").epsilon())


def test_the_owner_may_take_logs_without_a_head_as_complete(sites):
    (state_of(sites) / "_audit.head").unlink()
    # What kits of the engine are known by.
    (sites.place / "a" / "startup").mkdir()
    (sites.place / "a" / "local").symlink_to(".")
    done = CliRunner().invoke(app, ["site", "verify", "--adopt", "--kit", str(sites.place / "a")])
    assert done.exit_code == 0, done.output
    assert "epsilon 1 of 5" in done.output
    again(sites)


def test_what_is_left_is_shown(sites):
    found = only(check_settings(sites.place / "a" / "feddbn_site.toml"), "budget").values
    assert (found["limit"], found["spent"]) == (5.0, pytest.approx(1.0))


def test_an_answer_that_was_booked_and_never_left_costs_and_hides_nothing(tmp_path, monkeypatch):
    """Killed between the entry of the audit log and the record: asked again, the site draws new noise and books it, too."""
    from feddbn.runtime.store import FileStore

    sites = make(tmp_path, policy=POLICY)
    coordinator = sites.coordinator(sites.study(clip=5.0, epsilon=2.0), "one")
    save = FileStore.save

    def killed(self, record):
        if self.site == "a" and record.vector is not None:
            raise KeyboardInterrupt
        save(self, record)

    with monkeypatch.context() as patched:
        patched.setattr(FileStore, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            coordinator.sum(TASK)
    booked = sites.guard("a").epsilon()
    assert math.isfinite(booked)
    restart(sites)
    # The study's promise is for one answer, and two are in the books: the run cannot go on, a new one can.
    with pytest.raises(NotEnoughSites):
        sites.coordinator(sites.study(clip=5.0, epsilon=2.0), "one").sum(TASK)
    assert again(sites, epsilon=2.0).value is not None
    assert sites.guard("a").epsilon() > booked > sites.guard("c").epsilon() / 2
