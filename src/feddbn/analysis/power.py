"""What a study can find before there is one: the smallest effect, how often one is found, how many rows that takes.

The effect is standardised: what one standard deviation of a cause, beside the other causes, does to its target, in standard
deviations of the target's noise. It is b = r / sqrt(1 - r^2) with r the partial correlation, so asinh(b) is Fisher's z of r.
In m rows left beside controls and levels, sqrt(m) z has a standard deviation of about 1. A method takes an edge where its
estimate is above a *cut*::

    sqrt(m) |z| > sqrt(constant + per_log_row log(n)) + sqrt(m) asinh(threshold)

BIC has its price for the middle term, a method with a threshold the last one. The cut of Benjamini and Hochberg's rule
depends on how many edges are found. So the network is stated: every variable has a past of its own, some pairs act at once,
and a stated number of further edges have the effect that is asked about. The cut t and the number of discoveries D follow
from each other, and the largest solution of both is taken, as the rule does::

    t = threshold(fdr, tested, D)        D = 1 + sum over the other true edges of P(found | t) + false ones P(found | t)

An edge is tested beside all columns before its target. What that leaves of its effect is measured in drawn networks. The
order is taken to be known: that rows leave some directions undecided is not counted, and costs some points of power.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import asinh, exp, inf, isfinite, log, sqrt
from typing import Any

import numpy as np
import scipy.linalg
from scipy.optimize import brentq
from scipy.special import ndtr

from feddbn.core.arrays import FloatArray
from feddbn.core.constraints import causes_first
from feddbn.core.designs.parts import least_rows
from feddbn.core.designs.weights import WORTH
from feddbn.core.statistics.discoveries import threshold
from feddbn.core.statistics.missing import known_n, known_pairs
from feddbn.core.statistics.parts import UNKNOWN_DISPERSION
from feddbn.errors import Given, ParameterError
from feddbn.model.nodes import known
from feddbn.results.result import Result
from feddbn.settings import nothing, number, whole, word

__all__ = ["Power", "power"]

POWER = 0.8
LARGEST = 1.0
"""A study that finds no effect of this size cannot tell: nearly half of a target's variance would have one cause."""
EFFECTS = (0.1, 0.2, 0.3, 0.5)
"""Effects that are told about."""
_CONTROLS = 2
"""Other causes of a target."""
_MOST_ROWS = 1e12


@dataclass(frozen=True)
class Rule:
    """When a method takes an edge.

    Examples
    --------
    BIC at two log(n) an edge, with 1,000 rows:

    >>> rule = Rule(per_log_row=2.0)
    >>> round(rule.smallest(1000), 3), round(rule.power(0.15, 1000), 2), round(rule.rows(0.15))
    (0.145, 0.84, 927)
    """

    constant: float = 0.0
    per_log_row: float = 0.0
    threshold: float = 0.0
    controls: float = _CONTROLS

    def power(self, effect: float, n: float) -> float:
        """Return how often an effect of this size is found in n rows."""
        root = sqrt(max(n - self.controls - 3.0, 0.0))
        cut = sqrt(max(self.constant + self.per_log_row * log(max(n, 1.0)), 0.0))
        return float(_found(effect, root, cut + root * asinh(self.threshold))) if root >= 1 else 0.0

    def smallest(self, n: float, power: float = POWER) -> float:
        """Return the smallest effect that is found with this power; inf if none up to `LARGEST` is."""
        if self.power(LARGEST, n) < power:
            return inf
        if self.power(0.0, n) >= power:
            return 0.0
        return float(brentq(lambda effect: self.power(effect, n) - power, 0.0, LARGEST))

    def rows(self, effect: float, power: float = POWER) -> float:
        """Return with how many rows an effect is found with this power; inf if there is no such number."""
        if not effect or self.power(effect, _MOST_ROWS) < power:
            return inf
        return exp(float(brentq(lambda at: self.power(effect, exp(at)) - power, 0.0, log(_MOST_ROWS))))


def _found(effects: FloatArray | float, root: float, cut: float) -> FloatArray:
    """How often estimates of these effects are above the cut."""
    at = root * np.arcsinh(np.abs(effects))
    return np.asarray(ndtr(at - cut) + ndtr(-at - cut))


def priced_rule(criterion: str, d: int, n_lags: int, factor: float | None = None) -> Rule:
    """Return the rule of BIC or EBIC with this multiplier of log(n).

    EBIC also charges the log odds against an edge, where there are three lagged edges for every two variables.
    """
    if criterion == "bic":
        return Rule(per_log_row=2.0 if factor is None else factor)
    possible, used = (n_lags * d * d, 1.5 * d) if n_lags else (d * (d - 1) / 2, 0.5 * d)
    return Rule(log(max((possible - used + 0.5) / (used + 0.5), 1.0)), 1.0 if factor is None else factor)


