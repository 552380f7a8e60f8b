from feddbn.errors import SiteRefused, StateError
from feddbn.federation.protocol.messages import Reply, Request, encode_reply, refusal
from feddbn.runtime.deployed.asking import SAME_ANSWER, Line

ASKED = Request("task", "run-1", 4)


def line_of(replies, events=None):
    return Line(lambda messages: replies, "run-1", (events if events is not None else []).append, 0.0)


def ok(site, run_id="run-1", seq=4):
    return encode_reply(Reply(site, "task", run_id, seq))


def test_only_answers_to_this_question_are_counted_and_the_others_are_told():
    events = []
    replies = {
        "a": ok("a"),
        "b": ok("a"),
        "c": ok("c", seq=3),
        "d": b"garbage",
        "e": encode_reply(refusal("e", ASKED, SiteRefused("no.", code="tired"))),
        "stranger": ok("stranger"),
    }
    line = line_of(replies, events)
    assert set(line.ask(dict.fromkeys("abcdef", b""), "walk", 4)) == {"a"}
    assert {e.site for e in events if e.what == "refused"} == {"b", "c", "d", "e", "stranger"}
    assert [e.site for e in events if e.what == "silent"] == ["f"]
    assert {site: error.code for site, error in line.refused.items()} == {"e": "tired"}
    assert set(line.reasons) == {"b", "c", "d", "e", "stranger"}


def test_a_site_that_refused_and_answers_again_is_no_longer_refused():
    replies = {"a": encode_reply(refusal("a", ASKED, StateError("lost.")))}
    line = line_of(replies)
    line.ask({"a": b""}, "walk", 4)
    assert line.refused
    replies["a"] = ok("a")
    line.ask({"a": b""}, "walk", 4)
    assert not line.refused


def test_without_patience_there_is_one_attempt():
    assert list(line_of({}).attempts(0.0)) == [0]


def test_asking_is_in_vain_after_the_same_refusal_again_and_again_but_not_after_silence():
    line = line_of({})
    attempts = 0
    for _ in line.attempts(60.0):
        attempts += 1
        line.note_refusal("a", SiteRefused("no.", site="a"), "walk", 4)
    assert attempts == SAME_ANSWER
    attempts = 0
    for attempt in line.attempts(60.0):
        line.note_refusal("a", SiteRefused(f"no: {attempt}.", site="a"), "walk", 4)
        attempts += 1
        if attempts == 3 * SAME_ANSWER:
            break
    assert attempts == 3 * SAME_ANSWER


def test_asking_is_in_vain_after_the_same_nonsense_again_and_again():
    line = line_of({})
    attempts = 0
    for _ in line.attempts(60.0):
        attempts += 1
        line.note_odd("a", "odd.", "walk", 4, "other-shape")
    assert attempts == SAME_ANSWER
    assert line.reasons["a"].code == "other-shape"
