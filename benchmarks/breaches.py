"""Federations that break an assumption, in one way each and at two strengths; the network behind them is known.

`FAMILIES` has every family by name. `draw` gives the sites and the network of one federation: numbers of variables, sites
and rows, the density of the network and whether noise variances are equal are drawn too, so that nothing that is fitted
to these federations can count on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.model.dbn import DBN
from feddbn.sim.simulation import simulate

__all__ = ["FAMILIES", "draw"]

BURN_IN = 100
Rows = FloatArray
"""(sites, rows, variables)."""
Change = Callable[[Rows, float, np.random.Generator], Rows]


def _same(x: Rows, strength: float, rng: np.random.Generator) -> Rows:
    return x


# What becomes of the shocks, all of variance 1.


def _remembered(u: Rows, memory: float, rng: np.random.Generator) -> Rows:
    """Noise that keeps a share of itself from row to row."""
    v = u.copy()
    for t in range(1, u.shape[1]):
        v[:, t] = memory * v[:, t - 1] + np.sqrt(1 - memory**2) * u[:, t]
    return v


def _several_memories(u: Rows, most: float, rng: np.random.Generator) -> Rows:
    """The same, with a memory of its own for every variable."""
    memory, v = rng.uniform(0.0, most, u.shape[2]), u.copy()
    for t in range(1, u.shape[1]):
        v[:, t] = memory * v[:, t - 1] + np.sqrt(1 - memory**2) * u[:, t]
    return v


def _arch(u: Rows, share: float, rng: np.random.Generator) -> Rows:
    """The variance follows the last square."""
    v = u.copy()
    for t in range(1, u.shape[1]):
        v[:, t] = u[:, t] * np.sqrt(1 - share + share * v[:, t - 1] ** 2)
    return v


def _wandering(u: Rows, size: float, rng: np.random.Generator) -> Rows:
    """The log variance of all variables wanders together."""
    level = np.zeros(u.shape[:2])
    for t in range(1, u.shape[1]):
        level[:, t] = 0.95 * level[:, t - 1] + np.sqrt(1 - 0.95**2) * rng.standard_normal(len(u))
    return u * np.exp(size * level / 2)[:, :, None]


def _step(u: Rows, factor: float, rng: np.random.Generator) -> Rows:
    """Half of the variables have more noise in the last half of every recording."""
    v, half = u.copy(), BURN_IN + (u.shape[1] - BURN_IN) // 2
    v[:, half:, : u.shape[2] // 2] *= factor
    return v


def _heavy(u: Rows, degrees: float, rng: np.random.Generator) -> Rows:
    """Student's t."""
    return u * np.sqrt((degrees - 2) / rng.chisquare(degrees, u.shape))


def _two_points(u: Rows, share: float, rng: np.random.Generator) -> Rows:
    """One of two values, the rarer one in a share of the rows."""
    rare = rng.random(u.shape) < share
    return (rare - share) / np.sqrt(share * (1 - share))


def _mixture(u: Rows, size: float, rng: np.random.Generator) -> Rows:
    """Now and then (5 %) a shock that is several times as large."""
    large = rng.random(u.shape) < 0.05
    return u * np.where(large, size, 1.0) / np.sqrt(0.95 + 0.05 * size**2)


def _skewed(u: Rows, strength: float, rng: np.random.Generator) -> Rows:
    """Log-normal shocks: long tails to one side."""
    s2 = strength**2
    return (np.exp(strength * u) - np.exp(s2 / 2)) / np.sqrt((np.exp(s2) - 1) * np.exp(s2))


def _rank_one(u: Rows, share: float, rng: np.random.Generator) -> Rows:
    """A share of the variance of all shocks is one common shock."""
    loads = rng.choice([-1.0, 1.0], u.shape[2]) * rng.uniform(0.5, 1.5, u.shape[2])
    return np.sqrt(1 - share) * u + np.sqrt(share) * rng.standard_normal((*u.shape[:2], 1)) * loads


