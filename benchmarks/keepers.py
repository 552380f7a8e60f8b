"""Two keepers instead of masks: what a poisoned site can do, what a sum costs, and what rounding changes.

    python benchmarks/keepers.py poison [--seeds 700-799]
    python benchmarks/keepers.py cost [--columns 40 200] [--sites 8]
    python benchmarks/keepers.py rounding [--seeds 700-709]

`poison`: eight sites of 500 rows, networks of 6 to 10 variables; one site wants an edge x -> y that is not there. It knows
everything and sends the matrix that moves the weight of x most in the regression of y on its parents and x. Its pull is the
change of that weight in units of standard deviations, and of what the regression leaves of y by what the others leave of x.
What keepers would refuse is sent to them anyhow, with the best proof there is. Under masks the same site sends any numbers.

`cost`: one sum of all products of q columns. Milliseconds are CPU time of one core.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace

import numpy as np
from privacy_overhead import one_point
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits
from timing import Table, cpu_seconds

from feddbn import OneShotDBN, simulate
from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.moments import Moments, sums_length, symmetric, upper_triangle
from feddbn.data import read_sites
from feddbn.errors import AggregationError
from feddbn.federation.protocol.batches import most_weight
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Sum, Task, parts_of
from feddbn.privacy.prio3.field import FIELD128, Elements
from feddbn.privacy.prio3.moments import KAPPA, Limits, MomentsVdaf, _projected
from feddbn.runtime.simulated.in_process import InProcessFederation

ROWS, SITES = 500, 8
NOTICED = 0.5
"""What of the earlier sum is found again, below which somebody has made it larger."""


# One sum by way of two keepers.


def opened(vdaf: MomentsVdaf, reports: list[tuple[bytes, tuple[bytes, list[bytes]]]]) -> FloatArray:
    """The sum of (nonce, report); raises if one is not valid."""
    key, found = os.urandom(32), []
    for nonce, (public, shares) in reports:
        states = [vdaf.verify_init(key, k, nonce, public, shares[k]) for k in (0, 1)]
        told = [share for _, share in states]
        found.append([vdaf.verify_finish(state, told) for state, _ in states])
    return vdaf.unshard([vdaf.add(one) for one in zip(*found, strict=True)], len(reports))


def report(vdaf: MomentsVdaf, vector: FloatArray) -> tuple[bytes, tuple[bytes, list[bytes]]]:
    nonce = os.urandom(16)
    return nonce, vdaf.shard(vector, nonce, os.urandom(vdaf.rand_size))


class Hostile(MomentsVdaf):
    """A site that checks nothing, and proves what it sends as well as it can."""

    def _fit(self, vector):
        matrices, rows = [], []
        for block, units in zip(self._layout.blocks, self._units, strict=True):
            whole = np.linalg.solve(units.T, symmetric(vector[block.entries], block.m))
            matrices.append(np.linalg.solve(units.T, whole.T))
            rows.append(min(float(vector[block.start]), self.limits.max_rows))
        return matrices, np.zeros(self.length), tuple(rows), (1.0,) * len(rows), 0.0

    def _late(self, early, seed) -> Elements:
        # Digits that do not fit are left out.
        layout = self._layout
        seen = FIELD128.ints(_projected(seed, FIELD128.array(early[layout.projected])), signed=True)
        shifted = [int(x) + (1 << (layout.n_bits - 1)) for x in seen]
        return FIELD128.array(
            np.array([(x >> k) & 1 for x in shifted for k in range(layout.n_bits)], dtype=object)
        )


# A poisoned site.


class Target:
    """Sites, an edge x -> y that is not there, and what a matrix in place of the last site's does to it."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        d = int(rng.integers(6, 11))
        net = simulate(d=d, n_lags=1, n_sites=SITES, n_samples=ROWS * SITES, random_state=seed)
        C = np.vstack([np.asarray(net.truth.W), np.asarray(net.truth.A).reshape(-1, d, d)[0]])
        rows = [np.asarray(recordings[0], dtype=float) for recordings in net.sites.values()]
        rows = [np.hstack([x[1:], x[:-1]]) for x in rows]
        origin = np.concatenate(rows).mean(axis=0)
        self.q = 2 * d
        self.sums = [Moments.of_rows(x).to_sums(origin) for x in rows]
        self.n = [float(one[0]) for one in self.sums]
        y = int(rng.integers(d))
        after, todo = {y}, [y]
        while todo:
            new = {int(j) for j in np.flatnonzero(C[todo.pop()])} - after
            after |= new
            todo += new
        x = int(rng.choice([i for i in range(2 * d) if C[i, y] == 0 and i not in after]))
        self.index = [*(int(i) for i in np.flatnonzero(C[:, y])), x, y]
        total = sum(self.sums)
        G = self._inner(total)
        self.S = G / total[0]
        self.clean = self._weight(G)
        deviations = np.sqrt(np.diag(self.S))
        self.unit = deviations[x] / deviations[y]
        part = self.S[np.ix_(self.index, self.index)]
        inverse = np.linalg.inv(part[:-1, :-1])
        left = part[-1, -1] - part[:-1, -1] @ inverse @ part[:-1, -1]
        self.own_unit = 1 / np.sqrt(inverse[-1, -1] * left)

    @property
    def share(self) -> float:
        return self.n[-1] / sum(self.n)

    def _inner(self, sums: FloatArray) -> FloatArray:
        """Products about the mean."""
        return Moments.from_sums(sums, self.q).scatter

    def _weight(self, G: FloatArray) -> float:
        inside = G[np.ix_(self.index, self.index)]
        return float(np.linalg.solve(inside[:-1, :-1], inside[:-1, -1])[-1])

    def pulls(self, sent: FloatArray) -> tuple[float, float]:
        """Change of the weight by what the last site sends, in units of deviations and in units of its own."""
        moved = abs(self._weight(self._inner(sum(self.sums[:-1]) + sent)) - self.clean)
        return moved * self.unit, moved * self.own_unit

    def vector(self, A: FloatArray, n: float) -> FloatArray:
        """The answer with these products of the regression's columns; the others follow from these as among all sites."""
        B = self.S[:, self.index] @ np.linalg.inv(self.S[np.ix_(self.index, self.index)])
        return np.concatenate([[n], np.zeros(self.q), upper_triangle(B @ A @ B.T)])

    def best(self, most: float, seed: int) -> FloatArray:
        """The products, at most `most` times the covariance of all, that move the weight most: a search from starts."""
        part = self.S[np.ix_(self.index, self.index)]
        C, m = np.linalg.cholesky(part), len(self.index)
        others = self._inner(sum(self.sums[:-1]))[np.ix_(self.index, self.index)]
        rng = np.random.default_rng(seed)

        def made(theta: FloatArray, rank: int) -> FloatArray:
            V = np.linalg.qr(theta[: m * rank].reshape(m, rank))[0]
            half = C @ V * np.sqrt(most / (1 + np.exp(-np.clip(theta[m * rank :], -50.0, 50.0))))
            return half @ half.T

        def weight(A: FloatArray) -> float:
            inside = others + A
            return float(np.linalg.solve(inside[:-1, :-1], inside[:-1, -1])[-1])

        # y = x; the direction in which the columns of the regression nearly cancel; and halves of what decides the weight and
        # of what the regression leaves of y.
        same = np.linalg.solve(C, np.eye(m)[:, -1] * C[-1, -1] + np.eye(m)[:, -2] * C[-2, -2])
        weakest = np.append(np.linalg.eigh(part[:-1, :-1])[1][:, 0], 0.0)
        decisive = np.append(np.linalg.inv(part[:-1, :-1])[:, -1], 0.0)
        residual = np.append(-np.linalg.solve(part[:-1, :-1], part[:-1, -1]), 1.0)
        decisive, weakest, residual = (
            v / np.linalg.norm(v) for v in (C.T @ decisive, C.T @ weakest, C.T @ residual)
        )
        starts = [same, decisive + residual, decisive - residual, weakest + residual, rng.normal(size=m)]
        found = [(abs(weight(A) - self.clean), A) for A in (made(np.append(v, 3.0), 1) for v in starts)]
        for sign in (1.0, -1.0):
            for rank, start in ((1, decisive + sign * residual), (2, rng.normal(size=2 * m))):
                theta = np.append(start, np.full(rank, 3.0))
                end = minimize(lambda t, s=sign, r=rank: -s * weight(made(t, r)), theta, method="L-BFGS-B").x
                A = made(np.append(end[: m * rank], np.full(rank, 40.0)) if rank == 1 else end, rank)
                found.append((abs(weight(A) - self.clean), A))
        return max(found, key=lambda one: one[0])[1]

    def within(self, vector: FloatArray, limits: Limits) -> FloatArray:
        """The answer with products as much smaller as limits want."""
        units, _ = limits.units(("gram", self.q))
        inside = np.linalg.solve(units.T, np.linalg.solve(units.T, symmetric(vector, self.q + 1)).T)
        most = float(np.linalg.eigvalsh(inside[1:, 1:])[-1])
        return np.append(vector[0], vector[1:] * min(1.0, vector[0] / most))

    def wanted(self, times: float, weight: float) -> FloatArray:
        """Rows with y = weight * x in units of deviations, and no others, so many times as large as real ones."""
        a = np.zeros(self.q)
        s = np.sqrt(np.diag(self.S))
        a[self.index[-2]], a[self.index[-1]] = s[self.index[-2]], weight * s[self.index[-1]]
        return np.concatenate(
            [[self.n[-1]], np.zeros(self.q), times * self.n[-1] * upper_triangle(np.outer(a, a))]
        )


