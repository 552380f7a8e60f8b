"""Every stored form of a network with variables of any kind reads back as the same network, bit for bit."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from feddbn.core.kinds import KINDS, Kind
from feddbn.model.conditionals import Conditional
from feddbn.model.dbn import DBN

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)


@st.composite
def kinds(draw: st.DrawFn) -> Kind:
    name = draw(st.sampled_from(KINDS))
    if name in ("ordinal", "categorical"):
        return Kind(
            name, tuple(draw(st.lists(st.text("abcé ü", min_size=1), min_size=2, max_size=4, unique=True)))
        )
    return Kind(name)


@st.composite
def networks(draw: st.DrawFn) -> DBN:
    all_kinds = draw(st.lists(kinds(), min_size=1, max_size=4))
    d, p = len(all_kinds), draw(st.integers(0, 2))
    nodes = []
    for j, kind in enumerate(all_kinds):
        places = [(i, lag) for i in range(d) for lag in range(p + 1) if lag or i < j]
        parents = draw(st.lists(st.sampled_from(places), max_size=3, unique=True)) if places else []
        m = kind.n_levels - 1 if kind.name in ("ordinal", "categorical") else 1
        k = kind.n_levels - 1 if kind.name == "categorical" else 1

        def numbers(n: int) -> np.ndarray:
            return np.array(draw(st.lists(NUMBERS, min_size=n, max_size=n)), dtype=float)

        steps = draw(st.lists(st.floats(1e-3, 10), min_size=m, max_size=m))
        intercept = np.cumsum(steps) if kind.name == "ordinal" else numbers(m)
        effects = tuple(numbers(all_kinds[i].width * k).reshape(-1, k) for i, _ in parents)
        size = m + sum(effect.size for effect in effects)
        covariance = np.outer(numbers(size), np.ones(size)) if draw(st.booleans()) else None
        dispersion = draw(st.floats(0, 1e3))
        nodes.append(Conditional(kind, tuple(parents), intercept, effects, dispersion, covariance))
    return DBN.from_conditionals(nodes, n_lags=p)


@given(networks())
def test_all_forms_keep_everything(dbn: DBN) -> None:
    assert DBN.from_json(dbn.to_json()).equals(dbn)
    assert DBN.from_networkx(dbn.to_networkx()).equals(dbn)
    assert DBN.from_graphml(dbn.to_graphml()).equals(dbn)
    assert dbn.to_dict()["version"] == 4
    with tempfile.TemporaryDirectory() as folder:
        dbn.to_npz(Path(folder) / "network.npz")
        assert DBN.from_npz(Path(folder) / "network.npz").equals(dbn)