def _hidden(u: Rows, weight: float, rng: np.random.Generator) -> Rows:
    """Two hidden white causes act on three variables each, within a row."""
    d = u.shape[2]
    loads = np.zeros((2, d))
    for load in loads:
        load[rng.choice(d, 3, replace=False)] = weight * rng.choice([-1.0, 1.0], 3)
    return u + rng.standard_normal((*u.shape[:2], 2)) @ loads


def _hidden_lagged(u: Rows, weight: float, rng: np.random.Generator) -> Rows:
    """Two hidden causes with a memory of .8 act on three variables each, half of them a row later."""
    d, v = u.shape[2], u.copy()
    for _ in range(2):
        cause = _remembered(rng.standard_normal((*u.shape[:2], 1)), 0.8, rng)[:, :, 0]
        for k, j in enumerate(rng.choice(d, 3, replace=False)):
            late = np.roll(cause, k % 2, axis=1)
            v[:, :, j] += weight * rng.choice([-1.0, 1.0]) * late
    return v


def _noisy_site(u: Rows, factor: float, rng: np.random.Generator) -> Rows:
    v = u.copy()
    v[rng.integers(len(u))] *= factor
    return v


# What becomes of the rows.


def _spread(x: Rows) -> FloatArray:
    return np.asarray(x.reshape(-1, x.shape[2]).std(axis=0))


def _measured(x: Rows, size: float, rng: np.random.Generator) -> Rows:
    """Errors of measurement, white."""
    return x + size * _spread(x) * rng.standard_normal(x.shape)


def _measured_with_memory(x: Rows, size: float, rng: np.random.Generator) -> Rows:
    """Errors of measurement that keep .8 of themselves from row to row."""
    return x + size * _spread(x) * _remembered(rng.standard_normal(x.shape), 0.8, rng)


def _common_signal(x: Rows, size: float, rng: np.random.Generator) -> Rows:
    """One signal with a memory of .7 in the readings of all variables, which acts on nothing."""
    signal = _remembered(rng.standard_normal((*x.shape[:2], 1)), 0.7, rng)
    return x + size * _spread(x) * rng.uniform(0.5, 1.5, x.shape[2]) * signal


def _common_flicker(x: Rows, size: float, rng: np.random.Generator) -> Rows:
    """The same, white."""
    return x + size * _spread(x) * rng.uniform(0.5, 1.5, x.shape[2]) * rng.standard_normal((*x.shape[:2], 1))


def _interpolated(x: Rows, every: float, rng: np.random.Generator) -> Rows:
    """Only every few rows were read, a variable at its own times; what lies between is a straight line."""
    n, step = x.shape[1], round(every)
    at, v = np.arange(n), x.copy()
    for k in range(len(x)):
        for j in range(x.shape[2]):
            read = np.unique(np.append(np.arange(int(rng.integers(step)), n, step), [0, n - 1]))
            v[k, :, j] = np.interp(at, read, x[k, read, j])
    return v


def _interpolated_holes(x: Rows, share: float, rng: np.random.Generator) -> Rows:
    """A share of the cells was empty, at random, and is a straight line between its neighbours."""
    n, v = x.shape[1], x.copy()
    at = np.arange(n)
    for k in range(len(x)):
        for j in range(x.shape[2]):
            read = np.flatnonzero(rng.random(n) >= share)
            v[k, :, j] = np.interp(at, read, x[k, read, j])
    return v


def _held(x: Rows, share: float, rng: np.random.Generator) -> Rows:
    """A share of the cells repeats the last value."""
    v, is_held = x.copy(), rng.random(x.shape) < share
    for t in range(1, x.shape[1]):
        v[:, t] = np.where(is_held[:, t], v[:, t - 1], x[:, t])
    return v


def _smoothed(x: Rows, width: float, rng: np.random.Generator) -> Rows:
    """Centred moving means."""
    w = round(width)
    total = np.cumsum(np.pad(x, ((0, 0), (1, 0), (0, 0))), axis=1)
    return (total[:, w:] - total[:, :-w]) / w


