"""What one masked sum costs a site and a server, by the number of sites.

    python benchmarks/sum_cost.py [--sites 10 25 50 100 200]

Measures what one site and one server do in rosters of several sizes (CPU time of one core), and fits the cost of a roster of
m members to them: a + b m, and where work is quadratic + c m^2.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter

import numpy as np
from threadpoolctl import threadpool_limits
from timing import Table

from feddbn.core.arrays import FloatArray
from feddbn.federation.protocol.encoding import encode
from feddbn.privacy.keys import Identity, pinned_keys
from feddbn.privacy.secagg_server import SecAggServer
from feddbn.privacy.secagg_site import SecAggSite

LENGTH = 821
"""Numbers of an answer: a round of FDBNL with d = 20 and one lag."""
SLOTS = 4
WHAT = {
    "site_keys_ms": ("a site, keys for 4 sums, ms", 2),
    "site_sum_ms": ("a site, one sum, ms", 1),
    "server_keys_ms": ("a server, keys for 4 sums, ms", 2),
    "server_sum_ms": ("a server, one sum, ms", 2),
    "site_keys_kb": ("a site, keys, kB both ways", 1),
    "site_sum_kb": ("a site, one sum, kB both ways", 1),
}


def fitted(sizes: list[int], costs: list[float], degree: int) -> FloatArray:
    """Non-negative coefficients of 1, m, m^2, by least squares of relative errors."""
    from scipy.optimize import nnls

    m, y = np.array(sizes, dtype=float), np.array(costs)
    powers = np.vander(m, degree + 1, increasing=True)
    return np.asarray(nnls(powers / y[:, None], np.ones(len(m)))[0])


def one_point(n_sites: int, n: int, n_slots: int) -> dict[str, float]:
    """What one sum of n numbers costs a site and the server, each timed alone."""
    names = [f"s{k:03d}" for k in range(n_sites)]
    identities = {name: Identity.from_seed(os.urandom(32)) for name in names}
    pinned = pinned_keys(identities)
    sites = {name: SecAggSite(name, identities[name], pinned, "run", os.urandom) for name in names}
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
    before = at_site["asking"]
    start = time.process_time()
    order = server.open_slot("all")
    server.collect(ask(dict.fromkeys(names, (server.masked_request(order), {})), "sum"))
    value = server.open(ask(server.unmask_requests(None), "sum")).value
    opened = time.process_time() - start - (at_site["asking"] - before)
    np.testing.assert_allclose(value, sum(vectors.values()), rtol=1e-9, atol=1e-9)
    return {
        "site_keys_ms": 1e3 * at_site["keys"] / n_sites,
        "site_sum_ms": 1e3 * at_site["sum"] / n_sites,
        "server_keys_ms": 1e3 * server_keys,
        "server_sum_ms": 1e3 * opened,
        "site_keys_kb": sizes["keys"] / 1e3,
        "site_sum_kb": sizes["sum"] / 1e3,
    }


def measured(sizes: list[int]) -> Table:
    rows = [one_point(m, LENGTH, SLOTS) for m in sizes]
    table = Table(
        f"One roster, answers of {LENGTH} numbers",
        ["", *(f"m = {m}" for m in sizes), "1", "m", "m^2"],
        note="CPU time of one core; the last columns are the fit. Kilobytes are of messages as they travel.",
    )
    for key, (words, degree) in WHAT.items():
        model = fitted(sizes, [row[key] for row in rows], degree)
        table.add(words, *(row[key] for row in rows), *model, *([None] * (2 - degree)))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sites", type=int, nargs="+", default=[10, 25, 50, 100, 200])
    given = parser.parse_args()
    with threadpool_limits(1):
        print(measured(given.sites).text(), flush=True)


if __name__ == "__main__":
    main()
