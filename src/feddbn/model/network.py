"""The numbers of a network and nothing else: what every other module of this package computes from.

`feddbn.model.dbn.DBN` adds what people ask of a network. It imports those modules, and they import this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.errors import ParameterError

__all__ = ["Network"]


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """The numbers of a linear dynamic Bayesian network, checked and read-only.

    Attributes
    ----------
    W
        (d, d); ``W[i, j]`` is the effect i -> j within a moment.
    A
        (p, d, d); ``A[l-1][i, j]`` is the effect of i at t-l on j at t.
    variables
        d names.
    intercept
        (d,) constant of each equation.
    noise_variances
        (d,) variances of u_t.
    open_edges
        (from, to) by name: edges of W that are there, but whose direction the data do not tell; empty if none is known.
    """

    W: FloatArray
    A: FloatArray
    variables: tuple[str, ...]
    intercept: FloatArray
    noise_variances: FloatArray
    open_edges: tuple[tuple[str, str], ...]

    def __init__(
        self,
        W: FloatArray,
        A: FloatArray,
        variables: Sequence[str] | None = None,
        intercept: FloatArray | None = None,
        noise_variances: FloatArray | None = None,
        open_edges: Iterable[tuple[str, str]] = (),
    ) -> None:
        W = np.array(W, dtype=np.float64)
        A = np.array(A, dtype=np.float64)
        if W.ndim != 2 or W.shape[0] != W.shape[1]:
            raise ParameterError(f"W must be square, got shape {W.shape}.")
        d = len(W)
        if A.ndim != 3 or A.shape[1:] != (d, d):
            raise ParameterError(f"A must have shape (n_lags, {d}, {d}), got {A.shape}.")
        names = tuple(f"x{i}" for i in range(d)) if variables is None else tuple(str(v) for v in variables)
        if len(names) != d or len(set(names)) != d:
            raise ParameterError(
                f"variables must be {d} different names, got {len(names)} ({len(set(names))} different)."
            )
        c = np.zeros(d) if intercept is None else np.array(intercept, dtype=np.float64)
        v = np.ones(d) if noise_variances is None else np.array(noise_variances, dtype=np.float64)
        if c.shape != (d,) or v.shape != (d,):
            raise ParameterError(
                f"intercept and noise_variances must have shape ({d},), got {c.shape} and {v.shape}."
            )
        for array in (W, A, c, v):
            if not np.all(np.isfinite(array)):
                raise ParameterError(
                    "a DBN needs finite weights, intercepts and variances; NaN or infinity was given."
                )
            array.setflags(write=False)
        if np.any(v < 0):
            raise ParameterError(f"noise_variances must not be negative, got {v.min():g}.")
        for field_name, value in (
            ("W", W),
            ("A", A),
            ("variables", names),
            ("intercept", c),
            ("noise_variances", v),
            ("open_edges", _open_edges(open_edges, W, names)),
        ):
            object.__setattr__(self, field_name, value)

    def __repr__(self) -> str:
        n_within, n_lagged = np.count_nonzero(self.W), np.count_nonzero(self.A)
        size = f"{self.d} variables, {self.n_lags} lags"
        return f"<{type(self).__name__}: {size}, {n_within} edges within and {n_lagged} across moments>"

    @property
    def d(self) -> int:
        """Number of variables."""
        return len(self.W)

    @property
    def n_lags(self) -> int:
        """Number of lags p."""
        return len(self.A)

    @property
    def adjacency_matrices(self) -> FloatArray:
        """(p+1, d, d): W first, then A_1, ..., A_p, all ``[from, to]``."""
        return np.concatenate([self.W[None], self.A])

    @property
    def is_oriented(self) -> BoolArray:
        """(p+1, d, d) which edges have a known direction: all across moments, and within one those not in `open_edges`."""
        known: BoolArray = np.asarray(self.adjacency_matrices != 0)
        place = {name: k for k, name in enumerate(self.variables)}
        for source, target in self.open_edges:
            known[0, place[source], place[target]] = False
        return known


def _open_edges(
    given: Iterable[tuple[str, str]], W: FloatArray, names: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """The pairs in the order of the variables, each once; ParameterError if one is no edge within a moment."""
    place = {name: k for k, name in enumerate(names)}
    pairs = {(str(source), str(target)) for source, target in given}
    for source, target in sorted(pairs):
        if source not in place or target not in place or W[place[source], place[target]] == 0:
            raise ParameterError(
                f"open_edges names {source} -> {target}, which is no edge within a moment of this network; leave it out."
            )
    return tuple(sorted(pairs, key=lambda pair: (place[pair[0]], place[pair[1]])))
