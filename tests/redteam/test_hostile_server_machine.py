"""A hostile server against real endpoints, as a state machine: greetings, epochs, fences, masks, restarts.

The server may greet and set up any sites in any run, tell each site something else, choose numbers, thresholds and lists
of survivors, and ask only some sites to reveal. The model keeps what was revealed and asks, after every step, what that
opens. Laws:

- of one site and slot never both secrets are open: its input stays hidden among the others;
- every sum that can be opened is over at least three sites, which were asked the same from the same history;
- all sums that can be opened together show no fewer than three sites, tried by brute force;
- one slot hides one input, and what a site says it has executed is what its audit log says has left.
"""

import itertools
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

pytest.importorskip("cryptography")
from feddbn._version import __version__
from feddbn.core.designs.recordings import Block
from feddbn.data import Recording
from feddbn.data import Site as DataSite
from feddbn.errors import FeddbnError
from feddbn.federation.guards.site_guards import AuditGuard
from feddbn.federation.protocol.encoding import encode
from feddbn.federation.protocol.endpoint import SiteEndpoint
from feddbn.federation.protocol.messages import Request, encode_request, read_reply
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Task, task_digest
from feddbn.privacy.audit import AuditChain
from feddbn.privacy.integers import combine_shares
from feddbn.privacy.keys import Identity, pinned_keys
from feddbn.privacy.secagg import Order
from feddbn.privacy.secagg_server import SecAggServer
from feddbn.runtime.masked import read_secure_reply
from feddbn.runtime.site.masking import SiteMasking
from support.combinations import by_brute_force
from support.entropy import Entropy
from support.faults import MemoryStore
from support.study_programs import WalkQuestion

pytestmark = pytest.mark.promise

NAMES = ("a", "b", "c", "d", "e")
RUNS = {"r0": NAMES, "r1": NAMES[:4], "r2": NAMES, "r3": NAMES[1:]}
IDENTITIES = {name: Identity.from_seed(bytes([k + 1]) * 32) for k, name in enumerate(NAMES)}
SEEN: Counter[str] = Counter()

some_sites = st.sets(st.sampled_from(NAMES), min_size=1).map(lambda names: tuple(sorted(names)))
runs = st.sampled_from(sorted(RUNS))


def question(which):
    return WalkQuestion(centre=np.full(2, float(which)), step=0.1, pause_s=0.0)


KEPT = NAMES[::2]
"""Sites that keep their masks over a restart."""


class Slot:
    """One slot of one epoch: who sent an input, asked what, and who revealed what."""

    def __init__(self, server, order, asked):
        self.server, self.order = server, order
        self.roster = server._roster
        self.asked = asked
        self.tags = {}
        self.shares = {}

    def opened(self):
        """Sites whose secret b is open, and those whose c is: found by putting shares together."""
        out = [set(), set()]
        for which, name in itertools.product((0, 1), self.roster.names):
            held = {
                self.roster.positions[holder] + 1: rows[name].tobytes()
                for holder, (kinds, rows) in self.shares.items()
                if kinds[name] == which
            }
            if len(held) >= self.roster.threshold:
                combine_shares(held, self.roster.threshold)
                out[which].add(name)
        return out


