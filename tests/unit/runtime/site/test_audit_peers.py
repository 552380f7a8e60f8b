import json

import pytest

pytest.importorskip("cryptography")
from feddbn.errors import FileError
from feddbn.privacy.audit import read_head, signed_head, signed_receipt
from feddbn.privacy.keys import Identity
from feddbn.runtime.site.audit import PEERS, PeerHeads, SiteAudit, compare, export_heads, read_export
from feddbn.runtime.store import Store
from support.owned_sites import NAMES, OwnedSites, make_study
from support.saying import refused
from support.states import copied, put_back

pytestmark = pytest.mark.usefixtures("light")

IDENTITIES = {name: Identity.from_seed(bytes([k + 1]) * 32) for k, name in enumerate(NAMES)}
KEYS = {name: identity.public for name, identity in IDENTITIES.items()}


class Person:
    """The owner of a site, with a clock that goes on by a minute with every look."""

    def __init__(self, place, name, start=1_800_000_000.0):
        self.now = start
        self.audit = SiteAudit(place / name, name, IDENTITIES[name], self.clock)
        self.told = []
        self.heads = PeerHeads(self.audit, KEYS, self.told.append)

    def clock(self):
        self.now += 60.0
        return self.now

    def write(self, n):
        for number in range(n):
            self.audit.note("warning", note=f"{self.now} {number}")

    def shorten(self, n):
        """As somebody who has the key: what the log has beyond n entries never was."""
        self.audit._log.seal_anew(self.audit._log.tagged()[:n])


@pytest.fixture
def people(tmp_path):
    north, south, _ = (Person(tmp_path, name) for name in NAMES)
    north.write(5)
    south.write(2)
    return north, south


def give(giver, taker):
    """Carry the giver's head to the taker and the receipt back."""
    receipts = taker.heads.hear({"heads": [giver.heads.head()]})["receipts"]
    giver.heads.hear({"receipts": receipts})
    return receipts


def known(person, site):
    return next(peer for peer in person.heads.all() if peer.site == site)


def test_heads_are_held_and_receipts_kept(people):
    north, south = people
    give(north, south)
    assert known(south, "north").held.n_entries == 5
    assert known(north, "south").receipt.head.n_entries == 5
    north.write(1)
    give(north, south)
    assert known(south, "north").held.n_entries == 6
    assert known(north, "south").receipt.head.n_entries == 6
    assert north.told == south.told == []


def test_a_log_that_was_rolled_back_is_told_to_its_owner_and_to_the_others(people):
    north, south = people
    give(north, south)
    north.shorten(3)
    Store(north.audit.state).drop(PEERS, "south")
    give(north, south)
    assert all(word in south.told[0] for word in ("north", "3", "5"))
    assert "south" in north.told[0]
    assert [entry.event for entry in north.audit.entries()][-1] == "warning"
    assert known(south, "north").held.n_entries == 5
    assert [head.n_entries for head in known(south, "north").odd] == [3]


def test_a_log_that_was_rewritten_to_the_same_length_is_told(people):
    north, south = people
    give(north, south)
    north.shorten(4)
    north.write(1)
    give(north, south)
    assert "north" in south.told[0]


def test_a_server_that_repeats_itself_raises_no_false_alarm_and_fills_no_log(people):
    north, south = people
    old = north.heads.head()
    north.write(1)
    give(north, south)
    for _ in range(3):
        south.heads.hear({"heads": [old]})
    assert south.told == []
    north.shorten(2)
    shorter = north.heads.head()
    for _ in range(5):
        south.heads.hear({"heads": [shorter]})
    assert len(south.told) == 1
    assert len([entry for entry in south.audit.entries() if entry.task == "heads"]) == 1


def test_what_the_server_makes_up_is_passed_over(people):
    north, south = people
    good = north.heads.head()
    forged = signed_head(IDENTITIES["west"], "north", _chain(99), "2030-01-01T00:00:00Z").fields()
    odd = [{**good, "n_entries": 9}, forged, {**good, "site": "nobody"}, {}, "x", None, {**good, "hash": "z"}]
    for one in odd:
        assert south.heads.hear({"heads": [one]}) == {"receipts": []}
    for words in ({"heads": "x"}, {"receipts": 5}, {}, {"heads": {"a": 1}}):
        assert south.heads.hear(words) == {"receipts": []}
    assert known(south, "north").held is None
    # A receipt for a head that this site never signed is no proof against its log.
    claim = signed_receipt(IDENTITIES["south"], "south", read_head(forged))
    north.heads.hear({"receipts": [claim.fields()]})
    stranger = signed_receipt(IDENTITIES["west"], "south", read_head(good))
    north.heads.hear({"receipts": [stranger.fields()]})
    assert known(north, "south").receipt is None
    assert north.told == []


