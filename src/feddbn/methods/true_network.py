"""The network behind simulated data, with the functions of its edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model.conditionals import Conditional
from feddbn.model.dbn import DBN
from feddbn.model.inputs import Rows, segments_of, variable_index
from feddbn.model.natural_effects import NaturalEffect, natural_effect
from feddbn.sim import EdgeEffect, System

__all__ = ["TrueNetwork"]


def _linear_only(name: str) -> Any:
    """A method of `DBN` that is refused where effects are not linear: its formula would be wrong there."""

    def method(self: TrueNetwork, *args: Any, **kwargs: Any) -> Any:
        if not self.is_linear and not self.conditionals:
            raise ParameterError(
                f"{name} holds for linear effects, but this true network has others; "
                "use effect(source, target, lag) and residuals(data), or simulate with effects='linear'."
            )
        return getattr(DBN, name)(self, *args, **kwargs)

    method.__name__, method.__doc__ = name, getattr(DBN, name).__doc__
    return method


class TrueNetwork(DBN):
    """A true network: W and A as in `DBN`, and the function of every edge.

    Where effects are not linear, W and A hold the weights of the edges (`feddbn.simulate`), so edges can be scored as
    ever; forecasts and other formulas for linear networks are refused (the column `standardised` of `edges` takes all
    edges as linear). A stored truth keeps W, A and a table of every function; what is read back is a `DBN`.

    Attributes
    ----------
    system
        What was simulated, or None if it has a graph but no functions of single edges (`feddbn.simulate_system`), or
        variables of other kinds.
    """

    system: System | None

    def __init__(
        self,
        system: System | None,
        W: FloatArray,
        A: FloatArray,
        variables: Sequence[str],
        noise_variances: FloatArray,
        *,
        conditionals: Iterable[Conditional] = (),
    ) -> None:
        object.__setattr__(self, "system", system)
        super().__init__(W, A, variables, noise_variances=noise_variances, conditionals=conditionals)

    @classmethod
    def of_kinds(cls, dbn: DBN) -> TrueNetwork:
        """The truth behind variables of other kinds: all that a `DBN` with `conditionals` tells, it tells."""
        return cls(None, dbn.W, dbn.A, dbn.variables, dbn.noise_variances, conditionals=dbn.conditionals)

    @property
    def is_linear(self) -> bool:
        """Whether all effects are linear, no product acts, and all variables are continuous."""
        if self.system is None:
            return False
        shapes = self.system.shapes
        return shapes is None or not (shapes.curves or shapes.products)

    def effect(self, source: str | int, target: str | int, lag: int = 0) -> EdgeEffect | NaturalEffect:  # type: ignore[override]
        """The function of an edge: ``truth.effect("x1", "x3", lag=1)(values)`` is what these values of x1 add to x3.

        It is a function of the data as they are before sites change units, offsets or cells of them.
        """
        if self.conditionals:
            return natural_effect(self, source, target, lag)
        i, j = (
            variable_index(value, self.variables, name)
            for name, value in (("source", source), ("target", target))
        )
        if isinstance(lag, bool) or not isinstance(lag, (int, np.integer)) or not 0 <= lag <= self.n_lags:
            raise ParameterError(f"lag must be a whole number from 0 to {self.n_lags}, got {lag!r}.")
        names = f"from {self.variables[i]!r} to {self.variables[j]!r} at lag {lag}"
        if self.system is None:
            raise ParameterError(f"this system has no function {names}: its causes do not act one by one.")
        if not self.adjacency_matrices[lag, i, j]:
            raise ParameterError(f"the true network has no edge {names}; edges() lists those it has.")
        return self.system.effect((int(lag), i, j))

    @property
    def interactions(self) -> list[dict[str, Any]]:
        """Products of two lagged causes: ``{"causes": [(name, lag), (name, lag)], "target": name, "weight": ...}``."""
        shapes = None if self.system is None else self.system.shapes
        return [
            {
                "causes": [(self.variables[i], lag) for i, lag in product.causes],
                "target": self.variables[product.target],
                "weight": product.weight,
            }
            for product in (() if shapes is None else shapes.products)
        ]

    def functions(self, n_points: int = 61) -> list[dict[str, Any]]:
        """Source, target, lag, kind and weight of every edge, and `n_points` values of its cause with what they add."""
        if self.system is None:
            return []
        found = []
        for edge in self.system.edges:
            effect = self.system.effect(edge)
            lag, i, j = edge
            x, y = effect.points(n_points)
            names = {"source": self.variables[i], "target": self.variables[j], "lag": lag}
            found.append({**names, "kind": effect.kind, "weight": effect.weight, "values": x, "adds": y})
        return found

    def residuals(self, data: Rows | Sequence[Rows]) -> FloatArray:
        """(n, d) of every usable row: the row less what its causes add. Of data without mess: the noise."""
        if self.is_linear or self.conditionals:
            return super().residuals(data)
        if self.system is None:
            raise ParameterError("residuals need the functions of edges, and this system has none.")
        found = []
        for x in segments_of(data, self.variables, self.n_lags):
            left, p = x[self.n_lags :].copy(), self.n_lags
            for edge in self.system.edges:
                lag, i, j = edge
                left[:, j] -= self.system.effect(edge)(x[p - lag : len(x) - lag, i])
            shapes = self.system.shapes
            for product in () if shapes is None else shapes.products:
                one, other = (x[p - lag : len(x) - lag, i] for i, lag in product.causes)
                left[:, product.target] -= shapes.acting(product, (one, other))  # type: ignore[union-attr]
            found.append(left)
        return np.concatenate(found)

    forecast = _linear_only("forecast")
    do = _linear_only("do")
    simulate = _linear_only("simulate")
    stationary_mean = _linear_only("stationary_mean")
    stationary_covariance = _linear_only("stationary_covariance")
    impulse_responses = _linear_only("impulse_responses")
    fevd = _linear_only("fevd")
    total_effects = _linear_only("total_effects")
    direct_effects = _linear_only("direct_effects")
    mediated_effects = _linear_only("mediated_effects")
    effects = _linear_only("effects")
    log_likelihood = _linear_only("log_likelihood")
    residual_diagnostics = _linear_only("residual_diagnostics")
