"""What a variable does given its causes: a node is a distribution whose predictor adds up terms.

    predictor = intercept + sum over terms of columns(causes) @ coefficients

A straight effect, a curve, a product of two causes and an effect of levels are terms; a normal, log-normal, count or
logistic variable is a kind of distribution. So linear, curved and generalised networks are made of one class.

What is not known is None: weights of a list of edges come without intercepts and noise, and nothing is computed from
numbers that were never told (`known`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import (
    betainc,
    betaln,
    gammaincinv,
    gammaln,
    log_expit,
    log_softmax,
    nbdtrik,
    ndtr,
    ndtri,
    pdtr,
    pdtrik,
)

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.designs.features import (
    CURVE_KNOTS,
    N_CURVES,
    SQUARE_REACH,
    curve_features,
    feature_map,
    square_features,
)
from feddbn.core.kinds import CONTINUOUS, Kind
from feddbn.errors import ParameterError
from feddbn.settings import whole

PRODUCT_REACH = 4.0
"""Beyond this many scales from its origin a variable counts in a product as if it were there."""
_TABLE_REACH = 3.0
_REACH = {"spline": CURVE_KNOTS[-1], "quadratic": SQUARE_REACH, "product": PRODUCT_REACH}
_WIDTH = {"spline": N_CURVES, "quadratic": 1, "product": 1, "table": 1}

LINKS = {
    "continuous": "value",
    "positive": "log value",
    "count": "log rate",
    "binary": "log odds",
    "ordinal": "log odds",
    "categorical": "log odds",
}
"""Kind -> the scale on which causes add up."""

Known = TypeVar("Known")


def known(value: Known | None, name: str) -> Known:
    """Return the `intercept` or the `noise_variances` of a network; refuse where they are not known."""
    if value is None:
        raise ParameterError(
            f"this needs {name}, and this network has none: a list of edges tells weights only. Use the network of "
            f"a fit, or give one number for each variable: dataclasses.replace(dbn, {name}=...).",
            code="numbers-not-known",
        )
    return value


# Terms ---------------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Term:
    """What enters the predictor of a variable: columns that are functions of one cause, or the product of two.

    Attributes
    ----------
    sources
        (variable, lag) of each cause, lag 0 within the time step; two for a product.
    basis
        ``"value"``: the columns of the kind of the cause (`Kind.encode`), a number as it is. All others are functions of
        ``z = (x - origin) / scale``: ``"spline"`` (`curve_features`, the first of them), ``"quadratic"``
        (`square_features`), ``"product"`` (of two z, each kept within +-4), ``"table"`` (straight lines between values at
        equal distances from -3 to 3), or a feature map registered under this name, less the value itself.
    origins, scales
        For each source where it is 0 and what counts as 1, in its units; empty for ``"value"``.
    table
        Values of a table.
    """

    sources: tuple[tuple[int, int], ...]
    basis: str = "value"
    origins: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    table: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        sources = tuple(
            (whole(0).check("a source", i), whole(0).check("its lag", lag)) for i, lag in self.sources
        )
        units = np.array([self.origins, self.scales], dtype=np.float64)
        table = np.array(self.table, dtype=np.float64)
        n = 2 if self.basis == "product" else 1
        is_fine = (
            len(sources) == n and units.shape == (2, 0 if self.is_straight else n) and (units[1] > 0).all()
        )
        is_fine &= (self.basis == "table") == (table.size > 1)
        if not is_fine or not np.isfinite(units).all() or not np.isfinite(table).all():
            raise ParameterError(
                f"a {self.basis!r} term needs {n} causes, each with an origin and a positive scale unless it is a value, and "
                f"a table of values only for the basis 'table'; got {list(sources)}, {self.origins!r} and {self.scales!r}."
            )
        if sources != tuple(sorted(sources)):
            sources, units = sources[::-1], units[:, ::-1]
        origins, scales = (tuple(one) for one in units.tolist())
        if n == 2 and sources[0] == sources[1] and (origins[0], scales[0]) != (origins[1], scales[1]):
            raise ParameterError(
                f"a square has one origin and one scale, got {self.origins} and {self.scales}."
            )
        values = {"sources": sources, "origins": origins, "scales": scales, "table": tuple(table.tolist())}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def is_straight(self) -> bool:
        """Whether it is the value itself, or the columns of its kind."""
        return self.basis == "value"

    @property
    def edge(self) -> tuple[int, int] | None:
        """(variable, lag) of the one cause it is a function of, a square's too; None for a product of two."""
        return self.sources[0] if len(set(self.sources)) == 1 else None

    @property
    def units(self) -> dict[int, tuple[float, float]]:
        """Variable -> its origin and scale."""
        places = (i for i, _ in self.sources)
        return dict(zip(places, zip(self.origins, self.scales, strict=True), strict=False))

    @property
    def ranges(self) -> dict[int, tuple[float, float]]:
        """Variable -> between which values the function is free; beyond them it stays what it is there.

        They are the outer knots: sums tell no smallest and no largest value.
        """
        reach = _REACH.get(self.basis, _TABLE_REACH)
        return {i: (o - reach * s, o + reach * s) for i, (o, s) in self.units.items()}

    def moved(self, shift: FloatArray) -> Term:
        """Return the same term about origins that have moved with their variables; `shift` (d,) has all of them."""
        moved = (o + float(shift[i]) for (i, _), o in zip(self.sources, self.origins, strict=False))
        return replace(self, origins=tuple(moved))

    def columns(self, *values: ArrayLike, kind: Kind = CONTINUOUS, width: int = 1) -> FloatArray:
        """(..., width) its columns at values (...) of its causes."""
        x = [np.asarray(one, dtype=np.float64)[..., None] for one in values]
        origins, scales = np.array([self.origins, self.scales]).reshape(2, -1, 1)
        return features(self.basis, kind, x, origins, scales, np.array([self.table]), width)[..., 0, :]


