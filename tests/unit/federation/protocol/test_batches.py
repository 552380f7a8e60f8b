"""Tasks that are asked together: answered one after the other, stored once, and refused whole."""

from dataclasses import replace

import numpy as np
import pytest

from feddbn._version import __version__
from feddbn.core.designs.recordings import Block
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.errors import FeddbnError, ProtocolError, SiteRefused, StateError
from feddbn.federation.protocol.endpoint import PlainWay, SiteEndpoint
from feddbn.federation.protocol.messages import (
    FIRST,
    MOST_TASKS,
    Request,
    batch_digest,
    batch_request,
    decode_record,
    encode_record,
    encode_request,
    read_reply,
    task_request,
    tasks_from,
)
from feddbn.federation.protocol.site import Channel, Guard, Site, SiteTask, register_site_task
from feddbn.federation.protocol.task import Question, Task
from support.faults import MemoryStore
from support.saying import refused
from support.study_programs import WalkQuestion
from support.study_programs import walk_of_two as make_study

RUN = "run-1"


def data():
    return MemorySite(("u", "v"), [ArrayRecording("r", (Block(np.arange(8.0).reshape(4, 2)),))])


def hello(study):
    meta = {"study": (study or make_study()).to_json(), "version": __version__}
    return encode_request(Request("hello", RUN, meta=meta))


class Balks(Question):
    name = "balks"
    reads_rows = False


class EndsIt(Question):
    name = "ends-it"
    reads_rows = False

    def lets_go_on(self, answer):
        return False


def balks(sites, question, memo):
    raise SiteRefused("not with these data.", code="by-data")


def ones(sites, question, memo):
    return [here.state for here in sites], np.ones((len(sites), 1))


for kind, program in ((Balks, balks), (EndsIt, ones)):
    register_site_task(SiteTask(kind, program))


def walk(step):
    return Task(WalkQuestion(centre=np.zeros(2), step=step, pause_s=0.0))


FIRST_TASK, SECOND, THIRD = walk(0.1), walk(0.2), walk(0.3)


class Counting(Guard):
    """Takes down what it was told, and refuses a task by its name before data are read."""

    def __init__(self, never=""):
        self.told, self.never = [], never

    def before(self, task, state, channel):
        if task.name == self.never:
            raise SiteRefused("never.", code="never")

    def after(self, task, vector, channel):
        self.told.append((task.name, channel.masked))
        return vector

    def leaves(self):
        self.told.append("leaves")

    def refused(self, task, error, channel):
        self.told.append(error.code)

    def stays(self):
        self.told.append("stays")


def endpoint_of(store=None, guard=None, study=None, **more):
    site = Site("a", data(), () if guard is None else (guard,))
    endpoint = SiteEndpoint(site, store or MemoryStore("a"), **more)
    read_reply(endpoint.handle(hello(study)))
    return endpoint


def send(endpoint, *tasks, seq=0, after=-1):
    return read_reply(endpoint.handle(encode_request(batch_request(tasks, RUN, seq, after))))


def alone(*tasks):
    """The vectors of the same tasks, asked one by one."""
    endpoint, found = endpoint_of(), []
    for seq, task in enumerate(tasks):
        message = encode_request(task_request(task, RUN, seq, seq - 1))
        found.append(read_reply(endpoint.handle(message)).arrays["vector"])
    return found


def test_a_batch_is_answered_as_its_tasks_and_takes_as_many_numbers():
    endpoint = endpoint_of()
    reply = send(endpoint, FIRST_TASK, SECOND)
    assert reply.meta["digest"] == batch_digest([FIRST_TASK, SECOND])
    expected = alone(FIRST_TASK, SECOND, THIRD)
    for k in range(2):
        np.testing.assert_array_equal(reply.arrays[f"vector/{k}"], expected[k])
    with refused(ProtocolError, code="bad-order"):
        send(endpoint, THIRD, seq=1, after=1)
    then = read_reply(endpoint.handle(encode_request(task_request(THIRD, RUN, 2, 1))))
    np.testing.assert_array_equal(then.arrays["vector"], expected[2])


