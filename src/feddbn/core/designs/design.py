"""The public recipe that turns a recording into columns: data, never code.

A design says which columns a row has, which of them belong to one possible edge, which are to be explained and
what is always in the model. Sites send sums of products of its columns (`gram`); order search, averaging,
resampling and noise do not care which columns these are.

    z_t = [ term 1 | term 2 | ... ],   term = [ phi(x_{t-l}) for lag l in its lags ]
    x_t = (value - origin) / scale

Within a term, lags come first, then variables, then the features of one variable at one lag. The first term is
the values themselves, so that columns 0..d-1 are the present time step: the targets.

Every column belongs to a possible edge::

    Design.linear      [ x_t | x_{t-1} ... x_{t-p} ]
    Design.curved      [ x_t ... x_{t-p} | h(x_t) ... h(x_{t-p}) | products ]

Products are those of two variables at one lag, each kept within `PRODUCT_REACH`. In `Design.coded` variables have kinds:
x_t are then the columns that stand for their values (`coded`), one or several for each variable.

Public units: a smooth function of ``(x - origin) / scale`` with a tiny scale is a step, and the sums over two steps with
one row between them show that row. So scales are powers of 2^(1/4), and origins multiples of an eighth of them: close
enough to mean and standard deviation for any curve, too coarse to aim at a row. How far both may be from a site's own
rows is checked there.

Two designs are equal if and only if their digests are.

Rules of the rows that are made from the blocks of a recording
--------------------------------------------------------------
- A row depends on its own segment up to its own time and on public numbers only.
- A stream cut into blocks gives the same rows as the whole segment: lags are carried over the cut.

`Nuisance` is what is in every model and is no edge: means, trends and cycles, common to all sites or of one recording.

Taking them off before products are summed is the same as having them in every regression (Frisch, Waugh and
Lovell): with Z the design rows of a recording and B its nuisance columns ::

    Z'Z - Z'B (B'B)^-1 B'Z

which needs the products of [Z, B] only, so no row is kept. A recording with a trend or cycle that does not know its
times is read twice: first for these, from which B is made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.features import feature_map
from feddbn.core.designs.recordings import CHUNK_ROWS, Block, stack_lags, stretches
from feddbn.core.kinds import Coding, read_coding
from feddbn.core.statistics.moments import Moments
from feddbn.errors import ParameterError
from feddbn.settings import whole, word

_MAX_DEGREE = 12
_SHORTEST_PERIOD = 2.0
# Directions in which the nuisance columns vary less than this, relative to their own scale, are no directions.
_COLLINEAR = 1e-6


@dataclass(frozen=True)
class Nuisance:
    """A description of the nuisance columns.

    Attributes
    ----------
    scope
        "all": one mean, common to all sites. "recording": every recording has its own.
    degree
        Degree of a polynomial in time, of every recording its own; 0 is the mean.
    periods
        A sine and a cosine of each period, in sampling steps, of every recording its own.
    """

    scope: str = "all"
    degree: int = 0
    periods: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        word("all", "recording").check("scope", self.scope)
        object.__setattr__(self, "degree", whole(0, _MAX_DEGREE).check("degree", self.degree))
        periods = finite_numbers(self.periods, "periods")
        if any(period < _SHORTEST_PERIOD for period in periods):
            raise ParameterError(
                f"periods={periods} must be at least {_SHORTEST_PERIOD:g} sampling steps each;"
                " shorter cycles cannot be seen."
            )
        if len(set(periods)) < len(periods):
            raise ParameterError(f"periods={periods} names a period twice; name each once.")
        object.__setattr__(self, "periods", periods)
        if self.scope != "recording" and self.has_time:
            raise ParameterError(
                f"scope={self.scope!r} has one mean only, but degree={self.degree} and periods={periods}"
                " ask for more; trends and cycles need scope='recording'."
            )

    @property
    def has_time(self) -> bool:
        """Whether it depends on time: more than a mean."""
        return self.degree > 0 or bool(self.periods)

    @property
    def n_columns(self) -> int:
        """How many columns there are, the constant among them."""
        return 1 + self.degree + 2 * len(self.periods)

    def columns(self, times: FloatArray, span: tuple[float, float]) -> FloatArray:
        """(n, k) nuisance columns but for the constant, at these times; the recording lasts over `span`."""
        found: list[FloatArray] = [np.empty((len(times), 0))]
        if self.degree:
            first, last = span
            # Legendre polynomials over the recording are nearly orthogonal; powers of t are nearly collinear.
            place = 2.0 * (times - first) / max(last - first, 1.0) - 1.0
            found.append(
                np.asarray(np.polynomial.legendre.legvander(place, self.degree)[:, 1:], dtype=np.float64)
            )
        for period in self.periods:
            # The whole turns are dropped first: a sine of a large angle has lost its digits.
            angle = 2.0 * np.pi * ((times / period) % 1.0)
            found.append(np.column_stack([np.sin(angle), np.cos(angle)]))
        return np.concatenate(found, axis=1)


def finite_numbers(values: Sequence[float], what: str) -> tuple[float, ...]:
    """Return the values as finite floats, with one zero instead of two, or refuse them by name."""
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(listed, (list, tuple)) or any(isinstance(x, (bool, str)) for x in listed):
        raise ParameterError(f"{what}={values!r} must be a list of numbers.")
    try:
        found = tuple(float(value) + 0.0 for value in listed)
    except (TypeError, ValueError):
        raise ParameterError(f"{what}={values!r} must be a list of numbers.") from None
    if not np.all(np.isfinite(found)):
        raise ParameterError(f"{what}={found} must be finite numbers.")
    return found


ONE_MEAN = Nuisance()
"""What every design has at least."""
RECORDING_MEANS = Nuisance("recording")


@dataclass(frozen=True)
class TimeBasis:
    """Orthonormal nuisance columns of one recording, but for the constant: ``(columns - mean) mix``.

    Cycles longer than a recording and polynomials are nearly the same columns; their products would lose twice
    as many digits as the columns themselves, so they are made orthogonal before anything is multiplied.
    """

    nuisance: Nuisance
    span: tuple[float, float]
    mean: FloatArray
    mix: FloatArray

    @staticmethod
    @lru_cache(maxsize=8)
    def over(nuisance: Nuisance, runs: tuple[tuple[int, int], ...]) -> TimeBasis:
        """The basis over rows at these times: (first, number) of consecutive ones. Recordings are often as long as others."""
        span = (float(runs[0][0]), float(runs[-1][0] + runs[-1][1] - 1))
        R: FloatArray | None = None
        for first, m in runs:
            columns = nuisance.columns(first + np.arange(m, dtype=np.float64), span)
            rows = np.column_stack([np.ones(m), columns])
            R = np.asarray(np.linalg.qr(rows if R is None else np.concatenate([R, rows]), mode="r"))
        assert R is not None
        mean, centred = R[0, 1:] / R[0, 0], R[1:, 1:]
        size = np.sqrt((centred**2).sum(axis=0))
        # Nuisance columns are of size one: what varies less than this is constant but for rounding.
        varying = np.flatnonzero(size > 1e-10 * abs(R[0, 0]))
        _, s, Vt = np.linalg.svd(centred[:, varying] / size[varying], full_matrices=False)
        real = s > _COLLINEAR
        mix = np.zeros((len(mean), int(real.sum())))
        mix[varying] = (Vt[real] / s[real, None]).T / size[varying, None]
        return TimeBasis(nuisance, span, mean, mix)

    def at(self, times: FloatArray) -> FloatArray:
        """(n, rank) columns at these times."""
        return (self.nuisance.columns(times, self.span) - self.mean) @ self.mix


def project_off(joint: Moments, q: int) -> tuple[FloatArray, int]:
    """(q, q) products of the first q columns after their mean and the other, orthonormal columns are taken off,
    and how many parameters that took.
    """
    rank = 1 + joint.q - q
    if joint.n <= rank:
        # Nothing is left of rows that the nuisances explain completely; what is computed is rounding.
        return np.zeros((q, q)), int(joint.n)
    cross = joint.scatter[q:, :q]
    known = np.linalg.solve(joint.scatter[q:, q:], cross)
    rest = joint.scatter[:q, :q] - cross.T @ known
    return (rest + rest.T) / 2, rank


_STEPS_AN_OCTAVE = 4
_STEPS_A_SCALE = 8
_ROUNDING = 1e-9


def public_units(mean: FloatArray, sd: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(d,) origin and (d,) scale on the grid, nearest to mean and standard deviation."""
    scale = np.exp2(np.round(_STEPS_AN_OCTAVE * np.log2(sd)) / _STEPS_AN_OCTAVE)
    return np.round(mean / scale * _STEPS_A_SCALE) * scale / _STEPS_A_SCALE, scale


