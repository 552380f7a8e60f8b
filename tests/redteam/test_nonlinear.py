"""Sums of functions of rows: a server cannot make steps of them, aim them at few rows, or ask for others than the study's."""

import numpy as np
import pytest

from feddbn.core.designs.design import are_public_units, public_units
from feddbn.core.orders.nongaussian import N_FEATURES
from feddbn.data import read_sites
from feddbn.errors import SiteRefused
from feddbn.federation.programs.mixed import MOST_STEPS, NewtonQuestion
from feddbn.federation.protocol.site import Here, site_task
from feddbn.privacy.policy import SitePolicy
from support.consortium import Consortium, Liar, by_rule, plain, raw, spread
from support.saying import refused

pytestmark = pytest.mark.promise

# Shapes of residuals ------------------------------------------------------------------------------------------------------
SHAPES = {"n_lags": 0, "use_nongaussian": "auto"}


@pytest.fixture
def sites(tmp_path):
    """Owners who list what the default policy does not."""
    return Consortium(tmp_path, spread(rows=60, seed=5), by_rule("residuals.shapes"))


def projections(sites, direction, offsets, scale=1.0):
    """Sums of functions of ``scale (z @ direction - offset)`` for many offsets at once."""
    coefficients = scale * np.repeat(np.asarray(direction, dtype=float)[:, None], len(offsets), axis=1)
    return raw(
        "residuals.shapes",
        {"n_lags": 0, "variables": sites.variables, "shapes": True},
        {"coefficients": coefficients, "offset": scale * np.asarray(offsets, dtype=float)},
    )


def test_shapes_are_told_only_where_the_owner_lists_them_and_the_study_says_so(tmp_path, sites):
    assert "residuals.shapes" not in SitePolicy().tasks
    plainly = Consortium(tmp_path / "default", spread(rows=60), by_rule())
    for place, code in ((plainly, "tasks-not-allowed"), (sites, "task-not-in-study")):
        liar = Liar(place, place.study(parameters={"n_lags": 0}))
        liar.refused(projections(place, [1, 0], [0.0]), code, "residuals.shapes")


@pytest.mark.parametrize(
    ("offsets", "scale", "code", "numbers"),
    [
        (np.linspace(-4, 4, 40_000), 1.0, "few-rows-per-parameter", (60, 40_000)),
        (np.linspace(-4, 4, 21), 1e-3, "few-rows-per-parameter", (60, 21)),
        ([0.0], 500.0, "steep-residuals", ()),
        ([9.0], 1.0, "far-residuals", ()),
    ],
)
def test_many_or_steep_projections_are_refused(sites, offsets, scale, code, numbers):
    liar = Liar(sites, sites.study(parameters=SHAPES))
    liar.refused(projections(sites, [1, 0], offsets, scale), code, *numbers)


def test_projections_add_up_over_a_run_and_over_greetings(sites):
    liar = Liar(sites, sites.study(parameters=SHAPES))
    liar.sum(projections(sites, [1, 0], np.linspace(0, 3, 10)))
    sites.restart()
    liar.again()
    liar.refused(projections(sites, [1, 0], np.linspace(0, 3, 11)), "few-rows-per-parameter", 60, 21)


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


def test_what_is_allowed_reads_no_row(sites):
    liar = Liar(sites, sites.study(parameters=SHAPES))
    values = np.concatenate([sites.data[name][0][:, 0] for name in sites.names])
    # The attack works: with steep projections, and many of them, it reads most of the rows.
    fine = np.linspace(values.min() - 0.1, values.max() + 0.1, 40_000)
    found = read_values(fine, 600.0, bumps_of(values, fine, 600.0))
    assert len(found) > 90
    assert np.median(np.abs(found[:, None] - values).min(axis=1)) < 1e-4
    # As many and as steep as sites answer: the site that varies most, with standard deviation 3, allows 3.
    offsets, scale = np.linspace(0.0, 1.5, 12), 3.0
    answer = liar.sum(projections(sites, [1, 0], offsets, scale)).value
    bumps = answer[1:].reshape(N_FEATURES, -1)[1]
    np.testing.assert_allclose(bumps, bumps_of(values, offsets, scale), atol=1e-6)
    assert not len(read_values(offsets, scale, bumps))


def checks(sites, coefficients, offset=0.0, units=None):
    """Residual checks of two variables, with one lag."""
    arrays = {"coefficients": coefficients, "offset": np.full(2, offset)}
    if units is not None:
        arrays["units"] = [[unit] * 2 for unit in units]
    return raw("residuals.checks", {"n_lags": 1, "variables": sites.variables}, arrays)


def test_residual_checks_are_not_a_way_around(sites):
    flat = np.eye(4)[:, :2]
    Liar(sites, sites.study(), "steep").refused(checks(sites, 1e6 * flat), "steep-residuals")
    liar = Liar(sites, sites.study(), "many")
    for k in range(3):
        liar.sum(checks(sites, flat, k / 10))
    liar.refused(checks(sites, flat, 0.55), "beyond-plan", "residuals.checks")


