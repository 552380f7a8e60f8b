"""A network in continuous time from readings at any times: rates of change, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.continuous import FittedMoments, Rates, fitted_moments, learn_rates
from feddbn.core.designs.lags import LagSums
from feddbn.core.penalised.path import Status
from feddbn.core.statistics.moments import dependences
from feddbn.data import SiteData, check_variances
from feddbn.data.layout import Layout
from feddbn.errors import DataError, ParameterError, ResidualsWarning
from feddbn.federation.programs.continuous import AskedLags, lag_sums_program
from feddbn.federation.protocol.task import Federation, Observer, fewest_sites
from feddbn.federation.sums.lags import clock_of, lag_design
from feddbn.federation.sums.prepare import AS_THEY_ARE, Prepare
from feddbn.findings import Finding
from feddbn.methods.base import DBNEstimator
from feddbn.model.dbn import DBN
from feddbn.model.forecast import Forecast
from feddbn.model.network import Rows
from feddbn.model.rates import Effect, RateNetwork
from feddbn.results.abstention import ABSTAINED
from feddbn.settings import MethodSettings, nothing, number, setting, takes, text, whole
from feddbn.words import say

__all__ = ["ContinuousDBN", "ContinuousSettings"]

_STEPS = {"hours": "1h", "numbers": "1", "rows": None}
# What a misfit is told from: correlations so many standard errors off in the mean, over all pairs of variables or over one.
# The weighted misfit is no guide: chance moves all correlations of slow variables together.
_OFF, _PAIR_OFF = 2.0, 3.5
# Common noise is told from so large a correlation on, and may be the same variable twice from the other.
_NOISE, _SAME_NOISE = 0.1, 0.9
_MORE_PAIRS = 6


@dataclass(frozen=True, repr=False)
class ContinuousSettings(MethodSettings):
    """What a person may choose of `ContinuousDBN`."""

    longest: float | None = setting(
        None,
        number(above=0) | nothing(),
        "Longest delay between two readings that is used, in time steps. None: 32. Effects that last longer need more.",
        kw_only=False,
    )
    shortest: float | None = setting(
        None,
        number(above=0) | nothing(),
        "Shortest delay that is used, in time steps. None: an eighth of a step, or one step if rows have no times.",
    )
    step: str | None = setting(
        None,
        text("a length of time such as '1h' or '15min'", "a number in the unit of the times such as '0.5'")
        | nothing(),
        "Length of a time step, the unit of rates and delays. None: an hour if times are dates, 1 if they are numbers, one "
        "row if there are no times. With a `federation`, None means one row, because only its sites know their clocks.",
    )
    random_state: int | None = setting(
        0, whole(0) | nothing(), "Random seed of the average over sets of edges."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        clock_of(self.step)
        if self.shortest is not None and self.longest is not None and self.shortest >= self.longest:
            raise ParameterError(f"shortest={self.shortest!r} must be less than longest={self.longest!r}.")


class ContinuousDBN(DBNEstimator[ContinuousSettings]):
    """Rates of change in continuous time, from one sum of products of readings by the time between them.

    dx = A (x - level) dt + dw,    reading = x + measurement noise,    C(delay) = exp(A delay) C(0)

    Readings may come at any times, of each variable at its own; effects may go round in circles. Nothing is filled in or
    averaged. See docs/continuous-time.md.

    Attributes
    ----------
    rates_
        (d, d) DataFrame, row: source, column: target: what one unit of the source adds to the change of the target per step.
    rate_network_
        The same with errors, noise and levels (`RateNetwork`): `effect`, `forecast`, `network`, `half_lives`.
    edges_
        DataFrame source, target, rate, error, lower, upper, standardised, half_life, probability of the rates that are not 0.
        Intervals are of 95 % and given these edges.
    edge_probabilities_
        DataFrame source, target, rate, probability, strength of all pairs, the surest first.
    fit_
        DataFrame source, target, steps, observed, error, expected: correlations of readings by the time between them, and
        what the rates say they are; of pairs with a rate, and of those that fit worst.
    misfit_, df_
        Weighted squares of what the rates leave of these correlations, and what they are expected to be if the model holds.
    network_, dbn_, W_, A_
        The discrete network over one step; W_ is 0, A_ has total effects over a step. Its noise has variances only.
    step_
        Length of a step as text; None where rows are one step apart.
    n_readings_
        Series: how many readings of each variable were used.
    n_rounds_, n_samples_
        Number of sums; readings of all variables.
    findings_
        All that a person should know about the fit, what can turn the result over first.
    feature_names_in_, n_features_in_
        Variables.

    Examples
    --------
    >>> import feddbn, numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> truth = feddbn.RateNetwork.driven([[-0.5, 0.6], [0, -1.0]], noise=[1.0, 1.0], variables=["x", "y"])
    >>> sites = {}
    >>> for site in ("north", "south"):
    ...     times = np.cumsum(rng.exponential(0.5, 2000))
    ...     rows = truth.sample(times, random_state=rng)
    ...     sites[site] = rows.where(rng.random(rows.shape) < 0.7).assign(t=times)
    >>> model = feddbn.ContinuousDBN().fit(sites, time="t")
    >>> model.edges_[["source", "target"]].values.tolist()
    [['x', 'y'], ['y', 'y'], ['x', 'x']]
    >>> effect = model.effect("x", "y", steps=2)
    >>> bool(effect.lower < truth.effect("x", "y", steps=2).value < effect.upper)
    True
    """

    needed_tasks = frozenset(("gram.lags",))
    rate_network_: RateNetwork
    edge_probabilities_: pd.DataFrame
    fit_: pd.DataFrame

    @takes(ContinuousSettings)
    def __init__(self) -> None: ...

    @property
    def _largest_lag(self) -> int:
        return 0

    @property
    def _rows(self) -> Prepare:
        # A row is whatever was read at one time.
        return replace(AS_THEY_ARE, missing="fill")

    @property
    def _inputs(self) -> tuple[int, ...]:
        return ()

    def _read(self, data: Any, layout: Layout) -> Mapping[str, SiteData]:
        """Rows stay at their own times, unless the layout says otherwise or there are none."""
        if layout.irregular is not None:
            return super()._read(data, layout)
        try:
            return super()._read(data, replace(layout, irregular="keep"))
        except ParameterError as error:
            if error.code != "needs-times":
                raise
        return super()._read(data, layout)

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        settings, names = self._settings, self._variables
        step = settings.step
        if step is None and sites is not None:
            step = _STEPS[clock_of(getattr(next(iter(sites.values())), "step", None))[0]]
        design = lag_design(names, step, settings.shortest, settings.longest)
        # In one process nobody has to be hidden.
        program = lag_sums_program(design, n_sites=fewest_sites(federation))
        asked, _ = self._run(program, federation, observer)
        self._learn(asked, step)
        if step is None:
            self._tell(Finding("rows-one-step-apart", "note"))

    def _learn(self, asked: AskedLags, step: str | None) -> None:
        names, sums = self._variables, _in_steps(asked.summed.sums, step)
        _require_different(sums, asked.summed.means, names)
        try:
            rates = learn_rates(sums, np.random.default_rng(self._settings.random_state), variables=names)
        except np.linalg.LinAlgError:
            raise DataError(
                "no rates describe these readings: what is fitted has no solution; leave out variables that hardly change, "
                "or use OneShotDBN on means of a step.",
                code="no-rates",
            ) from None
        network = _network(rates, asked.summed.means, names, step, float(sums.edges[-1]))
        self.rate_network_, self.step_ = network, step
        self.rates_ = pd.DataFrame(
            network.rates, pd.Index(names, name="source"), pd.Index(names, name="target")
        )
        self.edges_ = network.to_frame()
        self.edge_probabilities_ = _probabilities(network)
        self.network_: DBN = network.network(1.0)
        self._set_network(self.network_, self.network_)
        self.misfit_, self.df_, self.score_ = rates.misfit, rates.df, -2.0 * rates.evidence
        moments = fitted_moments(sums, rates)
        self.fit_ = _fit_table(moments, network)
        self.standard_deviations_ = np.sqrt(np.diag(network.stationary))
        n = np.maximum(np.diagonal(sums.counts[0]), 0.0)
        self.n_readings_ = pd.Series(np.rint(n).astype(int), index=list(names), name="readings")
        self.status_, self.n_samples_ = Status.EXACT, int(self.n_readings_.sum())
        self.center_, self.treatment_ = "none", None
        for found in _findings(rates, network, moments, asked.n_left_out):
            self._tell(found, warn=ResidualsWarning if found.level == "warning" else None)

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

        `hours` needs steps that are a time. See `RateNetwork.effect`.
        """
        return self.rate_network_.effect(source, target, steps=steps, hours=hours, level=level)

    def score(self, data: Any, y: None = None, *, layout: Layout | None = None, **columns: Any) -> float:
        """As `DBNEstimator.score`, of readings that are rows one step apart; others are refused."""
        try:
            return super().score(data, y, layout=layout, **columns)
        except DataError as error:
            if error.code != "no-usable-rows":
                raise
            raise DataError(
                "score needs readings of all variables at the same times, one step apart, and data has none; how well the "
                "rates explain readings at other times is in fit_.",
                code="irregular-readings",
            ) from None

    def forecast(
        self, history: Rows, steps: int | None = None, interval: float | None = None, *, times: Any = None
    ) -> Forecast:
        """Mean and bounds of readings at any time, given the readings of one recording; see `RateNetwork.forecast`."""
        return self.rate_network_.forecast(history, steps, interval, times=times)

    def to_frame(self, level: float = 0.95) -> pd.DataFrame:
        """The rates that are not 0, with intervals of that probability; see `RateNetwork.to_frame`."""
        return self.rate_network_.to_frame(level)


