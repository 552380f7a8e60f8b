"""How well promised power agrees with power in simulated studies.

    python benchmarks/planner.py [--settings 30] [--networks 60] [--seed 700]

Settings are drawn, not chosen. Promised powers are spread from .5 to .95. The effect with that power, as `feddbn.power` says,
is planted as a lagged edge into half of the targets of further networks. `OneShotDBN` with its usual treatment of rows (but
no resamples, which change no edge, and no look at residuals) learns from simulated series whose recordings have levels of
their own. Where a pilot is given, it is a fit of 600 rows of the network that the study is about. Otherwise the networks are
those of `feddbn.simulate` with pasts of their own, which the planner does not know.
"""

import argparse
import time
import warnings

import numpy as np
from threadpoolctl import threadpool_limits
from timing import Table

import feddbn
from feddbn.core.statistics.power import Linear, planted
from feddbn.errors import FeddbnError
from feddbn.results.result import Result

WAYS = ({}, {"fdr": 0.1}, {}, {"fdr": 0.2})


def setting(k: int, n_settings: int, rng: np.random.Generator) -> dict:
    """One setting; the number decides about the way, a pilot and the promised power, chance about all else."""
    sites, masked = int(rng.integers(2, 9)), bool(rng.random() < 1 / 3)
    recordings = sites * int(rng.integers(1, 6))
    return {
        "rows": max(round(10 ** rng.uniform(2.4, 3.5)), 20 * recordings),
        "sites": sites,
        "recordings": recordings,
        "variables": int(rng.integers(5, 15)),
        "n_lags": int(rng.choice([1, 1, 2])),
        "missing": 0.0 if masked else round(float(rng.choice([0, rng.uniform(0.02, 0.2)])), 2),
        "masked": masked,
        "way": WAYS[k % len(WAYS)],
        "pilot": k % 3 == 2,
        "equal": bool(rng.random() < 0.5) and k % 3 == 2,
        "promised": 0.5 + 0.45 * ((7 * k) % n_settings) / max(n_settings - 1, 1),
    }


def drawn(one: dict, seed: int) -> Linear:
    """A network of `feddbn.simulate`, every variable of which also has a past of its own."""
    rng, d = np.random.default_rng(seed), one["variables"]
    scale = np.ones(d) if one["equal"] else np.exp(rng.normal(scale=0.5, size=d))
    truth = feddbn.simulate(d, one["n_lags"], 1, 4, 1.0, 0.5, random_state=seed).truth
    C = np.concatenate([truth.W, truth.A.reshape(-1, d)])
    C[d : 2 * d][np.diag_indices(d)] = rng.uniform(0.1, 0.7, d)
    return Linear(C * scale / np.tile(scale, one["n_lags"] + 1)[:, None], scale**2)


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
    protection = "noise" if one["masked"] else "exact"
    federation = feddbn.simulated(series(network, one, rng), protection=protection, random_state=seed)
    quick = {"resamples": 0, "check_residuals": False, "use_nongaussian": False, "features": "linear"}
    if not one["equal"] and not one["way"]:
        # Of noise variances that differ the average changes probabilities, no edge.
        quick["average"] = False
    return feddbn.OneShotDBN(one["n_lags"], federation=federation, **quick, **one["way"]).fit(None)


def simulated_power(one: dict, effect: float, n_networks: int, seed: int, fixed: Linear | None):
    """Share of the planted edges that are found, its standard error over networks, and how many there were."""
    shares, sizes = [], []
    for k in range(n_networks):
        rng = np.random.default_rng([seed, k])
        base = fixed or drawn(one, 1000 * seed + k)
        try:
            network, edges, _ = planted(base, np.full(max(one["variables"] // 2, 1), effect), rng)
            model = fitted(one, network, 1000 * seed + k)
        except (ValueError, FeddbnError):
            continue
        found = model.dbn_.is_edge.reshape(-1, one["variables"])
        shares.append(sum(bool(found[m, j]) for m, j in edges))
        sizes.append(len(edges))
    shares, sizes = np.array(shares, float), np.array(sizes, float)
    mean = shares.sum() / sizes.sum()
    error = np.sqrt(((shares - mean * sizes) ** 2).sum()) / sizes.sum()
    return mean, error, int(sizes.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, usual in (("settings", 30), ("networks", 60), ("seed", 700)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    asked = parser.parse_args()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        measure(asked.settings, asked.networks, asked.seed)


def measure(n_settings: int, n_networks: int, seed: int) -> None:
    started, rng, apart = time.process_time(), np.random.default_rng(seed), []
    columns = "rows sites recs d lags empty noise way pilot effect promised found s.e. edges plan_s"
    table = Table("Promised and simulated power", columns.split())
    for k in range(n_settings):
        one = setting(k, n_settings, rng)
        names = ("rows", "sites", "recordings", "variables", "n_lags", "missing", "masked")
        fixed = pilot = None
        if one["pilot"]:
            fixed = drawn(one, 1000 * seed + 999)
            few = {**one, "rows": 600, "recordings": one["sites"], "missing": 0.0, "masked": False, "way": {}}
            pilot = Result.from_estimator(fitted(few, fixed, seed + k))
        begun = time.process_time()
        plan = feddbn.power(
            **{name: one[name] for name in names}, **one["way"], pilot=pilot, random_state=seed + k
        )
        took = time.process_time() - begun
        effect = plan.smallest_effect(one["promised"])
        found, error, n = simulated_power(one, effect, n_networks, seed + k, fixed)
        apart.append((found - one["promised"], error))
        way = f"fdr {one['way']['fdr']}" if one["way"] else "bic"
        kind = ("equal" if one["equal"] else "free") if one["pilot"] else "-"
        shown = [one[name] for name in names[:-1]] + [".3" if one["masked"] else "-", way, kind]
        table.add(
            *shown, effect, round(one["promised"], 2), round(found, 3), round(error, 3), n, round(took, 1)
        )
        print(*table.rows[-1], flush=True)
    difference = np.array(apart)
    within = np.abs(difference[:, 0]) <= 0.05
    table.note = (
        f"{within.sum()} of {n_settings} within 5 points; mean {difference[:, 0].mean():+.3f}, root mean square "
        f"{np.sqrt((difference[:, 0] ** 2).mean()):.3f}, of which {np.sqrt((difference[:, 1] ** 2).mean()):.3f} is the error "
        f"of the simulation; {time.process_time() - started:.0f} s of one core."
    )
    print(table.text())


if __name__ == "__main__":
    main()
