"""Sites with clocks of their own: cuts against all cuts tried one by one, and what is summed."""

import itertools

import numpy as np
import pytest

from feddbn.core.changes.fits import ChangeOptions, SegmentFits
from feddbn.core.changes.learn import _dealt_regimes, _summed, learn_regimes
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.statistics.moments import Moments

B = 7
LIMITS = EdgeConstraints(np.array([[False, True], [False, False]]), np.zeros((2, 2), dtype=bool))


def blocks_of(weights, seed):
    rng = np.random.default_rng(seed)
    found = []
    for weight in weights:
        x, noise = rng.normal(size=(2, 40))
        found.append(Moments.of_rows(np.stack([x, weight * x + noise], axis=1)))
    return found


def loss_of(rows_of_regime, block, s):
    """Twice the negative log-likelihood of a block by the numbers of a regime, with no scaling in between."""
    C, intercept, variances = rows_of_regime.network(s)
    full = np.eye(2) - C
    residual = block.about(block.mean) / block.n
    mean = block.mean @ full - intercept
    square = np.diag(full.T @ residual @ full) + mean**2
    return float(block.n * (square / variances + np.log(variances)).sum())


@pytest.mark.parametrize("n_regimes", [2, 3])
def test_a_site_deals_out_its_blocks_as_well_as_any_cuts_do(n_regimes):
    regimes = [blocks_of([w] * 9, 10 * k) for k, w in enumerate((0.8, -0.5, 0.2)[:n_regimes])]
    moments = [one for part in regimes for one in part]
    cuts = tuple(9 * k for k in range(1, n_regimes))
    found = SegmentFits(moments, 2, cuts, LIMITS, ChangeOptions()).of((0, 1))
    for seed, weights in enumerate(
        ([0.8] * 3 + [-0.5] * 4, [-0.5] * 7, [0.8] * 7, [0.8, 0.8, -0.5, 0.2, 0.2, 0.2, 0.2])
    ):
        blocks = blocks_of(weights, 100 + seed)
        every = itertools.combinations_with_replacement(range(B + 1), n_regimes - 1)

        def total(tried, blocks=blocks):
            edges = (0, *tried, B)
            return sum(
                loss_of(found, blocks[b], s) for s in range(n_regimes) for b in range(edges[s], edges[s + 1])
            )

        best = min(every, key=total)
        assert total(_dealt_regimes(blocks, found)) == pytest.approx(total(best))


def test_regimes_are_sums_over_sites_and_add_up_to_all_rows():
    sites = {"a": blocks_of([0.5] * B, 0), "b": blocks_of([0.5] * B, 1)}
    first, second = _summed(sites, {"a": (2,), "b": (7,)})
    assert (first.n, second.n) == (40 * 9, 40 * 5)
    whole = Moments.empty(2)
    for block in sites["a"][2:]:
        whole = whole.merge(block)
    np.testing.assert_allclose(second.scatter, whole.scatter)


def test_regimes_and_cuts_are_found_together():
    sites = {f"s{k}": blocks_of([0.7] * k + [-0.7] * (B - k), k) for k in (2, 3, 5, 7)}
    options = ChangeOptions(max_changes=2, shortest=40.0)
    found = learn_regimes(sites, 2, LIMITS, options, np.random.default_rng(0))
    assert found.cuts == {"s2": (2,), "s3": (3,), "s5": (5,), "s7": (7,)}
    weights = [found.changing.network(s)[0][0, 1] for s in range(2)]
    np.testing.assert_allclose(weights, [0.7, -0.7], atol=0.15)
