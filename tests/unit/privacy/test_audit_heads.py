import re

import pytest

pytest.importorskip("cryptography")
from dataclasses import replace

from feddbn.errors import FileError
from feddbn.privacy.audit import (
    AuditChain,
    Head,
    against_log,
    contradiction,
    is_signed,
    read_head,
    read_receipt,
    signed_head,
    signed_receipt,
)
from feddbn.privacy.keys import Identity
from support.saying import refused

SITE, HOLDER = Identity.from_seed(bytes([1]) * 32), Identity.from_seed(bytes([2]) * 32)


def log(n, word="sent"):
    chain = AuditChain(identity=SITE)
    entries = [
        chain.add(time=f"t{i}", site="north", event=word, task="moments", asked_by="server") for i in range(n)
    ]
    return chain, entries


def head(n, time="2026-01-01T00:00:00Z", word="sent"):
    return signed_head(SITE, "north", log(n, word)[0], time)


def test_heads_and_receipts_read_back_and_are_signed_by_their_owners():
    one = head(3)
    receipt = signed_receipt(HOLDER, "south", one)
    assert read_head(one.fields()) == one
    assert read_receipt(receipt.fields()) == receipt
    assert is_signed(one, SITE.public)
    assert is_signed(receipt, HOLDER.public)
    assert not is_signed(one, HOLDER.public)
    assert not is_signed(receipt, SITE.public)


@pytest.mark.parametrize(
    "change", [{"site": "west"}, {"n_entries": 4}, {"hash": "0" * 64}, {"time": "2027-01-01T00:00:00Z"}]
)
def test_no_field_of_a_head_can_be_changed(change):
    one = head(3)
    assert not is_signed(replace(one, **change), SITE.public)
    receipt = signed_receipt(HOLDER, "south", one)
    assert not is_signed(replace(receipt, head=replace(one, **change)), HOLDER.public)
    assert not is_signed(replace(receipt, holder="west"), HOLDER.public)


@pytest.mark.parametrize(
    "change",
    [
        {"n_entries": -1},
        {"n_entries": True},
        {"n_entries": 2.5},
        {"hash": "xyz"},
        {"time": "yesterday"},
        {"signature": ""},
        {"site": ""},
        {"site": "a\nb"},
        {"more": 1},
    ],
)
def test_what_is_not_a_head_is_refused(change):
    with refused(FileError, "head"):
        read_head({**head(3).fields(), **change})


def test_a_receipt_of_nothing_is_refused():
    with refused(FileError, "receipt"):
        read_receipt([])


def test_a_shorter_log_shown_later_contradicts_and_an_old_head_sent_again_does_not():
    held = head(5, "2026-01-02T00:00:00Z")
    assert re.search(r"\b3 .* 5\b", contradiction(held, head(3, "2026-01-03T00:00:00Z")))
    assert contradiction(held, head(3, "2026-01-01T00:00:00Z")) is None
    assert contradiction(held, head(7, "2026-01-03T00:00:00Z")) is None
    assert contradiction(held, held) is None


def test_another_log_of_the_same_length_contradicts_whenever_it_was_shown():
    held = head(5, "2026-01-02T00:00:00Z")
    assert "was rewritten" in contradiction(held, head(5, "2026-01-01T00:00:00Z", "other"))


def test_a_log_must_reach_a_head():
    _, entries = log(5)
    assert against_log(head(5), entries) is None
    assert against_log(head(3), entries) is None
    assert against_log(head(0), []) is None
    assert re.search(r"\b4 .* 5\b", against_log(head(5), entries[:4]))
    assert "entry 5" in against_log(head(5, word="other"), entries)


def test_a_hash_says_nothing_to_who_knows_all_but_the_norm():
    """The server knows every field of an entry but its norm; a hash that it could try out would tell it."""

    def add(chain):
        entry = chain.add(
            time="t", site="north", event="sent", task="moments", asked_by="server", length=2, norm=5.0
        )
        return entry.hash

    assert add(AuditChain(identity=SITE)) != add(AuditChain(identity=HOLDER))
    assert add(AuditChain(identity=SITE)) != add(AuditChain())
    assert isinstance(head(1), Head)
