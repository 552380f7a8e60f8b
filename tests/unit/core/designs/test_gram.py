"""The Gram matrix of a design: equal to the sums of today, additive, streamed.

Rows and nuisance columns from one reading: the moments of both side by side, whatever blocks rows come in.

Means, trends and cycles: what is taken off equals what least squares would have explained.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.linalg
import statsmodels.api as sm

from feddbn.core.designs.design import Basis, Design, Nuisance, Term, TimeBasis, design_rows
from feddbn.core.designs.gram import (
    joint_moments,
    nuisance_basis,
    recording_gram,
    restored,
    tried_grams,
)
from feddbn.core.designs.recordings import Block, complete_rows, usable_runs
from feddbn.core.statistics.moments import Moments
from feddbn.data import Recording
from feddbn.errors import ParameterError
from support.saying import refused
from support.simulated_moments import gram_of

NAMES = ("a", "b", "c")
NUISANCES = {
    "all": Nuisance(),
    "recording": Nuisance("recording"),
    "trend": Nuisance("recording", degree=2, periods=(9.0,)),
}


def _recordings(lengths=(40, 3, 120, 55), seed=0) -> list[Recording]:
    rng = np.random.default_rng(seed)
    found = []
    for k, n in enumerate(lengths):
        x = rng.normal(size=(n, 3)).cumsum(axis=0) * 0.3 + rng.normal(size=(n, 3)) + 2.0 * k
        labels = rng.integers(0, 3, size=n)
        found.append(
            Recording(
                f"r{k}",
                (Block(x[: n // 2], True, labels[: n // 2]), Block(x[n // 2 :], True, labels[n // 2 :])),
            )
        )
    return found


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


@pytest.mark.parametrize("name", ["linear", "curve", "bend"])
@pytest.mark.parametrize("scope", ["all", "recording"])
def test_sums_are_rows_written_down_by_hand_to_the_last_bit(name, scope) -> None:
    design = Design.curved(NAMES, 1, Basis(name), Nuisance(scope), (1.0, 2.0, 3.0), (1.0, 0.5, 2.0))
    for recording in _recordings():
        total = Moments.empty(design.q)
        for block in recording.blocks():
            x = (block.values - np.array([1.0, 2.0, 3.0])) / np.array([1.0, 0.5, 2.0])
            phi = Basis(name).features(x)
            rows = np.concatenate([x[1:], x[:-1], phi[1:], phi[:-1]], axis=1)
            if len(rows):
                total = total.merge(Moments.of_rows(rows))
        gram = recording_gram(design, recording)
        assert (gram.n, gram.n_removed) == (total.n, float(scope == "recording" and total.n > 0))
        np.testing.assert_array_equal(gram.scatter, total.scatter)
        np.testing.assert_array_equal(gram.moments.mean, 0.0 if scope == "recording" else total.mean)


@pytest.mark.parametrize("nuisance", NUISANCES)
def test_no_usable_row_gives_nothing_and_nothing_is_neutral(nuisance) -> None:
    design = Design.linear(NAMES, 3, NUISANCES[nuisance])
    empty = gram_of(design, _recordings((3, 2)))
    assert (empty.n, empty.n_removed) == (0, 0)
    some = gram_of(design, _recordings())
    merged = empty.merge(some)
    assert merged.n == some.n
    np.testing.assert_array_equal(merged.scatter, some.scatter)


def test_wide_rows_come_in_short_pieces() -> None:
    names = tuple(f"x{k}" for k in range(400))
    design = Design.curved(names, 2, Basis("bend"))
    x = np.random.default_rng(2).normal(size=(3000, 400))
    chunks = list(design_rows(design, [Block(x)]))
    assert design.q == 2400
    assert max(chunk.values.nbytes for chunk in chunks) <= 1 << 25
    assert sum(len(chunk.values) for chunk in chunks) == 2998
    assert [chunk.time for chunk in chunks] == np.cumsum([2, *[len(c.values) for c in chunks[:-1]]]).tolist()


TREND = Nuisance("recording", degree=3)
CYCLE = Nuisance("recording", degree=1, periods=(12.0,))
MEAN = Nuisance("recording")


def _one_recording(size: int) -> Recording:
    """Three segments, far from zero and with a trend, in blocks of so many rows."""
    rng = np.random.default_rng(0)
    x = 1e3 + np.arange(300)[:, None] * 0.1 + rng.normal(size=(300, 3))
    starts = sorted({*range(0, 300, size), 100, 102})
    blocks = []
    for start, stop in zip(starts, [*starts[1:], 300], strict=True):
        late = 7 * (start >= 100)
        blocks.append(Block(x[start:stop], start in (0, 100, 102), None, start + late))
    return Recording("r", tuple(blocks))


@pytest.mark.parametrize("size", [1, 64])
@pytest.mark.parametrize("n_lags", [0, 2])
def test_moments_of_rows_and_columns_are_those_of_both(size, n_lags):
    recording, design = _one_recording(size), Design.linear(("a", "b", "c"), n_lags)
    runs = usable_runs(recording, n_lags)
    bases = [TimeBasis.over(nuisance, runs) for nuisance in (TREND, CYCLE)]
    found = joint_moments(design, recording, bases)
    chunks = list(design_rows(design, recording.blocks()))
    times = np.concatenate([chunk.time + np.arange(len(chunk.values)) for chunk in chunks])
    columns = np.concatenate([basis.at(times.astype(float)) for basis in bases], axis=1)
    rows = np.concatenate([chunk.values for chunk in chunks])
    expected = Moments.of_rows(np.hstack([rows, columns]))
    assert found.n == expected.n
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12, atol=1e-13)
    # What two bases have to do with each other is asked for by nobody, but it is there.
    np.testing.assert_allclose(
        found.scatter, expected.scatter, rtol=0, atol=1e-12 * np.abs(expected.scatter).max()
    )


@pytest.mark.parametrize("size", [7, 300])
def test_the_moments_as_they_are_have_the_same_bits_as_without_anything_tried(size):
    recording, design = _one_recording(size), Design.linear(("a", "b", "c"), 1)
    moments, grams = tried_grams(design, recording, [MEAN, TREND])
    plain = recording_gram(design, recording).moments
    np.testing.assert_array_equal(moments.mean, plain.mean)
    np.testing.assert_array_equal(moments.scatter, plain.scatter)
    own = recording_gram(Design.linear(("a", "b", "c"), 1, MEAN), recording)
    np.testing.assert_allclose(grams[0].scatter, own.scatter, rtol=1e-12)
    assert grams[0].n_removed == own.n_removed == 1
    assert grams[1].n_removed == 4


def test_a_design_that_is_not_linear_gives_the_same_as_least_squares():
    recording = _one_recording(50)
    terms = (Term(Basis(), (0, 1)), Term(Basis("bend"), (1,)))
    design = Design(("a", "b", "c"), terms)
    assert not design.is_linear
    gram = tried_grams(design, recording, [TREND])[1][0]
    chunks = list(design_rows(design, recording.blocks()))
    rows = np.concatenate([chunk.values for chunk in chunks])
    times = np.concatenate([chunk.time + np.arange(len(chunk.values)) for chunk in chunks])
    columns = np.vander((times - times.mean()) / 150, 4)
    left = rows - columns @ np.linalg.lstsq(columns, rows, rcond=None)[0]
    np.testing.assert_allclose(gram.scatter, left.T @ left, rtol=1e-8, atol=1e-9)


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
    read = Recording("r", tuple(Block(x[a:b], new, None, time) for a, b, new, time in cuts))
    found = [usable_runs(each, n_lags) for each in (complete_rows(_Knowing()), complete_rows(read))]
    assert found[0] == found[1]
    assert sum(n for _, n in found[0]) == sum(max(n - n_lags, 0) for n in (5000, 2, 4097))


PAIR = ("a", "b", "c")
KINDS = {
    "mean": Nuisance("recording"),
    "trend": Nuisance("recording", degree=1),
    "cubic": Nuisance("recording", degree=3),
    "cycle": Nuisance("recording", periods=(12.0, 6.0)),
    "both": Nuisance("recording", degree=2, periods=(7.5,)),
}
DESIGNS = {
    "linear": lambda nuisance: Design.linear(PAIR, 2, nuisance),
    "curved": lambda nuisance: Design.curved(PAIR, 1, Basis("curve"), nuisance),
}


def _timed_recordings(lengths=(60, 45, 80), seed=0) -> list[Recording]:
    rng = np.random.default_rng(seed)
    found = []
    for k, n in enumerate(lengths):
        t = np.arange(n)[:, None]
        x = rng.normal(size=(n, 3)) + 3 * rng.normal(size=3) + 0.1 * t * rng.normal(size=3)
        x += np.sin(2 * np.pi * t / 12 + rng.uniform(0, 6, size=3))
        found.append(Recording(f"r{k}", (Block(x),)))
    return found


def _columns(nuisance: Nuisance, t: np.ndarray) -> np.ndarray:
    """Nuisance columns written down naively: powers of time, sines and cosines."""
    powers = [(t / t.max()) ** k for k in range(nuisance.degree + 1)]
    waves = [f(2 * np.pi * t / period) for period in nuisance.periods for f in (np.sin, np.cos)]
    return np.column_stack([*powers, *waves])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", DESIGNS)
def test_residual_products_equal_those_of_pooled_least_squares_on_nuisance_dummies(kind, columns) -> None:
    design = DESIGNS[columns](KINDS[kind])
    recordings = _timed_recordings()
    gram = gram_of(design, recordings)
    residuals, rank = [], 0
    for recording in recordings:
        rows = np.concatenate([chunk.values for chunk in design_rows(design, recording.blocks())])
        B = _columns(KINDS[kind], design.n_lags + np.arange(len(rows), dtype=float))
        fit = sm.OLS(rows, B).fit()
        residuals.append(fit.resid)
        rank += np.linalg.matrix_rank(B)
    Z = np.concatenate(residuals)
    assert gram.n == len(Z)
    assert gram.n_removed == rank
    np.testing.assert_allclose(gram.scatter, Z.T @ Z, rtol=1e-9, atol=1e-9 * np.abs(Z.T @ Z).max())
    np.testing.assert_array_equal(gram.scatter, gram.scatter.T)


def test_a_trend_a_thousand_times_the_noise_leaves_the_noise() -> None:
    rng = np.random.default_rng(2)
    t = np.arange(200)[:, None]
    noise = rng.normal(size=(200, 3))
    plain = Recording("r", (Block(noise),))
    steep = Recording("r", (Block(noise + 10.0 * t + 1e4),))
    design = Design.linear(PAIR, 1, Nuisance("recording", degree=1))
    np.testing.assert_allclose(
        recording_gram(design, steep).scatter, recording_gram(design, plain).scatter, rtol=1e-7, atol=1e-6
    )


def test_time_passes_in_a_gap() -> None:
    t = np.arange(100.0)
    wave = np.column_stack([np.sin(2 * np.pi * t / 10 + phase) for phase in (0.0, 1.0, 2.0)])
    design = Design.linear(PAIR, 1, Nuisance("recording", degree=1, periods=(10.0,)))
    known = Recording("r", (Block(wave[:30], time=0), Block(wave[37:], time=37)))
    unknown = Recording("r", (Block(wave[:30]), Block(wave[37:])))
    assert np.abs(recording_gram(design, known).scatter).max() < 1e-10
    assert np.abs(recording_gram(design, unknown).scatter).max() > 1.0


@pytest.mark.parametrize("n", [1, 2, 4, 5])
def test_a_recording_too_short_for_its_nuisances_says_nothing(n) -> None:
    design = Design.linear(PAIR, 1, Nuisance("recording", degree=2, periods=(5.0,)))
    gram = recording_gram(design, _timed_recordings((n,))[0])
    assert gram.n == gram.n_removed == n - 1
    assert not gram.scatter.any()


def test_a_cycle_longer_than_the_recording_beside_a_cubic_loses_no_digits() -> None:
    nuisance = Nuisance("recording", degree=3, periods=(150.0,))
    recording = _timed_recordings((60,))[0]
    x = recording.segments[0].values
    residual = sm.OLS(x, _columns(nuisance, np.arange(60.0))).fit().resid
    gram = recording_gram(Design.linear(PAIR, 0, nuisance), recording)
    np.testing.assert_allclose(gram.scatter, residual.T @ residual, rtol=1e-10, atol=1e-10)
    assert gram.n_removed == 6


def test_a_cycle_of_two_steps_counts_once() -> None:
    gram = recording_gram(
        Design.linear(PAIR, 0, Nuisance("recording", periods=(2.0,))), _timed_recordings()[0]
    )
    assert gram.n_removed == 2  # its sine is zero at every row


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"scope": "site"}, "scope='site'"),
        ({"scope": "recording", "degree": 99}, "degree=99"),
        ({"scope": "recording", "periods": (5, 5)}, "periods=(5.0, 5.0)"),
        ({"scope": "all", "degree": 1}, "scope='all'"),
    ],
)
def test_an_impossible_nuisance_is_refused_by_name(arguments, name) -> None:
    with refused(ParameterError, name):
        Nuisance(**arguments)


@pytest.mark.parametrize("length", [20, 55])
@pytest.mark.parametrize(
    "nuisance", [Nuisance("recording"), Nuisance("recording", 3), Nuisance("recording", 1, (12.0,))]
)
def test_what_nuisances_take_along_of_a_series_is_put_back(nuisance, length):
    """Against the exact covariance of all values of a recording of a VAR(1), projected off the nuisances."""
    A = np.array([[0.6, 0.2, 0.0], [0.0, 0.5, 0.3], [0.0, 0.0, -0.4]])
    noise = np.array([[1.0, 0.4, 0.0], [0.4, 2.0, 0.3], [0.0, 0.3, 0.5]])
    C0 = scipy.linalg.solve_discrete_lyapunov(A.T, noise)

    def ahead(h):
        return C0 @ np.linalg.matrix_power(A, h) if h >= 0 else ahead(-h).T

    # Rows are [x_t, x_{t-1}]; the covariance of row s with row t in blocks.
    def rows(s, t):
        h = t - s
        return np.block([[ahead(h), ahead(h - 1)], [ahead(h + 1), ahead(h)]])

    basis = nuisance_basis(nuisance, np.arange(length, dtype=float))
    off = np.eye(length) - basis @ np.linalg.pinv(basis)
    left = sum(off[s, t] * rows(s, t) for s in range(length) for t in range(length)) / length
    found = restored(left, 3, nuisance, length)
    weights = [np.linalg.solve(G[3:, 3:], G[3:, :3]) for G in (left, found)]
    assert np.abs(weights[0] - A).max() > 0.02
    np.testing.assert_allclose(weights[1], A, atol=2e-3)
    np.testing.assert_allclose(found, rows(0, 0), atol=0.02)


def test_units_do_not_change_what_is_put_back():
    rng = np.random.default_rng(3)
    Z = rng.standard_normal((300, 4)) @ rng.standard_normal((4, 4))
    left, scale = Z.T @ Z / 300, np.tile([1e4, 1e-3], 2)
    found = restored(left, 2, Nuisance("recording"), 30)
    scaled = restored(left * np.outer(scale, scale), 2, Nuisance("recording"), 30)
    np.testing.assert_allclose(scaled, found * np.outer(scale, scale), rtol=1e-9)


def test_rows_that_share_one_mean_and_recordings_as_long_as_their_nuisances_stay():
    left = np.eye(4)
    assert restored(left, 2, Nuisance(), 30) is left
    assert restored(left, 2, Nuisance("recording", 3), 4) is left


def test_a_memory_as_long_as_recordings_is_not_put_back_without_end():
    """Random walks within recordings of 60 rows: levels and the series cannot be told apart."""
    rng = np.random.default_rng(0)
    total, nuisance = 0.0, Nuisance("recording", 3)
    basis = np.linalg.qr(nuisance_basis(nuisance, np.arange(60.0)))[0]
    for _ in range(100):
        x = np.cumsum(rng.standard_normal((61, 2)), axis=0)
        Z = np.hstack([x[1:], x[:-1]])
        Z -= basis @ (basis.T @ Z)
        total = total + Z.T @ Z / 6000
    found = restored(total, 2, nuisance, 60)
    assert np.linalg.eigvalsh(found).min() > 0
    assert np.diag(found).max() < 6 * np.diag(total).max()
    # Without lags nothing is known of a memory: what is missing are degrees of freedom.
    np.testing.assert_allclose(
        restored(total[:2, :2], 2, nuisance, 60), total[:2, :2] / (1 - 4 / 60), rtol=1e-3
    )
