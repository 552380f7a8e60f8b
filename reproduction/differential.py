"""Series of systems with known graphs that are no drawn networks: Lorenz-96, predators with their prey, levels of rivers,
and linear stochastic differential equations at any times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm, solve_continuous_lyapunov

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.errors import ParameterError
from feddbn.settings import number, whole

Slope = Callable[[FloatArray], FloatArray]

_LARGEST_STEP = 0.005
_BURN_IN = 20.0  # Units of time; both systems forget their start within a few.
_GROWTH, _CAPACITY, _DEATH = 1.0, 5.0, 1.0


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Independent recordings of one system.

    Attributes
    ----------
    recordings
        One (n_rows, d) array per site.
    graph
        (d, d), [from, to]: which variable's equation has which other one in it. A variable's own past is one of its
        causes.
    variables
        d names.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.differential import lorenz96
    >>> drawn = lorenz96(5, 20, rng=np.random.default_rng(0))
    >>> drawn.variables, drawn.recordings[0].shape
    (('x0', 'x1', 'x2', 'x3', 'x4'), (20, 5))
    """

    recordings: list[FloatArray]
    graph: BoolArray
    variables: tuple[str, ...]


def runge_kutta(slope: Slope, x: FloatArray, step: float) -> FloatArray:
    """`x` one step later, by the classical method of fourth order."""
    k1 = slope(x)
    k2 = slope(x + step / 2 * k1)
    k3 = slope(x + step / 2 * k2)
    k4 = slope(x + step * k3)
    return np.asarray(x + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4))


def lorenz96_slope(forcing: float) -> Slope:
    """``dx_i/dt = (x_{i+1} - x_{i-2}) x_{i-1} - x_i + F`` along the last axis, a ring."""

    def slope(x: FloatArray) -> FloatArray:
        i = np.arange(x.shape[-1])
        before, earlier, after = x[..., i - 1], x[..., i - 2], x[..., i - len(i) + 1]
        return np.asarray((after - earlier) * before - x + forcing)

    return slope


def lorenz96(
    d: int = 10,
    n_rows: int = 500,
    *,
    F: float = 10.0,
    dt: float = 0.1,
    noise: float = 0.1,
    n_sites: int = 1,
    rng: np.random.Generator,
) -> Trajectories:
    """Return the chaotic weather ring of Lorenz (1996), seen every `dt` with noise on what is seen.

        dx_i/dt = (x_{i+1} - x_{i-2}) x_{i-1} - x_i + F

    Causes of i are i-2, i-1, i and i+1.

    Parameters
    ----------
    d, n_rows, n_sites
        Variables (at least 4), rows of every site, and sites; every site has a start of its own.
    F
        Forcing, at most 100; 10 is chaotic, 40 more so.
    dt
        Time between rows, 0.001 to 10.
    noise
        Standard deviation of the error of measurement.
    rng
        Source of randomness.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.differential import lorenz96
    >>> drawn = lorenz96(5, 20, rng=np.random.default_rng(0))
    >>> drawn.graph.sum(axis=0).tolist()
    [4, 4, 4, 4, 4]
    """
    _check(d, 4, n_rows, n_sites, dt, noise)
    number(0.0, most=100.0).check("F", F)
    start = F + rng.standard_normal((n_sites, d))
    # The faster it turns, the smaller the steps: errors of a row stay far below 0.001.
    path = _sampled(lorenz96_slope(F), start, n_rows, dt, min(_LARGEST_STEP, 0.1 / max(F, 1.0)))
    path = path + noise * rng.standard_normal(path.shape)
    targets = np.arange(d)
    graph = np.zeros((d, d), dtype=bool)
    for shift in (-2, -1, 0, 1):
        graph[(targets + shift) % d, targets] = True
    return Trajectories(list(path), graph, tuple(f"x{i}" for i in range(d)))


def lotka_volterra_slope(hunts: BoolArray) -> Slope:
    """Slopes of the logarithms of prey and predators, given who hunts whom, (prey, predators).

    With h prey for each predator and h predators for each prey, all populations rest at 1:
    ``d log x_i = 1 - x_i / 5 - (0.8 / h) sum of its predators``, ``d log y_j = (1 / h) sum of its prey - 1``.
    """
    n, share = len(hunts), hunts / hunts.sum(axis=0, keepdims=True)
    harm = _GROWTH * (1.0 - 1.0 / _CAPACITY)

    def slope(logs: FloatArray) -> FloatArray:
        prey, predators = np.exp(logs[..., :n]), np.exp(logs[..., n:])
        grows = _GROWTH * (1.0 - prey / _CAPACITY) - harm * predators @ share.T
        return np.concatenate([grows, _DEATH * (prey @ share - 1.0)], axis=-1)

    return slope


