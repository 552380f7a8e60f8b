"""Regressions of a node on *tokens*: groups of columns that come and go together, with the evidence as their price.

A possible edge has two tokens: its straight line (one column) and its curve (several). A product of two variables is
one more. Coefficients of a token are independent, ``b ~ N(0, s2 D)`` with the node's noise variance s2, so with
``M = X'X + D^-1``

    -2 log evidence = n log RSS + log det (D M),    RSS = y'y - y'X M^-1 X'y          (up to a constant)

The second term is the price of flexibility: a rough function whose D is small costs little and can do little, so an
edge pays for the curvature that it has. Columns are scaled to unit variance inside; D is in those units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.orders.parents import NodeFit, Objective, ParentRegressions, Parents

__all__ = ["ChargedFit", "ChargedObjective", "TokenRegressions", "Tokens"]

_NO_RESIDUAL = 1e-12


@dataclass(frozen=True, eq=False)
class Tokens:
    """Which columns belong together, and which edges they are.

    Attributes
    ----------
    d, n_lags
        Variables and lags.
    columns
        The columns of each token. The first (p+1) d tokens are the straight lines, the next as many the curves, if there
        are any; then products.
    edges
        For each token the rows of the stack ``[W; A_1; ...]`` of the edges it is part of: one, or two of a product.
    prior
        (number of columns,) variances of coefficients over the noise variance, of columns with unit variance.
    """

    d: int
    n_lags: int
    columns: tuple[tuple[int, ...], ...]
    edges: tuple[tuple[int, ...], ...]
    prior: FloatArray

    @property
    def n_edges(self) -> int:
        """Rows of the stack."""
        return (self.n_lags + 1) * self.d

    @property
    def present(self) -> list[list[int]]:
        """For each variable its tokens within a moment."""
        return [[t for t, rows in enumerate(self.edges) if rows == (j,)] for j in range(self.d)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargedFit(NodeFit):
    """A fit with what its flexibility costs.

    Attributes
    ----------
    charge
        ``log det (D M)`` of the parents.
    add_charge
        By how much it rises when each token joins.
    drop_charge
        By how much it falls when each parent leaves.
    """

    charge: float = 0.0
    add_charge: FloatArray = field(default_factory=lambda: np.zeros(0))
    drop_charge: tuple[float, ...] = ()


class TokenRegressions(ParentRegressions):
    """Fits of the first d columns on tokens, computed once each.

    Parameters
    ----------
    scatter
        Sums of squares and products of all columns about their means.
    n
        Number of rows.
    tokens
        Which columns belong together.
    """

    def __init__(self, scatter: FloatArray, n: float, tokens: Tokens) -> None:
        super().__init__(scatter, n, tokens.d)
        self.tokens = tokens
        self.n_columns = self.q
        self.q = len(tokens.columns)
        self.ridge = 1.0 / (self.n * tokens.prior)
        # Tokens of one width are worked on together: who they are, their columns (width, how many), and their matrices M.
        widths = np.array([len(columns) for columns in tokens.columns])
        self._widths: list[tuple[IntArray, IntArray, FloatArray]] = []
        for width in np.unique(widths).tolist():
            alike = np.flatnonzero(widths == width)
            group = np.array([tokens.columns[t] for t in alike]).T
            block = self.correlation[group[:, None], group[None]]
            block[np.arange(width), np.arange(width)] += self.ridge[group]
            self._widths.append((alike, group, block))
        self._log_ridge = np.array([np.log(self.ridge[list(c)]).sum() for c in tokens.columns])
        self._own = [
            np.array([t for t, c in enumerate(tokens.columns) if j in c or tokens.edges[t] == (j,)])
            for j in range(tokens.d)
        ]
        usable = np.diag(scatter) > 0
        self._blocked = np.array([not usable[list(c)].all() for c in tokens.columns])

    @property
    def n_edges(self) -> int:
        """Possible causes of a node, whatever their shape."""
        return self.tokens.n_edges

    @property
    def max_parents(self) -> int:
        """Priors keep every fit defined; more tokens than half of the rows say nothing all the same."""
        return max(0, min(self.q - 1, int((self.n - 1) // 2)))

    def _compute(self, node: int, parents: Parents) -> ChargedFit:
        R, ridge = self.correlation, self.ridge
        columns = [c for t in parents for c in self.tokens.columns[t]]
        rest, rss, charge = R[node].copy(), 1.0 if self._usable[node] else 0.0, 0.0
        loss: tuple[float, ...] = ()
        drops: tuple[float, ...] = ()
        along = np.zeros((0, self.n_columns))
        if columns:
            index = np.array(columns)
            rows = R[index]
            M = rows[:, index]
            M.flat[:: len(index) + 1] += ridge[index]
            factor, failed = dpotrf(M, lower=1, clean=1)
            if failed:
                raise FloatingPointError("a matrix with a positive prior must have a factor")
            inverse, _ = dtrtri(factor, lower=1)
            along = inverse @ rows
            own = along[:, node]
            rss = max(rss - float(own @ own), _NO_RESIDUAL)
            rest -= own @ along
            charge = float(2 * np.log(np.diag(factor)).sum() - np.log(ridge[index]).sum())
            loss, drops = self._leaving(parents, inverse, own)
        gain, more = self._joining(along, rest)
        for taken in (self._own[node], list(parents), self._blocked):
            gain[taken] = 0.0
        np.minimum(gain, max(rss - _NO_RESIDUAL, 0.0), out=gain)
        return ChargedFit(rss, gain, loss, charge=charge, add_charge=more, drop_charge=drops)

    def _joining(self, along: FloatArray, rest: FloatArray) -> tuple[FloatArray, FloatArray]:
        """By how much the residual sum falls and the charge rises when each token joins; by elimination, all tokens at once.

        `along` are all columns in an orthonormal basis of the parents', `rest` is what the parents leave of X'y.
        """
        gain, more = np.zeros(self.q), np.zeros(self.q)
        for tokens, group, blocks in self._widths:
            block, cross, part = blocks.copy(), rest[group], along[:, group]
            falls, rises = np.zeros(len(tokens)), -self._log_ridge[tokens]
            if len(along):
                for i in range(len(group)):
                    block[i, i:] -= (part[:, i, None] * part[:, i:]).sum(axis=0)
            for i, column in enumerate(group):
                # Rounding aside, no pivot is smaller than what the prior added.
                pivot = np.maximum(block[i, i], self.ridge[column])
                falls += cross[i] ** 2 / pivot
                rises += np.log(pivot)
                share = block[i, i + 1 :] / pivot
                cross[i + 1 :] -= share * cross[i]
                for j in range(i + 1, len(group)):
                    block[j, j:] -= share[j - i - 1] * block[i, j:]
            gain[tokens], more[tokens] = falls, rises
        return gain, more

    def _leaving(
        self, parents: Parents, inverse: FloatArray, own: FloatArray
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """By how much the residual sum rises and the charge falls when each parent leaves.

        With K = M^-1 and b = K X'y, leaving out the columns S costs ``b_S' (K_SS)^-1 b_S``, and the determinant loses a
        factor ``1 / det K_SS``.
        """
        beta = own @ inverse
        loss, drops, start = [], [], 0
        for t in parents:
            stop = start + len(self.tokens.columns[t])
            part = inverse[:, start:stop]
            K = part.T @ part
            b = beta[start:stop]
            loss.append(float(b @ np.linalg.solve(K, b)))
            drops.append(float(-np.linalg.slogdet(K)[1] - self._log_ridge[t]))
            start = stop
        return tuple(loss), tuple(drops)

    def coefficients(self, node: int, parents: Sequence[int]) -> tuple[IntArray, FloatArray, FloatArray]:
        """Columns of the parents, their expected coefficients, and K: their covariance over the noise variance.

        In the units of the columns of the scatter matrix.
        """
        columns = np.array([c for t in parents for c in self.tokens.columns[t]], dtype=np.int64)
        if not len(columns):
            return columns, np.zeros(0), np.zeros((0, 0))
        M = self.correlation[np.ix_(columns, columns)].copy()
        M.flat[:: len(columns) + 1] += self.ridge[columns]
        K = np.linalg.inv(M)
        size = np.sqrt(np.maximum(self.column_total, 1e-300))
        beta = K @ self.correlation[columns, node] * size[node] / size[columns]
        return columns, np.asarray(beta), np.asarray(K / np.outer(size[columns], size[columns]))


@dataclass(frozen=True)
class ChargedObjective(Objective):
    """An objective whose fits have a charge beside the price of each token."""

    def add_deltas(self, node: int, fit: NodeFit) -> FloatArray:
        """(q,) change of the cost when each token joins."""
        assert isinstance(fit, ChargedFit)
        return np.asarray(super().add_deltas(node, fit) + fit.add_charge)

    def drop_deltas(self, node: int, fit: NodeFit, parents: Parents) -> list[float]:
        """Change of the cost when each parent leaves."""
        assert isinstance(fit, ChargedFit)
        plain = super().drop_deltas(node, fit, parents)
        return [delta - charge for delta, charge in zip(plain, fit.drop_charge, strict=True)]

    def cost(self, node: int, fit: NodeFit, parents: Parents) -> float:
        """Data term, charge and the price of the parents."""
        assert isinstance(fit, ChargedFit)
        return super().cost(node, fit, parents) + fit.charge
