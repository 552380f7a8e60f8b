"""Steps of models: a server cannot make half-spaces of them, aim them at few rows, ask for many, or count rare levels."""

import numpy as np
import pytest

from feddbn.data import read_sites
from feddbn.errors import SiteRefused
from feddbn.federation.programs.mixed import MOST_STEPS, NewtonQuestion
from feddbn.federation.protocol.site import Here, answer_of_one, site_task
from support.rig import Rig, Server, listing, raw
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")

N = 300
KINDS = {"x2": "binary", "x3": {"categorical": 3}}
TEXTS = ("continuous", "continuous", "binary:0,1", "categorical:0,1,2")
FLAT = np.array([0.1, 0.5, -0.3])


def rows(rng, n=N):
    x = rng.normal(size=(n, 2))
    return np.c_[x, rng.random(n) < 1 / (1 + np.exp(-x[:, 0])), rng.integers(0, 3, n)].astype(float)


def make_rig(place, listed=True, n=N, least=10):
    rng = np.random.default_rng(0)
    tasks = ("counts.levels", "gram.kinds", "newton") if listed else ()
    policy = listing(*tasks).replace("min_rows = 10", f"min_rows = {least}")
    return Rig(place, {f"s{i}": [rows(rng, n)] for i in range(3)}, policy)


def step(rig, theta=FLAT, models=("2:logistic:0,1",), origin=None, **more):
    params = {"n_lags": 0, "variables": rig.variables, "kinds": TEXTS, "models": models, **more}
    params.setdefault("asked", tuple(range(len(models))))
    arrays = {"theta": theta, "origin": np.zeros(5) if origin is None else origin, "scale": np.ones(5)}
    return raw("newton", params, arrays)


def server_of(rig, run="run", **parameters):
    return Server(rig, rig.study("mixed", {"n_lags": 0, "kinds": KINDS, **parameters}), run)


def test_without_the_rules_two_steep_models_would_read_a_row():
    data = rows(np.random.default_rng(1))
    (site,) = read_sites({"a": data}).values()
    top = data[np.argmax(data[:, 0])]
    between = np.sort(data[:, 0])[-2:].mean()

    def gradient(threshold):
        theta = 1e6 * np.array([-threshold, 1.0, 0.0])
        question = NewtonQuestion(
            n_lags=0,
            variables=site.variables,
            kinds=TEXTS,
            models=("2:logistic:0,1",),
            asked=(0,),
            theta=theta,
            origin=np.zeros(5),
            scale=np.ones(5),
        )
        return answer_of_one(site_task("newton"), Here("a", site, {}), question)[1][1:4]

    # The gradients differ by the one row on whose sides the planes lie.
    np.testing.assert_allclose(gradient(9.0) - gradient(between), [1.0, *top[:2]], atol=1e-9)


@pytest.mark.parametrize(
    ("theta", "code"),
    [
        (1e6 * np.array([-2.0, 1.0, 0.0]), "steep-model"),
        (np.array([0.0, 12.0, 0.0]), "steep-model"),
        (np.array([-25.0, 8.0, 0.0]), "few-rows-weigh"),
    ],
    ids=["half-space", "steep", "tail"],
)
def test_steep_models_and_those_that_few_rows_weigh_in_are_not_answered(tmp_path, theta, code):
    rig = make_rig(tmp_path)
    server_of(rig).refused(step(rig, theta), code)


def test_one_level_that_few_rows_weigh_in_is_enough_to_refuse(tmp_path):
    rig = make_rig(tmp_path)
    # Level 1 is out of reach but for the largest values; level 2 is as frequent as the reference.
    theta = np.array([[-22.0, 0.0], [7.0, 0.0]]).ravel()
    server_of(rig).refused(step(rig, theta, ("3:multinomial:0",)), "few-rows-weigh")


def test_a_run_has_few_steps_one_way_to_scale_and_its_own_models(tmp_path):
    rig = make_rig(tmp_path, n=3_000)
    server = server_of(rig)
    for k in range(MOST_STEPS):
        server.sum(step(rig, FLAT + 0.01 * k))
    server.sum(step(rig, FLAT))
    server.refused(step(rig, -FLAT), "changed-in-run", "steps")
    server.refused(step(rig, origin=np.ones(5)), "changed-in-run", "units")


def test_models_are_few_of_a_variable_and_suit_its_kind(tmp_path):
    rig = make_rig(tmp_path)
    server = server_of(rig)
    for models, name in (
        (("2:poisson:0,1",), "2:poisson:0,1"),
        (("2:logistic:2,1",), "2:logistic:2,1"),
        (("2:logistic:0,9",), "2:logistic:0,9"),
        (("2:logistic:0,1", "2:logistic:0,1"), "'models'"),
        (("logistic",), "'node:family:parents'"),
    ):
        server.malformed(step(rig, models=models), name)


def test_all_runs_together_tell_fewer_numbers_than_a_site_has_cells(tmp_path):
    rig = make_rig(tmp_path, n=25, least=3)
    # 10 numbers a step, two cells for each, 5 columns of 25 rows at three sites: 18 steps.
    for run in range(3):
        server = server_of(rig, f"run{run}")
        for k in range(6):
            server.sum(step(rig, FLAT + 0.01 * (6 * run + k)))
    server.refused(step(rig, -FLAT), "too-many-steps", 190, 375)
    # What has been told before is told again.
    server_of(rig, "run3").sum(step(rig, FLAT))


def test_levels_are_counted_in_whole_units_and_kinds_are_the_studys(tmp_path):
    rig = make_rig(tmp_path)

    def count(unit, kinds=TEXTS):
        return raw("counts.levels", {"n_lags": 0, "variables": rig.variables, "kinds": kinds, "least": unit})

    told = server_of(rig).sum(count(10)).value
    np.testing.assert_array_equal(np.round(told, 3) % 10, 0)
    server_of(rig, "b").refused(count(1), "not-in-study", "'least' is 1")
    # An owner who asks for more rows counts in larger units.
    told = server_of(rig, "c", level_rows=5).sum(count(5)).value
    np.testing.assert_array_equal(np.round(told, 3) % 10, 0)
    other = (*TEXTS[:2], "categorical:0,1", TEXTS[3])
    server_of(rig, "d").refused(count(10, other), "not-in-study", "x2", "categorical:0,1")
    merged = {"n_lags": 0, "variables": rig.variables, "kinds": (*TEXTS[:3], "categorical:0,1,1")}
    server = server_of(rig, "e")
    server.sum(raw("gram.kinds", merged))
    server.refused(raw("gram.kinds", {**merged, "kinds": TEXTS}), "changed-in-run", "levels")


def test_only_a_study_of_kinds_asks_for_steps_and_only_where_an_owner_lists_them(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    rig = make_rig(tmp_path / "a")
    Server(rig, rig.study("oneshot")).refused(step(rig), "task-not-in-study", "newton")
    rig = make_rig(tmp_path / "b", listed=False)
    with refused(SiteRefused, code="tasks-not-allowed"):
        server_of(rig)
