"""Real sites as `open_site` makes them, with their policies, books and noise from a seed."""

import logging

import numpy as np
import pandas as pd

from feddbn.analysis import studies  # noqa: F401 (registers the methods)
from feddbn.federation.guards.noise import DpGuard
from feddbn.federation.protocol.study import Study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.kit_files import write_site_files
from feddbn.runtime.site.open_site import open_site
from support.entropy import Entropy
from support.faults import LocalExchange, MemoryJournal
from support.study_files import ABOUT

NAMES = ("a", "b", "c")
VARIABLES = ("u", "v")


class NoisySites:
    """Sites with given recordings; `coordinator` opens a run as their server."""

    def __init__(self, place, recordings, policy="", seed=0):
        self.place, self.entropy = place, Entropy(seed)
        for name, items in recordings.items():
            (place / name / "data").mkdir(parents=True)
            for number, values in enumerate(items):
                frame = pd.DataFrame(values, columns=list(VARIABLES))
                frame.to_csv(place / name / "data" / f"{number:03d}.csv", index=False)
        self.names = tuple(sorted(recordings))
        write_site_files({name: place / name for name in self.names}, entropy=self.entropy("keys"))
        for name in self.names:
            (place / name / "policy.toml").write_text("approve_by_rule = true\n" + policy)
        self.exchange = LocalExchange(self.names, self.open)

    def open(self, name):
        settings = read_site_settings(self.place / name / "feddbn_site.toml")
        return open_site(settings, name, logging.getLogger("test"), entropy=self.entropy(name))

    def study(self, masked=True, n_lags=1, **privacy):
        return Study(
            name="s",
            about=ABOUT,
            method="oneshot",
            variables=VARIABLES,
            sites=self.names,
            parameters={"n_lags": n_lags},
            privacy={"secure_aggregation": masked, "epsilon": 1.0, **privacy},
            attendance={"when_missing": "abort"},
        )

    def coordinator(self, study, run_id="run-1"):
        made = Coordinator(self.exchange, study, run_id, MemoryJournal(), pause_s=0.0, opening_s=0.0)
        made.hello()
        return made

    def guard(self, name):
        """The guard that adds a site's noise: what a site knows about its own share."""
        (found,) = (g for g in self.exchange.endpoints[name]._site.guards if isinstance(g, DpGuard))
        return found


def noise_rows(rng, n=12, scale=1.0):
    return scale * rng.normal(size=(n, len(VARIABLES)))


def make(place, seed=0, n_recordings=3, policy="", names=NAMES):
    rng = np.random.default_rng(seed)
    recordings = {name: [noise_rows(rng) for _ in range(n_recordings)] for name in names}
    return NoisySites(place, recordings, policy, seed)
