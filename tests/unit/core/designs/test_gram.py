"""The Gram matrix of a design: equal to the sums of today, additive, streamed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from feddbn.core.designs.design import Basis, Design, Term, design_rows
from feddbn.core.designs.gram import Gram, gram_sums_length, recording_gram
from feddbn.core.designs.nuisance import Nuisance
from feddbn.core.designs.recordings import Block, lagged_rows
from feddbn.core.statistics.moments import Moments
from feddbn.data.memory import ArrayRecording
from support.simulated_moments import gram_of

NAMES = ("a", "b", "c")
NUISANCES = {
    "all": Nuisance(),
    "recording": Nuisance("recording"),
    "label": Nuisance("label"),
    "trend": Nuisance("recording", degree=2, periods=(9.0,)),
}


def _recordings(lengths=(40, 3, 120, 55), seed=0) -> list[ArrayRecording]:
    rng = np.random.default_rng(seed)
    found = []
    for k, n in enumerate(lengths):
        x = rng.normal(size=(n, 3)).cumsum(axis=0) * 0.3 + rng.normal(size=(n, 3)) + 2.0 * k
        labels = rng.integers(0, 3, size=n)
        found.append(
            ArrayRecording(
                f"r{k}",
                (Block(x[: n // 2], True, labels[: n // 2]), Block(x[n // 2 :], True, labels[n // 2 :])),
            )
        )
    return found


def _designs(nuisance: Nuisance) -> list[Design]:
    origin, scale = (1.0, 2.0, 3.0), (1.0, 0.5, 2.0)
    return [
        Design.linear(NAMES, 2, nuisance),
        Design.features(NAMES, 2, Basis("spline", smoothing=0.7), nuisance, origin, scale),
        Design(NAMES, (Term(Basis(), (0, 1)), Term(Basis("quadratic"), (0, 3))), nuisance, (), scale),
    ]


@pytest.mark.parametrize("n_lags", [0, 1, 3])
def test_linear_moments_are_those_of_today_to_the_last_bit(n_lags) -> None:
    total, within = Moments.empty(3 * (n_lags + 1)), Moments.empty(3 * (n_lags + 1))
    for recording in _recordings():
        moments = Moments.of_blocks(recording.blocks(), n_lags, 3)
        total = total.merge(moments)
        within = within.merge(Moments(moments.n, np.zeros(moments.q), moments.scatter))
    one = gram_of(Design.linear(NAMES, n_lags), _recordings()).moments
    each = gram_of(Design.linear(NAMES, n_lags, Nuisance("recording")), _recordings()).moments
    for expected, found in ((total, one), (within, each)):
        assert found.n == expected.n
        np.testing.assert_array_equal(found.mean, expected.mean)
        np.testing.assert_array_equal(found.scatter, expected.scatter)


@pytest.mark.parametrize("name", ["linear", "quadratic", "spline"])
@pytest.mark.parametrize("scope", ["all", "recording"])
def test_feature_sums_are_rows_written_down_by_hand_to_the_last_bit(name, scope) -> None:
    design = Design.features(NAMES, 1, Basis(name), Nuisance(scope), (1.0, 2.0, 3.0), (1.0, 0.5, 2.0))
    for recording in _recordings():
        total = Moments.empty(design.q)
        for block in recording.blocks():
            x = (block.values - np.array([1.0, 2.0, 3.0])) / np.array([1.0, 0.5, 2.0])
            phi = Basis(name).features(x, None)[0]
            rows = np.concatenate([x[1:], x[:-1], phi[:-1]], axis=1)
            if len(rows):
                total = total.merge(Moments.of_rows(rows))
        upper = np.triu_indices(design.q)
        own = scope == "recording"
        expected = (
            np.concatenate([[total.n, float(total.n > 0), 0.0], np.zeros(design.q), total.scatter[upper]])
            if own
            else np.concatenate([[0.0, 0.0], total.to_sums()])
        )
        np.testing.assert_array_equal(recording_gram(design, recording).to_sums(), expected)


@pytest.mark.parametrize("nuisance", NUISANCES)
def test_recordings_dealt_to_sites_add_up_to_all_of_them(nuisance) -> None:
    recordings = _recordings((30, 41, 52, 17, 3, 90))
    for design in _designs(NUISANCES[nuisance]):
        whole = gram_of(design, recordings)
        parts = [gram_of(design, recordings[k::3]) for k in range(3)]
        vector = np.sum([part.to_sums() for part in parts], axis=0)
        assert len(vector) == gram_sums_length(design.q)
        for found in (parts[0].merge(parts[1]).merge(parts[2]), Gram.from_sums(vector, design.q)):
            assert (found.n, found.n_removed, found.n_nuisance) == (
                whole.n,
                whole.n_removed,
                whole.n_nuisance,
            )
            np.testing.assert_allclose(found.scatter, whole.scatter, atol=1e-10 * np.abs(whole.scatter).max())
            np.testing.assert_allclose(found.moments.mean, whole.moments.mean, atol=1e-10)


@pytest.mark.parametrize("nuisance", NUISANCES)
def test_blocks_that_continue_a_segment_change_nothing(nuisance) -> None:
    rng = np.random.default_rng(5)
    x, labels = rng.normal(size=(90, 3)).cumsum(axis=0), rng.integers(0, 2, size=90)
    cuts = [0, 1, 3, 30, 31, 70, 90]
    pieces = tuple(Block(x[a:b], a == 0, labels[a:b]) for a, b in pairwise(cuts))
    for design in _designs(NUISANCES[nuisance]):
        whole = recording_gram(design, ArrayRecording("r", (Block(x, True, labels),)))
        cut = recording_gram(design, ArrayRecording("r", pieces))
        assert (cut.n, cut.n_removed) == (whole.n, whole.n_removed)
        np.testing.assert_allclose(cut.scatter, whole.scatter, atol=1e-10 * np.abs(whole.scatter).max())


@pytest.mark.parametrize("nuisance", NUISANCES)
def test_no_usable_row_gives_nothing_and_nothing_is_neutral(nuisance) -> None:
    design = Design.linear(NAMES, 3, NUISANCES[nuisance])
    empty = gram_of(design, _recordings((3, 2)))
    assert (empty.n, empty.n_removed, empty.n_nuisance) == (0, 0, 0)
    some = gram_of(design, _recordings())
    merged = empty.merge(some)
    assert merged.n == some.n
    np.testing.assert_array_equal(merged.scatter, some.scatter)
    assert Gram.from_sums(empty.to_sums(), design.q).n == 0


def test_linear_rows_are_the_lagged_rows() -> None:
    blocks = [Block(np.random.default_rng(1).normal(size=(50, 3)))]
    (found,) = design_rows(Design.linear(NAMES, 2), blocks)
    (expected,) = lagged_rows(blocks, 2)
    np.testing.assert_array_equal(found.values, expected)
    assert found.time == 2


def test_wide_rows_come_in_short_pieces() -> None:
    names = tuple(f"x{k}" for k in range(400))
    design = Design.features(names, 2, Basis("spline"))
    x = np.random.default_rng(2).normal(size=(3000, 400))
    chunks = list(design_rows(design, [Block(x)]))
    assert design.q == 3600
    assert max(chunk.values.nbytes for chunk in chunks) <= 1 << 25
    assert sum(len(chunk.values) for chunk in chunks) == 2998
    assert [chunk.time for chunk in chunks] == np.cumsum([2, *[len(c.values) for c in chunks[:-1]]]).tolist()
