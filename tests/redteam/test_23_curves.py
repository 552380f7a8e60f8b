"""Smooth functions of rows: a server cannot make steps of them, aim them at few rows, or ask for others than the study's."""

import numpy as np
import pytest

from feddbn.core.designs.design import are_public_units, public_units
from feddbn.errors import ProtocolError
from feddbn.federation.sums.gram import GramQuestion
from support.rig import Rig, Server, listing, raw
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")

D = 2


def make_rig(place):
    rng = np.random.default_rng(0)
    data = {f"s{i}": [rng.normal(size=(400, D))] for i in range(3)}
    return Rig(
        place, data, listing("gram.functions", "residuals.functions", features=("spline", "quadratic"))
    )


def curved(rig, origin=0.0, scale=1.0, basis="curve", **more):
    params = {"n_lags": 1, "variables": rig.variables, "functions": basis, **more}
    return raw(
        "gram.functions", params, {"function_origin": np.full(D, origin), "function_scale": np.full(D, scale)}
    )


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"scale": 2.0**-20}, "steep-functions"),
        ({"scale": 2.0**-3}, "steep-functions"),
        ({"origin": 4.0}, "far-functions"),
        ({"basis": "bend"}, "other-functions"),
        ({"basis": "spline"}, "other-functions"),
        ({"products": [0, 1, 1]}, "other-functions"),
        ({"n_lags": 3}, "other-lags"),
    ],
)
def test_functions_are_the_studys_smooth_and_where_the_rows_are(tmp_path, changes, code):
    rig = make_rig(tmp_path)
    Server(rig, rig.study("oneshot", {"features": "spline"})).refused(curved(rig, **changes), code)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"origin": 0.01}, "public grid"),
        ({"scale": 1.01}, "public grid"),
        ({"products": [0, 1]}, "'products'"),
        ({"products": [0, 1, 5]}, "'products' reach 5"),
        ({"basis": "unheard-of"}, "'unheard-of'"),
    ],
)
def test_a_question_that_cannot_be_is_none(tmp_path, changes, name):
    rig = make_rig(tmp_path)
    Server(rig, rig.study("oneshot", {"features": "spline"})).malformed(curved(rig, **changes), name)


def test_an_honest_question_is_answered_and_no_other_after_it(tmp_path):
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("oneshot", {"features": "spline"}))
    q = 2 * D * 7
    assert server.sum(curved(rig)).value.size == 1 + q + q * (q + 1) // 2
    server.refused(curved(rig, origin=0.125), "beyond-plan", "gram.functions")


def test_a_study_of_straight_lines_answers_none(tmp_path):
    rig = make_rig(tmp_path)
    Server(rig, rig.study("oneshot")).refused(curved(rig), "task-not-in-study", "gram.functions")


def test_squares_and_cubes_of_a_residual_check_are_held_to_the_same_units(tmp_path):
    rig = make_rig(tmp_path)
    C = np.zeros((2 * D, D))
    C[:D] = np.eye(D)

    def checks(origin, scale):
        arrays = {"coefficients": C, "offset": np.zeros(D), "units": [[origin] * D, [scale] * D]}
        return raw("residuals.checks", {"n_lags": 1, "variables": rig.variables}, arrays)

    Server(rig, rig.study("oneshot"), "honest").sum(checks(0.0, 1.0))
    Server(rig, rig.study("oneshot"), "steep").refused(checks(0.0, 2.0**-8), "steep-functions")
    Server(rig, rig.study("oneshot"), "far").refused(checks(5.0, 1.0), "far-functions")
    Server(rig, rig.study("oneshot"), "fine").malformed(checks(0.003, 1.0), "'units'")


def test_units_on_the_grid_are_near_mean_and_standard_deviation():
    rng = np.random.default_rng(0)
    mean, sd = rng.normal(size=200) * 10.0 ** rng.integers(-6, 6, 200), 10.0 ** rng.uniform(-6, 6, 200)
    origin, scale = public_units(mean, sd)
    assert are_public_units(origin, scale)
    assert (np.abs(np.log2(scale / sd)) <= 1 / 8 + 1e-12).all()
    assert (np.abs(origin - mean) <= scale / 16 * (1 + 1e-9)).all()
    assert not are_public_units(origin + 0.03 * scale, scale)
    assert not are_public_units(origin, -scale)
    with refused(ProtocolError, code="bad-question"):
        GramQuestion(
            n_lags=1,
            variables=("a",),
            functions="curve",
            function_origin=np.zeros(1),
            function_scale=np.array([1.1]),
        )
