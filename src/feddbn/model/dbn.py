"""The learned network: ``x_t = c + x_t W + sum_l x_{t-l} A_l + u_t`` with row vectors and W acyclic; curves and products
are added where effects are not straight (`feddbn.model.curves`).

`feddbn.model.network.Network` holds the numbers; what they imply is computed by the other modules of this
package, each of which can be read alone: dynamics, effects, forecast, residuals, graph, export.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.moments import Moments
from feddbn.errors import ParameterError
from feddbn.model import (
    dynamics,
    effects,
    export,
    graph,
    natural_effects,
    residuals,
    strength,
)
from feddbn.model.conditionals import Conditional, checked_conditionals, weights_of
from feddbn.model.csv_cells import guarded_frame
from feddbn.model.effects import EdgeEffect
from feddbn.model.forecast import Forecast, Held, IntervalMethod, forecast, sample_paths
from feddbn.model.frames import Frames
from feddbn.model.graph import stack_of_tigramite
from feddbn.model.inputs import RandomState, Rows, positive_int, random_generator
from feddbn.model.mechanisms import Noise
from feddbn.model.natural_effects import NaturalEffect, natural_effect
from feddbn.model.network import Network, same_parts
from feddbn.shown import Shown

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["DBN"]


class DBN(Network, Shown):
    """A dynamic Bayesian network and what can be asked of it.

    `W`, `A`, `variables`, `intercept`, `noise_variances`, `open_edges`, `curves`, `products` and `conditionals` are
    described at `feddbn.model.network.Network`.

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

    @classmethod
    def from_moments(
        cls, W: FloatArray, A: FloatArray, moments: Moments, variables: Sequence[str] | None = None
    ) -> DBN:
        """A network whose intercept and noise variances are those of summed lagged moments.

        ``c = mean(z) (E - C)`` and ``v = diag((E - C)' S (E - C)) / n`` with the scatter S of ``z = [x_t,
        ..., x_{t-p}]``: both follow from the same sum the weights were learned from.
        """
        W, A = np.asarray(W, dtype=np.float64), np.asarray(A, dtype=np.float64)
        d = len(W)
        misses = np.concatenate([np.eye(d) - W, -A.reshape(-1, d)])
        if moments.q != len(misses) or moments.n <= 0:
            raise ParameterError(
                f"moments must have {len(misses)} columns and some rows, got {moments.q} and n={moments.n:g}."
            )
        variances = (misses * (moments.scatter @ misses)).sum(axis=0) / moments.n
        return cls(W, A, variables, moments.mean @ misses, np.maximum(variances, 0.0))

    def at_level(self, mean: ArrayLike) -> DBN:
        """Return the same network with the intercepts of a recording whose (d,) mean is `mean`.

        Curves and products move along: they bend about a recording's own level. The network's own mean is that of simulated
        rows then.
        """
        if self.conditionals:
            dynamics.require_linear(self, "at_level", "dbn.forecast with the recording's rows as history")
        level = np.asarray(mean, dtype=np.float64)
        if level.shape != (self.d,) or not np.isfinite(level).all():
            raise ParameterError(
                f"mean must be {self.d} finite numbers, one for each variable, got {mean!r}."
            )
        within = self.W + self.A.sum(axis=0)
        if self.is_linear:
            return replace(self, intercept=level - level @ within)
        shift = level - self.stationary_mean()
        curves = tuple(curve.moved(shift) for curve in self.curves)
        products = tuple(product.moved(shift) for product in self.products)
        return replace(
            self, intercept=self.intercept + shift - shift @ within, curves=curves, products=products
        )

    def equals(self, other: DBN, atol: float = 0.0) -> bool:
        """Whether both have the same variables, lags and open edges and all numbers agree within `atol`."""
        if self.variables != other.variables or self.n_lags != other.n_lags:
            return False
        if self.open_edges != other.open_edges or not same_parts(self, other, atol):
            return False
        pairs = ((getattr(self, k), getattr(other, k)) for k in ("W", "A", "intercept", "noise_variances"))
        return all(bool(np.all(np.abs(a - b) <= atol)) for a, b in pairs)

    # What comes next, and what if.

    def forecast(
        self,
        history: Rows | None,
        steps: int,
        interval: float | None = None,
        method: IntervalMethod = "auto",
        random_state: RandomState = None,
        *,
        n_paths: int = 2000,
        noise: Noise = "gaussian",
    ) -> Forecast:
        """Mean and, with ``interval=0.9``, bounds of the next `steps` time steps after `history` (at least
        n_lags rows).

        ``method="analytic"`` is exact for Gaussian noise; ``"simulation"`` takes quantiles of `n_paths`
        sampled paths, for example of the site's own residuals: ``noise=dbn.residuals(data)``; ``"auto"`` is
        analytic for linear networks, and all of a network with curves is simulated. See
        `feddbn.model.forecast.forecast`.
        """
        return self.do({}, history, steps, interval, method, random_state, n_paths=n_paths, noise=noise)

    def do(
        self,
        interventions: Held,
        history: Rows | None,
        steps: int,
        interval: float | None = None,
        method: IntervalMethod = "auto",
        random_state: RandomState = None,
        *,
        n_paths: int = 2000,
        noise: Noise = "gaussian",
    ) -> Forecast:
        """What would follow `history` if variables were held: ``do({"x3": 1.0}, history, steps=5)``.

        A value is one number, or one number per step with NaN where the variable is left free. Incoming
        edges of a held variable are cut; its effects, within the time step and later, propagate.
        """
        return forecast(
            self,
            history,
            steps,
            held=interventions,
            interval=interval,
            method=method,
            n_paths=n_paths,
            noise=noise,
            random_state=random_state,
        )

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
        n, burn_in = positive_int(n, "n"), positive_int(burn_in, "burn_in", 0)
        if history is None and interventions:
            raise ParameterError("interventions need a history, so that it is clear when they begin.")
        skip = burn_in if history is None else 0
        paths = sample_paths(self, 1, n + skip, history, interventions, noise, random_generator(random_state))
        shown = [kind.shown(column) for kind, column in zip(self.kinds, paths[0, skip:].T, strict=True)]
        return pd.DataFrame(np.stack(shown, axis=1), columns=list(self.variables))

    # How it moves.

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
        return np.asarray(self.intercept @ dynamics.impact(self.W))

    def stationary_mean(self) -> FloatArray:
        """(d,) long-run mean; with curves that of simulated rows."""
        return dynamics.stationary_mean(self)

    def stationary_covariance(self) -> FloatArray:
        """(d, d) long-run contemporaneous covariance; with curves that of simulated rows."""
        return dynamics.stationary_covariance(self)

    def impulse_responses(
        self, horizon: int, kind: dynamics.ResponseKind = "structural", *, sd: bool = False
    ) -> FloatArray:
        """(horizon+1, d, d) responses [h, from, to] to a shock; see `feddbn.model.dynamics.impulse_responses`."""
        return dynamics.impulse_responses(self, horizon, kind, sd=sd)

    def fevd(self, horizon: int, kind: Literal["structural", "orthogonalised"] = "structural") -> FloatArray:
        """(horizon, d, d) shares [h-1, from, to] of the h-step forecast-error variance."""
        return dynamics.fevd(self, horizon, kind)

    @property
    def frames(self) -> Frames:
        """The arrays below and above as tidy frames: ``dbn.frames.impulse_responses(10)``, ``.total_effects(10)``, ..."""
        return Frames(self)

    def total_effects(self, horizon: int) -> FloatArray:
        """(horizon+1, d, d) effects [h, from, to] of raising a variable by 1 for one time step, over every path."""
        return effects.total_effects(self, horizon)

    def direct_effects(self, horizon: int) -> FloatArray:
        """(horizon+1, d, d) effects [h, from, to] along single edges."""
        return effects.direct_effects(self, horizon)

    def mediated_effects(self, mediators: Sequence[str | int] | None, horizon: int) -> FloatArray:
        """(horizon+1, d, d) part of the total effects that passes through `mediators` (None: through anything)."""
        return effects.mediated_effects(self, mediators, horizon)

    def effects(
        self,
        source: str | int,
        target: str | int,
        horizon: int,
        mediators: Sequence[str | int] | None = None,
        *,
        at: float | str | None = None,
        by: float | str | None = None,
        n_paths: int = 2000,
        random_state: RandomState = None,
        history: Rows | None = None,
    ) -> pd.DataFrame:
        """Frame horizon, total, direct, mediated, cumulative for one pair of variables.

        With curves and other kinds an effect depends on the value: horizon, at, by, total, error, cumulative of setting the
        source to ``at + by`` instead of `at` (of levels: to `by` instead of `at`, by name) for one time step, by
        `n_paths` pairs of simulated paths. See `feddbn.model.effects.expected_changes`.
        """
        if not self.bends:
            return effects.effect_table(self, source, target, horizon, mediators, at=at, by=by)
        if mediators is not None:
            dynamics.require_linear(self, "what passes through mediators", "dbn.do with the mediators held")
        changes = effects.expected_changes(
            self,
            source,
            horizon,
            at=at,
            by=by,
            n_paths=n_paths,
            random_state=random_state,
            history=history,
        )
        return effects.changes_table(self, target, changes)

    def standardised_weights(self, sd: ArrayLike | None = None) -> FloatArray:
        """(n_lags+1, d, d) ``weight * sd_from / sd_to``, W first: effects that can be compared whatever the units.

        `sd` are (d,) standard deviations, by default those of the network's own stationary process.
        """
        return strength.standardised_weights(self, sd)

    # What its curves are.

    def effect(self, source: str | int, target: str | int, lag: int) -> EdgeEffect | NaturalEffect:
        """What one edge does by value: ``dbn.effect("x", "y", 1).to_frame()`` or ``.at(values)``, ``.band(values)``."""
        if self.conditionals:
            return natural_effect(self, source, target, lag)
        return effects.edge_effect(self, source, target, lag)

    def curves_table(self, n: int = 41, level: float = 0.95) -> pd.DataFrame:
        """Frame source, target, lag, value, effect, lower, upper, inside of all effects that are no straight lines.

        `inside` is False beyond the range in which the function was learned.
        """
        return effects.curves_table(self, n, level)

    def to_curves_csv(self, path: str | Path | None = None, n: int = 41, level: float = 0.95) -> str:
        """`curves_table` as CSV text, also written to `path` if given; safe in spreadsheets."""
        return export.write_text(export.curves_csv_text(self, n, level), path)

    # How well it fits.

    def residuals(self, data: Rows | Sequence[Rows]) -> FloatArray:
        """(n, d) residuals of every usable row; a list is one uninterrupted stretch an item.

        Of a recording with a level of its own: ``dbn.at_level(rows.mean())``, here and in the two below.
        """
        return np.concatenate(residuals.residual_segments(self, data))

    def log_likelihood(self, data: Rows | Sequence[Rows]) -> float:
        """Log-likelihood (Gaussian, or of its distributions) of usable rows, each given the n_lags rows before it."""
        return residuals.log_likelihood(self, data)

    def residual_diagnostics(self, data: Rows | Sequence[Rows], n_lags: int = 10) -> pd.DataFrame:
        """One row per variable: mean, variance, autocorrelation, Ljung-Box and normality of its residuals."""
        return residuals.residual_diagnostics(self, data, n_lags)

    # As edges, graphs and files.

    def edges(self, threshold: float = 0.0) -> pd.DataFrame:
        """Frame source, target, lag, weight, standardised, oriented of the edges with ``|weight| > threshold``; with curves
        also shape, and weights are average slopes.
        """
        return graph.edge_table(self, threshold)

    # What its distributions tell, where variables have kinds.

    @classmethod
    def from_conditionals(
        cls,
        conditionals: Iterable[Conditional],
        variables: Sequence[str] | None = None,
        n_lags: int | None = None,
        open_edges: Iterable[tuple[str, str]] = (),
    ) -> Self:
        """Network of one distribution per variable; W and A hold a weight for every effect (`Network`).

        Without `n_lags` the largest lag of a cause is taken.
        """
        nodes = tuple(conditionals)
        largest = max((lag for node in nodes for _, lag in getattr(node, "parents", ())), default=0)
        p = largest if n_lags is None else int(n_lags)
        checked = checked_conditionals(nodes, len(nodes), p)
        weights = weights_of(checked, p)
        return cls(weights.W, weights.A, variables, open_edges=open_edges, conditionals=checked)

    def coefficients(self, level: float = 0.95) -> pd.DataFrame:
        """Frame of every coefficient on the scale of its link, with its interval, `ratio` and `meaning` in words."""
        self._require_conditionals("coefficients", "dbn.edges()")
        return natural_effects.coefficient_table(self, level)

    def to_coefficients_csv(self, path: str | Path | None = None, level: float = 0.95) -> str:
        """`coefficients` as CSV text, also written to `path` if given; safe in spreadsheets."""
        text = guarded_frame(self.coefficients(level)).to_csv(index=False, lineterminator="\n")
        return export.write_text(str(text), path)

    def average_effects(
        self, over: Rows | None = None, *, by: str = "unit", level: float = 0.95
    ) -> pd.DataFrame:
        """Frame source, target, lag, from, to, outcome, change, lower, upper: what each edge does to the mean of its
        target, or to the probabilities of its levels; see `feddbn.model.natural_effects.average_effects`.
        """
        self._require_conditionals("average_effects", "dbn.edges(), whose weights are such changes")
        return natural_effects.average_effects(self, over, by=by, level=level)

    def quantile_residuals(self, data: Rows | Sequence[Rows], random_state: RandomState = None) -> FloatArray:
        """(n, d) residuals that are standard normal if the network holds, whatever the kinds; see
        `feddbn.model.residuals.normal_segments`. Those of counts and levels are partly drawn (`random_state`).
        """
        return np.concatenate(residuals.normal_segments(self, data, random_generator(random_state)))

    def calibration(self, data: Rows | Sequence[Rows], n_bins: int = 10) -> pd.DataFrame:
        """Frame variable, level, low, high, predicted, seen, error, n: do predicted probabilities happen as often as they
        say? Give rows that were not used for learning; see `feddbn.model.residuals.calibration_table`.
        """
        return residuals.calibration_table(self, data, n_bins)

    def scores(self, data: Rows | Sequence[Rows]) -> pd.DataFrame:
        """One row per variable: kind, n, log_score, brier, error; see `feddbn.model.residuals.prediction_scores`."""
        return residuals.prediction_scores(self, data)

    def _require_conditionals(self, what: str, instead: str) -> None:
        if not self.conditionals:
            raise ParameterError(
                f"{what} is for variables of other kinds, and all of this network's are plain numbers; use {instead}."
            )

    # The forms in which others read and write it.

    @classmethod
    def from_edges(
        cls, edges: pd.DataFrame, variables: Sequence[str] | None = None, n_lags: int | None = None
    ) -> Self:
        """Network of an edge list; name the `variables` if some have no edge."""
        return cls(**graph.parts_of_edges(edges, variables, n_lags))

    def to_networkx(self, kind: Literal["time-series", "summary"] = "time-series") -> nx.DiGraph:
        """Graph with nodes ``{variable}_lag{l}``, or (``"summary"``) over the variables."""
        if kind not in ("time-series", "summary"):
            raise ParameterError(f"kind must be 'time-series' or 'summary', got {kind!r}.")
        return graph.time_series_graph(self) if kind == "time-series" else graph.summary_graph(self)

    @classmethod
    def from_networkx(cls, time_series_graph: nx.DiGraph) -> Self:
        """Inverse of `to_networkx` (``"time-series"``)."""
        return cls(**graph.parts_of_graph(time_series_graph))

    def to_lingam(self) -> FloatArray:
        """(n_lags+1, d, d) in lingam's orientation [to, from]; it has no mark for an open direction."""
        return graph.lingam_arrays(self)

    @classmethod
    def from_lingam(cls, adjacency_matrices: ArrayLike, variables: Sequence[str] | None = None) -> Self:
        """Network of ``VARLiNGAM.adjacency_matrices_``."""
        stack = graph.stack_of_lingam(adjacency_matrices)
        return cls(stack[0], stack[1:], variables)

    def to_tigramite(self) -> tuple[NDArray[np.str_], FloatArray]:
        """(graph, val_matrix), both (d, d, n_lags+1), as tigramite's plotting wants them; open edges are 'o-o'."""
        return graph.tigramite_arrays(self)

    @classmethod
    def from_tigramite(
        cls, graph: Any, val_matrix: ArrayLike, variables: Sequence[str] | None = None
    ) -> Self:
        """Network of a fully directed tigramite graph with its values as weights."""
        stack = stack_of_tigramite(graph, val_matrix)
        return cls(stack[0], stack[1:], variables)

    def to_dict(self) -> dict[str, Any]:
        """The stored form (docs/schema.md) as plain lists and text."""
        return export.plain_dict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`."""
        return cls(**export.parts_of_dict(stored))

    def to_json(self, path: str | Path | None = None) -> str:
        """JSON text of the stored form, also written to `path` if given."""
        return export.write_text(export.json_text(self), path)

    @classmethod
    def from_json(cls, source: str | Path) -> Self:
        """Inverse of `to_json`, from a path or from the text itself."""
        return cls(**export.parts_of_json(source))

    def to_npz(self, path: str | Path) -> None:
        """Write the stored form as a numpy archive."""
        export.write_npz(self, path)

    @classmethod
    def from_npz(cls, path: str | Path) -> Self:
        """Inverse of `to_npz`."""
        return cls(**export.parts_of_npz(path))

    def to_csv(self, path: str | Path | None = None) -> str:
        """Edge list as CSV text, also written to `path` if given; carries weights and open directions only."""
        return export.write_text(export.csv_text(self), path)

    @classmethod
    def from_csv(
        cls, source: str | Path, variables: Sequence[str] | None = None, n_lags: int | None = None
    ) -> Self:
        """Network of a CSV edge list (path or text)."""
        return cls(**export.parts_of_csv(source, variables, n_lags))

    def to_graphml(self, path: str | Path | None = None) -> str:
        """GraphML text of the time-series graph, also written to `path` if given."""
        return export.write_text(export.graphml_text(self), path)

    @classmethod
    def from_graphml(cls, source: str | Path) -> Self:
        """Inverse of `to_graphml`, from a path or from the text itself."""
        return cls(**export.parts_of_graphml(source))

    def to_dot(self, path: str | Path | None = None) -> str:
        """Graphviz DOT text of the time-series graph, also written to `path` if given."""
        return export.write_text(export.dot_text(self), path)
