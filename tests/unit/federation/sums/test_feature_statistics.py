from __future__ import annotations

import json

import numpy as np
import pytest

from feddbn.core.designs.design import Basis, Design, Nuisance, Term, design_rows
from feddbn.core.designs.gram import Gram
from feddbn.core.designs.recordings import Block
from feddbn.data.memory import ArrayRecording
from feddbn.errors import DataError, ParameterError, ProtocolError, SiteRefused
from feddbn.federation.guards.site_guards import PolicyGuard
from feddbn.federation.protocol.site import Site, site_task, task_from_fields
from feddbn.federation.protocol.task import Task, run_program
from feddbn.federation.sums.feature_statistics import (
    Candidate,
    DirectionQuestion,
    FeatureMomentsQuestion,
    FeatureScaleQuestion,
    feature_statistics_program,
    pair_direction_program,
)
from feddbn.federation.sums.private_moments import UnitNormsQuestion
from feddbn.privacy.policy import SitePolicy
from support.saying import refused
from support.simulated_moments import gram_of
from support.sites import federation_of

NAMES = ("x0", "x1", "x2")
CANDIDATES = (Candidate("linear"), Candidate("quadratic", 0.6), Candidate("spline", 0.8))


def _series(n_series: int, d: int = 3, offset: float = 2.0) -> list[Block]:
    rng = np.random.default_rng(7)
    blocks = []
    for k in range(n_series):
        n = 12 + 3 * k
        values = rng.standard_normal((n, d)).cumsum(axis=0) * 0.3 + offset + rng.standard_normal(d)
        blocks.append(Block(values, labels=(np.arange(n) < n // 2).astype(int) * (k % 2 + 1)))
    return blocks


def _deal(blocks: list[Block], n_sites: int) -> list[list[Block]]:
    return [blocks[k::n_sites] for k in range(n_sites)]


@pytest.mark.parametrize("centring", ["shared", "recording", "label"])
@pytest.mark.parametrize("n_sites", [2, 5, 10])
def test_sums_over_sites_equal_the_pooled_statistics(centring, n_sites):
    blocks = _series(10)
    one, units = run_program(
        feature_statistics_program(NAMES, 2, CANDIDATES, centring=centring), federation_of([blocks])
    )
    many, same = run_program(
        feature_statistics_program(NAMES, 2, CANDIDATES, centring=centring),
        federation_of(_deal(blocks, n_sites)),
    )
    np.testing.assert_allclose(units, same, atol=1e-12)
    for pooled, summed in zip(one, many, strict=True):
        assert (pooled.n, pooled.n_intercepts) == (summed.n, summed.n_intercepts)
        np.testing.assert_allclose(summed.cross, pooled.cross, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("centring", ["shared", "recording", "label"])
def test_statistics_equal_rows_centred_by_hand(centring):
    blocks = _series(4)
    federation = federation_of(_deal(blocks, 2))
    (found, *_), units = run_program(
        feature_statistics_program(NAMES, 1, [Candidate("quadratic", 0.6)], centring=centring), federation
    )
    x = np.concatenate([block.values for block in blocks])
    np.testing.assert_allclose(units, [x.mean(axis=0), x.std(axis=0)], atol=1e-10)
    shared, own = [], []
    for block in blocks:
        chunk = next(design_rows(found.design, [block]))
        for label in np.unique(chunk.labels):
            rows = chunk.values[chunk.labels == label]
            if centring == "label":
                (shared if label == 0 else own).append(rows)
        if centring != "label":
            (shared if centring == "shared" else own).append(chunk.values)
    parts = [rows - rows.mean(axis=0) for rows in own]
    if shared:
        together = np.concatenate(shared)
        parts.append(together - together.mean(axis=0))
    Z = np.concatenate(parts)
    np.testing.assert_allclose(found.cross, Z.T @ Z, atol=1e-9)
    assert found.n == len(Z)
    assert found.n_intercepts == len(parts)
    assert (found.design.d, found.design.n_lags, found.design.edge_columns.shape[1]) == (3, 1, 2)


def test_large_means_do_not_spoil_the_cross_products():
    near = [Block(block.values, labels=block.labels) for block in _series(4, offset=0.0)]
    far = [Block(block.values + 1e6, labels=block.labels) for block in near]
    (small, *_), _ = run_program(
        feature_statistics_program(NAMES, 1, [Candidate("linear")]), federation_of([near])
    )
    (large, *_), _ = run_program(
        feature_statistics_program(NAMES, 1, [Candidate("linear")]), federation_of([far])
    )
    correlation = [s.cross / np.sqrt(np.outer(np.diag(s.cross), np.diag(s.cross))) for s in (small, large)]
    np.testing.assert_allclose(correlation[0], correlation[1], atol=1e-7)


@pytest.mark.parametrize(("standardise", "expected"), [(True, 2), (False, 1)])
def test_all_candidates_need_two_sums_and_one_without_standardisation(standardise, expected):
    asked: list[str] = []
    program = feature_statistics_program(NAMES, 1, CANDIDATES, standardise=standardise)
    results, _ = run_program(program, federation_of([_series(3)]), lambda task, _: asked.append(task.name))
    assert len(asked) == expected
    assert [s.candidate for s in results] == list(CANDIDATES)


@pytest.mark.parametrize("name", ["gram.scales", "gram.features", "residuals.pairs"])
def test_units_of_a_site_add_up_to_its_vector(name):
    site = federation_of([_series(5)]).site("s0")
    task = _task(name)
    program = site_task(name)
    assert program.units is not None
    units = list(program.units(site.here, task.question, "recording"))
    assert len(units) == 5
    np.testing.assert_allclose(np.sum(units, axis=0), site.answer(task), rtol=1e-12)


@pytest.mark.parametrize("name", ["gram.scales", "gram.features", "residuals.pairs"])
def test_splitting_by_anything_but_recordings_is_refused(name):
    site = federation_of([_series(2)]).site("s0")
    with refused(ProtocolError, "row", code="unit-mixed"):
        list(site_task(name).units(site.here, _task(name).question, "row"))


def test_a_task_that_travelled_as_json_gives_the_same_vector():
    site = federation_of([_series(3)]).site("s0")
    task = _task("gram.features")
    travelled = task_from_fields(json.loads(json.dumps(task.fields())), task.arrays, None)
    assert travelled.question == task.question
    np.testing.assert_array_equal(site.answer(task), site.answer(travelled))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"version": 7}, "version 7"),
        ({"scale": [1.0]}, "scale"),
        ({"nuisance": {}}, "Nuisance"),
        ({"terms": []}, "term"),
    ],
)
def test_a_malformed_design_is_the_servers_fault(change, name):
    fields = json.loads(json.dumps(_task("gram.features").fields()))
    fields["params"]["designs"][0] |= change
    with refused(ProtocolError, "gram.features", name, code="bad-question"):
        task_from_fields(fields, {}, None)