def features(
    basis: str,
    kind: Kind,
    x: Sequence[FloatArray],
    origins: FloatArray,
    scales: FloatArray,
    tables: FloatArray,
    width: int,
) -> FloatArray:
    """(..., k, width) columns of k terms of one basis at (..., k) values of their first and second causes.

    `origins` and `scales` are (1 or 2, k), `tables` (k, m).
    """
    if basis == "value":
        return kind.encode(x[0])
    z = [(one - o) / s for one, o, s in zip(x, origins, scales, strict=True)]
    if basis == "product":
        first, second = (np.clip(one, -PRODUCT_REACH, PRODUCT_REACH) for one in z)
        return np.asarray((first * second)[..., None])
    if basis == "spline":
        return curve_features(z[0])[..., :width]
    if basis == "quadratic":
        return square_features(z[0])
    if basis == "table":
        last = tables.shape[1] - 1
        place = np.clip((z[0] / _TABLE_REACH + 1) / 2, 0.0, 1.0) * last
        left = np.minimum(place.astype(np.intp), last - 1)
        which = np.arange(len(tables))
        low, high = tables[which, left], tables[which, left + 1]
        return np.asarray((low + (place - left) * (high - low))[..., None])
    own = feature_map(basis)
    found = own(z[0].reshape(-1, 1))[:, 0, int(own.has_identity) :]
    if found.shape[1] != width:
        raise ParameterError(
            f"a curve has {width} coefficients, but the feature map {basis!r} has {found.shape[1]} functions here"
            " beside the value itself; register the map that the network was learned with."
        )
    return np.asarray(found.reshape(*z[0].shape, width))