def _in_steps(sums: LagSums, step: str | None) -> LagSums:
    """Sums whose times are in steps, from those on the clock."""
    length = clock_of(step)[1]
    return replace(sums, edges=sums.edges / length, delays=sums.delays / length, time=sums.time / length)


def _require_different(sums: LagSums, mean: FloatArray, names: tuple[str, ...]) -> None:
    """Refuse variables that do not vary, or that follow from others: no rates can be told apart then."""
    counts, d = sums.counts, len(names)
    each = sums.products / np.maximum(counts, 1.0)
    check_variances(names, np.diagonal(each[0]), mean)
    near = next((b for b in range(1, len(counts)) if counts[b].min() > 0), None)
    if near is None or counts[0].min() <= 0:
        return
    both = np.block([[each[0], each[near]], [each[near].T, each[0]]])
    n = float(min(counts[0].min(), counts[near].min()))
    found = dependences(n * both, n, d)
    if found:
        columns = tuple(names[one.column] for one in found)
        raise DataError(
            " ".join(say(one.finding(names)) for one in found[:3]), code="dependent-column", columns=columns
        )


def _network(
    rates: Rates, mean: FloatArray, names: tuple[str, ...], step: str | None, longest: float
) -> RateNetwork:
    """The rates [from, to]; covariances that chance made impossible become the nearest possible ones."""
    A = rates.rates.T
    place = np.arange(len(names) ** 2).reshape(len(names), -1).T[A != 0]
    levels = None if rates.levels is None else _possible(rates.levels, 0.0)
    return RateNetwork.driven(
        A,
        _possible(rates.noise, 1e-9),
        names,
        mean=mean,
        nugget=rates.nugget,
        levels=levels,
        errors=rates.covariance[np.ix_(place, place)],
        probability=rates.probabilities.T,
        step=step,
        longest=longest,
    )


