"""How well promised power agrees with power in simulated studies.

    python benchmarks/planner.py [--settings 30] [--first 0] [--edges 300] [--seed 780]

Settings are drawn, not chosen. Promised powers are spread from .5 to .95. The effect with that power, as `feddbn.power` says,
is planted as lagged edges, as many as the setting states, into further networks of the kind that the planner states.
`OneShotDBN` with its usual treatment of rows learns from simulated series whose recordings have levels of their own. It does
not look at residuals.
Where a pilot is given, it is a fit of 600 rows of the network that the study is about.
"""

import argparse
import time
import warnings

import numpy as np
from threadpoolctl import threadpool_limits
from timing import Table

import feddbn
from feddbn.analysis.power import Linear, planted, usual_network
from feddbn.results.result import Result

WAYS = ({}, {"fdr": 0.1}, {}, {"fdr": 0.2})


def setting(k: int, n_settings: int, rng: np.random.Generator) -> dict:
    """One setting; the number decides about the way, a pilot and the promised power, chance about all else."""
    sites, masked = int(rng.integers(2, 9)), bool(rng.random() < 1 / 3)
    recordings, d = sites * int(rng.integers(1, 6)), int(rng.integers(5, 15))
    return {
        "rows": max(round(10 ** rng.uniform(2.4, 3.5)), 20 * recordings),
        "sites": sites,
        "recordings": recordings,
        "variables": d,
        "n_lags": int(rng.choice([1, 1, 2])),
        "missing": 0.0 if masked else round(float(rng.choice([0, rng.uniform(0.02, 0.2)])), 2),
        "edges": int(rng.integers(2, d)),
        "masked": masked,
        "way": WAYS[k % len(WAYS)],
        "pilot": k % 3 == 2,
        "promised": 0.5 + 0.45 * ((7 * k) % n_settings) / max(n_settings - 1, 1),
    }


def series(network: Linear, one: dict, rng: np.random.Generator) -> dict[str, list[np.ndarray]]:
    """Recordings of equal length, with levels of their own and empty cells; one site, as sums are the same over several."""
    d, p, R = one["variables"], one["n_lags"], one["recordings"]
    C, now = network.weights, np.linalg.inv(np.eye(d) - network.weights[:d])
    length, before = one["rows"] // R, 100
    x = np.zeros((before + length, R, d))
    shocks = rng.normal(size=x.shape) * np.sqrt(network.variances)
    for t in range(p, len(x)):
        past = sum(x[t - lag] @ C[lag * d : (lag + 1) * d] for lag in range(1, p + 1))
        x[t] = (past + shocks[t]) @ now
    x = x[before:] + rng.normal(size=(R, d)) * x[before:].std(axis=(0, 1))
    x[rng.random(x.shape) < one["missing"]] = np.nan
    return {"all": [x[:, r] for r in range(R)]}


def fitted(one: dict, network: Linear, seed: int):
    rng = np.random.default_rng(seed)
    protection = "weights" if one["masked"] else "exact"
    federation = feddbn.simulated(series(network, one, rng), protection=protection, random_state=seed)
    quick = {"check_residuals": False, "use_nongaussian": False, "features": "linear"}
    return feddbn.OneShotDBN(one["n_lags"], federation=federation, **quick, **one["way"]).fit(None)


def simulated_power(one: dict, effect: float, n_edges: int, seed: int, fixed: Linear | None):
    """Share of the planted edges that are found, and its standard error over networks."""
    found, sizes = [], []
    while sum(sizes) < n_edges:
        rng = np.random.default_rng([seed, len(sizes)])
        base = fixed or usual_network(one["variables"], one["n_lags"], rng)
        try:
            network, edges, _ = planted(base, np.full(one["edges"], effect), rng)
        except ValueError:
            # Not stable.
            sizes.append(0)
            found.append(0)
            continue
        kept = fitted(one, network, 1000 * seed + len(sizes)).dbn_.is_edge.reshape(-1, one["variables"])
        found.append(sum(bool(kept[m, j]) for m, j in edges))
        sizes.append(len(edges))
    found, sizes = np.array(found, float), np.array(sizes, float)
    mean = found.sum() / sizes.sum()
    return mean, np.sqrt(((found - mean * sizes) ** 2).sum()) / sizes.sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, usual in (("settings", 30), ("first", 0), ("edges", 300), ("seed", 780)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--last", type=int)
    asked = parser.parse_args()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        last = asked.settings if asked.last is None else asked.last
        measure(range(asked.first, last), asked.settings, asked.edges, asked.seed)


def measure(numbers: range, n_settings: int, n_edges: int, seed: int) -> None:
    started, apart = time.process_time(), []
    names = ("rows", "sites", "recordings", "variables", "n_lags", "missing", "edges")
    columns = "rows sites recs d lags empty edges noise way pilot effect promised found s.e."
    table = Table("Promised and simulated power", columns.split())
    for k in numbers:
        rng = np.random.default_rng([seed, k])
        one = setting(k, n_settings, rng)
        fixed = pilot = None
        if one["pilot"]:
            fixed = usual_network(one["variables"], one["n_lags"], rng)
            few = {**one, "rows": 600, "recordings": one["sites"], "missing": 0.0, "masked": False, "way": {}}
            pilot = Result.from_estimator(fitted(few, fixed, seed + k))
        sizes = {name: one[name] for name in names}
        plan = feddbn.power(**sizes, masked=one["masked"], **one["way"], pilot=pilot, random_state=seed + k)
        effect = plan.smallest_effect(one["promised"])
        found, error = simulated_power(one, effect, n_edges, seed + k, fixed)
        apart.append((found - one["promised"], error))
        way = f"fdr {one['way']['fdr']}" if one["way"] else "bic"
        shown = [*sizes.values(), ".3" if one["masked"] else "-", way, "yes" if one["pilot"] else "-"]
        table.add(*shown, round(effect, 3), round(one["promised"], 2), round(found, 3), round(error, 3))
        print(*table.rows[-1], flush=True)
    difference, errors = np.abs(np.array(apart)[:, 0]), np.array(apart)[:, 1]
    table.note = (
        f"{(difference <= 0.05).sum()} of {len(apart)} within 5 points, {(difference <= 0.05 + 2 * errors).sum()} within 5 "
        f"points and two standard errors; mean absolute difference {difference.mean():.3f}, mean difference "
        f"{np.mean(apart, axis=0)[0]:+.3f}, mean standard error {errors.mean():.3f}; "
        f"{time.process_time() - started:.0f} s of one core."
    )
    print(table.text())


if __name__ == "__main__":
    main()
