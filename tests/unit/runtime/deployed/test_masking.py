from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.core.designs.recordings import Block
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.errors import FileError, NotEnoughSites, ProtocolError, SiteRefused
from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.messages import Request, encode_request, read_reply, task_request
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.study_methods import study_method
from feddbn.federation.protocol.task import Task
from feddbn.privacy.keys import Identity, pinned_keys
from feddbn.runtime.deployed.conduct import run_study
from feddbn.runtime.deployed.coordinator import Coordinator
from feddbn.runtime.deployed.kit_files import read_identity, read_peers, write_site_files
from feddbn.runtime.deployed.masking import site_masking
from feddbn.runtime.simulated.in_process import InProcessFederation
from support.faults import Fault, FaultyExchange, LocalExchange, MemoryJournal, MemoryStore
from support.saying import kept_out, refused
from support.study_programs import WalkQuestion

NAMES = ("a", "b", "c", "d")
VARIABLES = ("u", "v")
IDENTITIES = {name: Identity.from_seed(bytes([k + 1]) * 32) for k, name in enumerate(NAMES)}


def data_of(name):
    rows = np.random.default_rng(ord(name)).normal(size=(20, 2))
    return MemorySite(VARIABLES, [ArrayRecording("r", (Block(rows),))])


class Place:
    def __init__(self, registers, identities=IDENTITIES):
        self.registers = registers
        self.stores = {name: MemoryStore(name) for name in NAMES}
        self.events = []
        self.identities = identities
        self.exchange = LocalExchange(NAMES, self.make)

    def make(self, name):
        masked = site_masking(name, self.identities[name], pinned_keys(IDENTITIES), 3, self.registers / name)

        def tell(event):
            self.events.append((name, event))

        return SiteEndpoint(Site(name, data_of(name)), self.stores[name], masked=masked, on_event=tell)

    def executed(self):
        return [(name, e.seq) for name, e in self.events if e.what.startswith("executed")]


def make_study(rounds=6, participation=1.0, **attendance):
    return Study(
        name="s",
        method="walk",
        variables=VARIABLES,
        sites=NAMES,
        parameters={"rounds": rounds, "participation": participation},
        privacy={"secure_aggregation": True, "min_sites": 3},
        attendance=attendance,
    )


def reference(study, missed=None):
    inner = InProcessFederation({name: Site(name, data_of(name)) for name in NAMES})

    class Thinned:
        sites, variables, seq = inner.sites, VARIABLES, -1

        def sum(self, task):
            self.seq += 1
            asked = NAMES if task.participants is None else task.participants
            here = tuple(n for n in asked if self.seq not in (missed or {}).get(n, ()))
            return inner.sum(replace(task, participants=here))

    return study_method("walk").run(study.parameters, Thinned()).arrays["centre"]


def run(place, study, log=None, exchange=None, events=None):
    tell = None if events is None else events.append
    coordinator = Coordinator(
        exchange or place.exchange, study, "run-1", log or MemoryJournal(), tell, pause_s=0.0, opening_s=0.0
    )
    return run_study(coordinator, study)[0].arrays["centre"]


def test_a_masked_study_gives_the_plain_result_and_no_vector_leaves_in_the_clear(tmp_path):
    study = make_study()
    place = Place(tmp_path)
    np.testing.assert_allclose(run(place, study), reference(study), rtol=0, atol=1e-9)
    task = Task(WalkQuestion(centre=np.zeros(2), step=0.1, pause_s=0.0))
    message = encode_request(task_request(task, "run-1", 99, 5))
    with refused(SiteRefused, code="masking-required"):
        read_reply(place.exchange.endpoints["a"].handle(message))


def test_a_masked_study_that_asks_some_of_the_sites_is_refused(tmp_path):
    with refused(ProtocolError, code="some-sites-only"):
        run(Place(tmp_path), make_study(participation=0.75))


def test_a_site_that_is_missing_from_the_start_is_left_out_of_every_sum(tmp_path):
    study = make_study(rounds=5, when_missing="continue", min_sites=3, max_wait_s=5.0)
    place = Place(tmp_path)
    faulty = FaultyExchange(place.exchange, Fault(), np.random.default_rng(0))
    faulty.away = {"c"}
    present = []

    def watch(event):
        if event.what == "sum":
            present.append(event.sites)
            # It comes back, and would be a fourth: too late.
            faulty.away = set()

    coordinator = Coordinator(faulty, study, "run-1", MemoryJournal(), watch, pause_s=0.0, opening_s=0.0)
    found = run_study(coordinator, study)[0].arrays["centre"]
    assert set(present) == {("a", "b", "d")}
    np.testing.assert_allclose(found, reference(study, {"c": range(5)}), rtol=0, atol=1e-9)


