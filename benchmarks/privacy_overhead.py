"""What masking costs: FDBNL with and without secure aggregation, and one sum against the number of sites.

    python benchmarks/privacy_overhead.py fit [--repeats 5]
    python benchmarks/privacy_overhead.py curve docs/privacy/cost.csv [--sites 5 10 25 50 100 200]
    python benchmarks/privacy_overhead.py plot docs/privacy/cost.csv docs/privacy/cost.svg

CPU time of this process. `fit` plays all sites of a simulation; the key agreement, with masks computed ahead,
is timed apart. `curve` times what one site and the server do alone, without the short cuts of a simulation.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from pictures import save
from threadpoolctl import threadpool_limits

from feddbn.core.encoding import encode
from feddbn.data import read_sites
from feddbn.federation.protocol.site import Site
from feddbn.methods.fdbnl import FDBNL
from feddbn.privacy.keys import Identity, pinned_keys
from feddbn.privacy.register import Register
from feddbn.privacy.secagg_server import SecAggServer
from feddbn.privacy.secagg_site import SecAggSite
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.secure import secure_federation
from feddbn.sim.simulation import simulate


def fit(n_sites: int, d: int, n_repeats: int, schedule: str) -> None:
    """Print ms a round of plain and masked FDBNL, interleaved, and their ratios."""
    data = read_sites(simulate(d=d, n_sites=n_sites, n_samples=60 * n_sites, random_state=0).sites)

    def sites() -> dict[str, Site]:
        return {name: Site(name, site) for name, site in data.items()}

    times: dict[str, list[float]] = {name: [] for name in ("plain", "masked", "keys")}
    networks = []
    for _ in range(n_repeats):
        start = time.process_time()
        one = FDBNL(federation=InProcessFederation(sites()), schedule=schedule).fit(None)
        times["plain"].append(1e3 * (time.process_time() - start) / one.n_rounds_)
        secure = secure_federation(sites())
        start = time.process_time()
        secure.agree_on_keys(min(one.n_rounds_ + 5, 1200), length=2 * d * d + d + 1)
        times["keys"].append(1e3 * (time.process_time() - start) / one.n_rounds_)
        start = time.process_time()
        two = FDBNL(federation=secure, schedule=schedule).fit(None)
        times["masked"].append(1e3 * (time.process_time() - start) / two.n_rounds_)
        networks.append(np.array_equal(one.W_ != 0, two.W_ != 0) and np.array_equal(one.A_ != 0, two.A_ != 0))
    masked = np.array(times["masked"])
    print(
        f"K={n_sites} d={d} {schedule}: {two.n_rounds_} rounds, same network in {sum(networks)}/{n_repeats} runs"
    )
    print(
        f"  masked {masked.mean():.2f} +- {masked.std():.2f} ms a round; set-up {np.mean(times['keys']):.2f} ms"
    )
    ratio = masked / np.array(times["plain"])
    print(
        f"  plain {np.mean(times['plain']):.2f} ms a round, ratio {ratio.mean():.2f} +- {ratio.std():.2f}",
        flush=True,
    )


def curve(path: Path, counts: list[int], n: int = 821, n_slots: int = 4) -> None:
    """Write one row for each number of sites; rows that are there are kept."""
    done = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["sites"])
    for n_sites in counts:
        if n_sites not in set(done["sites"]):
            row = {"sites": n_sites, **one_point(n_sites, n, n_slots)}
            done = pd.concat([done, pd.DataFrame([row])], ignore_index=True).sort_values("sites")
            done.to_csv(path, index=False, float_format="%.4g")
            print(row, flush=True)


def one_point(n_sites: int, n: int, n_slots: int) -> dict[str, float]:
    names = [f"s{k:03d}" for k in range(n_sites)]
    identities = {name: Identity.from_seed(os.urandom(32)) for name in names}
    pinned = pinned_keys(identities)
    # A sum with all sites and one without some would be refused, but for noise.
    sites = {
        name: SecAggSite(name, identities[name], pinned, "run", os.urandom, register=Register(noisy=True))
        for name in names
    }
    vectors = {name: np.random.default_rng(k).normal(size=n) for k, name in enumerate(names)}
    server = SecAggServer("run")
    at_site: Counter[str] = Counter()
    sizes: Counter[str] = Counter()

    def ask(messages: dict, phase: str) -> dict:
        start = time.process_time()
        replies = {
            name: sites[name].handle(*message, lambda name=name: vectors[name])
            for name, message in messages.items()
        }
        at_site[phase] += time.process_time() - start
        # Encoding is timed with neither: here it only tells the sizes.
        sizes[phase] += len(encode(*next(iter(messages.values())))) + len(
            encode(*next(iter(replies.values())))
        )
        at_site["asking"] += time.process_time() - start
        return replies

    start = time.process_time()
    adverts = ask(dict.fromkeys(names, server.begin_epoch(n_slots)), "keys")
    shares = ask(dict.fromkeys(names, server.roster_request(adverts)), "keys")
    server.ready(ask(server.deliveries(shares), "keys"))
    server_keys = time.process_time() - start - at_site["asking"]
    opened = {}
    for what, alive in (("all", names), ("tenth lost", names[max(1, n_sites // 10) :])):
        before = at_site["asking"]
        start = time.process_time()
        order = server.open_slot(what)
        server.collect(ask(dict.fromkeys(alive, (server.masked_request(order), {})), "sum"))
        signed = ask(server.survivor_requests(), "sum") if server.lacks_sites else None
        value = server.open(ask(server.unmask_requests(signed), "sum")).value
        opened[what] = time.process_time() - start - (at_site["asking"] - before)
        np.testing.assert_allclose(value, sum(vectors[name] for name in alive), rtol=1e-9, atol=1e-9)
        if what == "all":
            site_sum = at_site["sum"]
            sum_bytes = sizes["sum"]
    return {
        "site_keys_ms": 1e3 * at_site["keys"] / n_sites,
        "site_sum_ms": 1e3 * site_sum / n_sites,
        "server_keys_ms": 1e3 * server_keys,
        "server_sum_ms": 1e3 * opened["all"],
        "server_sum_lost_ms": 1e3 * opened["tenth lost"],
        "site_keys_kb": sizes["keys"] / 1e3,
        "site_sum_kb": sum_bytes / 1e3,
    }


def plot(path: Path, target: Path) -> None:
    """Draw the curve in the style of the package's own figures."""
    from feddbn.report.curve_plots import plot_path

    frame = pd.read_csv(path)
    frame = frame.rename(
        columns={
            "site_sum_ms": "a site, one sum",
            "site_keys_ms": "a site, keys for 4 sums",
            "server_sum_ms": "the server, one sum",
            "server_sum_lost_ms": "the server, a tenth of the sites lost",
        }
    )
    columns = [name for name in frame.columns if name.startswith(("a site", "the server"))]
    ax = plot_path(frame, x="sites", columns=columns, y_label="CPU milliseconds")
    ax.set_yscale("log")
    ax.set_xticks(frame["sites"], [str(k) for k in frame["sites"]])
    ax.minorticks_off()
    save(ax, target)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["fit", "curve", "plot"])
    parser.add_argument("rows", type=Path, nargs="?", default=Path("docs/privacy/cost.csv"))
    parser.add_argument("target", type=Path, nargs="?", default=Path("docs/privacy/cost.svg"))
    parser.add_argument("--sites", type=int, nargs="+", default=[5, 10, 25, 50, 100, 200])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    if given.what == "fit":
        for schedule in ("gram", "rounds", "paper"):
            fit(10, 20, given.repeats, schedule)
    elif given.what == "curve":
        curve(given.rows, given.sites)
    else:
        plot(given.rows, given.target)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
