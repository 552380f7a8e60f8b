"""Real endpoints of deployed sites (settings, policy, store, audit, keys on disk) and a server that may say anything."""

import logging
from pathlib import Path

import numpy as np

from feddbn._version import __version__
from feddbn.core.encoding import encode
from feddbn.federation.protocol.messages import Request, encode_request, read_reply
from feddbn.federation.protocol.study import parse_study
from feddbn.federation.protocol.task import Task, task_digest
from feddbn.privacy.policy import SitePolicy
from feddbn.privacy.secagg import Order
from feddbn.privacy.secagg_server import SecAggServer
from feddbn.runtime.masked import read_secure_reply
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.kit_files import write_site_files
from feddbn.runtime.site.open_site import open_site
from support.entropy import Entropy
from support.study_files import ABOUT_LINE

LOG = logging.getLogger("redteam")
LOG.setLevel(logging.CRITICAL)


class Sites:
    """K sites with data of their own scale; `policy` is added to the default one."""

    def __init__(self, root, k=4, d=3, rows=200, n_recordings=1, policy="", seed=0):
        self.root = Path(root)
        self.names = [f"s{i}" for i in range(k)]
        self.variables = tuple(f"x{i}" for i in range(d))
        rng = np.random.default_rng(seed)
        self.data = {}
        self.places = {name: self.root / name for name in self.names}
        for i, (name, place) in enumerate(self.places.items()):
            (place / "data").mkdir(parents=True)
            self.data[name] = [rng.normal(size=(rows, d)) * (1 + i) + i for _ in range(n_recordings)]
            self.write(name)
        self.entropy = Entropy(seed)
        write_site_files(self.places, entropy=self.entropy("keys"))
        if "approve_by_rule" in SitePolicy.model_fields:
            policy = f"approve_by_rule = true\n{policy}"
        for place in self.places.values():
            with open(place / "policy.toml", "a", encoding="utf-8") as file:
                file.write(policy)
        self.ends = {}
        for name in self.names:
            self.restart(name)

    def write(self, name):
        """Write a site's data to its files."""
        for r, values in enumerate(self.data[name]):
            path = self.places[name] / "data" / f"r{r:03d}.csv"
            header = ",".join(self.variables)
            np.savetxt(path, values, delimiter=",", header=header, comments="", fmt="%.17g")

    def restart(self, name):
        """A new process would read the same files."""
        settings = read_site_settings(self.places[name] / "feddbn_site.toml")
        self.ends[name] = open_site(settings, name, LOG, entropy=self.entropy(name))

    def study(self, method="fdbnl", sites=None, parameters="", privacy="", variables=None):
        """A study under masks over these sites."""
        chosen = (variables or self.variables, sites or self.names)
        listed = [", ".join(f'"{one}"' for one in names) for names in chosen]
        return parse_study(
            f'name = "st"\nmethod = "{method}"\nvariables = [{listed[0]}]\nsites = [{listed[1]}]\n{ABOUT_LINE}'
            f"[parameters]\nn_lags = 1\n{parameters}\n"
            f'[privacy]\nsecure_aggregation = true\nprotection = "exact"\nmin_sites = 3\n{privacy}\n'
        )

    def greet(self, study, run, names=None):
        """Open a run at these sites."""
        message = encode_request(
            Request("hello", run, meta={"study": study.to_json(), "version": __version__})
        )
        return {name: read_reply(self.ends[name].handle(message)) for name in names or study.sites}

    def moments(self, name):
        """What the victim's own answer to `moments` is: count, totals, products of its lagged rows."""
        rows = np.vstack([np.hstack([x[1:], x[:-1]]) for x in self.data[name]])
        products = (rows.T @ rows)[np.triu_indices(rows.shape[1])]
        return np.concatenate([[len(rows)], rows.sum(axis=0), products])


class Server:
    """Speaks secure aggregation; every field of every message is its own choice."""

    def __init__(self, sites, run, names=None, threshold=None, n_slots=8):
        self.sites, self.run, self.n_slots = sites, run, n_slots
        self.names = list(names or sites.names)
        self.masks = SecAggServer(run, 3, threshold)

    def ask(self, messages, seq=0, after=-1):
        """Send and read; a refusal raises."""
        replies = {}
        for name, message in messages.items():
            inner = {"message": np.frombuffer(encode(*message), dtype=np.uint8)}
            request = encode_request(Request("secagg", self.run, seq, after, arrays=inner))
            reply = read_reply(self.sites.ends[name].handle(request))
            replies[name] = read_secure_reply(reply.arrays["message"].tobytes())
        return replies

    def keys(self):
        """Set an epoch up."""
        adverts = self.ask(dict.fromkeys(self.names, self.masks.begin_epoch(self.n_slots)))
        shares = self.ask(dict.fromkeys(self.names, self.masks.roster_request(adverts)))
        self.masks.ready(self.ask(self.masks.deliveries(shares)))
        return self

    def mask_each(self, tasks, seq, after=-1):
        """Ask each site something else in one slot; nothing is opened."""
        order = None
        for name, task in tasks.items():
            digest = task_digest(task.fields(), task.arrays)
            order = order or self.masks.open_slot(digest)
            meta = self.masks.masked_request(Order(order.epoch, order.slot, digest))
            self.ask({name: ({**meta, "task": task.fields()}, dict(task.arrays))}, seq, after)

    def sum(self, question, seq, after=-1, participants=None, alive=None, unmask_seq=None, params=None):
        """Ask for a sum and open it, with lies where the arguments say so."""
        task = Task(question, participants)
        fields = task.fields() if params is None else {**task.fields(), "params": params}
        order = self.masks.open_slot(task_digest(fields, task.arrays), participants)
        meta = {**self.masks.masked_request(order), "task": fields}
        asked = [name for name in self.masks.roster if alive is None or name in alive]
        self.masks.collect(self.ask(dict.fromkeys(asked, (meta, dict(task.arrays))), seq, after))
        seq = seq if unmask_seq is None else unmask_seq
        signed = None
        if self.masks.lacks_sites:
            signed = self.ask(self.masks.survivor_requests(), seq, after)
        return self.masks.open(self.ask(self.masks.unmask_requests(signed), seq, after))