@pytest.mark.parametrize("designs", [[], "all", 3])
def test_designs_must_be_a_list(designs):
    with refused(ProtocolError, "designs", code="bad-question"):
        FeatureMomentsQuestion.read({"designs": designs}, {})


def test_designs_of_one_question_share_their_variables_and_do_not_reach_too_far_back():
    one, other = Design.linear(NAMES, 1), Design.linear(("a", "b"), 1)
    with refused(ProtocolError, "designs", code="bad-question"):
        FeatureMomentsQuestion(designs=(one, other))
    with refused(ProtocolError, "designs", 1000, code="bad-question"):
        FeatureMomentsQuestion(designs=(Design.linear(NAMES, 1001),))


def test_a_site_with_other_variables_refuses():
    site = federation_of([_series(2)]).site("s0")
    question = FeatureMomentsQuestion(designs=(Design.linear(("x0", "x2", "x1"), 1),))
    with refused(ProtocolError, code="other-variables"):
        site.answer(Task(question))


def test_any_design_can_be_asked_for():
    blocks = _series(6)
    design = Design.linear(NAMES, 1, Nuisance("recording", degree=1))
    answer = federation_of(_deal(blocks, 3)).sum(Task(FeatureMomentsQuestion(designs=(design,))))
    found = Gram.from_sums(answer.value, design.q)
    pooled = gram_of(design, [ArrayRecording(f"r{i}", (block,)) for i, block in enumerate(blocks)])
    assert (
        (found.n, found.n_nuisance)
        == (pooled.n, pooled.n_nuisance)
        == (sum(len(b.values) - 1 for b in blocks), 12)
    )
    np.testing.assert_allclose(found.scatter, pooled.scatter, atol=1e-10)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_policy_judges_the_maps_of_every_term(wrapped):
    site = federation_of([_series(2)]).site("s0")
    policy = SitePolicy(tasks=("gram.features", "counts.norms"), features=("linear",), require_masking=False)
    guarded = Site("s0", site.data, guards=[PolicyGuard(policy, 5)])
    hidden = (
        Term(Basis(), (0, 1)),
        Term(Basis("linear"), (1,)),
        Term(Basis("quadratic"), (1,), is_edge=False),
    )
    allowed = FeatureMomentsQuestion(designs=(Design(NAMES, hidden[:2]),))
    hiding = FeatureMomentsQuestion(designs=(Design(NAMES, hidden[:2]), Design(NAMES, hidden)))
    if wrapped:
        allowed, hiding = (UnitNormsQuestion(of=of, unit="recording") for of in (allowed, hiding))
    guarded.answer(Task(allowed))
    with refused(SiteRefused, "quadratic", code="features-not-allowed"):
        guarded.answer(Task(hiding))


