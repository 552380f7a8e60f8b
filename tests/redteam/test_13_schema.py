"""A site answers what its study asks: no other method's tasks, no other lags, variables, folds, weights or sites."""

import numpy as np
import pytest

from feddbn.errors import SiteRefused
from support.rig import Rig, Server, listing, raw
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")


def make_rig(place, k=3, policy=None, d=3):
    rng = np.random.default_rng(0)
    return Rig(place, {f"s{i}": [(1 + i) * rng.normal(size=(200, d)) + i] for i in range(k)}, policy)


def step(rig, n_lags=1, **changes):
    q = (n_lags + 1) * len(rig.variables)
    usual = {"weighting": "samples", "n_total": 600.0, "round": 0, "ask": "gradient"}
    usual |= {"rho2_before": 1.0, "rho2": 1.0, "relaxation": 1.0, "n_lags": n_lags}
    arrays = {"C": np.zeros((q, len(rig.variables))), "origin": np.zeros(q)}
    arrays |= {"scale": np.ones(q), "metric": np.ones(q)}
    return raw("step.fdbnl", {**usual, "variables": rig.variables, **changes}, arrays)


def moments(rig, n_lags=1, arrays=None, participants=None, **more):
    return raw("gram.rows", {"n_lags": n_lags, "variables": rig.variables, **more}, arrays, participants)


def test_a_study_of_one_method_does_not_answer_another(tmp_path):
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("oneshot"))
    server.refused(step(rig), "task-not-in-study", "step.fdbnl")
    other = Server(rig, rig.study("fdbnl", {"n_lags": 1, "schedule": "rounds"}), "other")
    assert other.sum(step(rig)).contributors == rig.names


@pytest.mark.parametrize("n_lags", [0, 3, 10, 40])
def test_lags_are_the_studys(tmp_path, n_lags):
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("oneshot"))
    server.refused(moments(rig, n_lags), "other-lags", n_lags)
    # Residuals that remember ask for one lag more.
    assert server.sum(moments(rig, 2)).value.size == 1 + 9 + 45


@pytest.mark.parametrize(
    ("more", "code", "name"),
    [
        ({"clip_bound": 0.5}, "not-in-study", "'clip_bound'"),
        ({"robust": "recording"}, "not-in-study", "'robust'"),
        ({"inputs": [1]}, "not-in-study", "'inputs'"),
        ({"fold": [0, 5, 300]}, "other-fold", "(0, 5, 300)"),
        ({"fold": [0, 2, 300]}, "other-fold", "(0, 2, 300)"),
        ({"center": "recording", "degree": 2}, "not-in-study", "'degree' is 2"),
        ({"center": "recording", "periods": [3.0, 4.0, 5.0, 6.0, 7.0]}, "not-in-study", "5 cycles"),
        ({"try_degrees": [0, 2], "try_cycles": [0, 0]}, "not-in-study", "'try_degrees'"),
        ({"try_degrees": [0] * 16, "try_cycles": [0] * 16}, "not-in-study", "16"),
        ({"abstain": True}, "not-in-study", "'abstain'"),
        ({"variables": ["x1", "x0", "x2"]}, "other-variables", ""),
    ],
)
def test_other_parameters_are_the_studys_too(tmp_path, more, code, name):
    rig = make_rig(tmp_path)
    Server(rig, rig.study("oneshot")).refused(moments(rig, **more), code, name)


def test_a_parameter_that_nobody_knows_makes_no_second_question(tmp_path):
    rig = make_rig(tmp_path)
    Server(rig, rig.study("oneshot")).malformed(moments(rig, nonce=1), "gram", "nonce")


def test_weights_of_sites_and_who_takes_part_are_the_studys(tmp_path):
    rig = make_rig(tmp_path, 5)
    server = Server(rig, rig.study("fdbnl", {"n_lags": 1, "schedule": "rounds"}))
    server.refused(step(rig, weighting="sites"), "not-in-study", "'weighting'", "'sites'")


