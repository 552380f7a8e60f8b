import numpy as np
import pytest

import feddbn
from feddbn.core.statistics.survey import compared, lagged_profile, without_slow_part

NAMES = tuple("abcdef")


def sites(seed, n_sites=8, n_rows=200, **options):
    made = feddbn.simulate(d=6, n_sites=n_sites, n_samples=n_sites * n_rows, random_state=seed, **options)
    return [tables[0].to_numpy() for tables in made.sites.values()]


def comparisons(values):
    profiles = [lagged_profile([without_slow_part(x)], len(NAMES), 1) for x in values]
    total = sum(profile for profile, _ in profiles)
    squares = sum(profile**2 for profile, _ in profiles)
    return [compared(profile, n, total, squares, len(values), NAMES) for profile, n in profiles]


@pytest.mark.parametrize("options", [{}, {"noise": "laplace"}, {"heterogeneity": 0.3}, {"n_clusters": 2}])
def test_nobody_objects_where_all_sites_are_alike_or_all_differ(options):
    for seed in range(5):
        assert not any(found.objects for found in comparisons(sites(seed, **options)))


def test_factors_are_those_of_the_others_without_oneself():
    values = sites(0)
    logs = np.array([np.log(without_slow_part(x).std(axis=0)) for x in values])
    found = comparisons(values)[2]
    np.testing.assert_allclose(found.factors, np.exp(logs[2] - np.delete(logs, 2, 0).mean(axis=0)), rtol=0.02)


@pytest.mark.parametrize("factor", [100.0, 0.01])
def test_a_variable_in_other_units_is_named_at_its_site_only(factor):
    values = sites(1)
    values[3] = values[3] * np.array([1, 1, factor, 1, 1, 1])
    found = comparisons(values)
    assert [c.objects for c in found] == [k == 3 for k in range(8)]
    assert found[3].sentences[0].startswith("c varies ")
    assert "other units" in found[3].sentences[0]


def test_exchanged_columns_are_named():
    values = sites(2)
    values[5] = values[5][:, [0, 4, 2, 3, 1, 5]]
    found = comparisons(values)
    assert [c.objects for c in found] == [k == 5 for k in range(8)]
    assert "what is called b behaves like e" in found[5].sentences[0]
    assert "what is called e behaves like b" in found[5].sentences[0]


def test_a_site_with_more_noise_everywhere_fits():
    values = sites(3)
    values[0] = 4 * values[0]
    assert not any(found.objects for found in comparisons(values))


def test_three_sites_cannot_tell_who_is_odd():
    values = sites(4, n_sites=3)
    assert comparisons(values) == [None, None, None]
