"""The learned network: ``x_t = c + x_t W + sum_l x_{t-l} A_l + u_t`` with row vectors and W acyclic, or nodes of any kind
(`feddbn.model.nodes`).

`feddbn.model.network.Network` holds the numbers; what they imply is computed by the other modules of this
package, each of which can be read alone: dynamics, effects, forecast, graph, export. Their functions take a network first and
are methods of `DBN`, which also reads the forms in which others store it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from feddbn.core.arrays import FloatArray
from feddbn.errors import DataError, FileError, InputError, ParameterError, reading
from feddbn.model import dynamics, effects, export, graph
from feddbn.model import forecast as forecasts
from feddbn.model.export import FORMAT, VERSION, array_of_plain, nodes_of_plain, read_text, unguarded
from feddbn.model.forecast import Held, sample_paths
from feddbn.model.graph import AncestralGraph
from feddbn.model.network import Network, RandomState, Rows, random_generator
from feddbn.model.step import Noise
from feddbn.settings import is_number, whole
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

    @classmethod
    def from_edges(
        cls, edges: pd.DataFrame, variables: Sequence[str] | None = None, n_lags: int | None = None
    ) -> Self:
        """Network of a frame source, target, lag[, weight, oriented], without intercept and noise.

        Without `variables` they are those that occur, in order of appearance; without `n_lags` the largest lag
        is taken.
        """
        missing = [column for column in ("source", "target", "lag") if column not in edges.columns]
        if missing:
            raise DataError(
                f"the edge list lacks the column {missing[0]!r}; it needs source, target, lag and weight."
            )
        rows = zip(edges["source"], edges["target"], edges["lag"], strict=True)
        ends = [(str(s), str(t), _lag(lag)) for s, t, lag in rows]
        occur = dict.fromkeys(name for *both, _ in ends for name in both)
        names = tuple(occur if variables is None else variables)
        p = max((lag for *_, lag in ends), default=0) if n_lags is None else int(n_lags)
        weights = list(edges["weight"]) if "weight" in edges.columns else [1.0] * len(ends)
        oriented = (
            [_truth(v) for v in edges["oriented"]] if "oriented" in edges.columns else [True] * len(ends)
        )
        stack, place = np.zeros((p + 1, len(names), len(names))), {name: k for k, name in enumerate(names)}
        for k, ((s, t, lag), weight) in enumerate(zip(ends, weights, strict=True)):
            why = {
                "names a variable that is not among the given ones": not {s, t} <= place.keys(),
                f"is beyond n_lags={p}": lag > p,
                "is listed twice": (s, t, lag) in ends[:k],
                "has a weight that is not a finite number": not is_number(weight),
            }
            if any(why.values()):
                raise DataError(
                    f"the edge {s} -> {t} at lag {lag} {next(text for text, is_so in why.items() if is_so)}."
                )
            stack[lag, place[s], place[t]] = float(weight)
        told = zip(ends, weights, oriented, strict=True)
        pairs = [
            (s, t) for (s, t, lag), weight, is_known in told if not is_known and lag == 0 and weight != 0
        ]
        return cls(stack[0], stack[1:], names, None, None, pairs)

    @classmethod
    def from_lingam(cls, matrices: ArrayLike, variables: Sequence[str] | None = None) -> Self:
        """Network of ``VARLiNGAM.adjacency_matrices_``, without intercept and noise."""
        stack = np.asarray(matrices, dtype=np.float64)
        if stack.ndim != 3 or stack.shape[0] < 1 or stack.shape[1] != stack.shape[2]:
            raise ParameterError(
                f"lingam's adjacency matrices must have shape (n_lags+1, d, d), got {stack.shape}."
            )
        stack = np.ascontiguousarray(stack.transpose(0, 2, 1))
        return cls(stack[0], stack[1:], variables, None, None)

    @classmethod
    def from_tigramite(
        cls, graph: Any, val_matrix: ArrayLike, variables: Sequence[str] | None = None
    ) -> Self:
        """Network of a tigramite graph, of which every link must be directed ('-->' or, at lag 0, '<--'), with its values as
        weights; without intercept and noise.
        """
        values = np.asarray(val_matrix, dtype=np.float64)
        names = range(np.shape(graph)[0] if np.ndim(graph) else 0) if variables is None else variables
        marks = AncestralGraph(graph, tuple(map(str, names))).marks
        unknown = np.argwhere(~np.isin(marks, ["", "-->", "<--"]))
        if len(unknown):
            i, j, lag = unknown[0].tolist()
            raise ParameterError(
                f"graph[{i}, {j}] has the link {str(marks[i, j, lag])!r} at lag {lag}, but a weight needs a direction; "
                "choose '-->' or '<--' for it, or leave it out."
            )
        if values.shape != marks.shape:
            raise ParameterError(
                f"val_matrix must have the shape of graph, {marks.shape}, got {values.shape}."
            )
        stack = np.ascontiguousarray(np.where(marks == "-->", values, 0.0).transpose(2, 0, 1))
        return cls(stack[0], stack[1:], variables, None, None)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], where: str = "this dict") -> Self:
        """Inverse of `to_dict`; keys it does not know are ignored."""
        if not isinstance(stored, Mapping) or stored.get("format") != FORMAT:
            raise FileError(f'{where} is not a stored network; it lacks "format": "{FORMAT}".')
        if stored.get("version") != VERSION:
            raise FileError(
                f"{where} has version {stored.get('version')!r}; this package reads version {VERSION}."
            )
        try:
            variables, p = stored["variables"], whole(0).check("n_lags", stored["n_lags"])
            if not isinstance(variables, list) or not all(isinstance(v, str) for v in variables):
                raise ValueError("'variables' is not a list of names")
            d = len(variables)
            shapes = {"W": (d, d), "A": (p, d, d), "intercept": (d,), "noise_variances": (d,)}
            W, A, c, v = (array_of_plain(key, stored[key], shape) for key, shape in shapes.items())
            pairs = [(source, target) for source, target in stored.get("open_edges") or ()]
            nodes, definitions = (
                nodes_of_plain(stored.get("nodes") or [], variables),
                stored.get("definitions", {}),
            )
            if W is None or A is None:
                raise ValueError("W and A are not known")
            return cls(W, A, variables, c, v, pairs, nodes=nodes, definitions=definitions)
        except (ParameterError, KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"it lacks, or does not know, {error}" if isinstance(error, KeyError) else error
            raise FileError(f"{where} is damaged: {why}") from None

    @classmethod
    def from_json(cls, source: str | Path) -> Self:
        """Inverse of `to_json`, from a path, or from JSON text (a str that begins with a brace)."""
        text, where = read_text(source, is_text=lambda s: s.lstrip().startswith("{"))
        with reading(where, "JSON"):
            stored = json.loads(text)
        return cls.from_dict(stored, where)

    @classmethod
    def from_csv(
        cls, source: str | Path, variables: Sequence[str] | None = None, n_lags: int | None = None
    ) -> Self:
        """Network of a CSV edge list, a path or text with a line break, without intercept and noise. A list knows no variable
        without edges: name them.
        """
        text, where = read_text(source, is_text=lambda s: "\n" in s)
        try:
            rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
            frame = pd.DataFrame(rows[1:], columns=rows[0], dtype=object)
            readers: dict[str, Any] = {"lag": int, "source": unguarded, "target": unguarded, "weight": float}
            for column, read in readers.items():
                if column != "weight" or column in frame.columns:
                    frame[column] = [read(value) for value in frame[column]]
            return cls.from_edges(frame, variables, n_lags)
        except InputError as error:
            raise FileError(f"{where} is not a usable edge list: {error}") from None
        except (csv.Error, ValueError, KeyError, IndexError):
            raise FileError(
                f"{where} is not an edge list; it needs the columns source, target, lag, weight."
            ) from None


def _truth(value: object) -> bool:
    """Whether an edge is oriented: a bool, a number, or the words of CSV."""
    told = {"true": True, "1": True, "false": False, "0": False}.get(str(value).strip().lower())
    if told is None:
        raise DataError(f"oriented must be True or False for every edge, got {value!r}.")
    return told


def _lag(value: Any) -> int:
    if not whole(0).holds(value) and not (is_number(value) and value >= 0 and int(value) == value):
        raise DataError(f"a lag must be a whole number of at least 0, got {value!r}.")
    return int(value)
