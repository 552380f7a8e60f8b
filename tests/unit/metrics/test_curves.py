import numpy as np
import pytest

from feddbn.errors import ParameterError
from feddbn.metrics import curve_error
from support.saying import refused


def test_constants_do_not_count_and_a_line_off_by_a_slope_has_the_error_of_uniform_values():
    x = np.linspace(-1, 1, 20_001)
    assert curve_error(np.sin, lambda v: np.sin(v) + 7, x) == pytest.approx(0, abs=1e-12)
    # Between the quantiles the cause is uniform on +-0.9: standard deviation 0.9 / sqrt(3).
    assert curve_error(lambda v: 2 * v, lambda v: 3 * v, x) == pytest.approx(0.9 / np.sqrt(3), rel=1e-3)


def test_what_lies_beyond_the_quantiles_and_empty_cells_do_not_count():
    x = np.append(np.random.default_rng(0).uniform(-1, 1, 1000), [np.nan, 1e6, -1e6])
    assert curve_error(lambda v: v, lambda v: np.where(np.abs(v) > 0.99, 50.0, v), x) == 0


def test_impossible_comparisons_are_refused():
    with refused(ParameterError, "values"):
        curve_error(np.sin, np.sin, [np.nan])
    with refused(ParameterError, "(1, 1)"):
        curve_error(np.sin, lambda v: v[:, None], [1.0])
