"""Every stored form reads back as the same network, bit for bit."""

from __future__ import annotations

import tempfile
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddbn.core.kinds import KINDS, Kind
from feddbn.model.dbn import DBN
from support.networks import make_curve, make_node, make_product

pytestmark = pytest.mark.promise

LETTERS = st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=("Cs", "Cc", "Cn", "Co"))
NAMES = st.lists(st.text(LETTERS, min_size=1, max_size=6), min_size=1, max_size=4, unique=True)
NUMBERS = st.floats(-1e300, 1e300, allow_nan=False, allow_subnormal=True)


@st.composite
def networks(draw: st.DrawFn) -> DBN:
    names = draw(NAMES)
    d, p = len(names), draw(st.integers(0, 3))
    values = draw(st.lists(NUMBERS, min_size=(p + 1) * d * d + 2 * d, max_size=(p + 1) * d * d + 2 * d))
    numbers = np.array(values)
    stack = numbers[: (p + 1) * d * d].reshape(p + 1, d, d)
    kept = np.array(draw(st.lists(st.booleans(), min_size=stack.size, max_size=stack.size))).reshape(
        stack.shape
    )
    stack = np.where(kept, stack, 0.0)
    order = draw(st.permutations(range(d)))
    rank = np.argsort(order)
    stack[0] *= rank[:, None] < rank[None, :]
    pairs = [(names[i], names[j]) for i, j in np.argwhere(stack[0] != 0)]
    is_open = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    open_edges = [pair for pair, kept in zip(pairs, is_open, strict=True) if kept]
    return DBN(stack[0], stack[1:], names, numbers[-2 * d : -d], np.abs(numbers[-d:]), open_edges)


@st.composite
def curved_networks(draw: st.DrawFn) -> DBN:
    """The same with curves and products, also where there is no weight."""
    dbn = draw(networks().filter(lambda dbn: dbn.n_lags > 0))
    place, size = st.integers(0, dbn.d - 1), st.floats(1e-3, 1e3)
    b = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6).map(tuple)
    lag = st.integers(1, dbn.n_lags)
    curve = st.builds(make_curve, place, place, lag, st.floats(-1e3, 1e3), size, b)
    parts = draw(st.lists(curve, max_size=4, unique_by=lambda c: (c.term.sources, c.target)))
    pair = st.tuples(place, place).filter(lambda two: two[0] < two[1])
    if dbn.d > 1:
        weight = st.floats(-1e6, 1e6)
        made = st.builds(
            lambda two, *rest: make_product(*two, *rest),
            pair,
            place,
            lag,
            weight,
            st.tuples(weight, weight),
            st.tuples(size, size),
        )
        parts += draw(st.lists(made, max_size=3, unique_by=lambda p: (p.term.sources, p.target)))
    return dbn.with_parts(parts)


def weights_only(dbn: DBN) -> DBN:
    return DBN(dbn.W, dbn.A, dbn.variables, None, None, dbn.open_edges)


@given(networks())
def test_json_and_dict_keep_everything(dbn: DBN) -> None:
    assert DBN.from_json(dbn.to_json()).equals(dbn)
    assert DBN.from_dict(dbn.to_dict()).equals(dbn)


@given(curved_networks())
def test_curves_and_products_are_kept_too(dbn: DBN) -> None:
    again = DBN.from_json(dbn.to_json())
    assert again.equals(dbn)
    assert [part.term for part in again.parts] == [part.term for part in dbn.parts]


@given(networks())
def test_files_keep_everything(dbn: DBN) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network"
        dbn.to_json(path)
        assert DBN.from_json(path).equals(dbn)
        dbn.to_csv(path)
        assert DBN.from_csv(path, dbn.variables, dbn.n_lags).equals(weights_only(dbn))


@given(networks())
def test_edge_lists_and_foreign_arrays_keep_the_weights(dbn: DBN) -> None:
    expected = weights_only(dbn)
    assert DBN.from_edges(dbn.edges(), dbn.variables, dbn.n_lags).equals(expected)
    assert DBN.from_csv(dbn.to_csv(), dbn.variables, dbn.n_lags).equals(expected)
    directed = DBN(dbn.W, dbn.A, dbn.variables, None, None)
    assert DBN.from_lingam(dbn.to_lingam(), dbn.variables).equals(directed)
    assert DBN.from_tigramite(*directed.to_tigramite(), dbn.variables).equals(directed)


@given(networks())
def test_the_time_series_graph_is_acyclic_and_has_one_edge_per_weight(dbn: DBN) -> None:
    graph = dbn.to_networkx()
    assert nx.is_directed_acyclic_graph(graph)
    assert graph.number_of_nodes() == dbn.d * (dbn.n_lags + 1)
    assert graph.number_of_edges() == np.count_nonzero(dbn.adjacency_matrices) == len(dbn.edges())


MODERATE = st.floats(-1e6, 1e6, allow_nan=False)


@st.composite
def kinds(draw: st.DrawFn) -> Kind:
    name = draw(st.sampled_from(KINDS))
    if name in ("ordinal", "categorical"):
        return Kind(
            name, tuple(draw(st.lists(st.text("abcé ü", min_size=1), min_size=2, max_size=4, unique=True)))
        )
    return Kind(name)


@st.composite
def mixed_networks(draw: st.DrawFn) -> DBN:
    all_kinds = draw(st.lists(kinds(), min_size=1, max_size=4))
    d, p = len(all_kinds), draw(st.integers(0, 2))
    nodes = []
    for j, kind in enumerate(all_kinds):
        places = [(i, lag) for i in range(d) for lag in range(p + 1) if lag or i < j]
        parents = draw(st.lists(st.sampled_from(places), max_size=3, unique=True)) if places else []
        m = kind.n_levels - 1 if kind.name in ("ordinal", "categorical") else 1
        k = kind.n_levels - 1 if kind.name == "categorical" else 1

        def numbers(n: int) -> np.ndarray:
            return np.array(draw(st.lists(MODERATE, min_size=n, max_size=n)), dtype=float)

        steps = draw(st.lists(st.floats(1e-3, 10), min_size=m, max_size=m))
        intercept = np.cumsum(steps) if kind.name == "ordinal" else numbers(m)
        effects = tuple(numbers(all_kinds[i].width * k).reshape(-1, k) for i, _ in parents)
        size = m + sum(effect.size for effect in effects)
        covariance = np.outer(numbers(size), np.ones(size)) if draw(st.booleans()) else None
        dispersion = draw(st.floats(0, 1e3))
        nodes.append(make_node(kind, tuple(parents), intercept, effects, dispersion, covariance))
    return DBN.from_nodes(nodes, n_lags=p)


@given(mixed_networks())
def test_kinds_are_kept_too(dbn: DBN) -> None:
    assert DBN.from_json(dbn.to_json()).equals(dbn)
