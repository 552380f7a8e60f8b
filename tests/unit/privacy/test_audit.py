import json

import pytest

pytest.importorskip("cryptography")
from feddbn.errors import FileError
from feddbn.privacy.audit import GENESIS, AuditChain, _digest, parse_entries, totals, verify_chain
from feddbn.privacy.keys import Identity
from support.saying import refused


def _log(n=4):
    chain = AuditChain()
    lines = []
    for i in range(n):
        entry = chain.add(
            time=f"2024-01-0{i + 1}T00:00:00+00:00",
            site="clinic",
            event="refused" if i == 2 else "sent",
            task="moments",
            asked_by="server",
            length=10 * i,
            norm=float(i),
            protection="masked and noise",
            unit="recording",
            noise_multiplier=1.5,
            epsilon=0.5 * i,
            delta=1e-5,
        )
        lines.append(entry.to_line())
    return chain, lines


def problem(lines, *expected, **key):
    """What is wrong with a log, and after how many good entries."""
    report = verify_chain(lines, *expected, **key)
    assert (report.problem is None) == (report.code == "")
    return report.code, report.n_entries


def test_intact_log_verifies_and_names_its_last_hash():
    chain, lines = _log()
    report = verify_chain(lines)
    assert report.problem is None
    assert (report.n_entries, report.last_hash) == (4, chain.last_hash)
    assert verify_chain([]).last_hash == GENESIS


def test_entries_read_back_as_written():
    _, lines = _log()
    entries = parse_entries([*lines, ""])
    assert [entry.to_line() for entry in entries] == lines
    assert entries[1].n_bytes == 80
    assert totals(entries) == {"sent": 3.0, "refused": 1.0, "bytes": 8.0 * 40}


@pytest.mark.parametrize("field", ["time", "task", "norm", "epsilon", "event", "n_bytes", "note"])
def test_every_edit_of_a_field_is_found_where_it_is(field):
    _, lines = _log()
    body = json.loads(lines[1])
    body[field] = "moved" if isinstance(body[field], str) else 99
    lines[1] = json.dumps(body)
    assert problem(lines) == ("edited", 1)


def test_edit_with_a_recomputed_hash_breaks_the_next_line():
    _, lines = _log()
    forged = AuditChain(1, json.loads(lines[0])["hash"]).add(
        time="x", site="clinic", event="sent", task="moments", asked_by="server"
    )
    lines[1] = forged.to_line()
    assert problem(lines) == ("out-of-order", 2)


def test_removed_and_swapped_lines_are_found():
    _, lines = _log()
    assert problem(lines[:1] + lines[2:]) == ("out-of-order", 1)
    assert problem([lines[1], lines[0]]) == ("out-of-order", 0)


@pytest.mark.parametrize("line", ["no json", "[1]", '{"index": 0}', "3"])
def test_line_that_is_not_an_entry_is_named(line):
    assert problem([line]) == ("not-an-entry", 0)
    with refused(FileError, 1):
        parse_entries([line])


def test_log_is_continued_only_if_intact():
    _, lines = _log()
    chain = AuditChain.resume([*lines, "\n"])
    lines.append(chain.add(time="x", site="clinic", event="sent", task="t", asked_by="server").to_line())
    assert verify_chain(lines).problem is None
    with refused(FileError, 2):
        AuditChain.resume([lines[0], lines[1].replace("moments", "moment")])


def test_infinite_epsilon_is_written_as_null():
    entry = AuditChain().add(
        time="x", site="s", event="sent", task="t", asked_by="server", epsilon=float("inf"), delta=1e-5
    )
    assert entry.epsilon is None
    assert json.loads(entry.to_line())["epsilon"] is None


SITE, STRANGER = (Identity.from_seed(bytes([k]) * 32) for k in (1, 2))


def signed(n=4, identity=SITE, chain=None):
    chain = chain or AuditChain(identity=identity)
    fields = {"site": "clinic", "event": "sent", "task": "moments", "asked_by": "server"}
    return [chain.add(time=f"t{i}", length=i, study="s", run="r", **fields).to_line() for i in range(n)]


def test_a_signed_log_is_checked_with_the_sites_key():
    lines = signed()
    assert verify_chain(lines, key=SITE.public).seal == "signed"
    assert verify_chain(lines).seal == "unchecked"
    assert problem(lines, key=STRANGER.public) == ("foreign-signature", 4)
    assert [entry.to_line() for entry in parse_entries(lines)] == lines


@pytest.mark.parametrize("identity", [STRANGER, None])
def test_a_log_that_was_rewritten_from_some_line_on_without_the_key_is_found(identity):
    """The whole chain is recomputed: every hash fits, the signature cannot."""
    lines = signed()
    forged = AuditChain(2, json.loads(lines[1])["hash"], identity)
    rewritten = [*lines[:2], *signed(2, chain=forged)]
    assert problem(rewritten)[0] in ("", "unsigned")
    assert verify_chain(rewritten, key=SITE.public).problem is not None


def test_a_signature_taken_from_another_line_does_not_fit():
    lines = signed()
    body = json.loads(lines[-1])
    body["length"] = 99
    chain = AuditChain(3, body["previous"])
    kept = ("time", "site", "event", "task", "asked_by", "length", "study", "run")
    forged = json.loads(chain.add(**{name: body[name] for name in kept}).to_line())
    forged["signature"] = body["signature"]
    forged["hash"] = _digest(forged)
    lines[-1] = json.dumps(forged)
    assert verify_chain(lines).problem is None
    assert problem(lines, key=SITE.public)[0] == "foreign-signature"


def test_a_log_cannot_go_back_to_lines_without_a_signature():
    lines = signed(2)
    bare = AuditChain(2, json.loads(lines[-1])["hash"])
    assert problem([*lines, *signed(1, chain=bare)]) == ("unsigned", 2)


def test_a_log_of_another_site_is_not_continued():
    with refused(FileError, code="foreign-signature"):
        AuditChain.resume(signed(identity=STRANGER), SITE, SITE.public)
