"""A site's audit logs: what was spent survives kills, and cannot be made less by editing or deleting a file."""

import math

import pytest

from feddbn.errors import FileError
from feddbn.federation.protocol.messages import SiteRecord
from feddbn.privacy.audit import AuditChain
from feddbn.privacy.gaussian import gaussian_epsilon
from feddbn.privacy.keys import Identity
from feddbn.privacy.policy import SitePolicy
from feddbn.runtime.site.audit import SiteAudit, budget_finding
from feddbn.runtime.store import STORE, FileStore
from support.crash import crash_points, killed_at
from support.saying import refused
from support.states import changed, log_lines, rewrite_log

pytest.importorskip("dp_accounting")
SITE = Identity.from_seed(bytes([1]) * 32)
POLICY = SitePolicy(max_epsilon=10.0)


class Writer:
    """Writes runs into the logs of a site as the site does."""

    def __init__(self, state, identity=SITE):
        self.state = state
        self.audit = SiteAudit(state, "a", identity)

    def sent(self, run, multiplier=4.0, unit="recording"):
        chain = AuditChain.resume(self.audit.lines(run))
        entry = chain.add(
            time="now",
            site="a",
            event="sent",
            task="moments",
            asked_by="s",
            unit=unit,
            noise_multiplier=multiplier,
        )
        self.audit.append(run, entry.to_line())

    def account(self):
        return SiteAudit(self.state, "a", SITE).account()


@pytest.fixture
def writer(tmp_path):
    made = Writer(tmp_path)
    for run in ("one", "two"):
        made.sent(run)
        made.sent(run)
    return made


def test_what_all_runs_have_spent_is_added_up(writer):
    account = writer.account()
    assert account.doubt is None
    assert len(account.ledger.releases) == 4
    assert account.spent("recording", 1e-5) == pytest.approx(gaussian_epsilon(1e-5, 2.0), rel=1e-3)
    assert budget_finding(account, POLICY).values["spent"] == account.spent("recording", 1e-5)
    assert budget_finding(account, SitePolicy()).code == "budget-unset"


def test_a_site_that_never_answered_has_spent_nothing(tmp_path):
    assert Writer(tmp_path).account().spent("recording", 1e-5) == 0.0


def test_noise_for_rows_is_none_for_recordings(writer):
    writer.sent("three", unit="row")
    account = writer.account()
    assert math.isinf(account.spent("recording", 1e-5))
    assert account.spent("row", 1e-5) < 10
    assert budget_finding(account, POLICY).values["spent"] is None


def edited(writer):
    lines = log_lines(writer.state, "one")
    rewrite_log(
        writer.state,
        "one",
        [line.replace('"noise_multiplier":4.0', '"noise_multiplier":999.0') for line in lines],
    )


def recomputed(writer):
    other = Writer(writer.state / "elsewhere")
    other.sent("one", 999.0)
    other.sent("one", 999.0)
    rewrite_log(writer.state, "one", log_lines(other.state, "one"))


def sealed_with_another_key(writer):
    Writer(writer.state, None).audit._log.seal_anew(
        [("two", line) for line in log_lines(writer.state, "two")]
    )


@pytest.mark.parametrize(
    "tamper",
    [
        edited,
        recomputed,
        sealed_with_another_key,
        lambda w: rewrite_log(w.state, "one", log_lines(w.state, "one")[:1]),
        lambda w: rewrite_log(w.state, "one", ["\xff"]),
        lambda w: rewrite_log(w.state, "one", []),
        lambda w: (w.state / "_audit.head").unlink(),
        lambda w: (w.state / STORE).unlink(),
    ],
)
def test_a_budget_cannot_be_won_back_by_editing_or_deleting(writer, tamper):
    tamper(writer)
    account = writer.account()
    assert account.doubt
    assert math.isinf(account.spent("recording", 1e-5))
    assert budget_finding(account, POLICY).code == "budget-unknown"
    # Going on would write a head of what is left, and nobody would see that something is missing.
    later = Writer(writer.state)
    for run in ("one", "three"):
        with refused(FileError, code="damaged-log"):
            later.sent(run)
    with refused(FileError, code="damaged-log"):
        later.audit.note("agreed", run="three")
    assert writer.account().doubt


def test_taking_all_logs_away_is_seen_while_a_run_is_still_in_the_store(writer):
    store = FileStore(writer.state, "a")
    store.save(SiteRecord("one", "a", "{}", "1", digest="asked"))
    store.save(SiteRecord("greeted", "a", "{}", "1"))
    assert writer.account().doubt is None
    changed(writer.state, "DELETE FROM lines")
    (writer.state / "_audit.head").unlink()
    assert "'one'" in writer.account().doubt
    store.save(SiteRecord("one", "a", "{}", "1"))
    assert writer.account().doubt is None


def test_logs_are_taken_as_they_are_by_their_owner_if_each_is_intact(writer):
    writer.audit.note("warning")
    (writer.state / "_audit.head").unlink()
    assert SiteAudit(writer.state, "a", SITE).adopt() == 2
    assert writer.account().doubt is None
    assert len(writer.account().ledger.releases) == 4
    edited(writer)
    with refused(FileError, "'one'", code="damaged-log"):
        writer.audit.adopt()


def send_answers(say, state, run):
    audit = SiteAudit(state, "a", SITE)
    chain = AuditChain.resume(audit.lines(run))
    for _ in range(3):
        entry = chain.add(
            time="now",
            site="a",
            event="sent",
            task="moments",
            asked_by="s",
            unit="recording",
            noise_multiplier=50.0,
        )
        audit.append(run, entry.to_line())
        say(chain.n_entries)


def test_a_process_killed_at_any_commit_leaves_logs_that_hold_all_that_left(tmp_path):
    acknowledged = 0
    for point in crash_points(send_answers, tmp_path, "calm"):
        acknowledged = int([acknowledged, *killed_at(point, send_answers, tmp_path, "one")][-1])
        account = SiteAudit(tmp_path, "a", SITE).account()
        assert account.doubt is None
        # At most one more than was acknowledged: what is in the books and never left costs, and hides nothing.
        n_booked = len(account.by_run.get("one", ()))
        assert acknowledged <= n_booked <= acknowledged + 1
        acknowledged = n_booked
    assert acknowledged > 3
