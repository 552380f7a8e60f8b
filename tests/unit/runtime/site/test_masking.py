"""Masked studies over messages: the plain result, whole sums only, and what is refused."""

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.errors import FileError, NotEnoughSites, ProtocolError, SiteRefused
from feddbn.federation.protocol.messages import Request, encode_request, read_reply, task_request
from feddbn.federation.protocol.task import Task
from feddbn.privacy.keys import Identity, pinned_keys
from feddbn.runtime.site.kit_files import read_identity, read_peers, write_site_files
from feddbn.runtime.site.masking import SiteMasking
from feddbn.runtime.store import Store
from support import walks
from support.entropy import Entropy, seeded
from support.faults import MemoryJournal
from support.saying import kept_out, refused
from support.study_programs import WalkQuestion
from support.walks import Place, reference

NAMES = ("a", "b", "c", "d")
IDENTITIES = {name: Identity.from_seed(bytes([k + 1]) * 32) for k, name in enumerate(NAMES)}
PATIENT = {"when_missing": "continue", "min_sites": 3}


def masked_place(registers, identities=IDENTITIES, keep=False):
    pinned, entropy = pinned_keys(IDENTITIES), Entropy()

    def more(name):
        place, source = registers / name, entropy(name)
        return {"masked": SiteMasking(name, identities[name], pinned, 3, place, keep=keep, entropy=source)}

    return Place(NAMES, more=more)


class Anew:
    """Every message meets a new endpoint; `kept` tells of which sites there were masks on disk after each."""

    def __init__(self, place, registers):
        self.place, self.registers, self.kept = place, registers, []

    def __call__(self, messages):
        for name in messages:
            self.place.exchange.restart(name)
        replies = self.place.exchange(messages)
        self.kept.append(self.kept_by())
        return replies

    def kept_by(self):
        return "".join(name for name in NAMES if Store(self.registers / name).get("run-1", "masks"))


@pytest.fixture
def place(tmp_path):
    return masked_place(tmp_path)


def walk(rounds=6, names=NAMES, participation=1.0, privacy=None, **attendance):
    return walks.walk(
        names,
        rounds,
        participation,
        {"secure_aggregation": True, "min_sites": 3, **(privacy or {})},
        **attendance,
    )


def run(exchange, study, *more, **named):
    return walks.run(exchange, study, *more, **named)[0]


def same(found, study, away=None):
    np.testing.assert_allclose(found, reference(study, away), rtol=0, atol=1e-9)


def test_a_masked_study_gives_the_plain_result_and_no_vector_leaves_in_the_clear(place):
    study = walk()
    same(run(place.exchange, study), study)
    task = Task(WalkQuestion(centre=np.zeros(2), step=0.1, pause_s=0.0))
    with refused(SiteRefused, code="masking-required"):
        read_reply(place.exchange.endpoints["a"].handle(encode_request(task_request(task, "run-1", 99, 5))))


def test_a_masked_study_that_asks_some_of_the_sites_is_refused(place):
    with refused(ProtocolError, code="some-sites-only"):
        run(place.exchange, walk(participation=0.75))


def test_a_site_that_is_missing_from_the_start_is_left_out_of_every_sum(place):
    study, faulty, present = walk(rounds=5, max_wait_s=5.0, **PATIENT), place.faulty(away="c"), []

    def watch(event):
        if event.what == "sum":
            present.append(event.sites)
            # It comes back, and would be a fourth: too late.
            faulty.away = set()

    same(run(faulty, study, tell=watch), study, {"c": range(5)})
    assert set(present) == {("a", "b", "d")}


@pytest.mark.parametrize(("lost", "code"), [("c", "lost-later"), ("cd", "few-keys")])
def test_sites_lost_in_the_middle_end_the_run_which_resumes_when_they_are_back(place, lost, code):
    study, faulty, log, sums = walk(max_wait_s=0.1, **PATIENT), place.faulty(), MemoryJournal(), []

    def watch(event):
        sums.extend([event.sites] if event.what == "sum" else [])
        faulty.away = set(lost) if event.seq >= 2 else set()

    with refused(NotEnoughSites, "task 3", code=code):
        run(faulty, study, log, watch)
    assert set(sums) == {NAMES}
    faulty.away = set()
    same(run(faulty, study, log), study)


@pytest.mark.parametrize("seed", range(4))
def test_a_study_that_waits_for_everybody_opens_only_whole_sums_under_faults(seed, place):
    study, events = walk(when_missing="wait", max_wait_s=300.0), []
    faulty = place.faulty(seed, drop_request=0.03, drop_reply=0.03, duplicate=0.05)
    same(run(faulty, study, tell=events.append), study)
    assert all(event.sites == NAMES for event in events if event.what == "sum")
    assert len(place.executed()) == len(set(place.executed())) == 24
    assert faulty.counts