def test_a_map_the_site_does_not_know_is_refused_with_the_remedy():
    fields = json.loads(json.dumps(_task("gram.features").fields()))
    fields["params"]["designs"][0]["terms"][1]["basis"]["name"] = "somebody.else"
    with refused(ProtocolError, "register_feature_map", code="bad-question"):
        task_from_fields(fields, {}, None)


def test_a_named_baseline_is_the_same_as_an_empty_label():
    blocks = _series(4)
    words = [Block(b.values, labels=np.where(b.labels == 0, "off", b.labels.astype(str))) for b in blocks]
    (numbers, *_), _ = run_program(
        feature_statistics_program(NAMES, 1, [Candidate("linear")], centring="label"), federation_of([blocks])
    )
    (named, *_), _ = run_program(
        feature_statistics_program(NAMES, 1, [Candidate("linear")], centring="label", baseline="off"),
        federation_of([words]),
    )
    np.testing.assert_allclose(numbers.cross, named.cross, atol=1e-12)


def test_centring_by_a_label_that_is_not_there_names_the_recording():
    blocks = [Block(block.values) for block in _series(2)]
    with refused(DataError, "r0", "center_by"):
        run_program(
            feature_statistics_program(NAMES, 1, [Candidate("linear")], centring="label"),
            federation_of([blocks]),
        )


def test_an_unknown_centring_and_an_empty_federation_are_refused():
    with refused(ParameterError, "week"):
        next(feature_statistics_program(NAMES, 1, [Candidate("linear")], centring="week"))
    empty = federation_of([[Block(np.zeros((0, 3)))]])
    with refused(DataError, 0, 2):
        run_program(feature_statistics_program(NAMES, 1, [Candidate("linear")]), empty)


def test_pair_scores_over_sites_equal_the_pooled_ones():
    blocks = _series(10)
    one = run_program(pair_direction_program(3), federation_of([blocks]))
    many = run_program(pair_direction_program(3), federation_of(_deal(blocks, 4)))
    np.testing.assert_allclose(one.score, many.score, atol=1e-10)


def _task(name: str) -> Task:
    if name == "gram.scales":
        return Task(FeatureScaleQuestion())
    if name == "residuals.pairs":
        return Task(DirectionQuestion())
    program = feature_statistics_program(
        NAMES, 2, [Candidate("quadratic", 0.6)], centring="label", standardise=False
    )
    return next(program)
