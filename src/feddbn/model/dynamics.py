"""The reduced form of a network and what follows from it: stability, stationary moments, responses, shares.

With ``B = (I - W)^{-1}`` and ``P_l = A_l B`` a network reads ``x_t = c B + sum_l x_{t-l} P_l + u_t B``
(row vectors). Every matrix here is ``[from, to]``; statsmodels' ``coefs[l-1]`` is the transpose of ``P_l``.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.linalg

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.inputs import positive_int
from feddbn.model.mechanisms import companion, impact
from feddbn.model.network import Network
from feddbn.model.paths import usual

__all__ = [
    "ResponseKind",
    "companion",
    "fevd",
    "impact",
    "impulse_responses",
    "innovation_covariance",
    "largest_eigenvalue",
    "long_run_covariance",
    "reduced_coefficients",
    "require_linear",
    "spectral_radius",
    "stationary_covariance",
    "stationary_mean",
]

ResponseKind = Literal["structural", "reduced", "orthogonalised"]


def require_linear(dbn: Network, what: str, instead: str) -> None:
    """Refuse a network that bends, and say what to use instead."""
    if dbn.bends:
        has = "variables of other kinds" if dbn.conditionals else "curves or products"
        raise ParameterError(
            f"{what} is only defined for linear networks, and this one has {has}; use {instead}."
        )


def _require_means(dbn: Network, what: str) -> None:
    """Refuse variables whose positions of levels have no order, and so no mean."""
    for name, kind in zip(dbn.variables, dbn.kinds, strict=True):
        if kind.name == "categorical":
            raise ParameterError(
                f"{what} needs variables with a mean, and {name!r} is categorical; use dbn.forecast(None, 1), whose mean has"
                " the probabilities of its levels."
            )


def reduced_coefficients(dbn: Network) -> FloatArray:
    """(p, d, d) ``P_l = A_l B``."""
    require_linear(dbn, "the reduced form", "dbn.simulate, dbn.forecast or dbn.effects")
    return np.asarray(dbn.A @ impact(dbn.W))


def innovation_covariance(dbn: Network) -> FloatArray:
    """(d, d) covariance of ``u_t B``: ``B' diag(v) B``."""
    require_linear(dbn, "the covariance of innovations", "dbn.stationary_covariance()")
    B = impact(dbn.W)
    return np.asarray((B.T * dbn.noise_variances) @ B)


def spectral_radius(dbn: Network) -> float:
    """Largest absolute eigenvalue of the companion matrix; below 1 the process is stationary."""
    require_linear(
        dbn, "the spectral radius", "dbn.stationary_mean(), which says whether simulated paths settle"
    )
    return largest_eigenvalue(reduced_coefficients(dbn))


def largest_eigenvalue(coefficients: FloatArray) -> float:
    """The largest modulus of an eigenvalue of the companion matrix of (p, d, d) reduced coefficients; 0 without lags."""
    return float(np.abs(np.linalg.eigvals(companion(coefficients))).max()) if len(coefficients) else 0.0


def require_stationary(dbn: Network, what: str) -> None:
    """Raise unless the spectral radius is below 1."""
    radius = spectral_radius(dbn)
    if radius >= 1:
        raise ParameterError(
            f"{what} needs a stationary network, but its spectral radius is {radius:.3f}; pass a history."
        )


def stationary_mean(dbn: Network) -> FloatArray:
    """(d,) mean m of the process: ``m (I - W - sum_l A_l) = c``; with curves that of simulated rows (`paths.usual`)."""
    if dbn.bends:
        _require_means(dbn, "the mean of the process")
        return usual(dbn).mean.copy()
    require_stationary(dbn, "the mean of the process")
    return np.asarray(np.linalg.solve((np.eye(dbn.d) - dbn.W - dbn.A.sum(axis=0)).T, dbn.intercept))


