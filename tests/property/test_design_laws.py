"""Laws of designs: equal descriptions are one design, any cut of the rows gives the same sums."""

from __future__ import annotations

import json
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddbn.core.designs.design import Basis, Design, Nuisance, Term, design_rows
from feddbn.core.designs.gram import Gram, recording_gram
from feddbn.core.designs.recordings import Block
from feddbn.data import Recording, Site
from feddbn.federation.protocol.task import run_program
from feddbn.federation.sums.survey import survey_program
from support.simulated_moments import gram_of
from support.sites import federation_of

pytestmark = pytest.mark.promise

finite = st.floats(-1e6, 1e6)


bases = st.sampled_from(["linear", "curve", "bend"]).map(Basis)


@st.composite
def nuisances(draw) -> Nuisance:
    if draw(st.booleans()):
        return Nuisance("all")
    periods = draw(st.lists(st.floats(2, 100), max_size=2, unique=True))
    return Nuisance("recording", draw(st.integers(0, 3)), tuple(periods))


@st.composite
def designs(draw, d: int | None = None) -> Design:
    size = d or draw(st.integers(1, 4))
    names = draw(st.lists(st.text(min_size=1, max_size=4), min_size=size, max_size=size, unique=True))
    lag_sets = st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True).map(sorted).map(tuple)
    first = Term(Basis(), tuple(range(draw(st.integers(1, 4)))))
    more = draw(st.lists(st.builds(Term, bases, lag_sets), max_size=2))
    origin = draw(st.one_of(st.just(()), st.lists(finite, min_size=size, max_size=size).map(tuple)))
    scale = draw(
        st.one_of(st.just(()), st.lists(st.floats(0.1, 10), min_size=size, max_size=size).map(tuple))
    )
    return Design(tuple(names), (first, *more), draw(nuisances()), origin, scale)


@given(designs())
def test_a_design_read_back_from_json_is_the_same_design(design: Design) -> None:
    back = Design.from_dict(json.loads(json.dumps(design.to_dict())))
    assert back == design
    assert hash(back) == hash(design)
    assert back.digest == design.digest


@given(designs(d=2), designs(d=2))
def test_designs_are_equal_if_and_only_if_their_digests_are(one: Design, other: Design) -> None:
    assert (one == other) == (one.digest == other.digest)
    assert one != other or hash(one) == hash(other)


@given(designs())
def test_every_column_is_in_one_group_and_targets_come_first(design: Design) -> None:
    columns = [column for group in design.groups for column in group.columns]
    assert sorted(columns) == list(range(design.q))
    assert [group.columns[0] for group in design.groups[: design.d]] == list(range(design.d))


@given(designs(d=2), st.integers(0, 2**32 - 1), st.integers(1, 40), st.lists(st.integers(0, 40), max_size=5))
def test_any_way_to_cut_a_segment_gives_the_same_gram(design: Design, seed: int, n: int, cuts) -> None:
    rng = np.random.default_rng(seed)
    x, labels = rng.normal(size=(n, 2)), rng.integers(0, 3, size=n)
    if design.origin:
        x = x + np.array(design.origin)
    edges = sorted({0, n, *(cut for cut in cuts if cut < n)})
    pieces = tuple(Block(x[a:b], a == 0, labels[a:b]) for a, b in pairwise(edges))
    whole = recording_gram(design, Recording("r", (Block(x, True, labels),)))
    cut = recording_gram(design, Recording("r", pieces))
    assert (cut.n, cut.n_removed) == (whole.n, whole.n_removed)
    size = max(np.abs(whole.scatter).max(), whole.n * np.abs(whole.moments.mean).max() ** 2, 1.0)
    np.testing.assert_allclose(cut.scatter, whole.scatter, atol=1e-9 * size)


@given(designs(d=2), st.integers(0, 2**32 - 1), st.lists(st.integers(0, 20), min_size=1, max_size=6))
def test_sums_over_recordings_do_not_depend_on_who_holds_them(design: Design, seed: int, lengths) -> None:
    rng = np.random.default_rng(seed)
    recordings = [
        Recording(f"r{k}", (Block(rng.normal(size=(n, 2)), labels=rng.integers(0, 3, size=n)),))
        for k, n in enumerate(lengths)
    ]
    together = gram_of(design, recordings)
    apart = reduce(Gram.merge, (recording_gram(design, recording) for recording in reversed(recordings)))
    assert (apart.n, apart.n_removed) == (together.n, together.n_removed)
    size = max(np.abs(together.scatter).max(), together.n * np.abs(together.moments.mean).max() ** 2, 1.0)
    np.testing.assert_allclose(apart.scatter, together.scatter, atol=1e-9 * size)


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 40),
    n_lags=st.integers(1, 4),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    chunk_rows=st.integers(1, 50),
    basis=bases,
)
def test_any_way_to_cut_a_segment_gives_the_same_rows(seed, n, n_lags, cuts, chunk_rows, basis):
    x = np.random.default_rng(seed).standard_normal((n, 2))
    edges = sorted({0, n, *(c for c in cuts if c < n)})
    pieces = [Block(x[a:b], starts_segment=a == 0) for a, b in pairwise(edges)]
    design = Design.curved(("a", "b"), n_lags, basis)
    chunks = list(design_rows(design, pieces, chunk_rows))
    got = [chunk.values for chunk in chunks]
    expected = [chunk.values for chunk in design_rows(design, [Block(x)])]
    assert sum(map(len, got)) == max(n - n_lags, 0) == sum(map(len, expected))
    times = [chunk.time + k for chunk in chunks for k in range(len(chunk.values))]
    assert times == list(range(n_lags, n))
    if expected:
        np.testing.assert_allclose(np.concatenate(got), np.concatenate(expected), atol=1e-12)


@given(
    seed=st.integers(0, 2**32 - 1),
    ends=st.lists(st.integers(1, 300), max_size=2),
    cuts=st.lists(st.integers(1, 299), max_size=6),
    empty=st.booleans(),
)
def test_any_way_to_read_a_segment_gives_the_same_first_look(seed, ends, cuts, empty):
    """Sites with a trend, memory, far cells and empty ones: what is told of them depends on segments, not on batches."""
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.normal(size=(300, 2)), axis=0) + 0.05 * np.arange(300)[:, None]
    x[rng.integers(0, 300, 4), 0] += 40.0
    if empty:
        x[rng.random(x.shape) < 0.1] = np.nan

    def told(*edges):
        whole = sorted({0, 300, *ends, *edges})
        blocks = tuple(Block(x[a:b], a in {0, *ends}) for a, b in pairwise(whole))
        site = Site(("a", "b"), [Recording("r", blocks), Recording("s", (Block(x[:50]),))])
        return run_program(survey_program(site.variables, 1), federation_of({"one": site}))

    np.testing.assert_equal(vars(told(*cuts)), vars(told()))
