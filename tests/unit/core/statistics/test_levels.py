import numpy as np
import pytest

from feddbn.core.designs.recordings import Block, lagged_rows
from feddbn.core.statistics.diagnostics import evidence_for_nuisances


def recordings(n_recordings, n_rows, offset, seed=0, d=3):
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n_recordings):
        x = rng.standard_normal((n_rows, d))
        for t in range(1, n_rows):
            x[t] += 0.5 * x[t - 1]
        found.append(x + offset * rng.standard_normal(d))
    return found


def evidence(found, n_lags=1):
    rows = [np.concatenate(list(lagged_rows([Block(x)], n_lags))) for x in found]
    Z = np.concatenate(rows)
    within = sum((r - r.mean(axis=0)).T @ (r - r.mean(axis=0)) for r in rows)
    common = (Z - Z.mean(axis=0)).T @ (Z - Z.mean(axis=0))
    return evidence_for_nuisances(common, within, len(Z), len(rows), found[0].shape[1]), rows


def criterion(rows, own, d):
    """The criterion of a regression on the past with one intercept, or one for each recording, by least squares."""
    Z = np.concatenate(rows)
    which = np.repeat(np.arange(len(rows)), [len(r) for r in rows])
    intercepts = np.eye(len(rows))[which] if own else np.ones((len(Z), 1))
    X = np.hstack([intercepts, Z[:, d:]])
    residual = Z[:, :d] - X @ np.linalg.lstsq(X, Z[:, :d], rcond=None)[0]
    S = residual.T @ residual / (len(Z) - X.shape[1])
    return len(Z) * np.linalg.slogdet(S)[1] + d * X.shape[1] * np.log(len(Z))


@pytest.mark.parametrize("offset", [0.0, 0.2, 2.0])
@pytest.mark.parametrize("n_lags", [0, 1, 2])
def test_evidence_is_the_difference_of_the_criteria_of_two_regressions(offset, n_lags):
    found, rows = evidence(recordings(5, 40, offset), n_lags)
    assert found == pytest.approx(criterion(rows, False, 3) - criterion(rows, True, 3), rel=1e-6, abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_means_that_differ_are_seen_and_means_that_do_not_are_left(seed):
    assert evidence(recordings(8, 100, 1.0, seed))[0] > 0
    assert evidence(recordings(8, 100, 0.0, seed))[0] < 0


def test_many_short_recordings_keep_a_common_mean():
    assert evidence(recordings(64, 9, 0.0))[0] < 0


@pytest.mark.parametrize("n_rows", [3, 4, 6, 8])
@pytest.mark.parametrize("seed", range(5))
def test_few_rows_never_give_recordings_levels_they_do_not_have(n_rows, seed):
    assert evidence(recordings(10, n_rows, 0.0, seed, d=6))[0] <= 0


def test_one_recording_has_nothing_to_differ_from():
    assert evidence(recordings(1, 100, 3.0))[0] == 0


def test_a_constant_column_does_no_harm():
    found = recordings(4, 60, 1.0)
    for x in found:
        x[:, 1] = 7.0
    assert np.isfinite(evidence(found)[0])