def stationary_covariance(dbn: Network) -> FloatArray:
    """(d, d) covariance of x_t, from the discrete Lyapunov equation of the companion form; with curves of simulated rows."""
    if dbn.bends:
        _require_means(dbn, "the covariance of the process")
        return usual(dbn).covariance.copy()
    require_stationary(dbn, "the covariance of the process")
    return long_run_covariance(dbn.W, dbn.A, dbn.noise_variances)


def long_run_covariance(W: FloatArray, A: FloatArray, variances: FloatArray) -> FloatArray:
    """(d, d) covariance of x_t of a stationary process with these weights and (d,) variances of noise."""
    B, d = impact(W), len(W)
    innovation = (B.T * variances) @ B
    if len(A) == 0:
        return np.asarray(innovation)
    F = companion(A @ B)
    Q = np.zeros_like(F)
    Q[:d, :d] = innovation
    return np.asarray(scipy.linalg.solve_discrete_lyapunov(F.T, Q)[:d, :d])


def moving_average(coefficients: FloatArray, horizon: int) -> FloatArray:
    """(horizon+1, d, d) ``Psi_0 = I``, ``Psi_h = sum_l Psi_{h-l} P_l``."""
    p, d = coefficients.shape[:2]
    psi = np.zeros((horizon + 1, d, d))
    psi[0] = np.eye(d)
    for h in range(1, horizon + 1):
        for lag in range(1, min(p, h) + 1):
            psi[h] += psi[h - lag] @ coefficients[lag - 1]
    return psi


def impulse_responses(
    dbn: Network, horizon: int, kind: ResponseKind = "structural", *, sd: bool = False
) -> FloatArray:
    """(horizon+1, d, d): entry [h, i, j] is the response of j, h steps after a shock in i.

    - ``"structural"``: ``B Psi_h``, a unit shock in u_i (one standard deviation of u_i if `sd`).
    - ``"reduced"``: ``Psi_h``, a unit forecast error of x_i alone.
    - ``"orthogonalised"``: ``L' Psi_h`` with the Cholesky factor L of the innovation covariance, in the
      order of the variables. It equals the structural responses with `sd` if every edge of W goes from an
      earlier to a later variable.
    """
    horizon = positive_int(horizon, "horizon", 0)
    require_linear(dbn, "impulse_responses", "dbn.effects(source, target, horizon, at=..., by=...)")
    psi = moving_average(reduced_coefficients(dbn), horizon)
    if kind == "reduced":
        return psi
    if kind == "structural":
        B = impact(dbn.W)
        first = B * np.sqrt(dbn.noise_variances)[:, None] if sd else B
    elif kind == "orthogonalised":
        try:
            first = np.asarray(np.linalg.cholesky(innovation_covariance(dbn)).T, dtype=np.float64)
        except np.linalg.LinAlgError:
            raise ParameterError(
                "orthogonalised responses need positive noise_variances, but one is 0."
            ) from None
    else:
        raise ParameterError(f"kind must be 'structural', 'reduced' or 'orthogonalised', got {kind!r}.")
    return np.asarray(first @ psi)


def fevd(
    dbn: Network, horizon: int, kind: Literal["structural", "orthogonalised"] = "structural"
) -> FloatArray:
    """(horizon, d, d): entry [h-1, i, j] is the share of the h-step forecast-error variance of j due to
    shocks in i.

    Every column sums to 1, except where j has no forecast error at all (then it is 0).
    """
    horizon = positive_int(horizon, "horizon")
    require_linear(dbn, "fevd", "dbn.forecast, whose sd holds all shocks together")
    if kind not in ("structural", "orthogonalised"):
        raise ParameterError(f"kind must be 'structural' or 'orthogonalised', got {kind!r}.")
    squared = np.cumsum(impulse_responses(dbn, horizon - 1, kind, sd=True) ** 2, axis=0)
    total = squared.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(squared, total, out=np.zeros_like(squared), where=total > 0))
