"""A summary: what it holds, files, parts, made-up rows, and what is refused."""

import json

import numpy as np
import pytest

import feddbn
from feddbn import AS_THEY_ARE
from feddbn.errors import ParameterError
from feddbn.interop.summary import Summary
from feddbn.results.result import Result


@pytest.fixture(scope="module")
def sites():
    return feddbn.simulate(d=4, n_sites=4, n_samples=400, random_state=2).sites


@pytest.fixture(scope="module")
def pooled(sites):
    return np.concatenate([np.hstack([x[2:], x[1:-1], x[:-2]]) for (x,) in sites.values()])


@pytest.fixture(scope="module")
def found(sites):
    return feddbn.summary(sites, 2, prepare=AS_THEY_ARE)


def test_it_is_the_covariance_of_the_pooled_rows(found, pooled):
    np.testing.assert_allclose(found.covariance(), np.cov(pooled.T, bias=True), atol=1e-12)
    assert found.n == len(pooled)
    assert found.columns[:5] == ["x0", "x1", "x2", "x3", "x0(t-1)"]


def test_partial_correlations_are_those_of_residuals(found, pooled):
    given = pooled[:, [5, 8]]
    Z = np.column_stack([np.ones(len(given)), given])
    x, y = (pooled[:, k] - Z @ np.linalg.lstsq(Z, pooled[:, k], rcond=None)[0] for k in (0, 2))
    value = found.partial_correlation(("x0", 0), ("x2", 0), [("x1", 1), ("x0", 2)])
    assert value == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-12)


def test_made_up_rows_have_its_moments_and_are_no_rows(found, pooled):
    for n in (13, 400):
        rows = found.rows_like(n)
        np.testing.assert_allclose(rows.mean(axis=0), found.moments.mean, atol=1e-12)
        np.testing.assert_allclose(np.cov(rows.T, bias=True), found.covariance(), atol=1e-12)
    assert len(found.rows_like()) == len(pooled)
    with pytest.raises(ParameterError, match=r"n_rows=12.*13"):
        found.rows_like(12)


def test_parts(found, pooled):
    few = found.with_lags(1)
    np.testing.assert_allclose(few.covariance(), np.cov(pooled[:, :8].T, bias=True), atol=1e-12)
    with pytest.raises(ParameterError, match="n_lags=3 must be 0 to 2"):
        found.with_lags(3)
    with pytest.raises(ParameterError, match="'y', lag 0"):
        found.position("y")


def test_files_keep_every_bit(found, tmp_path):
    found.save(tmp_path / "s.json")
    back = Summary.load(tmp_path / "s.json")
    assert back.moments.scatter.tobytes() == found.moments.scatter.tobytes()
    assert back.moments.mean.tobytes() == found.moments.mean.tobytes()
    assert back.to_dict() == found.to_dict()


def test_a_file_that_lost_numbers_is_refused(found):
    data = json.loads(json.dumps(found.to_dict()))
    data["scatter"].pop()
    with pytest.raises(ParameterError, match="damaged"):
        Summary.from_dict(data)


def test_it_says_what_it_reveals(found):
    text = str(found)
    assert "4" in text
    assert "91 numbers" in text  # 1 count, 12 means, 78 products
    assert "noise" in text


def test_as_a_method_it_is_the_vector_autoregression_and_its_result_holds_the_summary(sites, found, tmp_path):
    fit = feddbn.MomentSummary(2, prepare=AS_THEY_ARE).fit(sites)
    d = 4
    S = found.moments.scatter
    np.testing.assert_allclose(fit.A_.reshape(-1, d), np.linalg.solve(S[d:, d:], S[d:, :d]), atol=1e-10)
    assert not fit.W_.any()
    assert "plain-autoregression" in fit.findings_.codes
    Result.from_estimator(fit).save(tmp_path / "result.json")
    assert Summary.load(tmp_path / "result.json").to_dict() == fit.summary_.to_dict()


def test_it_counts_what_recordings_lost(sites):
    moved = {name: [x + 10.0 * k] for k, (name, (x,)) in enumerate(sites.items())}
    own = feddbn.summary(moved, 1, prepare=feddbn.Prepare(center="recording"))
    assert own.n_effective == own.n - 3
    assert "taken" in str(own)
