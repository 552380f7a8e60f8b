"""Masks: a message that waits for days, sites that are restarted meanwhile, and a server that tells two stories.

The server tries to get two answers for one step, sites to forget what they did, and sums of sites that it chooses.
"""

import contextlib

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.errors import AggregationError, ProtocolError
from feddbn.federation.protocol.encoding import encode
from feddbn.federation.protocol.task import Task, task_digest
from feddbn.federation.sums.gram import GramQuestion
from feddbn.privacy.policy import default_threshold
from feddbn.privacy.secagg import survivors_statement
from feddbn.runtime.site.masking import SealedSlot
from feddbn.runtime.store import STORE, Store
from support.consortium import Consortium, Liar, Refused, by_rule
from support.saying import refused
from support.secagg_wire import Wire, roster_request

pytestmark = pytest.mark.promise

NAMES = ("a", "b", "c", "d")
COLLECT = {"when_missing": "collect", "enough": 3}


@pytest.fixture
def sites(tmp_path):
    rng = np.random.default_rng(28)
    return Consortium(tmp_path, {name: [rng.normal(size=(60, 2))] for name in NAMES}, by_rule())


class Visits(Liar):
    """Sites are restarted before every message; `silent` phases of sites are lost, all come `repeats` times."""

    def __init__(self, sites, run="run"):
        self.sent, self.silent, self.stop_before, self.repeats = {}, set(), "", 1
        super().__init__(sites, sites.study(attendance=COLLECT), run)

    def tell(self, name, message, seq=None, endpoint=None):
        """Return a site's decoded reply after a restart, or that of an endpoint; a refusal is raised."""
        if endpoint is not None:
            self.sites.endpoints[name] = endpoint
        else:
            self.sites.restart(name)
        found = super().ask({name: message}, seq)
        if not found:
            raise Refused(self.told, self.codes)
        return found[name]

    def ask(self, messages, seq=None, after=None):
        phase = next(iter(messages.values()))[0]["phase"]
        if phase == self.stop_before:
            raise Reached(messages)
        replies = {}
        for name, message in messages.items():
            self.sent[phase, name] = message
            if (phase, name) not in self.silent:
                with contextlib.suppress(Refused):
                    found = [self.tell(name, message, seq) for _ in range(self.repeats)]
                    assert len({encode(*one) for one in found}) == 1
                    replies[name] = found[0]
        return replies

    def until(self, phase):
        """Return the messages of a phase of the first sum, which are not sent."""
        self.stop_before = phase
        with pytest.raises(Reached) as reached:
            self.sum(moments(self.sites))
        self.stop_before = ""
        return reached.value.messages

    def says_no(self, code, name, message, seq=None):
        """Expect that a site says no with this code."""
        with pytest.raises(Refused) as caught:
            self.tell(name, message, seq)
        assert caught.value.codes[name] == code, caught.value.told


class Reached(Exception):
    def __init__(self, messages):
        super().__init__("")
        self.messages = messages


def moments(sites, n_lags=1):
    return Task(GramQuestion(n_lags=n_lags, variables=sites.variables))


def test_sites_that_are_restarted_and_asked_twice_in_every_step_answer_once(sites):
    """The same message gets the same bytes, in every phase, and the sum is that of sites that stay."""
    liar = Visits(sites)
    liar.repeats = 2
    found = liar.sum(moments(sites))
    phases = {phase for phase, _ in liar.sent}
    assert phases == {"advertise", "share", "deliver", "masked", "unmask"}
    assert found.contributors == NAMES
    expected = Liar(sites, sites.study(), "another").sum(moments(sites))
    np.testing.assert_array_equal(found.value, expected.value)


def test_no_second_question_for_a_slot(sites):
    liar = Visits(sites)
    messages = liar.until("masked")
    meta, arrays = messages["a"]
    liar.tell("a", (meta, arrays))
    other = moments(sites, 0)
    changed = {**meta, "task": other.fields(), "task_digest": task_digest(other.fields(), dict(other.arrays))}
    for seq in (0, 1):
        liar.says_no("spent-slot", "a", (changed, dict(other.arrays)), seq)