def test_squares_and_cubes_of_a_residual_check_are_held_to_the_units_of_curves(tmp_path):
    sites = Consortium(tmp_path, plain(rows=400), by_rule())
    flat = np.eye(4)[:, :2]
    for run, units, code in (
        ("honest", (0.0, 1.0), None),
        ("steep", (0.0, 2.0**-8), "steep-functions"),
        ("far", (5.0, 1.0), "far-functions"),
        ("fine", (0.003, 1.0), ""),
    ):
        liar, asked = Liar(sites, sites.study(), run), checks(sites, flat, units=units)
        if code is None:
            liar.sum(asked)
        elif code:
            liar.refused(asked, code)
        else:
            liar.malformed(asked, "'units'")


# Curves -------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def curves(tmp_path):
    policy = by_rule("gram.functions", "residuals.functions", features=("spline", "quadratic"))
    sites = Consortium(tmp_path, plain(rows=400), policy)
    return sites, Liar(sites, sites.study("oneshot", {"features": "spline"}))


def curved(sites, origin=0.0, scale=1.0, basis="curve", **more):
    params = {"n_lags": 1, "variables": sites.variables, "functions": basis, **more}
    arrays = {"function_origin": np.full(2, origin), "function_scale": np.full(2, scale)}
    return raw("gram.functions", params, arrays)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"scale": 2.0**-20}, "steep-functions"),
        ({"scale": 2.0**-3}, "steep-functions"),
        ({"origin": 4.0}, "far-functions"),
        ({"basis": "bend"}, "other-functions"),
        ({"products": [0, 1, 1]}, "other-functions"),
        ({"n_lags": 3}, "other-lags"),
    ],
)
def test_functions_are_the_studys_smooth_and_where_the_rows_are(curves, changes, code):
    sites, liar = curves
    liar.refused(curved(sites, **changes), code)


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
def test_a_question_that_cannot_be_is_none(curves, changes, name):
    sites, liar = curves
    liar.malformed(curved(sites, **changes), name)


def test_an_honest_question_is_answered_and_no_other_after_it(curves):
    sites, liar = curves
    q = 2 * 2 * 7
    assert liar.sum(curved(sites)).value.size == 1 + q + q * (q + 1) // 2
    liar.refused(curved(sites, origin=0.125), "beyond-plan", "gram.functions")
    straight = Liar(sites, sites.study(), "straight")
    straight.refused(curved(sites), "task-not-in-study", "gram.functions")


def test_units_on_the_grid_are_near_mean_and_standard_deviation():
    rng = np.random.default_rng(0)
    mean, sd = rng.normal(size=200) * 10.0 ** rng.integers(-6, 6, 200), 10.0 ** rng.uniform(-6, 6, 200)
    origin, scale = public_units(mean, sd)
    assert are_public_units(origin, scale)
    assert (np.abs(np.log2(scale / sd)) <= 1 / 8 + 1e-12).all()
    assert (np.abs(origin - mean) <= scale / 16 * (1 + 1e-9)).all()
    assert not are_public_units(origin + 0.03 * scale, scale)
    assert not are_public_units(origin, -scale)


# Steps of models of kinds -------------------------------------------------------------------------------------------------
KINDS = {"x2": "binary", "x3": {"categorical": 3}}
TEXTS = ("continuous", "continuous", "binary:0,1", "categorical:0,1,2")
FLAT = np.array([0.1, 0.5, -0.3])
LISTED = by_rule("counts.levels", "gram.kinds", "newton")
LOGISTIC = "2:logistic:0,1"


def rows_of_kinds(rng, n):
    x = rng.normal(size=(n, 2))
    return np.c_[x, rng.random(n) < 1 / (1 + np.exp(-x[:, 0])), rng.integers(0, 3, n)].astype(float)


def kinds(place, n=300, policy=LISTED):
    rng = np.random.default_rng(0)
    return Consortium(place, {f"s{i}": [rows_of_kinds(rng, n)] for i in range(3)}, policy)


def step(sites, theta=FLAT, models=(LOGISTIC,), origin=None):
    params = {"n_lags": 0, "variables": sites.variables, "kinds": TEXTS, "models": models}
    params["asked"] = tuple(range(len(models)))
    arrays = {"theta": theta, "origin": np.zeros(5) if origin is None else origin, "scale": np.ones(5)}
    return raw("newton", params, arrays)


def of_kinds(sites, run="run", **parameters):
    return Liar(sites, sites.study("mixed", {"n_lags": 0, "kinds": KINDS, **parameters}), run)


