"""The numbers of a network, what every other module of this package computes from, and what a caller may hand to it.

`feddbn.model.dbn.DBN` adds what people ask of a network. It imports those modules, and they import this one.

Handed in are rows as arrays or frames, variables by name or position, and seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import pandas as pd

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.kinds import CONTINUOUS, Kind
from feddbn.core.statistics.moments import Moments
from feddbn.data.tables import plain_frame
from feddbn.errors import DataError, ParameterError
from feddbn.model.definitions import without_defined
from feddbn.model.nodes import Node, Part, check_nodes, edges_of, nodes_of, weights_of
from feddbn.model.step import LinearSteps, Steps, causes_first
from feddbn.settings import whole
from feddbn.words import counted


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
    nodes
        What every variable does given its causes (`feddbn.model.nodes.Node`); empty where the numbers above say all. The
        numbers are views of them (`weights_of`).
    definitions
        Name -> formula of variables that forecasts show beside those of the network (`feddbn.model.definitions`).
    """

    W: FloatArray
    A: FloatArray
    variables: tuple[str, ...]
    intercept: FloatArray | None
    noise_variances: FloatArray | None
    open_edges: tuple[tuple[str, str], ...]
    nodes: tuple[Node, ...]
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
        nodes: Iterable[Node] = (),
        definitions: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        W, A = _numbers(W, "W", 2), _numbers(A, "A", 3)
        d = len(W)
        if W.shape != (d, d) or A.shape[1:] != (d, d):
            raise ParameterError(
                f"W must be square, got shape {W.shape}, and A of shape (n_lags, {d}, {d}), got {A.shape}."
            )
        names = tuple(f"x{i}" for i in range(d)) if variables is None else tuple(str(v) for v in variables)
        if len(names) != d or len(set(names)) != d:
            raise ParameterError(
                f"variables must be {d} different names, got {len(names)} ({len(set(names))} different)."
            )
        nodes = check_nodes(nodes, len(A))
        if nodes:
            stands = weights_of(nodes, len(A))
            told: list[tuple[Any, Any]] = [(W, stands.W), (A, stands.A)] if len(nodes) == d else [(0, 1)]
            for given, own in zip((intercept, noise_variances), stands[2:], strict=True):
                told += [(given, own)] if own is not None and given is not None and np.ndim(given) else []
            if not all(np.allclose(given, own) for given, own in told):
                raise ParameterError(
                    "the numbers are not what nodes say; make the network by DBN.from_nodes(nodes, variables)."
                )
            W, A, intercept, noise_variances = stands
        c, v = _each(intercept, "intercept", d), _each(noise_variances, "noise_variances", d)
        if v is not None and np.any(v < 0):
            raise ParameterError(f"noise_variances must not be negative, got {v.min():g}.")
        arrays = {"W": W, "A": A, "intercept": c, "noise_variances": v}
        for array in arrays.values():
            if array is not None:
                array.setflags(write=False)
        if definitions and len(without_defined(definitions, (*names, *definitions))) < d:
            raise ParameterError(
                "definitions names a variable of the network; a variable is learned or defined."
            )
        rest = {"variables": names, "nodes": nodes, "definitions": dict(definitions)}
        for field_name, value in {**arrays, **rest}.items():
            object.__setattr__(self, field_name, value)
        if self.definitions and self.has_kinds:
            raise ParameterError("definitions are of numbers; this network has variables of other kinds.")
        within = self.is_edge[0]
        if not self.is_linear and sum(map(len, causes_first(within))) < d:
            raise ParameterError(
                "nodes that are not linear need contemporaneous effects without a cycle; W has one."
            )
        object.__setattr__(self, "open_edges", _open_edges(open_edges, within, names))

    @classmethod
    def from_nodes(
        cls,
        nodes: Iterable[Node],
        variables: Sequence[str] | None = None,
        n_lags: int | None = None,
        open_edges: Iterable[tuple[str, str]] = (),
        definitions: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Network of one node per variable; without `n_lags` the largest lag of a cause is taken."""
        nodes = tuple(nodes)
        largest = max((lag for node in nodes for _, lag in getattr(node, "causes", ())), default=0)
        stands = weights_of(check_nodes(nodes, p := largest if n_lags is None else int(n_lags)), p)
        return cls(stands.W, stands.A, variables, open_edges=open_edges, nodes=nodes, definitions=definitions)

    def with_parts(self, parts: Iterable[Part]) -> Self:
        """The same network of numbers with curves or products beside its straight effects."""
        parts = tuple(parts)
        if not parts:
            return self
        if self.nodes:
            raise ParameterError("parts are added to a network of W and A; give them all at once.")
        nodes = nodes_of(self.W, self.A, self.intercept, self.noise_variances, parts)
        return self.from_nodes(nodes, self.variables, self.n_lags, self.open_edges, self.definitions)

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

    def node(self, variable: str | int) -> Node:
        """What one variable does given its causes, of a linear network too."""
        j = variable_index(variable, self.variables, "variable")
        return (self.nodes or nodes_of(self.W, self.A, self.intercept, self.noise_variances))[j]

    @property
    def parts(self) -> tuple[Part, ...]:
        """The terms that are no straight effects, with their targets and coefficients, by lag, causes and target."""
        found = [
            Part(j, term, b)
            for j, node in enumerate(self.nodes)
            for term, b in node.parts
            if not term.is_straight
        ]
        found.sort(key=lambda part: ([(lag, i) for i, lag in part.term.sources], part.target))
        return tuple(found)

    @property
    def units(self) -> dict[int, tuple[float, float]]:
        """Variable -> origin and scale of its functions; only those that have some."""
        return {i: units for part in reversed(self.parts) for i, units in part.term.units.items()}

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What the values of each variable are."""
        return tuple(node.kind for node in self.nodes) or (CONTINUOUS,) * self.d

    @cached_property
    def has_kinds(self) -> bool:
        """Whether some variable is no plain number."""
        return any(kind.name != "continuous" for kind in self.kinds)

    @cached_property
    def is_linear(self) -> bool:
        """Whether every effect is a straight line with noise added: formulas then say what simulated paths say of others."""
        return not self.has_kinds and not self.parts

    @cached_property
    def steps(self) -> Steps:
        """How its variables go on; all that is computed by paths or rows reads this."""
        if self.is_linear:
            return LinearSteps(self.W, self.A, self.intercept, self.noise_variances)
        return Steps(self.nodes, self.n_lags, self.is_edge[0])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "steps"}

    @property
    def is_edge(self) -> BoolArray:
        """(p+1, d, d) where there is an effect: a weight that is not 0, or any term of a node."""
        found: BoolArray = np.asarray(self.adjacency_matrices != 0)
        return found | edges_of(self.nodes, self.n_lags) if self.nodes else found

    @property
    def is_oriented(self) -> BoolArray:
        """(p+1, d, d) which edges have a known direction: all across time steps, and within one those not in `open_edges`."""
        known = self.is_edge
        place = {name: k for k, name in enumerate(self.variables)}
        for source, target in self.open_edges:
            known[0, place[source], place[target]] = False
        return known


