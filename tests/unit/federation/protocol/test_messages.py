from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddbn.errors import FederationError, ParameterError, ProtocolError, SiteRefused, StateError
from feddbn.federation.protocol.encoding import encode
from feddbn.federation.protocol.messages import (
    Header,
    Journal,
    Reply,
    Request,
    check_run_id,
    digest_of,
    encode_reply,
    encode_request,
    read_journal,
    read_reply,
    read_request,
    refusal,
    task_from,
    task_request,
)
from feddbn.federation.protocol.task import Sum, Task, array, names, number, whole
from support.questions import give_values, make_question
from support.saying import refused

FIELDS = {"rho": number(), "k": whole(default=3), "names": names(default=())}
ARRAYS = {"C": array("r", "c"), "D": array("n", default=None)}
Step = make_question("messages-step", give_values, **FIELDS, **ARRAYS)
QUESTION = Step(rho=0.1, names=("a", "b"), C=np.arange(6.0).reshape(2, 3))
TASK = Task(QUESTION, ("b", "a"))


def test_a_task_survives_the_wire_with_its_digest():
    request = read_request(encode_request(task_request(TASK, "run-1", 4, 2)))
    task = task_from(request)
    assert (request.seq, request.after, request.run_id) == (4, 2, "run-1")
    assert task.params == TASK.params
    assert task.participants == ("a", "b")
    assert digest_of(task) == digest_of(TASK)
    np.testing.assert_array_equal(task.arrays["C"], TASK.arrays["C"])


def test_the_digest_covers_the_question_and_whom_it_asks_but_not_the_note():
    assert digest_of(TASK) == digest_of(Task(QUESTION, ("a", "b"), {"h": 2.0}))
    others = (
        Task(QUESTION),
        Task(replace(QUESTION, k=4), TASK.participants),
        Task(replace(QUESTION, C=np.zeros((2, 3))), TASK.participants),
        Task(replace(QUESTION, D=np.ones(1)), TASK.participants),
    )
    assert len({digest_of(task) for task in (TASK, *others)}) == 5
    assert digest_of(Task(replace(QUESTION, rho=np.float64(0.1)))) == digest_of(Task(QUESTION))


def test_a_task_whose_content_does_not_fit_its_digest_is_refused():
    request = task_request(TASK, "run-1", 0, -1)
    changed = Request("task", "run-1", 0, -1, request.meta, {"C": np.zeros((2, 3))})
    with refused(ProtocolError, "messages-step", code="wrong-digest"):
        task_from(changed)
    with pytest.raises(ProtocolError, match="malformed"):
        task_from(Request("task", "run-1", 0, -1, {"name": "x"}))


@pytest.mark.parametrize("bad", ["", "../x", "A", "a" * 65, "a/b", None, "a..b", ".a"])
def test_a_run_id_that_could_leave_its_directory_is_refused(bad):
    with refused(ProtocolError, 1, 64, code="bad-run-id"):
        check_run_id(bad)


def test_large_foreign_and_malformed_messages_are_refused():
    good = encode_request(Request("hello", "run-1"))
    with refused(ProtocolError, 10, code="too-long"):
        read_request(good, 10)
    with refused(ProtocolError, "feddbn"):
        read_request(b"x" * 100)
    with refused(ProtocolError, code="bad-message"):
        read_reply(good)
    with refused(ProtocolError, code="bad-message"):
        read_request("text")
    base = {"type": "request", "kind": "x", "run": "r", "meta": {}}
    with refused(ProtocolError, code="bad-message"):
        read_request(encode({**base, "seq": "1", "after": 0}))
    with refused(ProtocolError, code="bad-message"):
        read_reply(encode({**base, "type": "reply", "seq": None}))


def test_a_refusal_carries_a_sentence_and_its_kind_and_hides_unexpected_errors():
    for error, kind in (
        (SiteRefused("no."), SiteRefused),
        (StateError("lost."), StateError),
        (ParameterError("p."), ProtocolError),
    ):
        with pytest.raises(kind, match="site 'a' refused: "):
            read_reply(encode_reply(refusal("a", None, error)))
    hidden = refusal("a", Request("task", "r", 3), ValueError("patient 17 has 4.2"))
    assert "4.2" not in str(hidden.meta)
    with refused(StateError, code="unexpected"):
        read_reply(encode_reply(hidden))
    odd = Reply("a", "refusal", "r", 0, {"error": "SystemExit", "sentence": "x" * 10_000})
    with pytest.raises(FederationError) as caught:
        read_reply(encode_reply(odd))
    assert type(caught.value) is ProtocolError
    assert len(str(caught.value)) < 600


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_always_noticed(position, change):
    message = bytearray(encode_request(task_request(TASK, "run-1", 4, 2)))
    message[position % len(message)] ^= change
    with pytest.raises(ProtocolError):
        read_request(bytes(message))


def written(n=3):
    journal = Journal(Header("run", "{}", "digest", "1", ("a", "b")))
    records = [journal.header_bytes()]
    for k in range(n):
        records.append(journal.add(f"d{k}", Sum(np.full(4, k / 3), ("a", "b") if k != 1 else ("b",))))
    return records


def test_a_journal_is_read_back_bit_for_bit():
    records = written()
    journal = read_journal(records)
    assert journal.header == Header("run", "{}", "digest", "1", ("a", "b"))
    assert [e.digest for e in journal.entries] == ["d0", "d1", "d2"]
    np.testing.assert_array_equal(journal.entries[2].answer.value, np.full(4, 2 / 3))
    assert [e.answer.contributors for e in journal.entries] == [("a", "b"), ("b",), ("a", "b")]
    more = journal.add("d3", Sum(np.zeros(4), ("a",)))
    assert len(read_journal([*records, more]).entries) == 4
    assert read_journal([]) is None


def test_a_damaged_journal_is_an_error():
    records = written()
    changed = bytearray(records[1])
    changed[60] ^= 1
    lonely = Journal(Header("r", "", "", "", ())).add("d", Sum(np.zeros(1), ("a",)))
    for wrong in ([records[0], bytes(changed), *records[2:]], [records[0], *records[2:]], [lonely]):
        with refused(StateError, code="damaged-journal"):
            read_journal(wrong)