def poison(seeds: range) -> None:
    pulls: dict[str, list[tuple[float, float]]] = {}
    shares: dict[str, list[float]] = {}
    refused, found, weights, lied = 0, [], [], []

    def add(what: str, pull: tuple[float, float], share: float) -> None:
        pulls.setdefault(what, []).append(pull)
        shares.setdefault(what, []).append(share)

    for seed in seeds:
        target = Target(seed)
        total = sum(target.sums)
        own, n = target.n[-1], sum(target.n)
        limits = Limits((total,), min_rows=50, max_rows=own)
        vdaf = MomentsVdaf([("gram", target.q)], SITES, b"poison", limits)
        weighing = MomentsVdaf([("gram", target.q)], SITES, b"", replace(limits, weighs=True))
        weights += [weighing.fitted(one).weights[0] for one in target.sums]
        # The best there is within the limits, through both keepers.
        sent = opened(vdaf, [report(vdaf, target.vector(target.best(KAPPA * own, seed), own))])
        add("keepers: best within the limits", target.pulls(sent), target.share)
        # What a study lets pass: the sum that bounds the site has what the site itself sends in it.
        most = most_weight(total, SITES)
        own_most = most * (1 - target.share) / (1 - most * target.share)
        others = sum(target.sums[:-1])
        bounded = Limits((others,), kappa=own_most, min_rows=50, max_rows=own)
        within = target.within(target.vector(target.best(own_most * own, seed), own), bounded)
        add("a study with keepers: best within the limits", target.pulls(within), target.share)
        add("keepers: y = x", target.pulls(target.within(target.wanted(1.0, 1.0), limits)), target.share)
        # Ten times the rows, where only a loose limit is public.
        many = target.vector(target.best(KAPPA * 10 * own, seed), 10 * own)
        add(
            "keepers: the same of 10 times the rows, max_rows loose",
            target.pulls(many),
            10 * own / (n + 9 * own),
        )
        # What masks let pass, and keepers that know no earlier sum.
        wild = target.wanted(1e6, 10.0)
        free = MomentsVdaf([("gram", target.q)], SITES, b"poison", Limits(min_rows=50, max_rows=own))
        sent = opened(free, [report(free, wild)])
        add("keepers without an earlier sum: y = 10 x, a million times", target.pulls(sent), target.share)
        add("masks: y = 10 x, a million times", target.pulls(wild), target.share)
        add("masks: y = x, 10 times", target.pulls(target.wanted(10.0, 1.0)), target.share)
        for vector in (wild, target.wanted(10.0, 1.0)):
            try:
                opened(vdaf, [report(Hostile([("gram", target.q)], SITES, b"poison", limits), vector)])
            except AggregationError as error:
                refused += error.code == "bad-proof"
        # The earlier sum made larger first: what it allows then, and what is found of it again.
        larger = Limits((total + target.wanted(100.0, 1.0),), max_rows=own)
        then = target.within(target.wanted(100.0, 1.0), larger)
        lied.append(target.pulls(then)[0] / target.share)
        found.append(larger.found_again([("gram", target.q)], sum(target.sums[:-1]) + then))
    table = Table(
        f"An edge that is not there: pull of one of {SITES} sites on its weight, relative to its share of the rows",
        ["", "share", "median", "largest", "own units: median", "largest", "at most its share"],
        note=f"Seeds {seeds[0]} to {seeds[-1]}, {ROWS} rows a site, kappa = {KAPPA}. In its own units a weight is close to a "
        "partial correlation; in those of standard deviations it is larger where x nearly follows from other parents.",
    )
    for what, given in pulls.items():
        ratio = np.array(given) / np.array(shares[what])[:, None]
        within = f"{int((ratio[:, 0] <= 1).sum())} / {int((ratio[:, 1] <= 1).sum())} of {len(ratio)}"
        share = float(np.median(shares[what]))
        table.add(what, share, *(float(f(ratio[:, k])) for k in (0, 1) for f in (np.median, np.max)), within)
    print(table.text())
    print(f"Sent anyhow, beyond the limits: {refused} of {2 * len(seeds)} refused by both keepers.")
    print(
        f"Weights of honest sites: {np.mean(np.array(weights) < 1):.3f} below 1, the lowest {min(weights):.3f}."
    )
    print(
        f"The earlier sum made larger first: pull {np.median(lied):.2f} times the share (median), {max(lied):.2f} at most; "
        f"found again {np.median(found):.3f} of it, at most {max(found):.3f}, so noticed {np.sum(np.array(found) < NOTICED)} "
        f"of {len(found)} times.",
        flush=True,
    )


