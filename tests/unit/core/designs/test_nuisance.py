"""Means, trends and cycles: what is taken off equals what least squares would have explained."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm

from feddbn.core.designs.design import Basis, Design, design_rows
from feddbn.core.designs.gram import recording_gram
from feddbn.core.designs.nuisance import Nuisance, is_baseline
from feddbn.core.designs.recordings import Block
from feddbn.data.memory import ArrayRecording
from feddbn.errors import DataError, ParameterError
from support.saying import refused
from support.simulated_moments import gram_of

NAMES = ("a", "b", "c")
KINDS = {
    "mean": Nuisance("recording"),
    "trend": Nuisance("recording", degree=1),
    "cubic": Nuisance("recording", degree=3),
    "cycle": Nuisance("recording", periods=(12.0, 6.0)),
    "both": Nuisance("recording", degree=2, periods=(7.5,)),
}
DESIGNS = {
    "linear": lambda nuisance: Design.linear(NAMES, 2, nuisance),
    "spline": lambda nuisance: Design.features(NAMES, 1, Basis("spline", smoothing=0.6), nuisance),
}


def _recordings(lengths=(60, 45, 80), seed=0) -> list[ArrayRecording]:
    rng = np.random.default_rng(seed)
    found = []
    for k, n in enumerate(lengths):
        t = np.arange(n)[:, None]
        x = rng.normal(size=(n, 3)) + 3 * rng.normal(size=3) + 0.1 * t * rng.normal(size=3)
        x += np.sin(2 * np.pi * t / 12 + rng.uniform(0, 6, size=3))
        found.append(ArrayRecording(f"r{k}", (Block(x),)))
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
    recordings = _recordings()
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
    assert gram.n_nuisance == gram.n_removed == rank
    np.testing.assert_allclose(gram.scatter, Z.T @ Z, rtol=1e-9, atol=1e-9 * np.abs(Z.T @ Z).max())
    np.testing.assert_array_equal(gram.scatter, gram.scatter.T)


@pytest.mark.parametrize("kind", KINDS)
def test_effects_after_projection_are_those_of_the_regression_with_everything_in_it(kind) -> None:
    design = Design.linear(NAMES, 1, KINDS[kind])
    recordings = _recordings(seed=1)
    gram = gram_of(design, recordings)
    parents = [1, 2, 3, 4, 5]
    found = np.linalg.solve(gram.scatter[np.ix_(parents, parents)], gram.scatter[parents, 0])
    rows, blocks = [], []
    for recording in recordings:
        z = np.concatenate([chunk.values for chunk in design_rows(design, recording.blocks())])
        rows.append(z)
        blocks.append(_columns(KINDS[kind], 1.0 + np.arange(len(z))))
    Z = np.concatenate(rows)
    dummies = np.zeros((len(Z), sum(B.shape[1] for B in blocks)))
    row = column = 0
    for B in blocks:
        dummies[row : row + len(B), column : column + B.shape[1]] = B
        row, column = row + len(B), column + B.shape[1]
    full = sm.OLS(Z[:, 0], np.column_stack([Z[:, parents], dummies])).fit()
    np.testing.assert_allclose(found, full.params[: len(parents)], rtol=1e-8, atol=1e-10)
    rss = gram.scatter[0, 0] - gram.scatter[parents, 0] @ found
    np.testing.assert_allclose(rss / (gram.n - gram.n_nuisance - len(parents)), full.mse_resid, rtol=1e-8)


def test_degree_zero_is_exactly_centring() -> None:
    recordings = _recordings()
    explicit = gram_of(Design.linear(NAMES, 2, Nuisance("recording", degree=0, periods=())), recordings)
    centred = [ArrayRecording(r.name, (Block(r.segments[0].values),)) for r in recordings]
    total = np.zeros((9, 9))
    for recording in centred:
        x = recording.segments[0].values
        z = np.column_stack([x[2:], x[1:-1], x[:-2]])
        z = z - z.mean(axis=0)
        total += z.T @ z
    np.testing.assert_allclose(explicit.scatter, total, rtol=1e-10, atol=1e-10)
    assert explicit.n_removed == 3


def test_a_trend_a_thousand_times_the_noise_leaves_the_noise() -> None:
    rng = np.random.default_rng(2)
    t = np.arange(200)[:, None]
    noise = rng.normal(size=(200, 3))
    plain = ArrayRecording("r", (Block(noise),))
    steep = ArrayRecording("r", (Block(noise + 10.0 * t + 1e4),))
    design = Design.linear(NAMES, 1, Nuisance("recording", degree=1))
    np.testing.assert_allclose(
        recording_gram(design, steep).scatter, recording_gram(design, plain).scatter, rtol=1e-7, atol=1e-6
    )


def test_time_passes_in_a_gap() -> None:
    t = np.arange(100.0)
    wave = np.column_stack([np.sin(2 * np.pi * t / 10 + phase) for phase in (0.0, 1.0, 2.0)])
    design = Design.linear(NAMES, 1, Nuisance("recording", degree=1, periods=(10.0,)))
    known = ArrayRecording("r", (Block(wave[:30], time=0), Block(wave[37:], time=37)))
    unknown = ArrayRecording("r", (Block(wave[:30]), Block(wave[37:])))
    assert np.abs(recording_gram(design, known).scatter).max() < 1e-10
    assert np.abs(recording_gram(design, unknown).scatter).max() > 1.0


@pytest.mark.parametrize("n", [1, 2, 4, 5])
def test_a_recording_too_short_for_its_nuisances_says_nothing(n) -> None:
    design = Design.linear(NAMES, 1, Nuisance("recording", degree=2, periods=(5.0,)))
    gram = recording_gram(design, _recordings((n,))[0])
    assert gram.n == gram.n_removed == n - 1
    assert not gram.scatter.any()


def test_a_cycle_longer_than_the_recording_beside_a_cubic_loses_no_digits() -> None:
    nuisance = Nuisance("recording", degree=3, periods=(150.0,))
    recording = _recordings((60,))[0]
    x = recording.segments[0].values
    residual = sm.OLS(x, _columns(nuisance, np.arange(60.0))).fit().resid
    gram = recording_gram(Design.linear(NAMES, 0, nuisance), recording)
    np.testing.assert_allclose(gram.scatter, residual.T @ residual, rtol=1e-10, atol=1e-10)
    assert gram.n_removed == 6


def test_a_cycle_of_two_steps_counts_once() -> None:
    gram = recording_gram(Design.linear(NAMES, 0, Nuisance("recording", periods=(2.0,))), _recordings()[0])
    assert gram.n_removed == 2  # its sine is zero at every row


def test_rows_of_a_label_are_centred_on_their_own() -> None:
    rng = np.random.default_rng(3)
    x, y, labels = rng.normal(size=(30, 3)), rng.normal(size=(30, 3)), np.repeat(["", "tone", "light"], 10)
    design = Design.linear(NAMES, 0, Nuisance("label"))
    recordings = [
        ArrayRecording("r", (Block(y + 5, labels=labels),)),
        ArrayRecording("s", (Block(x, labels=labels),)),
    ]
    gram = gram_of(design, recordings)
    parts = [z[labels == name] for name in ("tone", "light") for z in (x, y)]
    parts.append(np.concatenate([x[:10], y[:10] + 5]))
    expected = sum((part - part.mean(axis=0)).T @ (part - part.mean(axis=0)) for part in parts)
    np.testing.assert_allclose(gram.scatter, expected, atol=1e-10)
    assert (gram.n, gram.n_removed, gram.n_nuisance, gram.shared.n) == (60, 4, 5, 20)
    other = gram_of(Design.linear(NAMES, 0, Nuisance("label", baseline="tone")), recordings)
    assert other.shared.n == 20
    assert not np.allclose(other.scatter, gram.scatter)


def test_a_recording_without_labels_cannot_be_centred_by_them() -> None:
    with refused(DataError, "'r0'", "label"):
        recording_gram(Design.linear(NAMES, 0, Nuisance("label")), _recordings()[0])


def test_falsy_and_missing_labels_are_the_baseline():
    assert is_baseline(np.array([0, 1, 2])).tolist() == [True, False, False]
    assert is_baseline(np.array([0.0, np.nan, 3.0])).tolist() == [True, True, False]
    assert is_baseline(np.array(["", "drug"])).tolist() == [True, False]
    assert is_baseline(np.array([None, False, "x", ""], dtype=object)).tolist() == [True, True, False, True]
    assert is_baseline(np.array(["off", "on"]), "off").tolist() == [True, False]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"scope": "site"}, "scope='site'"),
        ({"scope": "recording", "degree": 99}, "degree=99"),
        ({"scope": "recording", "degree": True}, "degree=True"),
        ({"scope": "recording", "periods": (1.0,)}, "periods=(1.0,)"),
        ({"scope": "recording", "periods": (np.inf,)}, "periods=(inf,)"),
        ({"scope": "recording", "periods": 24}, "periods=24"),
        ({"scope": "recording", "periods": (None,)}, "periods=(None,)"),
        ({"scope": "recording", "periods": (5, 5)}, "periods=(5.0, 5.0)"),
        ({"scope": "all", "degree": 1}, "scope='all'"),
        ({"baseline": "rest"}, "baseline='rest'"),
        ({"scope": "label", "baseline": float("nan")}, "baseline=nan"),
    ],
)
def test_an_impossible_nuisance_is_refused_by_name(arguments, name) -> None:
    with refused(ParameterError, name):
        Nuisance(**arguments)
