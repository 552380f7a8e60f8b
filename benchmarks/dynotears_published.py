"""Dynotears against the published DYNOTEARS code (causalnex), on random problems: objective and CPU time.

python benchmarks/dynotears_published.py FOLDER [--seed 3000] [--problems 60] [--largest 20]

FOLDER is where causalnex lies: its package folder, an environment's site-packages, or an unpacked wheel. It is no dependency
of this project, and versions up to 0.12 do not install with Python 3.11 on; one file of it is enough:

    pip download causalnex==0.12.1 --no-deps --only-binary=:all: --python-version 3.10 && unzip causalnex-*.whl -d FOLDER

Problems: d 4-20, p 1-3, n 40-400, half of them with weights of .3-.5, half of .5-2; both codes with lambda .05, neither with
thresholds. The published code is stopped after --limit CPU seconds of a problem, which then counts for the time only.
Both answers are evaluated by one function. The published one keeps cycles of small weights (h <= 1e-8): it is
evaluated as it is, cycles included, and without them: the weakest edges on cycles are taken out, one by one.
"""

import argparse
import importlib.util
import math
import signal
import sys
import time
import types
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np
from optimum import AS_IS, MILD, STRONG, lagged
from threadpoolctl import threadpool_limits

import feddbn
from feddbn.core.constraints import break_cycles
from feddbn.core.penalised.lasso import loss_value
from feddbn.core.statistics.moments import Moments

LAMBDA = 0.05
FILE = Path("structure") / "dynotears.py"
NEEDED = {
    "causalnex.structure": "StructureModel",
    "causalnex.structure.transformers": "DynamicDataTransformer",
}


def published(folder):
    """Return the published solver: (X, Xlags) -> W, A."""
    found = next((at for at in (folder / FILE, folder / "causalnex" / FILE) if at.is_file()), None)
    if found is None:
        raise SystemExit(
            f"{folder} has no causalnex: pip download causalnex==0.12.1 --no-deps --only-binary=:all:"
            " --python-version 3.10, and unzip it there."
        )
    # The solver needs neither of the two classes that its file imports.
    stands = {name: types.ModuleType(name) for name in ("causalnex", *NEEDED)}
    for name, one in NEEDED.items():
        setattr(stands[name], one, type(one, (), {}))
    spec = importlib.util.spec_from_file_location("published_dynotears", found)
    module = importlib.util.module_from_spec(spec)
    with patch.dict(sys.modules, stands):
        spec.loader.exec_module(module)

    def solve(X, Xlags):
        d, q = X.shape[1], X.shape[1] + Xlags.shape[1]
        bounds = [(0, 0) if i == j else (0, None) for _ in range(2) for i in range(d) for j in range(d)]
        bounds += [(0, None)] * (2 * (q - d) * d)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return module._learn_dynamic_structure(X, Xlags, bounds, LAMBDA, LAMBDA)

    return solve


def problems(count, seed, largest):
    """Random problems: rows, lagged rows, number of lags, and which weights."""
    for k in range(count):
        rng = np.random.default_rng(seed + k)
        d, p, n = int(rng.integers(4, largest + 1)), int(rng.integers(1, 4)), int(rng.integers(40, 401))
        sites = feddbn.simulate(
            d=d,
            n_lags=p,
            n_sites=1,
            n_samples=n,
            mean_degree=min(4, d - 1),
            w_range=STRONG if (seed + k) % 2 else MILD,
            random_state=seed + k,
        ).sites
        Z = lagged(sites, p)
        yield Z[:, :d], Z[:, d:], p, "strong" if (seed + k) % 2 else "mild"


def objective(X, Xlags, W, A):
    Z, C = np.hstack([X, Xlags]), np.vstack([W, A])
    return loss_value(Z.T @ Z / len(Z), C) + LAMBDA * float(np.abs(C).sum())


class TakesTooLong(Exception):
    pass


def stop(*_):
    raise TakesTooLong


def compare(solve, X, Xlags, p, limit=math.inf):
    """Return by how much ours is above theirs (%), cycles included and without them, and the CPU seconds of both."""
    signal.signal(signal.SIGPROF, stop)
    start, W = time.process_time(), None
    try:
        signal.setitimer(signal.ITIMER_PROF, limit if limit < math.inf else 0.0)
        W, A = solve(X, Xlags)
    except TakesTooLong:
        pass
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    theirs = time.process_time() - start
    start = time.process_time()
    model = feddbn.Dynotears(n_lags=p, lambda_w=LAMBDA, lambda_a=LAMBDA, refit=False, **AS_IS)
    model.fit_moments(Moments.of_rows(np.hstack([X, Xlags])), tuple(f"x{i}" for i in range(X.shape[1])))
    ours = time.process_time() - start
    if W is None:
        return math.nan, math.nan, theirs, ours, model.certificate_
    value = objective(X, Xlags, model.W_raw_, model.A_raw_.reshape(-1, X.shape[1]))
    above = [100 * (value / objective(X, Xlags, each, A) - 1) for each in (W, break_cycles(W)[0])]
    return *above, theirs, ours, model.certificate_


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Dynotears against the published DYNOTEARS code.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=3000)
    parser.add_argument("--problems", type=int, default=60)
    parser.add_argument("--largest", type=int, default=20, help="most variables of a problem")
    parser.add_argument(
        "--limit", type=float, default=120, help="CPU seconds that the published code may take"
    )
    given = parser.parse_args(arguments)
    solve, rows = published(given.folder), []
    with threadpool_limits(1):
        # What a first fit imports is not its time.
        X, Xlags, p, _ = next(problems(1, 0, 4))
        compare(solve, X, Xlags, p)
        for k, (X, Xlags, p, weights) in enumerate(problems(given.problems, given.seed, given.largest)):
            cyclic, acyclic, theirs, ours, certificate = compare(solve, X, Xlags, p, given.limit)
            rows.append((cyclic, acyclic, theirs, ours))
            print(
                f"{given.seed + k} d={X.shape[1]} p={p} n={len(X)} {weights}: {acyclic:+.4f} % ({cyclic:+.4f} % with their"
                f" cycles); {theirs:.2f} s, ours {ours:.3f} s, {theirs / ours:.0f} times; {certificate}",
                flush=True,
            )
    cyclic, acyclic, theirs, ours = np.array(rows).T
    ratio = theirs / ours
    print(
        f"{len(rows)} problems: ours above by at most {np.nanmax(acyclic):.4f} % ({np.nanmax(cyclic):.4f} % with their"
        f" cycles), median {np.nanmedian(acyclic):.4f} %, least {np.nanmin(acyclic):.2f} %; theirs stopped in"
        f" {np.isnan(acyclic).sum()}; lower by more than 1 % in {np.sum(acyclic < -1)};"
        f" CPU seconds {theirs.sum():.0f} and {ours.sum():.1f}: {ratio.min():.0f} times at least, median"
        f" {np.median(ratio):.0f}, {theirs.sum() / ours.sum():.0f} in all"
    )


if __name__ == "__main__":
    main()
