import numpy as np
import pytest

from feddbn.core.designs.cells import TreatedSite, block_deviations, limits_of, site_profile
from feddbn.core.designs.recordings import Block
from feddbn.core.statistics.survey import deviations
from feddbn.data.memory import ArrayRecording, MemorySite


def site(*segments):
    blocks = tuple(Block(np.asarray(x)) for x in segments)
    return MemorySite(("a", "b"), [ArrayRecording("r", blocks)])


def values_of(data):
    return np.concatenate([block.values for r in data.recordings() for block in r.blocks()])


def test_a_segment_cut_into_blocks_deviates_as_the_whole():
    x = np.random.default_rng(0).normal(size=(50, 2))
    cut = [Block(x[:11]), Block(x[11:12], False), Block(x[12:30], False), Block(x[30:], False)]
    parts = [deviation for _, deviation in block_deviations(cut)]
    # The block of one row is shorter than the reach of the median; its neighbours see less of each other.
    np.testing.assert_allclose(np.concatenate(parts)[15:], deviations(x)[15:])
    apart = [deviation for _, deviation in block_deviations([Block(x[:20]), Block(x[20:])])]
    np.testing.assert_allclose(apart[0], deviations(x[:20]))
    np.testing.assert_allclose(apart[1], deviations(x[20:]))


def test_far_cells_are_empty_by_the_sites_own_scale_or_if_it_is_small_by_the_common_one():
    rng = np.random.default_rng(1)
    x = 10 * rng.normal(size=(200, 2))
    x[50, 0] = 500.0
    limits = limits_of(site(x), np.array([1.0, 0.0]))
    assert 60 < limits[0] < 200
    assert np.isinf(limits[1])
    treated = values_of(TreatedSite(site(x), limits))
    assert np.isnan(treated[50, 0])
    assert np.isnan(treated).sum() == 1
    few = limits_of(site(x[:20]), np.array([1.0, 1.0]))
    np.testing.assert_allclose(few, 12.0)


def test_gains_multiply_and_keep_labels_and_times():
    block = Block(np.ones((3, 2)), True, np.array(["u", "v", "w"]), 7)
    data = MemorySite(("a", "b"), [ArrayRecording("r", (block,))])
    found = next(iter(next(iter(TreatedSite(data, gains=np.array([2.0, 3.0])).recordings())).blocks()))
    assert found.values.tolist() == [[2.0, 3.0]] * 3
    assert found.labels.tolist() == ["u", "v", "w"]
    assert found.time == 7


def test_a_profile_is_of_all_recordings_of_a_site():
    x = np.random.default_rng(2).normal(size=(120, 2))
    found = site_profile(site(x[:60], 3 * x[60:]), 0)
    assert found is not None
    both = np.concatenate([x[:60] - x[:60].mean(0), 3 * (x[60:] - x[60:].mean(0))])
    np.testing.assert_allclose(np.exp(found[0][:2]), both.std(axis=0), rtol=0.08)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_segments_shorter_than_the_window_are_read(n):
    x = np.arange(2.0 * n).reshape(n, 2)
    assert [d.shape for _, d in block_deviations([Block(x)])] == [(n, 2)]
