"""Several modules: resamples of curved rows are those of the pooled rows, and replicate -1 is what a fit learns from."""

import numpy as np
import pytest

from feddbn.core.designs.design import Basis, Design, design_rows
from feddbn.core.statistics.moments import Moments, sums_length
from feddbn.errors import ProtocolError, SiteRefused
from feddbn.federation.programs.curved import curved_moments_program
from feddbn.federation.protocol.rows import Treatment, treated
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Scope, Task, run_program
from feddbn.federation.sums import gram
from feddbn.federation.sums.gram import GramQuestion, bootstrap_program, resampling_plan
from support.saying import refused
from support.sites import federation_of, memory_site

NAMES = ("a", "b")
PRODUCTS = ((0, 1, 1),)
LEVEL, SCALE = np.array([5.0, -2.0]), np.array([2.0, 0.5])


def about_level(seed, lengths, empty=0.0):
    rng = np.random.default_rng(seed)
    tables = []
    for n in lengths:
        x = LEVEL + SCALE * rng.normal(size=(n, 2))
        x[rng.random(x.shape) < empty] = np.nan
        tables.append(x)
    return memory_site(*tables, names=NAMES)


SITES = {"one": about_level(0, [40, 17, 9]), "two": about_level(1, [25, 30])}
PLAIN = Moments(100.0, np.tile(LEVEL, 2), np.diag(100.0 * np.tile(SCALE**2, 2)))


def curved_fit(sites, treatment=None):
    """What a fit asks for."""
    treatment = treatment or Treatment()
    program = curved_moments_program(NAMES, 1, PLAIN, "spline", treatment.center, PRODUCTS)
    return run_program(treated(program, treatment), federation_of(sites))


def resampled(sites, treatment=None, n_replicates=5, **options):
    treatment = treatment or Treatment()
    curved = curved_fit(sites, treatment).question
    program = bootstrap_program(
        NAMES, 1, n_replicates, curved=curved, block_length=4, center=treatment.center, **options
    )
    return run_program(treated(program, treatment), federation_of(sites))


@pytest.mark.parametrize("resampling", ["bootstrap", "stability"])
def test_resampled_sums_of_sites_equal_pooled_resampled_rows(resampling):
    found = resampled(SITES, resampling=resampling, seed=3)
    design = Design.curved(
        NAMES, 1, Basis("curve"), origin=tuple(LEVEL), scale=tuple(SCALE), products=PRODUCTS
    )
    for replicate in range(5):
        rows = []
        for data in SITES.values():
            plan = resampling_plan(data, 1, 4, "auto")
            counts = plan.counts(resampling, 3, replicate)
            chunks = [c.values for r in data.recordings() for c in design_rows(design, r.blocks())]
            for chunk, sizes, units in zip(chunks, plan.sizes, plan.units, strict=True):
                rows.append(np.repeat(chunk, np.repeat(counts[units].astype(int), sizes), axis=0))
        expected = Moments.of_rows(np.concatenate(rows))
        ours = found.replicates[replicate]
        assert ours.n == expected.n
        np.testing.assert_allclose(ours.mean, expected.mean, atol=1e-12)
        np.testing.assert_allclose(ours.scatter, expected.scatter, rtol=1e-9, atol=1e-9)


MODEL = np.vstack([np.tile(LEVEL, 2), np.diag(np.tile(SCALE**2, 2))])


@pytest.mark.parametrize(
    ("treatment", "empty"),
    [
        (Treatment(), 0.0),
        (Treatment(center="recording"), 0.0),
        (Treatment(center="recording", degree=1), 0.0),
        (Treatment(row_model=MODEL), 0.1),
        (Treatment(log_scales=np.log(SCALE)), 0.0),
        (Treatment(), 0.1),
    ],
)
def test_replicate_minus_one_is_the_sum_that_a_fit_learns_from(treatment, empty):
    sites = {"one": about_level(0, [40, 17, 9], empty), "two": about_level(1, [25, 30], empty)}
    told, found = curved_fit(sites, treatment), resampled(sites, treatment)
    full = found.worth(told.moments.n / found.full.n).full
    assert full.n == pytest.approx(told.moments.n)
    np.testing.assert_allclose(full.mean, told.moments.mean, atol=1e-12)
    np.testing.assert_allclose(full.scatter, told.moments.scatter, rtol=1e-9, atol=1e-9)
    assert not np.allclose(found.replicates[0].scatter, found.replicates[1].scatter)


def test_long_stacks_are_cut_into_several_sums(monkeypatch):
    whole = resampled(SITES)
    monkeypatch.setattr(gram, "FLOATS_PER_TASK", 2 * sums_length(whole.full.q))
    parts = resampled(SITES)
    for a, b in zip((whole.full, *whole.replicates), (parts.full, *parts.replicates), strict=True):
        np.testing.assert_allclose(a.scatter, b.scatter, rtol=1e-12, atol=1e-9)


GOOD = {"n_lags": 1, "variables": NAMES, "first": -1, "stop": 1, "resampling": "bootstrap"}
GOOD |= {"block_rule": "auto", "resampled": "auto", "seed": 0, "functions": "curve", "products": (0, 1, 1)}
ARRAYS = {"origin": np.zeros(4 * 7 + 1), "function_origin": LEVEL, "function_scale": SCALE}


@pytest.mark.parametrize(
    ("change", "arrays", "name"),
    [
        ({"functions": ""}, {"origin": np.zeros(4)}, "'functions'"),
        ({"products": ()}, {}, "'origin'"),
        ({"functions": "wiggle"}, {}, "'wiggle'"),
        ({}, {"function_scale": -SCALE}, "scale"),
        ({"stop": 100_000}, {}, "100001"),
    ],
)
def test_malformed_questions_are_refused(change, arrays, name):
    given = {name: value for name, value in {**ARRAYS, **arrays}.items() if value is not None}
    with refused(ProtocolError, name, code="bad-question"):
        GramQuestion.read({**GOOD, **change}, given)


def test_a_question_travels_and_says_what_a_guard_needs():
    question = GramQuestion.read(GOOD, ARRAYS)
    again = GramQuestion.read(question.params, question.arrays)
    assert again.n_columns == question.n_columns == 29
    assert again.feature_maps == ("spline",)
    same = GramQuestion(
        n_lags=1,
        variables=NAMES,
        functions="curve",
        function_origin=LEVEL,
        function_scale=SCALE,
        products=(0, 1, 1),
    )
    # A run that asked for the moments of a design may resample that one, and no other beyond what a fit comes to.
    assert [one.digest for one in question.constants[:-1]] == [one.digest for one in same.constants[:-1]]
    assert Site("s", SITES["one"]).answer(Task(question)).shape == (2 * sums_length(29),)


def test_functions_and_products_of_resamples_are_the_studys():
    how = {"replicates": 5, "resampling": "bootstrap", "block_rule": "auto", "block_length": 0}
    how |= {"resampled": "auto", "seed": 0}

    def scope(**parameters):
        return Scope(variables=NAMES, lags=(1,), resampling=how, parameters=parameters)

    question = GramQuestion.read(GOOD, ARRAYS)
    question.check_scope(scope(features="spline", interactions=True))
    for parameters in ({"features": "quadratic", "interactions": True}, {}, {"features": "spline"}):
        with refused(SiteRefused, code="other-functions"):
            question.check_scope(scope(**parameters))
