"""Root causes: `DBN.root_causes` with a learned network beside the methods of RCAEval and PyRCA, on the same rows.

    PYTHONPATH=. python benchmarks/roots.py simulated --seeds 700-749  # faults in simulated systems and in a recorded plant

Methods of others run where ``RCAEval`` and ``sfr-pyrca`` are installed. Ours learns `OneShotDBN` from the rows before the
fault and knows no graph. AC@k is the number of true roots among the first k over the smaller of k and their number, Avg@5
the mean of AC@1 to AC@5.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import signal
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple
from unittest import mock

import networkx
import numpy as np
import pandas as pd
from timing import Table

import feddbn
from reproduction.datasets import load_tennessee_eastman

BEFORE, FAULT, THRESHOLD = 600, 10, 3.0
"""Rows before a fault and with it, and how many standard deviations the watched variable is off in each of them."""


class Case(NamedTuple):
    """One fault: rows before it, rows with it, and where it began."""

    group: str
    before: pd.DataFrame
    fault: pd.DataFrame
    roots: set[str]


def simulated(seeds: range, only: str) -> Iterator[Case]:
    """Faults by PyRCA's simulator, in simulated systems with lags, and in the recorded plant."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for kind, group in enumerate(("PyRCA: shift", "PyRCA: noise", "PyRCA: weight")):
            if only in group and importlib.util.find_spec("pyrca"):
                yield _mixed(group, *_pyrca(seed, kind), rng)
        if only in "lags":
            yield _mixed("lags", *_lagged(rng), rng)
        if only in "plant":
            yield _mixed("plant", *_plant(rng), rng)


def _mixed(group: str, before: np.ndarray, fault: np.ndarray, roots: np.ndarray, rng) -> Case:
    """A case with its columns in random order: simulators draw causes first, and no method may know that."""
    order = rng.permutation(before.shape[1])
    names = [f"s{k}_x" for k in range(len(order))]
    frames = (pd.DataFrame(rows[:, order], columns=names) for rows in (before, fault))
    return Case(group, *frames, {names[k] for k in np.flatnonzero(np.isin(order, roots))})


