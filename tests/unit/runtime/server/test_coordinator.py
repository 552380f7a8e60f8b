"""Sums over messages: the same bits whatever is lost, who is asked again, and what is not counted."""

import itertools

import numpy as np
import pytest

from feddbn.errors import NotEnoughSites, ProtocolError, SiteRefused, StateError
from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.messages import Reply, Request, encode_reply, read_request, refusal
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Attendance
from feddbn.federation.protocol.task import Task
from feddbn.runtime.server.asking import SAME_ANSWER, Line
from feddbn.runtime.server.coordinator import MAX_BACKOFF, Coordinator, Roll
from feddbn.runtime.store import FileStore, RunJournal
from support.faults import LocalExchange, MemoryJournal
from support.saying import kept_out, refused
from support.study_programs import WalkQuestion
from support.walks import NAMES, Place, data_of, reference, run, walk

pytestmark = pytest.mark.promise


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_a_study_over_messages_gives_the_bits_of_the_in_process_run(participation):
    study = walk(participation=participation)
    found, received = run(Place().exchange, study)
    np.testing.assert_array_equal(found, reference(study))
    assert received == NAMES


@pytest.mark.parametrize("seed", range(15))
def test_faults_change_no_bit_and_no_task_is_executed_twice(seed):
    study, place = walk(rounds=12, when_missing="wait", max_wait_s=300.0), Place()
    kinds = ("drop_request", "drop_reply", "duplicate", "stale", "corrupt", "restart")
    faulty = place.faulty(seed, **dict.fromkeys(kinds, 0.2))
    np.testing.assert_array_equal(run(faulty, study)[0], reference(study))
    assert sorted(place.executed()) == sorted((name, seq) for name in NAMES for seq in range(12))
    assert set(faulty.counts) == set(kinds)


@pytest.mark.parametrize("seed", range(10))
def test_a_server_killed_at_any_sum_resumes_to_the_same_bits(seed, tmp_path):
    rng = np.random.default_rng(seed)
    study, place = walk(rounds=10), Place()

    class PowerCutError(Exception):
        pass

    class Dying(RunJournal):
        def write(self, record):
            # Killed before or after a record is on disk; there is nothing between.
            if rng.random() < 0.1:
                raise PowerCutError
            super().write(record)
            if rng.random() < 0.1:
                raise PowerCutError

    for _ in range(200):
        log = Dying(tmp_path, "run-1")
        try:
            found, _ = run(place.exchange, study, log)
            break
        except PowerCutError:
            continue
        finally:
            log.close()
    np.testing.assert_array_equal(found, reference(study))
    assert len(place.executed()) == len(set(place.executed())) == 30


def test_a_site_that_stays_away_is_left_out_and_counted_again_when_it_returns():
    study, faulty = walk(rounds=30, when_missing="continue", min_sites=2), Place().faulty()
    present, silent = {}, []

    def watch(event):
        silent.extend([event] if event.what == "silent" else [])
        if event.what == "sum":
            present[event.seq] = event.sites
            faulty.away = {"b"} if 3 <= event.seq < 12 else set()

    found, _ = run(faulty, study, tell=watch)
    missed = tuple(seq for seq, sites in present.items() if "b" not in sites)
    assert missed[0] == 4
    assert max(missed) < 29
    np.testing.assert_array_equal(found, reference(study, {"b": missed}))
    # A dead site is not asked in every round, so it does not cost a timeout in every round.
    assert len(silent) < 8


def test_a_straggler_whose_answer_came_too_late_steps_back_and_goes_on():
    study, place, log = walk(rounds=10, when_missing="continue", min_sites=1), Place(), MemoryJournal()
    found, _ = run(place.faulty(3, drop_reply=0.3), study, log)
    missed = {
        n: [k for k, e in enumerate(log.read().entries) if n not in e.answer.contributors] for n in NAMES
    }
    assert any(missed.values())
    np.testing.assert_array_equal(found, reference(study, missed))
    assert any("previous state" in e.what for _, e in place.events)


