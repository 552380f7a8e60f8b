"""Rows and nuisance columns from one reading: the moments of both side by side, whatever blocks rows come in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from feddbn.core.designs.design import Basis, Design, Term, design_rows
from feddbn.core.designs.gram import joint_moments, nuisance_grams, recording_gram, tried_grams
from feddbn.core.designs.nuisance import Nuisance, TimeBasis
from feddbn.core.designs.recordings import Block, CompleteRows, usable_runs
from feddbn.core.statistics.moments import Moments
from feddbn.data.memory import ArrayRecording

TREND = Nuisance("recording", degree=3)
CYCLE = Nuisance("recording", degree=1, periods=(12.0,))
MEAN = Nuisance("recording")


def _recording(size: int, lead: tuple[int, ...] = ()) -> ArrayRecording:
    """Three segments, far from zero and with a trend, in blocks of so many rows."""
    rng = np.random.default_rng(0)
    x = 1e3 + np.arange(300)[:, None] * 0.1 + rng.normal(size=(*lead, 300, 3))
    starts = sorted({*range(0, 300, size), 100, 102})
    blocks = []
    for start, stop in zip(starts, [*starts[1:], 300], strict=True):
        late = 7 * (start >= 100)
        blocks.append(Block(x[..., start:stop, :], start in (0, 100, 102), None, start + late))
    return ArrayRecording("r", tuple(blocks))


@pytest.mark.parametrize("size", [1, 7, 64, 300])
@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("n_lags", [0, 2])
def test_moments_of_rows_and_columns_are_those_of_both_stacked(size, lead, n_lags):
    recording, design = _recording(size, lead), Design.linear(("a", "b", "c"), n_lags)
    runs = usable_runs(recording, n_lags)
    bases = [TimeBasis.over(nuisance, runs) for nuisance in (TREND, CYCLE)]
    found = joint_moments(design, recording, bases)
    chunks = list(design_rows(design, recording.blocks()))
    times = np.concatenate([chunk.time + np.arange(chunk.values.shape[-2]) for chunk in chunks])
    columns = np.concatenate([basis.at(times.astype(float)) for basis in bases], axis=1)
    rows = np.concatenate([chunk.values for chunk in chunks], axis=-2)
    both = np.concatenate([rows, np.broadcast_to(columns, (*lead, *columns.shape))], axis=-1)
    expected = Moments.of_rows(both)
    assert found.n == expected.n
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12, atol=1e-13)
    # What two bases have to do with each other is asked for by nobody, but it is there.
    np.testing.assert_allclose(
        found.scatter, expected.scatter, rtol=0, atol=1e-12 * np.abs(expected.scatter).max()
    )


@pytest.mark.parametrize("size", [7, 300])
def test_the_moments_as_they_are_have_the_same_bits_as_without_anything_tried(size):
    recording, design = _recording(size), Design.linear(("a", "b", "c"), 1)
    moments, grams = tried_grams(design, recording, [MEAN, TREND])
    plain = recording_gram(design, recording).moments
    np.testing.assert_array_equal(moments.mean, plain.mean)
    np.testing.assert_array_equal(moments.scatter, plain.scatter)
    own = recording_gram(Design.linear(("a", "b", "c"), 1, MEAN), recording)
    np.testing.assert_allclose(grams[0].scatter, own.scatter, rtol=1e-12)
    assert grams[0].n_removed == own.n_removed == 1
    assert grams[1].n_removed == 4


def test_a_design_that_is_not_linear_gives_the_same_as_least_squares():
    recording = _recording(50)
    terms = (Term(Basis(), (0, 1)), Term(Basis("linear", smoothing=0.5), (1,)))
    design = Design(("a", "b", "c"), terms)
    assert not design.is_linear
    gram = nuisance_grams(design, recording, [TREND])[0]
    chunks = list(design_rows(design, recording.blocks()))
    rows = np.concatenate([chunk.values for chunk in chunks])
    times = np.concatenate([chunk.time + np.arange(len(chunk.values)) for chunk in chunks])
    columns = np.vander((times - times.mean()) / 150, 4)
    left = rows - columns @ np.linalg.lstsq(columns, rows, rcond=None)[0]
    np.testing.assert_allclose(gram.scatter, left.T @ left, rtol=1e-8)


def test_a_recording_without_a_usable_row_has_nothing():
    recording = ArrayRecording("r", (Block(np.ones((1, 3)), True, None, 0),))
    design = Design.linear(("a", "b", "c"), 1)
    for tried in ([MEAN], [TREND]):
        moments, grams = tried_grams(design, recording, tried)
        assert moments.n == grams[0].n == grams[0].n_removed == 0


@dataclass(frozen=True)
class _Knowing:
    """A recording that knows its segments, and must not be read."""

    name: str = "r"

    def blocks(self):
        raise AssertionError("it was read")

    def known_segments(self):
        return [(0, 5000), (5003, 2), (5010, 4097)]


@pytest.mark.parametrize("n_lags", [0, 1, 2, 4097])
def test_known_segments_tell_usable_rows_without_reading(n_lags):
    x = np.zeros((9099, 1))
    cuts = [(0, 5000, True, 0), (5000, 5002, True, 5003), (5002, 9099, True, 5010)]
    read = ArrayRecording("r", tuple(Block(x[a:b], new, None, time) for a, b, new, time in cuts))
    found = [usable_runs(each, n_lags) for each in (CompleteRows(_Knowing()), CompleteRows(read))]
    assert found[0] == found[1]
    assert sum(n for _, n in found[0]) == sum(max(n - n_lags, 0) for n in (5000, 2, 4097))
