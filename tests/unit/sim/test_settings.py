import numpy as np

from feddbn.errors import ParameterError
from feddbn.sim import SimulationSettings, connectivity_degree
from feddbn.sim.settings import split_evenly
from support.saying import refused


def test_rows_are_split_evenly_unless_site_sizes_say_otherwise():
    assert split_evenly(11, 4) == (3, 3, 3, 2)
    assert SimulationSettings(n_sites=3, n_samples=10).usable_rows == (4, 3, 3)
    assert SimulationSettings(n_sites=3, n_samples=10, site_sizes=[7, 1, 90]).usable_rows == (7, 1, 90)
    np.testing.assert_array_equal(SimulationSettings(d=3, noise_scale=2).noise_scales, [2, 2, 2])


def test_connectivity_levels_are_those_of_the_paper():
    assert [connectivity_degree("low", d) for d in (5, 10, 15, 20)] == [1, 3, 4, 6]
    assert [connectivity_degree("high", d) for d in (5, 10, 15, 20)] == [4, 8, 12, 16]
    for d in (1, 2, 3, 4):
        assert 0 <= connectivity_degree("low", d) <= connectivity_degree("high", d) <= d - 1
    with refused(ParameterError, "level", "'sparse'", "low", "high"):
        connectivity_degree("sparse", 10)
