from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddbn._version import __version__
from feddbn.core.designs.recordings import Block
from feddbn.data import Recording
from feddbn.data import Site as DataSite
from feddbn.errors import AggregationError, ProtocolError, SiteRefused, StateError
from feddbn.federation.protocol.encoding import encode
from feddbn.federation.protocol.endpoint import SiteEndpoint, Step, decide
from feddbn.federation.protocol.messages import (
    WITHHELD,
    Request,
    SiteRecord,
    Snapshot,
    decode_record,
    encode_record,
    encode_request,
    read_reply,
    task_request,
)
from feddbn.federation.protocol.site import Site, SiteTask, register_site_task
from feddbn.federation.protocol.task import Question, Task
from support.faults import MemoryStore
from support.saying import refused
from support.study_programs import WalkQuestion
from support.study_programs import walk_of_two as make_study

QUESTION = WalkQuestion(centre=np.zeros(2), step=0.1, pause_s=0.0)
WALK = Task(QUESTION)


class Unknown(Question):
    name = "unknown"


class Broken(Question):
    name = "broken"


class Untouchable(DataSite):
    """Data that may not be read."""

    def recordings(self):
        raise AssertionError("data were read before the study was agreed on")


def data(kind=DataSite):
    return kind(("u", "v"), [Recording("r", (Block(np.arange(8.0).reshape(4, 2)),))])


def make(kind=DataSite, **options):
    return SiteEndpoint(Site("a", data(kind)), options.pop("store", MemoryStore("a")), **options)


def hello(study=None, run_id="run-1", version=__version__):
    return encode_request(
        Request("hello", run_id, meta={"study": (study or make_study()).to_json(), "version": version})
    )


def send(endpoint, task=WALK, seq=0, after=-1, run_id="run-1"):
    return read_reply(endpoint.handle(encode_request(task_request(task, run_id, seq, after))))


@pytest.mark.parametrize(
    ("study", "version", "code"),
    [
        (make_study(), "9.9", "other-version"),
        (make_study(variables=("u", "w")), __version__, "lacks-variables"),
        (make_study(sites=("b",)), __version__, "not-a-site"),
        (make_study(parameters={"n_lags": -1}), __version__, "bad-lags"),
        (make_study(privacy={"secure_aggregation": True}), __version__, "no-masking"),
    ],
)
def test_a_mismatch_is_refused_before_any_data_are_read(study, version, code):
    endpoint = make(Untouchable)
    with refused(SiteRefused, code=code):
        read_reply(endpoint.handle(hello(study, version=version)))
    with refused(StateError, "run-1", code="unknown-run"):
        send(endpoint)


def test_a_policy_that_changed_while_the_site_was_down_is_asked_again():
    store = MemoryStore("a")
    read_reply(make(store=store).handle(hello()))

    def no(study):
        raise SiteRefused("not any more.", code="changed")

    with refused(SiteRefused, code="changed"):
        send(make(store=store, checks=[no]))


def test_a_run_id_cannot_be_reused_for_another_study_or_version():
    store = MemoryStore("a")
    endpoint = make(store=store)
    read_reply(endpoint.handle(hello()))
    read_reply(endpoint.handle(hello()))
    with refused(SiteRefused, "run-1", code="other-study"):
        read_reply(endpoint.handle(hello(make_study(parameters={"n_lags": 2}))))
    with refused(SiteRefused, "9.9", code="other-version"):
        read_reply(endpoint.handle(hello(version="9.9")))
    # Both ends were brought up to date while the run was under way.
    store.save(replace(store.load("run-1"), version="0.1"))
    with refused(SiteRefused, "0.1", code="other-version"):
        read_reply(make(store=store).handle(hello()))


def test_only_the_server_is_answered():
    endpoint = make()
    with refused(SiteRefused, "site-b", code="not-the-server"):
        read_reply(endpoint.handle(hello(), caller="site-b"))


