"""A neural peer: one small network per target, learned together so that the graph within a time step has no cycles.

After Sun, Schulte, Liu and Poupart (2021), *NTS-NOTEARS: learning nonparametric DBNs with prior knowledge*, written anew
from the description: target j is predicted from all variables at lags 0 to p by one hidden layer of sigmoids,

    x_j  ~  c_j + sum_k u_jk sigmoid(b_jk + z V_jk),      z = (x_t, x_{t-1}, ..., x_{t-p})

The edge i -> j at a lag has the weight |V_j.i|, the norm over the hidden units. Minimised by L-BFGS-B under an augmented
Lagrangian:

    |x - prediction|^2 / 2n + lambda1 |V|_1 + lambda2 (|V|^2 + |u|^2) / 2
      + alpha h + rho h^2 / 2,        h = tr exp(S) - d,   S_ij = |V_j.i|^2 at lag 0

V is a difference of two nonnegative parts, so that the L1 norm is smooth; a variable does not predict itself at lag 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import expm
from scipy.optimize import minimize
from scipy.special import expit

H_TOLERANCE = 1e-8
RHO_MAX = 1e16


@dataclass(frozen=True)
class Problem:
    """Rows (n, d) to predict, rows (n, (p+1) d) to predict from, and the penalties."""

    X: np.ndarray
    Z: np.ndarray
    lambda1: float
    lambda2: float
    hidden: int

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of hidden units of all targets and of inputs."""
        return self.X.shape[1] * self.hidden, self.Z.shape[1]

    @property
    def n_parameters(self) -> int:
        units, inputs = self.sizes
        return 2 * units * inputs + 2 * units + self.X.shape[1]

    def parts(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The two parts of V (units, inputs), then b and u (units,) and c (d,)."""
        units, inputs = self.sizes
        size = units * inputs
        up, down = (theta[k * size : (k + 1) * size].reshape(units, inputs) for k in (0, 1))
        rest = theta[2 * size :]
        return up, down, rest[:units], rest[units : 2 * units], rest[2 * units :]

    def squares(self, V: np.ndarray) -> np.ndarray:
        """(inputs, d) squared weights of edges."""
        return (V**2).reshape(self.X.shape[1], self.hidden, -1).sum(axis=1).T

    def acyclicity(self, V: np.ndarray) -> tuple[float, np.ndarray]:
        """h, and its gradient in S."""
        d = self.X.shape[1]
        E = expm(self.squares(V)[:d])
        return float(np.trace(E)) - d, E.T

    def predicted(self, theta: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(n, d) predictions and (n, units) hidden values of rows Z."""
        up, down, b, u, c = self.parts(theta)
        H = expit(Z @ (up - down).T + b)
        return (H * u).reshape(len(Z), -1, self.hidden).sum(axis=2) + c, H

    def value(self, theta: np.ndarray, alpha: float, rho: float) -> tuple[float, np.ndarray]:
        """The augmented Lagrangian and its gradient."""
        n, d = self.X.shape
        up, down, _, u, _ = self.parts(theta)
        V = up - down
        predicted, H = self.predicted(theta, self.Z)
        error = (predicted - self.X) / n
        h, dS = self.acyclicity(V)
        total = (
            n * float((error**2).sum()) / 2
            + self.lambda1 * float(up.sum() + down.sum())
            + self.lambda2 * float((V**2).sum() + (u**2).sum()) / 2
            + alpha * h
            + rho * h**2 / 2
        )
        each = np.repeat(error, self.hidden, axis=1)
        into = each * u * H * (1 - H)
        slope = into.T @ self.Z + self.lambda2 * V
        slope[:, :d] += 2 * (alpha + rho * h) * np.repeat(dS.T, self.hidden, axis=0) * V[:, :d]
        gradient = np.concatenate(
            [
                (slope + self.lambda1).ravel(),
                (self.lambda1 - slope).ravel(),
                into.sum(axis=0),
                (each * H).sum(axis=0) + self.lambda2 * u,
                error.sum(axis=0),
            ]
        )
        return total, gradient

    def bounds(self) -> list[tuple[float | None, float | None]]:
        """Both parts of V are nonnegative, and 0 for a variable's own value."""
        units, inputs = self.sizes
        top = np.full((units, inputs), np.inf)
        for j in range(self.X.shape[1]):
            top[j * self.hidden : (j + 1) * self.hidden, j] = 0.0
        limits = [(0.0, None if np.isinf(t) else 0.0) for t in top.ravel()] * 2
        return [*limits, *([(None, None)] * (self.n_parameters - len(limits)))]


@dataclass(frozen=True)
class NeuralFit:
    """What was learned: `weights` ((p+1) d, d) of edges [from, to], lag 0 first; `held_out` is the loss of rows kept back."""

    weights: np.ndarray
    h: float
    held_out: float

    def edges(self, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """W (d, d) and A (p, d, d) with weights above the threshold."""
        d = self.weights.shape[1]
        stack = np.where(self.weights > threshold, self.weights, 0.0).reshape(-1, d, d)
        return stack[0], stack[1:]


def rows_of(recordings: list[np.ndarray], n_lags: int) -> tuple[np.ndarray, np.ndarray]:
    """Present rows and rows of all lags; no lag crosses two recordings."""
    Z = [
        np.hstack([x[n_lags - lag : len(x) - lag] for lag in range(n_lags + 1)])
        for x in recordings
        if len(x) > n_lags
    ]
    rows = np.vstack(Z)
    return rows[:, : recordings[0].shape[1]], rows


def fit(
    recordings: list[np.ndarray],
    rng: np.random.Generator,
    *,
    n_lags: int = 1,
    hidden: int = 10,
    lambda1: float = 0.005,
    lambda2: float = 0.01,
    kept_back: float = 0.0,
    max_iter: int = 100,
) -> NeuralFit:
    """Learn from recordings that are centred and standardised; the last share `kept_back` of each only gives a loss."""
    cut = [round(len(x) * (1 - kept_back)) for x in recordings]
    X, Z = rows_of([x[:k] for x, k in zip(recordings, cut, strict=True)], n_lags)
    problem = Problem(X, Z, lambda1, lambda2, hidden)
    units, inputs = problem.sizes
    bounds = problem.bounds()
    spread = 1 / np.sqrt(hidden)
    theta = np.concatenate(
        [
            np.zeros(2 * units * inputs),
            rng.uniform(-spread, spread, 2 * units),
            np.zeros(X.shape[1]),
        ]
    )
    alpha, rho, h = 0.0, 1.0, np.inf
    for _ in range(max_iter):
        while True:
            found = minimize(problem.value, theta, (alpha, rho), method="L-BFGS-B", jac=True, bounds=bounds)
            up, down, *_ = problem.parts(found.x)
            new, _ = problem.acyclicity(up - down)
            if new <= 0.25 * h or rho >= RHO_MAX:
                break
            rho *= 10
        theta, h = found.x, new
        alpha += rho * h
        if h <= H_TOLERANCE or rho >= RHO_MAX:
            break
    held_out = float("nan")
    if kept_back:
        X, Z = rows_of([x[k - n_lags :] for x, k in zip(recordings, cut, strict=True)], n_lags)
        held_out = float(((problem.predicted(theta, Z)[0] - X) ** 2).mean())
    up, down, *_ = problem.parts(theta)
    return NeuralFit(np.sqrt(problem.squares(up - down)), h, held_out)
