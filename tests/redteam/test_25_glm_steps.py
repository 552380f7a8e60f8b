"""Steps of models: a server cannot make half-spaces of them, aim them at few rows, ask for many, or count rare levels."""

import numpy as np
import pytest

from feddbn.data import read_sites
from feddbn.errors import SiteRefused
from feddbn.federation.programs.mixed import MOST_STEPS, GlmStepQuestion
from feddbn.federation.protocol.messages import WITHHELD
from feddbn.federation.protocol.site import Here, answer_of_one, site_task
from feddbn.runtime.deployed.kit_files import default_policy_text
from support.rig import Refused, Rig, Server, raw
from support.saying import refused as says_no

N = 300
KINDS = {"x2": "binary", "x3": {"categorical": 3}}
TEXTS = ("continuous", "continuous", "binary:0,1", "categorical:0,1,2")
FLAT = np.array([0.1, 0.5, -0.3])


def rows(rng, n=N):
    x = rng.normal(size=(n, 2))
    return np.c_[x, rng.random(n) < 1 / (1 + np.exp(-x[:, 0])), rng.integers(0, 3, n)].astype(float)


def make_rig(place, listed=True, n=N):
    rng = np.random.default_rng(0)
    text = default_policy_text()
    if listed:
        new = '"residual-checks", "level-counts", "mixed-moments", "glm-step"'
        text = text.replace('"residual-checks"', new)
    return Rig(place, {f"s{i}": [rows(rng, n)] for i in range(3)}, text)


def step(rig, theta=FLAT, models=("2:logistic:0,1",), origin=None, **more):
    params = {"n_lags": 0, "variables": rig.variables, "kinds": TEXTS, "models": models, **more}
    params.setdefault("asked", tuple(range(len(models))))
    arrays = {
        "theta": theta,
        "origin": np.zeros(5) if origin is None else origin,
        "scale": np.ones(5),
    }
    return raw("glm-step", params, arrays)


def server_of(rig, run="run", **parameters):
    return Server(rig, rig.study("mixed", {"n_lags": 0, "kinds": KINDS, **parameters}), run)


def refused(server, task, why):
    """Refused for what data or rules say: the server hears one sentence, the owner reads why."""
    with pytest.raises(Refused) as caught:
        server.sum(task)
    assert {one.partition("refused: ")[2] for one in caught.value.told.values()} == {WITHHELD}
    assert why in server.rig.notes("s0", server.run)[-1]


def malformed(server, task, why):
    """Refused for what it is, whatever the data are: that may be said."""
    with pytest.raises(Refused) as caught:
        server.sum(task)
    assert all(why in one for one in caught.value.told.values())


def test_without_the_rules_two_steep_models_would_read_a_row():
    data = rows(np.random.default_rng(1))
    (site,) = read_sites({"a": data}).values()
    top = data[np.argmax(data[:, 0])]
    between = np.sort(data[:, 0])[-2:].mean()

    def gradient(threshold):
        theta = 1e6 * np.array([-threshold, 1.0, 0.0])
        question = GlmStepQuestion(
            n_lags=0,
            variables=site.variables,
            kinds=TEXTS,
            models=("2:logistic:0,1",),
            asked=(0,),
            theta=theta,
            origin=np.zeros(5),
            scale=np.ones(5),
        )
        return answer_of_one(site_task("glm-step"), Here("a", site, {}), question)[1][1:4]

    # The gradients differ by the one row on whose sides the planes lie.
    np.testing.assert_allclose(gradient(9.0) - gradient(between), [1.0, *top[:2]], atol=1e-9)


@pytest.mark.parametrize(
    ("theta", "why"),
    [
        (1e6 * np.array([-2.0, 1.0, 0.0]), "linear predictors have a standard deviation of up to"),
        (np.array([0.0, 12.0, 0.0]), "linear predictors have a standard deviation of up to 1"),
        (np.array([-25.0, 8.0, 0.0]), "rows of this site would weigh in this sum"),
    ],
    ids=["half-space", "steep", "tail"],
)
def test_steep_models_and_those_that_few_rows_weigh_in_are_not_answered(tmp_path, theta, why):
    rig = make_rig(tmp_path)
    refused(server_of(rig), step(rig, theta), why)


