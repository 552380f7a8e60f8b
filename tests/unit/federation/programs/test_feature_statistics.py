from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from feddbn.core.designs.features import FeatureLayout, feature_map, feature_rows
from feddbn.core.designs.lagged import Block
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.errors import DataError, ParameterError, ProtocolError
from feddbn.federation.programs.feature_statistics import (
    Candidate,
    DirectionQuestion,
    FeatureMomentsQuestion,
    FeatureScaleQuestion,
    feature_statistics_program,
    is_baseline,
    pair_direction_program,
)
from feddbn.federation.protocol.site import Site, site_task
from feddbn.federation.protocol.task import Task, run_program
from feddbn.runtime.simulated.in_process import InProcessFederation

MOMENTS = next(
    feature_statistics_program(3, 2, [Candidate("quadratic", 0.6)], centring="label", standardise=False)
).question
CANDIDATES = (Candidate("linear"), Candidate("quadratic", 0.6), Candidate("spline", 0.8))


def _series(n_series: int, d: int = 3, offset: float = 2.0) -> list[Block]:
    rng = np.random.default_rng(7)
    blocks = []
    for k in range(n_series):
        n = 12 + 3 * k
        values = rng.standard_normal((n, d)).cumsum(axis=0) * 0.3 + offset + rng.standard_normal(d)
        blocks.append(Block(values, labels=(np.arange(n) < n // 2).astype(int) * (k % 2 + 1)))
    return blocks


def _federation(groups: list[list[Block]]) -> InProcessFederation:
    sites = {}
    for k, group in enumerate(groups):
        recordings = [ArrayRecording(f"r{i}", (block,)) for i, block in enumerate(group)]
        variables = tuple(f"x{i}" for i in range(group[0].values.shape[1]))
        sites[f"s{k:02d}"] = Site(f"s{k:02d}", MemorySite(variables, recordings))
    return InProcessFederation(sites)


def _deal(blocks: list[Block], n_sites: int) -> list[list[Block]]:
    return [blocks[k::n_sites] for k in range(n_sites)]


@pytest.mark.parametrize("centring", ["shared", "recording", "label"])
@pytest.mark.parametrize("n_sites", [2, 5, 10])
def test_sums_over_sites_equal_the_pooled_statistics(centring, n_sites):
    blocks = _series(10)
    one, units = run_program(
        feature_statistics_program(3, 2, CANDIDATES, centring=centring), _federation([blocks])
    )
    many, same = run_program(
        feature_statistics_program(3, 2, CANDIDATES, centring=centring), _federation(_deal(blocks, n_sites))
    )
    np.testing.assert_allclose(units, same, atol=1e-12)
    for pooled, summed in zip(one, many, strict=True):
        assert (pooled.n, pooled.n_intercepts) == (summed.n, summed.n_intercepts)
        np.testing.assert_allclose(summed.cross, pooled.cross, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("centring", ["shared", "recording", "label"])
def test_statistics_equal_rows_centred_by_hand(centring):
    blocks = _series(4)
    federation = _federation(_deal(blocks, 2))
    (found, *_), units = run_program(
        feature_statistics_program(3, 1, [Candidate("quadratic", 0.6)], centring=centring), federation
    )
    x = np.concatenate([block.values for block in blocks])
    np.testing.assert_allclose(units, [x.mean(axis=0), x.std(axis=0)], atol=1e-10)
    shared, own = [], []
    for block in blocks:
        chunk = next(
            feature_rows([block], 1, feature_map("quadratic"), smoothing=0.6, origin=units[0], scale=units[1])
        )
        for label in np.unique(chunk.labels):
            rows = chunk.rows[chunk.labels == label]
            if centring == "label":
                (shared if label == 0 else own).append(rows)
        if centring != "label":
            (shared if centring == "shared" else own).append(chunk.rows)
    parts = [rows - rows.mean(axis=0) for rows in own]
    if shared:
        together = np.concatenate(shared)
        parts.append(together - together.mean(axis=0))
    Z = np.concatenate(parts)
    np.testing.assert_allclose(found.cross, Z.T @ Z, atol=1e-9)
    assert found.n == len(Z)
    assert found.n_intercepts == len(parts)
    assert found.layout == FeatureLayout(3, 1, 2)


def test_large_means_do_not_spoil_the_cross_products():
    near = [Block(block.values, labels=block.labels) for block in _series(4, offset=0.0)]
    far = [Block(block.values + 1e6, labels=block.labels) for block in near]
    (small, *_), _ = run_program(feature_statistics_program(3, 1, [Candidate("linear")]), _federation([near]))
    (large, *_), _ = run_program(feature_statistics_program(3, 1, [Candidate("linear")]), _federation([far]))
    correlation = [s.cross / np.sqrt(np.outer(np.diag(s.cross), np.diag(s.cross))) for s in (small, large)]
    np.testing.assert_allclose(correlation[0], correlation[1], atol=1e-7)


@pytest.mark.parametrize(("standardise", "expected"), [(True, 2), (False, 1)])
def test_all_candidates_need_two_sums_and_one_without_standardisation(standardise, expected):
    asked: list[str] = []
    program = feature_statistics_program(3, 1, CANDIDATES, standardise=standardise)
    results, _ = run_program(program, _federation([_series(3)]), lambda task, _: asked.append(task.name))
    assert len(asked) == expected
    assert [s.candidate for s in results] == list(CANDIDATES)


QUESTIONS = [FeatureScaleQuestion(), MOMENTS, DirectionQuestion()]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_units_of_a_site_add_up_to_its_vector(question):
    site = _federation([_series(5)]).site("s00")
    units = list(site_task(question.name).units(site.here, question, "recording"))
    assert len(units) == 5
    np.testing.assert_allclose(np.sum(units, axis=0), site.answer(Task(question)), rtol=1e-12)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_splitting_by_anything_but_recordings_is_refused(question):
    site = _federation([_series(2)]).site("s00")
    with pytest.raises(ProtocolError, match="can be split by recording only, not by 'row'"):
        list(site_task(question.name).units(site.here, question, "row"))


def test_a_question_that_travelled_as_json_gives_the_same_vector():
    site = _federation([_series(3)]).site("s00")
    travelled = FeatureMomentsQuestion.read(json.loads(json.dumps(MOMENTS.params)), MOMENTS.arrays)
    np.testing.assert_array_equal(site.answer(Task(MOMENTS)), site.answer(Task(travelled)))


@pytest.mark.parametrize(
    "change",
    [{"n_lags": 0}, {"centring": "week"}, {"smoothing": (1.0, 0.5)}, {"features": "linear"}, {"x": 1}],
)
def test_a_malformed_task_is_the_servers_fault(change):
    with pytest.raises(ProtocolError, match="task 'feature-moments'"):
        FeatureMomentsQuestion.read({**MOMENTS.params, **change}, MOMENTS.arrays)


def test_a_map_the_site_does_not_know_is_refused_with_the_remedy():
    site = _federation([_series(2)]).site("s00")
    with pytest.raises(ParameterError, match="registered at every site with register_feature_map"):
        site.answer(Task(replace(MOMENTS, features=("somebody.else",))))


def test_falsy_and_missing_labels_are_the_baseline():
    assert is_baseline(np.array([0, 1, 2])).tolist() == [True, False, False]
    assert is_baseline(np.array([0.0, np.nan, 3.0])).tolist() == [True, True, False]
    assert is_baseline(np.array(["", "drug"])).tolist() == [True, False]
    assert is_baseline(np.array([None, False, "x", ""], dtype=object)).tolist() == [True, True, False, True]
    assert is_baseline(np.array(["off", "on"]), "off").tolist() == [True, False]


def test_a_named_baseline_is_the_same_as_an_empty_label():
    blocks = _series(4)
    words = [Block(b.values, labels=np.where(b.labels == 0, "off", b.labels.astype(str))) for b in blocks]
    (numbers, *_), _ = run_program(
        feature_statistics_program(3, 1, [Candidate("linear")], centring="label"), _federation([blocks])
    )
    (named, *_), _ = run_program(
        feature_statistics_program(3, 1, [Candidate("linear")], centring="label", baseline="off"),
        _federation([words]),
    )
    np.testing.assert_allclose(numbers.cross, named.cross, atol=1e-12)


def test_centring_by_a_label_that_is_not_there_names_the_recording():
    blocks = [Block(block.values) for block in _series(2)]
    with pytest.raises(DataError, match="recording 'r0' has no label column, but center_by asks"):
        run_program(
            feature_statistics_program(3, 1, [Candidate("linear")], centring="label"), _federation([blocks])
        )


def test_an_unknown_centring_and_an_empty_federation_are_refused():
    with pytest.raises(ParameterError, match="centring must be one of shared, recording, label, got 'week'"):
        next(feature_statistics_program(3, 1, [Candidate("linear")], centring="week"))
    empty = _federation([[Block(np.zeros((0, 3)))]])
    with pytest.raises(DataError, match="the sites hold 0 rows together; at least 2 are needed"):
        run_program(feature_statistics_program(3, 1, [Candidate("linear")]), empty)


def test_pair_scores_over_sites_equal_the_pooled_ones():
    blocks = _series(10)
    one = run_program(pair_direction_program(3), _federation([blocks]))
    many = run_program(pair_direction_program(3), _federation(_deal(blocks, 4)))
    np.testing.assert_allclose(one.score, many.score, atol=1e-10)
