import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddbn.errors import ProtocolError, StateError
from feddbn.federation.protocol.endpoint import Step, decide
from feddbn.federation.protocol.messages import SiteRecord, Snapshot, decode_record, encode_record
from support.faults import MemoryStore
from support.saying import refused


def record(previous=3, current=5, digest="d5"):
    return SiteRecord("run", "a", "{}", "1", Snapshot(previous), Snapshot(current), digest, np.zeros(1))


def test_the_same_task_again_is_answered_from_the_record():
    assert decide(record(), 5, 3, "d5") is Step.REPEAT


def test_the_next_task_after_a_counted_answer_is_executed():
    assert decide(record(), 6, 5, "d6") is Step.EXECUTE
    assert decide(record(), 9, 5, "d9") is Step.EXECUTE


def test_the_next_task_after_an_uncounted_answer_starts_from_the_previous_state():
    assert decide(record(), 6, 3, "d6") is Step.STEP_BACK


@pytest.mark.parametrize(
    ("seq", "after", "digest", "error", "code"),
    [
        (5, 3, "other", ProtocolError, "changed-task"),
        (4, 3, "d4", ProtocolError, "stale-task"),
        (8, 7, "d8", StateError, "lost-state"),
        (6, 6, "d6", ProtocolError, "bad-order"),
        (-2, -1, "", ProtocolError, "bad-order"),
        (6, -1, "d6", StateError, "lost-state"),
    ],
)
def test_anything_else_is_refused(seq, after, digest, error, code):
    with refused(error, code=code):
        decide(record(), seq, after, digest)


def test_a_new_site_starts_from_nothing_even_late_in_a_run():
    assert decide(record(-1, -1, ""), 12, -1, "d12") is Step.EXECUTE
    with refused(StateError, code="lost-state"):
        decide(record(-1, -1, ""), 12, 11, "d12")


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(-1, 12)), max_size=40))
def test_whatever_arrives_no_number_is_executed_twice(messages):
    now = SiteRecord("run", "a", "{}", "1")
    executed = []
    for seq, after in messages:
        digest = f"d{seq}"
        try:
            step = decide(now, seq, after, digest)
        except (ProtocolError, StateError):
            continue
        if step is Step.REPEAT:
            assert digest == now.digest
            continue
        base = now.current if step is Step.EXECUTE else now.previous
        assert base.seq == after
        executed.append(seq)
        now = SiteRecord("run", "a", "{}", "1", base, Snapshot(seq), digest)
    assert len(executed) == len(set(executed))
    assert executed == sorted(executed)


def test_records_survive_encoding_and_refuse_damage_and_strangers():
    full = SiteRecord(
        "run",
        "a",
        "{}",
        "1",
        Snapshot(1, {"U": np.arange(3.0)}),
        Snapshot(2, {"U": np.ones(3)}),
        "d",
        np.array([1.5]),
    )
    stored = encode_record(full)
    again = decode_record(stored, "run", "a")
    np.testing.assert_array_equal(again.previous.state["U"], np.arange(3.0))
    np.testing.assert_array_equal(again.current.state["U"], np.ones(3))
    assert (again.previous.seq, again.current.seq, again.digest, again.vector[0]) == (1, 2, "d", 1.5)
    with pytest.raises(ValueError, match="read-only"):
        again.current.state["U"][0] = 7
    damaged = bytearray(stored)
    damaged[-1] ^= 1
    with refused(StateError, "run", "a", code="damaged-state"):
        decode_record(bytes(damaged), "run", "a")
    with refused(StateError, code="foreign-state"):
        decode_record(stored, "run", "b")
    store = MemoryStore("a")
    assert store.load("run") is None
    store.save(full)
    assert store.load("run").version == "1"
