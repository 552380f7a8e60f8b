"""Laws of rows, segments and moments: splitting changes nothing, no lag crosses a seam."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddbn.core.designs.recordings import Block, SiteData, lagged_rows
from feddbn.core.statistics.moments import Moments
from feddbn.data import read_sites, summary

pytestmark = pytest.mark.promise

seeds = st.integers(0, 2**32 - 1)
lags = st.integers(0, 4)


def assert_close(one: Moments, other: Moments, rtol: float = 1e-12) -> None:
    assert one.n == other.n
    # The scatter of one row, or of equal rows, is rounding alone: measure it against the rows themselves.
    scale = max(np.abs(other.scatter).max(), 1e-3 * np.abs(other.about(np.zeros(other.q))).max())
    np.testing.assert_allclose(one.mean, other.mean, rtol=rtol, atol=rtol)
    assert np.abs(one.scatter - other.scatter).max() <= rtol * scale


def site_moments(site: SiteData, p: int) -> Moments:
    d = len(site.variables)
    total = Moments.empty((p + 1) * d)
    for recording in site.recordings():
        total = total.merge(Moments.of_blocks(recording.blocks(), p, d))
    return total


def all_rows(site: SiteData, p: int) -> np.ndarray:
    d = len(site.variables)
    chunks = [z for recording in site.recordings() for z in lagged_rows(recording.blocks(), p)]
    return np.concatenate(chunks) if chunks else np.empty((0, (p + 1) * d))


@given(seeds, lags, st.integers(1, 12), st.integers(1, 5))
def test_dealing_segments_to_sites_and_recordings_never_changes_the_merged_moments(
    seed: int, p: int, n_segments: int, n_sites: int
) -> None:
    rng = np.random.default_rng(seed)
    segments = [rng.normal(size=(int(rng.integers(1, 30)), 3)) + 2 for _ in range(n_segments)]
    together = site_moments(read_sites(segments)["site-0"], p)
    owner = rng.integers(0, n_sites, size=n_segments)
    hands = {f"s{k}": [segments[i] for i in np.flatnonzero(owner == k)] for k in range(n_sites)}
    sites = read_sites({name: hand for name, hand in hands.items() if hand})
    merged = Moments.empty((p + 1) * 3)
    for site in sites.values():
        merged = merged.merge(site_moments(site, p))
    assert_close(merged, together)
    vectors = sum(site_moments(site, p).to_sums() for site in sites.values())
    assert_close(Moments.from_sums(vectors, (p + 1) * 3), together)


@given(seeds, lags, st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(1, 20))
def test_cutting_a_segment_into_continuing_blocks_changes_nothing(
    seed: int, p: int, sizes: list[int], chunk_rows: int
) -> None:
    x = np.random.default_rng(seed).normal(size=(sum(sizes), 2)) + 5
    edges = np.r_[0, np.cumsum(sizes)]
    blocks = [Block(x[a:b], starts_segment=i == 0) for i, (a, b) in enumerate(pairwise(edges))]
    z = np.concatenate([np.empty((0, 2 * (p + 1))), *lagged_rows([Block(x)], p)])
    np.testing.assert_array_equal(np.concatenate([z[:0], *lagged_rows(blocks, p, chunk_rows)]), z)
    assert_close(Moments.of_blocks(blocks, p, 2, chunk_rows), Moments.of_rows(z))


@given(seeds, lags)
def test_no_lag_crosses_a_gap_a_recording_or_a_site(seed: int, p: int) -> None:
    rng = np.random.default_rng(seed)
    parts = []
    for site in range(2):
        for recording in range(2):
            n = int(rng.integers(3, 25))
            time = np.cumsum(rng.choice([1, 1, 1, 3], size=n))
            # The value spells site, recording and time, so that a wrong neighbour shows.
            value = site * 1e6 + recording * 1e4 + time
            parts.append(pd.DataFrame({"s": site, "r": recording, "t": time, "a": value.astype(float)}))
    sites = read_sites(pd.concat(parts), site="s", series="r", time="t", freq=1, missing="drop")
    count = 0
    for site in sites.values():
        z = all_rows(site, p)
        count += len(z)
        np.testing.assert_array_equal(z[:, :1] - z, np.tile(np.arange(p + 1.0), (len(z), 1)))
    expected = 0
    for part in parts:
        times = set(part["t"])
        expected += sum(all(t - lag in times for lag in range(p + 1)) for t in times)
    assert count == expected
    assert summary(sites, n_lags=p)["usable_rows"].sum() == expected


@given(seeds, lags, st.floats(0, 0.5))
def test_dropping_missing_rows_equals_brute_force(seed: int, p: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 2))
    x[rng.random((40, 2)) < share] = np.nan
    site = read_sites({"A": x}, missing="drop")["A"]
    windows = [np.concatenate([x[t - lag] for lag in range(p + 1)]) for t in range(p, 40)]
    brute = np.array([z for z in windows if not np.isnan(z).any()]).reshape(-1, 2 * (p + 1))
    np.testing.assert_array_equal(all_rows(site, p), brute)
    assert site.n_dropped_rows == int(np.isnan(x).any(axis=1).sum())
    assert_close(site_moments(site, p), Moments.of_rows(brute))


@given(seeds, st.lists(st.integers(0, 8), min_size=3, max_size=3))
def test_merge_is_associative_and_commutative(seed: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    a, b, c = (Moments.of_rows(rng.normal(size=(n, 3)) + rng.normal() * 3) for n in sizes)
    assert_close(a.merge(b).merge(c), a.merge(b.merge(c)))
    assert_close(a.merge(b), b.merge(a))


@given(seeds, st.integers(1, 60), st.floats(0, 1e4))
def test_sums_round_trip_even_with_large_means(seed: int, n: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3)) + level
    m = Moments.of_rows(z)
    origin = np.full(3, level)
    assert_close(Moments.from_sums(m.to_sums(origin), 3, origin), m, rtol=1e-11)
    # Without an origin the loss is what squaring the mean costs, and no more.
    lost = np.abs(Moments.from_sums(m.to_sums(), 3).scatter - m.scatter).max()
    assert lost <= 1e-14 * n * max(level, 10.0) ** 2


@given(seeds, st.integers(2, 4))
def test_order_of_columns_in_a_site_does_not_matter(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(10, d)), columns=[f"v{j}" for j in range(d)])
    shuffled = table[list(rng.permutation(table.columns))]
    sites = read_sites({"A": table, "B": shuffled})
    np.testing.assert_array_equal(all_rows(sites["A"], 1), all_rows(sites["B"], 1))