def _possible(matrix: FloatArray, least: float) -> FloatArray:
    """The covariance matrix next to a symmetric one; `least` is a share of its largest variance."""
    values, vectors = np.linalg.eigh(matrix)
    floor = least * float(np.abs(values).max(initial=0.0))
    if values.min(initial=0.0) >= floor:
        return matrix
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)


def _probabilities(network: RateNetwork) -> pd.DataFrame:
    """All pairs: those above one half by strength, then the others by probability."""
    i, j = np.nonzero(~np.eye(network.d, dtype=bool))
    names: Any = np.array(network.variables, dtype=object)
    assert network.probability is not None
    table = pd.DataFrame(
        {
            "source": names[i],
            "target": names[j],
            "rate": network.rates[i, j],
            "probability": network.probability[i, j],
            "strength": np.abs(network.standardised[i, j]),
        }
    )
    order = np.lexsort((-table["strength"], -table["probability"].clip(upper=0.5)))
    return table.iloc[order].reset_index(drop=True)


def _fit_table(moments: FittedMoments, network: RateNetwork) -> pd.DataFrame:
    """Pairs of variables with a rate, the strongest first, then those that fit worst."""
    names: Any = np.array(network.variables, dtype=object)
    table = pd.DataFrame(
        {
            "source": names[moments.earlier],
            "target": names[moments.later],
            "steps": moments.delay,
            "observed": moments.observed,
            "error": moments.error,
            "expected": moments.expected,
        }
    )
    off = ((table["observed"] - table["expected"]) / table["error"]).pow(2)
    known = network.to_frame()
    pairs = list(zip(known["source"], known["target"], strict=True))
    by_pair = off.groupby([table["source"], table["target"]]).mean().sort_values(ascending=False)
    pairs += [pair for pair in by_pair.index if pair not in set(pairs)][:_MORE_PAIRS]
    place = {pair: k for k, pair in enumerate(pairs)}
    at = pd.Series(list(zip(table["source"], table["target"], strict=True))).map(place)
    order = np.lexsort((table["steps"], at.fillna(len(place))))
    return table.iloc[order[: int(at.notna().sum())]].reset_index(drop=True)