# What a sum costs.


def cost(columns: list[int], n_sites: int, repeats: int = 3) -> None:
    table = Table(
        f"One sum of all products of q columns over {n_sites} sites",
        ["q", "", "site sends, kB", "site ms", "keeper ms", "keepers exchange, kB", "server or lead ms"],
        note="Keeper: for each site. Masks: kilobytes both ways; keys for four sums are on top (second row). Bounded: an "
        "earlier sum is known. The lead adds two vectors, whatever the number of sites.",
    )
    for q in columns:
        masked = one_point(n_sites, sums_length(q), 4)
        table.add(
            q, "masks", masked["site_sum_kb"], masked["site_sum_ms"], None, None, masked["server_sum_ms"]
        )
        table.add(
            q,
            "masks, keys",
            masked["site_keys_kb"],
            masked["site_keys_ms"],
            None,
            None,
            masked["server_keys_ms"],
        )
        rng = np.random.default_rng(q)
        rows = 30 * q
        vector = Moments.of_rows(rng.normal(size=(rows, q))).to_sums()
        for what, known in (("keepers, first sum", ()), ("keepers, bounded", (n_sites * vector,))):
            vdaf = MomentsVdaf([("gram", q)], n_sites, b"cost", Limits(known, min_rows=50, max_rows=1 << 20))
            at_site, (nonce, (public, shares)) = cpu_seconds(lambda v=vdaf, x=vector: report(v, x), repeats)
            key, states, told, at_keeper = bytes(32), [], [], 0.0
            for k in (0, 1):
                seconds, (state, share) = cpu_seconds(
                    lambda v=vdaf, i=(key, k, nonce, public, shares[k]): v.verify_init(*i),
                    repeats,
                )
                at_keeper += seconds / 2
                states.append(state)
                told.append(share)
            seconds, outs = cpu_seconds(
                lambda v=vdaf, t=told, s=states: [v.verify_finish(one, t) for one in s], 1
            )
            at_keeper += seconds / 2
            sums = [vdaf.add([out] * n_sites) for out in outs]
            at_lead, total = cpu_seconds(lambda v=vdaf, s=sums: v.unshard(s, n_sites), repeats)
            np.testing.assert_allclose(total, n_sites * vector, rtol=1e-6, atol=1e-4 * rows)
            sent = len(public) + sum(map(len, shares))
            table.add(q, what, sent / 1e3, 1e3 * at_site, 1e3 * at_keeper, len(told[0]) / 1e3, 1e3 * at_lead)
    print(table.text(), flush=True)


