"""Sites as their owners have them, and a server that lies; nothing here is a mock.

A `Consortium` is sites below a folder: data, keys, policies and stores, with what they draw at random from a seed.
A `Liar` is a server that chooses every field of every message, and follows the protocol where it does not lie.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feddbn import AS_THEY_ARE
from feddbn._version import __version__
from feddbn.analysis import studies  # noqa: F401 (registers the methods)
from feddbn.errors import FeddbnError, FederationError, PrivacyError
from feddbn.federation.guards.noise import DpGuard
from feddbn.federation.protocol.encoding import encode
from feddbn.federation.protocol.messages import WITHHELD, Request, encode_request, read_reply
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Task, task_digest
from feddbn.privacy.keys import Identity
from feddbn.privacy.secagg import Order
from feddbn.privacy.secagg_server import SecAggServer
from feddbn.runtime.masked import read_secure_reply
from feddbn.runtime.server.conduct import run_study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.settings import read_policy, read_site_settings
from feddbn.runtime.site.kit_files import default_policy_text, write_site_files
from feddbn.runtime.site.open_site import open_site
from feddbn.runtime.site.owner import DEFAULT_DAYS, Owner
from support.entropy import Entropy
from support.faults import MemoryJournal
from support.states import changed, entries_of, log_lines
from support.study_files import ABOUT

LOG = logging.getLogger("consortium")
LOG.setLevel(logging.CRITICAL)
NAMES = ("north", "south", "west")
RULE = "approve_by_rule = true\n"
"""The line of a policy by which owners let rules approve."""
# A study's file has no word for None: an empty list are no periods, too.
PREPARE = {**AS_THEY_ARE, "period": []}
ONE_SUM = {"n_lags": 1, "use_nongaussian": False, "check_residuals": False, "prepare": PREPARE}


def make_study(**changes) -> Study:
    """One masked sum of moments over three sites, which may not be missing."""
    values = {
        "name": "s",
        "method": "oneshot",
        "lead": "lead@example.org",
        "about": ABOUT,
        "variables": ("u", "v"),
        "sites": NAMES,
        "parameters": ONE_SUM,
        "privacy": {"secure_aggregation": True, "protection": "exact"},
        "attendance": {"when_missing": "abort"},
    }
    return Study(**{**values, **changes})


def by_rule(*tasks, features=(), more=""):
    """The default policy of owners who let rules approve, with further tasks, feature maps and lines."""
    text = default_policy_text()
    for last, others in (("residuals.checks", tasks), ("linear", features)):
        text = text.replace(f'"{last}"', ", ".join(f'"{name}"' for name in (last, *others)))
    return f"{RULE}{text}{more}"


def spread(k=3, d=2, rows=200, n_recordings=1, seed=0):
    """Normal rows, of another scale and mean at each of `k` sites."""
    rng = np.random.default_rng(seed)
    return {
        f"s{i}": [rng.normal(size=(rows, d)) * (1 + i) + i for _ in range(n_recordings)] for i in range(k)
    }


def plain(k=3, d=2, rows=200, n_recordings=1, seed=0):
    """Standard normal rows at each of `k` sites."""
    rng = np.random.default_rng(seed)
    return {f"s{i}": [rng.normal(size=(rows, d)) for _ in range(n_recordings)] for i in range(k)}


class Consortium:
    """Sites below a folder; `data` is site -> its recordings, by default thirty rows of u and v at three sites.

    Every site has the text `policy`, by default that of a new site, whose owner approves every study. It is an exchange:
    called with messages, it gives the sites' replies.
    """

    def __init__(self, place, data=None, policy=None, seed=0, variables=None):
        self.place = Path(place)
        if data is None:
            rng = np.random.default_rng(seed)
            data, variables = {name: [rng.normal(size=(30, 2))] for name in NAMES}, ("u", "v")
        self.data = {name: list(recordings) for name, recordings in data.items()}
        self.names = tuple(self.data)
        d = np.shape(next(iter(self.data.values()))[0])[1]
        self.variables = tuple(variables or (f"x{j}" for j in range(d)))
        for name in self.names:
            self.write(name)
        self.entropy = Entropy(seed)
        write_site_files({name: self.place / name for name in self.names}, entropy=self.entropy("keys"))
        for name in self.names if policy is not None else ():
            (self.place / name / "policy.toml").write_text(policy)
        self.endpoints = Endpoints(self)

    @classmethod
    def at(cls, place, names=NAMES, seed=1):
        """The sites that are there already."""
        made = cls.__new__(cls)
        made.place, made.names, made.entropy = Path(place), tuple(names), Entropy(seed)
        made.endpoints = Endpoints(made)
        return made

    def write(self, name):
        """Write a site's recordings to its files; those that were there are gone."""
        folder = self.place / name / "data"
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        for number, values in enumerate(self.data[name]):
            frame = pd.DataFrame(values, columns=list(self.variables))
            frame.to_csv(folder / f"r{number:03d}.csv", index=False, float_format="%.17g")

    def offer(self, name, *recordings):
        """Replace the recordings of a site, and start it again."""
        self.data[name] = list(recordings)
        self.write(name)
        self.restart(name)

    def set_policy(self, old, new):
        """Change the text of every site's policy; sites that run read it when they start again."""
        for name in self.names:
            path = self.place / name / "policy.toml"
            assert old in path.read_text()
            path.write_text(path.read_text().replace(old, new, 1))

    def settings(self, name=None):
        return read_site_settings(self.place / (name or self.names[0]) / "feddbn_site.toml")

    def policy(self, name=None):
        return read_policy(self.settings(name).policy)

    def owner(self, name=None, warn=lambda sentence: None):
        return Owner(self.settings(name), warn)

    def state(self, name=None):
        return self.place / (name or self.names[0]) / "state"

    def key(self, name):
        """A site's secret key."""
        return Identity.from_seed((self.place / name / "identity.key").read_bytes())

    def study(self, method="oneshot", parameters=None, privacy=None, **more):
        """A study of all sites under masks, with exact sums."""
        values = {
            "name": "s",
            "about": ABOUT,
            "method": method,
            "variables": self.variables,
            "sites": self.names,
            "parameters": {"n_lags": 1, **(parameters or {})},
            "privacy": {"secure_aggregation": True, "protection": "exact", **(privacy or {})},
        }
        return Study(**{**values, **more})

    def approve(self, study, names=None, runs=1, days=DEFAULT_DAYS, epsilon=None):
        for name in names or self.names:
            self.owner(name).approve(study, days, runs, epsilon)

    def open(self, name, **more):
        """Start a site beside the one that runs; what it keeps is on disk."""
        return open_site(self.settings(name), name, LOG, entropy=self.entropy(name), **more)

    def restart(self, *names, **more):
        """End these sites, or all, and start them again; return the exchange."""
        for name in names or self.names:
            self.endpoints[name] = None
            self.endpoints[name] = self.open(name, **more)
        return self

    def __call__(self, messages):
        return {name: self.endpoints[name].handle(message) for name, message in messages.items()}

    def coordinator(self, study, run="run-1", exchange=None, journal=None, tell=None):
        """A server's end of a run."""
        journal = MemoryJournal() if journal is None else journal
        return Coordinator(exchange or self, study, run, journal, tell, pause_s=0.0, opening_s=0.0)

    def run(self, study, run="run-1", exchange=None, journal=None):
        """Run a study over sites that have just started, or over an exchange; return the result and who received it."""
        return run_study(self.coordinator(study, run, exchange or self.restart(), journal), study)

    def curious(self, study, run="run"):
        """Run a study; return the result, or why there is none, and what an honest but curious server has read on the way."""
        heard = []
        coordinator = self.coordinator(study, run)
        ask = coordinator.sum

        def kept(task):
            total = ask(task)
            heard.append((task, np.array(total.value)))
            return total

        coordinator.sum = kept
        try:
            return run_study(coordinator, study)[0], heard
        except FeddbnError as error:
            return error, heard

    def log(self, name, run):
        """What a site's log says of a run, or of the site itself (`_site`)."""
        return entries_of(self.state(name), run)

    def log_lines(self, name, run):
        return log_lines(self.state(name), run)

    def refusals(self, name, run):
        """What a site refused in a run and why, as its owner reads it."""
        return [entry for entry in self.log(name, run) if entry.event == "refused"]

    def events(self, name, run):
        """What a site told its owner during a run."""
        lines = (self.state(name) / run / "events.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def damage(self, name, sql, *values):
        """Change a site's store as somebody who can write the file; return how many rows that has changed."""
        return changed(self.state(name), sql, *values)

    def moments(self, name):
        """A site's own answer about moments of rows and their lags: count, totals, products."""
        rows = np.vstack([np.hstack([x[1:], x[:-1]]) for x in self.data[name]])
        products = (rows.T @ rows)[np.triu_indices(rows.shape[1])]
        return np.concatenate([[len(rows)], rows.sum(axis=0), products])

    def noise_guard(self, name):
        """The guard that adds a site's noise: what a site knows about its own share."""
        (found,) = (g for g in self.endpoints[name]._site.guards if isinstance(g, DpGuard))
        return found


class Endpoints(dict):
    """Sites that run; each is started when it is first spoken to."""

    def __init__(self, sites):
        super().__init__()
        self._sites = sites

    def __missing__(self, name):
        self[name] = self._sites.open(name)
        return self[name]


@dataclass(frozen=True)
class Raw:
    """A question as it travels, with whatever a hostile server puts into it."""

    name: str
    params: dict = field(default_factory=dict)
    arrays: dict = field(default_factory=dict)


def raw(name, params=None, arrays=None, participants=None):
    """A task of anything."""
    arrays = {key: np.asarray(value, dtype=float) for key, value in (arrays or {}).items()}
    return Task(Raw(name, dict(params or {}), arrays), participants)


class Refused(Exception):
    """What sites said no with: `told` is site -> sentence, `codes` is site -> code."""

    def __init__(self, told, codes):
        super().__init__(" ".join(told.values()))
        self.told, self.codes = told, codes


class Liar:
    """A server that asks what it likes; it greets the sites of its study, or `names`.

    `seq` and `after` are the number of the last task and of the last one that was answered, as it tells sites.
    """

    def __init__(self, sites, study, run="run", names=None, threshold=None, greet=True):
        self.sites, self.study, self.run = sites, study, run
        self.names = tuple(sorted(names or study.sites))
        self.masks = SecAggServer(run, study.privacy.min_sites, threshold)
        self.seq = self.after = -1
        self.told, self.codes = {}, {}
        if greet:
            self.greet()

    def greet(self, *names):
        """Send the study to sites; a refusal is raised."""
        message = encode_request(
            Request("hello", self.run, meta={"study": self.study.to_json(), "version": __version__})
        )
        for name in names or self.names:
            read_reply(self.sites.endpoints[name].handle(message))
        return self

    def again(self):
        """Greet again and agree on keys anew, as after a restart; numbers of tasks go on."""
        self.greet()
        self.masks = SecAggServer(self.run, self.study.privacy.min_sites)

    def ask(self, messages, seq=None, after=None):
        """Send messages of secure aggregation and return the replies; who said no is in `told` and `codes`."""
        numbers = max(self.seq, 0) if seq is None else seq, self.after if after is None else after
        replies = {}
        for name, message in messages.items():
            inner = {"message": np.frombuffer(encode(*message), dtype=np.uint8)}
            request = encode_request(Request("secagg", self.run, *numbers, arrays=inner))
            try:
                reply = read_reply(self.sites.endpoints[name].handle(request))
                replies[name] = read_secure_reply(reply.arrays["message"].tobytes())
            except (FederationError, PrivacyError) as error:
                self.told[name], self.codes[name] = str(error), error.code
        return replies

    def keys(self, n_slots=8):
        """Agree on keys for so many sums."""
        self._hear()
        adverts = self.ask(dict.fromkeys(self.names, self.masks.begin_epoch(n_slots)))
        self._all_or_refused(adverts)
        shares = self.ask(dict.fromkeys(adverts, self.masks.roster_request(adverts)))
        self._all_or_refused(shares)
        self.masks.ready(self.ask(self.masks.deliveries(shares)))
        return self

    def request(self, question, participants=None, params=None):
        """Open a slot for a question; return what a site that is asked it gets."""
        task = question if isinstance(question, Task) else Task(question, participants)
        fields = task.fields() if params is None else {**task.fields(), "params": params}
        order = self.masks.open_slot(task_digest(fields, task.arrays), task.participants)
        return {**self.masks.masked_request(order), "task": fields}, dict(task.arrays)

    def mask_each(self, questions, seq=0):
        """Ask each site something else in one slot; nothing is opened."""
        order = None
        for name, question in questions.items():
            task = Task(question)
            digest = task_digest(task.fields(), task.arrays)
            order = order or self.masks.open_slot(digest)
            meta = self.masks.masked_request(Order(order.epoch, order.slot, digest))
            assert self.ask({name: ({**meta, "task": task.fields()}, dict(task.arrays))}, seq)
        self.seq = seq

    def sum(self, question, *, seq=None, after=None, alive=None, params=None, participants=None, shown=None):
        """Return the sum for a question; if there is none, what sites said no with is raised.

        Lies: only the sites `alive` are asked, others are called drop-outs; `shown` is another number for the task when it
        is opened; `params` are parameters that the question does not have.
        """
        if self.masks.slots_left == 0:
            self.keys()
        self._hear()
        self.seq = self.seq + 1 if seq is None else seq
        self.after = self.after if after is None else after
        message = self.request(question, participants, params)
        asked = [name for name in self.masks.roster if alive is None or name in alive]
        try:
            self.masks.collect(self.ask(dict.fromkeys(asked, message)))
            signed = self.ask(self.masks.survivor_requests()) if self.masks.lacks_sites else None
            opened = self.masks.open(self.ask(self.masks.unmask_requests(signed), shown))
        except (FederationError, PrivacyError) as error:
            raise (Refused(self.told, self.codes) if self.told else error) from None
        self.after = self.seq
        return opened

    def refused(self, question, code, *names, site=None, **lies):
        """Expect a refusal for what data or rules say: the server hears one sentence, the owner reads why."""
        with pytest.raises(Refused) as caught:
            self.sum(question, **lies)
        assert {one.partition("refused: ")[2] for one in caught.value.told.values()} == {WITHHELD}
        last = self.sites.refusals(site or self.sites.names[0], self.run)[-1]
        assert last.code == code, (last.code, last.note)
        assert [name for name in names if str(name) not in last.note] == [], last.note

    def malformed(self, question, *names):
        """Expect a refusal for what a question is, whatever the data are: that may be said."""
        with pytest.raises(Refused) as caught:
            self.sum(question)
        for told in caught.value.told.values():
            assert WITHHELD not in told
            assert [name for name in names if str(name) not in told] == [], told

    def closed(self, question, code, *names, **lies):
        """Expect that sites keep a sum closed, and say so with this code."""
        with pytest.raises(Refused) as caught:
            self.sum(question, **lies)
        assert code in caught.value.codes.values(), (caught.value.codes, caught.value.told)
        assert [name for name in names if str(name) not in str(caught.value)] == [], caught.value.told

    def _hear(self):
        self.told, self.codes = {}, {}

    def _all_or_refused(self, replies):
        if self.told:
            raise Refused(self.told, self.codes)


def as_kits(place) -> None:
    """Give the sites what kits are known by, and their settings where these have them."""
    for name in NAMES:
        (Path(place) / name / "startup").mkdir()
        (Path(place) / name / "local").symlink_to(".")