def test_no_second_roster_no_second_shares_and_no_epoch_again(sites):
    liar = Visits(sites)
    roster = liar.until("share")["a"]
    liar.tell("a", roster)
    fewer = {**roster[0], "threshold": 4}
    liar.says_no("shared-twice", "a", (fewer, roster[1]))
    liar.greet("a")
    advertise = {"kind": "secagg", "phase": "advertise", "run": "run", "epoch": 0, "n_slots": 8, "length": 0}
    liar.says_no("old-epoch", "a", ({**advertise, "n_slots": 4}, {}))


def test_one_list_of_survivors_over_a_restart(sites):
    """All have answered; the server has one site sign that d did not, and then that c did not, or opens the whole sum."""
    liar = Visits(sites)
    meta, arrays = liar.until("unmask")["a"]

    def without(place):
        names = [name for k, name in enumerate(NAMES) if k != place]
        return {**meta, "phase": "survivors", "survivors": names}, {
            "tags": np.delete(arrays["tags"], place, axis=0)
        }

    liar.tell("a", without(3))
    for message in (without(2), (meta, arrays)):
        liar.says_no("other-survivors", "a", message)


def test_a_site_helps_to_open_a_slot_once_over_a_restart(sites):
    liar = Visits(sites)
    opening = liar.until("unmask")
    revealed = liar.tell("a", opening["a"])[1]["shares"]
    meta, arrays = opening["a"]
    fewer = {**meta, "survivors": list(NAMES[:3])}
    liar.says_no(
        "no-open-input", "a", (fewer, {"tags": arrays["tags"][:3], "signatures": np.zeros((3, 64), np.uint8)})
    )
    np.testing.assert_array_equal(liar.tell("a", opening["a"])[1]["shares"], revealed)


def test_sums_of_chosen_sites_are_not_opened_one_after_the_other(sites):
    """A window that was closed without a site: new keys, and the same answer for the others, with it."""
    liar = Visits(sites)
    liar.silent = {("masked", "d")}
    first = liar.sum(moments(sites))
    assert first.contributors == NAMES[:3]
    liar.silent = set()
    liar.keys()
    with pytest.raises(Refused) as caught:
        liar.sum(moments(sites), seq=0, after=-1)
    assert set(caught.value.codes.values()) <= {"other-sites", "shows-few-sites"}


def test_two_processes_of_one_site_do_not_reveal_two_halves(sites):
    liar = Visits(sites)
    opening = liar.until("unmask")
    old, new = sites.open("a"), sites.open("a")
    for endpoint in (old, new):
        # Both have read what is on disk.
        liar.tell("a", liar.sent["masked", "a"], endpoint=endpoint)
    liar.tell("a", opening["a"], endpoint=new)
    with refused(Refused, "'run'"):
        liar.tell("a", opening["a"], endpoint=old)


def test_a_site_that_was_killed_after_it_wrote_a_sum_down_still_helps_to_open_it(sites, monkeypatch):
    """Its register is ahead of its masks; nobody else has added up its data."""
    liar = Visits(sites)
    opening = liar.until("unmask")

    class Killed(BaseException):
        pass

    def kill(self, content):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(SealedSlot, "save", kill)
        with pytest.raises(Killed):
            liar.tell("a", opening["a"])
    assert liar.tell("a", opening["a"])[1]["shares"].any()


def test_secrets_are_sealed_on_disk_and_altered_ones_are_refused(sites):
    liar = Visits(sites)
    messages = liar.until("masked")
    store = Store(sites.state("a"))
    stored = store.get("run", "masks")
    assert b"kept-masks" not in stored
    assert b"roster" not in stored
    assert (store.folder / STORE).stat().st_mode & 0o077 == 0
    store.put("run", "masks", stored[:-1] + bytes([stored[-1] ^ 1]))
    liar.says_no("altered-seal", "a", messages["a"])
    # Another site's secrets, under another key.
    store.put("run", "masks", Store(sites.state("b")).get("run", "masks"))
    liar.says_no("altered-seal", "a", messages["a"])
    store.put("run", "masks", stored)
    liar.tell("a", messages["a"])