def test_a_repeat_has_the_same_bytes_also_after_a_restart_and_what_has_changed_is_refused():
    store = MemoryStore("a")
    endpoint = endpoint_of(store)
    message = encode_request(batch_request([FIRST_TASK, SECOND], RUN, 0, -1))
    first, stored = endpoint.handle(message), dict(store.files)
    restarted = SiteEndpoint(Site("a", data()), store)
    for one in (endpoint, restarted):
        assert one.handle(message) == first
        for tasks, seq, after, code in (
            ((FIRST_TASK, THIRD), 0, -1, "changed-task"),
            ((SECOND,), 1, -1, "changed-task"),
            ((FIRST_TASK,), 0, -1, "stale-task"),
            ((FIRST_TASK, SECOND, THIRD), 1, -1, "stale-task"),
            ((THIRD,), 3, 0, "lost-state"),
        ):
            with refused(FeddbnError, code=code):
                send(one, *tasks, seq=seq, after=after)
    assert store.files == stored
    # Its answer was not counted: it goes on from where it was before.
    again = send(restarted, FIRST_TASK, seq=2, after=-1)
    np.testing.assert_array_equal(again.arrays["vector/0"], alone(FIRST_TASK)[0])


def test_a_record_with_a_reply_reads_back():
    store = MemoryStore("a")
    send(endpoint_of(store), FIRST_TASK)
    record = store.load(RUN)
    assert record.reply
    assert decode_record(encode_record(record), RUN, "a").reply == record.reply
    assert decode_record(encode_record(replace(record, reply=b"")), RUN, "a").reply == b""


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda r: replace(r, meta={**r.meta, "digest": "0" * 64}), "wrong-digest"),
        (lambda r: replace(r, meta={**r.meta, "tasks": r.meta["tasks"][::-1]}), "wrong-digest"),
        (lambda r: replace(r, meta={**r.meta, "tasks": []}), "bad-message"),
        (lambda r: replace(r, meta={**r.meta, "tasks": r.meta["tasks"] * MOST_TASKS}), "bad-message"),
        (lambda r: replace(r, meta={**r.meta, "tasks": ["walk", "walk"]}), "bad-task"),
        (lambda r: replace(r, meta={**r.meta, "tasks": {"0": {}}}), "bad-message"),
        (lambda r: replace(r, arrays={**r.arrays, "2/centre": np.zeros(2)}), "bad-message"),
        (lambda r: replace(r, arrays={**r.arrays, "centre": np.zeros(2)}), "bad-message"),
        (lambda r: replace(r, arrays={**r.arrays, "-1/centre": np.zeros(2)}), "bad-message"),
        (lambda r: replace(r, arrays={**r.arrays, "1/centre": np.ones(2)}), "wrong-digest"),
    ],
)
def test_what_does_not_fit_its_digests_is_refused_and_changes_nothing(change, code):
    store = MemoryStore("a")
    endpoint, stored = endpoint_of(store), dict(store.files)
    request = change(batch_request([FIRST_TASK, SECOND], RUN, 0, -1))
    with refused(ProtocolError, code=code):
        read_reply(endpoint.handle(encode_request(request)))
    assert store.files == stored
    tasks = tasks_from(batch_request([FIRST_TASK, SECOND], RUN, 0, -1))
    assert batch_digest(tasks) == batch_digest([FIRST_TASK, SECOND])


def test_one_that_may_not_be_asked_has_the_batch_refused_before_anything_is_answered():
    store, guard = MemoryStore("a"), Counting(never="balks")
    endpoint = endpoint_of(store, guard)
    stored = dict(store.files)
    with refused(SiteRefused, code="withheld"):
        send(endpoint, FIRST_TASK, Task(Balks()), SECOND)
    assert guard.told == ["never", "stays"]
    assert store.files == stored
    np.testing.assert_array_equal(send(endpoint, FIRST_TASK).arrays["vector/0"], alone(FIRST_TASK)[0])


def test_one_that_cannot_be_answered_ends_the_batch_and_its_owner_is_told():
    guard, events = Counting(), []
    endpoint = endpoint_of(guard=guard, on_event=events.append)
    reply = send(endpoint, FIRST_TASK, Task(Balks()), SECOND)
    assert list(reply.arrays) == ["vector/0"]
    assert guard.told == [("walk", False), "by-data", "leaves"]
    assert [(one.what, one.task, one.code) for one in events[1:]] == [
        ("refused", "balks", "by-data"),
        ("executed", "walk", ""),
    ]
    # The first of them is refused like any other question.
    with refused(SiteRefused, code="withheld"):
        send(endpoint, Task(Balks()), FIRST_TASK, seq=3, after=2)
    assert guard.told[-2:] == ["by-data", "stays"]
    then = send(endpoint, SECOND, seq=3, after=2)
    np.testing.assert_array_equal(then.arrays["vector/0"], alone(FIRST_TASK, SECOND)[1])


def test_after_an_answer_by_which_a_guess_is_wrong_nothing_is_answered():
    reply = send(endpoint_of(), FIRST_TASK, Task(EndsIt()), SECOND)
    assert list(reply.arrays) == ["vector/0", "vector/1"]


