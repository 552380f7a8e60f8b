"""The learned network: ``x_t = c + x_t W + sum_l x_{t-l} A_l + u_t`` with row vectors and W acyclic, or nodes of any kind
(`feddbn.model.nodes`).

`feddbn.model.network.Network` holds the numbers; what they imply is computed by the other modules of this
package, each of which can be read alone: dynamics, effects, forecast, graph, export. Their functions take a network first and
are methods of `DBN`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model import dynamics, effects, export, graph, roots
from feddbn.model import forecast as forecasts
from feddbn.model.forecast import Held, sample_paths
from feddbn.model.network import Network, RandomState, Rows, random_generator
from feddbn.model.step import Noise
from feddbn.settings import whole
from feddbn.shown import Shown

__all__ = ["DBN"]


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
    >>> dbn.tidy(dbn.impulse_responses(1), "effect").query("source == 'x' and target == 'y'")["effect"].tolist()
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
    standardised_weights = effects.standardised_weights
    curves_table = effects.curves_table
    coefficients = effects.coefficient_table
    shapes = effects.shapes
    signs = effects.signs
    effect = effects.edge_effect
    effects = effects.effect_table
    # How well it fits.
    residuals = dynamics.residuals
    quantile_residuals = dynamics.quantile_residuals
    log_likelihood = dynamics.log_likelihood
    # The forms in which others read it.
    edges = graph.edge_table
    to_lingam = graph.lingam_arrays
    to_tigramite = graph.tigramite_arrays
    to_networkx = graph.time_series_graph
    to_dict = export.plain_dict
    to_json = export.json_text
    to_csv = export.csv_text
    to_graphml = export.graphml_text
    to_dot = export.dot_text
    from_edges = classmethod(graph.network_of_edges)
    from_lingam = classmethod(graph.network_of_lingam)
    from_tigramite = classmethod(graph.network_of_tigramite)
    from_dict = classmethod(export.network_of_dict)
    from_json = classmethod(export.network_of_json)
    from_csv = classmethod(export.network_of_csv)

    def equals(self, other: DBN) -> bool:
        """Whether both have the same variables, lags, open edges and numbers."""
        return self.to_dict() == other.to_dict()

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

    def tidy(self, stack: FloatArray, value: str, step: str = "step", first: int = 0) -> pd.DataFrame:
        """Frame source, target, step, value with one row for each number of an array [step, from, to] of this network:
        ``dbn.tidy(dbn.impulse_responses(10), "response")``. Steps begin at `first`: 1 for `fevd`.
        """
        steps, d, _ = stack.shape
        names: Any = np.array(self.variables, dtype=object)
        return pd.DataFrame(
            {
                "source": np.repeat(names, d * steps),
                "target": np.tile(np.repeat(names, steps), d),
                step: np.tile(np.arange(first, first + steps), d * d),
                value: np.moveaxis(stack, 0, 2).ravel(),
            }
        )
