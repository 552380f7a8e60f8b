"""What comes next and what if: forecasts, interventions and sampled paths, by one recursion.

An intervention is graph surgery, moment by moment: where a variable is held, its incoming edges and its
noise are cut and its constant is the held value; what it does to others, in the same time step and later,
stays. A forecast is the case in which nothing is held. Means and covariances are propagated exactly
through the companion form; those of networks that are not linear are taken from simulated paths.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtri

from feddbn.core.arrays import FloatArray
from feddbn.errors import CurvesWarning, DataError, HistoryWarning, ParameterError
from feddbn.model.definitions import defined, read_definitions
from feddbn.model.dynamics import (
    Outcome,
    State,
    columns_of,
    drawn_rows,
    indicators,
    known_state,
    last_state,
    outcome_columns,
    paths_from,
    ranges_seen,
    require_linear,
    stationary_mean,
    with_past,
)
from feddbn.model.network import Network, RandomState, Rows, random_generator, rows_of, variable_index
from feddbn.model.nodes import known
from feddbn.model.step import Noise
from feddbn.model.trends import Trend
from feddbn.settings import is_number, nothing, number, whole
from feddbn.shown import Shown

__all__ = ["Forecast", "Held", "at_level", "do", "forecast", "sample_paths"]

_MOST_ROWS = 2000
_FEW_ROWS = 20
# Residuals of a site with noise of its own are rarely three times as large; units usually differ by ten or more.
_FACTOR, _FACTOR_OF_FEW = 3.0, 8.0
# The median of |u| for a standard normal u.
_MEDIAN = 0.6744897501960817


def _check_order(history: Rows) -> None:
    """Refuse a frame whose index says that its rows are several recordings, or not in the order of time."""
    if not isinstance(history, pd.DataFrame):
        return
    index = history.index
    if index.nlevels > 1:
        raise DataError(
            f"history has an index of {index.nlevels} levels, so it may hold several recordings; give the rows of one, "
            "with one level."
        )
    if isinstance(index, (pd.DatetimeIndex, pd.PeriodIndex)) and not (
        index.is_monotonic_increasing and index.is_unique
    ):
        what = "the same time twice" if index.is_monotonic_increasing else "times that are not in order"
        raise DataError(f"history has {what} in its index; give one recording, sorted with sort_index().")


Held = Mapping[str | int, float | str | Sequence[float] | FloatArray | pd.Series]
# A normal variable is further than 2.4 standard deviations away in 1.6 % of the moments.
_MANY_BEYOND = 0.2


@dataclass(frozen=True, eq=False)
class Forecast(Shown):
    """A predicted trajectory.

    Attributes
    ----------
    mean
        (steps, d) frame of expected values. With variables of other kinds: the probability of 1 of a binary variable, and
        one column ``variable=level`` with its probability for every level of an ordinal or categorical one.
    lower, upper
        Frames of the bounds of the central interval, or None if none was asked for. Those of counts are whole numbers, and
        cover with at least the probability asked for; levels have none (NaN): their probabilities say all.
    sd
        (steps, d) frame of standard deviations of the forecast error: exact, or with curves those of the paths.
    interval
        Probability that the interval of one variable at one step covers it, or None.
    n_inferred
        How many cells of the last n_lags rows of the history were missing. They are inferred from all present
        ones; `sd` and the bounds include what that leaves open.
    beyond
        (steps, d) frame, of a network with curves only: the share of simulated paths that are beyond the range in which a
        variable's functions were learned. Straight lines go on there; nothing says that the effects do.
    outcomes
        With variables of other kinds only: variable and level (or "") that each column stands for.
    """

    mean: pd.DataFrame
    lower: pd.DataFrame | None
    upper: pd.DataFrame | None
    sd: pd.DataFrame
    interval: float | None
    n_inferred: int = 0
    beyond: pd.DataFrame | None = None
    outcomes: tuple[Outcome, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """Tidy frame: step, time, variable, mean, sd and, if asked for, lower and upper; with curves, beyond; with variables
        of other kinds, level.
        """
        steps, d = self.mean.shape
        variables: list[str] = [o.variable for o in self.outcomes] or list(self.mean.columns)
        columns: dict[str, object] = {
            "step": np.repeat(np.arange(1, steps + 1), d),
            "time": np.repeat(self.mean.index.to_numpy(), d),
            "variable": np.tile(np.array(variables, dtype=object), steps),
        }
        told = {name: getattr(self, name) for name in ("mean", "sd", "lower", "upper", "beyond")}
        columns |= {name: frame.to_numpy().ravel() for name, frame in told.items() if frame is not None}
        if self.outcomes:
            columns["level"] = np.tile(np.array([o.level for o in self.outcomes], dtype=object), steps)
        return pd.DataFrame(columns)


def _doubts(dbn: Network, rows: FloatArray) -> str | None:
    """A sentence if residuals of rows (n, d) are much larger or smaller than the noise of the network; else None."""
    lagged = with_past(rows[-_MOST_ROWS:], dbn.n_lags)
    varies = known(dbn.noise_variances, "noise_variances") > 0
    lagged = lagged[np.isfinite(lagged).all(axis=1)]
    if not len(lagged) or not varies.any():
        return None
    u = dbn.steps.normal_residuals(lagged, np.random.default_rng(0))[:, varies]
    typical, root_mean = np.median(np.abs(u), axis=0) / _MEDIAN, np.sqrt((u**2).mean(axis=0))
    is_far = typical > _FACTOR if len(u) >= _FEW_ROWS else np.abs(u).min(axis=0) > _FACTOR_OF_FEW
    is_near = (len(u) >= _FEW_ROWS) & (typical < 1 / _FACTOR) & (root_mean < 1 / _FACTOR)
    chosen = is_far if is_far.any() else is_near
    if not chosen.any():
        return None
    ratio = typical[chosen].max() if is_far.any() else typical[chosen].min()
    names = [dbn.variables[j] for j in np.flatnonzero(varies)[chosen]]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (
        f"the rows of history are {ratio:.3g} times as far from what the network expects of "
        f"{', '.join(map(repr, names[:5]))}{more} as its noise explains: other units, another level (dbn.at_level), rows "
        "out of order or another kind of recording; the forecast may be worthless."
    )


AnyNetwork = TypeVar("AnyNetwork", bound=Network)


def at_level(dbn: AnyNetwork, mean: ArrayLike) -> AnyNetwork:
    """Return the same network with the intercepts of a recording whose (d,) mean is `mean`.

    Curves and products move along: they bend about a recording's own level. The network's own mean is that of simulated
    rows then.
    """
    if dbn.has_kinds:
        require_linear(dbn, "at_level", "dbn.forecast with the recording's rows as history")
    level = np.asarray(mean, dtype=np.float64)
    if level.shape != (dbn.d,) or not np.isfinite(level).all():
        raise ParameterError(f"mean must be {dbn.d} finite numbers, one for each variable, got {mean!r}.")
    if not dbn.nodes:
        return replace(dbn, intercept=level - level @ (dbn.W + dbn.A.sum(axis=0)))
    # What is linear has no origins that could move.
    shift, nodes = level if dbn.is_linear else level - stationary_mean(dbn), []
    for j, node in enumerate(dbn.nodes):
        within = sum(float(b[0, 0]) * shift[term.sources[0][0]] for term, b in node.parts if term.is_straight)
        moved = shift[j] - within + (0.0 if dbn.is_linear else known(node.intercept, "intercept"))
        nodes.append(replace(node, intercept=moved, terms=tuple(term.moved(shift) for term in node.terms)))
    return dbn.from_nodes(nodes, dbn.variables, dbn.n_lags, dbn.open_edges, dbn.definitions)


def forecast(
    dbn: Network,
    history: Rows | None,
    steps: int,
    interval: float | None = None,
    random_state: RandomState = None,
    *,
    n_paths: int = 2000,
    noise: Noise = "gaussian",
    trend: Trend | None = None,
    end: float | None = None,
) -> Forecast:
    """Mean and, with ``interval=0.9``, bounds of the next `steps` time steps after `history`: `do` with nothing held."""
    options: dict[str, Any] = {"n_paths": n_paths, "noise": noise, "trend": trend, "end": end}
    return do(dbn, {}, history, steps, interval, random_state, **options)


def do(
    dbn: Network,
    interventions: Held,
    history: Rows | None,
    steps: int,
    interval: float | None = None,
    random_state: RandomState = None,
    *,
    n_paths: int = 2000,
    noise: Noise = "gaussian",
    trend: Trend | None = None,
    end: float | None = None,
) -> Forecast:
    """What would follow `history` if variables were held: ``do({"x3": 1.0}, history, steps=5)``.

    Incoming edges of a held variable are cut; its effects, within the time step and later, propagate.

    Parameters
    ----------
    interventions
        Variable -> one value for every step, or one per step (NaN: not held at that step); a level by its name.
    history
        At least n_lags rows, oldest first; None starts from the mean of a stationary process. Cells may be
        missing (NaN), also whole rows: step 1 is the time step after the last row, whether or not that has values.
        Rows in other units, of another level or in another order than the network describes are warned of
        (`HistoryWarning`).
    interval
        Coverage of the central interval: exact in a linear network with Gaussian noise, else between quantiles of `n_paths`
        sampled paths. With curves or other kinds the mean is that of the paths, too, known to sd / sqrt(n_paths).
    noise
        A distribution by name, or residuals to draw from: ``noise=dbn.residuals(data)``
        (`feddbn.model.step.draw_noise`).
    trend
        What was taken off this recording before the network saw it (`feddbn.model.trends.fit_trend`): it is taken off the
        history and the interventions, which are in the units of the recording, and added to what follows.
    end
        Time of the last row of `history` on the clock of the trend; by default its last row.
    """
    steps = whole(1).check("steps", steps)
    level = (number(above=0, below=1) | nothing()).check("interval", interval)
    course: FloatArray | float = 0.0
    if trend is not None:
        dbn, interventions, history, course = _off_trend(dbn, interventions, history, steps, trend, end)
    start = _start(dbn, history)
    sentence = history is not None and _doubts(dbn, rows_of(history, dbn.variables, "history", dbn.kinds))
    if sentence:
        warnings.warn(sentence, HistoryWarning, stacklevel=3)
    values = _held_values(dbn, interventions, steps)
    quantiles = [0.5 - (level or 0.0) / 2, 0.5 + (level or 0.0) / 2]
    variance, outcomes = dbn.steps.ahead(start.covariance, values), outcome_columns(dbn)

    @cache
    def drawn() -> tuple[FloatArray, FloatArray]:
        n, rng = whole(2).check("n_paths", n_paths), random_generator(random_state)
        shocks = dbn.steps.shocks(noise, (n, steps), rng)
        rows = drawn_rows(dbn, start, n, rng)
        return rows, paths_from(dbn, rows, shocks, values)

    told: dict[str, FloatArray] = {}
    if variance is None:
        mean, told["sd"], *bounds = _outlook(dbn, *drawn(), values, quantiles)
        if not dbn.has_kinds:
            low, high = ranges_seen(dbn)
            paths = drawn()[1]
            told["beyond"] = np.asarray(((paths < low) | (paths > high)).mean(axis=0))
            _warn_of_what_is_beyond(dbn, told["beyond"])
    else:
        mean = paths_from(dbn, start.rows[None], np.zeros((1, steps, dbn.d)), values)[0]
        told["sd"] = np.sqrt(variance)
        bounds = [mean + ndtri(q) * told["sd"] for q in quantiles]
        if level is not None and not (isinstance(noise, str) and noise == "gaussian"):
            bounds = list(np.quantile(drawn()[1], quantiles, axis=0))
    told |= {"mean": mean + course, "lower": bounds[0] + course, "upper": bounds[1] + course}
    if dbn.definitions:
        more = _outlook_of_defined(dbn, told["mean"], drawn()[1] + course, quantiles)
        told = {name: np.hstack([array, more[name]]) for name, array in told.items()}
    columns, index = [*(outcome.name for outcome in outcomes), *dbn.definitions], _time_index(history, steps)
    skipped = () if level else ("lower", "upper")
    frames = {
        name: None if array is None or name in skipped else pd.DataFrame(array, index=index, columns=columns)
        for name, array in ((name, told.get(name)) for name in ("mean", "lower", "upper", "sd", "beyond"))
    }
    return Forecast(
        **frames,  # type: ignore[arg-type]
        interval=level,
        n_inferred=start.n_inferred,
        outcomes=outcomes if dbn.has_kinds else (),
    )


def _off_trend(
    dbn: Network, held: Held, history: Rows | None, steps: int, trend: Trend, end: float | None
) -> tuple[Network, Held, Rows | None, FloatArray | float]:
    """The network at the level of rows without their trend, what is held and the history without it, and what is to be added
    to what follows.
    """
    if trend.variables != dbn.variables:
        raise ParameterError(
            f"trend is one of {', '.join(trend.variables[:10])}, but the network has {', '.join(dbn.variables[:10])}."
        )
    if dbn.has_kinds:
        require_linear(dbn, "a trend", "dbn.do(held, history, steps)")
    if not dbn.is_linear:
        # A curve is a function of the value itself, so the level is not taken off before.
        if trend.nuisance.degree or trend.nuisance.periods:
            raise ParameterError(
                "trend has more than a level, along which a network with curves cannot go on; fit one with degree=0 and no "
                "periods."
            )
        return at_level(dbn, trend.coefficients[0]), held, history, 0.0
    last = trend.span[1] if end is None else float(end)
    ahead = trend.at(last + np.arange(1.0, steps + 1))
    rest: Rows | None = None
    if history is not None:
        rows = rows_of(history, dbn.variables, "history")
        rest = rows - trend.at(last - np.arange(len(rows), dtype=np.float64)[::-1])
        if isinstance(history, pd.DataFrame):
            rest = pd.DataFrame(rest, index=history.index, columns=list(dbn.variables))
    found: dict[str | int, Any] = {}
    for key, given in held.items() if isinstance(held, Mapping) else ():
        off = ahead[:, variable_index(key, dbn.variables, "an intervention")]
        # What is no number and no series of them is left to be refused.
        is_fine = is_number(given) or np.shape(given) == off.shape
        found[key] = np.asarray(given, dtype=np.float64) - off if is_fine else given
    # Off its trend a recording has the level 0.
    return at_level(dbn, np.zeros(dbn.d)), found if isinstance(held, Mapping) else held, rest, ahead


def _defined(dbn: Network, rows: FloatArray) -> FloatArray:
    """(..., m) the defined variables of (..., d) rows."""
    by_name = dict(zip(dbn.variables, np.moveaxis(rows, -1, 0), strict=True))
    return np.stack(list(defined(read_definitions(dbn.definitions), by_name).values()), axis=-1)


def _outlook_of_defined(
    dbn: Network, mean: FloatArray, paths: FloatArray, quantiles: list[float]
) -> dict[str, FloatArray]:
    """(steps, m) mean, sd and bounds of the defined variables over (n, steps, d) paths."""
    rows = _defined(dbn, paths)
    # So a weighted sum has exactly the weighted sum of means.
    middle = _defined(dbn, mean) + rows.mean(axis=0) - _defined(dbn, paths.mean(axis=0))
    lower, upper = np.quantile(rows, quantiles, axis=0)
    unknown = np.full(middle.shape, np.nan)
    return {"mean": middle, "sd": rows.std(axis=0), "lower": lower, "upper": upper, "beyond": unknown}


def _outlook(
    dbn: Network, start: FloatArray, paths: FloatArray, held: FloatArray, quantiles: list[float]
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """(steps, m) mean, sd and bounds (NaN of levels) of paths (n, steps, d) from `start` (1 or n, p, d), with variables held
    at `held` (steps, d), NaN where free.

    With variables of other kinds the mean is not that of the paths, but that over paths of what is expected given the
    causes on the path: closer to the truth with the same number of paths, and exact where the causes are known.
    """
    steps, p = paths.shape[1], dbn.n_lags
    columns, shown = [columns_of(dbn, j) for j in range(dbn.d)], indicators(dbn, paths)
    is_held = np.repeat(~np.isnan(held), [here.stop - here.start for here in columns], axis=1)
    # The mean of many copies of one number is that number only up to rounding.
    mean = np.where(is_held, shown[0], shown.mean(axis=0))
    whole = np.concatenate([np.broadcast_to(start, (len(paths), p, dbn.d)), paths], axis=1)
    for t in range(steps):
        rows = whole[:, t : t + p + 1][:, ::-1].reshape(len(paths), -1)
        free = np.flatnonzero(np.isnan(held[t])).tolist()
        for j, law in zip(free, dbn.steps.laws(rows, free) if dbn.has_kinds else (), strict=False):
            by_level = law.probabilities is not None and dbn.kinds[j].is_by_level
            mean[t, columns[j]] = (law.probabilities if by_level else law.mean).mean(axis=0)  # type: ignore[union-attr]
    sd, bounds = shown.std(axis=0), np.full((2, steps, shown.shape[2]), np.nan)
    for kind, here in zip(dbn.kinds, columns, strict=True):
        if kind.levels:
            sd[:, here] = np.sqrt(mean[:, here] * (1 - mean[:, here]))
        else:
            # Whole numbers for counts: no value between two that can be seen.
            method: Literal["inverted_cdf", "linear"] = "inverted_cdf" if kind.name == "count" else "linear"
            bounds[:, :, here] = np.quantile(shown[:, :, here], quantiles, axis=0, method=method)
    return mean, np.where(is_held, 0.0, sd), bounds[0], bounds[1]


def _warn_of_what_is_beyond(dbn: Network, beyond: FloatArray) -> None:
    """Warn where many of the simulated paths are beyond the range seen."""
    if beyond.max(initial=0.0) > _MANY_BEYOND:
        worst = int(beyond.max(axis=0).argmax())
        first = int(np.flatnonzero(beyond[:, worst] > _MANY_BEYOND)[0]) + 1
        warnings.warn(
            f"from step {first} on, up to {beyond[:, worst].max():.0%} of the simulated paths have {dbn.variables[worst]!r} "
            "beyond the range in which its effects were learned; what follows rests on straight lines drawn further.",
            CurvesWarning,
            stacklevel=4,
        )


def sample_paths(
    dbn: Network,
    n_paths: int,
    steps: int,
    history: Rows | None,
    held: Held | None,
    noise: Noise,
    rng: np.random.Generator,
) -> FloatArray:
    """(n_paths, steps, d) independent futures of one history."""
    start = _start(dbn, history)
    shocks = dbn.steps.shocks(noise, (n_paths, steps), rng)
    rows = drawn_rows(dbn, start, n_paths, rng)
    return paths_from(dbn, rows, shocks, _held_values(dbn, held or {}, steps))


def _start(dbn: Network, history: Rows | None) -> State:
    """The rows x_{t-p}, ..., x_{t-1} before the first step, and how sure they are."""
    p = dbn.n_lags
    if history is None and dbn.has_kinds:
        # Levels have no mean to begin at.
        return known_state(np.full((p, dbn.d), np.nan))
    if history is None:
        return known_state(np.tile(stationary_mean(dbn), (p, 1)) if p else np.zeros((0, dbn.d)))
    _check_order(history)
    return last_state(dbn, rows_of(history, dbn.variables, "history", dbn.kinds))


def _held_values(dbn: Network, held: Held, steps: int) -> FloatArray:
    """(steps, d) held values, NaN where a variable is free."""
    values = np.full((steps, dbn.d), np.nan)
    if not isinstance(held, Mapping):
        raise ParameterError(
            f"the interventions must be a dict from variable to value, got {type(held).__name__}."
        )
    for key, given in held.items():
        column = variable_index(key, dbn.variables, "an intervention")
        name, kind = dbn.variables[column], dbn.kinds[column]
        position, seen = kind.position(given), kind.as_recorded
        if position is not None:
            values[:, column] = position
            continue
        choice = f"; its levels are {', '.join(seen.levels)}" if seen.levels else ""
        try:
            series = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            series = np.zeros((0, 0))
        if (series.shape != (steps,) and not is_number(given)) or np.isinf(series).any():
            raise ParameterError(
                f"the intervention on {name!r} must be one finite number or {steps} of them (NaN: free){choice}."
            )
        misfits = seen.misfits(series.ravel())
        if len(misfits):
            raise ParameterError(
                f"the intervention on {name!r} has {misfits[0]:g}, which no {kind.name} variable can have{choice}."
            )
        values[:, column] = kind.counted(np.broadcast_to(series, steps))
    return values


def _time_index(history: Rows | None, steps: int) -> pd.Index:
    """Times of the forecast: continued where the history has regular times, else 1, 2, ..., steps.

    Dates are times; so are numbers in an index that has a name.
    """
    if isinstance(history, pd.DataFrame) and len(history) >= 3:
        index = history.index
        if isinstance(index, pd.DatetimeIndex):
            frequency = index.freq or pd.infer_freq(index)
            if frequency is not None:
                return pd.date_range(index[-1], periods=steps + 1, freq=frequency, name=index.name)[1:]
        elif isinstance(index, pd.PeriodIndex):
            return pd.period_range(index[-1], periods=steps + 1, freq=index.freq, name=index.name)[1:]
        elif index.name is not None and pd.api.types.is_numeric_dtype(index.dtype):
            step = np.diff(index.to_numpy()[-3:])
            if step[0] > 0 and np.isclose(step[0], step[1], rtol=1e-6):
                later: pd.Index = pd.Index(index[-1] + step[-1] * np.arange(1, steps + 1), name=index.name)
                return later
    return pd.RangeIndex(1, steps + 1, name="step")