@pytest.mark.parametrize(
    "attendance", [{"when_missing": "abort"}, {"when_missing": "continue", "min_sites": 3}]
)
def test_abort_and_too_few_sites_stop_with_a_sentence_and_the_run_can_be_resumed(attendance):
    study, faulty, log = walk(rounds=6, **attendance), Place().faulty(), MemoryJournal()
    with refused(NotEnoughSites, "task 3", "2 of the 3", "missing: c", code="too-few-sites"):
        run(faulty, study, log, lambda event: faulty.away.update("c" if event.seq == 2 else ""))
    faulty.away = set()
    np.testing.assert_array_equal(run(faulty, study, log)[0], reference(study))


def test_wait_gives_up_after_its_limit():
    with refused(NotEnoughSites, "missing: a", code="too-few-sites"):
        run(Place().faulty(away="a"), walk(when_missing="wait", max_wait_s=0.05))


def test_a_refusing_site_is_left_out_while_the_others_go_on():
    def no(study):
        raise SiteRefused("no.", code="method-not-allowed")

    study, events = walk(when_missing="continue", min_sites=2), []
    place = Place(more=lambda name: {"checks": [no]} if name == "b" else {})
    found, received = run(place.exchange, study, tell=events.append)
    np.testing.assert_array_equal(found, reference(study, {"b": range(100)}))
    assert received == ("a", "c")
    assert next(e.code for e in events if e.what == "refused") == "method-not-allowed"


def test_who_refuses_a_later_question_has_the_result_all_the_same():
    study, place = walk(rounds=4, when_missing="continue", min_sites=2), Place()

    def exchange(messages):
        request = read_request(messages["b"]) if "b" in messages else None
        replies = place.exchange({name: one for name, one in messages.items() if name != "b"})
        if request is not None and request.seq == 3:
            return {
                **replies,
                "b": encode_reply(refusal("b", request, SiteRefused("no.", code="task-not-allowed"))),
            }
        return {**replies, **place.exchange({name: one for name, one in messages.items() if name == "b"})}

    _, received = run(exchange, study)
    assert received == NAMES


def test_resuming_with_another_study_or_another_program_is_refused():
    exchange, log = Place().exchange, MemoryJournal()
    run(exchange, walk(rounds=4), log)
    with refused(StateError, code="other-run"):
        Coordinator(exchange, walk(rounds=5), "run-1", log)
    coordinator = Coordinator(exchange, walk(rounds=4), "run-1", log)
    with refused(StateError, "sum 0", code="other-task"):
        coordinator.sum(Task(WalkQuestion(centre=np.ones(2), step=0.1, pause_s=0.0)))


@pytest.mark.parametrize(
    ("vector", "code"),
    [
        (np.array([np.nan, 0.0, 1.0]), "not-finite"),
        (np.zeros(7), "other-shape"),
        (np.full(3, 1e4), "too-long"),
    ],
)
def test_vectors_that_are_not_finite_of_another_shape_or_too_long_are_not_counted(vector, code):
    study = walk(rounds=1, when_missing="continue", min_sites=1)
    bounded = study.model_copy(update={"privacy": study.privacy.model_copy(update={"max_norm": 1e3})})
    events = []
    found, _ = run(Place(vectors={"c": vector}).exchange, bounded, tell=events.append)
    np.testing.assert_array_equal(found, reference(study, {"c": [0]}))
    assert next((e.site, e.code) for e in events if e.what == "refused") == ("c", code)


def test_where_no_shape_has_a_majority_no_site_is_blamed():
    study = walk(rounds=1, when_missing="continue", min_sites=1)
    with refused(ProtocolError, "(3,) (a)", "(7,) (b)", code="no-majority"):
        run(Place(vectors={"b": np.zeros(7), "c": np.zeros(5)}).exchange, study)


