import numpy as np
import pytest
from scipy import stats

from support.messy import residuals, values, with_mess


def test_unequal_noise_is_in_the_data_and_in_the_truth(clean):
    fed = with_mess({"unequal-noise": 3})
    scales = np.sqrt(fed.truth.noise_variances)
    assert 1 / 3 <= scales.min() < 0.9 < 1.1 < scales.max() <= 3
    np.testing.assert_allclose(np.vstack(residuals(fed)).std(axis=0), scales, rtol=0.06)
    np.testing.assert_array_equal(fed.truth.W, clean.truth.W)


def test_heavy_tails_are_student_t_with_variance_one():
    left = np.vstack(residuals(with_mess({"heavy-tails": 5}))).ravel()
    assert left.std() == pytest.approx(1, rel=0.04)
    assert stats.kstest(left * np.sqrt(5 / 3), stats.t(5).cdf).pvalue > 0.01
    assert stats.kstest(left, stats.norm.cdf).pvalue < 1e-4


def test_autocorrelated_noise_remembers_and_keeps_its_size():
    left = residuals(with_mess({"autocorrelated-noise": 0.6}))
    assert np.mean([np.sum(r[1:] * r[:-1]) / np.sum(r * r) for r in left]) == pytest.approx(0.6, abs=0.03)
    assert np.vstack(left).std() == pytest.approx(1, rel=0.05)


def test_changing_noise_rises_and_falls_by_the_amplitude():
    strength = 1.0
    drawn = np.stack(residuals(with_mess()))
    changed = np.stack(residuals(with_mess({"changing-noise": strength})))
    factors = changed / drawn  # The same noise, larger or smaller.
    assert np.all(factors > 0)
    ratio = factors.max(axis=1) / factors.min(axis=1)
    np.testing.assert_allclose(ratio, np.exp(2 * strength), rtol=0.01)
    np.testing.assert_allclose((factors**2).mean(axis=1), 1, rtol=0.02)
    assert np.abs(np.diff(np.log(factors), axis=1)).max() < 0.06
    assert len({round(float(f), 6) for f in factors[:, 100].ravel()}) == 30


def test_one_site_is_noisier(rows):
    fed = with_mess({"noisy-site": 3})
    factors = [np.mean(noisy / quiet) for noisy, quiet in zip(values(fed), rows, strict=True)]
    assert sorted(np.round(factors, 9)) == [1, 1, 1, 1, 1, 3]


def test_hidden_causes_give_the_noise_two_directions_more():
    left = np.vstack(residuals(with_mess({"hidden-causes": 1.0}, n_samples=12000)))
    extra = np.linalg.eigvalsh(np.cov(left.T) - np.eye(5))
    np.testing.assert_allclose(extra[:3], 0, atol=0.15)
    assert extra[3:].sum() == pytest.approx(6, rel=0.06)
    assert extra[3] > 0.5


def test_a_hidden_lagged_cause_shows_between_two_pairs_a_row_apart():
    left = residuals(with_mess({"hidden-lagged-cause": 1.0}, n_samples=24000))
    at_once = np.mean([r.T @ r / len(r) for r in left], axis=0) - np.eye(5)
    a_row_later = np.mean([r[:-1].T @ r[1:] / len(r) for r in left], axis=0)
    hit = np.flatnonzero(np.diag(at_once) > 0.5)
    assert len(hit) == 4
    unhit = np.setdiff1d(np.arange(5), hit)
    assert np.abs(at_once[unhit]).max() < 0.1
    sizes = np.sort(np.abs(a_row_later[np.ix_(hit, hit)]).ravel())
    # From the first pair to the second the hidden variable itself; within a pair .7; backwards .7 ** 2.
    np.testing.assert_allclose(sizes, [0.49] * 4 + [0.7] * 8 + [1.0] * 4, atol=0.12)
