"""Many sites and two keepers on one machine: seconds, bytes and memory of a whole study, file by file.

    python benchmarks/keepers_thousand.py            # 1,000 sites, 4 variables, one lag
    python benchmarks/keepers_thousand.py 100 4      # 100 sites

Every site has its folder, keys, policy, register and audit log, as a deployed one has; sites answer one after the other in
this process. What is counted for a site is what a real one would do and send. Making folders and data is not counted.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import feddbn
from feddbn.engine import conduct, make_sites, open_keeper, open_site
from feddbn.federation.protocol.messages import read_request
from feddbn.federation.protocol.study import Study

KEEPERS = ("keeper-a", "keeper-b")
POLICY = 'approve_by_rule = true\ntasks = ["survey.*", "agree", "gram.*", "counts.*", "residuals.*"]\n'
ROWS = 100


class Counted:
    """An exchange within this process that counts messages, bytes and CPU seconds by role and kind."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._ends = {
            name: open_keeper(folder) if name in KEEPERS else open_site(folder)
            for name, folder in folders.items()
        }
        self.messages: dict[str, int] = defaultdict(int)
        self.asked: dict[str, int] = defaultdict(int)
        self.answered: dict[str, int] = defaultdict(int)
        self.seconds: dict[str, float] = defaultdict(float)

    def __call__(self, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """Deliver each message."""
        replies = {}
        for name, message in messages.items():
            what = f"{name if name in KEEPERS else 'site'} {read_request(message).kind}"
            start = time.process_time()
            replies[name] = self._ends[name].handle(message)
            self.seconds[what] += time.process_time() - start
            self.messages[what] += 1
            self.asked[what] += len(message)
            self.answered[what] += len(replies[name])
        return replies


def main(n_sites: int = 1000, d: int = 4) -> None:
    """Run one study and print what it took."""
    names = tuple(f"site-{k:04d}" for k in range(n_sites))
    drawn = feddbn.simulate(d=d, n_lags=1, n_sites=n_sites, n_samples=ROWS * n_sites, random_state=700)
    with tempfile.TemporaryDirectory() as place:
        folders = make_sites(place, names, KEEPERS)
        for name, recordings in zip(names, drawn.sites.values(), strict=True):
            recordings[0].to_csv(folders[name] / "data" / "one.csv", index=False)
            (folders[name] / "policy.toml").write_text(POLICY)
        study = Study(
            name="thousand",
            about={"purpose": "a measurement", "contact": "lead@example.org", "retention": "a day"},
            method="oneshot",
            variables=tuple(next(iter(drawn.sites.values()))[0].columns),
            sites=names,
            rows=2 * ROWS * n_sites,
            parameters={"n_lags": 1, "noise_variance": "free", "resamples": 0, "check_residuals": False},
            privacy={"keepers": KEEPERS, "min_sites": 3},
            attendance={"when_missing": "continue", "min_sites": max(3, 2 * n_sites // 3)},
        )
        exchange = Counted(folders)
        start, begun = time.perf_counter(), time.process_time()
        result = conduct(study, exchange, Path(place) / "server", run="thousand")
        seconds, used = time.perf_counter() - start, time.process_time() - begun
        outcome = json.loads((Path(place) / "server" / "thousand" / "outcome.json").read_text())
    network = drawn.truth
    found = np.abs(result.arrays["W"]) > 0.1, np.abs(result.arrays["A"]) > 0.1
    wrong = (
        int((found[0] != (np.abs(network.W) > 0.1)).sum()),
        int((found[1] != (np.abs(network.A) > 0.1)).sum()),
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{n_sites} sites, d = {d}, {ROWS} rows each: {seconds:.1f} s, {used:.1f} s of CPU, {peak:.0f} MiB at most"
    )
    print(f"state {outcome['state']}, absent {len(outcome['absent'])}, wrong edges {wrong[0]} and {wrong[1]}")
    print("| message | number | bytes to it, each | bytes back, each | CPU ms each |")
    print("|---|---|---|---|---|")
    for what, n in sorted(exchange.messages.items()):
        each = (exchange.asked[what] / n, exchange.answered[what] / n, 1000 * exchange.seconds[what] / n)
        print(f"| {what} | {n} | {each[0]:,.0f} | {each[1]:,.0f} | {each[2]:.1f} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