def test_secrets_of_opened_sums_are_not_kept(sites):
    liar = Visits(sites)
    liar.sum(moments(sites))
    liar.tell("a", liar.sent["unmask", "a"])
    masks = sites.endpoints["a"]._masking[1].__self__
    epoch = masks._secure.secagg.held
    assert epoch.n_erased == 1
    assert not epoch.secrets[0].any()
    assert not epoch.shares[0].any()
    assert epoch.secrets[1].any()


def test_a_message_that_was_answered_is_not_answered_again_without_the_owner(sites):
    """Taking the approval back holds for repeated messages, too."""
    liar = Visits(sites)
    messages = liar.until("masked")
    liar.tell("a", messages["a"])
    sites.set_policy("approve_by_rule = true\n", "")
    liar.says_no("not-approved", "a", messages["a"])


def test_a_refused_message_spends_nothing_and_may_be_asked_again(sites):
    """A question that breaks a rule, then the right one for the same slot: one input leaves, not none and not two."""
    liar = Visits(sites)
    messages = liar.until("masked")
    meta, arrays = messages["a"]
    liar.says_no("wrong-digest", "a", ({**meta, "task_digest": "0" * 64}, arrays))
    reply = liar.tell("a", (meta, arrays))
    assert reply[1]["y"].dtype == np.uint64


# Two stories --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("k", [5, 7, 9])
def test_a_threshold_of_half_the_sites_is_refused_by_every_site(k):
    wire = Wire(n_sites=k, threshold=k // 2 + 1)
    request = roster_request(wire)
    for name in wire.names:
        with refused(AggregationError, k, default_threshold(k), code="low-threshold"):
            wire.sites[name].handle(*request, None)


@pytest.mark.parametrize("k", [7, 9, 12])
def test_with_two_stories_no_site_reveals_both_secrets_of_another(k):
    wire = Wire(n_sites=k).set_up()
    wire.mask()
    server, roster = wire.server, wire.server._roster
    threshold = roster.threshold
    *honest, evil = wire.names
    half = len(honest) // 2
    groups = honest[:half], honest[half:]
    revealed: dict[tuple[str, int], set[str]] = {}
    for group, other in (groups, groups[::-1]):
        # As few of the other group survive as the threshold allows.
        n_needed = max(threshold - len(group) - 1, 0)
        alive = sorted([*group, *other[:n_needed], evil])
        tags = np.stack([server._slot.tags[name] for name in alive], axis=1)
        meta = {**server._meta("survivors"), "slot": 0, "survivors": alive}
        signatures = np.zeros((len(alive), 64), dtype=np.uint8)
        statement = survivors_statement(server._slot.order, roster, alive)
        signatures[alive.index(evil)] = np.frombuffer(wire.identities[evil].sign(statement), dtype=np.uint8)
        for name in alive[:-1]:
            try:
                reply = wire.sites[name].handle(meta, {"tags": tags[roster.positions[name]]}, None)
                signatures[alive.index(name)] = reply[1]["signature"]
            except (AggregationError, ProtocolError):
                continue
        for name in group:
            arrays = {"tags": tags[roster.positions[name]], "signatures": signatures}
            try:
                wire.sites[name].handle({**meta, "phase": "unmask"}, arrays, None)
            except (AggregationError, ProtocolError):
                continue
            for site in wire.names:
                revealed.setdefault((site, 0 if site in alive else 1), {evil}).add(name)
    opened = {key for key, holders in revealed.items() if len(holders) >= threshold}
    for site in wire.names:
        assert not {(site, 0), (site, 1)} <= opened
