"""Collections: sites that are never there together, over a simulated week, with real endpoints and masks."""

import contextlib

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.errors import NotEnoughSites, ParameterError, StateError, StillCollecting
from feddbn.federation.protocol.messages import read_request
from feddbn.federation.protocol.study import Study, check_sites, study_from_json
from feddbn.runtime.server.collecting import Collecting, VisitBook, visit_name
from feddbn.runtime.server.conduct import Progress, conduct, run_study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.store import EventLog, RunJournal, Store
from feddbn.words.studies import when
from support.consortium import NAMES, Consortium, by_rule, make_study
from support.faults import MemoryJournal
from support.outside import outside
from support.saying import kept_out, refused
from support.states import changed

VisitingSites = outside("examples/collection_week.py").VisitingSites
POLICY = "approve_by_rule = true\n"
# Each comes once a day, and never two at the same hour.
WEEK = {
    name: [(24.0 * day + 7.0 * k, 24.0 * day + 7.0 * k + 1.0) for day in range(9)]
    for k, name in enumerate(NAMES)
}


def collecting(**attendance):
    return make_study(attendance={"when_missing": "collect", "window_h": 30.0, **attendance})


def opener(sites):
    return sites.open


class Server:
    """A server whose journal and book are on disk; `run` begins or resumes it as a new process would."""

    def __init__(self, place, study, sites, hours=None, **more):
        self.place, self.study, self.said, self.visits = place, study, [], []
        more.setdefault("on_visit", lambda hour, site: self.visits.append((hour, site)))
        self.exchange = VisitingSites(opener(sites), hours or WEEK, **more)

    def run(self, here=None, stay_s=float("inf"), exchange=None):
        book, journal = VisitBook(self.place, "run-1"), RunJournal(self.place, "run-1")
        collection = Collecting(
            exchange or self.exchange,
            self.study.attendance,
            book,
            lambda event: self.said.append(event.sentence),
            here,
            stay_s,
            clock=self.exchange.clock,
            wait=self.exchange.wait,
        )
        try:
            coordinator = Coordinator(collection, self.study, "run-1", journal, opening_s=0.0)
            collection.n_recorded = coordinator.n_recorded
            arrays = run_study(coordinator, self.study)[0].arrays
            return with_sums(arrays, journal.read())
        finally:
            journal.close()


@pytest.fixture
def sites(tmp_path):
    return Consortium(tmp_path / "sites", policy=POLICY)


@pytest.fixture
def together(tmp_path):
    """All sites there at once, without a collection."""
    return run_together(tmp_path / "together", make_study())


def run_together(place, study):
    log = MemoryJournal()
    return with_sums(Consortium(place, policy=POLICY).run(study, journal=log)[0].arrays, log.read())


def with_sums(arrays, journal):
    """What a run has learned, and the sums it was learned from."""
    sums = {f"sum {k}": entry.answer.value for k, entry in enumerate(journal.entries)}
    assert all(np.any(value) for value in sums.values())
    return {**arrays, **sums}


def assert_same_bits(found, expected):
    assert set(found) == set(expected)
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.promise
def test_a_week_of_visits_gives_the_bits_of_all_together(tmp_path, sites, together):
    server = Server(tmp_path / "runs", collecting(), sites)
    assert_same_bits(server.run(), together)
    assert 72 < server.exchange.hour < 168
    # Greeting, keys, shares, receipts, answers, opening.
    assert min(sum(site == name for _, site in server.visits) for name in NAMES) >= 6
    assert len({hour for hour, _ in server.visits}) > 12
    assert any(
        all(word in said for word in ("(sum 0)", when(158400), "north, south")) for said in server.said
    )
    for name in NAMES:
        events = EventLog(sites.place / name / "state" / "run-1" / "events.jsonl").read()
        assert [e.get("seq", 0) for e in events if e["what"].startswith("executed")] == [0, 1]


def test_a_site_that_is_killed_before_its_reply_has_left_sends_the_same_bytes_again(
    tmp_path, sites, together
):
    replies = {}
    lost = []

    def opens(name):
        endpoint = opener(sites)(name)

        class Listening:
            def handle(self, message):
                reply = endpoint.handle(message)
                replies.setdefault((name, message), []).append(reply)
                return reply

        return Listening()

    def loses(hour, site):
        # Every second visit of south is in vain.
        if site == "south":
            lost.append(hour)
        return site == "south" and len(lost) % 2 == 1

    server = Server(tmp_path / "runs", collecting(window_h=60.0), sites, loses=loses)
    server.exchange._open = opens
    hours = {**WEEK, "south": [(h, h + 24.0) for h in np.arange(0.0, 600.0, 24.0)]}
    server.exchange._hours = hours
    assert_same_bits(server.run(), together)
    again = [said for said in replies.values() if len(said) > 1]
    # The greeting tells where the audit log stands, and may say more the second time.
    assert len(again) >= 5
    assert all(len(set(said)) == 1 for said in again[1:])


