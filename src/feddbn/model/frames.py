"""What a network implies, as tidy frames: `dbn.frames` has the names and arguments of the methods that return arrays.

One spelling everywhere: `source`, `target` and `variable` are names, `step` counts time steps ahead, and there is one row for
each number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.model import dynamics, effects, residuals, strength
from feddbn.model.inputs import Rows
from feddbn.model.network import Network

__all__ = ["Frames"]

Given = ParamSpec("Given")


def _pairs(
    found: Callable[Concatenate[Network, Given], FloatArray], value: str, step: str = "step", first: int = 0
) -> Callable[Concatenate[Frames, Given], pd.DataFrame]:
    """A method that has one row per number of ``stack[step, from, to]``: all steps of one pair after each other."""

    def method(self: Frames, /, *args: Given.args, **kwargs: Given.kwargs) -> pd.DataFrame:
        stack = found(self.network, *args, **kwargs)
        steps, d, _ = stack.shape
        names: Any = np.array(self.network.variables, dtype=object)
        return pd.DataFrame(
            {
                "source": np.repeat(names, d * steps),
                "target": np.tile(np.repeat(names, steps), d),
                step: np.tile(np.arange(first, first + steps), d * d),
                value: np.moveaxis(stack, 0, 2).ravel(),
            }
        )

    method.__name__ = found.__name__
    method.__doc__ = f"Frame source, target, {step}, {value}; see `DBN.{found.__name__}`."
    return method


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

    impulse_responses = _pairs(dynamics.impulse_responses, "response")
    fevd = _pairs(dynamics.fevd, "share", first=1)
    total_effects = _pairs(effects.total_effects, "effect")
    direct_effects = _pairs(effects.direct_effects, "effect")
    mediated_effects = _pairs(effects.mediated_effects, "effect")
    standardised_weights = _pairs(strength.standardised_weights, "weight", "lag")

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