def are_public_units(origin: FloatArray, scale: FloatArray) -> bool:
    """Whether both are on the grid, up to rounding."""
    if not (scale > 0).all():
        return False
    steps, places = _STEPS_AN_OCTAVE * np.log2(scale), origin / scale * _STEPS_A_SCALE
    near = np.abs(steps - np.round(steps)) <= _ROUNDING * np.maximum(1.0, np.abs(steps))
    on = np.abs(places - np.round(places)) <= _ROUNDING * np.maximum(1.0, np.abs(places))
    return bool((near & on).all())


DESIGN_VERSION = 1
PRODUCT_REACH = 4.0
"""Values are kept within this many public standard deviations before they are multiplied."""


@dataclass(frozen=True)
class Basis:
    """A feature map by its name: "linear" leaves values as they are; others are registered at every site."""

    name: str = "linear"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ParameterError(f"name={self.name!r} must be the name of a feature map.")
        # Refuses what is not known.
        feature_map(self.name)

    @property
    def width(self) -> int:
        """Number of features of one variable."""
        return feature_map(self.name).width

    @property
    def is_identity(self) -> bool:
        """Whether it leaves values as they are."""
        return self.name == "linear"

    def features(self, values: FloatArray) -> FloatArray:
        """(n, d m) features of values (n, d)."""
        return values if self.is_identity else feature_map(self.name)(values).reshape(len(values), -1)