def test_a_site_that_restarts_joins_again_with_new_keys(place):
    study = walk(rounds=8, when_missing="wait", max_wait_s=300.0)

    def watch(event):
        if event.what == "sum" and event.seq in (1, 4):
            place.exchange.restart("b")

    same(run(place.exchange, study, tell=watch), study)
    assert len(place.executed()) == len(set(place.executed())) == 32


def test_sites_opened_anew_for_each_message_agree_on_keys_as_often_as_those_that_live(tmp_path):
    study = walk(rounds=10, when_missing="abort")
    place = masked_place(tmp_path, keep=True)
    anew = Anew(place, tmp_path)
    found = run(anew, study)
    same(found, study)
    assert len(place.executed()) == len(set(place.executed())) == 40
    # Greeted; keys in three steps, for 8 sums and for 32; each sum in two; the result.
    assert len(anew.kept) == 1 + 3 + 2 * 8 + 3 + 2 * 2 + 1
    # Nothing is left when the run has ended.
    assert anew.kept == ["", *["abcd"] * (len(anew.kept) - 2), ""]


def test_a_new_greeting_erases_kept_masks_and_begins_with_new_keys(tmp_path):
    study, log = walk(rounds=4, when_missing="abort"), MemoryJournal()
    place = masked_place(tmp_path, keep=True)
    anew = Anew(place, tmp_path)

    def stop(event):
        if event.what == "sum" and event.seq == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(anew, study, log, stop)
    assert anew.kept_by() == "abcd"
    del anew.kept[:]
    same(run(anew, study, log), study)
    assert anew.kept[0] == ""
    # An input that was masked and not opened is masked again, and no question is answered twice.
    assert len(place.executed()) == len(set(place.executed())) == 16


def test_with_other_data_a_site_leaves_the_epoch_and_joins_the_next(tmp_path, monkeypatch):
    study, place = walk(rounds=3, when_missing="abort"), masked_place(tmp_path, keep=True)
    anew, log = Anew(place, tmp_path), MemoryJournal()
    real, changed = walks.data_of, {}
    monkeypatch.setattr(walks, "data_of", lambda name: changed.get(name, real)(name))

    def watch(event):
        if event.what == "sum" and event.seq == 0:
            # All of them: a sum with new rows of one alone would show that one.
            changed.update({name: lambda name: real(name.upper()) for name in NAMES})

    with kept_out("other-data"):
        run(anew, study, log, watch)
    run(anew, study, log)


def test_a_site_with_another_identity_is_not_let_in(tmp_path):
    strangers = masked_place(tmp_path, {**IDENTITIES, "d": Identity.from_seed(b"x" * 32)})
    study = walk(max_wait_s=0.0, privacy={"min_sites": 4}, **PATIENT)
    with pytest.raises((NotEnoughSites, SiteRefused, ProtocolError)):
        run(strangers.exchange, study)


def test_a_later_run_without_one_site_is_refused_even_after_a_restart(place):
    run(place.exchange, walk(rounds=1))
    assert place.stores["a"].load("run-1").opened == NAMES
    for name in NAMES:
        place.exchange.restart(name)
    with kept_out("shows-few-sites"):
        run(place.exchange, walk(rounds=1, names=NAMES[:3], when_missing="abort"), run_id="run-2")
    # The same sites with the same data may ask again.
    again = walk(rounds=2)
    same(run(place.exchange, again, run_id="run-3"), again)


def test_a_plain_study_has_no_masked_messages(place):
    run(place.exchange, walk(privacy={"secure_aggregation": False}))
    with refused(ProtocolError, code="not-masked"):
        read_reply(place.exchange.endpoints["a"].handle(encode_request(Request("secagg", "run-1", 0, -1))))


def test_identities_are_written_for_their_owner_and_read_back(tmp_path):
    places = {name: tmp_path / name for name in NAMES}
    for place in places.values():
        place.mkdir()
    write_site_files(places, entropy=seeded())
    key, peers = places["a"] / "identity.key", places["a"] / "peers.toml"
    assert read_peers(peers) == {name: read_identity(p / "identity.key").public for name, p in places.items()}
    assert key.stat().st_mode & 0o077 == 0
    key.write_bytes(b"short")
    peers.write_text('a = "xyz"\n')
    for read, path, *said in (
        (read_identity, key, "32", "5"),
        (read_identity, tmp_path / "nothing", "nothing"),
        (read_peers, peers, "'a'"),
        (read_peers, tmp_path / "nothing", "nothing"),
    ):
        with refused(FileError, *said):
            read(path)
