"""The numbers of a network, what every other module of this package computes from, and what a caller may hand to it.

`feddbn.model.dbn.DBN` adds what people ask of a network. It imports those modules, and they import this one.

Handed in are rows as arrays or frames, variables by name or position, and seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Self, TypeVar

import numpy as np
import pandas as pd

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.kinds import CONTINUOUS, Kind
from feddbn.core.statistics.moments import Moments
from feddbn.data.tables import plain_frame
from feddbn.errors import DataError, ParameterError
from feddbn.model.conditionals import Conditional, Weights, check_agreement, checked_conditionals, weights_of
from feddbn.model.curves import Curve, Product
from feddbn.model.definitions import without_defined
from feddbn.model.mechanisms import Additive, Generalised, Linear, Mechanisms, causes_first, known
from feddbn.settings import whole
from feddbn.words import counted

__all__ = [
    "Network",
    "RandomState",
    "Rows",
    "check_network",
    "edge_at",
    "level_position",
    "random_generator",
    "rows_of",
    "segments_of",
    "variable_index",
]


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """The numbers of a dynamic Bayesian network, checked and read-only.

    Attributes
    ----------
    W
        (d, d); ``W[i, j]`` is the effect i -> j within a time step.
    A
        (p, d, d); ``A[l-1][i, j]`` is the effect of i at t-l on j at t.
    variables
        d names.
    intercept
        (d,) constant of each equation, 0 unless given; None: not known, and refused where it is needed.
    noise_variances
        (d,) variances of u_t, 1 unless given; None: not known.
    open_edges
        (from, to) by name: edges of W that are there, but whose direction the data do not tell; empty if none is known.
    curves
        The curved parts of edges, by lag, source and target; empty for a linear network.
    products
        What pairs of variables do together; empty for a linear network.
    conditionals
        The distribution of every variable given its causes, for variables of any kind; empty if all is linear or curved.
        W and A then hold a weight for every effect (`feddbn.model.conditionals`), and nothing is computed from them.
    definitions
        Name -> formula of variables that forecasts show beside those of the network (`feddbn.model.definitions`).
    """

    W: FloatArray
    A: FloatArray
    variables: tuple[str, ...]
    intercept: FloatArray | None
    noise_variances: FloatArray | None
    open_edges: tuple[tuple[str, str], ...]
    curves: tuple[Curve, ...]
    products: tuple[Product, ...]
    conditionals: tuple[Conditional, ...]
    definitions: Mapping[str, str]

    def __init__(
        self,
        W: FloatArray,
        A: FloatArray,
        variables: Sequence[str] | None = None,
        intercept: FloatArray | float | None = 0.0,
        noise_variances: FloatArray | float | None = 1.0,
        open_edges: Iterable[tuple[str, str]] = (),
        *,
        curves: Iterable[Curve] = (),
        products: Iterable[Product] = (),
        conditionals: Iterable[Conditional] = (),
        definitions: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        W, A = _numbers(W, "W"), _numbers(A, "A")
        if W.ndim != 2 or W.shape[0] != W.shape[1]:
            raise ParameterError(f"W must be square, got shape {W.shape}.")
        d = len(W)
        if A.ndim != 3 or A.shape[1:] != (d, d):
            raise ParameterError(f"A must have shape (n_lags, {d}, {d}), got {A.shape}.")
        names = tuple(f"x{i}" for i in range(d)) if variables is None else tuple(str(v) for v in variables)
        if len(names) != d or len(set(names)) != d:
            raise ParameterError(
                f"variables must be {d} different names, got {len(names)} ({len(set(names))} different)."
            )
        nodes = checked_conditionals(conditionals, d, len(A)) if conditionals else ()
        usual = weights_of(nodes, len(A)) if nodes else None
        c = _each(intercept, "intercept", 0.0, d, usual and usual.intercept)
        v = _each(noise_variances, "noise_variances", 1.0, d, usual and usual.noise_variances)
        for array in (W, A, c, v):
            if array is None:
                continue
            if not np.all(np.isfinite(array)):
                raise ParameterError(
                    "a DBN needs finite weights, intercepts and variances; NaN or infinity was given."
                )
            array.setflags(write=False)
        if v is not None and np.any(v < 0):
            raise ParameterError(f"noise_variances must not be negative, got {v.min():g}.")
        for field_name, value in (
            ("W", W),
            ("A", A),
            ("variables", names),
            ("intercept", c),
            ("noise_variances", v),
            ("curves", _placed(curves, Curve, "curves", d, len(A))),
            ("products", _placed(products, Product, "products", d, len(A))),
            ("conditionals", nodes),
            ("definitions", _definitions(definitions, names)),
        ):
            object.__setattr__(self, field_name, value)
        if self.definitions and any(node.kind.name != "continuous" for node in nodes):
            raise ParameterError("definitions are of numbers; this network has variables of other kinds.")
        if usual is not None:
            check_agreement(usual, Weights(W, A, known(c, "intercept"), known(v, "noise_variances")))
            if self.curves or self.products:
                raise ParameterError("a network has curves and products, or conditionals, not both.")
        within = self.is_edge[0]
        if (self.parts or nodes) and len(causes_first(within)) < d:
            raise ParameterError(
                "curves, products and conditionals need contemporaneous effects without a cycle; W has one."
            )
        object.__setattr__(self, "open_edges", _open_edges(open_edges, within, names))

    @classmethod
    def from_moments(
        cls, W: FloatArray, A: FloatArray, moments: Moments, variables: Sequence[str] | None = None
    ) -> Self:
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

    def __repr__(self) -> str:
        is_edge = self.is_edge
        n_within, n_lagged = np.count_nonzero(is_edge[0]), np.count_nonzero(is_edge[1:])
        size = f"{counted(self.d, 'variable')}, {counted(self.n_lags, 'lag')}"
        return f"<{type(self).__name__}: {size}, {n_within} contemporaneous and {n_lagged} lagged edges>"

    @property
    def d(self) -> int:
        """Number of variables."""
        return len(self.W)

    @property
    def n_lags(self) -> int:
        """Number of lags p."""
        return len(self.A)

    @property
    def adjacency_matrices(self) -> FloatArray:
        """(p+1, d, d): W first, then A_1, ..., A_p, all ``[from, to]``."""
        return np.concatenate([self.W[None], self.A])

    @property
    def parts(self) -> tuple[Curve | Product, ...]:
        """Curves, then products."""
        return *self.curves, *self.products

    @property
    def units(self) -> dict[int, tuple[float, float]]:
        """Variable -> origin and scale of its functions; only those that have some."""
        return {k: units for part in reversed(self.parts) for k, units in part.units.items()}

    @property
    def bends(self) -> bool:
        """Whether some effect is no straight line: it has curves, products or distributions of other kinds.

        What is computed from the numbers depends on that.
        """
        return bool(self.mechanisms.bends)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What the values of each variable are; all continuous without `conditionals`."""
        return tuple(node.kind for node in self.conditionals) or (CONTINUOUS,) * self.d

    @cached_property
    def mechanisms(self) -> Mechanisms:
        """What its variables do given their causes; all that is computed from the network by paths or rows reads this."""
        if self.conditionals:
            return Generalised(self.conditionals, self.adjacency_matrices, causes_first(self.is_edge[0]))
        numbers = (self.W, self.A, self.intercept, self.noise_variances)
        if self.parts:
            return Additive.of(*numbers, self.is_edge[0], self.parts)
        return Linear(*numbers)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "mechanisms"}

    @property
    def is_linear(self) -> bool:
        """Whether every effect is a straight line."""
        return not self.bends

    @property
    def is_edge(self) -> BoolArray:
        """(p+1, d, d) where there is an effect: a weight that is not 0, a curve, a part in a product, a cause."""
        found: BoolArray = np.asarray(self.adjacency_matrices != 0)
        for part in self.parts:
            found[part.lag, list(part.sources), part.target] = True
        for target, node in enumerate(self.conditionals):
            for source, lag in node.parents:
                found[lag, source, target] = True
        return found

    @property
    def is_oriented(self) -> BoolArray:
        """(p+1, d, d) which edges have a known direction: all across time steps, and within one those not in `open_edges`."""
        known = self.is_edge
        place = {name: k for k, name in enumerate(self.variables)}
        for source, target in self.open_edges:
            known[0, place[source], place[target]] = False
        return known


