"""A network in continuous time: ``dx = A (x - m) dt + dw``, read at any times with measurement noise.

``rates[i, j]`` is what one unit more of variable i adds to the change of variable j in one step of time, so
``A = rates.T``. Over a horizon h a unit change of i adds ``exp(A h)[j, i]`` to j. The state is stationary with covariance S,
hence its noise over h is ``S - exp(A h) S exp(A h)'``, exactly. A reading is the state, plus the recording's own level, plus
measurement noise; what readings at irregular times say about any other time is a Kalman filter and, within the recording, a
smoother (the modified form of Bryson and Frazier, which inverts no covariance of a state).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.linalg import expm, expm_frechet, solve_continuous_lyapunov
from scipy.special import ndtri

from feddbn.core.arrays import FloatArray
from feddbn.errors import DataError, Given, HistoryWarning, ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.forecast import Forecast
from feddbn.model.network import RandomState, Rows, random_generator, rows_of, variable_index
from feddbn.settings import is_number, nothing, number, whole
from feddbn.shown import Shown

__all__ = ["Effect", "RateNetwork", "step_length"]

_FORMAT = "feddbn-rates"
# As in forecasts over steps: units usually differ by ten or more.
_FACTOR, _FEW = 3.0, 20
_MEDIAN = 0.6744897501960817
_UNITS = (
    (86_400.0, "d", "days"),
    (3600.0, "h", "hours"),
    (60.0, "min", "minutes"),
    (1.0, "s", "seconds"),
)


def step_length(step: str | None) -> pd.Timedelta | float:
    """The length of a step as data have it: a duration of "1h", a number of "0.5", 1 where rows have no times.

    Examples
    --------
    >>> from feddbn.model.rates import step_length
    >>> step_length("15min"), step_length("0.5"), step_length(None)
    (Timedelta('0 days 00:15:00'), 0.5, 1.0)
    """
    if step is None:
        return 1.0
    try:
        return float(step)
    except ValueError:
        pass
    try:
        return pd.Timedelta(pd.tseries.frequencies.to_offset(step))  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raise ParameterError(
            f"{Given('step', step)} is no step of continuous time; give a number, or a length such as '1h' or '15min'."
        ) from None


@dataclass(frozen=True)
class Effect:
    """The total effect of a change of one variable on another after a horizon.

    Attributes
    ----------
    source, target
        Variables.
    steps
        The horizon in steps.
    value, error
        What a change of the source by 1 adds to the target after the horizon, and its standard error; NaN if the
        network does not know how sure its rates are.
    lower, upper, level
        An interval that holds the effect with that probability, given the edges of the network.
    """

    source: str
    target: str
    steps: float
    value: float
    error: float
    lower: float
    upper: float
    level: float

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True, eq=False)
class RateNetwork(Shown):
    """Rates of change among variables in continuous time, and what can be asked of them.

    Attributes
    ----------
    rates
        (d, d) [from, to]: what a unit of one variable adds to the change of another per step; on the diagonal, which is
        negative, how fast a variable goes back to its level.
    variables
        Names.
    stationary
        (d, d) covariance of the state in the long run, about the level of its recording.
    mean
        (d,) mean of all readings.
    nugget
        (d,) variance of the measurement noise of a reading.
    levels
        (d, d) covariance of recordings' own levels, or None where all have one.
    errors
        (k, k) covariance of the estimates of the k rates that are not 0, in the order of rows of `rates`; None if unknown.
    probability
        (d, d) [from, to] probability of each edge; None if unknown.
    step
        Length of a step as text, such as "1h" or "0.5"; None where rows without times are one step apart.
    longest
        Longest delay in steps between readings that it was learned from; None if unknown.

    Examples
    --------
    >>> from feddbn.model.rates import RateNetwork
    >>> network = RateNetwork.driven([[-0.5, 0.3], [0, -1.0]], noise=[1.0, 1.0], variables=["x", "y"], step="1h")
    >>> round(network.effect("x", "y", hours=2).value, 4)
    0.1395
    >>> network.network(steps=2).A[0].round(4).tolist()
    [[0.3679, 0.1395], [0.0, 0.1353]]
    """

    rates: FloatArray
    variables: tuple[str, ...]
    stationary: FloatArray
    mean: FloatArray
    nugget: FloatArray
    levels: FloatArray | None = None
    errors: FloatArray | None = None
    probability: FloatArray | None = None
    step: str | None = None
    longest: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", tuple(str(name) for name in self.variables))
        d = len(self.variables)
        shapes = {"rates": (d, d), "stationary": (d, d), "mean": (d,), "nugget": (d,)}
        shapes |= {"levels": (d, d), "probability": (d, d)}
        for name, shape in shapes.items():
            if getattr(self, name) is not None:
                self._keep(name, shape)
        if self.errors is not None:
            k = int(np.count_nonzero(self.rates))
            self._keep("errors", (k, k))
        if np.linalg.eigvals(self.rates).real.max(initial=-1.0) >= 0:
            raise ParameterError("rates must let every change die out: an eigenvalue is not negative.")
        if np.linalg.eigvalsh(self.stationary).min(initial=1.0) <= 0:
            raise ParameterError("stationary must be a covariance matrix, and it is not positive definite.")
        if (self.nugget < 0).any():
            raise ParameterError(f"nugget must not be negative, got {self.nugget.min():g}.")
        step_length(self.step)

    def _keep(self, name: str, shape: tuple[int, ...]) -> None:
        value = np.array(getattr(self, name), dtype=np.float64)
        if value.shape != shape or not np.isfinite(value).all():
            raise ParameterError(f"{name} must be finite numbers of shape {shape}, got shape {value.shape}.")
        value.flags.writeable = False
        object.__setattr__(self, name, value)

    @classmethod
    def driven(
        cls,
        rates: Any,
        noise: Any,
        variables: Sequence[str] | None = None,
        **others: Any,
    ) -> Self:
        """Network of rates [from, to] driven by noise of these variances, or of this covariance, per step."""
        A, Q = np.array(rates, dtype=np.float64).T, np.array(noise, dtype=np.float64)
        if A.ndim != 2 or A.shape[0] != A.shape[1] or Q.shape not in (A.shape, A.shape[:1]):
            raise ParameterError(
                f"rates and noise must have shapes (d, d) and (d,), got {A.shape} and {Q.shape}."
            )
        if np.linalg.eigvals(A).real.max(initial=-1.0) >= 0:
            raise ParameterError("rates must let every change die out: an eigenvalue is not negative.")
        S = solve_continuous_lyapunov(A, -(np.diag(Q) if Q.ndim == 1 else Q))
        zero = np.zeros(len(A))
        given = {"mean": zero, "nugget": zero, **others}
        names = variables if variables is not None else [f"x{i}" for i in range(len(A))]
        return cls(A.T, tuple(names), (S + S.T) / 2, **given)

    @property
    def d(self) -> int:
        """Number of variables."""
        return len(self.variables)

    @property
    def noise(self) -> FloatArray:
        """(d, d) covariance of the noise per step that keeps the state going: ``-(A S + S A')``."""
        flow = self.rates.T @ self.stationary
        return np.asarray(-(flow + flow.T))

    @property
    def half_lives(self) -> FloatArray:
        """(d,) steps after which half of a variable's deviation is gone if nothing else moves it; infinite if none goes."""
        decay = -np.diag(self.rates)
        found: FloatArray = np.full(self.d, np.inf)
        np.divide(math.log(2), decay, out=found, where=decay > 0)
        return found

    @property
    def unit(self) -> str:
        """What one step is called: "h" of "1h", "15min" of itself, "step" where it is no time."""
        if self.step is None or isinstance(step_length(self.step), float):
            return "step"
        return self.step[1:] if self.step[0] == "1" and not self.step[1:2].isdigit() else self.step

    @property
    def clock(self) -> tuple[str, float]:
        """What people count time in, and how many of these a step has: ("hours", 6.0) of "6h"; ("steps", 1.0) if no time."""
        length = step_length(self.step)
        if isinstance(length, float):
            return "steps", 1.0
        seconds = length.total_seconds()
        size, _, name = next((one for one in _UNITS if seconds >= one[0]), _UNITS[-1])
        return name, seconds / size

    def in_words(self, steps: float) -> str:
        """A length of time, such as "3.2 h"."""
        length = step_length(self.step)
        if isinstance(length, float):
            return f"{steps:.2g} step{'' if steps == 1 else 's'}"
        seconds = steps * length.total_seconds()
        size, name, _ = next((one for one in _UNITS if seconds >= one[0]), _UNITS[-1])
        return f"{seconds / size:.2g} {name}"

    def steps_of(self, steps: float | None = None, hours: float | None = None) -> float:
        """A horizon in steps, given in steps or in hours."""
        if (steps is None) == (hours is None):
            raise ParameterError("give the horizon once: steps=6, or hours=6 where a step is a time.")
        if steps is not None:
            return float(number(0).check("steps", steps))
        hours = float(number(0).check("hours", hours))
        length = step_length(self.step)
        if isinstance(length, float):
            raise ParameterError(
                f"{Given('hours', hours)} has no meaning here: a step of these data is no time that is known; give steps=.",
                argument="hours",
                code="step-is-no-time",
            )
        return hours / (length / pd.Timedelta(hours=1))

    def transition(self, steps: float) -> tuple[FloatArray, FloatArray]:
        """(d, d) ``exp(A h)``, [to, from], and the covariance of the noise that comes up over h steps."""
        jump = np.asarray(expm(self.rates.T * steps))
        left = self.stationary - jump @ self.stationary @ jump.T
        return jump, (left + left.T) / 2

    def network(self, steps: float = 1.0) -> DBN:
        """The discrete network over so many steps: one lag, and every weight is the total effect over that time.

        Noises of one time step are correlated in truth; a network holds their variances only. `forecast` has all.
        """
        jump, noise = self.transition(number(above=0).check("steps", steps))
        A, d = jump.T, self.d
        variances = np.maximum(np.diag(noise), 0.0)
        return DBN(np.zeros((d, d)), A[None], self.variables, self.mean - self.mean @ A, variances)

    @property
    def standardised(self) -> FloatArray:
        """(d, d) [from, to]: rates in standard deviations of the state."""
        sd = np.sqrt(np.diag(self.stationary))
        return np.asarray(self.rates * sd[:, None] / sd)

    def arrows(self, standardised: bool = True) -> DBN:
        """The rates as lagged weights of a plain network, for pictures and scores; it forecasts nothing."""
        d, rates = self.d, self.standardised if standardised else self.rates
        return DBN(np.zeros((d, d)), rates[None], self.variables, noise_variances=np.zeros(d))

    def to_frame(self, level: float = 0.95) -> pd.DataFrame:
        """Frame source, target, rate, error, lower, upper, standardised, half_life and, if known, probability.

        One row per rate that is not 0, the strongest first; a variable on itself has a half-life, in steps.
        """
        reach = ndtri(0.5 + number(above=0, below=1).check("level", level) / 2)
        i, j = np.nonzero(self.rates)
        error = np.full(len(i), np.nan) if self.errors is None else np.sqrt(np.diag(self.errors).clip(0))
        names, rate = np.array(self.variables, dtype=object), self.rates[i, j]
        table = pd.DataFrame(
            {
                "source": names[i],
                "target": names[j],
                "rate": rate,
                "error": error,
                "lower": rate - reach * error,
                "upper": rate + reach * error,
                "standardised": self.standardised[i, j],
                "half_life": np.where(i == j, self.half_lives[i], np.nan),
            }
        )
        if self.probability is not None:
            table["probability"] = self.probability[i, j]
        order = np.lexsort((-table["standardised"].abs(), i == j))
        return table.iloc[order].reset_index(drop=True)

    def effect(
        self,
        source: str | int,
        target: str | int,
        *,
        steps: float | None = None,
        hours: float | None = None,
        level: float = 0.95,
    ) -> Effect:
        """What a change of `source` by 1 now adds to `target` after a horizon, along all paths, with an interval.

        The interval is by the delta method and given the edges that were found.
        """
        i = variable_index(source, self.variables, "source")
        j = variable_index(target, self.variables, "target")
        h = self.steps_of(steps, hours)
        reach = ndtri(0.5 + number(above=0, below=1).check("level", level) / 2)
        A, at = self.rates.T * h, np.zeros((self.d, self.d))
        at[j, i] = 1.0
        # The adjoint of the derivative of exp: entry [k, l] is by how much the effect grows with A[k, l] h.
        jump, slope = expm_frechet(A.T, at)
        value, error = float(jump[i, j]), math.nan
        if self.errors is not None:
            gradient = h * slope.T[np.nonzero(self.rates)]
            error = math.sqrt(max(float(gradient @ self.errors @ gradient), 0.0))
        ends = float(value - reach * error), float(value + reach * error)
        return Effect(self.variables[i], self.variables[j], h, value, error, *ends, float(level))

    def effects(
        self, source: str | int, target: str | int, steps: Iterable[float], level: float = 0.95
    ) -> pd.DataFrame:
        """Frame steps, effect, error, lower, upper: `effect` at several horizons."""
        found = [self.effect(source, target, steps=one, level=level) for one in steps]
        rows = [(one.steps, one.value, one.error, one.lower, one.upper) for one in found]
        return pd.DataFrame(rows, columns=["steps", "effect", "error", "lower", "upper"])

    def covariances(self, steps: Iterable[float]) -> FloatArray:
        """(n, d, d) [delay, earlier, later] covariance of readings of one recording so many steps apart (above 0)."""
        own = 0.0 if self.levels is None else self.levels
        return np.stack([self.stationary @ self.transition(one)[0].T + own for one in steps])

    def sample(self, times: Any, random_state: RandomState = None) -> pd.DataFrame:
        """(n, d) frame of readings of one recording at ascending times, in steps; its index are the times."""
        at = np.asarray(times, dtype=np.float64)
        if at.ndim != 1 or not np.isfinite(at).all() or (np.diff(at) < 0).any():
            raise ParameterError("times must be finite ascending numbers.")
        rng = random_generator(random_state)
        x, found = _root(self.stationary) @ rng.standard_normal(self.d), np.empty((len(at), self.d))
        for k, ahead in enumerate(np.diff(at, prepend=at[:1])):
            jump, noise = self.transition(float(ahead))
            x = jump @ x + _root(noise) @ rng.standard_normal(self.d)
            found[k] = x
        own = 0.0 if self.levels is None else _root(self.levels) @ rng.standard_normal(self.d)
        found += self.mean + own + np.sqrt(self.nugget) * rng.standard_normal(found.shape)
        return pd.DataFrame(found, index=at, columns=list(self.variables))

    def forecast(
        self,
        history: Rows,
        steps: int | None = None,
        interval: float | None = None,
        *,
        times: Any = None,
    ) -> Forecast:
        """Mean and, with ``interval=0.9``, bounds of readings at any time, given the readings of one recording.

        Parameters
        ----------
        history
            Readings of one recording; the index of a frame holds their times, dates or numbers, and rows of an array are one
            step apart. Cells without a reading are NaN.
        steps
            So many whole steps after the last row, ...
        times
            ... or these times, on the clock of the history; one among the readings is smoothed by those before and after.
        interval
            Probability that a reading, with its measurement noise, lies within the bounds, or None. That rates are
            estimates is not counted.

        Examples
        --------
        >>> import pandas as pd
        >>> from feddbn.model.rates import RateNetwork
        >>> network = RateNetwork.driven([[-0.5, 0.3], [0, -1.0]], noise=[1.0, 1.0], variables=["x", "y"])
        >>> readings = pd.DataFrame({"x": [1.0, None], "y": [None, 0.5]}, index=[0.0, 0.7])
        >>> network.forecast(readings, times=[0.7, 1.5]).mean.round(3).values.tolist()
        [[0.727, 0.5], [0.488, 0.321]]
        """
        level = (number(above=0, below=1) | nothing()).check("interval", interval)
        values = rows_of(history, self.variables, "history")
        if not np.isfinite(values).any():
            raise DataError("history has no reading; a forecast goes on from some.")
        index = (
            pd.DataFrame(history).index if isinstance(history, pd.DataFrame) else pd.RangeIndex(len(values))
        )
        at, asked, labels = self._clock(index, steps, times)
        keep = np.isfinite(values).any(axis=1)
        mean, variance, standing = self._conditional(at[keep], values[keep], asked)
        for sentence in self._doubts(standing):
            warnings.warn(sentence, HistoryWarning, stacklevel=2)
        sd = np.sqrt(np.maximum(variance, 0.0))

        def frame(array: FloatArray) -> pd.DataFrame:
            return pd.DataFrame(array, index=labels, columns=list(self.variables))

        reach = ndtri(0.5 + (level or 0.0) / 2) * sd
        lower, upper = (None, None) if level is None else (frame(mean - reach), frame(mean + reach))
        return Forecast(frame(mean), lower, upper, frame(sd), level)

    def _clock(
        self, index: pd.Index, steps: int | None, times: Any
    ) -> tuple[FloatArray, FloatArray, pd.Index]:
        """(n,) times of the history and (m,) of what is asked for, in steps; labels of the latter."""
        length = step_length(self.step)
        if (steps is None) == (times is None):
            raise ParameterError("say once what to forecast: steps=8, or times=[...].")
        if index.nlevels > 1 or index.hasnans:
            raise DataError(
                "history has an index of several levels or with empty times; give one time for each row."
            )
        is_date = isinstance(index, pd.DatetimeIndex)
        if is_date and isinstance(length, float):
            raise DataError(
                "history has dates in its index, but a step of this network is no time that is known; give numbers of steps."
            )
        if not is_date and not pd.api.types.is_numeric_dtype(index):
            raise DataError(
                "history has an index that is neither dates nor numbers; give the times of its rows."
            )
        if not is_date and not isinstance(length, float) and not isinstance(index, pd.RangeIndex):
            raise DataError(
                f"history has numbers in its index, but a step of this network is {self.step}; give dates, or an array of "
                "rows that are one step apart."
            )
        if not index.is_monotonic_increasing:
            raise DataError("history has times that are not in order; sort it with sort_index().")
        unit = 1.0 if isinstance(index, pd.RangeIndex) else length
        start = index[0]
        at = np.asarray((index - start) / unit, dtype=np.float64)
        if times is None:
            whole(1).check("steps", steps)
            labels = pd.Index([index[-1] + k * unit for k in range(1, int(steps or 0) + 1)])
        elif is_date:
            try:
                labels = pd.DatetimeIndex(pd.to_datetime(list(_listed(times))))
                if (labels.tz is None) != (index.tz is None):  # type: ignore[attr-defined]
                    raise ValueError
            except (ValueError, TypeError):
                raise ParameterError(
                    f"times={times!r} must be dates on the clock of history, with its time zone."
                ) from None
        else:
            found = list(_listed(times))
            if not all(map(is_number, found)):
                raise ParameterError(f"times={times!r} must be numbers on the clock of history.")
            labels = pd.Index(found, dtype=np.float64)
        if not len(labels):
            raise ParameterError("times must hold at least one time.")
        return at, np.asarray((labels - start) / unit, dtype=np.float64), labels

    def _conditional(
        self, at: FloatArray, values: FloatArray, asked: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(m, d) means and variances of readings at the times `asked` given all `values`, and (n, d) standardised surprises.

        The state is the deviation from the level and, where recordings have levels of their own, the level.
        """
        d, has_levels = self.d, self.levels is not None
        size = 2 * d if has_levels else d
        see = np.hstack([np.eye(d)] * (2 if has_levels else 1))
        P = np.zeros((size, size))
        P[:d, :d] = self.stationary
        if self.levels is not None:
            P[d:, d:] = self.levels
        z: FloatArray = np.zeros(size)
        # Readings first where something is asked at their time.
        every = np.concatenate([at, asked])
        order = np.argsort(every, kind="stable")
        surprises: FloatArray = np.full((len(at), d), np.nan)
        kept: list[tuple[FloatArray, ...]] = []
        jumps: dict[float, tuple[FloatArray, FloatArray]] = {}
        now = every[order[0]]
        for k in order:
            F = np.eye(size)
            ahead = float(every[k] - now)
            if ahead > 0:
                if ahead not in jumps:
                    jumps[ahead] = self.transition(ahead)
                F[:d, :d], noise = jumps[ahead]
                z, P = F @ z, F @ P @ F.T
                P[:d, :d] += noise
                now = every[k]
            push, pull, rest = np.zeros(size), np.zeros((size, size)), np.eye(size)
            if k < len(at):
                seen = np.flatnonzero(np.isfinite(values[k]))
                H = see[seen]
                spread = H @ P @ H.T + np.diag(self.nugget[seen])
                off = values[k, seen] - self.mean[seen] - H @ z
                surprises[k, seen] = off / np.sqrt(np.diag(spread))
                push, pull = H.T @ np.linalg.solve(spread, off), H.T @ np.linalg.solve(spread, H)
                rest = np.eye(size) - P @ pull
                z, P = z + P @ push, rest @ P
                P = (P + P.T) / 2
            kept.append((F, z, P, push, pull, rest))
        mean, variance = np.empty((len(asked), d)), np.empty((len(asked), d))
        slope, curve = np.zeros(size), np.zeros((size, size))
        for k, (F, z, P, push, pull, rest) in zip(order[::-1], kept[::-1], strict=True):
            if k >= len(at):
                mean[k - len(at)] = self.mean + see @ (z + P @ slope)
                after = P - P @ curve @ P
                variance[k - len(at)] = np.diag(see @ after @ see.T) + self.nugget
            # What later readings say, carried back over this reading and the time before it.
            slope, curve = F.T @ (push + rest.T @ slope), F.T @ (pull + rest.T @ curve @ rest) @ F
        return mean, variance, surprises

    def _doubts(self, surprises: FloatArray) -> list[str]:
        """What speaks against readings being of the kind that the network describes."""
        found = {}
        for name, column in zip(self.variables, surprises.T, strict=True):
            known = np.abs(column[np.isfinite(column)])
            if len(known) >= _FEW and np.median(known) / _MEDIAN > _FACTOR:
                found[name] = float(np.median(known) / _MEDIAN)
        if not found:
            return []
        shown = ", ".join(map(repr, list(found)[:5]))
        return [
            f"readings of {shown} in history are up to {max(found.values()):.3g} times as far from what the network expects "
            "as its noise explains: other units, or another kind of recording; the forecast may be worthless."
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `from_dict` reads them back bit for bit."""
        arrays = {one.name: getattr(self, one.name) for one in fields(self)}
        plain = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in arrays.items()}
        return {"format": _FORMAT, "version": 1, **plain, "variables": list(self.variables)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`."""
        if stored.get("format") != _FORMAT or stored.get("version") != 1:
            raise ParameterError(
                f"these are no rates: format {stored.get('format')!r}, version {stored.get('version')!r}."
            )
        given = {one.name: stored[one.name] for one in fields(cls) if one.name in stored}
        return cls(**given)


def _root(covariance: FloatArray) -> FloatArray:
    """R with R R' = covariance, which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _listed(times: Any) -> Iterable[Any]:
    return [times] if isinstance(times, str) or not isinstance(times, Iterable) else times
