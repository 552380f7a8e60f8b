from dataclasses import replace

import numpy as np
import pytest

from feddbn.core.constraints import EdgeConstraints
from feddbn.core.designs.recordings import Block, lagged_rows
from feddbn.core.orders.learn import OrderLearner
from feddbn.core.orders.nongaussian import shape_sums
from feddbn.core.statistics.moments import Moments
from feddbn.errors import DataError, ParameterError, ProtocolError
from feddbn.federation.programs.oneshot import OneShotOptions, oneshot_program
from feddbn.federation.programs.residual_checks import ResidualsQuestion
from feddbn.federation.protocol.site import site_task
from feddbn.federation.protocol.task import Task, run_program
from feddbn.federation.sums.gram import GramQuestion
from support.saying import refused
from support.sites import federation_of


def series(n=80, d=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    x[:, 1] += 0.9 * x[:, 0]
    x[1:, 2] += 0.8 * x[:-1, 1]
    return x


def run(fed, d=3, **options):
    seen = []
    learn = OrderLearner(**{k: options.pop(k) for k in ("noise_variance", "average") if k in options})
    p = options.get("n_lags", 1)
    program = oneshot_program(
        tuple(f"x{i}" for i in range(d)),
        EdgeConstraints.none(d, p),
        OneShotOptions(learn=learn, **options),
        np.random.default_rng(0),
    )
    outcome = run_program(program, fed, lambda task, answer: seen.append(task))
    return outcome, seen


def test_sums_of_sites_are_the_moments_of_the_pooled_rows():
    tables = [[series(40, seed=1)], [series(30, seed=2), series(50, seed=3)]]
    outcome, _ = run(federation_of(tables))
    pooled = np.concatenate([chunk for t in tables for x in t for chunk in lagged_rows([Block(x)], 1)])
    expected = Moments.of_rows(pooled)
    assert outcome.moments.n == expected.n == 39 + 29 + 49
    np.testing.assert_allclose(outcome.moments.scatter, expected.scatter, rtol=1e-10, atol=1e-10)


def test_one_sum_is_enough_when_nothing_is_left_open():
    outcome, seen = run(federation_of([[series()]]), noise_variance="equal")
    assert [task.name for task in seen] == ["gram.rows"]
    assert outcome.n_sums == 1


def test_large_means_ask_for_a_second_sum_about_a_public_origin():
    x = series(200) + 1e7
    outcome, seen = run(federation_of([[x[:100]], [x[100:]]]), noise_variance="equal")
    assert [task.name for task in seen] == ["gram.rows"] * 2
    assert "origin" in seen[1].arrays
    plain, _ = run(federation_of([[series(200)[:100]], [series(200)[100:]]]), noise_variance="equal")
    np.testing.assert_allclose(outcome.moments.scatter, plain.moments.scatter, rtol=1e-6, atol=1e-4)
    assert np.array_equal(outcome.learned.support, plain.learned.support)


def test_the_noise_is_asked_only_if_a_direction_is_open():
    rng = np.random.default_rng(0)
    x = rng.exponential(size=(600, 2)) - 1
    x[:, 1] += 0.8 * x[:, 0]
    outcome, seen = run(federation_of([[x[:300]], [x[300:]]]), d=2, noise_variance="free")
    assert "residuals.shapes" in [task.name for task in seen]
    assert outcome.nongaussian.used
    assert outcome.learned.support[:2].tolist() == [[False, True], [False, False]]
    (edge,) = outcome.learned.orientation
    assert edge.oriented
    mirrored, _ = run(federation_of([[x[:300, ::-1]], [x[300:, ::-1]]]), d=2, noise_variance="free")
    assert mirrored.learned.support[:2].tolist() == [[False, False], [True, False]]


def test_heavy_tails_correct_what_equal_variances_say():
    rng = np.random.default_rng(2)
    x = rng.exponential(size=(300, 2)) - 1
    x[:, 1] += 0.6 * x[:, 0]
    # A variance of 1.7 instead of 1 is unlikely, but not for heavy tails; as the effect it would be likely.
    x[:, 0] *= 1.3
    plain, seen = run(federation_of([[x]]), d=2, noise_variance="equal", use_nongaussian=False)
    assert plain.learned.support[:2].tolist() == [[False, False], [True, False]]
    assert "shape" not in seen[0].params
    outcome, seen = run(federation_of([[x[:100]], [x[100:]]]), d=2, noise_variance="equal")
    assert [task.name for task in seen] == ["gram.rows", *["residuals.shapes"] * (outcome.n_sums - 1)]
    assert outcome.nongaussian.used
    assert outcome.learned.support[:2].tolist() == [[False, True], [False, False]]
    (edge,) = outcome.learned.orientation
    assert (edge.source, edge.target, edge.oriented) == (0, 1, True)


def test_the_shape_travels_with_the_moments_and_stays_out_of_noise():
    x = series()
    here, program = federation_of([[x]]).site("s0").here, site_task("gram.rows")
    plain = GramQuestion(n_lags=1, variables=("x0", "x1", "x2"))
    shaped = replace(plain, shape=True)
    short, long = (program.answer(here, question)[1] for question in (plain, shaped))
    np.testing.assert_array_equal(long[: len(short)], short)
    np.testing.assert_array_equal(long[len(short) :], shape_sums(x))
    with pytest.raises(ParameterError, match="shape=True"):
        next(program.units(here, shaped, "recording"))


def test_gaussian_noise_directs_nothing():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((600, 2))
    x[:, 1] += 0.8 * x[:, 0]
    outcome, _ = run(federation_of([[x]]), d=2, noise_variance="free")
    assert not outcome.nongaussian.used
    (edge,) = outcome.learned.orientation
    assert not edge.oriented
    assert edge.score_difference == 0
    asked_nothing, seen = run(federation_of([[x]]), d=2, noise_variance="free", use_nongaussian=False)
    assert asked_nothing.nongaussian is None
    assert len(seen) == 1


def test_lags_are_chosen_from_the_same_sum():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((800, 3))
    for t in range(2, 800):
        x[t, 0] += 0.6 * x[t - 2, 1]
    outcome, seen = run(federation_of([[x]]), n_lags=4, choose_n_lags=True, noise_variance="equal")
    assert outcome.n_lags == 2
    assert len(outcome.lag_scores) == 5
    assert len(seen) == 1
    assert outcome.learned.support.shape == (9, 3)
    white, _ = run(
        federation_of([[rng.standard_normal((800, 3))]]), n_lags=3, choose_n_lags=True, noise_variance="equal"
    )
    assert white.n_lags == 0


def test_a_constant_variable_is_named():
    x = series()
    x[:, 2] = 7.0
    with pytest.raises(DataError, match="x2"):
        run(federation_of([[x]]))


def test_too_few_rows_say_so():
    with refused(DataError, 5, 3):
        run(federation_of([[series(4)]]))


def residuals(**change):
    rng = np.random.default_rng(0)
    arrays = {"coefficients": rng.standard_normal((6, 2)), "offset": rng.standard_normal(2)}
    return ResidualsQuestion(
        **{"shapes": True, "n_lags": 1, "variables": ("x0", "x1", "x2"), **arrays, **change}
    )


def test_a_question_whose_arrays_do_not_fit_is_refused():
    with refused(ProtocolError, "coefficients", 4, 1, 6, code="bad-question"):
        residuals(coefficients=np.zeros((4, 1)), offset=np.zeros(1))
    with refused(ProtocolError, "offset", 1, 2, code="bad-question"):
        residuals(offset=np.zeros(1))
    with refused(ProtocolError, "n_lags", "-1", 0, code="bad-question"):
        residuals(n_lags=-1)
    with refused(ProtocolError, code="other-variables"):
        federation_of([[series()]]).sum(Task(residuals(variables=("x0", "x1", "y"))))


def test_residual_features_split_by_recording_add_up_to_the_site():
    site = federation_of([[series(seed=1), series(seed=2)]]).site("s0")
    question = residuals()
    units = list(site_task("residuals.shapes").units(site.here, question, "recording"))
    assert len(units) == 2
    np.testing.assert_allclose(sum(units), site.answer(Task(question)))
    with refused(ParameterError, "unit="):
        next(site_task("residuals.shapes").units(site.here, question, "row"))
