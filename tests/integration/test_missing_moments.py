"""Sums of sites with missing cells give the network of complete data, where whole rows are almost gone."""

from __future__ import annotations

import numpy as np
import pytest

import feddbn
from feddbn.core.statistics.missing import (
    expected_moments,
    known_n,
    known_pairs,
    pairwise_scatter,
    pairwise_sums,
)
from feddbn.core.statistics.moments import Moments
from support.saying import only


@pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning")
def test_one_sum_over_pairs_and_three_steps_of_em_find_the_network_at_thirty_percent_missing() -> None:
    d, n_sites, n_complete = 8, 8, 0
    for seed in (100, 101):
        fed = feddbn.simulate(d=d, n_lags=1, n_sites=n_sites, n_samples=n_sites * 199, random_state=seed)
        rng = np.random.default_rng(seed)
        sites = []
        for recordings in fed.sites.values():
            rows = np.asarray(recordings[0], dtype=float) + rng.normal(0.0, 3.0, d)
            rows[rng.random(rows.shape) < 0.3] = np.nan
            sites.append(np.hstack([rows[1:], rows[:-1]]))
        n_complete += sum(int((~np.isnan(z).any(axis=1)).sum()) for z in sites)
        # What each site would send: a part of every sum below.
        sums = [pairwise_sums(z, np.ones((len(z), 1))) for z in sites]
        covariance, n_pairs = pairwise_scatter(sum(s[0] for s in sums), sum(s[1] for s in sums))
        for _ in range(3):
            parts = [expected_moments(z, covariance, basis=np.ones((len(z), 1))) for z in sites]
            covariance = sum(part.scatter for part in parts) / sum(part.n for part in parts)
        n = known_n(sum(known_pairs(z, covariance) for z in sites))
        assert n_pairs < n < 0.49 * n_sites * 199
        moments = Moments(n, np.zeros(2 * d), covariance * n)
        found = feddbn.OneShotDBN(random_state=0).fit_moments(moments, fed.truth.variables)
        scores = feddbn.score(fed.truth, found)
        assert scores["W"]["shd"] + scores["A"]["shd"] == 0
    assert n_complete < 30


@pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning")
@pytest.mark.filterwarnings("ignore:these data do not show")
def test_a_fit_uses_rows_that_lack_cells_and_large_levels_do_not_mislead_it() -> None:
    d = 8
    fed = feddbn.simulate(d=d, n_lags=1, n_sites=8, n_samples=8 * 199, random_state=101)
    rng = np.random.default_rng(101)
    data = {}
    for name, recordings in fed.sites.items():
        rows = np.asarray(recordings[0], dtype=float) + 50.0
        rows[rng.random(rows.shape) < 0.3] = np.nan
        data[name] = rows
    model = feddbn.OneShotDBN(random_state=0).fit(data)
    scores = feddbn.score(fed.truth, model.dbn_)
    assert scores["W"]["shd"] + scores["A"]["shd"] == 0
    # Every site has the same level: products of means of different rows must not tell otherwise.
    assert set(model.findings_.codes) <= {
        "rests-on-units",
        "empty-cells",
        "residuals-not-looked-at",
        "parts-not-known",
        "alone",
    }
    worth = only(model.findings_, "empty-cells").values["n"]
    assert 0.25 * 8 * 199 < worth < 0.49 * 8 * 199


def test_consensus_is_the_pooled_optimum_where_cells_are_missing_too() -> None:
    fed = feddbn.simulate(d=5, n_lags=1, n_sites=4, n_samples=800, random_state=3)
    rng = np.random.default_rng(3)
    data = {}
    for name, recordings in fed.sites.items():
        rows = np.array(recordings[0], dtype=float)
        rows[rng.random(rows.shape) < 0.25] = np.nan
        data[name] = rows
    consensus, pooled = feddbn.FDBNL().fit(data), feddbn.Dynotears().fit(data)
    # Sites weigh themselves by the rows they count, not by what these are worth.
    np.testing.assert_allclose(consensus.W_raw_, pooled.W_raw_, atol=1e-3)
    np.testing.assert_allclose(consensus.A_raw_, pooled.A_raw_, atol=1e-3)