def lotka_volterra(
    d: int = 10,
    n_rows: int = 500,
    *,
    n_hunted: int = 2,
    dt: float = 0.25,
    noise: float = 0.2,
    n_sites: int = 1,
    rng: np.random.Generator,
) -> Trajectories:
    """Return populations of d/2 kinds of prey and d/2 of predators, seen every `dt`, with chance in their growth.

        d log x_i = (1 - x_i / 5 - (0.8 / h) sum of its predators) dt + noise dB
        d log y_j = ((1 / h) sum of its prey - 1) dt + noise dB

    Causes of a kind are itself and those that it hunts or that hunt it. Populations swing around 1.

    Parameters
    ----------
    d, n_rows, n_sites
        Variables (even), rows of every site, and sites; every site has a start of its own.
    n_hunted
        How many prey each predator hunts, h; predator j hunts prey j, j+1, ..., in a ring.
    dt
        Time between rows, 0.001 to 10.
    noise
        Standard deviation of the chance in the growth of a kind over one unit of time, at most 1; with 0 populations
        come to rest.
    rng
        Source of randomness.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.differential import lotka_volterra
    >>> drawn = lotka_volterra(4, 20, rng=np.random.default_rng(0))
    >>> drawn.recordings[0].shape, drawn.graph.shape
    ((20, 4), (4, 4))
    """
    _check(d, 2, n_rows, n_sites, dt, noise)
    number(0.0, most=1.0).check("noise", noise)
    if d % 2:
        raise ParameterError(f"d must be even, a predator for each prey, got {d!r}.")
    whole(1).check("n_hunted", n_hunted)
    n = d // 2
    if n_hunted > n:
        raise ParameterError(f"n_hunted={n_hunted} is more than the {n} prey that d={d} gives.")
    hunts = np.zeros((n, n), dtype=bool)
    for shift in range(n_hunted):
        hunts[(np.arange(n) + shift) % n, np.arange(n)] = True
    start = 0.5 * rng.standard_normal((n_sites, d))

    def chance(step: float) -> FloatArray:
        return np.asarray(noise * np.sqrt(step) * rng.standard_normal(start.shape))

    path = np.exp(_sampled(lotka_volterra_slope(hunts), start, n_rows, dt, _LARGEST_STEP, chance))
    graph = np.eye(d, dtype=bool)
    graph[:n, n:], graph[n:, :n] = hunts, hunts.T
    names = [f"prey{i}" for i in range(n)] + [f"predator{i}" for i in range(n)]
    return Trajectories(list(path), graph, tuple(names))


def _sampled(
    slope: Slope,
    x: FloatArray,
    n_rows: int,
    dt: float,
    largest_step: float,
    chance: Callable[[float], FloatArray] | None = None,
) -> FloatArray:
    """(sites, n_rows, d) states every `dt` after a burn-in, from (sites, d) starts; `chance` is added to every step."""
    n_steps = int(np.ceil(dt / largest_step))
    n_burned = int(np.ceil(_BURN_IN / dt))
    path = np.empty((len(x), n_rows, x.shape[1]))
    for t in range(-n_burned, n_rows):
        for _ in range(n_steps):
            x = runge_kutta(slope, x, dt / n_steps)
            if chance is not None:
                x = x + chance(dt / n_steps)
        if t >= 0:
            path[:, t] = x
    return path


def _check(d: int, least_d: int, n_rows: int, n_sites: int, dt: float, noise: float) -> None:
    for name, value, least in (("d", d, least_d), ("n_rows", n_rows, 1), ("n_sites", n_sites, 1)):
        whole(least).check(name, value)
    number(0.001, most=10).check("dt", dt)
    number(0.0).check("noise", noise)


_BURNED_ROWS = 300
_WET = 0.03
_DRIZZLE = 0.05


