"""Several modules: curved effects under noise, from units of curved-moments and their budget to what is learned."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from feddbn import AS_THEY_ARE
from feddbn.analysis import studies  # noqa: F401 (registers the methods)
from feddbn.core.statistics.moments import sums_length
from feddbn.data import read_sites
from feddbn.errors import BudgetExceeded, ParameterError, ResultWarning, SiteRefused
from feddbn.federation.guards.noise import DpGuard
from feddbn.federation.guards.study_plan import check_noise_size, costs_in_words, plan_of, scope_of
from feddbn.federation.protocol.site import Here, Site, site_task
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Task, of_task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.private_moments import (
    CURVES_SHARE,
    UnitNormsQuestion,
    private_moments_plan,
    study_costs,
    study_noise_plan,
)
from feddbn.methods.oneshot import OneShotDBN
from feddbn.privacy.noise_plan import NoisePlan
from feddbn.results.scoring import score
from feddbn.runtime.noisy import PrivateFederation
from feddbn.runtime.simulated.private import private_federation
from feddbn.runtime.simulated.secure import secure_federation
from feddbn.sim.simulation import simulate
from support.saying import codes, only, refused

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")
pytestmark = [
    pytest.mark.usefixtures("light"),
    pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning"),
]
NAMES = ("a", "b")


def frames(n=5, rows=14, seed=0):
    rng = np.random.default_rng(seed)
    return [pd.DataFrame(rng.normal(size=(rows, 2)) + rng.normal(), columns=NAMES) for _ in range(n)]


def question(**more):
    units = {"function_origin": np.array([0.125, -0.25]), "function_scale": np.array([1.0, 1.0])}
    return GramQuestion(**{"n_lags": 1, "variables": NAMES, "functions": "curve", **units, **more})


def units(given, asked, unit="recording"):
    here = Here("one", read_sites({"one": given})["one"], {})
    return list(site_task(asked.name).units(here, asked, unit))


OWN = {"center": "recording"}


@pytest.mark.parametrize(
    ("more", "unit", "n"),
    [
        ({}, "recording", 5),
        ({}, "row", 5 * 13),
        (OWN, "recording", 5),
        ({**OWN, "degree": 1, "products": (0, 1, 1)}, "recording", 5),
        ({"functions": "bend", "products": (0, 0, 1, 0, 1, 1)}, "row", 5 * 13),
    ],
)
def test_the_units_of_a_site_add_up_to_its_answer(more, unit, n):
    given, asked = frames(), question(**more)
    vectors = units(given, asked, unit)
    assert len(vectors) == n
    here = Here("one", read_sites({"one": given})["one"], {})
    answer = site_task(asked.name).answer([here], asked, {})[1][0]
    assert len(answer) == site_task(asked.name).length(asked)
    np.testing.assert_allclose(sum(vectors), answer, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("more", [{}, OWN])
def test_no_recording_changes_the_vector_of_another(more):
    given = frames()
    before = units(given, question(**more))
    given[1] = given[1] * 50.0
    given[1].iloc[3:6, 0] = np.nan
    for k, (old, new) in enumerate(zip(before, units(given, question(**more)), strict=True)):
        assert np.array_equal(old, new) == (k != 1)
    for old, new in zip(before[2:], units(given[2:], question(**more)), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("more", "unit", "code"),
    [
        ({"row_model": np.zeros((5, 4))}, "recording", "row_model-mixes"),
        ({"abstain": True}, "recording", "abstain-mixes"),
        ({"fold": (0, 2, 200)}, "recording", "fold-mixes"),
        ({"log_scales": np.zeros(2)}, "recording", "own-scales"),
        ({"robust": "site"}, "recording", "own-scales"),
        ({"robust": "recording"}, "row", "robust-mixes"),
        (OWN, "row", "center-mixes"),
        ({"functions": "quadratic"}, "row", "functions-mix"),
        ({}, "person", "unknown-unit"),
    ],
)
def test_what_would_mix_units_is_refused_by_what_is_asked(more, unit, code):
    with refused(ParameterError, code=code):
        units(frames(), question(**more), unit)


@pytest.mark.parametrize("clip", [None, 60.0])
def test_all_releases_together_cost_epsilon_by_an_independent_accountant(clip):
    import dp_accounting
    from dp_accounting import pld

    plan = private_moments_plan("gram.rows", "recording", 4.0, 1e-5, clip, curves_share=CURVES_SHARE)
    asked = ["gram.rows", "gram.functions", "counts.norms"]
    asked += ["counts.norms"] if clip is None else []
    assert set(plan.rules) == set(asked)
    # What Gaussian releases tell adds up in mu^2.
    assert sum(plan.multiplier_of(name) ** -2 for name in asked) == pytest.approx(plan.multiplier**-2)
    book = pld.PLDAccountant(value_discretization_interval=1e-3)
    for name in asked:
        book.compose(dp_accounting.GaussianDpEvent(plan.multiplier_of(name)))
    assert book.get_epsilon(1e-5) == pytest.approx(4.0, rel=2e-3)
    with refused(ParameterError, "curves_share", 0, 1, "1.0"):
        private_moments_plan("gram.rows", "recording", 4.0, 1e-5, curves_share=1.0)


def with_noise(made, plan, quantile=0.2):
    guards = {
        name: DpGuard(plan, np.random.default_rng([5, k]).bytes, None, 1e-5)
        for k, name in enumerate(made.sites)
    }
    sites = {name: Site(name, data, (guards[name],)) for name, data in read_sites(made.sites).items()}
    return PrivateFederation(secure_federation(sites), plan, n_guaranteed=4, quantile=quantile), guards


def bent(n_recordings=300, seed=0, d=4):
    return simulate(
        d=d,
        n_sites=5,
        n_samples=19 * n_recordings,
        n_recordings=n_recordings // 5,
        mean_degree=2,
        effects="gp",
        random_state=seed,
    )


@pytest.mark.parametrize(
    ("center", "features"), [("none", "quadratic"), ("recording", "quadratic"), ("none", "spline")]
)
def test_with_next_to_no_noise_it_is_the_fit_without_noise(center, features):
    made, given = bent(), {"prepare": replace(AS_THEY_ARE, center=center), "features": features}
    wide = private_moments_plan("gram.rows", "recording", 8.0, 1e-5, curves_share=CURVES_SHARE)
    private, guards = with_noise(made, NoisePlan("recording", 1e-6, wide.rules), quantile=1.0)
    noisy = OneShotDBN(**given, federation=private).fit(None)
    # Under noise splines have their three smoothest functions.
    same = "smooth-curve" if features == "spline" else features
    plain = OneShotDBN(**{**given, "features": same}, check_residuals=False).fit(made.sites)
    assert noisy.features_ == features
    assert noisy.n_samples_ == pytest.approx(plain.n_samples_, abs=1)
    np.testing.assert_allclose(noisy.W_, plain.W_, atol=1e-5)
    np.testing.assert_allclose(noisy.A_, plain.A_, atol=1e-5)
    # Off their own means recordings have no level, and noise is fitted to that one matrix.
    level = plain.dbn_.intercept if center == "none" else 0.0
    np.testing.assert_allclose(noisy.dbn_.intercept, level, atol=1e-5)
    assert ("no-intercepts" in codes(noisy.findings_)) == (center == "recording")
    assert plain.dbn_.curves
    for one, other in zip(noisy.dbn_.curves, plain.dbn_.curves, strict=True):
        assert (one.source, one.target, one.lag) == (other.source, other.target, other.lag)
        assert one.basis == features
        assert other.covariance
        assert one.covariance == ()
        np.testing.assert_allclose(one.coefficients, other.coefficients, atol=1e-5)
    booked = [release.task for release in guards["site-1"].ledger.releases]
    assert booked == ["counts.norms", "gram.rows", "counts.norms", "gram.functions"]


def test_whatever_origin_and_scale_a_server_makes_up_a_recording_stays_within_the_bound():
    plan = NoisePlan(
        "recording", 1e-6, private_moments_plan("gram.rows", "recording", 8.0, 1e-5, curves_share=0.8).rules
    )
    given = frames()
    given[0].iloc[2, 0] = 1e200

    def told(which, scale):
        guard = DpGuard(plan, np.random.default_rng(1).bytes, None, 1e-5)
        asked = question(
            function_origin=np.array([3.0 if scale <= 1 else 0.0, 0.0]),
            function_scale=np.array([scale, 1.0]),
            clip_bound=20.0,
        )
        return Site("one", read_sites({"one": which})["one"], (guard,)).answer(Task(asked))

    weights = plan.rules["gram.functions"].weights(len(told(given, 1.0)))
    for scale in (2.0**-40, 2.0**-9, 1.0, 2.0**30):
        for k in range(len(given)):
            moved = told(given, scale) - told(given[:k] + given[k + 1 :], scale)
            # The same draws of noise are in both.
            assert np.linalg.norm(weights * moved) <= 20.0 * (1 + 1e-6)


def test_splines_under_noise_find_what_lines_miss_and_nothing_can_be_asked_twice():
    made = bent(600, seed=103, d=5)
    sites = {name: Site(name, data) for name, data in read_sites(made.sites).items()}
    wrong = {}
    for features in ("linear", "spline"):
        private = private_federation(
            sites, 8.0, curves=features == "spline", rng=np.random.default_rng([1, 2])
        )
        model = OneShotDBN(features=features, federation=private).fit(None)
        found = score(made.truth, model.dbn_)
        wrong[features] = found["W"]["shd"] + found["A"]["shd"]
        assert model.n_samples_ < 19 * 600
        assert private.last.noisy.moments.n == pytest.approx(model.n_samples_, abs=1)
        with pytest.raises(BudgetExceeded, match="this site's budget is 8"):
            OneShotDBN(features=features, federation=private).fit(None)
    assert wrong["spline"] <= 1 < wrong["linear"]


def test_auto_stays_linear_under_noise_and_curves_need_a_share():
    made = bent(200)
    sites = {name: Site(name, data) for name, data in read_sites(made.sites).items()}
    private = private_federation(sites, 8.0, curves=True, rng=np.random.default_rng(0))
    assert OneShotDBN(federation=private).fit(None).features_ == "linear"
    private = private_federation(sites, 8.0, rng=np.random.default_rng(0))
    with pytest.raises(
        ParameterError, match=r"features='spline' needs .* private_federation\(..., curves=True\)"
    ):
        OneShotDBN(features="spline", federation=private).fit(None)


def test_few_effective_rows_are_said():
    made = bent(200)
    sites = {name: Site(name, data) for name, data in read_sites(made.sites).items()}
    private = private_federation(sites, 3.0, curves=True, rng=np.random.default_rng(0))
    with pytest.warns(ResultWarning):
        model = OneShotDBN(features="spline", federation=private).fit(None)
    assert model.n_samples_ < 5 * 32
    few = only(model.findings_, "few-rows-for-curves")
    assert (few.values["q"], few.values["others"]) == (32, ["quadratic", "linear"])


def study(parameters, d=4, **privacy):
    return Study(
        name="s",
        method="oneshot",
        variables=tuple(f"x{k}" for k in range(d)),
        sites=("x", "y", "z"),
        parameters=parameters,
        privacy={"epsilon": 4.0, "delta": 1e-5, **privacy},
    )


def test_a_study_says_what_its_curves_cost():
    curved = study({"features": "spline"})
    costs = study_costs(curved)
    assert set(costs) == {"counts.norms", "gram.rows", "gram.functions"}
    assert max(costs, key=costs.get) == "gram.functions"
    assert max(costs.values()) < 4.0 < sum(costs.values())
    # Both histograms together cost what one does without curves.
    assert costs["counts.norms"] == pytest.approx(study_costs(study({}))["counts.norms"], rel=1e-5)
    assert set(study_noise_plan(study({"features": "auto"})).rules) == {"counts.norms", "gram.rows"}
    assert "gram.functions" in costs_in_words(curved)
    assert of_task(plan_of(curved), "gram.functions") == (1, sums_length(32))


def test_a_study_with_more_numbers_than_noise_is_added_to_is_refused():
    check_noise_size(study({"features": "spline"}, d=180))
    with refused(ParameterError, "1,048,576", "1,050,525"):
        check_noise_size(study({"features": "spline"}, d=181))


def test_norms_and_bounds_of_curved_rows_are_asked_within_studies_of_curves_alone():
    names = ("x0", "x1", "x2", "x3")
    asked = question(
        variables=names, function_origin=np.zeros(4), function_scale=np.ones(4), functions="smooth-curve"
    )
    norms = UnitNormsQuestion(of=asked, unit="recording", norm="gram")
    curved, linear = scope_of(study({"features": "spline"}), 3), scope_of(study({}), 3)
    norms.check_scope(curved)
    replace(asked, clip_bound=3.0).check_scope(curved)
    with refused(SiteRefused, "gram.functions", code="task-not-in-study"):
        norms.check_scope(linear)
    with refused(SiteRefused, "curve", code="other-functions"):
        replace(asked, functions="curve").check_scope(curved)
    without = replace(curved, unit=None)
    with refused(SiteRefused, "clip_bound", code="not-in-study"):
        replace(asked, clip_bound=3.0, functions="curve").check_scope(without)
    UnitNormsQuestion(of=GramQuestion(n_lags=1, variables=names), unit="recording", norm="gram").check_scope(
        linear
    )


def test_a_removed_row_moves_the_sum_by_no_more_than_it_pays_for():
    rules = private_moments_plan("gram.rows", "row", 8.0, 1e-5, curves_share=0.8).rules
    plan = NoisePlan("row", 1e-6, rules)
    frame = frames(n=1, rows=9)[0]

    def told(which):
        guard = DpGuard(plan, np.random.default_rng(1).bytes, None, 1e-5)
        return Site("one", read_sites({"one": which})["one"], (guard,)).answer(Task(question(clip_bound=5.0)))

    whole = told(frame)
    weights, allowed = (
        rules["gram.functions"].weights(len(whole)),
        plan.sensitivity("gram.functions", 5.0, True, 1),
    )
    moved = [
        np.linalg.norm(weights * (whole - told(frame.drop(index=k).reset_index(drop=True))))
        for k in range(len(frame))
    ]
    # Two lagged rows go and one comes.
    assert 5.0 < max(moved) <= allowed * (1 + 1e-6)
