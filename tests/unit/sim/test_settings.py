import numpy as np

from feddbn.sim.settings import SimulationSettings, split_evenly


def test_rows_are_split_evenly_unless_site_sizes_say_otherwise():
    assert split_evenly(11, 4) == (3, 3, 3, 2)
    assert SimulationSettings(n_sites=3, n_samples=10).usable_rows == (4, 3, 3)
    assert SimulationSettings(n_sites=3, n_samples=10, site_sizes=[7, 1, 90]).usable_rows == (7, 1, 90)
    np.testing.assert_array_equal(SimulationSettings(d=3, noise_scale=2).noise_scales, [2, 2, 2])
