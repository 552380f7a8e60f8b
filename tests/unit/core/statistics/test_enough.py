"""Sums that can carry no network are refused by name."""

import numpy as np

from feddbn.core.statistics.enough import check_variances
from feddbn.errors import DataError
from support.saying import refused


def test_constant_variables_are_named_although_rounding_leaves_something():
    check_variances(["a", "b"], np.array([1.0, 1e-9]), np.array([0.0, 0.0]))
    with refused(DataError, "'b'"):
        check_variances(["a", "b"], np.array([1.0, 0.0]))
    with refused(DataError, "'a', 'c'"):
        check_variances(["a", "b", "c"], np.array([1e-12, 1e-8, -1e-12]), np.array([1e4, 1.0, 0.0]))
    x = np.full(10_000, 273.15)
    variance = (x**2).mean() - x.mean() ** 2
    for left, mean in ((np.nan, 0.0), (abs(variance), x.mean()), (1e-10, 273.15e3)):
        with refused(DataError, "'t'"):
            check_variances(["t"], np.array([left]), np.array([mean]))