def greeting(first, study=None):
    meta = {"study": (study or make_study()).to_json(), "version": __version__}
    arrays = {FIRST: np.frombuffer(encode_request(first), dtype=np.uint8)}
    return encode_request(Request("hello", RUN, meta=meta, arrays=arrays))


def test_a_greeting_may_bring_the_first_questions_which_are_answered_once_it_is_agreed_to():
    store = MemoryStore("a")
    endpoint, first = SiteEndpoint(Site("a", data()), store), batch_request([FIRST_TASK, SECOND], RUN, 0, -1)
    replies = [read_reply(endpoint.handle(greeting(first))) for _ in range(2)]
    answers = [read_reply(reply.arrays[FIRST].tobytes()) for reply in replies]
    assert len(answers[0].arrays) == 2
    assert answers[0].arrays.keys() == answers[1].arrays.keys()
    assert read_reply(endpoint.handle(encode_request(first))).meta == answers[0].meta
    # What is refused of them does not undo the greeting.
    other = read_reply(endpoint.handle(greeting(batch_request([THIRD], RUN, 1, -1))))
    with refused(ProtocolError, code="changed-task"):
        read_reply(other.arrays[FIRST].tobytes())


@pytest.mark.parametrize(
    "first",
    [
        task_request(FIRST_TASK, RUN, 0, -1),
        batch_request([FIRST_TASK], "another", 0, -1),
        Request("hello", RUN),
    ],
)
def test_a_greeting_brings_nothing_else_and_one_that_is_refused_has_nothing_answered(first):
    store = MemoryStore("a")
    endpoint = SiteEndpoint(Site("a", data()), store)
    with refused(ProtocolError, code="bad-message"):
        read_reply(endpoint.handle(greeting(first)))
    with refused(SiteRefused, code="not-a-site"):
        message = greeting(batch_request([FIRST_TASK], RUN, 0, -1), make_study(sites=("b", "c")))
        read_reply(endpoint.handle(message))
    assert store.files == {}


class Parts(PlainWay):
    """Answers leave as something that is drawn anew each time."""

    channel = Channel(masked=True, n_guaranteed=3)

    def __init__(self):
        self.n = 0

    def __call__(self, request: Request, tasks, vectors):
        self.n += 1
        return {"parts": self.n}, {}


KEPT = {"keepers": ["k", "l"]}


def test_with_keepers_answers_leave_in_parts_only_and_a_repeat_has_the_same():
    way, guard = Parts(), Counting()
    study = make_study(sites=("a", "b", "c"), privacy=KEPT)
    endpoint = endpoint_of(guard=guard, study=study, parts=lambda run_id, study, site: way)
    first = send(endpoint, FIRST_TASK, SECOND)
    assert (first.meta, first.arrays) == ({"parts": 1}, {})
    assert send(endpoint, FIRST_TASK, SECOND) == first
    assert guard.told == [("walk", True), ("walk", True), "leaves"]
    with refused(SiteRefused, code="masking-required"):
        read_reply(endpoint.handle(encode_request(task_request(THIRD, RUN, 2, 1))))


def test_a_site_without_keepers_takes_no_part_and_masks_or_booked_noise_go_one_by_one():
    with refused(SiteRefused, code="no-keepers"):
        endpoint_of(study=make_study(sites=("a", "b", "c"), privacy=KEPT))

    def masked(run_id, study, site):
        return bytes

    masked.forget = lambda run_id: None
    for privacy, code in (
        ({"secure_aggregation": True}, "masking-required"),
        ({"epsilon": 1.0}, "one-by-one"),
    ):
        endpoint = endpoint_of(study=make_study(sites=("a", "b", "c"), privacy=privacy), masked=masked)
        with refused(SiteRefused, code=code):
            send(endpoint, FIRST_TASK)


def test_a_full_disk_is_no_refusal_and_leaves_the_batch_to_be_asked_again():
    store, guard = MemoryStore("a"), Counting()
    endpoint = endpoint_of(store, guard)

    def full():
        raise OSError(28, "No space left on device")

    guard.leaves, kept = full, guard.leaves
    with refused(StateError, code="not-stored"):
        send(endpoint, FIRST_TASK, SECOND)
    assert guard.told[-1] == "stays"
    guard.leaves = kept
    assert len(send(endpoint, FIRST_TASK, SECOND).arrays) == 2
    with pytest.raises(StateError):
        send(endpoint, THIRD, seq=9, after=5)
