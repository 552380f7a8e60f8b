"""Numpy against torch on a GPU for the dense parts: matrix exponentials, Gram matrices, gradients, whole paths of FDBNL.

    PYTHONPATH=src python benchmarks/backend.py --out backend.json

Runs unattended in under six minutes and writes one JSON. It needs numpy and scipy; without torch, or without a GPU, it says
so there and measures the rest. Wall-clock seconds, best of up to five: a GPU has no CPU time. Numpy is measured with all
cores and, in a second process, with one, which is what fits use.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from feddbn.core.backend.device import HOST, Device, product
from feddbn.core.backend.torch_device import open_device
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.designs.recordings import Block
from feddbn.core.penalised.acyclicity import expm_value_and_grad, get_acyclicity
from feddbn.core.penalised.consensus import ConsensusRun, gradient_answers, penalty_matrix
from feddbn.core.penalised.path import RunOptions, make_schedule
from feddbn.core.statistics.moments import Moments
from feddbn.errors import MissingExtra, ParameterError

PACKAGES = ("numpy", "scipy", "torch", "pandas", "scikit-learn", "threadpoolctl", "typer")
FULL = {
    "expm": [(1000, 10), (64, 50), (1, 100), (64, 100), (1, 200), (16, 200), (1, 500), (1, 1000), (1, 2000)],
    "gram": [(100_000, 50), (1_000_000, 50), (10_000_000, 50), (1_000_000, 200)],
    "product": [200, 500, 1000, 2000],
    "fits": [200, 500, 1000],
}
TINY = {"expm": [(3, 4), (1, 20)], "gram": [(1000, 5)], "product": [10], "fits": [5]}
MOST_REPEATS = 5


class Clock:
    """Seconds that are left."""

    def __init__(self, seconds: float) -> None:
        self._end = time.perf_counter() + seconds

    @property
    def left(self) -> float:
        return self._end - time.perf_counter()


def seconds_of(
    work: Callable[[], Any], clock: Clock, repeats: int = MOST_REPEATS
) -> tuple[float | None, Any]:
    """The least of several runs and the last result; None and None when the time is over."""
    best, result, began = None, None, time.perf_counter()
    for _ in range(repeats):
        if clock.left <= 0:
            break
        start = time.perf_counter()
        result = work()
        taken = time.perf_counter() - start
        best = taken if best is None else min(best, taken)
        if time.perf_counter() - began > 5.0:
            break
    return best, result


def apart(there: Any, here: Any) -> float | None:
    """Largest difference, relative to the largest entry."""
    if there is None or here is None:
        return None
    scale = float(np.abs(here).max(initial=0.0)) or 1.0
    return float(np.abs(there - here).max(initial=0.0)) / scale


def weights(K: int, d: int) -> np.ndarray:
    """Graphs as on the path to acyclicity: two edges a variable, a few cycles among them."""
    rng = np.random.default_rng(d)
    W = rng.uniform(-0.9, 0.9, size=(K, d, d)) * (rng.random((K, d, d)) < 2.0 / d)
    W[:, range(d), range(d)] = 0.0
    return W


def expm_rows(sizes: list, devices: dict[str, Device], clock: Clock) -> list[dict]:
    rows = []
    for K, d in sizes:
        W, found = weights(K, d), {}
        row: dict[str, Any] = {"K": K, "d": d}
        for name, device in devices.items():
            row[name], found[name] = seconds_of(lambda W=W, on=device: expm_value_and_grad(W, on), clock)
        if "torch" in found and found["torch"] and found["numpy"]:
            for place, what in enumerate(("h", "gradient")):
                row[f"{what} apart"] = apart(found["torch"][place], found["numpy"][place])
        rows.append(row)
    return rows


def gram_rows(sizes: list, devices: dict[str, Device], clock: Clock) -> list[dict]:
    rows = []
    for n, d in sizes:
        at_once = min(n, 1_000_000)
        x = np.random.default_rng(1).random((at_once, d))
        # The same rows again and again: ten million of them without ten million in memory.
        blocks = [Block(x, i == 0) for i in range(n // at_once)]
        row: dict[str, Any] = {"n": n, "d": d, "n_lags": 1}
        found = {}
        for name, device in devices.items():
            row[name], found[name] = seconds_of(
                lambda b=blocks, d=d, on=device: Moments.of_blocks(b, 1, d, device=on), clock, 3
            )
        if found.get("torch") and found["numpy"]:
            row["scatter apart"] = apart(found["torch"].scatter, found["numpy"].scatter)
        rows.append(row)
    return rows


def product_rows(sizes: list, devices: dict[str, Device], clock: Clock) -> list[dict]:
    """One round's gradient: a (2 d, 2 d) Gram matrix times (2 d, d) weights, carried there and back."""
    rows = []
    for d in sizes:
        rng = np.random.default_rng(2)
        G, C = rng.normal(size=(2 * d, 2 * d)), rng.normal(size=(2 * d, d))
        row: dict[str, Any] = {"d": d, "q": 2 * d}
        found = {}
        for name, device in devices.items():
            row[name], found[name] = seconds_of(lambda G=G, C=C, on=device: product(G, C, on), clock)
        if "torch" in found:
            row["apart"] = apart(found["torch"], found["numpy"])
        rows.append(row)
    return rows