# What rounding changes.


class RoundedFederation(InProcessFederation):
    """Sums as two keepers would open them, without the secrets; blocks of columns that were asked for before are bounded."""

    def __init__(self, sites, bounded: bool) -> None:
        super().__init__(sites)
        self.known: dict[int, FloatArray] = {}
        self.bounded, self.weights, self.error = bounded, [], 0.0

    def sum(self, task: Task) -> Sum:
        vectors = [site.answer(task) for site in self._sites.values()]
        parts = parts_of(task.question, len(vectors[0]))
        limits = Limits(tuple(self.known.values()) if self.bounded else (), max_rows=1 << 20, weighs=True)
        vdaf = MomentsVdaf(parts, len(vectors), b"rounding", limits)
        total, exact = sum(map(vdaf.rounded, vectors)), sum(vectors)
        self.weights += [weight for one in vectors for weight in vdaf.fitted(one).weights]
        if parts[0][0] == "gram":
            q = parts[0][1]
            size = sums_length(q)
            root = np.sqrt(np.maximum(np.diag(symmetric(exact[:size], q + 1)), 1e-300))
            gap = symmetric(total[:size] - exact[:size], q + 1) / np.outer(root, root)
            self.error = max(self.error, float(np.abs(gap).max()))
            self.known[q] = total[:size]
        return Sum(total, tuple(self._sites))


