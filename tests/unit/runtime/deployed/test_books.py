"""A site's audit logs: what was spent survives kills, and cannot be made less by editing or deleting a file."""

import math
import subprocess
import sys

import pytest

from feddbn.errors import FileError
from feddbn.privacy.audit import AuditChain
from feddbn.privacy.gaussian import gaussian_epsilon
from feddbn.privacy.policy import SitePolicy
from feddbn.runtime.deployed.audit import Books, budget_finding
from support.saying import refused

pytest.importorskip("dp_accounting")
POLICY = SitePolicy(max_epsilon=10.0)


class Writer:
    """Writes runs into books as a site does."""

    def __init__(self, state, secret=b"key"):
        self.state, self.secret = state, secret
        self.told = []
        self.books = Books(state, secret, self.told.append)
        self.books.begin()

    def sent(self, run, multiplier=4.0, unit="recording"):
        chain = AuditChain.resume(self.books.lines(run))
        entry = chain.add(
            time="now",
            site="a",
            event="sent",
            task="moments",
            asked_by="s",
            unit=unit,
            noise_multiplier=multiplier,
        )
        self.books.append(run, entry.to_line())

    def log(self, run):
        return self.state / "_audit" / f"{run}.jsonl"

    def account(self):
        return Books(self.state, self.secret, self.told.append).account()


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
    assert Books(tmp_path).account().spent("recording", 1e-5) == 0.0
    assert Writer(tmp_path).account().spent("recording", 1e-5) == 0.0


def test_noise_for_rows_is_none_for_recordings(writer):
    writer.sent("three", unit="row")
    account = writer.account()
    assert math.isinf(account.spent("recording", 1e-5))
    assert account.spent("row", 1e-5) < 10
    assert budget_finding(account, POLICY).values["spent"] is None


def edited(writer):
    path = writer.log("one")
    path.write_text(path.read_text().replace('"noise_multiplier":4.0', '"noise_multiplier":999.0'))


def recomputed(writer):
    writer.log("one").unlink()
    other = Writer(writer.state / "elsewhere")
    other.sent("one", 999.0)
    other.sent("one", 999.0)
    writer.log("one").write_bytes(other.log("one").read_bytes())


def shortened(writer):
    path = writer.log("one")
    path.write_text(path.read_text().splitlines(keepends=True)[0])


def head_of(writer, run):
    return writer.state / "_audit" / f"{run}.head"


def shortened_without_its_head(writer):
    shortened(writer)
    head_of(writer, "one").unlink()


def shortened_with_the_head_of_another_run(writer):
    shortened(writer)
    writer.sent("short")
    head_of(writer, "one").write_bytes(head_of(writer, "short").read_bytes())


def index_of_another_key(writer):
    other = Writer(writer.state / "elsewhere", b"guess")
    (writer.state / "_audit" / "index.json").write_bytes((other.state / "_audit" / "index.json").read_bytes())


@pytest.mark.parametrize(
    ("tamper", "names_run"),
    [
        (edited, True),
        (recomputed, True),
        (shortened, True),
        (shortened_without_its_head, True),
        (shortened_with_the_head_of_another_run, True),
        (lambda w: w.log("one").write_bytes(b"\xff\xfe\n"), True),
        (lambda w: w.log("one").unlink(), True),
        (index_of_another_key, False),
        (lambda w: (w.state / "_audit" / "index.json").unlink(), False),
    ],
)
def test_a_budget_cannot_be_won_back_by_editing_or_deleting(writer, tmp_path, tamper, names_run):
    tamper(writer)
    account = writer.account()
    assert account.doubt
    assert account.doubtful == ({"one"} if names_run else set())
    assert math.isinf(account.spent("recording", 1e-5))
    assert budget_finding(account, POLICY).code == "budget-unknown"
    # Going on with other runs does not make it good.
    writer.books.begin()
    writer.sent("three")
    assert writer.account().doubt is not None


def test_deleting_all_logs_is_seen_while_a_run_is_still_on_disk(writer):
    run = writer.state / "one"
    run.mkdir()
    (run / "events.jsonl").write_text('{"what": "executed", "task": "moments"}\n')
    assert writer.account().doubt is None
    for path in (writer.state / "_audit").iterdir():
        path.unlink()
    writer.books.begin()
    assert "'one'" in writer.account().doubt


