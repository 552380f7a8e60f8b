"""The two sums of a network in continuous time: alone, under masks, with few sites."""

import numpy as np
import pytest
from scipy.linalg import expm, solve_continuous_lyapunov

from feddbn.core.designs.lags import lag_sums
from feddbn.core.designs.recordings import Block
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.errors import DataError
from feddbn.federation.programs.continuous import BOUNDED, continuous_plan, lag_sums_program
from feddbn.federation.protocol.rows import UNTREATED
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import run_program
from feddbn.federation.sums.lags import lag_design
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.secure import secure_federation

NAMES = ("a", "b", "c")
A = np.array([[-0.5, 0, 0], [0.4, -0.6, 0], [0, 0, -0.3]])
S = solve_continuous_lyapunov(A, -np.eye(3))
DESIGN = lag_design(NAMES, "1h", 0.5, 8)


def recording(rng, n=80, share=0.6):
    """A path of dx = A x dt + dw, read now and then."""
    times = np.concatenate([[0.0], np.cumsum(rng.exponential(0.5, n - 1))])
    x = [rng.multivariate_normal(np.zeros(3), S)]
    for gap in np.diff(times):
        E = expm(A * gap)
        x.append(E @ x[-1] + rng.multivariate_normal(np.zeros(3), S - E @ S @ E.T))
    values = np.array(x)
    values[rng.random(values.shape) > share] = np.nan
    return times, values


def sites_of(rng, n_sites=4, n_recordings=4, level=0.0, **more):
    found = {}
    for k in range(n_sites):
        tables = [recording(rng, **more) for _ in range(n_recordings)]
        items = [ArrayRecording(f"r{r}", (Block(v + level * k, times=t),)) for r, (t, v) in enumerate(tables)]
        found[f"s{k}"] = MemorySite(NAMES, items, step="1h")
    return found


def ends(data):
    return {name: Site(name, site) for name, site in data.items()}


def asked(federation, **more):
    return run_program(lag_sums_program(DESIGN, **more), federation)


def close(found, delay):
    """The covariance at a delay, from the sums, and what the equation says."""
    b = int(
        np.argmin(
            np.abs(
                found.summed.sums.delays[:, 0, 0] / np.maximum(found.summed.sums.counts[:, 0, 0], 1) - delay
            )
        )
    )
    mean = found.summed.sums.delays[b, 0, 0] / max(found.summed.sums.counts[b, 0, 0], 1)
    return found.summed.sums.products[b] / found.summed.sums.counts[b], expm(A * mean) @ S


@pytest.mark.slow
def test_one_sum_in_one_process_tells_covariances_at_every_delay():
    """Sites of other levels: each counts from its own mean, as if all had one."""
    data = sites_of(np.random.default_rng(900), n_recordings=30, level=50.0)
    found = asked(InProcessFederation(ends(data)))
    assert (found.n_sums, found.n_left_out) == (1, 0)
    for delay in (0.0, 1.0, 4.0):
        told, true = close(found, delay)
        np.testing.assert_allclose(told, true, atol=0.2)
    np.testing.assert_allclose(found.summed.means, 75.0, atol=1.0)


def test_masks_change_nothing_and_two_sums_are_what_the_plan_says():
    data = sites_of(np.random.default_rng(902))
    plain = asked(InProcessFederation(ends(data)))
    seen = []

    class Counted:
        inner = secure_federation(ends(data), 3)

        def sum(self, task):
            total = self.inner.sum(task)
            seen.append((task.name, len(total.value)))
            return total

    masked = asked(Counted(), n_sites=3)
    np.testing.assert_allclose(masked.summed.sums.products, plain.summed.sums.products, atol=1e-6)
    assert masked.n_sums == 2
    assert seen == [(ask.task, ask.numbers) for ask in continuous_plan(DESIGN)]


def test_what_few_sites_have_is_left_out():
    rng = np.random.default_rng(903)
    data = sites_of(rng)
    # One site alone has readings of c that are near each other; others read it every three hours.
    for name, site in data.items():
        for one in site.items:
            block = one.segments[0]
            last = -99.0
            for row in np.flatnonzero(~np.isnan(block.values[:, 2])):
                is_near = block.times[row] - last < 3.0
                last = last if is_near else block.times[row]
                if is_near and name != "s1":
                    block.values[row, 2] = np.nan
    found = asked(InProcessFederation(ends(data)), n_sites=3)
    bare = asked(InProcessFederation(ends(data)))
    near = (bare.summed.sums.edges[1:] < 1.5).nonzero()[0] + 1
    assert bare.summed.sums.counts[near, 2, 2].all()
    assert not found.summed.sums.counts[near, 2, 2].any()
    assert not found.summed.sums.products[near, 2, 2].any()
    assert found.n_left_out >= len(near)
    np.testing.assert_array_equal(found.summed.sums.counts[:, :2, :2], bare.summed.sums.counts[:, :2, :2])


def test_readings_that_are_far_out_count_for_less_unless_somebody_says_otherwise():
    data = sites_of(np.random.default_rng(904), n_recordings=8)
    exact = asked(InProcessFederation(ends(data)), treatment=UNTREATED).summed.sums.products
    np.testing.assert_allclose(asked(InProcessFederation(ends(data))).summed.sums.products, exact)
    block = data["s0"].items[0].segments[0]
    block.values[tuple(np.argwhere(~np.isnan(block.values))[10])] = 1e4
    raw, bounded = (
        asked(InProcessFederation(ends(data)), treatment=one).summed.sums.products
        for one in (UNTREATED, BOUNDED)
    )
    assert np.abs(raw - exact).max() > 1e6
    assert np.abs(bounded - exact).max() < 100


def test_a_variable_that_is_read_once_is_named():
    data = sites_of(np.random.default_rng(905))
    for site in data.values():
        for one in site.items:
            one.segments[0].values[1:, 1] = np.nan
    with pytest.raises(DataError) as caught:
        asked(InProcessFederation(ends(data)))
    assert caught.value.code == "no-delays"


def test_sums_are_those_of_all_readings_together():
    data = sites_of(np.random.default_rng(907))
    found = asked(InProcessFederation(ends(data)), treatment=UNTREATED)
    pieces = []
    for site in data.values():
        blocks = [one.segments[0] for one in site.items]
        mean = np.nanmean(np.concatenate([block.values for block in blocks]), axis=0)
        pieces += [(block.times, block.values - mean) for block in blocks]
    pooled = lag_sums(pieces, found.summed.sums.edges)
    for name in ("counts", "products", "delays"):
        np.testing.assert_allclose(getattr(found.summed.sums, name), getattr(pooled, name), atol=1e-8)
    assert (found.summed.sums.n_recordings, found.summed.sums.time) == (16, pytest.approx(pooled.time))
