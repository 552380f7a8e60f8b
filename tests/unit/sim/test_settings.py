import numpy as np
import pytest

from feddbn.errors import ParameterError
from feddbn.sim import SimulationSettings, connectivity_degree
from feddbn.sim.settings import split_evenly


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"d": 0}, "d must be a whole number of at least 1, got 0."),
        ({"d": 2.5}, "d must be a whole number of at least 1, got 2.5."),
        ({"n_lags": -1}, "n_lags must be a whole number of at least 0, got -1."),
        ({"n_sites": 0}, "n_sites must be a whole number of at least 1, got 0."),
        ({"n_samples": True}, "n_samples must be a whole number of at least 1, got True."),
        ({"n_recordings": 0}, "n_recordings must be a whole number of at least 1, got 0."),
        ({"burn_in": -5}, "burn_in must be a whole number of at least 0, got -5."),
        ({"mean_degree": -1}, "mean_degree must be a finite number of at least 0, got -1."),
        ({"mean_degree": "many"}, "mean_degree must be a finite number of at least 0, got 'many'."),
        ({"lag_degree": float("nan")}, "lag_degree must be a finite number of at least 0, got nan."),
        ({"decay": 0.5}, "decay must be a finite number of at least 1, got 0.5."),
        (
            {"w_range": (0.5, 0.3)},
            "w_range must be two sizes 0 < low <= high, got (0.5, 0.3); signs are drawn for you.",
        ),
        ({"w_range": 0.3}, "w_range must be two sizes 0 < low <= high, got 0.3; signs are drawn for you."),
        (
            {"a_range": (-0.5, 0.5)},
            "a_range must be two sizes 0 < low <= high, got (-0.5, 0.5); signs are drawn for you.",
        ),
        ({"graph": "ring"}, "graph must be one of erdos-renyi, scale-free, got 'ring'."),
        (
            {"noise": "cauchy"},
            "noise must be one of gaussian, exponential, gumbel, laplace, uniform, got 'cauchy'.",
        ),
        ({"connectivity": "medium"}, "connectivity must be one of low, high, mixed, got 'medium'."),
        (
            {"heterogeneity": 1.5},
            "heterogeneity must be a share between 0 and 1 or 'independent', got 1.5; "
            "0 gives every site the same graph.",
        ),
        (
            {"heterogeneity": "some"},
            "heterogeneity must be a share between 0 and 1 or 'independent', got 'some'; "
            "0 gives every site the same graph.",
        ),
        ({"n_clusters": 0}, "n_clusters must be a whole number of at least 1, got 0."),
        ({"n_clusters": 11}, "n_clusters=11 is more than n_sites=10; every cluster needs a site."),
        ({"noise_scale": 0.0}, "noise_scale must be one positive number or d=10 of them, got 0.0."),
        (
            {"noise_scale": [1.0, 2.0]},
            "noise_scale must be one positive number or d=10 of them, got [1.0, 2.0].",
        ),
        ({"noise_scale": "big"}, "noise_scale must be one positive number or d=10 of them, got 'big'."),
        ({"site_sizes": [5, 5]}, "site_sizes must hold 10 numbers, one per site, got [5, 5]."),
        ({"site_sizes": 5}, "site_sizes must hold 10 numbers, one per site, got 5."),
        ({"n_sites": 2, "site_sizes": [5, 0]}, "site_sizes must be a whole number of at least 1, got 0."),
        (
            {"n_samples": 15, "n_recordings": 2},
            "n_recordings=2 needs as many usable rows at every site, but one has 1; "
            "raise n_samples or site_sizes, or lower n_sites or n_recordings.",
        ),
        ({"d": 2, "variables": ["a", "a"]}, "variables must be d=2 different names, got ['a', 'a']."),
        ({"d": 2, "variables": "ab"}, "variables must be d=2 different names, got 'ab'."),
    ],
)
def test_an_impossible_argument_is_refused_with_one_sentence(arguments, sentence):
    with pytest.raises(ParameterError) as caught:
        SimulationSettings(**arguments)
    assert str(caught.value) == sentence


def test_rows_are_split_evenly_with_the_remainder_spread():
    assert split_evenly(11, 4) == (3, 3, 3, 2)
    assert SimulationSettings(n_sites=3, n_samples=10).usable_rows == (4, 3, 3)


def test_site_sizes_replace_the_even_split():
    assert SimulationSettings(n_sites=3, n_samples=10, site_sizes=[7, 1, 90]).usable_rows == (7, 1, 90)


def test_connectivity_levels_are_those_of_the_paper():
    assert [connectivity_degree("low", d) for d in (5, 10, 15, 20)] == [1, 3, 4, 6]
    assert [connectivity_degree("high", d) for d in (5, 10, 15, 20)] == [4, 8, 12, 16]


def test_connectivity_stays_possible_for_tiny_networks():
    for d in (1, 2, 3, 4):
        assert 0 <= connectivity_degree("low", d) <= connectivity_degree("high", d) <= d - 1


def test_one_noise_scale_serves_every_variable():
    np.testing.assert_array_equal(SimulationSettings(d=3, noise_scale=2).noise_scales, [2, 2, 2])
