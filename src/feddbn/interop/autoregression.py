"""A vector autoregression from a `feddbn.Summary`: the tables that statsmodels gives for pooled rows.

    x_t = c + sum_l x_{t-l} A_l + u_t

Coefficients, standard errors, Granger tests and impulse responses are those of ordinary least squares on all rows of all
sites. Formulas: Luetkepohl, New Introduction to Multiple Time Series Analysis (2005), chapters 3.2, 3.6 and 3.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.special import fdtrc, ndtri, stdtr

from feddbn.core.arrays import FloatArray
from feddbn.errors import DataError, ParameterError
from feddbn.model.summary import Summary
from feddbn.settings import whole

__all__ = ["Autoregression", "autoregression"]


@dataclass(frozen=True, eq=False)
class Autoregression:
    """A fitted vector autoregression.

    Attributes
    ----------
    summary
        What it was learned from; all its lags are used.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.interop.autoregression import autoregression
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> model = autoregression(feddbn.summary(data.sites))
    >>> model.to_frame().columns.tolist()
    ['source', 'target', 'lag', 'weight', 'std_error', 't', 'p']
    >>> model.responses(2, level=0.9).columns.tolist()
    ['source', 'target', 'step', 'response', 'std_error', 'lower', 'upper']
    """

    summary: Summary

    @cached_property
    def _left(self) -> float:
        """Degrees of freedom of a variable's residuals."""
        left = self.summary.n_effective - 1 - self.summary.d * self.summary.n_lags
        if left < 1:
            raise DataError(
                f"{self.summary.n_effective:.0f} rows are too few for {self.summary.d * self.summary.n_lags} lagged columns; "
                "use fewer lags or variables, or more rows."
            )
        return left

    @cached_property
    def _inverse(self) -> FloatArray:
        """Inverse of the scatter of ``[1, x_{t-1}, ..., x_{t-p}]``, the constant first."""
        moments, d = self.summary.moments, self.summary.d
        S, mean = moments.scatter[d:, d:], moments.mean[d:]
        try:
            K = np.linalg.inv(S)
        except np.linalg.LinAlgError:
            raise DataError(
                "some lagged columns follow from others; leave them out with summary.only(...)."
            ) from None
        corner = np.array([[1 / moments.n + mean @ K @ mean]])
        return np.block([[corner, -(K @ mean)[None]], [-(K @ mean)[:, None], K]])

    @cached_property
    def coefs(self) -> FloatArray:
        """(p, d, d) weights ``[lag - 1, from, to]``."""
        S, d = self.summary.moments.scatter, self.summary.d
        return np.asarray(np.linalg.solve(S[d:, d:], S[d:, :d]), dtype=np.float64).reshape(
            self.summary.n_lags, d, d
        )

    @cached_property
    def intercept(self) -> FloatArray:
        """(d,) constants."""
        mean, d = self.summary.moments.mean, self.summary.d
        return np.asarray(mean[:d] - mean[d:] @ self.coefs.reshape(-1, d))

    @cached_property
    def sigma_u(self) -> FloatArray:
        """(d, d) covariance of the residuals, per degree of freedom."""
        S, d = self.summary.moments.scatter, self.summary.d
        misses = np.vstack([np.eye(d), -self.coefs.reshape(-1, d)])
        return np.asarray(misses.T @ S @ misses / self._left)

    @cached_property
    def stderr(self) -> FloatArray:
        """(1 + p d, d) standard errors: constants first, then lag 1, lag 2, ..."""
        return np.sqrt(np.outer(np.diag(self._inverse), np.diag(self.sigma_u)))

    def to_frame(self) -> pd.DataFrame:
        """One line per coefficient: source, target, lag, weight, std_error, t, p."""
        names, d, left = self.summary.variables, self.summary.d, self._left
        values = np.vstack([self.intercept, self.coefs.reshape(-1, d)])
        t = values / self.stderr
        p = 2 * stdtr(left, -np.abs(t))
        sources = [
            ("constant", 0),
            *((name, lag) for lag in range(1, self.summary.n_lags + 1) for name in names),
        ]
        lines = [
            (source, names[j], lag, values[k, j], self.stderr[k, j], t[k, j], p[k, j])
            for j in range(d)
            for k, (source, lag) in enumerate(sources)
        ]
        return pd.DataFrame(lines, columns=["source", "target", "lag", "weight", "std_error", "t", "p"])

    def table(self) -> pd.DataFrame:
        """The older name of `to_frame`."""
        return self.to_frame()

    def granger(self) -> pd.DataFrame:
        """One line per ordered pair: does the past of `source` say more about `target` than all other pasts? F test."""
        names, d, p = self.summary.variables, self.summary.d, self.summary.n_lags
        K, flat = self._inverse[1:, 1:], self.coefs.reshape(-1, d)
        lines = []
        for i in range(d):
            index = np.arange(p) * d + i
            block = np.linalg.inv(K[np.ix_(index, index)])
            for j in range(d):
                if i != j:
                    b = flat[index, j]
                    F = float(b @ block @ b) / (p * self.sigma_u[j, j])
                    lines.append((names[i], names[j], F, p, self._left, float(fdtrc(p, self._left, F))))
        return pd.DataFrame(lines, columns=["source", "target", "F", "df_num", "df_denom", "p"])

    def responses(self, steps: int, orthogonal: bool = False, level: float | None = None) -> pd.DataFrame:
        """Frame source, target, step, response of unit shocks 0 to `steps` rows later; with `level` std_error, lower, upper.

        `orthogonal` takes shocks of one standard deviation in the order of the variables (Cholesky); it has no bounds.
        """
        whole(0).check("steps", steps)
        if level is not None and (orthogonal or not 0 < level < 1):
            raise ParameterError(f"level={level} must be between 0 and 1, and goes with orthogonal=False.")
        phi, names, d = self._phi(steps), self.summary.variables, self.summary.d
        shown = np.linalg.cholesky(self.sigma_u).T @ phi if orthogonal else phi
        size = 0.0 if level is None else float(ndtri((1 + level) / 2))
        error = self._response_errors(phi) if level is not None else np.zeros_like(phi)
        low, high = shown - size * error, shown + size * error
        lines = [
            (names[i], names[j], h, shown[h, i, j], error[h, i, j], low[h, i, j], high[h, i, j])
            for i in range(d)
            for j in range(d)
            for h in range(steps + 1)
        ]
        bounds = ["std_error", "lower", "upper"]
        frame = pd.DataFrame(lines, columns=["source", "target", "step", "response", *bounds])
        return frame if level is not None else frame.drop(columns=bounds)

    def _phi(self, steps: int) -> FloatArray:
        """(steps + 1, d, d) responses ``[step, from, to]`` to unit shocks."""
        d, p = self.summary.d, self.summary.n_lags
        phi = np.zeros((steps + 1, d, d))
        phi[0] = np.eye(d)
        for h in range(1, steps + 1):
            phi[h] = sum(
                (phi[h - lag] @ self.coefs[lag - 1] for lag in range(1, min(h, p) + 1)), np.zeros((d, d))
            )
        return phi

    def _response_errors(self, phi: FloatArray) -> FloatArray:
        """Standard errors of responses, by the delta method on the coefficients.

        A change of A_l changes the response after h rows by ``sum_m phi_m dA_l phi_{h-l-m}``.
        """
        steps, d, p = len(phi) - 1, self.summary.d, self.summary.n_lags
        K = self._inverse[1:, 1:]
        errors = np.zeros_like(phi)
        for h in range(1, steps + 1):
            # (from, to) of the response, (lag, source, target) of the coefficient.
            G = np.zeros((d, d, p, d, d))
            for lag in range(1, min(h, p) + 1):
                for m in range(h - lag + 1):
                    G[:, :, lag - 1] += np.einsum("ia,bj->ijab", phi[m], phi[h - lag - m])
            # Coefficients have covariance K (lag and source) times sigma_u (target).
            flat = G.reshape(d, d, p * d, d)
            errors[h] = np.sqrt(np.einsum("ijsa,st,ab,ijtb->ij", flat, K, self.sigma_u, flat, optimize=True))
        return errors


def autoregression(summary: Summary) -> Autoregression:
    """Return the vector autoregression of all lags of a summary.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.interop.autoregression import autoregression
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> autoregression(feddbn.summary(data.sites)).granger().columns.tolist()
    ['source', 'target', 'F', 'df_num', 'df_denom', 'p']
    """
    if summary.n_lags < 1:
        raise ParameterError("this summary has no lags; make one with feddbn.summary(..., n_lags=1) or more.")
    return Autoregression(summary)
