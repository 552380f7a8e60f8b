from dataclasses import replace

import numpy as np
import pytest

from feddbn.core.designs.recordings import Block
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.errors import NotEnoughSites, ProtocolError, SiteRefused, StateError
from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.study_methods import study_method
from feddbn.federation.protocol.task import Task
from feddbn.runtime.deployed.conduct import run_study
from feddbn.runtime.deployed.coordinator import Coordinator
from feddbn.runtime.deployed.store import FileStore, JournalFile
from feddbn.runtime.simulated.in_process import InProcessFederation
from support.faults import Fault, FaultyExchange, LocalExchange, MemoryJournal, MemoryStore
from support.saying import refused
from support.study_programs import WalkQuestion

NAMES = ("a", "b", "c")
VARIABLES = ("u", "v")


def data_of(name):
    rng = np.random.default_rng(ord(name))
    return MemorySite(VARIABLES, [ArrayRecording("r", (Block(rng.normal(size=(20, 2))),))])


class Place:
    """Sites whose stores outlive their processes, and the events they told."""

    def __init__(self, names=NAMES, **options):
        self.stores = {name: MemoryStore(name) for name in names}
        self.events = []
        self.options = options
        self.exchange = LocalExchange(names, self.make)

    def make(self, name):
        def tell(event):
            self.events.append((name, event))

        return SiteEndpoint(Site(name, data_of(name)), self.stores[name], on_event=tell, **self.options)

    def executed(self):
        return [(name, e.seq) for name, e in self.events if e.what.startswith("executed")]


def make_study(names=NAMES, rounds=8, participation=1.0, **attendance):
    return Study(
        name="s",
        method="walk",
        variables=VARIABLES,
        sites=names,
        parameters={"rounds": rounds, "participation": participation},
        attendance=attendance,
    )


def reference(study, away=None):
    """The same study in process; `away` maps a site to the rounds it misses."""
    fed = InProcessFederation({name: Site(name, data_of(name)) for name in study.sites})

    class Missing:
        sites = fed.sites
        variables = VARIABLES
        seq = -1

        def sum(self, task):
            self.seq += 1
            asked = fed.sites if task.participants is None else task.participants
            here = tuple(n for n in asked if self.seq not in (away or {}).get(n, ()))
            return fed.sum(replace(task, participants=here))

    return study_method("walk").run(study.parameters, Missing())


def run(place, study, log=None, exchange=None, events=None):
    tell = None if events is None else events.append
    coordinator = Coordinator(
        exchange or place.exchange, study, "run-1", log or MemoryJournal(), tell, pause_s=0.0, opening_s=0.0
    )
    return run_study(coordinator, study)


@pytest.mark.parametrize("participation", [1.0, 0.6])
def test_a_study_over_messages_gives_the_bits_of_the_in_process_run(participation):
    study = make_study(participation=participation)
    result, received = run(Place(), study)
    np.testing.assert_array_equal(result.arrays["centre"], reference(study).arrays["centre"])
    assert received == NAMES


@pytest.mark.parametrize("seed", range(15))
def test_faults_change_no_bit_and_no_task_is_executed_twice(seed):
    study = make_study(rounds=12, when_missing="wait", max_wait_s=30.0)
    place = Place()
    fault = Fault(drop_request=0.2, drop_reply=0.2, duplicate=0.2, stale=0.2, corrupt=0.2, restart=0.2)
    faulty = FaultyExchange(place.exchange, fault, np.random.default_rng(seed))
    result, _ = run(place, study, exchange=faulty)
    np.testing.assert_array_equal(result.arrays["centre"], reference(study).arrays["centre"])
    done = place.executed()
    assert sorted(done) == sorted((name, seq) for name in NAMES for seq in range(12))
    assert set(faulty.counts) == {"drop_request", "drop_reply", "duplicate", "stale", "corrupt", "restart"}