def test_a_site_lost_in_the_middle_ends_the_run_which_resumes_when_it_is_back(tmp_path):
    study = make_study(rounds=6, when_missing="continue", min_sites=3, max_wait_s=0.1)
    place, log = Place(tmp_path), MemoryJournal()
    faulty = FaultyExchange(place.exchange, Fault(), np.random.default_rng(0))
    sums = []

    def watch(event):
        if event.what == "sum":
            sums.append(event.sites)
        faulty.away = {"c"} if event.seq >= 2 else set()

    with refused(NotEnoughSites, "lacks c", code="lost-later"):
        run_study(Coordinator(faulty, study, "run-1", log, watch, pause_s=0.0, opening_s=0.0), study)
    assert set(sums) == {NAMES}
    faulty.away = set()
    np.testing.assert_allclose(run(place, study, log, faulty), reference(study), rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_a_study_that_waits_for_everybody_opens_only_whole_sums_under_faults(seed, tmp_path):
    study = make_study(rounds=6, when_missing="wait", max_wait_s=60.0)
    place = Place(tmp_path)
    fault = Fault(drop_request=0.03, drop_reply=0.03, duplicate=0.05)
    faulty = FaultyExchange(place.exchange, fault, np.random.default_rng(seed))
    events = []
    np.testing.assert_allclose(
        run(place, study, exchange=faulty, events=events), reference(study), rtol=0, atol=1e-9
    )
    assert all(event.sites == NAMES for event in events if event.what == "sum")
    assert len(place.executed()) == len(set(place.executed())) == 24
    assert faulty.counts


def test_too_few_sites_fail_closed_with_a_sentence_and_the_run_resumes(tmp_path):
    study = make_study(rounds=6, when_missing="continue", min_sites=2, max_wait_s=0.1)
    place, log = Place(tmp_path), MemoryJournal()
    faulty = FaultyExchange(place.exchange, Fault(), np.random.default_rng(0))

    def watch(event):
        faulty.away = {"c", "d"} if event.seq >= 2 else set()

    with pytest.raises(NotEnoughSites, match=r"task 3 \('walk'\): "):
        run_study(Coordinator(faulty, study, "run-1", log, watch, pause_s=0.0, opening_s=0.0), study)
    faulty.away = set()
    np.testing.assert_allclose(run(place, study, log, faulty), reference(study), rtol=0, atol=1e-9)


def test_a_site_that_restarts_joins_again_with_new_keys(tmp_path):
    study = make_study(rounds=8, when_missing="wait", max_wait_s=10.0)
    place = Place(tmp_path)

    def watch(event):
        if event.what == "sum" and event.seq in (1, 4):
            place.exchange.restart("b")

    coordinator = Coordinator(
        place.exchange, study, "run-1", MemoryJournal(), watch, pause_s=0.0, opening_s=0.0
    )
    found = run_study(coordinator, study)[0].arrays["centre"]
    np.testing.assert_allclose(found, reference(study), rtol=0, atol=1e-9)
    assert len(place.executed()) == len(set(place.executed())) == 32


def test_a_site_with_another_identity_is_not_let_in(tmp_path):
    strangers = {**IDENTITIES, "d": Identity.from_seed(b"x" * 32)}
    study = make_study(when_missing="continue", min_sites=3, max_wait_s=0.0)
    with pytest.raises((NotEnoughSites, SiteRefused, ProtocolError)):
        run(
            Place(tmp_path, strangers),
            study.model_copy(update={"privacy": study.privacy.model_copy(update={"min_sites": 4})}),
        )


def test_a_later_run_without_one_site_is_refused_even_after_a_restart(tmp_path):
    place = Place(tmp_path)
    run(place, make_study(rounds=1))
    assert place.stores["a"].load("run-1").opened == NAMES
    for name in NAMES:
        place.exchange.restart(name)
    some = make_study(rounds=1, when_missing="abort").model_copy(update={"sites": NAMES[:3]})
    coordinator = Coordinator(place.exchange, some, "run-2", MemoryJournal(), pause_s=0.0, opening_s=0.0)
    with kept_out("shows-few-sites"):
        run_study(coordinator, some)
    # The same sites with the same data may ask again.
    again = make_study(rounds=2)
    coordinator = Coordinator(place.exchange, again, "run-3", MemoryJournal(), pause_s=0.0, opening_s=0.0)
    np.testing.assert_allclose(
        run_study(coordinator, again)[0].arrays["centre"], reference(again), rtol=0, atol=1e-9
    )


def test_a_plain_study_has_no_masked_messages(tmp_path):
    place = Place(tmp_path)
    plain = make_study().model_copy(
        update={"privacy": make_study().privacy.model_copy(update={"secure_aggregation": False})}
    )
    run(place, plain)
    message = encode_request(Request("secagg", "run-1", 0, -1))
    with refused(ProtocolError, code="not-masked"):
        read_reply(place.exchange.endpoints["a"].handle(message))


def test_identities_are_written_for_their_owner_and_read_back(tmp_path):
    places = {name: tmp_path / name for name in NAMES}
    for place in places.values():
        place.mkdir()
    write_site_files(places)
    peers = read_peers(places["b"] / "peers.toml")
    assert peers == {name: read_identity(place / "identity.key").public for name, place in places.items()}
    assert (places["a"] / "identity.key").stat().st_mode & 0o077 == 0
    (places["a"] / "identity.key").write_bytes(b"short")
    with refused(FileError, "32", "5"):
        read_identity(places["a"] / "identity.key")
    with refused(FileError):
        read_identity(tmp_path / "nothing")
    (places["a"] / "peers.toml").write_text('a = "xyz"\n')
    with refused(FileError, "'a'"):
        read_peers(places["a"] / "peers.toml")
    with refused(FileError):
        read_peers(tmp_path / "nothing")
