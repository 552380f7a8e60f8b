"""What a network implies, as tidy frames: `dbn.frames` has the names and arguments of the methods that return arrays.

One spelling everywhere: `source`, `target` and `variable` are names, `step` counts time steps ahead, and there is one row for
each number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from feddbn.core.arrays import FloatArray
from feddbn.model import dynamics, effects, residuals, strength
from feddbn.model.inputs import Rows
from feddbn.model.network import Network

__all__ = ["Frames"]


@dataclass(frozen=True)
class Frames:
    """The numbers of one network as frames.

    Examples
    --------
    >>> import feddbn
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> frame = dbn.frames.impulse_responses(2)
    >>> frame[(frame.source == "x") & (frame.target == "y")]["response"].round(2).tolist()
    [0.5, 0.2, 0.08]
    """

    network: Network

    def impulse_responses(
        self, horizon: int, kind: dynamics.ResponseKind = "structural", *, sd: bool = False
    ) -> pd.DataFrame:
        """Frame source, target, step, response; see `DBN.impulse_responses`."""
        return self._pairs(dynamics.impulse_responses(self.network, horizon, kind, sd=sd), "response")

    def fevd(
        self, horizon: int, kind: Literal["structural", "orthogonalised"] = "structural"
    ) -> pd.DataFrame:
        """Frame source, target, step (from 1 on), share; see `DBN.fevd`."""
        return self._pairs(dynamics.fevd(self.network, horizon, kind), "share", first=1)

    def total_effects(self, horizon: int) -> pd.DataFrame:
        """Frame source, target, step, effect; see `DBN.total_effects`."""
        return self._pairs(effects.total_effects(self.network, horizon), "effect")

    def direct_effects(self, horizon: int) -> pd.DataFrame:
        """Frame source, target, step, effect; see `DBN.direct_effects`."""
        return self._pairs(effects.direct_effects(self.network, horizon), "effect")

    def mediated_effects(self, mediators: Sequence[str | int] | None, horizon: int) -> pd.DataFrame:
        """Frame source, target, step, effect; see `DBN.mediated_effects`."""
        return self._pairs(effects.mediated_effects(self.network, mediators, horizon), "effect")

    def standardised_weights(self, sd: ArrayLike | None = None) -> pd.DataFrame:
        """Frame source, target, lag, weight of all pairs, edges or not; see `DBN.standardised_weights`."""
        found = strength.standardised_weights(self.network, sd)
        return self._pairs(found, "weight").rename(columns={"step": "lag"})

    def stationary_mean(self) -> pd.DataFrame:
        """Frame variable, mean, sd of the long run; see `DBN.stationary_mean`."""
        spread = np.sqrt(np.maximum(np.diag(dynamics.stationary_covariance(self.network)), 0.0))
        mean = dynamics.stationary_mean(self.network)
        return pd.DataFrame({"variable": list(self.network.variables), "mean": mean, "sd": spread})

    def stationary_covariance(self) -> pd.DataFrame:
        """(d, d) frame with the variables as index and columns; see `DBN.stationary_covariance`."""
        names = list(self.network.variables)
        return pd.DataFrame(dynamics.stationary_covariance(self.network), names, names)

    def residuals(self, data: Rows | Sequence[Rows]) -> pd.DataFrame:
        """(n, d) frame with one column per variable; see `DBN.residuals`."""
        found = np.concatenate(residuals.residual_segments(self.network, data))
        return pd.DataFrame(found, columns=list(self.network.variables))

    def _pairs(self, stack: FloatArray, value: str, first: int = 0) -> pd.DataFrame:
        """One row per number of ``stack[step, from, to]``: all steps of one pair after each other."""
        steps, d, _ = stack.shape
        names: Any = np.array(self.network.variables, dtype=object)
        return pd.DataFrame(
            {
                "source": np.repeat(names, d * steps),
                "target": np.tile(np.repeat(names, steps), d),
                "step": np.tile(np.arange(first, first + steps), d * d),
                value: np.moveaxis(stack, 0, 2).ravel(),
            }
        )