@pytest.mark.parametrize("seed", range(10))
def test_a_server_killed_at_any_sum_resumes_to_the_same_bits(seed, tmp_path):
    rng = np.random.default_rng(seed)
    study = make_study(rounds=10)
    place = Place()

    class PowerCutError(Exception):
        pass

    class Dying(JournalFile):
        def write(self, record):
            if rng.random() < 0.2:
                # Killed while writing: half a record reaches the disk.
                super().write(record[: rng.integers(len(record))])
                raise PowerCutError
            super().write(record)

    for _ in range(200):
        log = Dying(tmp_path / "journal")
        try:
            result, _ = run(place, study, log)
            break
        except PowerCutError:
            continue
        finally:
            log.close()
    np.testing.assert_array_equal(result.arrays["centre"], reference(study).arrays["centre"])
    assert len(place.executed()) == len(set(place.executed())) == 30


def test_a_site_that_stays_away_is_left_out_and_counted_again_when_it_returns():
    study = make_study(rounds=30, when_missing="continue", min_sites=2)
    place = Place()
    faulty = FaultyExchange(place.exchange, Fault(), np.random.default_rng(0))
    present, events = {}, []

    def watch(event):
        events.append(event)
        if event.what == "sum":
            present[event.seq] = event.sites
            faulty.away = {"b"} if 3 <= event.seq < 12 else set()

    coordinator = Coordinator(faulty, study, "run-1", MemoryJournal(), watch, pause_s=0.0, opening_s=0.0)
    result, _ = run_study(coordinator, study)
    missed = tuple(seq for seq, sites in present.items() if "b" not in sites)
    assert missed[0] == 4
    assert max(missed) < 29
    np.testing.assert_array_equal(result.arrays["centre"], reference(study, {"b": missed}).arrays["centre"])
    # A dead site is not asked in every round, so it does not cost a timeout in every round.
    assert sum(e.what == "silent" for e in events) < 8


def test_a_straggler_whose_answer_came_too_late_steps_back_and_goes_on():
    study = make_study(rounds=10, when_missing="continue", min_sites=1)
    place = Place()
    faulty = FaultyExchange(place.exchange, Fault(drop_reply=0.3), np.random.default_rng(3))
    log = MemoryJournal()
    result, _ = run(place, study, log, exchange=faulty)
    entries = log.read().entries
    missed = {n: [e.seq for e in entries if n not in e.answer.contributors] for n in NAMES}
    assert any(missed.values())
    np.testing.assert_array_equal(result.arrays["centre"], reference(study, missed).arrays["centre"])
    assert any("previous state" in e.what for _, e in place.events)


@pytest.mark.parametrize(
    "attendance", [{"when_missing": "abort"}, {"when_missing": "continue", "min_sites": 3}]
)
def test_abort_and_too_few_sites_stop_with_a_sentence_and_the_run_can_be_resumed(attendance):
    study = make_study(rounds=6, **attendance)
    place = Place()
    faulty = FaultyExchange(place.exchange, Fault(), np.random.default_rng(0))
    log = MemoryJournal()

    def watch(event):
        faulty.away.update("c" if event.seq == 2 else "")

    with refused(NotEnoughSites, "task 3", "2 of the 3", "missing: c", code="too-few-sites"):
        run_study(Coordinator(faulty, study, "run-1", log, watch, pause_s=0.0, opening_s=0.0), study)
    faulty.away = set()
    result, _ = run(place, study, log, exchange=faulty)
    np.testing.assert_array_equal(result.arrays["centre"], reference(study).arrays["centre"])


def test_wait_gives_up_after_its_limit():
    study = make_study(when_missing="wait", max_wait_s=0.05)
    place = Place()
    faulty = FaultyExchange(place.exchange, Fault(), np.random.default_rng(0), away={"a"})
    with refused(NotEnoughSites, "missing: a", code="too-few-sites"):
        run(place, study, exchange=faulty)