def _each(
    value: FloatArray | float | None, name: str, default: float, d: int, usual: FloatArray | None
) -> FloatArray | None:
    """One number for each variable; those of conditionals (`usual`) where nothing else is said. None: not known."""
    if value is None:
        return usual
    found = np.array(value, dtype=np.float64)
    if not found.ndim:
        found = np.full(d, found) if usual is None or found != default else usual
    if found.shape != (d,):
        raise ParameterError(f"{name} must have shape ({d},), got {found.shape}.")
    return found


def _definitions(given: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """The definitions, of names that are no variables yet."""
    if given and len(without_defined(given, (*names, *given))) < len(names):
        raise ParameterError("definitions names a variable of the network; a variable is learned or defined.")
    return dict(given)


Part = TypeVar("Part", Curve, Product)


def _placed(given: Iterable[Part], kind: type[Part], what: str, d: int, n_lags: int) -> tuple[Part, ...]:
    """Curves or products by lag, sources and target; ParameterError if one is none or is given twice."""
    parts = list(given)
    for part in parts:
        if not isinstance(part, kind):
            raise ParameterError(
                f"{what} must hold objects of feddbn.model.curves.{kind.__name__}, got {part!r}."
            )
        furthest = max(*part.sources, part.target)
        if furthest >= d:
            raise ParameterError(f"{what} has one with position {furthest}, but there are {d} variables.")
        if part.lag > n_lags:
            raise ParameterError(
                f"{what} has one at lag {part.lag}, but the network has {counted(n_lags, 'lag')}."
            )
        if part.lag == 0 and part.target in part.sources:
            raise ParameterError(
                f"{what} has one of {part.target} on itself within a time step; it needs a lag of at least 1."
            )
    parts.sort(key=_place)
    for one, other in pairwise(parts):
        if _place(one) == _place(other):
            raise ParameterError(
                f"{what} has two from {' and '.join(map(str, one.sources))} to {one.target} at lag {one.lag}; add them up."
            )
    return tuple(parts)


def _place(part: Curve | Product) -> tuple[int, ...]:
    return part.lag, *part.sources, part.target


def _open_edges(
    given: Iterable[tuple[str, str]], is_edge: BoolArray, names: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """The pairs in the order of the variables, each once; ParameterError if one is no contemporaneous edge."""
    place = {name: k for k, name in enumerate(names)}
    pairs = {(str(source), str(target)) for source, target in given}
    for source, target in sorted(pairs):
        if source not in place or target not in place or not is_edge[place[source], place[target]]:
            raise ParameterError(
                f"open_edges names {source} -> {target}, which is no contemporaneous edge of this network; leave it out."
            )
    return tuple(sorted(pairs, key=lambda pair: (place[pair[0]], place[pair[1]])))


def edge_at(dbn: Network, source: str | int, target: str | int, lag: int) -> tuple[int, int, int]:
    """Positions of source and target of an edge, and its lag; ParameterError if there is none."""
    i = variable_index(source, dbn.variables, "source")
    j = variable_index(target, dbn.variables, "target")
    lag = whole(0).check("lag", lag)
    if lag > dbn.n_lags or not dbn.is_edge[lag, i, j]:
        ends = f"{dbn.variables[i]} -> {dbn.variables[j]}"
        raise ParameterError(
            f"there is no edge {ends} at lag={lag} in this network; dbn.edges() lists those there are."
        )
    return i, j, lag


def check_network(value: object, name: str) -> None:
    """Refuse what is no network, with a sentence that says where one is."""
    if isinstance(value, Network):
        return
    cure = f"; fit it, and give {name}.dbn_" if hasattr(value, "fit") else ""
    raise ParameterError(f"{name} must be a DBN, got {type(value).__name__}{cure}.")


def _numbers(value: object, name: str) -> FloatArray:
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must be an array of numbers, got {type(value).__name__}.") from None


Rows = pd.DataFrame | FloatArray
RandomState = int | np.random.Generator | None


def rows_of(data: Rows, variables: tuple[str, ...], argument: str, kinds: Sequence[Kind] = ()) -> FloatArray:
    """(n, d) rows with the columns in the order of `variables`; a frame is matched by name, an array by
    position.

    With `kinds`, names of levels in a frame become positions, values that a variable cannot have are refused, and levels
    that were put together become one.
    """
    data = plain_frame(data)
    if isinstance(data, pd.DataFrame):
        columns = [str(c) for c in data.columns]
        missing = [v for v in variables if v not in columns]
        if missing:
            raise DataError(
                f"{argument} lacks the column {missing[0]!r}; the network's variables are {_some(variables)}."
            )
        if len(set(columns)) != len(columns):
            raise DataError(f"{argument} has two columns of the same name; give every column its own name.")
        chosen = data.iloc[:, [columns.index(v) for v in variables]]
        if any(kind.levels for kind in kinds):
            chosen = _with_positions(chosen, variables, argument, kinds)
        try:
            values = chosen.to_numpy(dtype=np.float64, na_value=np.nan)
        except (TypeError, ValueError):
            raise DataError(f"{argument} has a column that is not numeric; convert it to numbers.") from None
    else:
        try:
            values = np.asarray(data, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"{argument} is not numeric; give a DataFrame or an array of numbers.") from None
        if values.ndim != 2 or values.shape[1] != len(variables):
            raise DataError(f"{argument} must have shape (n, {len(variables)}), got {values.shape}.")
    for name, kind, column in zip(variables, kinds, values.T, strict=bool(kinds)):
        seen = kind.as_recorded
        misfits = seen.misfits(column) if seen.name != "continuous" else column[:0]
        if len(misfits):
            raise DataError(
                f"{argument} has {misfits[0]:g} in {name!r}, which no {seen.name} variable {_of_levels(seen)}can have."
            )
    if any(kind.recorded for kind in kinds):
        return np.stack([kind.counted(column) for kind, column in zip(kinds, values.T, strict=True)], axis=1)
    return values


def _of_levels(kind: Kind) -> str:
    return f"with {kind.n_levels} levels " if kind.levels else ""


def _with_positions(
    frame: pd.DataFrame, variables: tuple[str, ...], argument: str, kinds: Sequence[Kind]
) -> pd.DataFrame:
    """The frame with positions in place of names of levels, in columns that hold text."""
    columns = {}
    for k, (name, kind) in enumerate(zip(variables, kinds, strict=True)):
        column, levels = frame.iloc[:, k], kind.as_recorded.levels
        if levels and not pd.api.types.is_numeric_dtype(column.dtype):
            place = {level: float(position) for position, level in enumerate(levels)}
            known = column.isna() | column.astype(str).isin(levels)
            if not known.all():
                raise DataError(
                    f"{argument} has {column[~known].iloc[0]!r} in {name!r}, whose levels are {_some(levels)}."
                )
            column = column.astype(str).map(place)
        columns[name] = column
    return pd.DataFrame(columns)


def level_position(value: object, kind: Kind) -> float | None:
    """Position of a level given by its name; None if it is not the name of one."""
    position = kind.position(value)
    return None if position is None else float(position)


def segments_of(
    data: Rows | Sequence[Rows], variables: tuple[str, ...], n_lags: int, kinds: Sequence[Kind] = ()
) -> list[FloatArray]:
    """Uninterrupted stretches of rows longer than `n_lags`; a list is one stretch an item, a lag never
    crosses them.
    """
    data = plain_frame(data)
    items: list[Rows] = [data] if isinstance(data, (pd.DataFrame, np.ndarray)) else list(data)
    segments = [rows_of(item, variables, "data", kinds) for item in items]
    for segment in segments:
        if not np.all(np.isfinite(segment)):
            raise DataError(
                "data contains NaN or infinity; drop or split at missing rows and pass a list of stretches."
            )
    usable = [segment for segment in segments if len(segment) > n_lags]
    if not usable:
        longest = max((len(s) for s in segments), default=0)
        raise DataError(f"data has no stretch longer than n_lags={n_lags} rows (the longest has {longest}).")
    return usable


def variable_index(value: str | int, variables: tuple[str, ...], argument: str) -> int:
    """Position of a variable given by name or position."""
    if isinstance(value, str) and value in variables:
        return variables.index(value)
    if whole(0, len(variables) - 1).holds(value):
        return int(value)
    raise ParameterError(
        f"{argument} names {value!r}, which is not a variable; the variables are {_some(variables)}."
    )


def random_generator(random_state: RandomState) -> np.random.Generator:
    """A generator from a seed, a generator (used as it is) or None (fresh entropy)."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None or whole(0).holds(random_state):
        return np.random.default_rng(random_state)
    raise ParameterError(
        f"random_state must be None, a non-negative integer or a Generator, got {random_state!r}."
    )


def _some(variables: tuple[str, ...]) -> str:
    return ", ".join(variables[:10]) + (", ..." if len(variables) > 10 else "")