def _filtered(x: Rows, memory: float, rng: np.random.Generator) -> Rows:
    """Devices that show a weighted mean of now and before."""
    v = x.copy()
    for t in range(1, x.shape[1]):
        v[:, t] = memory * v[:, t - 1] + (1 - memory) * x[:, t]
    return v


def _every(x: Rows, every: float, rng: np.random.Generator) -> Rows:
    """Every second or third row only."""
    return x[:, :: round(every)]


def _averaged(x: Rows, every: float, rng: np.random.Generator) -> Rows:
    """Means of two or three rows."""
    k = round(every)
    n = x.shape[1] // k
    return np.asarray(x[:, : n * k].reshape(len(x), n, k, -1).mean(axis=2))


def _two_rates(x: Rows, every: float, rng: np.random.Generator) -> Rows:
    """Half of the sites see every second or third row; the rest of their rows is empty."""
    v, k = x.copy(), round(every)
    for site in range(len(x) // 2):
        kept = x[site, ::k]
        v[site] = np.nan
        v[site, : len(kept)] = kept
    return v


def _holes(x: Rows, share: float, rng: np.random.Generator) -> Rows:
    return np.where(rng.random(x.shape) < share, np.nan, x)


def _large_ones_missing(x: Rows, share: float, rng: np.random.Generator) -> Rows:
    """Cells more than one standard deviation up are often empty."""
    is_high = x > x.reshape(-1, x.shape[2]).mean(axis=0) + _spread(x)
    return np.where(is_high & (rng.random(x.shape) < share), np.nan, x)


def _levels(x: Rows, size: float, rng: np.random.Generator) -> Rows:
    return x + size * _spread(x) * rng.standard_normal((len(x), 1, x.shape[2]))


def _trends(x: Rows, size: float, rng: np.random.Generator) -> Rows:
    line = np.linspace(-0.5, 0.5, x.shape[1])[None, :, None]
    return x + size * _spread(x) * rng.standard_normal((len(x), 1, x.shape[2])) * line


def _wandering_levels(x: Rows, size: float, rng: np.random.Generator) -> Rows:
    """Every variable of every site has a slow random walk of its own on top."""
    walk = np.cumsum(rng.standard_normal(x.shape), axis=1) / np.sqrt(x.shape[1])
    return x + size * _spread(x) * walk


def _cycles(x: Rows, size: float, rng: np.random.Generator) -> Rows:
    phase = rng.uniform(0, 2 * np.pi, (len(x), 1, x.shape[2]))
    wave = np.sin(2 * np.pi * np.arange(x.shape[1])[None, :, None] / 24 + phase)
    return x + size * _spread(x) * rng.standard_normal((len(x), 1, x.shape[2])) * wave


def _gains(x: Rows, size: float, rng: np.random.Generator) -> Rows:
    return x * np.exp(size * rng.standard_normal((len(x), 1, x.shape[2])))


def _rounded(x: Rows, step: float, rng: np.random.Generator) -> Rows:
    unit = step * _spread(x)
    return np.round(x / unit) * unit


def _saturated(x: Rows, limit: float, rng: np.random.Generator) -> Rows:
    """Sensors that end at a limit."""
    at = limit * _spread(x)
    return np.clip(x, -at, at)


def _bent(x: Rows, power: float, rng: np.random.Generator) -> Rows:
    """Half of the variables are read on a bent scale."""
    v, which = x.copy(), rng.random(x.shape[2]) < 0.5
    bent = np.exp(power * x / _spread(x))
    return np.where(which, bent, v)


def _spikes(x: Rows, share: float, rng: np.random.Generator) -> Rows:
    is_far = rng.random(x.shape) < share
    return x + is_far * rng.choice([-1.0, 1.0], x.shape) * rng.uniform(6, 20, x.shape) * _spread(x)


def _jitter(x: Rows, size: float, rng: np.random.Generator) -> Rows:
    """Rows taken early or late, interpolated."""
    at, v = np.arange(x.shape[1], dtype=float), x.copy()
    for k in range(len(x)):
        late = at + rng.uniform(-size, size, len(at))
        v[k] = np.stack([np.interp(late, at, column) for column in x[k].T], axis=1)
    return v


def _mixed_columns(x: Rows, n: float, rng: np.random.Generator) -> Rows:
    v = x.copy()
    for k in range(round(n)):
        v[k] = x[k][:, np.roll(np.arange(x.shape[2]), 1 + k)]
    return v


@dataclass(frozen=True)
class Family:
    """What breaks: the shocks, the effects, or the rows; with a mild and a strong strength.

    `effects`: "drift" (weights fall to or rise from a part of themselves), "stop" (some end half-way), "tanh" and "squares"
    (what of a cause acts), "slow" (variables without causes hardly forget themselves).
    """

    strengths: tuple[float, float] = (0.0, 0.0)
    shocks: Change = _same
    rows: Change = _same
    effects: str = ""
    extra: int = 1
    """How many times as many rows are drawn as are seen."""


FAMILIES: dict[str, Family] = {
    "clean": Family(),
    "autocorrelated noise": Family((0.3, 0.6), _remembered),
    "several memories": Family((0.5, 0.9), _several_memories),
    "variance follows squares": Family((0.3, 0.7), _arch),
    "variance wanders": Family((0.7, 1.5), _wandering),
    "variance steps": Family((2.0, 4.0), _step),
    "t noise": Family((5.0, 2.5), _heavy),
    "two-point shocks": Family((0.5, 0.04), _two_points),
    "mixture shocks": Family((4.0, 10.0), _mixture),
    "skewed shocks": Family((0.5, 1.0), _skewed),
    "rank-one noise": Family((0.3, 0.8), _rank_one),
    "hidden causes": Family((0.5, 1.0), _hidden),
    "hidden lagged causes": Family((0.5, 1.0), _hidden_lagged),
    "noisy site": Family((3.0, 8.0), _noisy_site),
    "white measurement noise": Family((0.3, 0.8), rows=_measured),
    "measurement noise with memory": Family((0.3, 0.8), rows=_measured_with_memory),
    "common signal": Family((0.4, 1.0), rows=_common_signal),
    "common flicker": Family((0.3, 0.8), rows=_common_flicker),
    "interpolated": Family((2.0, 4.0), rows=_interpolated),
    "interpolated holes": Family((0.2, 0.5), rows=_interpolated_holes),
    "held values": Family((0.2, 0.6), rows=_held),
    "smoothed": Family((2.0, 5.0), rows=_smoothed),
    "filtered": Family((0.3, 0.7), rows=_filtered),
    "every other row": Family((2.0, 4.0), rows=_every, extra=4),
    "means of rows": Family((2.0, 4.0), rows=_averaged, extra=4),
    "two rates": Family((2.0, 3.0), rows=_two_rates),
    "holes": Family((0.1, 0.3), rows=_holes),
    "large ones missing": Family((0.3, 0.8), rows=_large_ones_missing),
    "levels": Family((1.0, 4.0), rows=_levels),
    "trends": Family((1.0, 4.0), rows=_trends),
    "wandering levels": Family((1.0, 4.0), rows=_wandering_levels),
    "cycles": Family((0.5, 2.0), rows=_cycles),
    "gains": Family((0.3, 0.8), rows=_gains),
    "rounded": Family((0.5, 1.5), rows=_rounded),
    "saturated": Family((1.5, 0.6), rows=_saturated),
    "bent scales": Family((0.4, 1.0), rows=_bent),
    "spikes": Family((0.003, 0.02), rows=_spikes),
    "jitter": Family((0.3, 0.6), rows=_jitter),
    "mixed columns": Family((1.0, 2.0), rows=_mixed_columns),
    "drifting effects": Family((0.5, 1.0), effects="drift"),
    "stopping effects": Family((0.25, 0.6), effects="stop"),
    "effects that level off": Family((1.0, 3.0), effects="tanh"),
    "squared effects": Family((0.4, 1.0), effects="squares"),
    "slow levels": Family((0.97, 0.995), effects="slow"),
}


def _with_loops(truth: DBN, radius: float) -> DBN:
    """Variables without contemporaneous causes hardly forget their last value."""
    A, roots = truth.A.copy(), np.flatnonzero(~truth.W.any(axis=0))
    A[0, roots, roots] = radius
    lagged = A[0].copy()
    mixing = np.linalg.inv(np.eye(truth.d) - truth.W)
    while np.abs(np.linalg.eigvals(lagged @ mixing)).max() >= 0.999:
        lagged *= 0.99
    return DBN(truth.W, lagged[None], truth.variables)


def draw(family: str, strength: int, seed: int) -> tuple[dict[str, list[pd.DataFrame]], DBN]:
    """The sites of one federation and the network of what they measure; strength 0 is mild, 1 strong."""
    kind = FAMILIES[family]
    size = kind.strengths[strength]
    rng = np.random.default_rng([seed, crc32(family.encode()), strength])
    d, n_sites, n = int(rng.integers(6, 11)), int(rng.integers(4, 9)), int(rng.integers(150, 401))
    truth: DBN = simulate(
        d=d,
        n_lags=1,
        n_sites=1,
        n_samples=10,
        mean_degree=float(rng.uniform(1.5, 3.5)),
        lag_degree=float(rng.uniform(0.7, 1.5)),
        w_range=(0.25, 0.7),
        random_state=int(rng.integers(2**31)),
    ).truth
    scales = np.ones(d) if rng.random() < 0.5 else 2.0 ** rng.uniform(-1, 1, d)
    if kind.effects == "slow":
        truth = _with_loops(truth, size)
    shocks = kind.shocks(rng.standard_normal((n_sites, BURN_IN + kind.extra * n, d)), size, rng) * scales
    x = _path(truth, shocks, kind.effects, size, scales, rng)[:, BURN_IN:]
    x = kind.rows(x, size, rng)[:, :n]
    names = list(truth.variables)
    return {f"site-{k}": [pd.DataFrame(rows, columns=names)] for k, rows in enumerate(x)}, truth


def _path(
    truth: DBN, shocks: Rows, effects: str, size: float, scales: FloatArray, rng: np.random.Generator
) -> Rows:
    """What follows from shocks; both orders of effects are those of the network."""
    n, d = shocks.shape[1], truth.d
    W, A = truth.W, truth.A[0]
    signs = [rng.choice([-1.0, 1.0], (d, d)) for _ in range(2)]
    gone = [rng.random((d, d)) < size for _ in range(2)]
    order, is_bent = _order(W), effects in ("tanh", "squares")
    mixing = np.linalg.inv(np.eye(d) - W)

    def acts(value: FloatArray) -> FloatArray:
        z = value / (1.5 * scales)
        if effects == "tanh":
            return 1.5 * scales * np.tanh(size * z) / size
        c = np.clip(z, -3, 3)
        return 1.5 * scales * ((1 - size) * c + size * (c**2 - 1) / np.sqrt(2))

    x = np.zeros_like(shocks)
    for t in range(1, n):
        if effects in ("drift", "stop"):
            share = max(t - BURN_IN, 0) / (n - BURN_IN)
            if effects == "drift":
                now = [1 - size * np.where(sign > 0, share, 1 - share) for sign in signs]
            else:
                now = [~one if share > 0.5 else np.ones((d, d)) for one in gone]
            x[:, t] = (x[:, t - 1] @ (now[1] * A) + shocks[:, t]) @ np.linalg.inv(np.eye(d) - now[0] * W)
        elif is_bent:
            value = acts(x[:, t - 1]) @ A + shocks[:, t]
            for j in order:
                value[:, j] += acts(value) @ W[:, j]
            x[:, t] = value
        else:
            x[:, t] = (x[:, t - 1] @ A + shocks[:, t]) @ mixing
    return x


def _order(W: FloatArray) -> list[int]:
    """Causes first."""
    left, order = list(range(len(W))), list[int]()
    while left:
        ready = [j for j in left if not W[left, j].any()]
        order += ready
        left = [j for j in left if j not in ready]
    return order