def _pyrca(seed: int, kind: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of PyRCA's simulator: 20 variables, 30 edges, noise of any of its kinds; `kind` is what the fault changes."""
    from pyrca.simulation import data_gen

    children, make = iter(np.random.SeedSequence(seed).spawn(10_000)), np.random.default_rng
    np.random.seed(seed)  # noqa: NPY002
    # It draws from generators without seeds; here these come from one seed.
    with mock.patch.object(
        data_gen.np.random, "default_rng", lambda given=None: make(given or next(children))
    ):
        graph = data_gen.DAGGen(data_gen.DAGGenConfig()).gen()
        config = data_gen.DataGenConfig(graph, func_type="identity", num_samples=BEFORE)
        before, parents, noise, function, law = data_gen.DataGen(config).gen()
        level, spread = before[:, 0].mean(), before[:, 0].std()
        settings = data_gen.AnomalyDataGenConfig(
            parents, noise, law, function, level, THRESHOLD * spread, FAULT, kind
        )
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                fault, changed = data_gen.AnomalyDataGen(settings).gen()
        except TypeError:  # how it says that no fault of any size is seen; another system is drawn
            return _pyrca(seed + 1000, kind)
    return before, fault, np.flatnonzero(changed if changed.ndim == 1 else changed.any(axis=0))


def _lagged(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """20 variables with memory and 30 edges, half of them one step late; one or more roots get shifted noise."""
    d, W, A = 20, np.zeros((20, 20)), np.zeros((20, 20))
    ends = [(rng.integers(k), k) for k in range(1, d)] + [np.sort(rng.choice(d, 2, False)) for _ in range(11)]
    for effect, cause in ends:
        weight = rng.choice([-1, 1]) * rng.uniform(0.3, 0.9)
        (W if rng.random() < 0.5 else A)[cause, effect] = weight
    A += np.diag(rng.uniform(0.0, 0.6, d))
    n, roots = BEFORE + 100 + FAULT, rng.choice(np.arange(1, d), min(1 + rng.poisson(1), d - 1), False)
    noise, size = rng.normal(size=(n, d)) * rng.uniform(0.5, 2.0, d), rng.exponential(size=len(roots))
    while True:
        u = noise.copy()
        u[-FAULT:, roots] += size
        rows, impact = np.zeros((n, d)), np.linalg.inv(np.eye(d) - W)
        for t in range(1, n):
            rows[t] = (u[t] + rows[t - 1] @ A) @ impact
        rows = rows[100:]
        off = np.abs(rows[-FAULT:, 0] - rows[:-FAULT, 0].mean()) / rows[:-FAULT, 0].std()
        if off.max() > THRESHOLD:
            return rows[:-FAULT], rows[-FAULT:], roots
        size = size * 1.5


def _plant(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of a chemical plant; the fault is added to what regressions along its engineers' graph leave of one variable."""
    data = load_tennessee_eastman()
    x = data.sites["plant"][0].to_numpy(dtype=float)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    A = np.zeros((x.shape[1],) * 2)
    for j in range(len(A)):
        causes = np.flatnonzero(data.truth[:, j] | (np.arange(len(A)) == j))
        A[causes, j] = np.linalg.lstsq(x[:-1, causes], x[1:, j], rcond=None)[0]
    A *= min(1.0, 0.98 / np.abs(np.linalg.eigvals(A)).max())
    begin, root = rng.integers(BEFORE + 1, len(x) - FAULT), rng.integers(len(A))
    u = x[1:] - x[:-1] @ A
    u[begin - 1 : begin - 1 + FAULT, root] += rng.uniform(3, 8) * u[:, root].std()
    for t in range(begin, begin + FAULT):
        x[t] = u[t - 1] + x[t - 1] @ A
    return x[begin - BEFORE : begin], x[begin : begin + FAULT], np.array([root])


# Who ranks.


def ours(case: Case) -> list[str]:
    """Variables by the noise that a network, learned from the rows before the fault, does not expect."""
    dbn = feddbn.OneShotDBN(n_lags=1, check_residuals=False).fit({"rows": case.before}).dbn_
    rows = pd.concat([case.before, case.fault], ignore_index=True)
    return dbn.root_causes(rows, len(case.before), n_rows=len(case.before)).table["variable"].tolist()


def _of_rcaeval(module: str, name: str) -> Callable[[Case], list[str]]:
    method = getattr(importlib.import_module(f"RCAEval.e2e{module}"), name)

    def ranked(case: Case) -> list[str]:
        # Its methods want columns named service_metric, and one row a second.
        rows = pd.concat([case.before, case.fault], ignore_index=True)
        names = {f"s{k}_x": column for k, column in enumerate(rows)}
        rows = rows.set_axis(list(names), axis=1).assign(time=np.arange(len(rows)))
        found = method(rows, len(case.before), dataset="none", sli="s0_x", n_iter=10)["ranks"]
        return [names[one] for one in found if one in names]

    return ranked


def _of_pyrca(name: str, adjusted: bool = False) -> Callable[[Case], list[str]]:
    module = importlib.import_module(f"pyrca.analyzers.{name}")

    def ranked(case: Case) -> list[str]:
        d = case.before.shape[1]
        if name == "rcd":
            model = module.RCD(module.RCDConfig(k=5))
            found = model.find_root_causes(case.before.copy(), case.fault.copy())
        elif name == "epsilon_diagnosis":
            model = module.EpsilonDiagnosis(module.EpsilonDiagnosisConfig(root_cause_top_k=d))
            model.train(case.before.tail(len(case.fault)))
            found = model.find_root_causes(case.fault)
        else:
            from pyrca.graphs.causal.pc import PC, PCConfig

            graph = PC(PCConfig(run_pdag2dag=False)).train(case.before)
            model = module.HT(module.HTConfig(graph, root_cause_top_k=d))
            model.train(case.before)
            # Where PC leaves edges without a direction, there is no order to adjust by.
            can = networkx.is_directed_acyclic_graph(model.graph)
            found = model.find_root_causes(case.fault, None, adjusted and can)
        return [one for one, _ in found.root_cause_nodes]

    return ranked


PEERS = {
    "BARO": lambda: _of_rcaeval(".baro", "baro"),
    "N-sigma": lambda: _of_rcaeval("", "nsigma"),
    "CIRCA": lambda: _of_rcaeval(".circa", "circa"),
    "PC, PageRank": lambda: _of_rcaeval(".pc_pagerank", "pc_pagerank"),
    "RCD": lambda: _of_pyrca("rcd"),
    "epsilon-Diagnosis": lambda: _of_pyrca("epsilon_diagnosis"),
    "HT on PC's graph": lambda: _of_pyrca("ht"),
    "HT, adjusted": lambda: _of_pyrca("ht", adjusted=True),
}


def stoppable(cases: Iterator[Case]) -> Iterator[Case]:
    """The cases up to an interrupt, so that a long run can be stopped and still tells what it found."""
    stop = []
    signal.signal(signal.SIGINT, lambda *_: stop.append(True))
    for case in cases:
        if stop:
            return
        yield case


def measured(cases: Iterator[Case], names: list[str]) -> Table:
    """AC@1, AC@3, Avg@5 of every method by group, with the cases that a method failed in."""
    methods: dict[str, Callable[[Case], list[str]]] = {"feddbn": ours}
    for name, make in PEERS.items():
        if name in names:
            with contextlib.suppress(ImportError):
                methods[name] = make()
    hits, failed, seconds = defaultdict(list), defaultdict(int), defaultdict(float)
    for number, case in enumerate(stoppable(cases)):
        for name, method in methods.items():
            np.random.seed(number)  # noqa: NPY002
            start, ranks = time.process_time(), []
            try:
                with (
                    contextlib.redirect_stdout(io.StringIO()),
                    contextlib.redirect_stderr(io.StringIO()) as said,
                ):
                    ranks = method(case)
                failed[name] += "failed" in said.getvalue()
            except Exception:  # a method of others may fail anywhere; it has found nothing then
                failed[name] += 1
            seconds[name] += time.process_time() - start
            found = [len(case.roots & {*ranks[:k]}) / min(k, len(case.roots)) for k in range(1, 6)]
            for group in (case.group, "all"):
                hits[group, name].append(found)
        print(
            number,
            case.group,
            {n: round(float(np.mean(hits["all", n])), 3) for n in methods},
            file=sys.stderr,
        )
    columns = ["group", "cases", "method", "AC@1", "AC@3", "Avg@5", "+-", "failed", "seconds a case"]
    table = Table("Root causes", columns, note="+-: standard error of Avg@5.")
    for (group, name), found in sorted(hits.items(), key=lambda one: (one[0][0], -np.mean(one[1]))):
        at, n = np.array(found), len(found)
        error = float(at.mean(axis=1).std(ddof=1) / np.sqrt(n)) if n > 1 else None
        rest = (failed[name], seconds[name] / n) if group == "all" else (None, None)
        table.add(
            group, n, name, float(at[:, 0].mean()), float(at[:, 2].mean()), float(at.mean()), error, *rest
        )
    return table


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["simulated"])
    parser.add_argument("--seeds", default="900-900")
    parser.add_argument("--only", default="", help="part of a group's name")
    parser.add_argument("--methods", nargs="*", default=list(PEERS))
    asked = parser.parse_args(given)
    warnings.simplefilter("ignore")
    first, last = map(int, asked.seeds.split("-"))
    print(measured(simulated(range(first, last + 1), asked.only), asked.methods).text())


if __name__ == "__main__":
    main()