def _chain(n):
    from feddbn.privacy.audit import AuditChain

    return AuditChain(n, "a" * 64)


def test_a_message_with_many_heads_is_cut_to_the_number_of_peers(people):
    north, south = people
    head = north.heads.head()
    assert len(south.heads.hear({"heads": [head] * 50})["receipts"]) == 2


def test_what_is_damaged_is_begun_anew_and_said(people):
    north, south = people
    give(north, south)
    store = Store(south.audit.state)
    whole = store.get(PEERS, "north")
    for length in range(0, len(whole) - 1, 37):
        store.put(PEERS, "north", whole[:length])
        south.told.clear()
        assert known(south, "north").held is None
        assert "north" in south.told[0]
        give(north, south)
        assert known(south, "north").held.n_entries == 5


def test_heads_that_were_edited_are_forgotten(people):
    north, south = people
    give(north, south)
    store = Store(south.audit.state)
    store.put(PEERS, "north", store.get(PEERS, "north").replace(b'"n_entries":5', b'"n_entries":4'))
    assert known(south, "north").held is None


def test_two_people_compare_by_a_file(people, tmp_path):
    north, south = people
    give(north, south)
    give(south, north)
    path = tmp_path / "south.json"
    path.write_text(export_heads(south.heads, south.audit))
    handed = read_export(path, KEYS)
    assert compare(north.heads, north.audit, handed) == []
    lines = north.audit._log.tagged()
    north.shorten(3)
    (wrong,) = compare(north.heads, north.audit, handed)
    assert all(word in wrong for word in ("south", "3", "5"))
    north.audit._log.seal_anew(lines)
    south.shorten(1)
    path.write_text(export_heads(south.heads, south.audit))
    handed = read_export(path, KEYS)
    assert "south" in compare(north.heads, north.audit, handed)[0]


def test_a_third_log_that_two_people_were_shown_differently_is_found(people, tmp_path):
    north, south = people
    forks = []
    for word in ("a", "b"):
        west = Person(tmp_path / word, "west")
        west.audit.note("warning", note=word)
        forks.append(west)
    give(forks[0], north)
    give(forks[1], south)
    path = tmp_path / "south.json"
    path.write_text(export_heads(south.heads, south.audit))
    assert "west" in compare(north.heads, north.audit, read_export(path, KEYS))[0]


def test_files_that_are_not_heads_or_not_signed_are_refused(people, tmp_path):
    north, south = people
    give(north, south)
    path = tmp_path / "south.json"
    values = json.loads(export_heads(south.heads, south.audit))
    path.write_text(json.dumps(values))
    assert read_export(path, KEYS).site == "south"
    path.write_text(json.dumps({**values, "site": "west"}))
    with refused(FileError, "west", "south", code="foreign-head"):
        read_export(path, KEYS)
    values["held"][0]["n_entries"] = 1
    path.write_text(json.dumps(values))
    with refused(FileError, "north", code="not-signed"):
        read_export(path, KEYS)
    path.write_text("{}")
    with refused(FileError, code="no-heads"):
        read_export(path, KEYS)
    with refused(FileError):
        read_export(tmp_path / "none.json", KEYS)


def test_sites_of_a_run_hold_each_others_heads_at_its_end(tmp_path):
    sites, study = OwnedSites(tmp_path), make_study()
    sites.approve(study)
    sites.run(study)
    for name in NAMES:
        for peer in sites.owner(name).heads.all():
            # Approved, agreed and finished.
            assert peer.held.n_entries == 3
            assert peer.receipt.head.n_entries == 3


def test_a_site_that_comes_back_with_an_older_disk_is_noticed_at_the_greeting(tmp_path):
    sites, study = OwnedSites(tmp_path), make_study()
    sites.approve(study, runs=2)
    backup = copied(sites.state("west"), tmp_path / "backup")
    sites.run(study, "run-1")
    put_back(backup, sites.state("west"))
    later = sites.exchange()
    for endpoint in later.endpoints.values():
        endpoint._witness._audit._clock = lambda: 4e9
    sites.run(study, "run-2", exchange=later)
    notes = {
        name: [e.note for e in sites.owner(name).audit.entries() if e.event == "warning"] for name in NAMES
    }
    assert "west" in notes["north"][0]
    assert "north" in notes["west"][0]