def test_file_stores_hold_the_run_across_restarts_and_keep_personal_results(tmp_path):
    study = walk(rounds=5)

    def make(name):
        store = FileStore(tmp_path / name, name)
        return SiteEndpoint(Site(name, data_of(name)), store, keep=store.keep)

    place = Place()
    place.exchange = LocalExchange(NAMES, make)
    log = RunJournal(tmp_path, "run-1")
    with refused(StateError, code="in-use"):
        RunJournal(tmp_path, "run-1")
    found, _ = run(place.faulty(1, restart=0.5, drop_reply=0.3), study, log)
    log.close()
    np.testing.assert_array_equal(found, reference(study))
    assert all((tmp_path / name / "run-1" / "result.feddbn").exists() for name in NAMES)


# Refusals that time may cure


class Doubting:
    """Sites that say no with a code until they were asked so often: `site` of them, to messages of these kinds."""

    def __init__(self, place, site, error, times, kinds=("hello",)):
        self.place, self.site, self.error, self.times, self.kinds = place, site, error, times, kinds
        self.asked = 0

    def __call__(self, messages):
        replies = dict(self.place.exchange(messages))
        if self.site in messages:
            request = read_request(messages[self.site])
            if request.kind in self.kinds:
                self.asked += 1
                if self.asked <= self.times:
                    replies[self.site] = encode_reply(refusal(self.site, request, self.error))
        return replies


UNDECIDED = SiteRefused("the owner has not decided yet.", code="not-approved")
FULL = StateError("nothing can be stored on this disk.", code="not-stored")


@pytest.mark.parametrize(
    ("error", "kinds"),
    [(UNDECIDED, ("hello",)), (FULL, ("task",)), (OSError(28, "No space left"), ("task",))],
)
def test_a_study_that_waits_waits_for_a_refusal_that_time_cures(error, kinds):
    study, place, events = walk(when_missing="wait", max_wait_s=60.0), Place(), []
    sites = Doubting(place, "b", error, 3 * SAME_ANSWER, kinds)
    found, received = run(sites, study, tell=events.append)
    np.testing.assert_array_equal(found, reference(study))
    assert received == NAMES
    # What is said again and again is told once.
    assert [one.site for one in events if one.what == "refused"] == ["b"]


def test_it_does_not_wait_for_a_refusal_that_is_final_nor_longer_than_it_may():
    for code in ("owner-refused", "approval-revoked", "method-not-allowed", "withheld"):
        sites = Doubting(Place(), "b", SiteRefused("no.", code=code), 10**9)
        with kept_out(code, "b"):
            run(sites, walk(when_missing="wait", max_wait_s=60.0))
        assert sites.asked == 1
    for rule in ({"when_missing": "wait", "max_wait_s": 0.05}, {"when_missing": "abort"}):
        with kept_out("not-approved", "b"):
            run(Doubting(Place(), "b", UNDECIDED, 10**9), walk(**rule))


def test_the_result_is_sent_again_to_a_site_that_was_silent_just_then():
    study, place, kept = walk(when_missing="wait", max_wait_s=60.0), Place(), []
    asked = []

    def exchange(messages):
        is_result = any(read_request(one).kind == "finish" for one in messages.values())
        asked.extend([tuple(messages)] if is_result else [])
        silent = {"b"} if is_result and len(asked) < 3 else set()
        return place.exchange({name: one for name, one in messages.items() if name not in silent})

    _, received = run(exchange, study, tell=kept.append)
    assert received == NAMES
    assert asked == [NAMES, ("b",), ("b",)]


# Asking again


def line_of(replies, events=None):
    return Line(lambda messages: replies, "run-1", (events if events is not None else []).append, 0.0)


def ok(site, run_id="run-1", seq=4):
    return encode_reply(Reply(site, "task", run_id, seq))


def no(site, error):
    return encode_reply(refusal(site, Request("task", "run-1", 4), error))