class HostileServer(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        # In memory where there is such a place: thousands of changes wait for no disk.
        self.place = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.stores = {name: MemoryStore(name) for name in NAMES}
        self.lines = {name: [] for name in NAMES}
        self.executed = Counter()
        self.entropy = Entropy()
        self.ends = {name: self.make(name) for name in NAMES}
        self.epochs = {}
        self.slots = []
        self.seq = Counter()

    def teardown(self):
        self.place.cleanup()

    def make(self, name):
        rows = np.random.default_rng(ord(name)).normal(size=(8, 2))
        data = DataSite(("u", "v"), [Recording("r", (Block(rows),))])
        state = Path(self.place.name) / name
        keep, entropy = name in KEPT, self.entropy(name)
        masked = SiteMasking(
            name, IDENTITIES[name], pinned_keys(IDENTITIES), 3, state, keep=keep, entropy=entropy
        )

        def guards(run_id, study):
            chain = AuditChain.resume(self.lines[name])
            return [AuditGuard(name, self.lines[name].append, lambda: "now", chain)]

        def tell(event):
            self.executed[name] += event.what.startswith("executed")

        return SiteEndpoint(Site(name, data), self.stores[name], masked=masked, guards=guards, on_event=tell)

    def send(self, name, request):
        """Return a reply, or None for a refusal."""
        try:
            reply = read_reply(self.ends[name].handle(encode_request(request)))
            return reply if "message" not in reply.arrays else self.inner(reply)
        except FeddbnError:
            SEEN["refused"] += 1
            return None

    @staticmethod
    def inner(reply):
        return read_secure_reply(reply.arrays["message"].tobytes())

    def masked(self, name, run, message, seq=0, after=-1):
        arrays = {"message": np.frombuffer(encode(*message), dtype=np.uint8)}
        return self.send(name, Request("secagg", run, seq, after, arrays=arrays))

    @rule(run=runs, names=some_sites)
    def greet(self, run, names):
        study = Study(
            name="s",
            method="walk",
            variables=("u", "v"),
            sites=RUNS[run],
            privacy={"secure_aggregation": True, "min_sites": 3},
        )
        for name in names:
            self.send(name, Request("hello", run, meta={"study": study.to_json(), "version": __version__}))

    @rule(name=st.sampled_from(NAMES))
    def restart(self, name):
        self.ends[name] = self.make(name)

    @rule(run=runs, names=some_sites, lower=st.booleans(), first=st.integers(0, 40))
    def set_up(self, run, names, lower, first):
        """Agree on keys with some sites; sites that were greeted in this run answer."""
        self.begin(run, names, lower, first)

    def begin(self, run, names, lower, first):
        server = SecAggServer(run, 2, max(len(names) // 2 + 1, 2) if lower else None)
        server._epoch = first
        try:
            replies = {
                n: self.masked(n, run, m) for n, m in dict.fromkeys(names, server.begin_epoch(3)).items()
            }
            request = server.roster_request({n: reply for n, reply in replies.items() if reply})
            roster = tuple(n for n in names if replies[n])
            shares = {n: reply for n in roster if (reply := self.masked(n, run, request))}
            ready = {
                n: reply for n, m in server.deliveries(shares).items() if (reply := self.masked(n, run, m))
            }
            server.ready(ready)
        except FeddbnError:
            SEEN["refused"] += 1
            return None
        self.epochs[run] = server
        return server

    @rule(
        run=runs,
        names=some_sites,
        which=st.integers(0, 1),
        lied_to=st.sampled_from((None, *NAMES)),
        back=st.integers(-1, 2),
        after=st.integers(-1, 2),
    )
    def mask(self, run, names, which, lied_to, back, after):
        """Ask for masked inputs, one of them perhaps to another question; numbers are made up."""
        self.collect(run, names, which, lied_to, self.seq[run] + back, self.seq[run] - after)

    def collect(self, run, names, which, lied_to, seq, after):
        server = self.epochs.get(run)
        if server is None or server.slots_left == 0:
            return None
        order, asked, tags = None, {}, {}
        for name in (n for n in server.roster if n in names):
            task = Task(question(1 - which if name == lied_to else which))
            digest = task_digest(task.fields(), task.arrays)
            order = order or server.open_slot(digest)
            meta = server.masked_request(Order(order.epoch, order.slot, digest))
            before = self.stores[name].load(run)
            reply = self.masked(name, run, ({**meta, "task": task.fields()}, dict(task.arrays)), seq, after)
            if reply:
                record = self.stores[name].load(run)
                asked[name] = (digest, record.previous.history)
                tags[name] = reply[1]["tags"]
                assert (server, order.slot, name) not in {
                    (s.server, s.order.slot, n) for s in self.slots for n in s.asked
                }
                assert before is not None
        if not asked:
            return None
        slot = Slot(server, order, asked)
        slot.tags = tags
        self.slots.append(slot)
        self.seq[run] = max(self.seq[run], seq + 1)
        return slot

    @rule(data=st.data())
    def open(self, data):
        """Name any survivors to any sites, with whatever signatures they give."""
        if self.slots:
            slot = data.draw(st.sampled_from(self.slots[-4:]))
            sent = sorted(slot.asked)
            survivors = sorted(data.draw(st.sets(st.sampled_from(sent), min_size=1)))
            helpers = sorted(data.draw(st.sets(st.sampled_from(sent), min_size=1)))
            self.unmask(slot, survivors, helpers)

    def unmask(self, slot, survivors, helpers):
        tags = np.stack([slot.tags[name] for name in survivors], axis=1)
        meta = {**slot.server._meta("survivors"), "epoch": slot.order.epoch, "slot": slot.order.slot}
        meta["survivors"] = list(survivors)
        arrays = {name: {"tags": tags[slot.roster.positions[name]]} for name in helpers}
        signatures = np.zeros((len(survivors), 64), dtype=np.uint8)
        if set(survivors) != slot.roster.members:
            for name in helpers:
                reply = self.masked(name, slot.server.run, (meta, arrays[name]))
                if reply and name in survivors:
                    signatures[survivors.index(name)] = reply[1]["signature"]
        for name in helpers:
            message = ({**meta, "phase": "unmask"}, {**arrays[name], "signatures": signatures})
            reply = self.masked(name, slot.server.run, message, seq=77)
            if reply:
                kinds = {peer: 0 if peer in survivors else 1 for peer in slot.roster.names}
                told = (kinds, dict(zip(slot.roster.names, reply[1]["shares"], strict=True)))
                if name in slot.shares:
                    # The same bytes again to the same message, and only where they were kept.
                    assert name in KEPT
                    assert kinds == slot.shares[name][0]
                    for peer, share in told[1].items():
                        assert share.tobytes() == slot.shares[name][1][peer].tobytes()
                slot.shares[name] = told

    @rule(run=runs, lost=st.sampled_from((None, None, None, *NAMES)), anew=st.booleans())
    def honest_sum(self, run, lost, anew):
        """What an honest server does, so that sums are opened at all; sometimes one site is away."""
        names = tuple(name for name in RUNS[run] if name != lost)
        if anew or run not in self.epochs or self.epochs[run].slots_left == 0:
            self.greet(run, names)
            if self.begin(run, names, False, -1) is None:
                return
        loads = [self.stores[name].load(run) for name in names]
        after = max((record.current.seq for record in loads if record), default=-1)
        slot = self.collect(run, names, 0, None, after + 1, after)
        if slot is not None:
            self.unmask(slot, sorted(slot.asked), sorted(slot.asked))

    @invariant()
    def nothing_shows_a_few(self):
        family = {}
        for slot in self.slots:
            alive, gone = slot.opened()
            assert not alive & gone, "both secrets of one site are open"
            if alive | gone != slot.roster.members or not alive <= slot.asked.keys():
                continue
            assert len(alive) >= 3
            assert len({slot.asked[name] for name in alive}) == 1, "they were asked different things"
            family[frozenset(f"{name}:1" for name in alive)] = None
            SEEN["opened"] += len(slot.shares) > 0
        assert not family or not by_brute_force(list(family), 3), "sums together show a few sites"
        SEEN["several sets"] += len(family) > 1

    @invariant()
    def books_balance(self):
        for name in NAMES:
            assert sum('"event":"sent"' in line for line in self.lines[name]) == self.executed[name]


@pytest.mark.hypothesis
def test_many_steps_of_a_hostile_server_break_no_law():
    """Fifty steps in each example: a thousand, or ten thousand in `make test-all`."""
    SEEN.clear()
    how = settings(suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(HostileServer, settings=how)
    # The laws are not kept by refusing everything.
    assert SEEN["opened"] > how.max_examples / 2
    assert SEEN["refused"] > 5 * how.max_examples