def test_without_the_rules_two_steep_models_would_read_a_row():
    data = rows_of_kinds(np.random.default_rng(1), 300)
    (site,) = read_sites({"a": data}).values()
    top = data[np.argmax(data[:, 0])]

    def gradient(threshold):
        theta = 1e6 * np.array([-threshold, 1.0, 0.0])
        about = {"n_lags": 0, "variables": site.variables, "kinds": TEXTS, "models": (LOGISTIC,)}
        question = NewtonQuestion(**about, asked=(0,), theta=theta, origin=np.zeros(5), scale=np.ones(5))
        return site_task("newton").answer(Here("a", site, {}), question)[1][1:4]

    # The gradients differ by the one row on whose sides the planes lie.
    between = np.sort(data[:, 0])[-2:].mean()
    np.testing.assert_allclose(gradient(9.0) - gradient(between), [1.0, *top[:2]], atol=1e-9)


@pytest.mark.parametrize(
    ("theta", "model", "code"),
    [
        (1e6 * np.array([-2.0, 1.0, 0.0]), LOGISTIC, "steep-model"),
        (np.array([0.0, 12.0, 0.0]), LOGISTIC, "steep-model"),
        (np.array([-25.0, 8.0, 0.0]), LOGISTIC, "few-rows-weigh"),
        # Level 1 is out of reach but for the largest values; level 2 is as frequent as the reference.
        (np.array([-22.0, 0.0, 7.0, 0.0]), "3:multinomial:0", "few-rows-weigh"),
    ],
    ids=["half-space", "steep", "tail", "one level"],
)
def test_steep_models_and_those_that_few_rows_weigh_in_are_not_answered(tmp_path, theta, model, code):
    sites = kinds(tmp_path)
    of_kinds(sites).refused(step(sites, theta, (model,)), code)


def test_a_run_has_few_steps_one_way_to_scale_and_its_own_models(tmp_path):
    sites = kinds(tmp_path, n=3_000)
    liar = of_kinds(sites)
    for k in range(MOST_STEPS):
        liar.sum(step(sites, FLAT + 0.01 * k))
    liar.sum(step(sites, FLAT))
    liar.refused(step(sites, -FLAT), "changed-in-run", "steps")
    liar.refused(step(sites, origin=np.ones(5)), "changed-in-run", "units")


def test_models_are_few_of_a_variable_and_suit_its_kind(tmp_path):
    sites = kinds(tmp_path)
    liar = of_kinds(sites)
    for models, name in (
        (("2:poisson:0,1",), "2:poisson:0,1"),
        (("2:logistic:2,1",), "2:logistic:2,1"),
        (("2:logistic:0,9",), "2:logistic:0,9"),
        ((LOGISTIC, LOGISTIC), "'models'"),
        (("logistic",), "'node:family:parents'"),
    ):
        liar.malformed(step(sites, models=models), name)


def test_all_runs_together_tell_fewer_numbers_than_a_site_has_cells(tmp_path):
    sites = kinds(tmp_path, 25, LISTED.replace("min_rows = 10", "min_rows = 3"))
    # 10 numbers a step, two cells for each, 5 columns of 25 rows at three sites: 18 steps.
    for run in range(3):
        liar = of_kinds(sites, f"run{run}")
        for k in range(6):
            liar.sum(step(sites, FLAT + 0.01 * (6 * run + k)))
    liar.refused(step(sites, -FLAT), "too-many-steps", 190, 375)
    # What has been told before is told again.
    of_kinds(sites, "run3").sum(step(sites, FLAT))


def test_levels_are_counted_in_whole_units_and_kinds_are_the_studys(tmp_path):
    sites = kinds(tmp_path)

    def asked(name, texts, **more):
        return raw(name, {"n_lags": 0, "variables": sites.variables, "kinds": texts, **more})

    def count(unit, texts=TEXTS):
        return asked("counts.levels", texts, least=unit)

    told = of_kinds(sites).sum(count(10)).value
    np.testing.assert_array_equal(np.round(told, 3) % 10, 0)
    of_kinds(sites, "b").refused(count(1), "not-in-study", "'least' is 1")
    # An owner who asks for more rows counts in larger units.
    told = of_kinds(sites, "c", level_rows=5).sum(count(5)).value
    np.testing.assert_array_equal(np.round(told, 3) % 10, 0)
    other = (*TEXTS[:2], "categorical:0,1", TEXTS[3])
    of_kinds(sites, "d").refused(count(10, other), "not-in-study", "x2", "categorical:0,1")
    liar = of_kinds(sites, "e")
    liar.sum(asked("gram.kinds", (*TEXTS[:3], "categorical:0,1,1")))
    liar.refused(asked("gram.kinds", TEXTS), "changed-in-run", "levels")


def test_only_a_study_of_kinds_asks_for_steps_and_only_where_an_owner_lists_them(tmp_path):
    sites = kinds(tmp_path / "a")
    Liar(sites, sites.study()).refused(step(sites), "task-not-in-study", "newton")
    with refused(SiteRefused, code="tasks-not-allowed"):
        of_kinds(kinds(tmp_path / "b", policy=by_rule()))
