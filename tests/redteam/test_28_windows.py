"""Attack 28: a message that waits for days. A server that holds a collection open tries to get two answers for one
step, sites that were restarted meanwhile to forget what they did, and sums of sites it chooses. Files of a site are
changed and brought back.
"""

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.core.encoding import encode
from feddbn.errors import FederationError, PrivacyError, StateError
from feddbn.federation.protocol.messages import Request, encode_request, read_reply
from feddbn.federation.protocol.task import Task, task_digest
from feddbn.federation.sums.gram import GramQuestion
from feddbn.runtime.masked import read_secure_reply
from feddbn.runtime.site.masking import SealedSlot
from feddbn.runtime.store import STORE, Store
from support.rig import Refused, Rig, Server
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")

NAMES = ("a", "b", "c", "d")
COLLECT = {"when_missing": "collect", "enough": 3}


@pytest.fixture
def rig(tmp_path):
    rng = np.random.default_rng(28)
    return Rig(tmp_path / "rig", {name: [rng.normal(size=(60, 2))] for name in NAMES})


class Visits(Server):
    """Sites are restarted after every message; `before` may change or repeat what they are asked."""

    def __init__(self, rig, **more):
        self.phase_messages = {}
        self.silent = set()
        self.stop_before = ""
        self.repeats = 1
        super().__init__(rig, rig.study(attendance=COLLECT), **more)

    def ask(self, name, message, seq=None):
        """Return a site's decoded reply to one message of secure aggregation, after a restart; a refusal is raised."""
        self.rig.endpoints[name] = self.rig.open(name)
        return self.tell(self.rig.endpoints[name], message, seq)

    def tell(self, endpoint, message, seq=None):
        """Return the decoded reply of an endpoint."""
        inner = np.frombuffer(encode(*message), dtype=np.uint8)
        seq = max(self._seq, 0) if seq is None else seq
        request = encode_request(Request("secagg", self.run, seq, self._after, arrays={"message": inner}))
        reply = read_reply(endpoint.handle(request))
        return read_secure_reply(reply.arrays["message"].tobytes())

    def __call__(self, messages):
        phase = next(iter(messages.values()))[0]["phase"]
        if phase == self.stop_before:
            raise Reached(messages)
        replies = {}
        for name, message in messages.items():
            self.phase_messages[phase, name] = message
            if (phase, name) in self.silent:
                continue
            try:
                found = [self.ask(name, message) for _ in range(self.repeats)]
                assert len({encode(*one) for one in found}) == 1
                replies[name] = found[0]
            except (FederationError, PrivacyError) as error:
                self.told[name], self.codes[name] = str(error), error.code
        return replies

    def until(self, phase):
        """Return the messages of a phase of the first sum, which are not sent."""
        self.stop_before = phase
        with pytest.raises(Reached) as reached:
            self.sum(moments(self.rig))
        return reached.value.messages


class Reached(Exception):
    def __init__(self, messages):
        super().__init__("")
        self.messages = messages


def moments(rig, n_lags=1):
    return Task(GramQuestion(n_lags=n_lags, variables=rig.variables))


def test_sites_that_are_restarted_and_asked_twice_in_every_step_answer_once(rig):
    """The same message gets the same bytes, in every phase, and the sum is that of sites that stay."""
    server = Visits(rig)
    server.repeats = 2
    found = server.sum(moments(rig))
    phases = {phase for phase, _ in server.phase_messages}
    assert phases == {"advertise", "share", "deliver", "masked", "unmask"}
    assert found.contributors == NAMES
    expected = Server(rig, rig.study(), run="another").sum(moments(rig))
    np.testing.assert_array_equal(found.value, expected.value)


def test_no_second_question_for_a_slot(rig):
    server = Visits(rig)
    messages = server.until("masked")
    meta, arrays = messages["a"]
    server.ask("a", (meta, arrays))
    other = moments(rig, 0)
    changed = {**meta, "task": other.fields(), "task_digest": task_digest(other.fields(), dict(other.arrays))}
    for seq in (0, 1):
        with pytest.raises((FederationError, PrivacyError), match="spent"):
            server.ask("a", (changed, dict(other.arrays)), seq)


def test_no_second_roster_no_second_shares_and_no_epoch_again(rig):
    server = Visits(rig)
    roster = server.until("share")["a"]
    server.ask("a", roster)
    fewer = {**roster[0], "threshold": 4}
    with refused((FederationError, PrivacyError), code="shared-twice"):
        server.ask("a", (fewer, roster[1]))
    server.greet(("a",))
    advertise = {"kind": "secagg", "phase": "advertise", "run": "run", "epoch": 0, "n_slots": 8, "length": 0}
    with refused((FederationError, PrivacyError), code="old-epoch"):
        server.ask("a", ({**advertise, "n_slots": 4}, {}))


