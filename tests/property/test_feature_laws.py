from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from feddbn.core.designs.design import Basis, Design, design_rows
from feddbn.core.designs.recordings import Block


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 40),
    n_lags=st.integers(1, 4),
    smoothing=st.floats(0.05, 1.0),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    chunk_rows=st.integers(1, 50),
    name=st.sampled_from(["linear", "quadratic", "spline"]),
)
def test_any_way_to_cut_a_segment_gives_the_same_rows(seed, n, n_lags, smoothing, cuts, chunk_rows, name):
    x = np.random.default_rng(seed).standard_normal((n, 2))
    edges = sorted({0, n, *(c for c in cuts if c < n)})
    pieces = [Block(x[a:b], starts_segment=a == 0) for a, b in pairwise(edges)]
    design = Design.features(("a", "b"), n_lags, Basis(name, smoothing=smoothing))
    got = [chunk.values for chunk in design_rows(design, pieces, chunk_rows)]
    expected = [chunk.values for chunk in design_rows(design, [Block(x)])]
    assert sum(map(len, got)) == max(n - n_lags, 0) == sum(map(len, expected))
    if expected:
        np.testing.assert_allclose(np.concatenate(got), np.concatenate(expected), atol=1e-12)