def test_a_server_that_is_restarted_at_every_arrival_asks_nothing_twice(tmp_path, sites, together):
    server = Server(tmp_path / "runs", collecting(), sites)
    asked = []

    def counted(messages):
        replies = server.exchange(messages)
        asked.extend(
            (site, messages[site])
            for site in replies
            if read_request(messages[site]).kind in ("hello", "secagg")
        )
        return replies

    found, n_starts = None, 0
    while found is None:
        n_starts += 1
        try:
            found = server.run(stay_s=0.0, exchange=counted)
        except StillCollecting:
            server.exchange.wait(3600.0)
    assert n_starts > 10
    assert_same_bits(found, together)
    assert len(asked) == len(set(asked))


def test_several_sums_are_resumed_with_the_keys_of_the_first(tmp_path, sites):
    study = collecting()
    study = study.model_copy(update={"parameters": {**study.parameters, "check_residuals": True}})
    expected = run_together(tmp_path / "together", make_study(parameters=study.parameters))
    hours = {name: [(float(h), h + 1.0) for h in range(k, 400, 3)] for k, name in enumerate(NAMES)}
    server = Server(tmp_path / "runs", study, sites, hours)
    found = None
    while found is None:
        try:
            found = server.run(stay_s=0.0)
        except StillCollecting:
            server.exchange.wait(3600.0)
    assert_same_bits(found, expected)
    assert any("(sum 1)" in sentence for sentence in server.said)


def test_a_window_that_closes_names_who_is_missing_and_opens_again_on_request(tmp_path, sites, together):
    late = {**WEEK, "west": [(200.0, 900.0)]}
    server = Server(tmp_path / "runs", collecting(), sites, late)
    with refused(NotEnoughSites, when(108000), "west", code="window-closed"):
        server.run()
    server.exchange.hour = 199.0
    server.exchange._hours = {name: [(200.0, 900.0)] for name in NAMES}
    assert_same_bits(server.run(), together)


def test_a_collection_can_end_with_enough_sites(tmp_path):
    names = ("a", "b", "c", "d", "e")
    rng = np.random.default_rng(1)
    rig = Consortium(tmp_path / "rig", {name: [rng.normal(size=(60, 2))] for name in names}, by_rule())
    parameters = make_study().parameters
    study = rig.study(
        parameters=parameters, attendance={"when_missing": "collect", "window_h": 30.0, "enough": 4}
    )
    check_sites(study)
    hours = {name: [(float(h), h + 1.0) for h in range(k, 900, 5)] for k, name in enumerate(names[:4])}
    server = Server(tmp_path / "runs", study, rig, hours)
    server.exchange._open = rig.open
    found = server.run()
    four = Consortium(tmp_path / "four", {name: rig.data[name] for name in names}, by_rule())
    alone = four.study(
        parameters=parameters, attendance={"when_missing": "continue", "min_sites": 4, "max_wait_s": 0}
    )

    def without_e(messages):
        return {name: four.endpoints[name].handle(m) for name, m in messages.items() if name != "e"}

    log = MemoryJournal()
    coordinator = Coordinator(without_e, alone, "run-1", log, pause_s=0.0, opening_s=0.0)
    assert_same_bits(found, with_sums(run_study(coordinator, alone)[0].arrays, log.read()))
    assert f"awaited until {when(108000)}: e." in " ".join(server.said)


def test_data_that_change_inside_a_window_end_the_site_s_part(tmp_path, sites):
    server = Server(tmp_path / "runs", collecting(), sites)
    while server.exchange.hour < 40:
        with contextlib.suppress(StillCollecting):
            server.run(stay_s=0.0)
        server.exchange.wait(3600.0)
    path = sites.place / "south" / "data" / "r000.csv"
    path.write_text(path.read_text() + "0.5,0.25\n")
    with kept_out("other-data", "south"):
        server.run()


