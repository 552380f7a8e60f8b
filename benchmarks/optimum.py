"""How often fits end in the global optimum, what certificates say and cost, and what it does to the network.

python benchmarks/optimum.py [optimum | splits | certificates | accuracy | cost]... [--seed 1000] [--problems 200]

`optimum` compares with a plain dynamic program over all sets of predecessors (d <= 8), without bounds or searches; the
published DYNOTEARS code's answers are read from $FEDDBN_DATA/golden. Settings were chosen on seeds 30-59.
"""

import argparse
import os
import time
from pathlib import Path

import numpy as np

import feddbn
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.penalised.lasso import loss_value, penalty_value
from feddbn.core.penalised.optimum import LassoScores, members
from feddbn.core.statistics.moments import Moments

AS_IS = {"prepare": feddbn.Prepare(scale="none", center="none"), "check_residuals": False}
STRONG, MILD = (0.5, 2.0), (0.3, 0.5)


def lagged(sites, n_lags):
    """Lagged rows of all recordings."""
    arrays = [x.to_numpy() for recordings in sites.values() for x in recordings]
    return np.vstack([np.hstack([x[n_lags - k : len(x) - k] for k in range(n_lags + 1)]) for x in arrays])


def plain_minimum(Z, d, penalty):
    """The global minimum by dynamic programming over all sets, every lasso in units of standard deviations."""
    G = Z.T @ Z / len(Z)
    root = np.sqrt(np.diag(G))
    H = G / np.outer(root, root) + 1e-12 * np.eye(len(G))
    L = penalty / np.outer(root, root[:d])
    scores = LassoScores(H, L, EdgeConstraints.none(d, len(G) // d - 1).allowed, weight=root[:d] ** 2)
    best = {0: 0.0}
    for U in range(1, 2**d):
        best[U] = min(best[U & ~(1 << j)] + scores.value(j, U & ~(1 << j)) for j in members(U))
    return best[2**d - 1]


def problems(count, seed):
    """Random problems: d 4-8, p 1-3, n 40-400, half of them with strong weights."""
    for k in range(count):
        rng = np.random.default_rng(seed + k)
        d, p, n = int(rng.integers(4, 9)), int(rng.integers(1, 4)), int(rng.integers(40, 401))
        sites = feddbn.simulate(
            d=d,
            n_lags=p,
            n_sites=1,
            n_samples=n,
            mean_degree=min(4, d - 1),
            w_range=STRONG if k % 2 else MILD,
            random_state=seed + k,
        ).sites
        yield sites, d, p


def optimum(seed, count):
    """Excess over the global minimum, in percent."""
    excess, exact = {"path": [], "order": []}, 0
    for sites, d, p in problems(count, seed):
        lowest = plain_minimum(lagged(sites, p), d, 0.05)
        for name, values in excess.items():
            model = feddbn.Dynotears(n_lags=p, refit=False, optimum=name, **AS_IS).fit(sites)
            values.append(100 * (model.objective_ / lowest - 1))
        exact += model.certificate_.is_exact
    for name, values in excess.items():
        v = np.array(values)
        print(
            f"optimum {name:5}: within 0.01 % in {100 * np.mean(v <= 0.01):.1f} % of {count}, mean {v.mean():.4f} %, "
            f"largest {v.max():.4f} %, smallest {v.min():.1e} %"
        )
    print(f"certified exact: {exact} of {count}")
    for n_lags in (1, 2):
        path = Path(os.environ.get("FEDDBN_DATA", "")) / "golden" / f"dynotears_golden_p{n_lags}.npz"
        if path.is_file():
            golden = np.load(path)
            Z = np.hstack([golden["X"], golden["Xlags"]])
            C = np.vstack([golden["W_causalnex"], golden["A_causalnex"]])
            theirs = loss_value(Z.T @ Z / len(Z), C) + penalty_value(C, np.full(C.shape, 0.1))
            model = feddbn.Dynotears(n_lags=n_lags, lambda_w=0.1, lambda_a=0.1, refit=False, **AS_IS)
            model.fit_moments(Moments.of_rows(Z), tuple(f"x{i}" for i in range(C.shape[1])))
            above = 100 * (model.objective_ / theirs - 1)
            print(f"published code, p={n_lags}: {theirs:.6f}, here {model.objective_:.6f} ({above:+.4f} %)")


def splits(seed, count):
    """Largest relative difference between FDBNL's objective and that of the pooled rows."""
    for n_sites in (2, 16, 64):
        worst = 0.0
        for k in range(min(count, 20)):
            sites = feddbn.simulate(
                d=8, n_sites=n_sites, n_samples=512, w_range=STRONG if k % 2 else MILD, random_state=seed + k
            ).sites
            pooled = feddbn.Dynotears(refit=False, **AS_IS).fit(sites)
            model = feddbn.FDBNL(refit=False, **AS_IS).fit(sites)
            worst = max(worst, abs(model.objective_ / pooled.objective_ - 1))
        print(f"splits K={n_sites}: largest relative difference {worst:.1e}")


def certificates(seed, count, sizes=None):
    """What is proven, and how long it takes on one core."""
    cases = (
        ((sizes, "order"), (sizes, "exact"))
        if sizes
        else ((12, "order"), (12, "exact"), (15, "exact"), (20, "order"), (50, "order"))
    )
    for d, how in cases:
        for w_range in (MILD, STRONG):
            said, seconds = [], []
            for k in range(min(count, 3)):
                sites = feddbn.simulate(
                    d=d,
                    n_sites=4,
                    n_samples=1000,
                    mean_degree=min(4, d - 1),
                    w_range=w_range,
                    random_state=seed + k,
                ).sites
                start = time.process_time()
                model = feddbn.FDBNL(refit=False, optimum=how, **AS_IS).fit(sites)
                seconds.append(time.process_time() - start)
                said.append(100 * model.certificate_.gap)
            gaps = ", ".join("exact" if gap == 0 else f"{gap:.2f} %" for gap in said)
            print(
                f"certificates d={d} {how} weights {w_range}: {gaps}; {max(seconds):.1f} s at most",
                flush=True,
            )


def accuracy(seed, count, sizes=None):
    """Structural Hamming distance of W, before and after."""
    for d in (sizes,) if sizes else (10, 20):
        for n_sites in (10, 64):
            for w_range in (MILD, STRONG):
                shd = {"path": [], "order": []}
                for k in range(min(count, 10)):
                    simulated = feddbn.simulate(
                        d=d,
                        n_sites=n_sites,
                        n_samples=512,
                        mean_degree=min(4, d - 1),
                        w_range=w_range,
                        random_state=seed + k,
                    )
                    for name, values in shd.items():
                        model = feddbn.FDBNL(
                            optimum=name, check_residuals=False, prepare=feddbn.Prepare(scale="none")
                        )
                        model.fit(simulated.sites)
                        values.append(feddbn.score(simulated.truth, model.dbn_)["W"]["shd"])
                before, after = (np.array(values) for values in shd.values())
                print(
                    f"accuracy d={d} K={n_sites} weights {w_range}: SHD of W {before.mean():.2f} -> {after.mean():.2f}; "
                    f"better {np.sum(after < before)}, worse {np.sum(after > before)} of {len(after)}",
                    flush=True,
                )


def cost(seed, count):
    """Processor time of an ordinary fit, least of five."""
    for k in range(min(count, 5)):
        sites = feddbn.simulate(d=10, n_sites=64, n_samples=512, random_state=seed + k).sites
        least = {"path": np.inf, "order": np.inf}
        for _ in range(5):
            for name in least:
                start = time.process_time()
                feddbn.FDBNL(optimum=name).fit(sites)
                least[name] = min(least[name], time.process_time() - start)
        print(f"cost d=10 K=64: {least['path']:.3f} s -> {least['order']:.3f} s", flush=True)


SIZED = ("certificates", "accuracy")
PARTS = {f.__name__: f for f in (optimum, splits, certificates, accuracy, cost)}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--tiny", action="store_true", help="four variables throughout: only that it runs")
    given = parser.parse_args(arguments)
    for name in given.parts or PARTS:
        if name not in PARTS:
            parser.error(f"{name!r} is no part; choose from {', '.join(PARTS)}.")
        PARTS[name](given.seed, given.problems, **({"sizes": 4} if given.tiny and name in SIZED else {}))


if __name__ == "__main__":
    main()
