"""What a study can find before there is one: the smallest effect, how often one is found, how many rows that takes."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

import numpy as np

from feddbn.core.statistics.power import (
    EFFECTS,
    POWER,
    Linear,
    Rule,
    discovery_rule,
    known_share,
    priced_rule,
    stable,
    usual_network,
)
from feddbn.errors import Given, ParameterError
from feddbn.model.mechanisms import known
from feddbn.privacy.noise_plan import SHARE_OF_ERROR
from feddbn.results.result import Result
from feddbn.settings import nothing, number, whole, word

__all__ = ["Power", "power"]


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
    edges
        How many edges are taken to have the effect that is asked about; it matters for `fdr`.
    rule
        When the method takes an edge (`feddbn.core.statistics.power.Rule`).

    Examples
    --------
    >>> import feddbn
    >>> feddbn.power(20, variables=20).smallest_effect()  # this study cannot tell
    inf
    """

    rows: int
    n_effective: float
    lost: float
    worth: float
    edges: int
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
            "edges": self.edges,
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
    criterion: str = "bic",
    threshold: float | None = None,
    fdr: float | None = None,
    edges: int | None = None,
    pilot: Result | None = None,
    random_state: int = 0,
) -> Power:
    """Return what a study of this size can find.

    In a usual network every variable has a past of its own (weights of .2 to .6), one in two has a cause at once (.3 to .5),
    and `edges` further lagged edges, each to another target, have the effect that is asked about.

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
    criterion, threshold, fdr
        How edges are chosen: by "bic" or "ebic" as `OneShotDBN` does, by the threshold of methods that have one, or so that
        the share of false edges is at most `fdr`.
    edges
        How many edges have the effect that is asked about; None: one for every two variables. Only `fdr` depends on it: the
        more edges are found, the lower is the cut.
    pilot
        A result whose network stands for the usual one; its edges are there beside `edges` further ones.
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
    edges = max(variables // 2, 1) if edges is None else edges
    whole(1, variables).check("edges", edges)
    if threshold is not None and fdr is not None:
        raise ParameterError(f"{Given('threshold', threshold)} and {Given('fdr', fdr)} exclude each other.")
    rng = np.random.default_rng(random_state)

    def drawn(generator: np.random.Generator) -> Linear:
        return network or usual_network(variables, n_lags, generator)

    left = max(rows - (n_lags + 1) * recordings, 0)
    worth = known_share(stable(drawn, rng)[2], missing, rng) / (1 + SHARE_OF_ERROR**2 * masked)
    if threshold is not None:
        rule = Rule(threshold=threshold)
    elif fdr is not None:
        rule = discovery_rule(fdr, drawn, edges, rng)
    else:
        rule = priced_rule(criterion, variables, n_lags)
    return Power(rows, left * worth, rows - left, worth, edges, rule)


def _network_of(pilot: Result) -> Linear:
    """The network of a result, which must be linear and stable."""
    dbn = pilot.dbn
    if not dbn.is_linear:
        raise ParameterError(
            "pilot: its network has curves or kinds; fit it by OneShotDBN with features='linear'."
        )
    found = Linear(
        np.concatenate([dbn.W, dbn.A.reshape(-1, dbn.d)]), known(dbn.noise_variances, "noise_variances")
    )
    try:
        found.covariance()
    except ValueError:
        raise ParameterError(
            "pilot: its network is not stable; it grows without end. Use differences."
        ) from None
    return found
