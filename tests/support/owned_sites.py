"""Deployed sites in this process with their own keys, policies and state on disk, as their owners have them."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd

from feddbn import AS_THEY_ARE
from feddbn.analysis import studies  # noqa: F401 (registers the methods)
from feddbn.federation.protocol.study import Study
from feddbn.runtime.server.conduct import run_study
from feddbn.runtime.server.coordinator import Coordinator
from feddbn.runtime.settings import read_site_settings
from feddbn.runtime.site.kit_files import write_site_files
from feddbn.runtime.site.open_site import open_site
from feddbn.runtime.site.owner import DEFAULT_DAYS, Owner
from support.entropy import Entropy
from support.faults import LocalExchange, MemoryJournal
from support.study_files import ABOUT

NAMES = ("north", "south", "west")
# A study's file has no word for None: an empty list are no periods, too.
PREPARE = {**AS_THEY_ARE, "period": []}
ONE_SUM = {"n_lags": 1, "use_nongaussian": False, "check_residuals": False, "prepare": PREPARE}


class OwnedSites:
    """Three sites below a directory; `exchange` opens their endpoints anew."""

    def __init__(self, place: Path, policy: str | None = None) -> None:
        self.place = Path(place)
        rng = np.random.default_rng(0)
        for name in NAMES:
            (self.place / name / "data").mkdir(parents=True)
            frame = pd.DataFrame(rng.normal(size=(30, 2)), columns=["u", "v"])
            frame.to_csv(self.place / name / "data" / "one.csv", index=False)
        self.entropy = Entropy()
        write_site_files({name: self.place / name for name in NAMES}, entropy=self.entropy("keys"))
        for name in NAMES if policy is not None else ():
            (self.place / name / "policy.toml").write_text(policy)

    @classmethod
    def at(cls, place: Path, seed: int = 1) -> OwnedSites:
        """The sites that are there already."""
        made = cls.__new__(cls)
        made.place, made.entropy = Path(place), Entropy(seed)
        return made

    def settings(self, name="north"):
        return read_site_settings(self.place / name / "feddbn_site.toml")

    def owner(self, name="north", warn=lambda sentence: None):
        return Owner(self.settings(name), warn)

    def state(self, name="north"):
        return self.place / name / "state"

    def approve(self, study, names=NAMES, runs=1, days=DEFAULT_DAYS, epsilon=None):
        for name in names:
            self.owner(name).approve(study, days, runs, epsilon)

    def open(self, name, **more):
        """Start a site."""
        return open_site(
            self.settings(name), name, logging.getLogger("test"), entropy=self.entropy(name), **more
        )

    def exchange(self, **more):
        def make(name):
            return self.open(name, **more)

        return LocalExchange(NAMES, make)

    def run(self, study, run_id="run-1", exchange=None, journal=None):
        exchange = exchange or self.exchange()
        coordinator = Coordinator(
            exchange, study, run_id, journal or MemoryJournal(), pause_s=0.0, opening_s=0.0
        )
        return run_study(coordinator, study)


def as_kits(place: Path) -> None:
    """Give the sites what kits of the engine are known by, and their settings where these have them."""
    for name in NAMES:
        (Path(place) / name / "startup").mkdir()
        (Path(place) / name / "local").symlink_to(".")


def make_study(**changes) -> Study:
    """One masked sum of moments over the three sites."""
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