# Nodes ---------------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Node:
    """How one variable depends on its causes.

    Attributes
    ----------
    kind
        Of the variable.
    terms
        What enters its predictor, in the order of `coefficients`.
    coefficients
        For each term a (columns, k) matrix: k = 1, or L-1 for a categorical variable of L levels. One column may be a number.
    intercept
        (m,) one number; for L levels L-1 thresholds (ordinal, ascending) or log odds against level 0 (categorical). None: not
        known.
    dispersion
        Variance (continuous, positive), overdispersion (count), 1 otherwise. None: not known.
    covariance
        Of the estimates: intercept first, then the coefficients of term after term, row by row; NaN where it is not known;
        None if nothing of it is.
    """

    kind: Kind = CONTINUOUS
    terms: tuple[Term, ...] = ()
    coefficients: tuple[FloatArray, ...] = ()
    intercept: FloatArray | None = None
    dispersion: float | None = 1.0
    covariance: FloatArray | None = None

    def __post_init__(self) -> None:
        name, k = self.kind.name, self.n_predictors
        given = (np.array(one, dtype=np.float64) for one in self.coefficients)
        matrices = tuple(one if one.ndim == 2 else one.reshape(-1, 1) for one in given)
        fits = [
            b.shape[1] == k and 1 <= len(b) <= _WIDTH.get(term.basis, len(b))
            for term, b in zip(self.terms, matrices, strict=False)
        ]
        intercept, covariance = (
            None if one is None else np.array(one, dtype=np.float64, ndmin=1)
            for one in (self.intercept, self.covariance)
        )
        n = self.n_intercepts + sum(b.size for b in matrices)
        c = np.zeros(self.n_intercepts) if intercept is None else intercept
        numbers = np.concatenate([c.ravel(), *(b.ravel() for b in matrices), [self.dispersion or 0.0]])
        why = {
            f"coefficients of a {name} variable must be one matrix for each term: {k} columns, and one row for each of "
            "the term's columns": len(matrices) == len(self.terms) and all(fits),
            f"intercept of a {name} variable must be {self.n_intercepts} numbers, got {c.shape}": c.shape
            == (self.n_intercepts,),
            f"intercept of an ordinal variable must ascend, got {c.tolist()}": name != "ordinal"
            or intercept is None
            or bool((np.diff(c) > 0).all()),
            f"covariance must be a {n} x {n} matrix without infinities": covariance is None
            or (covariance.shape == (n, n) and not np.isinf(covariance).any()),
            "a node needs finite numbers, and a dispersion of at least 0": bool(np.isfinite(numbers).all())
            and numbers[-1] >= 0,
            "terms has two of the same causes; add their coefficients up": len(
                {(term.sources, term.is_straight) for term in self.terms}
            )
            == len(self.terms),
        }
        for sentence in (text for text, is_so in why.items() if not is_so):
            raise ParameterError(f"{sentence}.")
        arrays = {"intercept": intercept, "covariance": covariance}
        for array in (*arrays.values(), *matrices):
            if array is not None:
                array.setflags(write=False)
        for field, value in {"terms": tuple(self.terms), "coefficients": matrices, **arrays}.items():
            object.__setattr__(self, field, value)

    @property
    def n_intercepts(self) -> int:
        """How many numbers its intercept has."""
        return self.kind.n_levels - 1 if self.kind.is_by_level else 1

    @property
    def n_predictors(self) -> int:
        """How many linear predictors it has."""
        return self.kind.n_levels - 1 if self.kind.name == "categorical" else 1

    @property
    def causes(self) -> tuple[tuple[int, int], ...]:
        """(variable, lag) of each cause, in the order of the terms."""
        return tuple(dict.fromkeys(source for term in self.terms for source in term.sources))

    @property
    def parts(self) -> list[tuple[Term, FloatArray]]:
        """Every term with its coefficients."""
        return list(zip(self.terms, self.coefficients, strict=True))

    @property
    def slopes(self) -> FloatArray:
        """(w, k) the coefficients of all terms, one below the other."""
        return np.concatenate([np.zeros((0, self.n_predictors)), *self.coefficients])

    @property
    def estimates(self) -> FloatArray:
        """Intercept and coefficients, in the order of `covariance`."""
        return np.concatenate([known(self.intercept, "intercept"), *(b.ravel() for b in self.coefficients)])

    @property
    def errors(self) -> list[FloatArray]:
        """Standard errors in the shapes of the coefficients; NaN where they are not known."""
        n = sum(b.size for b in self.coefficients)
        variances = np.full(n, np.nan)
        if self.covariance is not None:
            variances = np.maximum(np.diag(self.covariance), 0.0)[self.n_intercepts :]
        parts = np.split(np.sqrt(variances), np.cumsum([b.size for b in self.coefficients])[:-1])
        return [part.reshape(b.shape) for part, b in zip(parts, self.coefficients, strict=bool(self.terms))]

    def columns(self, rows: FloatArray, kinds: Sequence[Kind]) -> FloatArray:
        """(n, w) the columns of all terms in rows with their past, (n, (p+1) d), of d variables of these kinds."""
        found = [np.zeros((len(rows), 0))]
        for term, b in self.parts:
            x = [rows[:, lag * len(kinds) + i] for i, lag in term.sources]
            found.append(term.columns(*x, kind=kinds[term.sources[0][0]], width=len(b)))
        return np.concatenate(found, axis=1)

    def law(self, columns: FloatArray) -> Law:
        """The distribution in each of n rows, given the columns (n, w) of its terms."""
        return self.law_at(np.asarray(columns, dtype=np.float64) @ self.slopes)

    def law_at(self, added: FloatArray) -> Law:
        """The distribution in each of n rows, given what the terms add to its predictors (n, k)."""
        intercept, dispersion = known(self.intercept, "intercept"), known(self.dispersion, "noise_variances")
        return law_of(self.kind.name, intercept, added, dispersion)


