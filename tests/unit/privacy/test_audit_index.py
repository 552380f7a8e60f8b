import json

import pytest

from feddbn.privacy.audit import AuditChain, BookHead, BookIndex, index_key

KEY = index_key(b"secret")
OTHER = index_key(b"other")


def log(n, norm=1.0):
    chain, lines = AuditChain(), []
    for i in range(n):
        made = chain.add(time=str(i), site="a", event="sent", task="moments", asked_by="s", norm=norm)
        lines.append(made.to_line())
    return lines, BookHead(chain.n_entries, chain.last_hash)


def test_index_comes_back_only_under_its_key_and_unaltered():
    index = BookIndex(frozenset({"one", "two"}))
    stored = index.to_bytes(KEY)
    assert BookIndex.from_bytes(stored, KEY) == index
    assert BookIndex.from_bytes(stored, OTHER) is None
    altered = json.loads(stored)
    altered["runs"].remove("one")
    assert BookIndex.from_bytes(json.dumps(altered).encode(), KEY) is None
    for end in range(len(stored)):
        assert BookIndex.from_bytes(stored[:end], KEY) is None


def test_a_head_comes_back_only_for_its_run_under_its_key_and_unaltered():
    head = log(3)[1]
    stored = head.to_bytes("one", KEY)
    assert BookHead.from_bytes(stored, "one", KEY) == head
    assert BookHead.from_bytes(stored, "two", KEY) is None
    assert BookHead.from_bytes(stored, "one", OTHER) is None
    altered = json.loads(stored)
    altered["head"][1] = 1
    assert BookHead.from_bytes(json.dumps(altered).encode(), "one", KEY) is None
    for end in range(len(stored.rstrip())):
        assert BookHead.from_bytes(stored[:end], "one", KEY) is None


def test_heads_are_of_one_length_so_that_one_covers_the_one_before():
    lengths = {len(BookHead(n, "f" * 64).to_bytes("r" * 64, KEY)) for n in (0, 1, 2**53)}
    assert lengths == {512}
    assert len(BookHead().to_bytes("r", KEY)) == 512


@pytest.mark.parametrize(
    "odd", [b"", b"[]", b'{"runs": 3, "mac": ""}', b'{"head": [], "mac": ""}', b"3", b"\xff"]
)
def test_something_else_is_neither_index_nor_head(odd):
    assert BookIndex.from_bytes(odd, KEY) is None
    assert BookHead.from_bytes(odd, "one", KEY) is None


def test_an_index_is_no_head():
    assert BookHead.from_bytes(BookIndex(frozenset({"one"})).to_bytes(KEY), "one", KEY) is None
    assert BookIndex.from_bytes(BookHead().to_bytes("one", KEY), KEY) is None


def test_what_is_wrong_with_a_log_is_said():
    lines, head = log(3)
    assert head.problem("one", lines) is None
    assert "'one'" in head.problem("one", None)
    assert "last 1" in head.problem("one", lines[:2])
    assert "last 3" in head.problem("one", [])
    assert "line 2" in head.problem("one", [lines[0], lines[1].replace('"norm":1.0', '"norm":2.0'), lines[2]])
    # The chain has no key, so whoever can write can compute one that fits in itself; the head tells.
    assert head.problem("one", log(3, norm=2.0)[0]) is not None


def test_a_log_may_be_ahead_of_its_head():
    assert log(2)[1].problem("one", log(3)[0]) is None
    assert BookHead().problem("two", log(1)[0]) is None
    assert BookHead().problem("three", None) is None
