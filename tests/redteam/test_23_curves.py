"""Smooth functions of rows: a server cannot make steps of them, aim them at few rows, or ask for others than the study's."""

import numpy as np
import pytest

from feddbn.core.designs.design import are_public_units, public_units
from feddbn.errors import ProtocolError
from feddbn.federation.programs.curved import CurvedMomentsQuestion
from feddbn.federation.protocol.messages import WITHHELD
from feddbn.runtime.deployed.kit_files import default_policy_text
from support.rig import Refused, Rig, Server, raw
from support.saying import refused as says_no

D = 2


def make_rig(place):
    rng = np.random.default_rng(0)
    data = {f"s{i}": [rng.normal(size=(400, D))] for i in range(3)}
    text = default_policy_text()
    text = text.replace('features = ["linear"]', 'features = ["linear", "spline", "quadratic"]')
    text = text.replace('"residual-checks"', '"residual-checks", "curved-moments", "curved-checks"')
    return Rig(place, data, text)


def curved(rig, origin=0.0, scale=1.0, basis="curve", **more):
    params = {"n_lags": 1, "variables": rig.variables, "basis": basis, **more}
    return raw("curved-moments", params, {"origin": np.full(D, origin), "scale": np.full(D, scale)})


def malformed(server, task, why):
    """Refused for what it is, whatever the data are: that may be said."""
    with pytest.raises(Refused) as caught:
        server.sum(task)
    assert all(why in one for one in caught.value.told.values())


def refused(server, task, why):
    """Refused for what data or rules say: the server hears one sentence, the owner reads why."""
    with pytest.raises(Refused) as caught:
        server.sum(task)
    assert {one.partition("refused: ")[2] for one in caught.value.told.values()} == {WITHHELD}
    assert why in server.rig.notes("s0", server.run)[-1]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"scale": 2.0**-20}, "a variable has a standard deviation of"),
        ({"scale": 2.0**-3}, "a variable has a standard deviation of"),
        ({"origin": 4.0}, "a variable has a mean that is off of"),
        ({"basis": "bend"}, "its functions are 'bend'"),
        ({"basis": "spline"}, "its functions are 'spline'"),
        ({"products": [0, 1, 1]}, "it multiplies variables"),
        ({"n_lags": 3}, "n_lags is 3"),
    ],
)
def test_functions_are_the_studys_smooth_and_where_the_rows_are(tmp_path, changes, why):
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("oneshot", {"features": "spline"}))
    refused(server, curved(rig, **changes), why)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"origin": 0.01}, "must be on the public grid"),
        ({"scale": 1.01}, "must be on the public grid"),
        ({"products": [0, 1]}, "'products' must be (first, second, lag)"),
        ({"products": [0, 1, 5]}, "'products' reach 5 rows back"),
        ({"basis": "unheard-of"}, "no feature map is named 'unheard-of' here"),
    ],
)
def test_a_question_that_cannot_be_is_none(tmp_path, changes, why):
    rig = make_rig(tmp_path)
    malformed(Server(rig, rig.study("oneshot", {"features": "spline"})), curved(rig, **changes), why)


def test_an_honest_question_is_answered_and_few_others_after_it(tmp_path):
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("oneshot", {"features": "spline"}))
    q = 2 * D * 7
    assert server.sum(curved(rig)).value.size == 1 + q + q * (q + 1) // 2
    server.sum(curved(rig, origin=0.125))
    refused(server, curved(rig, origin=0.25), "functions of rows")


def test_a_study_of_straight_lines_answers_none(tmp_path):
    rig = make_rig(tmp_path)
    refused(
        Server(rig, rig.study("oneshot")), curved(rig), "the study does not ask for the task 'curved-moments'"
    )


def test_squares_and_cubes_of_a_residual_check_are_held_to_the_same_units(tmp_path):
    rig = make_rig(tmp_path)
    C = np.zeros((2 * D, D))
    C[:D] = np.eye(D)

    def checks(origin, scale):
        arrays = {"coefficients": C, "offset": np.zeros(D), "units": [[origin] * D, [scale] * D]}
        return raw("residual-checks", {"n_lags": 1, "variables": rig.variables}, arrays)

    Server(rig, rig.study("oneshot"), "honest").sum(checks(0.0, 1.0))
    refused(Server(rig, rig.study("oneshot"), "steep"), checks(0.0, 2.0**-8), "a standard deviation of")
    refused(Server(rig, rig.study("oneshot"), "far"), checks(5.0, 1.0), "a mean that is off of")
    malformed(Server(rig, rig.study("oneshot"), "fine"), checks(0.003, 1.0), "must be on the public grid")


def test_units_on_the_grid_are_near_mean_and_standard_deviation():
    rng = np.random.default_rng(0)
    mean, sd = rng.normal(size=200) * 10.0 ** rng.integers(-6, 6, 200), 10.0 ** rng.uniform(-6, 6, 200)
    origin, scale = public_units(mean, sd)
    assert are_public_units(origin, scale)
    assert (np.abs(np.log2(scale / sd)) <= 1 / 8 + 1e-12).all()
    assert (np.abs(origin - mean) <= scale / 16 * (1 + 1e-9)).all()
    assert not are_public_units(origin + 0.03 * scale, scale)
    assert not are_public_units(origin, -scale)
    with says_no(ProtocolError, code="bad-question"):
        CurvedMomentsQuestion(
            n_lags=1, variables=("a",), basis="curve", origin=np.zeros(1), scale=np.array([1.1])
        )