def test_kill_at_any_byte_of_an_append_loses_nothing_and_blocks_nothing(writer):
    before = writer.log("one").read_bytes()
    head = head_of(writer, "one").read_bytes()
    writer.sent("one")
    after = writer.log("one").read_bytes()
    for end in range(len(before), len(after) + 1, 7):
        # Killed before the head was written, or a machine without power that came back with an older one.
        writer.log("one").write_bytes(after[:end])
        head_of(writer, "one").write_bytes(head)
        writer.told.clear()
        account = writer.account()
        assert account.doubt is None
        assert len(account.by_run["one"]) == (3 if end == len(after) else 2)
        assert len(writer.told) == (len(before) < end < len(after))
        writer.sent("one")
        assert writer.account().doubt is None


def test_half_a_line_of_a_failed_write_is_gone_before_the_next(writer):
    with open(writer.log("one"), "ab") as file:
        file.write(b'{"asked_by":"ser')
    chain = AuditChain.resume(writer.log("one").read_text().splitlines()[:2])
    entry = chain.add(time="now", site="a", event="refused", task="moments", asked_by="s")
    writer.books.append("one", entry.to_line())
    assert writer.account().doubt is None
    assert len(writer.account().by_run["one"]) == 3


@pytest.mark.parametrize(
    "tamper", [shortened, recomputed, shortened_without_its_head, shortened_with_the_head_of_another_run]
)
def test_a_log_that_was_touched_is_not_gone_on_with(writer, tamper):
    """Going on would write a head of what is left, and nobody would see that something is missing."""
    tamper(writer)
    with refused(FileError, "'one'", code="damaged-log"):
        Books(writer.state, writer.secret).lines("one")
    writer.books.lines("two")


@pytest.mark.parametrize("step", ["head", "index"])
def test_a_run_that_was_killed_before_its_first_entry_begins_again(writer, monkeypatch, step):
    from feddbn.runtime.deployed import audit as books

    def killed(path, content):
        if path.suffix == (".head" if step == "head" else ".json"):
            raise KeyboardInterrupt
        keep(path, content)

    keep = books.write_atomically
    monkeypatch.setattr(books, "write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        writer.sent("three")
    monkeypatch.setattr(books, "write_atomically", keep)
    assert writer.account().doubt is None
    assert "three" not in writer.account().by_run
    other = Writer(writer.state)
    other.sent("three")
    assert writer.account().doubt is None
    assert len(writer.account().by_run["three"]) == 1


def test_a_head_that_cannot_be_written_is_told_and_the_log_is_ahead(writer):
    head_of(writer, "one").unlink()
    head_of(writer, "one").mkdir()
    chain = AuditChain.resume(writer.log("one").read_text().splitlines())
    entry = chain.add(time="now", site="a", event="refused", task="moments", asked_by="s")
    writer.books.append("one", entry.to_line())
    assert "'one'" in writer.told[-1]
    assert len(writer.log("one").read_text().splitlines()) == 3


def test_logs_of_an_earlier_version_are_taken_by_their_owner(writer):
    for path in (writer.state / "_audit").glob("*.head"):
        path.unlink()
    (writer.state / "_audit" / "index.json").unlink()
    assert writer.books.adopt() == 2
    assert writer.account().doubt is None
    edited(writer)
    with refused(FileError, "'one'", code="damaged-log"):
        writer.books.adopt()


CHILD = """
import sys
from pathlib import Path
from feddbn.privacy.audit import AuditChain
from feddbn.runtime.deployed.audit import Books
books = Books(Path(sys.argv[1]), b"key")
books.begin()
chain = AuditChain.resume(books.lines("one"))
while True:
    entry = chain.add(
        time="now", site="a", event="sent", task="moments", asked_by="s", unit="recording", noise_multiplier=50.0
    )
    books.append("one", entry.to_line())
    print(chain.n_entries, flush=True)
"""


def test_a_process_killed_at_any_moment_leaves_books_that_hold_all_that_left(tmp_path):
    for kill in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        seen = [child.stdout.readline() for _ in range(3 + kill)]
        child.kill()
        seen += child.stdout.readlines()
        child.wait()
        child.stdout.close()
        acknowledged = int(seen[-1])
        account = Books(tmp_path, b"key").account()
        assert account.doubt is None
        # At most one more than was acknowledged: what is in the books and never left costs, and hides nothing.
        assert acknowledged <= len(account.by_run["one"]) <= acknowledged + 1
