"""The learned network: ``x_t = c + x_t W + sum_l x_{t-l} A_l + u_t`` with row vectors and W acyclic, or nodes of any kind
(`feddbn.model.nodes`).

`feddbn.model.network.Network` holds the numbers; what they imply is computed by the other modules of this
package, each of which can be read alone: dynamics, effects, forecast, graph, export. Their functions take a network first and
are methods of `DBN`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model import dynamics, effects, export, graph, roots
from feddbn.model import forecast as forecasts
from feddbn.model.forecast import Held, sample_paths
from feddbn.model.graph import stack_of_tigramite
from feddbn.model.network import Network, RandomState, Rows, random_generator
from feddbn.model.nodes import known
from feddbn.model.step import Noise, impact
from feddbn.settings import whole, word
from feddbn.shown import Shown

__all__ = ["DBN", "Frames"]

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
    """The numbers of one network as tidy frames: `dbn.frames` has the names and arguments of the methods that return arrays.

    One spelling everywhere: `source`, `target` and `variable` are names, `step` counts time steps ahead, and there is one
    row for each number.

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
    standardised_weights = _pairs(effects.standardised_weights, "weight", "lag")

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
        return pd.DataFrame(dynamics.residuals(self.network, data), columns=list(self.network.variables))


if TYPE_CHECKING:
    import networkx as nx