@dataclass(frozen=True)
class DiscoveryRule(Rule):
    """When an edge is a discovery, in networks of which some are drawn.

    Attributes
    ----------
    fdr, tested
        Level, and how many edges are tested.
    edges
        How many edges have the effect that is asked about.
    left
        What tests leave of effects, over drawn edges.
    others, networks
        What tests leave of the effects of all other edges, over so many drawn networks.
    """

    fdr: float = 0.1
    tested: int = 1
    edges: int = 1
    left: tuple[float, ...] = (1.0,)
    others: tuple[float, ...] = ()
    networks: int = 1

    def power(self, effect: float, n: float) -> float:
        """Return how often an effect of this size is found in n rows, where so many others have the same."""
        rows = n - 1.0 - self.controls
        if rows < 1:
            return 0.0
        root, mine, others = sqrt(rows), abs(effect) * np.array(self.left), np.array(self.others)
        none = max(self.tested - self.edges - len(others) / self.networks, 0.0)
        found, cut = float(self.tested), 0.0
        for _ in range(_STEPS):
            # An edge that is found is itself one of the discoveries.
            cut = root * asinh(threshold(self.fdr, self.tested, found, rows) / root)
            false, strong = none * float(_found(0.0, root, cut)), _found(others, root, cut).sum()
            now = 1 + (self.edges - 1) * _found(mine, root, cut).mean() + strong / self.networks + false
            if abs(now - found) < 1e-6:
                break
            found = float(min(now, found))
        return float(_found(mine, root, cut).mean())


_STEPS = 200


def discovery_rule(
    fdr: float,
    network: Callable[[np.random.Generator], Linear],
    edges: int,
    rng: np.random.Generator,
) -> DiscoveryRule:
    """Return the rule of discoveries at this level where `edges` edges are added to such networks."""
    kept: list[float] = []
    others: list[float] = []
    q = d = 1
    for _ in range(_NETWORKS):
        whole, new, S = stable(network, rng, np.full(edges, 0.2))
        C = whole.weights
        q, d = C.shape
        order = causes_first(range(d), C[:d] != 0)
        for m, j in np.argwhere(C).tolist():
            if m >= d or q == d:
                tested = _tested_effect(S, m, j, order)
                if (m, j) in new:
                    kept.append(tested / _effect(S, m, j, np.flatnonzero(C[:, j]).tolist()))
                else:
                    others.append(tested)
    tests = (q - d) * d if q > d else d * (d - 1) // 2
    columns = q - d + (d - 1) / 2
    return DiscoveryRule(
        controls=columns,
        fdr=fdr,
        tested=tests,
        edges=edges,
        left=tuple(kept),
        others=tuple(others),
        networks=_NETWORKS,
    )


_NETWORKS = 25


def _effect(S: FloatArray, m: int, j: int, beside: list[int]) -> float:
    """The standardised effect of column m on column j beside others, where rows have covariance S."""
    columns = [j, m, *(k for k in beside if k not in (m, j))]
    K = np.linalg.inv(S[np.ix_(columns, columns)])
    return float(abs(K[0, 1]) / sqrt(K[0, 0] * K[1, 1] - K[0, 1] ** 2))


def _tested_effect(S: FloatArray, m: int, j: int, order: list[int]) -> float:
    """The same beside all columns before the later one of both."""
    d = len(order)
    last = max(order.index(k) for k in (m, j) if k < d)
    return _effect(S, m, j, [*range(d, len(S)), *order[:last]])


@dataclass(frozen=True)
class Linear:
    """A network: weights ((p+1) d, d) of the stack [W; A_1; ...] and (d,) variances of noise."""

    weights: FloatArray
    variances: FloatArray

    def covariance(self) -> FloatArray:
        """((p+1) d, (p+1) d) of lagged rows in the long run; ValueError if it is not stable."""
        q, d = self.weights.shape
        now = np.linalg.inv(np.eye(d) - self.weights[:d])
        innovation = (now.T * self.variances) @ now
        F, Q = np.zeros((q, q)), np.zeros((q, q))
        # Row l d + i of the stack acts on the present: the transpose of what a column of states needs.
        F[:d, : q - d] = (self.weights[d:] @ now).T
        F[d:, : q - d] = np.eye(q - d)
        Q[:d, :d] = innovation
        if q > d and np.abs(np.linalg.eigvals(F)).max() > _STABLE:
            raise ValueError("this network is not stable")
        return np.asarray(scipy.linalg.solve_discrete_lyapunov(F, Q))


_STABLE = 0.99


