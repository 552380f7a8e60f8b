"""Missing cells at the end of a history: against the exact filter of a linear network and against integration."""

from collections.abc import Callable

import numpy as np
import pytest

from feddbn.errors import CurvesWarning
from feddbn.model.curves import Curve
from feddbn.model.dbn import DBN

CurvedDBN = Callable[..., DBN]


@pytest.mark.parametrize(
    "gaps", [[(29, 1)], [(27, 0), (28, 0), (29, 0), (29, 2)], [(28, slice(None)), (29, slice(None))]]
)
def test_zero_curves_give_what_the_exact_filter_gives(
    curved_dbn: CurvedDBN, gaps: list[tuple[int, int]]
) -> None:
    dbn = curved_dbn(zero=True)
    line = DBN(dbn.W, dbn.A, dbn.variables, dbn.intercept, dbn.noise_variances)
    history = line.simulate(30, random_state=1).to_numpy().copy()
    for row, column in gaps:
        history[row, column] = np.nan
    n = 20_000
    ours, exact = dbn.forecast(history, 4, random_state=0, n_paths=n), line.forecast(history, 4)
    assert ours.n_inferred == exact.n_inferred > 0
    # Copies of the same draw are not independent: allow for a tenth as many.
    assert np.all(np.abs(ours.mean - exact.mean) < 4.5 * exact.sd / np.sqrt(n / 10))
    np.testing.assert_allclose(ours.sd, exact.sd, rtol=0.05)


@pytest.mark.slow
def test_no_complete_row_anywhere_starts_where_the_process_usually_is(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn(zero=True)
    line = DBN(dbn.W, dbn.A, dbn.variables, dbn.intercept, dbn.noise_variances)
    history = line.simulate(30, random_state=2).to_numpy().copy()
    history[::2, 0] = history[1::2, 3] = np.nan
    ours, exact = dbn.forecast(history, 3, random_state=0, n_paths=20_000), line.forecast(history, 3)
    assert np.all(np.abs(ours.mean - exact.mean) < 4.5 * exact.sd / np.sqrt(2000))


def test_a_cause_is_inferred_from_its_curved_effect_as_by_integration() -> None:
    A = np.diag([0.5, 0.0])[None]
    hill = Curve(0, 1, 0, 0.0, 1.0, (1.0,), "quadratic")
    dbn = DBN(np.zeros((2, 2)), A, ["a", "b"], noise_variances=np.array([1.0, 0.25]), curves=[hill])
    history = np.array([[1.0, 0.0], [np.nan, 1.5]])
    found = dbn.forecast(history, 1, random_state=0, n_paths=40_000)
    # a ~ N(0.5, 1), b = hill(a) + noise of variance 0.25 and was 1.5; next a is half of it plus noise.
    a = np.linspace(-6, 7, 20_001)
    density = np.exp(-((a - 0.5) ** 2) / 2 - (1.5 - hill.at(a)) ** 2 / 0.5)
    density /= density.sum()
    mean = density @ a
    variance = density @ (a - mean) ** 2
    assert found.n_inferred == 1
    assert found.mean["a"].item() == pytest.approx(0.5 * mean, abs=0.03)
    assert found.sd["a"].item() == pytest.approx(np.sqrt(0.25 * variance + 1.0), rel=0.02)
    # Two hills: far more spread than the noise alone.
    assert variance > 1.0


def test_the_same_seed_gives_the_same_draws_and_effects_take_such_a_history(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn()
    history = dbn.simulate(20, random_state=0).to_numpy().copy()
    history[-1, 2] = np.nan
    one, two = (dbn.forecast(history, 2, 0.9, random_state=4).to_frame() for _ in range(2))
    np.testing.assert_array_equal(one.drop(columns="variable"), two.drop(columns="variable"))
    assert dbn.effects("a", "c", 2, history=history, random_state=0)["total"].abs().max() > 0


def test_cells_that_hardly_any_path_explains_are_warned_of(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn()
    history = dbn.simulate(40, random_state=0).to_numpy().copy()
    history[-2:, 0] = np.nan
    history[-2:, 1] = 60.0
    with (
        pytest.warns(CurvesWarning, match="few"),
        pytest.warns(CurvesWarning, match="beyond"),
    ):
        dbn.forecast(history, 1, random_state=0)