def system_gram(d: int) -> np.ndarray:
    """G = Z'Z/n of a sparse stable system, two edges a variable of the same time step and two lagged, n = 10 d."""
    rng = np.random.default_rng(3)
    W = np.triu(
        rng.uniform(0.3, 0.6, (d, d)) * rng.choice([-1, 1], (d, d)) * (rng.random((d, d)) < 4.0 / d), 1
    )
    A = rng.uniform(0.15, 0.3, (d, d)) * rng.choice([-1, 1], (d, d)) * (rng.random((d, d)) < 2.0 / d)
    total = np.linalg.inv(np.eye(d) - W)
    # How fast a vector grows in the long run is the spectral radius; beyond 0.8 the lagged weights are lowered.
    v, grown = rng.normal(size=d), []
    for _ in range(200):
        v = v @ A @ total
        grown.append(np.linalg.norm(v))
        v /= grown[-1]
    A *= min(1.0, 0.8 / float(np.exp(np.mean(np.log(grown[100:])))))
    n_series, length, skipped = max(1, d // 10), 100, 30
    x, rows = np.zeros((n_series, d)), []
    for step in range(length + skipped):
        x = (x @ A + rng.normal(size=x.shape)) @ total
        if step >= skipped:
            rows.append(x)
    series = np.stack(rows, axis=1)
    moments = Moments.of_blocks([Block(one) for one in series], 1, d)
    return moments.about(moments.mean) / moments.n


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError


def fit(G: np.ndarray, device: Device, limit: float) -> dict[str, Any]:
    """FDBNL's server and one site that holds all rows, by the paths of the library; stopped after `limit` seconds."""
    q = len(G)
    d = q // 2
    constraints = EdgeConstraints.from_edges(tuple(f"x{i}" for i in range(d)), 1)
    options = RunOptions(
        penalty=penalty_matrix(constraints, 0.05, 0.05),
        metric=np.diag(G).copy(),
        constraints=constraints,
        schedule=make_schedule("rounds", 1, 1.0),
        acyclicity=get_acyclicity("expm", device),
        optimum="path",
    )
    run, stages, start = ConsensusRun(options), {}, time.perf_counter()
    last = start
    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        while not run.is_done:
            stage = run.stage.value
            run.advance(gradient_answers(G[None], run.C, device)[0], 1)
            now = time.perf_counter()
            spent = stages.setdefault(stage, {"rounds": 0, "seconds": 0.0})
            spent["rounds"] += 1
            spent["seconds"] += now - last
            last = now
    except TimeoutError:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    return {
        "seconds": last - start,
        "rounds": run.round,
        "finished": run.is_done,
        "evaluations of h": run.n_evaluations,
        "stages": stages,
        "objective": run.raw_objective if run.is_done else None,
        "C": run.C_raw if run.is_done else None,
    }


def fit_rows(sizes: list, devices: dict[str, Device], clock: Clock) -> list[dict]:
    rows, share = [], 0.9 / len(devices)
    for d in sizes:
        if clock.left <= 0:
            break
        G = system_gram(d)
        row: dict[str, Any] = {"d": d, "n": 10 * d, "n_lags": 1, "optimum": "path"}
        found = {}
        # The quicker one first; a limit for each keeps the others from going without.
        for name, device in sorted(devices.items(), reverse=True):
            found[name] = fit(G, device, max(1.0, share * clock.left))
        if "torch" in found:
            row["weights apart"] = apart(found["torch"]["C"], found["numpy"]["C"])
        for name, one in found.items():
            one.pop("C")
            row[name] = one
        rows.append(row)
    return rows


def versions() -> tuple[dict[str, str], list[str]]:
    """Versions of what is there, and what is not."""
    there, missing = {"python": platform.python_version()}, []
    for name in PACKAGES:
        try:
            there[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    return there, missing


def open_torch() -> tuple[Device | None, dict[str, Any]]:
    """The device that is measured beside numpy, and words about it."""
    start = time.perf_counter()
    try:
        device = open_device("cuda")
    except MissingExtra:
        return None, {"device": None, "note": "torch is missing: numpy alone was measured"}
    except ParameterError as error:
        from feddbn.core.backend.torch_device import TorchDevice

        device = TorchDevice("cpu", takes_all=True)
        return device, {"device": "torch on the CPU", "note": f"no GPU: {error}"}
    from feddbn.core.backend.torch_device import TorchDevice

    measured = TorchDevice("cuda", takes_all=True)
    measured.get(measured.put(np.eye(64)) @ measured.put(np.eye(64)))
    torch = measured.xp
    words = {"device": torch.cuda.get_device_name(0), "cuda": torch.version.cuda}
    words["seconds to start"] = time.perf_counter() - start
    x = np.random.default_rng(0).random(8_000_000)
    clock = Clock(20.0)
    there, on_device = seconds_of(lambda: (measured.put(x), torch.cuda.synchronize())[0], clock)
    back, _ = seconds_of(lambda: measured.get(on_device), clock)
    if there and back:
        words |= {"GB/s to the device": 0.064 / there, "GB/s from the device": 0.064 / back}
    return measured, words


def measured(sizes: dict, devices: dict[str, Device], seconds: float) -> dict[str, Any]:
    """All tables, within so many seconds: a part for pieces, the rest for fits."""
    clock = Clock(seconds)
    parts = Clock(0.35 * seconds)
    found: dict[str, Any] = {
        "expm": expm_rows(sizes["expm"], devices, parts),
        "product": product_rows(sizes["product"], devices, parts),
        "gram": gram_rows(sizes["gram"], devices, parts),
    }
    return found | {"fits": fit_rows(sizes["fits"], devices, clock)}


def one_core(arguments: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """Numpy with one core, in a process of its own: the number of threads is read when numpy is loaded."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "one.json"
        command = [sys.executable, __file__, "--only-numpy", "--out", str(out), "--seconds", str(seconds)]
        command += ["--tiny"] if arguments.tiny else []
        done = subprocess.run(command, env=os.environ | dict.fromkeys(names, "1"), check=False)
        if done.returncode or not out.exists():
            return {"note": f"the process with one core ended with code {done.returncode}"}
        return dict(json.loads(out.read_text())["all cores"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="file for the JSON")
    parser.add_argument("--seconds", type=float, default=330.0, help="time in all")
    parser.add_argument("--tiny", action="store_true", help="sizes at which nothing is measured, for tests")
    parser.add_argument("--only-numpy", action="store_true", help="numpy with the cores it finds")
    arguments = parser.parse_args()
    start = time.perf_counter()
    there, missing = versions()
    sizes = TINY if arguments.tiny else FULL
    result: dict[str, Any] = {
        "versions": there,
        "missing": missing,
        "machine": {"cores": os.cpu_count(), "processor": platform.machine(), "system": platform.system()},
    }
    devices: dict[str, Device] = {"numpy": HOST}
    total = arguments.seconds
    if not arguments.only_numpy:
        device, result["torch"] = open_torch()
        if device is not None:
            devices["torch"] = device
        result["one core"] = one_core(arguments, 0.4 * total)
        total -= time.perf_counter() - start
    result["all cores"] = measured(sizes, devices, total)
    result["seconds"] = time.perf_counter() - start
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"wrote {arguments.out.name} after {result['seconds']:.0f} s; missing: {', '.join(missing) or 'nothing'}"
    )


if __name__ == "__main__":
    main()