def _each(value: FloatArray | float | None, name: str, d: int) -> FloatArray | None:
    """One number for each variable; None: not known."""
    if value is None:
        return None
    found = _numbers(value, name, min(np.ndim(value), 1))
    if found.shape not in ((), (d,)):
        raise ParameterError(f"{name} must have shape ({d},), got {found.shape}.")
    return np.array(np.broadcast_to(found, (d,)))


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


def _numbers(value: object, name: str, n_dimensions: int) -> FloatArray:
    try:
        found = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must be an array of numbers, got {type(value).__name__}.") from None
    if found.ndim != n_dimensions or not np.all(np.isfinite(found)):
        raise ParameterError(
            f"{name} must have {n_dimensions} dimensions, got shape {found.shape}, and finite numbers: no NaN, no infinity."
        )
    return found


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
        data = data.iloc[:, [columns.index(v) for v in variables]]
        if any(kind.levels for kind in kinds):
            data = _with_positions(data, variables, argument, kinds)
    try:
        if isinstance(data, pd.DataFrame):
            data = data.to_numpy(np.float64, na_value=np.nan)
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
                f"{argument} has {misfits[0]:g} in {name!r}, which no {seen.name} variable can have"
                f"{f'; it has {seen.n_levels} levels' if seen.levels else ''}."
            )
    if any(kind.recorded for kind in kinds):
        return np.stack([kind.counted(column) for kind, column in zip(kinds, values.T, strict=True)], axis=1)
    return values


def _with_positions(
    frame: pd.DataFrame, variables: tuple[str, ...], argument: str, kinds: Sequence[Kind]
) -> pd.DataFrame:
    """The frame with positions in place of names of levels, in columns that hold text."""
    frame = frame.set_axis(variables, axis=1)
    for name, kind in zip(variables, kinds, strict=True):
        column, levels = frame[name], kind.as_recorded.levels
        if levels and not pd.api.types.is_numeric_dtype(column.dtype):
            unknown = column[column.notna() & ~column.astype(str).isin(levels)]
            if len(unknown):
                raise DataError(
                    f"{argument} has {unknown.iloc[0]!r} in {name!r}, whose levels are {_some(levels)}."
                )
            place = {level: float(position) for position, level in enumerate(levels)}
            frame = frame.assign(**{name: column.astype(str).map(place)})
    return frame


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
