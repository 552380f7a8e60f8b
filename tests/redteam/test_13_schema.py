"""A site answers what its study asks: no other method's tasks, no other lags, variables, folds, weights or sites."""

import numpy as np
import pytest

from feddbn.errors import SiteRefused
from feddbn.federation.protocol.messages import WITHHELD
from feddbn.runtime.deployed.kit_files import default_policy_text
from support.rig import Refused, Rig, Server, raw
from support.saying import refused as says_no


def make_rig(place, k=3, policy=None, d=3):
    rng = np.random.default_rng(0)
    return Rig(place, {f"s{i}": [(1 + i) * rng.normal(size=(200, d)) + i] for i in range(k)}, policy)


def step(rig, n_lags=1, **changes):
    q = (n_lags + 1) * len(rig.variables)
    usual = {"weighting": "samples", "n_total": 600.0, "round": 0, "ask": "gradient"}
    usual |= {"rho2_before": 1.0, "rho2": 1.0, "relaxation": 1.0, "n_lags": n_lags}
    arrays = {"C": np.zeros((q, len(rig.variables))), "origin": np.zeros(q)}
    arrays |= {"scale": np.ones(q), "metric": np.ones(q)}
    return raw("fdbnl-step", {**usual, "variables": rig.variables, **changes}, arrays)


def refused(server, task, why, name="s0"):
    with pytest.raises(Refused) as caught:
        server.sum(task)
    assert {one.partition("refused: ")[2] for one in caught.value.told.values()} == {WITHHELD}
    assert why in server.rig.notes(name, server.run)[-1]


def moments(rig, n_lags=1, arrays=None, participants=None, **more):
    return raw("moments", {"n_lags": n_lags, "variables": rig.variables, **more}, arrays, participants)


def test_a_study_of_one_method_does_not_answer_another(tmp_path):
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("oneshot"))
    refused(server, step(rig), "the study does not ask for the task 'fdbnl-step'")
    other = Server(rig, rig.study("fdbnl", {"n_lags": 1, "schedule": "rounds"}), "other")
    assert other.sum(step(rig)).contributors == rig.names


@pytest.mark.parametrize("n_lags", [0, 3, 10, 40])
def test_lags_are_the_studys(tmp_path, n_lags):
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("oneshot"))
    refused(server, moments(rig, n_lags), f"n_lags is {n_lags}")
    # Residuals that remember ask for one lag more.
    assert server.sum(moments(rig, 2)).value.size == 1 + 9 + 45


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"clip_bound": 0.5}, "'clip_bound' has no meaning without noise"),
        ({"far": 9.0}, "'far' has no meaning without 'limits'"),
        ({"inputs": [1]}, "'inputs' are other variables"),
        ({"fold": [0, 5, 300]}, "it holds out other rows"),
        ({"fold": [0, 2, 300]}, "it holds out other rows"),
        ({"center": "recording", "degree": 2}, "'degree' is 2"),
        ({"center": "recording", "periods": [3.0, 4.0, 5.0, 6.0, 7.0]}, "it takes off 5 cycles"),
        ({"try_degrees": [0, 2], "try_cycles": [0, 0]}, "'try_degrees' is (0, 2)"),
        (
            {"try_degrees": [0] * 16, "try_cycles": [0] * 16},
            "it tries 16 nuisances",
        ),
        ({"abstain": True}, "it asks for 'abstain'"),
        ({"variables": ["x1", "x0", "x2"]}, "it is about other variables, or in another order"),
    ],
)
def test_other_parameters_are_the_studys_too(tmp_path, more, why):
    rig = make_rig(tmp_path)
    refused(Server(rig, rig.study("oneshot")), moments(rig, **more), why)


def test_a_parameter_that_nobody_knows_makes_no_second_question(tmp_path):
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("oneshot"))
    with says_no(Refused, "moments", "nonce"):
        server.sum(moments(rig, nonce=1))


def test_weights_of_sites_and_who_takes_part_are_the_studys(tmp_path):
    rig = make_rig(tmp_path, 5)
    server = Server(rig, rig.study("fdbnl", {"n_lags": 1, "schedule": "rounds"}))
    refused(server, step(rig, weighting="sites"), "'weighting' is 'sites'")


