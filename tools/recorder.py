"""Record what every method finds on 100 fixed data sets, and compare two records.

    python tools/recorder.py before.json                        # now
    python tools/recorder.py after.json --against before.json   # after a change: what differs, exit code 1
    python tools/recorder.py after.json --against REVISION      # records that revision first, in a worktree of its own

A record has the edges, numbers, status and codes of findings of some 300 fits with default settings (2 to 5 minutes on
two cores). The data are drawn here with numpy alone, so they stay the same whatever happens to `feddbn.simulate`.
Numbers differ if they are farther apart than `--tolerance` (1e-6), relative to the larger of both and 1.

A difference that is meant stands in tools/recorded-differences.toml until its change has landed, with its reason:

    [[allowed]]
    fit = "levels-*/FDBNL"            # which fits; * matches anything
    what = "intercept*"               # which entries of them
    why = "Average has the intercept of its sites."
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd

ALLOWED = Path(__file__).with_name("recorded-differences.toml")
Sites = dict[str, list[pd.DataFrame]]
Rows = list[np.ndarray]
ONE = ("OneShotDBN", "FDBNL")
SUMS = (*ONE, "LatentDBN", "MomentSummary")
BASELINES = ("Average", "LocalOnly")


@dataclass(frozen=True)
class Kind:
    """One kind of data: what is drawn, what happens to the rows, and which methods learn from them how."""

    methods: tuple[str, ...]
    d: int = 4
    lags: int = 1
    rows: tuple[int, ...] = (120, 120, 120)
    noise: str = "normal"
    spoil: Callable[[Sites, np.random.Generator], Sites] = lambda sites, rng: sites
    differ: bool = False
    changes: bool = False
    bends: bool = False
    settings: Mapping[str, Any] | None = None


def network(rng: np.random.Generator, d: int, lags: int) -> np.ndarray:
    """((lags + 1) d, d) weights of a stable network: within a step (acyclic), then by lag."""
    order, C = rng.permutation(d), np.zeros((lags + 1, d, d))
    signs = rng.choice([-1.0, 1.0], size=C.shape)
    drawn = rng.random(C.shape) < 2.0 / d
    weights = signs * rng.uniform(0.3, 0.6, size=C.shape) * drawn
    rank = np.argsort(order)
    C[0] = weights[0] * (rank[:, None] < rank[None])
    for lag in range(1, lags + 1):
        C[lag] = weights[lag] / lag
        np.fill_diagonal(C[lag], rng.uniform(0.2, 0.5, size=d) / lag)
    while lags and _radius(C) > 0.9:
        C[1:] *= 0.9
    return C.reshape(-1, d)


def _radius(C: np.ndarray) -> float:
    lags, d = len(C) - 1, C.shape[1]
    step = [(A @ np.linalg.inv(np.eye(d) - C[0])).T for A in C[1:]]
    companion = np.zeros((lags * d, lags * d))
    companion[:d] = np.hstack(step)
    companion[d:, :-d] = np.eye((lags - 1) * d)
    return float(np.abs(np.linalg.eigvals(companion)).max())


def series(rng: np.random.Generator, C: np.ndarray, n: int, kind: Kind) -> np.ndarray:
    """(n, d) rows of a network, after 50 that are thrown away; with `changes` the edges of lag 1 turn half-way."""
    d, lags, burn = C.shape[1], kind.lags, 50
    draw = {
        "normal": rng.standard_normal,
        "laplace": rng.laplace,
        "t3": lambda size: rng.standard_t(3, size=size),
    }
    u = draw[kind.noise](size=(n + burn, d))
    inverse = np.linalg.inv(np.eye(d) - C[:d])
    x = np.zeros((n + burn + lags, d))
    for t in range(n + burn):
        past = np.concatenate([x[t + lags - lag] for lag in range(1, lags + 1)]) if lags else np.zeros(0)
        if kind.bends:
            past = past + 0.4 * (past**2 - 1.0) * (np.abs(past) < 2)
        turned = -1.0 if kind.changes and t > burn + n // 2 else 1.0
        x[t + lags] = (u[t] + turned * past @ C[d:]) @ inverse
    return x[lags + burn :]


def drawn(name: str, seed: int) -> Sites:
    """The sites of one data set."""
    kind, rng = KINDS[name], np.random.default_rng([crc32(name.encode()), seed])
    C, sites = network(rng, kind.d, kind.lags), {}
    for k, n in enumerate(kind.rows):
        own = network(rng, kind.d, kind.lags) if kind.differ and k else C
        names = [f"x{j}" for j in range(kind.d)]
        sites[f"s{k}"] = [pd.DataFrame(series(rng, own, n, kind), columns=names)]
    return kind.spoil(sites, rng)


def _each(change: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Callable[..., Sites]:
    """What happens to the values of every recording."""

    def spoil(sites: Sites, rng: np.random.Generator) -> Sites:
        return {
            name: [pd.DataFrame(change(r.to_numpy(), rng), columns=r.columns) for r in recordings]
            for name, recordings in sites.items()
        }

    return spoil


def _spikes(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return x + 15.0 * (rng.random(x.shape) < 0.01)


def _day(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    hours = np.arange(len(x))[:, None] + rng.integers(24)
    return x + 3.0 * np.sin(2 * np.pi * hours / 24 + np.arange(x.shape[1]))


def _kinds(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    counts, yes = (
        rng.poisson(np.exp(0.4 * np.clip(x[:, 1], -3, 3))),
        x[:, 2] + 0.5 * rng.logistic(size=len(x)) > 0,
    )
    return np.column_stack([x[:, 0], counts, yes, x[:, 3:]]).astype(float)


def _split(sites: Sites, rng: np.random.Generator) -> Sites:
    levels = iter(rng.normal(scale=3.0, size=(40, 30)))
    cut = {
        name: [r[k : k + 40].reset_index(drop=True) for k in range(0, 120, 40)]
        for name, (r,) in sites.items()
    }
    return {name: [r + next(levels)[: r.shape[1]] for r in recordings] for name, recordings in cut.items()}


def _hidden(sites: Sites, rng: np.random.Generator) -> Sites:
    return {name: [r.iloc[:, 1:] for r in recordings] for name, recordings in sites.items()}


def _units(sites: Sites, rng: np.random.Generator) -> Sites:
    sites["s1"] = [
        r * np.r_[1.8, np.ones(r.shape[1] - 1)] + 32 * (np.arange(r.shape[1]) == 0) for r in sites["s1"]
    ]
    return sites


KINDS = {
    "clean": Kind((*SUMS, "PFDBNL", *BASELINES, "ChangingDBN")),
    "eight": Kind((*SUMS, "PFDBNL"), d=8, rows=(200, 200, 200)),
    "thirty": Kind(ONE, d=30, rows=(400, 400)),
    "two-lags": Kind((*SUMS, "PFDBNL"), lags=2, settings={"n_lags": 2}),
    "no-lags": Kind((*ONE, "Average"), lags=0, settings={"n_lags": 0}),
    "auto-lags": Kind(("OneShotDBN",), lags=2, settings={"n_lags": "auto"}),
    "few-rows": Kind(SUMS, rows=(15, 15, 15)),
    "unequal": Kind((*ONE, "PFDBNL"), rows=(300, 60, 30)),
    "one-site": Kind(ONE, rows=(300,)),
    "differ": Kind((*ONE, "PFDBNL", *BASELINES), rows=(200, 200, 200), differ=True),
    "recordings": Kind((*SUMS, "PFDBNL", "Average"), spoil=_split),
    "trend": Kind(ONE, spoil=_each(lambda x, rng: x + np.outer(np.linspace(0, 4, len(x)), rng.normal(size=x.shape[1])))),
    "day": Kind(ONE, rows=(300, 300), spoil=_each(_day)),
    "empty": Kind(SUMS, spoil=_each(lambda x, rng: np.where(rng.random(x.shape) < 0.15, np.nan, x))),
    "spikes": Kind((*ONE, "LatentDBN"), spoil=_each(_spikes)),
    "tails": Kind((*ONE, "LatentDBN"), noise="t3"),
    "laplace": Kind(ONE, noise="laplace", rows=(300, 300)),
    "curves": Kind(("OneShotDBN",), rows=(300, 300), bends=True),
    "kinds": Kind(("MixedDBN",), rows=(300, 300), spoil=_each(_kinds), settings={"kinds": {"x1": "count", "x2": "binary"}}),
    "changes": Kind(("ChangingDBN", "OneShotDBN"), rows=(300, 300), changes=True),
    "hidden": Kind(("LatentDBN", "OneShotDBN"), d=5, rows=(300, 300), spoil=_hidden),
    "units": Kind(ONE, spoil=_units),
    "fdr": Kind(("OneShotDBN",), settings={"fdr": 0.1}),
    "paper": Kind(("FDBNL", "PFDBNL"), rows=(60, 60, 60), settings={"schedule": "paper"}),
}  # fmt: skip
# Four data sets of each kind, fewer of what takes long, more of what most people have: 100 in all.
SEEDS = {
    "thirty": 2,
    "auto-lags": 3,
    "fdr": 3,
    "paper": 3,
    "clean": 7,
    "eight": 7,
    "empty": 7,
}
DATA_SETS = [(name, seed) for name in KINDS for seed in range(SEEDS.get(name, 4))]


def found(model: Any) -> dict[str, Any]:
    """Entry -> number or text: all that a fit found, whatever the method."""
    out: dict[str, Any] = {
        "findings": " ".join(sorted({f"{one.level}:{one.code}" for one in model.findings_}))
    }
    has = vars(model)
    networks = {"": has.get("dbn_"), **has.get("dbns_", {})}
    networks |= {f"segment {k}": dbn for k, dbn in enumerate(has.get("dbns_by_segment_", []))}
    for name, dbn in networks.items():
        if dbn is not None:
            out |= {f"{where} {name}".strip(): value for where, value in _of_network(dbn)}
    for table in ("edge_probabilities_", "edges_"):
        if isinstance(has.get(table), pd.DataFrame):
            out |= dict(_of_table(table, has[table]))
    for name in ("n_samples_", "status_", "n_lags_", "orientation_"):
        if has.get(name) is not None:
            out |= dict(_flat(name, has[name]))
    return out


def _of_network(dbn: Any) -> Iterator[tuple[str, Any]]:
    for row in dbn.edges().itertuples():
        yield f"edge {row.source}->{row.target}@{row.lag}", float(row.weight)
    for name in ("intercept", "noise_variances"):
        value = getattr(dbn, name, None)
        yield from _flat(name, value)


def _of_table(name: str, table: pd.DataFrame) -> Iterator[tuple[str, Any]]:
    keys = [column for column in ("source", "target", "lag", "cause", "effect") if column in table]
    for key, row in zip(table[keys].astype(str).agg(" ".join, axis=1), table.to_dict("records"), strict=True):
        for column, value in row.items():
            if column not in keys:
                yield from _flat(f"{name} {key} {column}", value)


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _flat(f"{name} {key}", one)
    elif isinstance(value, list | tuple | np.ndarray) and not isinstance(value, str):
        for k, one in enumerate(value):
            yield from _flat(f"{name} {k}", one)
    else:
        is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        yield name, float(value) if is_number else str(value)


def fit(case: tuple[str, int]) -> dict[str, dict[str, Any]]:
    """Fit -> what was found, for all methods of one data set; a refusal is found, too."""
    import feddbn
    from feddbn.errors import FeddbnError

    (name, seed), out = case, {}
    kind, sites = KINDS[name], drawn(name, seed)
    for method in kind.methods:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                out[f"{name}-{seed}/{method}"] = found(
                    getattr(feddbn, method)(**(kind.settings or {})).fit(sites)
                )
            except FeddbnError as error:
                out[f"{name}-{seed}/{method}"] = {
                    "refused": str(getattr(error, "code", "") or type(error).__name__)
                }
    return out


def record() -> dict[str, dict[str, Any]]:
    """All fits, by two processes."""
    out: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(2) as pool:
        for done, one in enumerate(pool.map(fit, DATA_SETS), 1):
            out |= one
            if done % 20 == 0:
                print(f"{done} of {len(DATA_SETS)} data sets", file=sys.stderr)
    return out


def recorded(where: str) -> dict[str, dict[str, Any]]:
    """The record of a file, or of a revision."""
    if Path(where).is_file():
        return json.loads(Path(where).read_text())
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", f"{place}/then", where], check=True)
        try:
            path = os.pathsep.join([f"{place}/then/src", os.environ.get("PYTHONPATH", "")])
            command = [sys.executable, __file__, f"{place}/then.json"]
            subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=True)
            return json.loads(Path(place, "then.json").read_text())
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", f"{place}/then"], check=True)


def differences(
    before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]], tolerance: float
) -> list[tuple[str, str, Any, Any]]:
    """(fit, entry, before, after) of all that is not the same; None where one of the two has no such entry."""
    return [
        (name, what, was, now)
        for name in sorted(before.keys() | after.keys())
        for then, new in [(before.get(name, {}), after.get(name, {}))]
        for what in sorted(then.keys() | new.keys())
        for was, now in [(then.get(what), new.get(what))]
        if not _same(was, now, tolerance)
    ]


def _same(was: Any, now: Any, tolerance: float) -> bool:
    if was == now or not (isinstance(was, float) and isinstance(now, float)):
        return bool(was == now)
    return abs(was - now) <= tolerance * max(1.0, abs(was), abs(now)) or (np.isnan(was) and np.isnan(now))


def main() -> int:
    """Record, compare, and say what differs."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("out", help="the file that is written")
    asked.add_argument("--against", help="an earlier record, or a revision of this repository")
    asked.add_argument("--tolerance", type=float, default=1e-6)
    asked.add_argument("--all", action="store_true", help="every difference, not the first 40")
    given = asked.parse_args()
    now = record()
    Path(given.out).write_text(json.dumps(now, indent=0, sort_keys=True))
    if given.against is None:
        print(f"{len(now)} fits, {sum(map(len, now.values()))} entries in {given.out}")
        return 0
    found = differences(recorded(given.against), now, given.tolerance)
    allowed = tomllib.loads(ALLOWED.read_text()).get("allowed", [])
    new = [
        one
        for one in found
        if not any(fnmatch(one[0], a["fit"]) and fnmatch(one[1], a["what"]) for a in allowed)
    ]
    for name, what, was, is_now in new if given.all else new[:40]:
        print(f"{name:24} {what:48} {was} -> {is_now}")
    if len(new) > 40 and not given.all:
        print(f"and {len(new) - 40} more (--all)")
    methods = sorted({name.partition("/")[2] for name in now})
    for method in methods:
        of = [name for name in now if name.endswith(f"/{method}")]
        moved = {one[0] for one in found if one[0].endswith(f"/{method}")}
        print(f"{method:14} {len(of):4} fits, {len(of) - len(moved & set(of)):4} the same")
    print(f"{len(found)} differences, {len(found) - len(new)} of them allowed")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
