"""False alarms of a monitor that is looked at every day, and how soon it tells a change, beside ChangingDBN.

    python benchmarks/monitor.py null --federations 2000          # nothing changes: normal noise
    python benchmarks/monitor.py null --federations 500 --noise t5 sites short
    python benchmarks/monitor.py delay --federations 100 --repeat 10

A federation has four sites. A network of five variables is drawn and fitted to 100 rows a site. Each look
brings 50 new rows a site. Noise: "normal"; "t5" with heavy tails; "sites" of unequal noise; "rows" whose noise goes up and
down; "short" recordings that lose their own means.

In `delay` the weight of one lagged edge moves towards zero, and beyond, by a given amount after ten looks. The delay is the
number of looks from there to the first alarm. ChangingDBN is fitted to all rows up to each look, on the first `--repeat`
federations. It alarms where it finds any change. It has no level for repeated looks, so its false alarms count too.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from timing import Table

from feddbn import AS_THEY_ARE, ChangingDBN, Dynotears, Monitor, OneShotDBN, simulated
from feddbn.core.statistics.moments import Moments
from feddbn.errors import ResultWarning
from feddbn.federation.programs.residual_checks import checks_program
from feddbn.federation.protocol.task import run_program

D, SITES, BASE, ROWS, LOOKS, CHANGE = 5, 4, 100, 50, 50, 10
NOISES = ("normal", "t5", "sites", "rows", "short")
SIZES = (0.1, 0.2, 0.4, 0.0)


def network(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Weights of a stable network: about a third of the edges within a time step and a fifth of the lagged ones."""
    while True:
        order = rng.permutation(D)
        W = np.zeros((D, D))
        W[np.ix_(order, order)] = np.triu(rng.random((D, D)) < 0.3, 1) * signed(rng, 0.3, 0.6)
        A = (rng.random((D, D)) < 0.2) * signed(rng, 0.3, 0.5)
        np.fill_diagonal(A, rng.uniform(0.2, 0.6, D))
        if np.abs(np.linalg.eigvals(A @ np.linalg.inv(np.eye(D) - W))).max() < 0.85:
            return W, A


def signed(rng: np.random.Generator, low: float, high: float) -> np.ndarray:
    return rng.choice([-1, 1], (D, D)) * rng.uniform(low, high, (D, D))


def series(seed: int, noise: str, size: float, looks: int, shift: int) -> tuple[np.ndarray, tuple[int, int]]:
    """(rows, sites, D) of one federation, and which lagged edge changes by `size` after `shift` looks."""
    rng = np.random.default_rng(seed)
    W, A = network(rng)
    edges = np.argwhere(A)
    i, j = (int(k) for k in edges[rng.integers(len(edges))])
    new = A.copy()
    new[i, j] -= size * np.sign(A[i, j])
    n, before = BASE + looks * ROWS + 1, 50
    shocks = rng.normal(size=(before + n, SITES, D))
    if noise == "t5":
        shocks = rng.standard_t(5, shocks.shape) * np.sqrt(3 / 5)
    elif noise == "sites":
        # Noise deviations of sites differ by a factor of e^0.5 as a rule.
        shocks *= np.exp(rng.normal(0, 0.5, (SITES, 1)))
    elif noise == "rows":
        # A variance that all variables share goes up and down slowly.
        log_sd = np.zeros((before + n, SITES, 1))
        steps = rng.normal(0, 0.15, log_sd.shape)
        for t in range(1, len(log_sd)):
            log_sd[t] = 0.9 * log_sd[t - 1] + steps[t]
        shocks *= np.exp(log_sd)
    x, inverse, rows = np.zeros((SITES, D)), np.linalg.inv(np.eye(D) - W), np.empty((n, SITES, D))
    for t, shock in enumerate(shocks):
        late = t - before > BASE + shift * ROWS
        x = (x @ (new if late else A) + shock) @ inverse
        if t >= before:
            rows[t - before] = x
    return rows, (i, j)


def watched(rows: np.ndarray, noise: str, looks: int, names: bool) -> Iterator[Monitor]:
    """A monitor after each look; `names` is whether it matters what it names."""
    center = "recording" if noise == "short" else "none"
    prepare = replace(AS_THEY_ARE, center=center)
    options = {"features": "linear", "use_nongaussian": False}
    model = OneShotDBN(1, prepare=prepare, noise_variance="free", check_residuals=False, **options)
    if not names:
        # Edges do not matter for false alarms, and this is quicker.
        model = Dynotears(1, prepare=prepare, check_residuals=False)
    federation = simulated({f"s{k}": [rows[: BASE + 1, k]] for k in range(SITES)})
    model.set_params(federation=federation).fit(None)
    # The check of residuals of a usual fit, without what else it does.
    support = np.concatenate([model.W_, *model.A_]) != 0
    asked = checks_program(model._tally.whole, support, model._tally.variables, center)
    model.residuals_ = SimpleNamespace(inflation=run_program(asked, federation)[0].inflation)
    monitor = Monitor(model)
    lagged = np.concatenate([rows[1:], rows[:-1]], axis=-1)
    for k in range(looks):
        start = BASE + k * ROWS
        if noise == "short":
            monitor.look({f"s{k}": [rows[start : start + ROWS + 1, k]] for k in range(SITES)})
        else:
            # The sums that `look` asks for, without reading data.
            new = Moments.of_rows(lagged[start : start + ROWS].reshape(-1, 2 * D))
            monitor.look_at(replace(monitor._tally, moments=new))
        yield monitor