def test_profiles_of_three_sites_stay_at_home(tmp_path):
    rig = make_rig(tmp_path / "few")
    survey = {"n_lags": 1, "variables": rig.variables, "profiles": True}
    refused(Server(rig, rig.study("oneshot")), raw("survey", survey), "profiles of 3 sites can be told apart")
    rig = make_rig(tmp_path / "more", 4)
    assert Server(rig, rig.study("oneshot")).sum(raw("survey", survey)).contributors == rig.names
    plain = rig.study("oneshot", {"prepare.gains": "none"})
    refused(Server(rig, plain, "plain"), raw("survey", survey), "the study does not compare sites")


def test_resamples_are_drawn_as_the_study_says(tmp_path):
    policy = default_policy_text().replace('"residual-checks"', '"residual-checks", "bootstrap-moments"')
    rig = make_rig(tmp_path, policy=policy, d=2)
    server = Server(rig, rig.study("oneshot", goal="confidence", confidence={"replicates": 20}))
    usual = {"n_lags": 1, "variables": rig.variables, "first": -1, "stop": 0, "resampling": "bootstrap"}
    usual |= {"block_rule": "auto", "unit": "auto", "seed": 0}
    for changes, why in (
        ({"stop": 21}, "it asks for replicate 20"),
        ({"seed": 1}, "'seed' is 1"),
        ({"block_rule": "given", "block_length": 1}, "'block_rule' is 'given'"),
        ({"unit": "blocks"}, "'unit' is 'blocks'"),
    ):
        refused(server, raw("bootstrap-moments", {**usual, **changes}, {"origin": np.zeros(4)}), why)
    assert server.sum(raw("bootstrap-moments", usual, {"origin": np.zeros(4)})).contributors == rig.names


def test_norms_of_units_are_told_with_noise_only(tmp_path):
    policy = default_policy_text()
    rig = make_rig(tmp_path, policy=policy)
    norms = {"n_lags": 1, "variables": rig.variables, "of": "moments", "unit": "row", "norm": "gram"}
    refused(
        Server(rig, rig.study("oneshot")), raw("unit-norms", norms), "does not ask for the task 'unit-norms'"
    )
    server = Server(rig, rig.study("oneshot", privacy={"epsilon": 1.0}), "noise")
    refused(server, raw("unit-norms", norms), "the noise protects each recording")
    fine = {**norms, "unit": "recording", "per_octave": 20_000}
    with says_no(Refused, "per_octave"):
        server.sum(raw("unit-norms", fine))
    refused(
        server,
        raw("unit-norms", {**norms, "unit": "recording", "norm": "flat"}),
        "it is about norms of moments",
    )


def test_refusals_end(tmp_path):
    """What is refused tells something, too: after ten different questions that were, a site answers none."""
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("oneshot"))
    for n_lags in range(10, 20):
        refused(server, moments(rig, n_lags), f"n_lags is {n_lags}")
        refused(server, moments(rig, n_lags), f"n_lags is {n_lags}" if n_lags < 19 else "answers no more")
    for name in rig.names:
        rig.restart(name)
    server.again()
    refused(server, moments(rig), "10 questions of this run were refused; this site answers no more of it")


@pytest.mark.parametrize(
    ("parameters", "more", "code"),
    [
        (
            {},
            {"some_variables_may_be_missing": True},
            "few-sites-per-entry",
        ),
        (
            {},
            {
                "some_variables_may_be_missing": True,
                "held_by": {"x0": ("s0", "s1", "s2"), "x1": ("s1", "s2", "s3")},
            },
            "few-sites-per-entry",
        ),
        ({"n_clusters": 2}, {}, "few-sites-per-entry"),
        ({"n_clusters": "auto"}, {}, "few-sites-per-entry"),
    ],
)
def test_entries_and_clusters_of_few_sites_are_refused_at_the_greeting(tmp_path, parameters, more, code):
    policy = default_policy_text().replace(
        '"residual-checks"', '"residual-checks", "cluster-step", "held-out-loss"'
    )
    rig = make_rig(tmp_path, 4, policy.replace('"held-out-loss"', '"held-out-loss", "held-out-sums"'))
    with says_no(SiteRefused, code=code):
        Server(rig, rig.study("pfdbnl", parameters, **more))