def _findings(
    rates: Rates, network: RateNetwork, moments: FittedMoments, n_left_out: int
) -> Iterator[Finding]:
    """What has to be said about a fit."""
    names = network.variables
    if rates.is_contradicted:
        yield Finding(ABSTAINED, "warning", {"because": ["rates"]})
    off = np.abs(moments.observed - moments.expected) / moments.error
    by_pair = pd.Series(off**2).groupby([moments.earlier, moments.later]).mean() ** 0.5
    if len(off) and (np.sqrt((off**2).mean()) > _OFF or by_pair.max() > _PAIR_OFF):
        most: Any = by_pair.idxmax()
        earlier, later = most
        of_pair = (moments.earlier == earlier) & (moments.later == later)
        worst = int(np.where(of_pair, off, -1.0).argmax())
        about = tuple(dict.fromkeys((names[moments.earlier[worst]], names[moments.later[worst]])))
        values: dict[str, Any] = {
            "misfit": rates.misfit,
            "df": rates.df,
            "errors": float(by_pair.max()),
            "steps": float(moments.delay[worst]),
            "observed": float(moments.observed[worst]),
            "expected": float(moments.expected[worst]),
        }
        yield Finding("rates-do-not-fit", "warning", values, about)
    fast = np.flatnonzero(rates.too_fast)
    if len(fast):
        k = int(fast[np.argmax(-np.diag(rates.rates)[fast] * rates.shortest[fast])])
        values = {
            "apart": network.in_words(float(rates.shortest[k])),
            "half_life": network.in_words(float(network.half_lives[k])),
        }
        yield Finding("too-fast-for-readings", "warning", values, tuple(names[i] for i in fast))
    if network.longest is not None and rates.slowest > network.longest:
        values = {
            "slowest": network.in_words(rates.slowest),
            "longest": network.in_words(network.longest),
        }
        cure = {"longest": float(np.ceil(2 * rates.slowest))}
        yield Finding("slower-than-delays", "warning", values, cure=cure)
    if rates.n_sparse:
        values = {"n": rates.n_sparse, "n_moments": rates.n_moments + rates.n_sparse, "n_hidden": n_left_out}
        yield Finding("few-pairs", "note", values)
    if rates.levels is not None:
        share = np.diag(rates.levels) / (np.diag(rates.levels) + np.diag(rates.stationary))
        told = {names[i]: float(share[i]) for i in np.argsort(-share, kind="stable") if share[i] > 0.01}
        yield Finding("own-levels", "note", {"shares": told}, tuple(told))
    sd = np.sqrt(np.diag(rates.noise).clip(1e-300))
    shared = (rates.noise / np.multiply.outer(sd, sd)).clip(-1.0, 1.0)
    pairs = [(int(i), int(j)) for i, j in np.argwhere(np.abs(np.tril(shared, -1)) > _NOISE)]
    if pairs:
        told_pairs: list[list[Any]] = [
            [names[j], names[i], float(shared[i, j])]
            for i, j in sorted(pairs, key=lambda one: -abs(shared[one]))
        ]
        about = tuple(dict.fromkeys(name for one in told_pairs for name in one[:2]))
        is_all = abs(told_pairs[0][2]) > _SAME_NOISE
        yield Finding("correlated-noise", "warning" if is_all else "note", {"pairs": told_pairs}, about)