def test_one_list_of_survivors_over_a_restart(rig):
    """All have answered; the server has one site sign that d did not, and then that c did not, or opens the whole sum."""
    server = Visits(rig)
    meta, arrays = server.until("unmask")["a"]

    def without(place):
        names = [name for k, name in enumerate(NAMES) if k != place]
        return {**meta, "phase": "survivors", "survivors": names}, {
            "tags": np.delete(arrays["tags"], place, axis=0)
        }

    server.ask("a", without(3))
    for message in (without(2), (meta, arrays)):
        with refused((FederationError, PrivacyError), code="other-survivors"):
            server.ask("a", message)


def test_a_site_helps_to_open_a_slot_once_over_a_restart(rig):
    server = Visits(rig)
    opening = server.until("unmask")
    revealed = server.ask("a", opening["a"])[1]["shares"]
    meta, arrays = opening["a"]
    fewer = {**meta, "survivors": list(NAMES[:3])}
    with refused((FederationError, PrivacyError), code="no-open-input"):
        server.ask("a", (fewer, {"tags": arrays["tags"][:3], "signatures": np.zeros((3, 64), np.uint8)}))
    np.testing.assert_array_equal(server.ask("a", opening["a"])[1]["shares"], revealed)


def test_sums_of_chosen_sites_are_not_opened_one_after_the_other(rig):
    """A window that was closed without a site: new keys, and the same answer for the others, with it."""
    server = Visits(rig)
    server.silent = {("masked", "d")}
    first = server.sum(moments(rig))
    assert first.contributors == NAMES[:3]
    server.silent = set()
    server._seq, server._after = server._seq - 1, -1
    server._sums.agree_on_keys()
    with pytest.raises(Refused):
        server.sum(moments(rig))
    assert set(server.codes.values()) <= {"other-sites", "shows-few-sites"}


def test_two_processes_of_one_site_do_not_reveal_two_halves(rig):
    server = Visits(rig)
    opening = server.until("unmask")
    old, new = rig.open("a"), rig.open("a")
    for endpoint in (old, new):
        # Both have read what is on disk.
        server.tell(endpoint, server.phase_messages["masked", "a"])
    server.tell(new, opening["a"])
    with refused(StateError, "'run'"):
        server.tell(old, opening["a"])


def test_a_site_that_was_killed_after_it_wrote_a_sum_down_still_helps_to_open_it(rig, monkeypatch):
    """Its register is ahead of its masks; nobody else has added up its data."""
    server = Visits(rig)
    opening = server.until("unmask")

    class Killed(BaseException):
        pass

    def kill(self, content):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(SealedSlot, "save", kill)
        with pytest.raises(Killed):
            server.ask("a", opening["a"])
    assert server.ask("a", opening["a"])[1]["shares"].any()


def test_secrets_are_sealed_on_disk_and_altered_ones_are_refused(rig):
    server = Visits(rig)
    messages = server.until("masked")
    store = Store(rig.place / "a" / "state")
    stored = store.get("run", "masks")
    assert b"kept-masks" not in stored
    assert b"roster" not in stored
    assert (store.folder / STORE).stat().st_mode & 0o077 == 0
    store.put("run", "masks", stored[:-1] + bytes([stored[-1] ^ 1]))
    with pytest.raises((FederationError, PrivacyError), match="altered"):
        server.ask("a", messages["a"])
    # Another site's secrets, under another key.
    store.put("run", "masks", Store(rig.place / "b" / "state").get("run", "masks"))
    with pytest.raises((FederationError, PrivacyError), match="altered"):
        server.ask("a", messages["a"])
    store.put("run", "masks", stored)
    server.ask("a", messages["a"])


def test_secrets_of_opened_sums_are_not_kept(rig):
    server = Visits(rig)
    server.sum(moments(rig))
    server.ask("a", server.phase_messages["unmask", "a"])
    masks = rig.endpoints["a"]._masking[1].__self__
    epoch = masks._secure.secagg.held
    assert epoch.n_erased == 1
    assert not epoch.secrets[0].any()
    assert not epoch.shares[0].any()
    assert epoch.secrets[1].any()


def test_a_message_that_was_answered_is_not_answered_again_without_the_owner(rig):
    """Taking the approval back holds for repeated messages, too."""
    server = Visits(rig)
    messages = server.until("masked")
    server.ask("a", messages["a"])
    path = rig.place / "a" / "policy.toml"
    path.write_text(path.read_text().replace("approve_by_rule = true\n", ""))
    with pytest.raises((FederationError, PrivacyError)) as caught:
        server.ask("a", messages["a"])
    assert caught.value.code == "not-approved"


def test_a_refused_message_spends_nothing_and_may_be_asked_again(rig):
    """A question that breaks a rule, then the right one for the same slot: one input leaves, not none and not two."""
    server = Visits(rig)
    messages = server.until("masked")
    meta, arrays = messages["a"]
    with refused((FederationError, PrivacyError), code="wrong-digest"):
        server.ask("a", ({**meta, "task_digest": "0" * 64}, arrays))
    reply = server.ask("a", (meta, arrays))
    assert reply[1]["y"].dtype == np.uint64