def test_a_refusing_site_is_left_out_while_the_others_go_on():
    def no(study):
        raise SiteRefused("no.", code="method-not-allowed")

    study = make_study(when_missing="continue", min_sites=2)
    place, events = Place(), []
    original = place.make
    refusing = SiteEndpoint(Site("b", data_of("b")), place.stores["b"], checks=[no])
    place.exchange = LocalExchange(NAMES, lambda n: refusing if n == "b" else original(n))
    result, received = run(place, study, events=events)
    np.testing.assert_array_equal(
        result.arrays["centre"], reference(study, {"b": range(100)}).arrays["centre"]
    )
    assert received == ("a", "c")
    assert next(e.code for e in events if e.what == "refused") == "method-not-allowed"


def test_resuming_with_another_study_or_another_program_is_refused():
    place, log = Place(), MemoryJournal()
    run(place, make_study(rounds=4), log)
    with refused(StateError, code="other-run"):
        Coordinator(place.exchange, make_study(rounds=5), "run-1", log)
    coordinator = Coordinator(place.exchange, make_study(rounds=4), "run-1", log)
    with refused(StateError, "sum 0", code="other-task"):
        coordinator.sum(Task(WalkQuestion(centre=np.ones(2), step=0.1, pause_s=0.0)))


def test_vectors_that_are_not_finite_or_of_another_shape_are_not_counted():
    study = make_study(rounds=1, when_missing="continue", min_sites=1)
    for bad in (np.array([np.nan, 0.0, 1.0]), np.zeros(7)):
        place, events = Place(), []

        class Wrong(Site):
            def answer(self, task, bad=bad):
                super().answer(task)
                return bad

        wrong = SiteEndpoint(Wrong("c", data_of("c")), place.stores["c"])
        original = place.make
        place.exchange = LocalExchange(NAMES, lambda n, w=wrong, o=original: w if n == "c" else o(n))
        result, _ = run(place, study, events=events)
        np.testing.assert_array_equal(result.arrays["centre"], reference(study, {"c": [0]}).arrays["centre"])
        assert any(e.what == "refused" and e.site == "c" for e in events)


def test_file_stores_hold_the_run_across_restarts_and_keep_personal_results(tmp_path):
    study = make_study(rounds=5)

    def make(name):
        store = FileStore(tmp_path / name, name)
        return SiteEndpoint(Site(name, data_of(name)), store, keep=store.keep)

    exchange = LocalExchange(NAMES, make)
    faulty = FaultyExchange(exchange, Fault(restart=0.5, drop_reply=0.3), np.random.default_rng(1))
    log = JournalFile(tmp_path / "journal")
    with refused(StateError, code="in-use"):
        JournalFile(tmp_path / "journal")
    result, _ = run(None, study, log, exchange=faulty)
    log.close()
    np.testing.assert_array_equal(result.arrays["centre"], reference(study).arrays["centre"])
    for name in NAMES:
        assert (tmp_path / name / "run-1" / "result.feddbn").exists()


def answering(wrong):
    """A place where sites answer with these vectors instead of their own."""

    class Wrong(Site):
        def answer(self, task, channel=None):
            super().answer(task)
            return wrong[self.name]

    place = Place()
    odd = {name: SiteEndpoint(Wrong(name, data_of(name)), place.stores[name]) for name in wrong}
    original = place.make
    place.exchange = LocalExchange(NAMES, lambda name: odd[name] if name in odd else original(name))
    return place


def test_where_no_shape_has_a_majority_no_site_is_blamed():
    study = make_study(rounds=1, when_missing="continue", min_sites=1)
    with refused(ProtocolError, "(3,) (a)", "(7,) (b)", code="no-majority"):
        run(answering({"b": np.zeros(7), "c": np.zeros(5)}), study)


def test_a_vector_longer_than_the_study_allows_is_not_counted():
    study = make_study(rounds=1, when_missing="continue", min_sites=1)
    bounded = study.model_copy(update={"privacy": study.privacy.model_copy(update={"max_norm": 1e3})})
    events = []
    result, _ = run(answering({"c": np.full(3, 1e4)}), bounded, events=events)
    np.testing.assert_array_equal(result.arrays["centre"], reference(study, {"c": [0]}).arrays["centre"])
    said = next(e for e in events if e.what == "refused")
    assert (said.site, said.code) == ("c", "too-long")
    assert "max_norm = 1000" in said.sentence
