"""How networks are judged on held-out rows, against the same computed from the rows themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from feddbn import DBN, FDBNL, OneShotDBN, Rounds, simulate
from feddbn.data import read_sites
from feddbn.errors import DataError, ParameterError, ProtocolError
from feddbn.federation.programs.held_out import Judge, Weights, judge_program
from feddbn.federation.protocol.rows import Treatment
from feddbn.federation.protocol.task import Task, run_program
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.prepare import AS_THEY_ARE
from feddbn.federation.sums.statistics import EarlierRows, make_fold
from feddbn.methods.base import simulated
from support.saying import refused
from support.sites import federation_of, memory_site

NAMES = ("u", "v", "w")
FOLD = make_fold(0, 1, 0.2)


def rows_of_sites(n=(80, 60), seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(rows, 3)).cumsum(axis=0) * 0.3 + rng.normal(size=(rows, 3)) + 2 for rows in n]


def sites_of(tables):
    return federation_of({f"s{k}": memory_site(rows, names=NAMES) for k, rows in enumerate(tables)})


def a_network(seed=1):
    rng = np.random.default_rng(seed)
    W = np.triu(rng.normal(size=(3, 3)), 1)
    return DBN(W, 0.4 * rng.normal(size=(1, 3, 3)), NAMES, intercept=rng.normal(size=3))


def weights_of(dbn, log_scales=None):
    C = np.concatenate([dbn.W, *dbn.A])
    return Weights(np.zeros(len(C)), np.ones(len(C)), C, dbn.intercept, log_scales)


def judged(judge, weights, federation):
    return run_program(judge.judged(weights), federation)


def last(rows, share=0.2, n_lags=1):
    """The held-out rows with the rows before them that only serve as lags."""
    return rows[len(rows) - round(share * len(rows)) - n_lags :]


@pytest.mark.parametrize("n_lags", [1, 3])
def test_squares_are_those_of_the_networks_own_residuals(n_lags):
    tables, dbn = rows_of_sites(), a_network()
    found = judged(Judge(FOLD, n_lags, NAMES, Treatment()), weights_of(dbn), sites_of(tables))
    residuals = np.concatenate([dbn.residuals(last(rows)) for rows in tables])
    np.testing.assert_allclose(found.squares, (residuals**2).sum(axis=0), rtol=1e-10)
    assert found.n_rows == len(residuals) == 16 + 12


def test_weights_of_prepared_variables_are_the_same_network():
    tables, dbn = rows_of_sites(), a_network()
    rng = np.random.default_rng(5)
    origin, scale = rng.normal(size=6), rng.uniform(0.5, 2.0, 6)
    B = np.concatenate([dbn.W, *dbn.A])
    C = B * scale[:, None] / scale[:3]
    judge, federation = Judge(FOLD, 1, NAMES, Treatment()), sites_of(tables)
    found = judged(judge, Weights(origin, scale, C), federation)
    same = DBN(dbn.W, dbn.A, NAMES, intercept=origin[:3] - origin @ B)
    np.testing.assert_allclose(found.squares, judged(judge, weights_of(same), federation).squares, rtol=1e-10)


@pytest.mark.parametrize(("degree", "periods"), [(0, ()), (1, ()), (1, (7.0,))])
def test_what_is_a_recordings_own_is_taken_off_the_residuals(degree, periods):
    tables, dbn = rows_of_sites(), a_network()
    judge = Judge(FOLD, 1, NAMES, Treatment(center="recording", degree=degree, periods=periods))
    found = judged(judge, weights_of(dbn), sites_of(tables))
    expected = np.zeros(3)
    for rows in tables:
        residuals = dbn.residuals(last(rows))
        t = np.arange(len(residuals), dtype=float)
        waves = [f(2 * np.pi * t / period) for period in periods for f in (np.sin, np.cos)]
        basis = np.stack([t**k for k in range(degree + 1)] + waves, axis=1)
        left = residuals - basis @ np.linalg.lstsq(basis, residuals, rcond=None)[0]
        expected += (left**2).sum(axis=0)
    np.testing.assert_allclose(found.squares, expected, rtol=1e-8)


def test_a_network_in_a_sites_own_units_is_judged_like_one_in_common_units():
    gains = [np.array([1.0, 4.0, 0.25]), np.array([3.0, 0.5, 1.0]), np.ones(3), np.ones(3)]
    tables, dbn = rows_of_sites((150, 150, 150, 150)), a_network()
    scaled = sites_of([rows * own for rows, own in zip(tables, gains, strict=True)])
    judge = run_program(
        judge_program(NAMES, 1, replace(AS_THEY_ARE, center="recording", gains="site"), FOLD), scaled
    )
    scales = judge.treatment.log_scales
    assert scales is not None
    # The same weights in common units, and in the units of the third site, whose gains are one.
    common = judged(judge, weights_of(dbn, scales), scaled)
    alone = sites_of(tables[2:3])
    one = scaled.sum(Task(judge.asks(weights_of(dbn)), ("s2",))).value
    plain = judged(Judge(FOLD, 1, NAMES, Treatment(center="recording")), weights_of(dbn), alone)
    question = GramQuestion(n_lags=1, variables=NAMES, log_scales=scales)
    own = question.gains(memory_site(tables[2], names=NAMES))
    np.testing.assert_allclose(one[:3], plain.squares * own**2, rtol=1e-8)
    assert not np.allclose(common.squares, judged(judge, weights_of(dbn), scaled).squares)


def test_rows_with_empty_cells_count_and_a_network_learned_from_them_predicts_best():
    fed = simulate(d=4, n_sites=4, n_samples=1200, random_state=1, corruptions={"missing": 0.3})
    federation = simulated(read_sites(fed.sites, missing="keep"))
    judge = run_program(
        judge_program(federation.variables, 1, replace(AS_THEY_ARE, missing="fill"), FOLD), federation
    )
    truth, nothing = (
        judged(judge, weights_of(dbn), federation)
        for dbn in (fed.truth, DBN(np.zeros((4, 4)), np.zeros((1, 4, 4)), fed.truth.variables))
    )
    assert truth.n_rows == nothing.n_rows > 0.95 * 0.2 * 1200
    assert truth.squares.sum() < 0.9 * nothing.squares.sum()


@pytest.mark.parametrize(
    "make",
    [
        lambda: OneShotDBN(prepare=AS_THEY_ARE, use_nongaussian=True, noise_variance="free"),
        lambda: FDBNL(rounds=Rounds(tol=1e-3), prepare=AS_THEY_ARE),
    ],
)
def test_what_is_fitted_on_earlier_rows_does_not_depend_on_later_ones(make):
    fed = simulate(d=3, n_sites=3, n_samples=450, noise="exponential", random_state=2)
    found = []
    for factor in (1.0, -50.0):
        tables = {name: frames[0].to_numpy().copy() for name, frames in fed.sites.items()}
        for rows in tables.values():
            rows[len(rows) - round(0.2 * len(rows)) :] *= factor
        federation = sites_of(list(tables.values()))
        fitted = make().set_params(federation=EarlierRows(federation, FOLD)).fit(None)
        found.append(fitted.dbn_)
        assert fitted.n_samples_ == sum(len(rows) - round(0.2 * len(rows)) - 1 for rows in tables.values())
    np.testing.assert_array_equal(found[0].W, found[1].W)
    np.testing.assert_array_equal(found[0].A, found[1].A)
    assert np.count_nonzero(found[0].W) + np.count_nonzero(found[0].A)


def test_a_site_without_a_row_in_some_block_does_not_answer():
    # With ten blocks of 5 %, the small site has none in most: differences of folds would be about the large one alone.
    federation = sites_of(rows_of_sites((2000, 40)))
    question = GramQuestion(n_lags=1, variables=NAMES, fold=make_fold(3, 10, 0.05))
    with refused(DataError, 5, "n_blocks=10"):
        federation.sum(Task(question))
    with refused(ProtocolError, 10, code="bad-question"):
        replace(question, fold=(0, 11, 500))
    with refused(ParameterError, "n_blocks=11", 1, 10):
        make_fold(0, 11, 0.5)


def test_what_cannot_be_asked_about_earlier_rows_is_refused():
    earlier = EarlierRows(sites_of(rows_of_sites()), FOLD)
    inner = GramQuestion(n_lags=1, variables=NAMES, fold=make_fold(0, 2, 0.3))
    with refused(ParameterError, "auto"):
        earlier.sum(Task(inner))


def test_why_sites_of_a_study_answer_about_its_own_folds_only():
    # A server that chooses the share reads the large site's rows from two sums: the small one has no row in between.
    tables = rows_of_sites((2000, 40))
    federation = sites_of(tables)
    counts, products = [], []
    for share in (0.3, 0.301):
        question = GramQuestion(n_lags=0, variables=NAMES, fold=make_fold(0, 1, share))
        sums = federation.sum(Task(question)).value
        counts.append(sums[0])
        products.append(sums[4:])
    assert counts[0] - counts[1] == 2
    between = tables[0][1398:1400]
    np.testing.assert_allclose(
        products[0] - products[1], (between.T @ between)[np.triu_indices(3)], rtol=1e-6
    )