class Part(NamedTuple):
    """What a variable has beside straight effects: a term, its coefficients, and the covariance of the weight of the same
    edge and these coefficients, if it is known.
    """

    target: int
    term: Term
    coefficients: ArrayLike
    covariance: ArrayLike | None = None


def nodes_of(
    W: FloatArray,
    A: FloatArray,
    intercept: FloatArray | float | None = 0.0,
    variances: FloatArray | float | None = 1.0,
    parts: Iterable[Part] = (),
) -> tuple[Node, ...]:
    """The nodes of a network of numbers: straight effects of weights W and A, and parts beside them."""
    stack = np.concatenate([np.asarray(W, dtype=np.float64)[None], np.asarray(A, dtype=np.float64)])
    d = stack.shape[1]
    c, v = (None if x is None else np.broadcast_to(x, (d,)) for x in (intercept, variances))
    by_target: dict[int, list[Part]] = {}
    for part in parts:
        if not 0 <= part.target < d:
            raise ParameterError(f"a part has the target {part.target}, but there are {d} variables.")
        by_target.setdefault(part.target, []).append(part)
    found = []
    for j in range(d):
        mine = sorted(by_target.get(j, ()), key=lambda part: [source[::-1] for source in part.term.sources])
        sure = {part.term.edge for part in mine if part.covariance is not None}
        straight = [(int(i), int(lag)) for lag, i in np.argwhere(stack[:, :, j])]
        straight += [edge for edge in sure if edge is not None and edge not in straight]
        terms = [Term((edge,)) for edge in straight] + [part.term for part in mine]
        b = [stack[lag, i, j] for i, lag in straight] + [part.coefficients for part in mine]
        node = Node(
            CONTINUOUS,
            tuple(terms),
            tuple(b),
            None if c is None else c[j],
            None if v is None else float(v[j]),
        )
        found.append(replace(node, covariance=_covariance(node, mine, straight)) if sure else node)
    return tuple(found)


def _covariance(node: Node, parts: Sequence[Part], straight: Sequence[tuple[int, int]]) -> FloatArray:
    """The covariance of all estimates of a node: what its parts know of theirs, NaN elsewhere."""
    ends = np.cumsum([1, *(len(b) for b in node.coefficients)])
    whole = np.full((ends[-1], ends[-1]), np.nan)
    for part in parts:
        if part.covariance is not None and part.term.edge is not None:
            k = node.terms.index(part.term)
            here = np.r_[ends[straight.index(part.term.edge)], np.arange(ends[k], ends[k + 1])]
            given = np.array(part.covariance, dtype=np.float64)
            if given.shape != (len(here), len(here)) or not np.isfinite(given).all():
                raise ParameterError(
                    f"covariance of a curve must be {len(here)} x {len(here)} numbers, of the weight and the coefficients, "
                    f"got shape {given.shape}."
                )
            whole[np.ix_(here, here)] = given
    return whole


class Weights(NamedTuple):
    """The arrays of a network."""

    W: FloatArray
    A: FloatArray
    intercept: FloatArray | None
    noise_variances: FloatArray | None


def weights_of(nodes: Sequence[Node], n_lags: int) -> Weights:
    """The arrays that stand for nodes.

    A weight is the coefficient of a straight effect, or the Euclidean norm of several columns, which has no sign; that of a
    table is the slope of a straight line of the same size. The intercept of L levels is 0 here (they have L-1), and the
    variance of a variable that has no such parameter is 1.
    """
    d = len(nodes)
    stack, intercept, variances = np.zeros((n_lags + 1, d, d)), np.zeros(d), np.ones(d)
    for j, node in enumerate(nodes):
        for term, b in node.parts:
            if term.edge is not None and term.basis in ("value", "table"):
                i, lag = term.edge
                size = b[0, 0] if b.size == 1 else np.sqrt((b**2).sum())
                stack[lag, i, j] += size / (term.scales or (1.0,))[0]
        if node.n_intercepts == 1 and node.intercept is not None:
            intercept[j] = node.intercept[0]
        if node.kind.name in ("continuous", "positive") and node.dispersion is not None:
            variances[j] = node.dispersion
    unknown = any(node.intercept is None for node in nodes), any(node.dispersion is None for node in nodes)
    return Weights(
        stack[0],
        stack[1:],
        *(None if no else x for no, x in zip(unknown, (intercept, variances), strict=True)),
    )


