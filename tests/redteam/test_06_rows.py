"""Single rows out of sums of nonlinear functions: server-chosen projections must not read them."""

import numpy as np
import pytest

from feddbn.core.orders.nongaussian import N_FEATURES
from feddbn.privacy.policy import SitePolicy
from support.rig import Rig, Server, listing, raw

pytestmark = pytest.mark.usefixtures("light")

N_ROWS, D = 60, 2
LISTED = listing("residuals.shapes")


def make_rig(place, policy=None):
    rng = np.random.default_rng(5)
    data = {f"s{i}": [(1 + i) * rng.normal(size=(N_ROWS, D)) + i] for i in range(3)}
    return Rig(place, data, policy)


def projections(rig, direction, offsets, scale=1.0, name="residuals.shapes"):
    """Sums of functions of ``scale (z @ direction - offset)`` for many offsets at once."""
    coefficients = scale * np.repeat(np.asarray(direction, dtype=float)[:, None], len(offsets), axis=1)
    return raw(
        name,
        {"n_lags": 0, "variables": rig.variables, "shapes": name == "residuals.shapes"},
        {"coefficients": coefficients, "offset": scale * np.asarray(offsets, dtype=float)},
    )


def test_the_default_policy_and_a_study_that_does_not_say_so_refuse_nonlinear_maps(tmp_path):
    assert "residuals.shapes" not in SitePolicy().tasks
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study(parameters={"n_lags": 0}))
    server.refused(projections(rig, [1, 0], [0.0]), "tasks-not-allowed", "residuals.shapes")


def test_an_owner_who_lists_it_answers_only_studies_that_say_so(tmp_path):
    rig = make_rig(tmp_path, LISTED)
    server = Server(rig, rig.study(parameters={"n_lags": 0}))
    server.refused(projections(rig, [1, 0], [0.0]), "task-not-in-study", "residuals.shapes")


@pytest.mark.parametrize(
    ("offsets", "scale", "code", "numbers"),
    [
        (np.linspace(-4, 4, 40_000), 1.0, "few-rows-per-parameter", (60, 40_000)),
        (np.linspace(-4, 4, 21), 1e-3, "few-rows-per-parameter", (60, 21)),
        ([0.0], 500.0, "steep-residuals", ()),
        ([9.0], 1.0, "far-residuals", ()),
    ],
)
def test_many_or_steep_projections_are_refused(tmp_path, offsets, scale, code, numbers):
    rig = make_rig(tmp_path, LISTED)
    server = Server(rig, rig.study(parameters={"n_lags": 0, "use_nongaussian": "auto"}))
    server.refused(projections(rig, [1, 0], offsets, scale), code, *numbers)


def test_projections_add_up_over_a_run_and_over_greetings(tmp_path):
    rig = make_rig(tmp_path, LISTED)
    server = Server(rig, rig.study(parameters={"n_lags": 0, "use_nongaussian": "auto"}))
    server.sum(projections(rig, [1, 0], np.linspace(0, 3, 10)))
    server.again()
    for name in rig.names:
        rig.restart(name)
    server.again()
    server.refused(projections(rig, [1, 0], np.linspace(0, 3, 11)), "few-rows-per-parameter", 60, 21)


def read_values(offsets, scale, bumps):
    """Values at which the sums of ``u exp(-u^2 / 2)`` are those of one row alone: they cross zero there, as it does."""
    found = []
    for k in np.flatnonzero((bumps[:-1] > 0) & (bumps[1:] <= 0)):
        place = offsets[k] + (offsets[k + 1] - offsets[k]) * bumps[k] / (bumps[k] - bumps[k + 1])
        u = scale * (place - offsets)
        near = np.abs(u) < 3
        if near.sum() > 4 and np.abs(u * np.exp(-(u**2) / 2) - bumps)[near].max() < 0.1:
            found.append(place)
    return np.array(found)


def bumps_of(values, offsets, scale):
    u = scale * (values[:, None] - offsets)
    return (u * np.exp(-(u**2) / 2)).sum(axis=0)


def test_what_is_allowed_reads_no_row(tmp_path):
    rig = make_rig(tmp_path, LISTED)
    server = Server(rig, rig.study(parameters={"n_lags": 0, "use_nongaussian": "auto"}))
    values = np.concatenate([rig.data[name][0][:, 0] for name in rig.names])
    # The attack works: with steep projections, and many of them, it reads most of the rows.
    fine = np.linspace(values.min() - 0.1, values.max() + 0.1, 40_000)
    found = read_values(fine, 600.0, bumps_of(values, fine, 600.0))
    assert len(found) > 90
    assert np.median(np.abs(found[:, None] - values).min(axis=1)) < 1e-4
    # As many and as steep as sites answer: the site that varies most, with standard deviation 3, allows 3.
    offsets, scale = np.linspace(0.0, 1.5, 12), 3.0
    answer = server.sum(projections(rig, [1, 0], offsets, scale)).value
    bumps = answer[1:].reshape(N_FEATURES, -1)[1]
    np.testing.assert_allclose(bumps, bumps_of(values, offsets, scale), atol=1e-6)
    assert not len(read_values(offsets, scale, bumps))


def test_residual_checks_are_not_a_way_around(tmp_path):
    rig = make_rig(tmp_path / "steep")
    params = {"n_lags": 1, "variables": rig.variables}

    def steps(scale, offset):
        return raw(
            "residuals.checks",
            params,
            {"coefficients": scale * np.eye(4)[:, :2], "offset": np.full(2, scale * offset)},
        )

    Server(rig, rig.study()).refused(steps(1e6, 0.0), "steep-residuals")
    rig = make_rig(tmp_path / "many")
    server = Server(rig, rig.study())
    for k in range(3):
        server.sum(steps(1.0, k / 10))
    server.refused(steps(1.0, 0.55), "beyond-plan", "residuals.checks")