def test_profiles_of_three_sites_stay_at_home(tmp_path):
    rig = make_rig(tmp_path / "few")
    survey = {"n_lags": 1, "variables": rig.variables, "profiles": "scales"}
    Server(rig, rig.study("oneshot")).refused(raw("survey.first", survey), "few-sites", 3)
    rig = make_rig(tmp_path / "more", 4)
    assert Server(rig, rig.study("oneshot")).sum(raw("survey.first", survey)).contributors == rig.names
    plain = rig.study("oneshot", {"prepare.gains": "none"})
    Server(rig, plain, "plain").refused(raw("survey.first", survey), "sites-not-compared")


def test_resamples_are_drawn_as_the_study_says(tmp_path):
    rig = make_rig(tmp_path, policy=listing("gram.resamples"), d=2)
    server = Server(rig, rig.study("oneshot", goal="confidence", confidence={"replicates": 20}))
    usual = {"n_lags": 1, "variables": rig.variables, "first": -1, "stop": 0, "resampling": "bootstrap"}
    usual |= {"block_rule": "auto", "resampled": "auto", "seed": 0}
    for changes, why in (
        ({"stop": 21}, "20"),
        ({"seed": 1}, "'seed' is 1"),
        ({"block_rule": "given", "block_length": 1}, "'block_rule' is 'given'"),
        ({"resampled": "blocks"}, "'resampled' is 'blocks'"),
    ):
        task = raw("gram.resamples", {**usual, **changes}, {"origin": np.zeros(4)})
        server.refused(task, "not-in-study", why)
    assert server.sum(raw("gram.resamples", usual, {"origin": np.zeros(4)})).contributors == rig.names


def test_norms_of_units_are_told_with_noise_only(tmp_path):
    rig = make_rig(tmp_path)
    norms = {"n_lags": 1, "variables": rig.variables, "of": "gram.rows", "unit": "row", "norm": "gram"}
    Server(rig, rig.study("oneshot")).refused(raw("counts.norms", norms), "task-not-in-study", "counts.norms")
    server = Server(rig, rig.study("oneshot", privacy={"epsilon": 1.0}), "noise")
    server.refused(raw("counts.norms", norms), "other-unit")
    fine = {**norms, "unit": "recording", "per_octave": 20_000}
    server.malformed(raw("counts.norms", fine), "per_octave")
    server.refused(raw("counts.norms", {**norms, "unit": "recording", "norm": "flat"}), "other-norm")


def test_refusals_end(tmp_path):
    """What is refused tells something, too: after ten different questions that were, a site answers none."""
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("oneshot"))
    for n_lags in range(10, 20):
        server.refused(moments(rig, n_lags), "other-lags", n_lags)
        server.refused(moments(rig, n_lags), "other-lags" if n_lags < 19 else "too-many-refusals")
    for name in rig.names:
        rig.restart(name)
    server.again()
    server.refused(moments(rig), "too-many-refusals", 10)


@pytest.mark.parametrize(
    ("parameters", "more", "n"),
    [
        ({}, {"some_variables_may_be_missing": True}, ""),
        (
            {},
            {
                "some_variables_may_be_missing": True,
                "held_by": {"x0": ("s0", "s1", "s2"), "x1": ("s1", "s2", "s3")},
            },
            2,
        ),
        ({"n_clusters": 2}, {}, 2),
        ({"n_clusters": "auto"}, {}, 1),
    ],
)
def test_entries_and_clusters_of_few_sites_are_refused_at_the_greeting(tmp_path, parameters, more, n):
    rig = make_rig(tmp_path, 4, listing("step.clusters", "loss.rows", "loss.sums"))
    with refused(SiteRefused, n, "min_sites_per_entry", code="few-sites-per-entry"):
        Server(rig, rig.study("pfdbnl", parameters, **more))