def edges_of(nodes: Sequence[Node], n_lags: int) -> BoolArray:
    """(p+1, d, d) which variables are causes of which, [lag, from, to]."""
    found = np.zeros((n_lags + 1, len(nodes), len(nodes)), dtype=bool)
    for j, node in enumerate(nodes):
        for i, lag in node.causes:
            found[lag, i, j] = True
    return found


def check_nodes(given: Iterable[Node], n_lags: int) -> tuple[Node, ...]:
    """The nodes of a network; ParameterError if they do not belong together."""
    nodes = tuple(given)
    for j, node in enumerate(nodes):
        if not isinstance(node, Node):
            raise ParameterError(f"nodes must hold objects of feddbn.model.nodes.Node, got {node!r}.")
        for term, b in node.parts:
            for i, lag in term.sources:
                kind = nodes[i].kind if i < len(nodes) else CONTINUOUS
                why = {
                    f"but there are {len(nodes)} variables and a longest lag of {n_lags}": i >= len(nodes)
                    or lag > n_lags,
                    "which is the variable itself; it needs a lag of at least 1": lag == 0 and i == j,
                    f"a {kind.name} cause of {kind.width} columns, with {len(b)} rows of coefficients": term.is_straight
                    and len(b) != kind.width,
                    f"with a {term.basis!r} term, which is of continuous causes only": not term.is_straight
                    and kind.name != "continuous",
                }
                for text in (text for text, is_so in why.items() if is_so):
                    raise ParameterError(f"nodes[{j}] has the cause {i} at lag {lag}, {text}.")
    return nodes


# Distributions -------------------------------------------------------------------------------------------------------------
_HIGHEST = 1.0 - 2.0**-53
_LARGE = 1e7
# Above it a count is no longer an exact number.
_MOST = 1e15
_LOG_ROOT_2_PI = 0.5 * np.log(2 * np.pi)