def test_a_reply_that_did_not_reach_the_book_is_asked_for_again(tmp_path, sites, together):
    server = Server(tmp_path / "runs", collecting(window_h=300.0), sites)
    found, cuts = None, 0
    while found is None:
        try:
            found = server.run(stay_s=0.0)
        except StillCollecting:
            server.exchange.wait(3600.0)
            if server.exchange.is_here("west") and cuts < 3:
                last = "SELECT MAX(number) FROM lines WHERE log = 'visits'"
                cuts += changed(
                    tmp_path / "runs", f"DELETE FROM lines WHERE log = 'visits' AND number = ({last})"
                )
    assert cuts == 3
    assert_same_bits(found, together)


def test_a_damaged_book_is_not_gone_on_with(tmp_path, sites):
    server = Server(tmp_path / "runs", collecting(), sites)
    server.run()
    (content,) = Store(tmp_path / "runs").records("run-1", "visits")[:1]
    damaged = content[:-1] + bytes([content[-1] ^ 1])
    changed(tmp_path / "runs", "UPDATE lines SET content = ? WHERE log = 'visits' AND number = 0", damaged)
    with refused(StateError, code="damaged-visits"):
        server.run()


def test_without_its_book_a_run_cannot_go_on(tmp_path, sites):
    study = collecting()
    server = Server(tmp_path / "runs", study, sites)
    server.run()
    changed(tmp_path / "runs", "DELETE FROM lines WHERE log = 'visits'")
    server.exchange.hour = 0.0
    with refused(StateError, code="lost-visits"):
        server.run()


def test_a_run_says_who_is_awaited_and_until_when(tmp_path, sites):
    progress, logged = Progress("run-1", NAMES), []
    exchange = VisitingSites(opener(sites), {name: [(0.0, 1.0)] for name in NAMES})
    out = tmp_path / "out"
    out.mkdir()
    study = collecting(timeout_s=0.01)
    with pytest.raises(StillCollecting) as stopped:
        conduct(
            exchange, study, "run-1", tmp_path / "runs", out, progress, logged.append, here=("north", "south")
        )
    assert stopped.value.awaited == ("west",)
    assert progress.read()["present"] == ["north", "south"]
    assert progress.read()["state"] == "collecting"
    assert "north, south" in logged[-1]


@pytest.mark.parametrize(
    ("attendance", "said"),
    [
        ({"window_h": 2.0}, "window_h"),
        ({"enough": 2, "when_missing": "wait"}, "enough"),
    ],
)
def test_words_of_collections_belong_to_collections(attendance, said):
    with pytest.raises(ValueError, match=said):
        make_study(attendance=attendance)


def test_enough_must_be_enough_for_masks():
    with refused(ParameterError, "attendance.enough = 2"):
        check_sites(collecting(enough=2))


def test_studies_that_do_not_collect_have_the_text_they_had():
    assert "window_h" not in make_study().to_json()
    study = collecting(enough=3)
    assert study_from_json(study.to_json()) == study
    assert isinstance(study, Study)


def test_visits_are_named_by_who_is_asked_what():
    assert visit_name({"a": b"1", "b": b"2"}) == visit_name({"b": b"2", "a": b"1"})
    assert visit_name({"a": b"1", "b": b"2"}) != visit_name({"a": b"2", "b": b"1"})


def test_sums_in_the_clear_are_collected_too(tmp_path):
    policy = POLICY + "require_masking = false\n"
    plain = {"privacy": {"secure_aggregation": False}}
    log = MemoryJournal()
    together = (
        Consortium(tmp_path / "together", policy=policy).run(make_study(**plain), journal=log)[0].arrays
    )
    sites = Consortium(tmp_path / "sites", policy=policy)
    study = make_study(attendance={"when_missing": "collect", "window_h": 30.0}, **plain)
    server = Server(tmp_path / "runs", study, sites)
    assert_same_bits(server.run(), with_sums(together, log.read()))
    assert any("(sum 0)" in said for said in server.said)


def test_a_refusal_is_no_answer_and_the_site_is_asked_again_until_its_owner_has_approved(tmp_path):
    sites = Consortium(tmp_path / "sites")
    study = collecting(window_h=100.0)
    sites.approve(study, names=("north", "west"))
    approved = []

    def comes(hour, site):
        if hour > 60.0 and not approved:
            approved.append(site)
            sites.approve(study, names=("south",))

    server = Server(tmp_path / "runs", study, sites, on_visit=comes)
    server.run()
    assert any("'south': the study 's'" in sentence for sentence in server.said)
    assert server.exchange.hour > 120.0