def test_only_answers_to_this_question_are_counted_and_the_others_are_told():
    events = []
    replies = {
        "a": ok("a"),
        "b": ok("a"),
        "c": ok("c", seq=3),
        "d": b"garbage",
        "e": no("e", SiteRefused("no.", code="tired")),
        "stranger": ok("stranger"),
    }
    line = line_of(replies, events)
    assert set(line.ask(dict.fromkeys("abcdef", b""), "walk", 4)) == {"a"}
    assert {e.site for e in events if e.what == "refused"} == {"b", "c", "d", "e", "stranger"}
    assert [e.site for e in events if e.what == "silent"] == ["f"]
    assert {site: error.code for site, error in line.refused.items()} == {"e": "tired"}
    assert set(line.reasons) == {"b", "c", "d", "e", "stranger"}
    replies["e"] = ok("e")
    line.ask({"e": b""}, "walk", 4)
    assert not line.refused


def test_asking_is_in_vain_after_the_same_refusal_or_nonsense_again_and_again_but_not_after_silence():
    line = line_of({})
    assert list(line.attempts(0.0)) == [0]

    def attempts(say):
        for attempt in line.attempts(60.0):
            say(attempt)
            if attempt == 3 * SAME_ANSWER:
                break
        return attempt + 1

    same = SiteRefused("no.", site="a")
    assert attempts(lambda attempt: line.note_refusal("a", same, "walk", 4)) == SAME_ANSWER
    assert attempts(lambda attempt: line.note_odd("a", "odd.", "walk", 4, "other-shape")) == SAME_ANSWER
    assert line.reasons["a"].code == "other-shape"
    changing = attempts(lambda n: line.note_refusal("a", SiteRefused(f"no: {n}.", site="a"), "walk", 4))
    assert changing == 3 * SAME_ANSWER + 1


# Who is asked, and when that is enough


def patient(min_sites=1):
    return Roll(Attendance(when_missing="continue", min_sites=min_sites))


def test_a_site_that_stays_silent_is_asked_ever_more_rarely_and_at_once_again_when_it_returns():
    roll, asked = patient(), []
    for seq in range(60):
        awake = roll.awake(NAMES, seq)
        if "c" in awake:
            asked.append(seq)
        roll.note(("a", "b"), [site for site in awake if site == "c"], seq)
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert pauses[:4] == [1, 3, 5, 9]
    assert max(pauses) == MAX_BACKOFF + 1
    roll.note(NAMES, (), asked[-1])
    assert roll.awake(NAMES, asked[-1] + 1) == list(NAMES)


def test_everybody_is_asked_when_those_awake_are_too_few_or_all_must_be_there():
    for roll in (patient(min_sites=3), Roll(Attendance(when_missing="wait"))):
        for seq in range(3):
            roll.note(("a", "b"), ("c",), seq)
        assert roll.awake(NAMES, 3) == list(NAMES)


def test_too_few_sites_are_named_with_their_own_reasons():
    roll = patient(min_sites=2)
    roll.require(("a", "b"), NAMES, "task 3", {})
    reasons = {"a": SiteRefused("present."), "c": SiteRefused("no.", code="tired")}
    with refused(NotEnoughSites, "task 3", "1 of the 2", "no.", code="too-few-sites") as error:
        roll.require(("a",), NAMES, "task 3", reasons)
    assert error.value.values == {"missing": ("b", "c"), "reasons": {"c": "tired"}}
    with refused(NotEnoughSites, "task 4", code="too-few-sites"):
        roll.require((), (), "task 4", {})


@pytest.mark.parametrize(
    ("rule", "insists", "patience_s"), [("wait", True, 7.0), ("continue", False, 0.0), ("abort", True, 0.0)]
)
def test_only_waiting_has_patience_and_only_going_on_does_without(rule, insists, patience_s):
    roll = Roll(Attendance(when_missing=rule, max_wait_s=7.0))
    assert (roll.insists, roll.patience_s) == (insists, patience_s)
