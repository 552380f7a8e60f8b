"""Ridge and lasso from a `feddbn.Summary`, as scikit-learn fits them to pooled rows.

Both read the rows only through their means and products. The lasso runs on a few made-up rows with the same covariances
(`Summary.rows_like`): its objective is an average over rows, so how many there are makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.linear_model import lasso_path as _lasso_path

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.summary import Node, Summary
from feddbn.settings import number

__all__ = ["Regression", "lasso", "lasso_path", "ridge"]


class Regression(NamedTuple):
    """Weights by source, named as the summary's columns, and the constant.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.interop.regression import ridge
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> ridge(feddbn.summary(data.sites), "x0").weights.index.tolist()
    ['x0(t-1)', 'x1(t-1)', 'x2(t-1)']
    """

    weights: pd.Series
    intercept: float


def ridge(
    summary: Summary, target: str, sources: Sequence[Node] | None = None, alpha: float = 1.0
) -> Regression:
    """Return what ``sklearn.linear_model.Ridge(alpha)`` gives on the pooled rows; by default on all lagged columns.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.interop.regression import ridge
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> ridge(feddbn.summary(data.sites), "x0", alpha=1.0).weights.shape
    (3,)
    """
    number(0).check("alpha", alpha)
    index, j = _columns(summary, target, sources)
    S = summary.moments.scatter
    weights = np.linalg.lstsq(S[np.ix_(index, index)] + alpha * np.eye(len(index)), S[index, j], rcond=None)[
        0
    ]
    return _named(summary, index, j, np.asarray(weights, dtype=np.float64))


def lasso(
    summary: Summary, target: str, sources: Sequence[Node] | None = None, alpha: float = 0.1
) -> Regression:
    """Return what ``sklearn.linear_model.Lasso(alpha)`` gives on the pooled rows; by default on all lagged columns.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.interop.regression import lasso
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> lasso(feddbn.summary(data.sites), "x0", alpha=0.1).weights.shape
    (3,)
    """
    index, j = _columns(summary, target, sources)
    _, coefs = _path(summary, index, j, [alpha])
    return _named(summary, index, j, coefs[:, 0])


def lasso_path(
    summary: Summary, target: str, sources: Sequence[Node] | None = None, n_alphas: int = 100
) -> pd.DataFrame:
    """Return the weights along the path of penalties, the largest first: one line per alpha, one column per source.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.interop.regression import lasso_path
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> lasso_path(feddbn.summary(data.sites), "x0", n_alphas=5).shape
    (5, 3)
    """
    index, j = _columns(summary, target, sources)
    alphas, coefs = _path(summary, index, j, n_alphas)
    return pd.DataFrame(coefs.T, pd.Index(alphas, name="alpha"), [summary.columns[k] for k in index])


def _path(
    summary: Summary, index: list[int], j: int, alphas: list[float] | int
) -> tuple[FloatArray, FloatArray]:
    rows = summary.rows_like(summary.moments.q + 2) - summary.moments.mean
    X, y = np.asfortranarray(rows[:, index]), rows[:, j]
    if isinstance(alphas, int):
        # From the penalty that leaves nothing to a thousandth of it.
        alphas = (float(np.abs(X.T @ y).max()) / len(rows) * np.logspace(0, -3, alphas)).tolist()
    found = _lasso_path(X, y, alphas=alphas, tol=1e-10, max_iter=100_000)
    return found[0], found[1]


def _columns(summary: Summary, target: str, sources: Sequence[Node] | None) -> tuple[list[int], int]:
    if sources is None:
        sources = [node for node in summary.nodes if node[1] > 0]
    index, j = [summary.position(*node) for node in sources], summary.position(target)
    if not index or j in index:
        raise ParameterError(
            f"sources of {target!r} must be at least one, and not {target!r} itself at lag 0."
        )
    return index, j


def _named(summary: Summary, index: list[int], j: int, weights: FloatArray) -> Regression:
    mean = summary.moments.mean
    named = pd.Series(weights, [summary.columns[k] for k in index], name=summary.columns[j])
    return Regression(named, float(mean[j] - mean[index] @ weights))
