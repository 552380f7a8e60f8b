import json

from feddbn.privacy.audit import AuditChain
from feddbn.privacy.book_index import BookIndex, Head, index_key

KEY = index_key(b"secret")


def log(n, norm=1.0):
    chain, lines = AuditChain(), []
    for i in range(n):
        made = chain.add(time=str(i), site="a", event="sent", task="moments", asked_by="s", norm=norm)
        lines.append(made.to_line())
    return lines, Head(chain.n_entries, chain.last_hash)


def test_index_comes_back_only_under_its_key_and_unaltered():
    _, head = log(3)
    index = BookIndex().with_head("one", head)
    stored = index.to_bytes(KEY)
    assert BookIndex.from_bytes(stored, KEY) == index
    assert BookIndex.from_bytes(stored, index_key(b"other")) is None
    altered = json.loads(stored)
    altered["heads"]["one"][0] = 1
    assert BookIndex.from_bytes(json.dumps(altered).encode(), KEY) is None
    for end in range(len(stored)):
        assert BookIndex.from_bytes(stored[:end], KEY) is None
    for odd in (b"", b"[]", b'{"heads": 3, "mac": ""}', b'{"heads": {"a": [1]}, "mac": ""}'):
        assert BookIndex.from_bytes(odd, KEY) is None


def test_what_is_wrong_with_a_log_is_said():
    lines, head = log(3)
    index = BookIndex().with_head("one", head)
    assert index.problem("one", lines) is None
    assert index.problem("one", None) == "the log of run 'one' is missing"
    assert index.problem("one", lines[:2]) == "the log of run 'one' lacks its last 1 entry"
    assert index.problem("one", []) == "the log of run 'one' lacks its last 3 entries"
    assert "not intact: line 2 was edited" in index.problem(
        "one", [lines[0], lines[1].replace('"norm":1.0', '"norm":2.0'), lines[2]]
    )
    # The chain has no key, so whoever can write can compute one that fits in itself; the index tells.
    assert index.problem("one", log(3, norm=2.0)[0]) == "the log of run 'one' was written anew"


def test_a_log_may_be_ahead_of_the_index_and_a_new_one_not_in_it():
    index = BookIndex().with_head("one", log(2)[1])
    assert index.problem("one", log(3)[0]) is None
    assert index.problem("two", log(1)[0]) is None
    assert index.problem("three", None) is None
