"""What a study can find before there is one: the smallest effect, how often one is found, how many rows that takes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.statistics.moments import Moments, correlations
from feddbn.core.statistics.power import (
    EFFECTS,
    POWER,
    Linear,
    Rule,
    known_share,
    measured_rule,
    priced_rule,
    stable,
    usual_network,
)
from feddbn.errors import Given, ParameterError
from feddbn.federation.sums.private_moments import private_moments_plan
from feddbn.methods.oneshot import OneShotDBN
from feddbn.privacy.noise_plan import SHARE_OF_ERROR, NoisePlan, effective_count
from feddbn.privacy.policy import DEFAULT_MIN_SITES, usual_threshold
from feddbn.results.result import Result
from feddbn.settings import nothing, number, whole, word

__all__ = ["Power", "power"]

_AVERAGED = 200
"""With fewer rows the usual learner averages over orders, and the price of an edge is not that of BIC."""
_LEFT = 10
_PLANTED = 400
"""Planted edges by which a rule is measured."""


@dataclass(frozen=True)
class Power:
    """What a study of this size can find.

    An effect is what one standard deviation of a cause, beside the other causes, does to its target, in standard deviations
    of the target's noise.

    Attributes
    ----------
    rows, n_effective
        Rows of all sites, and how many complete rows without noise, lags and levels these are worth.
    lost, worth
        Rows that lags and levels of recordings cost, and what each of the others is worth.
    rule
        When the method takes an edge (`feddbn.core.statistics.power.Rule`).
    """

    rows: int
    n_effective: float
    lost: float
    worth: float
    rule: Rule

    def smallest_effect(self, power: float = POWER) -> float:
        """Return the smallest effect that is found with this power; inf, this study cannot tell, if it would be above 1."""
        number(above=0, below=1).check("power", power)
        return self.rule.smallest(self.n_effective, power)

    def power(self, effect: float) -> float:
        """Return how often an effect of this size is found."""
        return self.rule.power(number(0).check("effect", effect), self.n_effective)

    def rows_for(self, effect: float, power: float = POWER) -> float:
        """Return how many rows of this kind find such an effect with this power; inf if no number does."""
        number(above=0, below=1).check("power", power)
        return self.lost + self.rule.rows(number(0).check("effect", effect), power) / self.worth

    def to_dict(self, effects: tuple[float, ...] = EFFECTS) -> dict[str, Any]:
        """Return plain values; None where no effect, or no number of rows, is enough."""
        smallest = self.smallest_effect()
        known = isfinite(smallest)
        return {
            "rows": self.rows,
            "n_effective": self.n_effective,
            "smallest_effect": smallest if known else None,
            "as_correlation": smallest / sqrt(1 + smallest**2) if known else None,
            "power": {f"{effect:g}": self.power(effect) for effect in effects},
            "rows_for": {f"{effect:g}": _or_none(self.rows_for(effect)) for effect in effects},
        }


def _or_none(rows: float) -> int | None:
    return round(rows) if isfinite(rows) else None


def power(
    rows: int,
    *,
    sites: int = 1,
    recordings: int | None = None,
    variables: int = 10,
    n_lags: int = 1,
    missing: float = 0.0,
    masked: bool = False,
    epsilon: float | None = None,
    criterion: str = "bic",
    threshold: float | None = None,
    fdr: float | None = None,
    pilot: Result | None = None,
    random_state: int = 0,
) -> Power:
    """Return what a study of this size can find.

    The usual case has a formula. With `fdr`, a `pilot` or fewer than 200 rows worth, `OneShotDBN` learns from drawn sums of
    networks with planted edges instead, which takes seconds.

    Parameters
    ----------
    rows
        Rows of all sites together.
    sites, recordings
        How many; at least one recording for each site. Each recording loses its first rows to lags, and one to its mean.
    variables, n_lags
        Size of the network; those of the pilot if there is one.
    missing
        Share of empty cells.
    masked
        Whether sites add the noise of masked studies, .3 of the sampling error.
    epsilon
        Differential privacy of a recording, with delta 1e-5; None: no such noise. What a row is then worth is rough, up to a
        factor of 2 too low.
    criterion, threshold, fdr
        How edges are chosen: by "bic" or "ebic" as `OneShotDBN` does, by the threshold of methods that have one, or so that
        the share of false edges is at most `fdr`.
    pilot
        A result whose network stands for the one of the study; None: a usual one, with noise variances that differ.
    random_state
        Seed of what is drawn.

    Examples
    --------
    >>> import feddbn
    >>> study = feddbn.power(1200, sites=6, recordings=30)
    >>> round(study.smallest_effect(), 2), round(study.power(0.1), 2), round(study.rows_for(0.1))
    (0.14, 0.35, 2353)
    """
    network = None
    if pilot is not None:
        network, variables, n_lags = _network_of(pilot), pilot.dbn.d, pilot.dbn.n_lags
    for name, value, least in (
        ("rows", rows, 1),
        ("sites", sites, 1),
        ("variables", variables, 2),
        ("n_lags", n_lags, 0),
    ):
        whole(least).check(name, value)
    recordings = sites if recordings is None else recordings
    whole(sites).check("recordings", recordings)
    number(0, below=1).check("missing", missing)
    word("bic", "ebic").check("criterion", criterion)
    (number(0) | nothing()).check("threshold", threshold)
    (number(above=0, below=1) | nothing()).check("fdr", fdr)
    rng = np.random.default_rng(random_state)

    def drawn(generator: np.random.Generator) -> Linear:
        return network or usual_network(variables, n_lags, generator)

    S = stable(drawn, rng)[2]
    usable = rows - n_lags * recordings
    left = max(usable - recordings, 0.0)
    worth = known_share(S, missing, rng) / (1 + SHARE_OF_ERROR**2 * masked)
    if epsilon is not None:
        number(above=0).check("epsilon", epsilon)
        usable = max(usable, 1)
        plan = private_moments_plan("gram.rows", "recording", epsilon, 1e-5, n_colluding=1)
        worth *= _worth_under_noise(S, plan, usable, recordings, sites, n_lags)
    n = left * worth
    if threshold is not None and fdr is not None:
        raise ParameterError(f"{Given('threshold', threshold)} and {Given('fdr', fdr)} exclude each other.")
    if threshold is not None:
        rule = Rule(threshold=threshold)
    elif n < len(S) + _LEFT or (fdr is None and pilot is None and (n >= _AVERAGED or criterion == "ebic")):
        rule = priced_rule(criterion, variables, n_lags)
    else:
        settings = {"criterion": criterion, **({} if fdr is None else {"fdr": fdr})}
        rule = measured_rule(_learner(settings, variables, n_lags), drawn, n, rng, _PLANTED)
    return Power(rows, n, rows - left, worth, rule)


def _network_of(pilot: Result) -> Linear:
    """The network of a result, which must be linear and stable."""
    dbn = pilot.dbn
    if not dbn.is_linear or dbn.noise_variances is None:
        raise ParameterError(
            "pilot: its network has curves or kinds; fit it by OneShotDBN with features='linear'."
        )
    found = Linear(np.concatenate([dbn.W, dbn.A.reshape(-1, dbn.d)]), np.asarray(dbn.noise_variances))
    try:
        found.covariance()
    except ValueError:
        raise ParameterError(
            "pilot: its network is not stable; it grows without end. Use differences."
        ) from None
    return found


def _worth_under_noise(
    S: FloatArray, plan: NoisePlan, usable: float, recordings: int, sites: int, n_lags: int
) -> float:
    """What a row is worth where recordings, of one length, are protected by epsilon and variables have unit variance."""
    R = correlations(S)[0]
    length = usable / recordings
    # Bounds are half an octave apart.
    bound = length * sqrt(1 + float((R**2).sum())) * 2**0.25
    sigma = plan.noise_in_sum("gram.rows", bound, n_lags, sites, usual_threshold(sites, DEFAULT_MIN_SITES))
    return effective_count(R, usable, sigma / sqrt(2.0)) / usable


def _learner(settings: dict[str, Any], d: int, n_lags: int) -> Callable[[Moments], BoolArray]:
    """`OneShotDBN` as a function of moments."""
    names = [f"x{j}" for j in range(d)]

    def learn(moments: Moments) -> BoolArray:
        quick = OneShotDBN(n_lags, average=False, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quick.fit_moments(moments, names)
            if quick.noise_variance_ == "equal" or moments.n < _AVERAGED:
                # Only then the average over orders decides about edges.
                quick = OneShotDBN(n_lags, **settings)
                quick.fit_moments(moments, names)
        return np.asarray(quick.dbn_.is_edge.reshape(-1, d))

    return learn