def alarm(
    rows: np.ndarray, noise: str, looks: int, names: bool = True
) -> tuple[int, tuple[int, int, int] | None]:
    """The number of the look with the first alarm (0: none) and which edge it names, if one."""
    for monitor in watched(rows, noise, looks, names):
        if monitor.alarms:
            values = monitor.alarms[0].values
            edge = (
                None if values["source"] is None else tuple(int(values[k][1:]) for k in ("source", "target"))
            )
            return len(monitor.looks), None if edge is None else (*edge, values["lag"])
    return 0, None


def changing(rows: np.ndarray, looks: int, every: int) -> int:
    """The number of the look at which ChangingDBN first finds a change in all rows so far; 0 if it never does."""
    for k in range(every, looks + 1, every):
        stop = BASE + k * ROWS + 1
        model = ChangingDBN(1, prepare=AS_THEY_ARE, check_residuals=False)
        model.fit({f"s{s}": [rows[:stop, s]] for s in range(SITES)})
        if len(model.segments_) > 1:
            return k
    return 0


def null(noises: list[str], seeds: range, looks: int) -> Table:
    table = Table(
        "False alarms where nothing changes",
        ["noise", "federations", "looks", "false alarms", "standard error", "seconds"],
    )
    for noise in noises:
        start = time.process_time()
        hit = np.array(
            [alarm(series(s, noise, 0.0, looks, looks)[0], noise, looks, False)[0] > 0 for s in seeds]
        )
        se = float(np.sqrt(hit.mean() * (1 - hit.mean()) / len(hit)))
        table.add(noise, len(hit), looks, float(hit.mean()), se, time.process_time() - start)
        print(table.rows[-1], flush=True)
    return table


def delay(sizes: list[float], seeds: range, repeat: int, looks: int, every: int) -> Table:
    table = Table(
        "One edge changes after ten looks",
        ["method", "change", "federations", "told", "median delay", "told before", "right edge"],
        note="Delays in looks of 4 x 50 rows; what is never told counts as longest. Told before: a false alarm.",
    )
    for size in sizes:
        found: dict[str, list[tuple[int, bool]]] = {"Monitor": [], "ChangingDBN": []}
        for k, seed in enumerate(seeds):
            rows, edge = series(seed, "normal", size, looks, CHANGE)
            look, named = alarm(rows, "normal", looks)
            found["Monitor"].append((look, named == (*edge, 1)))
            if k < repeat:
                found["ChangingDBN"].append((changing(rows, looks, every), False))
        for method, told in found.items():
            at = np.array([look for look, _ in told])
            if not len(at):
                continue
            late = at > CHANGE
            waited = np.where(late, at - CHANGE, np.inf)[(at == 0) | late] if size else np.array([np.inf])
            named = float(np.mean([right for look, right in told if look > CHANGE])) if late.any() else None
            table.add(
                method,
                size,
                len(at),
                float(late.mean()) if size else None,
                None if not len(waited) or np.isinf(np.median(waited)) else float(np.median(waited)),
                float(((at > 0) & ~late).mean()) if size else float((at > 0).mean()),
                named if method == "Monitor" and size else None,
            )
            print(table.rows[-1], flush=True)
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["null", "delay"])
    parser.add_argument("--federations", type=int, default=100)
    parser.add_argument("--noise", nargs="+", choices=NOISES, default=["normal"])
    parser.add_argument("--sizes", nargs="+", type=float, default=SIZES, help="by how much a weight changes")
    parser.add_argument("--repeat", type=int, default=5, help="federations on which ChangingDBN runs")
    parser.add_argument("--looks", type=int, default=LOOKS)
    parser.add_argument("--every", type=int, default=1, help="ChangingDBN looks only so often")
    parser.add_argument("--seed", type=int, default=70000)
    given = parser.parse_args(arguments)
    seeds = range(given.seed, given.seed + given.federations)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)
        if given.what == "null":
            table = null(given.noise, seeds, given.looks)
        else:
            table = delay(given.sizes, seeds, given.repeat, given.looks, given.every)
    print(table.text())


if __name__ == "__main__":
    main()