def test_one_level_that_few_rows_weigh_in_is_enough_to_refuse(tmp_path):
    rig = make_rig(tmp_path)
    # Level 1 is out of reach but for the largest values; level 2 is as frequent as the reference.
    theta = np.array([[-22.0, 0.0], [7.0, 0.0]]).ravel()
    refused(server_of(rig), step(rig, theta, ("3:multinomial:0",)), "would weigh in this sum")


def test_a_run_has_few_steps_one_way_to_scale_and_its_own_models(tmp_path):
    rig = make_rig(tmp_path, n=3_000)
    server = server_of(rig)
    for k in range(MOST_STEPS):
        server.sum(step(rig, FLAT + 0.01 * k))
    server.sum(step(rig, FLAT))
    refused(server, step(rig, -FLAT), "changes steps of models")
    refused(server, step(rig, origin=np.ones(5)), "changes units of columns of models")


def test_models_are_few_of_a_variable_and_suit_its_kind(tmp_path):
    rig = make_rig(tmp_path)
    server = server_of(rig)
    for models, why in (
        (("2:poisson:0,1",), "has a family that does not suit"),
        (("2:logistic:2,1",), "must have other variables as parents"),
        (("2:logistic:0,9",), "must have other variables as parents"),
        (("2:logistic:0,1", "2:logistic:0,1"), "must be different, at most 8"),
        (("logistic",), "must be written 'node:family:parents'"),
    ):
        malformed(server, step(rig, models=models), why)


def test_all_runs_together_tell_fewer_numbers_than_a_site_has_cells(tmp_path):
    rig = make_rig(tmp_path, n=25)
    # 10 numbers a step, two cells for each, 5 columns of 25 rows at three sites: 18 steps.
    for run in range(3):
        server = server_of(rig, f"run{run}")
        for k in range(6):
            server.sum(step(rig, FLAT + 0.01 * (6 * run + k)))
    refused(server, step(rig, -FLAT), "steps of models would have told 190 numbers about 375 cells")
    # What has been told before is told again.
    server_of(rig, "run3").sum(step(rig, FLAT))


def test_levels_are_counted_in_whole_units_and_kinds_are_the_studys(tmp_path):
    rig = make_rig(tmp_path)

    def count(unit, kinds=TEXTS):
        return raw("level-counts", {"n_lags": 0, "variables": rig.variables, "kinds": kinds, "unit": unit})

    told = server_of(rig).sum(count(10)).value
    np.testing.assert_array_equal(np.round(told, 3) % 10, 0)
    refused(server_of(rig, "b"), count(1), "'unit' is 1")
    refused(server_of(rig, "c", level_rows=5), count(5), "so use level_rows = 10 or more")
    other = (*TEXTS[:2], "categorical:0,1", TEXTS[3])
    refused(server_of(rig, "d"), count(10, other), "it reads 'x2' as 'categorical:0,1'")
    merged = {"n_lags": 0, "variables": rig.variables, "kinds": (*TEXTS[:3], "categorical:0,1,1")}
    server = server_of(rig, "e")
    server.sum(raw("mixed-moments", merged))
    refused(server, raw("mixed-moments", {**merged, "kinds": TEXTS}), "changes which levels count as one")


def test_only_a_study_of_kinds_asks_for_steps_and_only_where_an_owner_lists_them(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    rig = make_rig(tmp_path / "a")
    refused(Server(rig, rig.study("oneshot")), step(rig), "the study does not ask for the task 'glm-step'")
    rig = make_rig(tmp_path / "b", listed=False)
    with says_no(SiteRefused, code="tasks-not-allowed"):
        server_of(rig)