def river_levels(
    d: int = 10,
    n_rows: int = 4000,
    *,
    max_delay: int = 5,
    shared: float = 0.4,
    noise: float = 0.01,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float64], NDArray[np.int_]]:
    """Return (n_rows, d) levels of gauges and (d, d) of 0 and 1, [from, to]: which gauge flows into which.

    Every gauge but the last flows into one gauge further down. A gauge keeps most of its level and takes in its rain and a
    part of what came from upstream some rows ago:

        x_j(t) = phi_j x_j(t-1) + (1 - phi_j) (rain_j(t) + sum_i gain_ij x_i(t - delay_ij)) + u_j(t)

    Rain comes in bursts that fade slowly. Regressions of one level on the others then have thousands of rows and few
    independent ups and downs.

    Parameters
    ----------
    d, n_rows
        Numbers of gauges and of rows.
    max_delay
        Delays are 1 to this many rows.
    shared
        Part of the rain that is the same everywhere, from 0 to 1.
    noise
        Standard deviation of the gauges' own error, in standard deviations of the level.
    rng
        Source of randomness.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.differential import river_levels
    >>> levels, delays = river_levels(4, 200, rng=np.random.default_rng(0))
    >>> levels.shape, delays.shape
    ((200, 4), (4, 4))
    """
    for name, value, least in (("d", d, 2), ("n_rows", n_rows, 1), ("max_delay", max_delay, 1)):
        whole(least).check(name, value)
    number(0, most=1).check("shared", shared)
    number(0).check("noise", noise)
    truth, below = np.zeros((d, d), dtype=int), np.full(d, -1)
    place = rng.permutation(d)
    for k in range(d - 1):
        upper, lower = place[k], place[min(k + int(rng.geometric(0.5)), d - 1)]
        truth[upper, lower], below[upper] = 1, lower
    delay, gain = rng.integers(1, max_delay + 1, d), rng.uniform(0.4, 0.9, d)
    keeps, fades = rng.uniform(0.8, 0.97, d), float(rng.uniform(0.9, 0.98))
    upstream = np.flatnonzero(below >= 0)
    n_all = n_rows + _BURNED_ROWS + max_delay
    everywhere, own = _bursts(n_all, 1, rng), _bursts(n_all, d, rng)
    x, common, local = np.zeros((n_all, d)), 0.0, np.zeros(d)
    for t in range(max_delay, n_all):
        common, local = fades * common + everywhere[t, 0], fades * local + own[t]
        inflow = shared * common + (1 - shared) * local
        np.add.at(inflow, below[upstream], gain[upstream] * x[t - delay[upstream], upstream])
        x[t] = keeps * x[t - 1] + (1 - keeps) * inflow + 0.002 * rng.standard_normal(d)
    levels = x[-n_rows:]
    levels = levels + noise * levels.std(axis=0) * rng.standard_normal(levels.shape)
    return levels, truth


def _bursts(n_rows: int, d: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """(n_rows, d) rain: now and then a shower, otherwise next to nothing."""
    showers = (rng.random((n_rows, d)) < _WET) * rng.exponential(1.0, (n_rows, d))
    return showers + _DRIZZLE * rng.standard_normal((n_rows, d))


def draw_rates(
    d: int,
    n_edges: int,
    *,
    rng: np.random.Generator,
    own: tuple[float, float] = (0.3, 1.0),
    strength: tuple[float, float] = (0.3, 0.8),
) -> FloatArray:
    """Return A of a stable system ``dx = A x dt + G dw``, [to, from]: cycles are allowed.

    Parameters
    ----------
    d, n_edges
        Variables (at least 2), and entries off the diagonal that are not 0.
    rng
        Source of randomness.
    own
        Range of the rates at which variables forget.
    strength
        Range of the sizes of the other rates, in geometric means of the two variables' own rates.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.differential import draw_rates
    >>> A = draw_rates(4, 5, rng=np.random.default_rng(0))
    >>> int((A != 0).sum()), bool(np.linalg.eigvals(A).real.max() < 0)
    (9, True)
    """
    whole(2).check("d", d)
    whole(0, d * (d - 1)).check("n_edges", n_edges)
    while True:
        forgets = rng.uniform(*own, d)
        A = -np.diag(forgets)
        places = rng.choice(d * (d - 1), n_edges, replace=False)
        to, step = places // (d - 1), places % (d - 1)
        source = (to + 1 + step) % d
        sizes = rng.choice([-1.0, 1.0], n_edges) * rng.uniform(*strength, n_edges)
        A[to, source] = sizes * np.sqrt(forgets[to] * forgets[source])
        # No motion is slower than a third of the slowest variable by itself.
        if np.linalg.eigvals(A).real.max() < -own[0] / 3:
            return A


def diffusion(A: FloatArray, Q: FloatArray, times: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return (n, d) values of a stable ``dx = A x dt + G dw`` with ``Q = G G'`` at ascending times, exact at each of them.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.differential import diffusion
    >>> A, Q = np.array([[-1.0, 0.5], [0.0, -1.0]]), np.eye(2)
    >>> diffusion(A, Q, np.array([0.0, 0.3, 2.5]), np.random.default_rng(0)).shape
    (3, 2)
    """
    d = len(A)
    S = solve_continuous_lyapunov(A, -Q)
    grown = np.asarray(expm(A * np.diff(times)[:, None, None]))
    left = S - grown @ S @ grown.transpose(0, 2, 1)
    shocks = np.linalg.cholesky((left + left.transpose(0, 2, 1)) / 2 + 1e-12 * np.trace(S) * np.eye(d))
    z = rng.standard_normal((len(times), d))
    x = np.empty((len(times), d))
    x[0] = np.linalg.cholesky(S) @ z[0]
    for t in range(len(times) - 1):
        x[t + 1] = grown[t] @ x[t] + shocks[t] @ z[t + 1]
    return x