class Law(ABC):
    """A distribution in each of n rows. Values of levels are their positions."""

    probabilities: FloatArray | None = None
    """(n, L) those of levels; None without levels."""
    is_certain = False
    """Whether there is no noise, and so no density: the value is what it is."""

    @property
    @abstractmethod
    def mean(self) -> FloatArray:
        """(n,) expected values."""

    @abstractmethod
    def from_normal(self, z: FloatArray) -> FloatArray:
        """(n,) values that standard normal numbers stand for."""

    @abstractmethod
    def to_normal(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        """(n,) what values stand for, standard normal if they are draws; those of counts and levels are partly drawn."""

    @abstractmethod
    def log_density(self, x: FloatArray) -> FloatArray:
        """(n,) log density, or log probability, of values."""


class _Normal(Law):
    def __init__(self, eta: FloatArray, dispersion: float) -> None:
        self.eta, self.sd = eta, float(np.sqrt(dispersion))
        self.is_certain = self.sd == 0

    @property
    def mean(self) -> FloatArray:
        return self.eta

    def from_normal(self, z: FloatArray) -> FloatArray:
        return self.eta + self.sd * z

    def to_normal(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray((x - self.eta) / self.sd)

    def log_density(self, x: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(-_LOG_ROOT_2_PI - np.log(self.sd) - ((x - self.eta) / self.sd) ** 2 / 2)


class _LogNormal(_Normal):
    @property
    def mean(self) -> FloatArray:
        return np.asarray(np.exp(self.eta + self.sd**2 / 2))

    def from_normal(self, z: FloatArray) -> FloatArray:
        return np.asarray(np.exp(super().from_normal(z)))

    def to_normal(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        return super().to_normal(np.log(x), rng)

    def log_density(self, x: FloatArray) -> FloatArray:
        return super().log_density(np.log(x)) - np.log(x)


class _Discrete(Law):
    """Some single values have a probability: a value stands for a number drawn evenly from its part of the quantiles."""

    @abstractmethod
    def upto(self, x: FloatArray) -> FloatArray:
        """(n,) probability of the values or less."""

    def to_normal(self, x: FloatArray, rng: np.random.Generator) -> FloatArray:
        u = self.upto(x) - rng.random(len(x)) * np.exp(self.log_density(x))
        return np.asarray(ndtri(np.clip(u, 1 - _HIGHEST, _HIGHEST)))


class _Count(_Discrete):
    """Poisson numbers, or negative binomial ones with variance ``mean + dispersion * mean^2``."""

    def __init__(self, eta: FloatArray, dispersion: float) -> None:
        self.eta, self.dispersion = eta, dispersion
        self._share: FloatArray = 1 / (1 + dispersion * np.exp(eta))

    @property
    def mean(self) -> FloatArray:
        return np.exp(self.eta)

    def from_normal(self, z: FloatArray) -> FloatArray:
        q, mean, a = np.minimum(ndtr(z), _HIGHEST), self.mean, self.dispersion
        is_far, is_large = ~(mean < _MOST), mean > _LARGE
        if is_far.any():
            return np.where(is_far, np.inf, 0.0)
        if is_large.any():
            # Gaps between large numbers hardly matter: a gamma number of this mean and variance.
            spread = 1 + a * mean
            large = np.rint(spread * gammaincinv(mean / spread, q))
            return np.where(is_large, large, _Count(np.where(is_large, 0.0, self.eta), a).from_normal(z))
        found = nbdtrik(q, 1 / a, self._share) if a else pdtrik(q, mean)
        # Without a whole number at which the distribution function is exactly q, the next one.
        up = np.ceil(np.where(np.isfinite(found), found, 0.0))
        down = np.maximum(up - 1, 0.0)
        return np.where(self.upto(down) >= q, down, np.where(self.upto(up) >= q, up, up + 1))

    def log_density(self, x: FloatArray) -> FloatArray:
        a = self.dispersion
        if not a:
            return np.asarray(x * self.eta - self.mean - gammaln(x + 1))
        some = np.maximum(x, 1.0)
        # log of Gamma(x + r) / (Gamma(r) x!), without differences of large numbers; 0 at x = 0.
        ways = np.where(x > 0, -betaln(some, 1 / a) - np.log(some), 0.0)
        return np.asarray(ways - np.log1p(a * self.mean) * (1 / a + x) + x * (self.eta + np.log(a)))

    def upto(self, x: FloatArray) -> FloatArray:
        a = self.dispersion
        return np.asarray(betainc(1 / a, x + 1, self._share) if a else pdtr(x, self.mean))


class _Levels(_Discrete):
    def __init__(self, log_probabilities: FloatArray) -> None:
        self.log_probabilities = log_probabilities
        self.probabilities: FloatArray = np.exp(log_probabilities)

    @property
    def mean(self) -> FloatArray:
        return np.asarray(self.probabilities @ np.arange(self.probabilities.shape[1]))

    def from_normal(self, z: FloatArray) -> FloatArray:
        steps = np.cumsum(self.probabilities, axis=1)[:, :-1]
        return np.asarray((ndtr(z)[:, None] > steps).sum(axis=1), dtype=np.float64)

    def log_density(self, x: FloatArray) -> FloatArray:
        return _at(self.log_probabilities, x)

    def upto(self, x: FloatArray) -> FloatArray:
        return _at(np.cumsum(self.probabilities, axis=1), x)


def _at(table: FloatArray, x: FloatArray) -> FloatArray:
    """(n,) one number of each row (n, L), at positions x."""
    return np.asarray(np.take_along_axis(table, np.asarray(x, dtype=np.intp)[:, None], axis=1)[:, 0])


def law_of(kind: str, intercept: FloatArray, added: FloatArray, dispersion: float) -> Law:
    """The law of n rows from what causes add (n, k), and the intercept of a kind."""
    if kind == "ordinal":
        return _Levels(_ordinal(intercept - added))
    eta = intercept + added
    if kind in ("binary", "categorical"):
        return _Levels(np.asarray(log_softmax(np.pad(eta, ((0, 0), (1, 0))), axis=1)))
    law = {"continuous": _Normal, "positive": _LogNormal, "count": _Count}[kind]
    return law(eta[:, 0], dispersion)


def _ordinal(thresholds: FloatArray) -> FloatArray:
    """(n, L) log probabilities from (n, L-1) log odds of "this level or lower", ascending."""
    upto, above = log_expit(thresholds), log_expit(-thresholds)
    # P(k) = F(b) - F(a) = F(b) (1 - F(a)) (1 - exp(a - b)) for logistic F.
    between = upto[:, 1:] + above[:, :-1] + np.log(-np.expm1(thresholds[:, :-1] - thresholds[:, 1:]))
    return np.concatenate([upto[:, :1], between, above[:, -1:]], axis=1)