def usual_network(d: int, n_lags: int, rng: np.random.Generator) -> Linear:
    """Draw a network in which every variable has a past of .2 to .6, and one in two a cause of .3 to .5 at once.

    Noise variances differ, as units do.
    """
    C = np.zeros(((n_lags + 1) * d, d))
    place = rng.permutation(d)
    size = rng.uniform(0.3, 0.5, (d, d)) * rng.choice([-1.0, 1.0], (d, d))
    present = (rng.random((d, d)) < 1 / max(d - 1, 1)) & (place[:, None] < place[None, :])
    C[:d][present] = size[present]
    if n_lags:
        C[d : 2 * d][np.diag_indices(d)] = rng.uniform(0.2, 0.6, d)
    sd = np.exp(rng.normal(scale=0.5, size=d))
    return Linear(C * sd / np.tile(sd, n_lags + 1)[:, None], sd**2)


def planted(
    network: Linear, effects: FloatArray, rng: np.random.Generator
) -> tuple[Linear, list[tuple[int, int]], FloatArray]:
    """Add edges of these effects, each to a target of its own; return the network, the edges and the covariance.

    Edges are lagged where there are lags. ValueError if the network is not stable.
    """
    C, v = network.weights.copy(), network.variances
    q, d = C.shape
    place = np.argsort(causes_first(range(d), C[:d] != 0))
    edges: list[tuple[int, int]] = []
    for j in rng.permutation(d).tolist():
        open_to_it = (C[:, j] == 0) & (np.arange(q) % d != j)
        open_to_it[:d] &= (q == d) & (place < place[j])
        free = np.flatnonzero(open_to_it)
        if len(free) and len(edges) < len(effects):
            edges.append((int(rng.choice(free)), j))
    signs = rng.choice([-1.0, 1.0], len(edges))
    S = Linear(C, v).covariance()
    for _ in range(_PLANTINGS):
        for (m, j), b, sign in zip(edges, effects, signs, strict=False):
            P = np.setdiff1d(np.flatnonzero(C[:, j]), [m])
            left = S[m, m] - S[m, P] @ np.linalg.solve(S[np.ix_(P, P)], S[P, m])
            C[m, j] = sign * b * sqrt(v[j] / left)
        S = Linear(C, v).covariance()
    return Linear(C, v), edges, S


def stable(
    network: Callable[[np.random.Generator], Linear],
    rng: np.random.Generator,
    effects: FloatArray | None = None,
) -> tuple[Linear, list[tuple[int, int]], FloatArray]:
    """Draw until a network with these edges is stable; see `planted`.

    Effects become smaller with every try, so that a pilot which is nearly unstable has some, too.
    """
    for k in range(_TRIES):
        one = network(rng)
        here = np.zeros(0) if effects is None else 0.95**k * effects
        try:
            return planted(one, here, rng)
        except ValueError:
            continue
    raise ParameterError(
        "the network is not stable: with further edges it grows without end.", code="not-stable"
    )


_TRIES = 50
_PLANTINGS = 8
"""How often weights are set again: planted edges change the variances that effects are standardised by."""


def known_share(S: FloatArray, missing: float, rng: np.random.Generator) -> float:
    """Return what a row is worth of which this share of the cells is missing, where rows have this covariance."""
    if not missing:
        return 1.0
    rows = np.where(rng.random((_PATTERNS, len(S))) < missing, np.nan, 0.0)
    return known_n(known_pairs(rows, S)) / _PATTERNS


_PATTERNS = 400


@dataclass(frozen=True)
class Power:
    """What a study of this size can find.

    An effect is what one standard deviation of a cause, beside the other causes, does to its target, in standard deviations
    of the target's noise.

    Attributes
    ----------
    rows, n_effective
        Rows of all sites, and how many complete rows without noise, lags and levels these are worth.
    lost, worth, least
        Rows that lags and levels of recordings cost, and what each of the others is worth. Below `least` rows nobody knows
        how much their parts differ, and each counts as half (`feddbn.core.statistics.parts`).
    edges
        How many edges are taken to have the effect that is asked about; it matters for `fdr`.
    rule
        When the method takes an edge (`feddbn.analysis.power.Rule`).

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
    least: int
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
        complete = self.rule.rows(number(0).check("effect", effect), power)
        few = self.lost + UNKNOWN_DISPERSION * complete / self.worth
        return few if few < self.least else max(self.lost + complete / self.worth, float(self.least))

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
        Whether rows have the secret weights that they have in masked studies.
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
    (0.19, 0.12, 3840)
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
    worth = known_share(stable(drawn, rng)[2], missing, rng) * (WORTH if masked else 1.0)
    if threshold is not None:
        rule = Rule(threshold=threshold)
    elif fdr is not None:
        rule = discovery_rule(fdr, drawn, edges, rng)
    else:
        rule = priced_rule(criterion, variables, n_lags)
    # A threshold counts no rows.
    least = 0 if threshold is not None else sites * least_rows((n_lags + 1) * variables)
    complete = left * worth / (UNKNOWN_DISPERSION if rows < least else 1.0)
    return Power(rows, complete, rows - left, worth, least, edges, rule)


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
