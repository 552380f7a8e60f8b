"""Effects that depend on the value, against the equations and against the linear network."""

from collections.abc import Callable

import numpy as np
import pytest

from feddbn.errors import CurvesWarning, ParameterError
from feddbn.model.curves import Curve
from feddbn.model.dbn import DBN

CurvedDBN = Callable[..., DBN]


def chain() -> DBN:
    """a -> b within the moment with a curve, b -> c a step later, straight."""
    W, A = np.zeros((3, 3)), np.zeros((1, 3, 3))
    W[0, 1], A[0, 1, 2], A[0, 2, 2] = 0.5, 0.8, 0.5
    return DBN(W, A, list("abc"), curves=[Curve(0, 1, 0, 1.0, 2.0, (0.6, 0.3))])


def test_along_a_chain_the_effect_is_the_difference_of_the_curve_times_the_weights() -> None:
    dbn = chain()
    difference = float(np.diff(dbn.effect("a", "b", 0).at([2.0, 3.5]))[0])
    table = dbn.effects("a", "c", 4, at=2.0, by=1.5, random_state=0)
    assert table["at"].tolist() == [2.0] * 5
    assert table["by"].tolist() == [1.5] * 5
    expected = difference * 0.8 * np.array([0.0, 1.0, 0.5, 0.25, 0.125])
    np.testing.assert_allclose(table["total"], expected, atol=1e-12)
    np.testing.assert_allclose(table["cumulative"], np.cumsum(expected), atol=1e-12)
    np.testing.assert_allclose(table["error"], 0.0, atol=1e-12)
    default = dbn.effects("a", "b", 0, random_state=0)
    assert (default["at"][0], default["by"][0]) == (1.0, 2.0)
    assert default["total"][0] == pytest.approx(float(dbn.effect("a", "b", 0).at(3.0)))


def test_zero_curves_give_the_effects_of_the_linear_network(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn(zero=True)
    line = DBN(dbn.W, dbn.A, dbn.variables, dbn.intercept, dbn.noise_variances)
    ours = dbn.effects("a", "c", 5, at=0.3, by=0.7, random_state=1)
    theirs = line.effects("a", "c", 5, at=0.3, by=0.7)
    np.testing.assert_allclose(ours["total"], theirs["total"], atol=1e-12)
    np.testing.assert_allclose(theirs["total"], 0.7 * line.effects("a", "c", 5)["total"])
    assert list(theirs.columns[:3]) == ["horizon", "at", "by"]
    assert list(line.effects("a", "c", 5).columns) == ["horizon", "total", "direct", "mediated", "cumulative"]


def test_the_effect_at_a_value_is_that_of_brute_force_with_other_noise(curved_dbn: CurvedDBN) -> None:
    dbn, n = curved_dbn(), 4000
    history = np.random.default_rng(0).normal(size=(2, 4))
    found = dbn.effects("b", "d", 3, at=-1.0, by=2.0, history=history, n_paths=n, random_state=3)
    held = {"b": [1.0, np.nan, np.nan, np.nan]}, {"b": [-1.0, np.nan, np.nan, np.nan]}
    high, low = (
        dbn.do(one, history, 4, random_state=seed, n_paths=n).mean for seed, one in enumerate(held, 10)
    )
    sd = dbn.forecast(history, 4, random_state=0).sd["d"].to_numpy()
    np.testing.assert_allclose(found["total"], (high - low)["d"], atol=4.5 * np.max(sd) * np.sqrt(2 / n))
    assert (found["error"] < 0.1).all()


def test_usual_starts_and_the_same_seed_give_the_same_bits(curved_dbn: CurvedDBN) -> None:
    one, two = (curved_dbn().effects("d", "a", 4, random_state=5) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert one["total"].abs().max() > 5 * one["error"].max() > 0


def test_values_beyond_the_range_seen_are_warned_of() -> None:
    with pytest.warns(CurvesWarning, match="'a'.*1.*9.*-3.8.*5.8"):
        chain().effects("a", "b", 0, by=8.0, random_state=0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m: m.effects("a", "c", 3, at="low"), "'low'"),
        (lambda m: m.effects("a", "c", 3, ["b"]), "mediators"),
        (
            lambda m: m.total_effects(3),
            "total_effects",
        ),
        (lambda m: m.mediated_effects(None, 3), "mediated_effects"),
        (lambda m: m.impulse_responses(3), "effects"),
        (lambda m: m.fevd(3), "linear"),
        (lambda m: m.spectral_radius, "spectral"),
        (lambda m: m.is_stationary, "spectral"),
        (lambda m: m.reduced_intercept, "reduced"),
        (lambda m: m.to_lingam(), r"dbn\.to_json"),
        (lambda m: m.to_tigramite(), "tigramite"),
    ],
)
def test_what_only_linear_networks_have_is_refused(call: Callable[[DBN], object], sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        call(chain())


def test_a_linear_network_refuses_values_that_are_no_numbers(random_dbn: Callable[..., DBN]) -> None:
    with pytest.raises(ParameterError, match="finite"):
        random_dbn(0).effects("v0", "v1", 3, by=float("nan"))