def rounding(seeds: range, d: int = 8) -> None:
    table = Table(
        "A network by way of keepers, and the same in one process",
        ["", "same edges", "largest difference of weights", "largest error of products", "rows weighed less"],
    )
    for what, bounded in (("first sums only", False), ("bounded by earlier sums", True)):
        same, gap, error, less = 0, 0.0, 0.0, []
        for seed in seeds:
            data = read_sites(simulate(d=d, n_sites=SITES, n_samples=ROWS * SITES, random_state=seed).sites)

            def sites(data=data):
                return {name: Site(name, one) for name, one in data.items()}

            kept = RoundedFederation(sites(), bounded)
            one = OneShotDBN(federation=InProcessFederation(sites()), random_state=0).fit(None)
            two = OneShotDBN(federation=kept, random_state=0).fit(None)
            pairs = ((one.W_, two.W_), (one.A_, two.A_))
            same += all(np.array_equal(a != 0, b != 0) for a, b in pairs)
            gap = max(gap, *(float(np.abs(a - b).max()) for a, b in pairs))
            error = max(error, kept.error)
            less += kept.weights
        table.add(
            what,
            f"{same} of {len(seeds)}",
            f"{gap:.1e}",
            f"{error:.1e}",
            f"{np.mean(np.array(less) < 1):.3f}",
        )
    print(table.text(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["poison", "cost", "rounding"])
    parser.add_argument("--seeds", default="")
    parser.add_argument("--columns", type=int, nargs="+", default=[40, 200])
    parser.add_argument("--sites", type=int, default=SITES)
    given = parser.parse_args()
    first, last = map(int, (given.seeds or {"poison": "700-799"}.get(given.what, "700-709")).split("-"))
    with threadpool_limits(1):
        start = time.process_time()
        if given.what == "poison":
            poison(range(first, last + 1))
        elif given.what == "cost":
            cost(given.columns, given.sites)
        else:
            rounding(range(first, last + 1))
        print(f"{time.process_time() - start:.0f} s of CPU time")


if __name__ == "__main__":
    main()