def _same(one: Any, other: Any, atol: float) -> bool:
    """Whether two stored forms agree: numbers within `atol`, all else exactly."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key], atol) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(a, b, atol) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= atol
    return bool(one == other)


class DBN(Network, Shown):
    """A dynamic Bayesian network and what can be asked of it.

    `W`, `A`, `variables`, `intercept`, `noise_variances`, `open_edges` and `nodes` are described at
    `feddbn.model.network.Network`.

    Examples
    --------
    >>> import feddbn
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> dbn.edges()[["source", "target", "lag", "weight"]].values.tolist()
    [['x', 'y', 0, 0.5], ['x', 'x', 1, 0.4]]
    >>> dbn.do({"x": 1.0}, None, steps=2).mean["y"].tolist()
    [0.5, 0.5]
    >>> dbn.frames.total_effects(1).query("source == 'x' and target == 'y'")["effect"].tolist()
    [0.5, 0.2]
    """

    # What comes next, and what if.
    forecast = forecasts.forecast
    do = forecasts.do
    at_level = forecasts.at_level
    # What was it that happened.
    root_causes = roots.root_causes
    # How it moves, and what causes do.
    stationary_mean = dynamics.stationary_mean
    stationary_covariance = dynamics.stationary_covariance
    impulse_responses = dynamics.impulse_responses
    response_bands = dynamics.response_bands
    standard_errors = dynamics.standard_errors
    fevd = dynamics.fevd
    total_effects = effects.total_effects
    direct_effects = effects.direct_effects
    mediated_effects = effects.mediated_effects
    standardised_weights = effects.standardised_weights
    curves_table = effects.curves_table
    coefficients = effects.coefficient_table
    average_effects = effects.average_effects
    average_slopes = effects.average_slopes
    shapes = effects.shapes
    signs = effects.signs
    distribution = effects.distribution
    effect = effects.edge_effect
    effects = effects.effect_table
    # How well it fits.
    residuals = dynamics.residuals
    quantile_residuals = dynamics.quantile_residuals
    log_likelihood = dynamics.log_likelihood
    residual_diagnostics = dynamics.residual_diagnostics
    calibration = dynamics.calibration_table
    scores = dynamics.prediction_scores
    # The forms in which others read it.
    to_curves_csv = export.curves_csv_text
    to_coefficients_csv = export.coefficients_csv_text
    edges = graph.edge_table
    to_lingam = graph.lingam_arrays
    to_tigramite = graph.tigramite_arrays
    to_dict = export.plain_dict
    to_json = export.json_text
    to_csv = export.csv_text
    to_graphml = export.graphml_text
    to_dot = export.dot_text

    def equals(self, other: DBN, atol: float = 0.0) -> bool:
        """Whether both have the same variables, lags and open edges and all numbers agree within `atol`."""
        return _same(self.to_dict(), other.to_dict(), atol)

    def simulate(
        self,
        n: int,
        random_state: RandomState = None,
        burn_in: int = 200,
        noise: Noise = "gaussian",
        *,
        history: Rows | None = None,
        interventions: Held | None = None,
    ) -> pd.DataFrame:
        """(n, d) frame of one sampled path.

        Without `history` it starts at the mean of the process and `burn_in` rows are thrown away; with one
        it continues it directly. `interventions` need a history, so that it is clear when they begin.
        """
        n, burn_in = whole(1).check("n", n), whole(0).check("burn_in", burn_in)
        if history is None and interventions:
            raise ParameterError("interventions need a history, so that it is clear when they begin.")
        skip = burn_in if history is None else 0
        paths = sample_paths(self, 1, n + skip, history, interventions, noise, random_generator(random_state))
        shown = [kind.shown(column) for kind, column in zip(self.kinds, paths[0, skip:].T, strict=True)]
        return pd.DataFrame(np.stack(shown, axis=1), columns=list(self.variables))

    @property
    def spectral_radius(self) -> float:
        """Largest absolute eigenvalue of the companion matrix; not defined with curves."""
        return dynamics.spectral_radius(self)

    @property
    def is_stationary(self) -> bool:
        """Whether shocks die out: spectral radius below 1."""
        return self.spectral_radius < 1

    @property
    def reduced_intercept(self) -> FloatArray:
        """(d,) constant of the reduced form, ``c (I - W)^{-1}``."""
        dynamics.require_linear(self, "the reduced form", "dbn.stationary_mean()")
        return np.asarray(known(self.intercept, "intercept") @ impact(self.W))

    @property
    def frames(self) -> Frames:
        """The arrays below and above as tidy frames: ``dbn.frames.impulse_responses(10)``, ``.total_effects(10)``, ..."""
        return Frames(self)

    @classmethod
    def from_edges(
        cls, edges: pd.DataFrame, variables: Sequence[str] | None = None, n_lags: int | None = None
    ) -> Self:
        """Network of an edge list, without intercept and noise; name the `variables` if some have no edge."""
        return cls(**graph.parts_of_edges(edges, variables, n_lags))

    def to_networkx(self, kind: Literal["time-series", "summary"] = "time-series") -> nx.DiGraph:
        """Graph with nodes ``{variable}_lag{l}``, or (``"summary"``) over the variables."""
        word("time-series", "summary").check("kind", kind)
        return graph.time_series_graph(self) if kind == "time-series" else graph.summary_graph(self)

    @classmethod
    def from_lingam(cls, adjacency_matrices: ArrayLike, variables: Sequence[str] | None = None) -> Self:
        """Network of ``VARLiNGAM.adjacency_matrices_``, without intercept and noise."""
        stack = graph.stack_of_lingam(adjacency_matrices)
        return cls(stack[0], stack[1:], variables, None, None)

    @classmethod
    def from_tigramite(
        cls, graph: Any, val_matrix: ArrayLike, variables: Sequence[str] | None = None
    ) -> Self:
        """Network of a fully directed tigramite graph with its values as weights, without intercept and noise."""
        stack = stack_of_tigramite(graph, val_matrix)
        return cls(stack[0], stack[1:], variables, None, None)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`."""
        return cls(**export.parts_of_dict(stored))

    @classmethod
    def from_json(cls, source: str | Path) -> Self:
        """Inverse of `to_json`, from a path or from the text itself."""
        return cls(**export.parts_of_json(source))

    @classmethod
    def from_csv(
        cls, source: str | Path, variables: Sequence[str] | None = None, n_lags: int | None = None
    ) -> Self:
        """Network of a CSV edge list (path or text), without intercept and noise."""
        return cls(**export.parts_of_csv(source, variables, n_lags))