def test_a_repeat_sends_the_same_bits_and_a_refusal_changes_nothing():
    store = MemoryStore("a")
    endpoint = make(store=store)
    endpoint.handle(hello())
    first = send(endpoint)
    before = dict(store.files)
    np.testing.assert_array_equal(send(endpoint).arrays["vector"], first.arrays["vector"])
    for task, seq, after in ((WALK, 5, 3), (Task(Unknown()), 1, 0), (Task(QUESTION, ("b",)), 1, 0)):
        with pytest.raises((ProtocolError, StateError)):
            send(endpoint, task, seq, after)
    wrong = task_request(WALK, "run-1", 1, 0)
    wrong = replace(wrong, arrays={"centre": np.full(2, np.nan)})
    with refused(ProtocolError, "walk", "centre", code="bad-question"):
        read_reply(endpoint.handle(encode_request(wrong)))
    assert store.files == before
    send(endpoint, WALK, 1, 0)
    assert store.files != before


def test_an_answer_is_opened_for_one_set_of_sites_also_after_a_restart():
    """Whatever the masks themselves remember: here they are opened for whom the server says."""
    store = MemoryStore("a")
    study = make_study(privacy={"secure_aggregation": True})

    def masked(run_id, study, site):
        def handle(message):
            site.answer(WALK) if message == b"answer" else site.opening(frozenset(message.decode()))
            return encode({})

        return handle

    masked.forget = lambda run_id: None

    def ask(endpoint, *messages):
        for one in messages:
            message = {"message": np.frombuffer(one, dtype=np.uint8)}
            request = Request("secagg", "run-1", seq=0, after=-1, arrays=message)
            read_reply(endpoint.handle(encode_request(request)))

    endpoint, restarted = (make(store=store, masked=masked) for _ in range(2))
    read_reply(endpoint.handle(hello(study)))
    ask(endpoint, b"answer", b"ab", b"ab")
    read_reply(restarted.handle(hello(study)))
    ask(restarted, b"answer", b"ab")
    for one in (endpoint, restarted):
        with refused(AggregationError, code="other-sites"):
            ask(one, b"abc")


@pytest.mark.usefixtures("registries")
def test_an_unexpected_error_is_told_to_the_site_not_to_the_server():
    def broken(here, question):
        raise ValueError("patient 17 has 4.2")

    register_site_task(SiteTask(Broken, broken))
    events = []
    endpoint = make(on_event=events.append)
    endpoint.handle(hello())
    with pytest.raises(SiteRefused) as caught:
        send(endpoint, Task(Broken()))
    assert str(caught.value) == f"site 'a' refused: {WITHHELD}"
    assert (events[-1].what, events[-1].task) == ("refused", "broken")
    assert (events[-1].code, "ValueError" in events[-1].sentence) == ("unexpected", True)
    assert "4.2" in str(events[-1].error)


def test_garbage_large_and_unknown_messages_are_refused_with_a_sentence():
    endpoint = make()
    with refused(ProtocolError, 67108864, code="too-long"):
        read_reply(endpoint.handle(bytes(100 * 2**20)))
    with refused(ProtocolError, "feddbn"):
        read_reply(endpoint.handle(b"garbage" * 1000))
    endpoint.handle(hello())
    with refused(ProtocolError, "dance", code="unknown-message"):
        read_reply(endpoint.handle(encode_request(Request("dance", "run-1"))))


def test_a_store_that_fails_leaves_the_task_undone_and_the_next_attempt_works():
    class Full(MemoryStore):
        full = False

        def save(self, record):
            if self.full:
                raise StateError("the disk is full.", code="full")
            super().save(record)

    store = Full("a")
    endpoint = make(store=store)
    endpoint.handle(hello())
    store.full = True
    with refused(StateError, code="full"):
        send(endpoint)
    store.full = False
    assert send(endpoint).arrays["vector"].shape == (3,)
    assert store.load("run-1").current.state["count"][0] == 1


def test_finish_keeps_the_personal_result_at_the_site_from_the_counted_state():
    kept = []
    endpoint = make(keep=lambda *args: kept.append(args))
    endpoint.handle(hello())
    send(endpoint, WALK, 0, -1)
    send(endpoint, WALK, 1, 0)
    for after, count in ((1, 2), (0, 1)):
        request = Request("finish", "run-1", -1, after, {"summary": {"k": 1}}, {"centre": np.ones(2)})
        reply = read_reply(endpoint.handle(encode_request(request)))
        assert reply.meta["personal"] == ["count", "dual"]
        assert not reply.arrays
        run_id, result, personal = kept[-1]
        assert (run_id, result.summary["k"], personal["count"][0]) == ("run-1", 1, count)


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
