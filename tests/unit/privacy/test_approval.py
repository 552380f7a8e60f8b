import json
from dataclasses import replace

import pytest

pytest.importorskip("cryptography")
from feddbn.errors import FileError
from feddbn.privacy.approval import Approval, read_approval, seal_approval
from feddbn.privacy.keys import Identity

OWNER, STRANGER = Identity.from_seed(bytes([1]) * 32), Identity.from_seed(bytes([2]) * 32)
NOW, LATER = "2026-01-02T00:00:00Z", "2026-02-01T00:00:00Z"


def make(**changes):
    plain = Approval(
        "north",
        "s",
        "ab" * 32,
        "lead@example.org",
        "1.0",
        "2026-01-01T00:00:00Z",
        "2026-01-31T00:00:00Z",
        2,
        3.0,
    )
    return seal_approval(OWNER, plain, **changes)


def test_a_signed_approval_reads_back():
    approval = make(used=("run-1",))
    again = read_approval(approval.to_text())
    assert again == approval
    assert again.is_signed(OWNER.public)
    assert not again.is_signed(STRANGER.public)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("site", "south"),
        ("study", "t"),
        ("digest", "cd" * 32),
        ("lead", "x"),
        ("version", "2.0"),
        ("given", LATER),
        ("expires", "2036-01-01T00:00:00Z"),
        ("runs", 3),
        ("epsilon", 4.0),
        ("epsilon", None),
        ("used", ()),
        ("revoked", ""),
    ],
)
def test_no_field_can_be_changed_without_the_key(field, value):
    approval = make(used=("run-1",), revoked=NOW)
    assert not replace(approval, **{field: value}).is_signed(OWNER.public)


@pytest.mark.parametrize(
    ("changes", "run", "epsilon", "version", "now", "reason"),
    [
        ({}, "run-1", 1.0, "1.0", NOW, None),
        ({"used": ("run-1",)}, "run-2", 1.0, "1.0", NOW, None),
        ({"used": ("run-1", "run-2")}, "run-2", 1.0, "1.0", NOW, None),
        ({"used": ("run-1", "run-2")}, "run-3", 1.0, "1.0", NOW, "run-1, run-2"),
        ({"used": ("run-1",)}, "run-1", 1.0, "1.0", LATER, "2026-01-31T00:00:00Z"),
        ({"revoked": NOW}, "run-1", 1.0, "1.0", NOW, "2026-01-02"),
        ({}, "run-1", 1.0, "1.1", NOW, "1.1"),
        ({"used": ("run-1",)}, "run-2", 1.5, "1.0", NOW, None),
        ({"used": ("run-1",)}, "run-2", 1.6, "1.0", NOW, "3.2"),
        ({}, "run-1", None, "1.0", NOW, "inf"),
        ({"epsilon": None}, "run-1", None, "1.0", NOW, None),
    ],
)
def test_what_is_allowed(changes, run, epsilon, version, now, reason):
    found = make(**changes).why_not(run, epsilon, version, now)
    assert (found is None) if reason is None else reason in str(found)


def test_how_it_stands_is_said_in_a_word():
    assert make().state(NOW) == "valid"
    assert make().state(LATER) == "expired"
    assert make(used=("a", "b")).state(NOW) == "used up"
    assert make(revoked=NOW).state(LATER) == "revoked"


@pytest.mark.parametrize(
    "change",
    [
        {"runs": "2"},
        {"runs": True},
        {"used": "run-1"},
        {"used": [1]},
        {"epsilon": "3"},
        {"site": 1},
        {"more": 1},
    ],
)
def test_what_is_not_an_approval_is_refused(change):
    values = {**json.loads(make().to_text()), **change}
    with pytest.raises(FileError):
        read_approval(json.dumps(values))


def test_a_signature_that_is_no_number_is_none():
    assert not replace(make(), signature="xyz").is_signed(OWNER.public)