@dataclass(frozen=True)
class Term:
    """Columns ``phi(x_{t-l})`` of every variable for some lags, ascending."""

    basis: Basis
    lags: tuple[int, ...]

    def __post_init__(self) -> None:
        lags = tuple(whole(0).check("lags", lag) for lag in self.lags)
        if not lags or list(lags) != sorted(set(lags)):
            raise ParameterError(f"lags={lags} must be at least one, ascending, each named once.")
        object.__setattr__(self, "lags", lags)


@dataclass(frozen=True)
class Group:
    """All that belongs to one possible edge: the columns of a variable (its position) at a lag."""

    variable: int
    lag: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Design:
    """Columns, groups, nuisances and targets; see the head of this file.

    Attributes
    ----------
    variables
        Names of the d columns of a recording, in their order.
    terms
        The columns of a row; the first term is the values themselves, from lag 0 on.
    nuisance
        What is in every model and is no edge.
    origin, scale
        Public numbers, d each, by which values are shifted and divided first; empty for none.
    products
        (first variable, second variable, lag) of each product, after all terms.
    kinds
        How each variable's values become columns (`Coding.text`); empty: as they are.
    """

    variables: tuple[str, ...]
    terms: tuple[Term, ...]
    nuisance: Nuisance = ONE_MEAN
    origin: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    products: tuple[tuple[int, int, int], ...] = ()
    kinds: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = tuple(self.variables)
        if not names or any(not isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise ParameterError(f"variables={names} must be different names, at least one.")
        object.__setattr__(self, "variables", names)
        object.__setattr__(self, "terms", tuple(self.terms))
        if not self.terms or not self.terms[0].basis.is_identity or self.terms[0].lags[0] != 0:
            raise ParameterError(
                "the first term of a design must be the values themselves from lag 0 on:"
                " they are what is to be explained."
            )
        for what in ("origin", "scale"):
            values = finite_numbers(getattr(self, what), what)
            if len(values) not in (0, len(names)):
                raise ParameterError(
                    f"{what} has {len(values)} numbers for {len(names)} variables; give one each."
                )
            object.__setattr__(self, what, values)
        products = tuple(tuple(product) for product in self.products)
        object.__setattr__(self, "products", products)
        if any(
            len(one) != 3
            or not all(isinstance(k, int) and not isinstance(k, bool) for k in one)
            or not 0 <= one[0] <= one[1] < len(names)
            or one[2] < 0
            for one in products
        ) or len(set(products)) < len(products):
            raise ParameterError(
                f"products={products} must be different (first, second, lag): positions of two variables, ascending, and"
                " a lag of at least 0."
            )
        if any(value <= 0 for value in self.scale):
            raise ParameterError(
                f"scale={self.scale} must be positive; give 1 for a variable without a scale."
            )
        self._check_kinds()

    def _check_kinds(self) -> None:
        kinds = tuple(self.kinds)
        object.__setattr__(self, "kinds", kinds)
        if not kinds:
            return
        if len(kinds) != len(self.variables):
            raise ParameterError(
                f"kinds has {len(kinds)} entries for {len(self.variables)} variables; give one each."
            )
        if len(self.terms) > 1 or self.products or self.origin or self.scale:
            raise ParameterError(
                "a design with kinds has their columns only: no functions, products or units."
            )
        # Refuses what is no kind.
        _ = self.codings

    @classmethod
    def linear(
        cls,
        variables: Sequence[str],
        n_lags: int,
        nuisance: Nuisance = ONE_MEAN,
    ) -> Self:
        """Lagged rows ``[x_t, x_{t-1}, ..., x_{t-p}]``; every column is a possible cause."""
        return cls(tuple(variables), (Term(Basis(), _up_to(n_lags)),), nuisance)

    @classmethod
    def curved(
        cls,
        variables: Sequence[str],
        n_lags: int,
        basis: Basis,
        nuisance: Nuisance = ONE_MEAN,
        origin: Sequence[float] = (),
        scale: Sequence[float] = (),
        products: Sequence[tuple[int, int, int]] = (),
    ) -> Self:
        """Values and functions of them at lags 0..p, then products: every column belongs to an edge."""
        lags = _up_to(n_lags)
        terms = (Term(Basis(), lags), Term(basis, lags))
        return cls(tuple(variables), terms, nuisance, tuple(origin), tuple(scale), tuple(products))

    @classmethod
    def coded(cls, variables: Sequence[str], n_lags: int, kinds: Sequence[str]) -> Self:
        """Lagged rows of the columns that stand for values of these kinds; those of a variable at a lag are one edge."""
        return cls(tuple(variables), (Term(Basis(), _up_to(n_lags)),), kinds=tuple(kinds))

    @cached_property
    def codings(self) -> tuple[Coding, ...]:
        """How each variable's values become columns; none where they stay as they are."""
        return tuple(read_coding(kind) for kind in self.kinds)

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """How many columns each variable has before functions of them are formed."""
        return tuple(coding.width for coding in self.codings) or (1,) * self.d

    @property
    def d(self) -> int:
        """Number of variables; columns 0..d-1 are the targets, unless variables have kinds."""
        return len(self.variables)

    @cached_property
    def n_lags(self) -> int:
        """Largest lag: how many rows before a row it needs."""
        return max(*(term.lags[-1] for term in self.terms), *(lag for _, _, lag in self.products), 0)

    @cached_property
    def q(self) -> int:
        """Number of columns."""
        n_values = sum(self.widths)
        return sum(len(term.lags) * n_values * term.basis.width for term in self.terms) + len(self.products)

    @cached_property
    def is_linear(self) -> bool:
        """Whether its rows are lagged rows, whose products need no rows to be formed."""
        return len(self.terms) == 1 and not self.products and self.terms[0].lags == _up_to(self.n_lags)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Possible edges: the lowest lag first, within a lag in the order of the variables."""
        found: dict[tuple[int, int], list[int]] = {}
        start = 0
        for term in self.terms:
            for lag in term.lags:
                for variable in range(self.d):
                    width = term.basis.width * self.widths[variable]
                    found.setdefault((lag, variable), []).extend(range(start, start + width))
                    start += width
        return tuple(Group(variable, lag, tuple(found[lag, variable])) for lag, variable in sorted(found))

    def to_dict(self) -> dict[str, Any]:
        """Plain values that say all of it, to be sent, stored and read by people."""
        plain = {"version": DESIGN_VERSION, **asdict(self), "n_columns": self.q}
        for newer in ("products", "kinds"):
            if not plain[newer]:
                # Designs of before have no such entry, and their digests stay what they are.
                del plain[newer]
        return plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`, also after JSON; anything unknown, missing or impossible is refused."""
        if not isinstance(data, Mapping) or data.get("version") != DESIGN_VERSION:
            version = data.get("version") if isinstance(data, Mapping) else data
            raise ParameterError(
                f"this design has version {version!r}, but this package reads version {DESIGN_VERSION};"
                " use the same release of feddbn everywhere."
            )
        plain = {key: value for key, value in data.items() if key not in ("version", "n_columns")}
        values = _fields_of(cls, {"products": (), "kinds": (), **plain})
        nuisance = Nuisance(**_fields_of(Nuisance, values.pop("nuisance")))
        terms = []
        for item in _listed(values.pop("terms"), "terms"):
            term = _fields_of(Term, item)
            basis = Basis(**_fields_of(Basis, term["basis"]))
            terms.append(Term(basis, tuple(_listed(term["lags"], "lags"))))
        for key in values:
            values[key] = tuple(_listed(values[key], key))
        values["products"] = tuple(tuple(_listed(one, "products")) for one in values["products"])
        design = cls(terms=tuple(terms), nuisance=nuisance, **values)
        if data.get("n_columns") != design.q:
            raise ParameterError(
                f"this design has {data.get('n_columns')!r} columns where it was made and {design.q} here;"
                " a feature map of the same name differs."
            )
        return design

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the description: what owners approve and sites compare."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


def _up_to(n_lags: int) -> tuple[int, ...]:
    return tuple(range(whole(0).check("n_lags", n_lags) + 1))


def _fields_of(cls: type, data: object) -> dict[str, Any]:
    """The values of `data` if its keys are the names of the class's fields."""
    names = {field.name for field in fields(cls)}
    if not isinstance(data, Mapping) or set(data) != names:
        found = sorted(map(str, data)) if isinstance(data, Mapping) else repr(data)
        raise ParameterError(f"a {cls.__name__} is described by {', '.join(sorted(names))}; got {found}.")
    return dict(data)


def _listed(data: object, what: str) -> Sequence[Any]:
    if not isinstance(data, (list, tuple)):
        raise ParameterError(f"{what}={data!r} must be a list.")
    return data


_CHUNK_VALUES = 1 << 22


@dataclass(frozen=True)
class Rows:
    """Consecutive design rows (..., m, q), the label of each row's own time or None, and the first row's time.

    The time counts sampling steps from the recording's first row. Weights say how much each row counts; None: 1.
    """

    values: FloatArray
    labels: NDArray[np.generic] | None
    time: int
    weights: FloatArray | None = None


def public_blocks(design: Design, blocks: Iterable[Block]) -> Iterable[Block]:
    """Return the blocks in the design's public origin and scale, or as the columns of its kinds."""
    if design.kinds:
        return (replace(block, values=_coded(design, block.values)) for block in blocks)
    if not (design.origin or design.scale):
        return blocks
    origin, scale = np.array(design.origin or 0.0), np.array(design.scale or 1.0)
    return (replace(block, values=(block.values - origin) / scale) for block in blocks)


def _coded(design: Design, values: FloatArray) -> FloatArray:
    columns = [coding.encode(values[:, j], design.variables[j]) for j, coding in enumerate(design.codings)]
    return np.concatenate(columns, axis=1)


def design_rows(design: Design, blocks: Iterable[Block], chunk_rows: int | None = None) -> Iterator[Rows]:
    """Yield the rows of one recording whose lags lie in the same segment, in pieces of bounded size."""
    p, q = design.n_lags, design.q
    # Wide rows come in shorter pieces, so that memory does not grow with the number of columns.
    size = chunk_rows or min(CHUNK_ROWS, max(1, _CHUNK_VALUES // q))
    for stretch in stretches(public_blocks(design, blocks), p, size):
        m = stretch.values.shape[-2] - p
        rows = np.empty((*stretch.values.shape[:-2], m, q))
        start = 0
        for term in design.terms:
            features = term.basis.features(stretch.values)
            stop = start + len(term.lags) * features.shape[-1]
            stack_lags(features, term.lags, rows[..., start:stop])
            start = stop
        for product in design.products:
            rows[:, start] = _product(stretch.values, product, m)
            start += 1
        yield Rows(rows, stretch.labels, stretch.time, stretch.weights)


def _product(values: FloatArray, product: tuple[int, int, int], m: int) -> FloatArray:
    first, second, lag = product
    at = values[len(values) - m - lag : len(values) - lag]
    a, b = (np.clip(at[:, k], -PRODUCT_REACH, PRODUCT_REACH) for k in (first, second))
    return np.asarray(a * b)
