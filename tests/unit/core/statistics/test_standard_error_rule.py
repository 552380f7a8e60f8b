from __future__ import annotations

import numpy as np
import pytest

from feddbn.core.statistics.resampling import choose
from feddbn.errors import ParameterError


def test_simplest_candidate_within_one_standard_error_is_taken() -> None:
    loss, error = np.array([2.0, 1.05, 1.0, 1.2]), np.array([0.3, 0.1, 0.0, 0.1])
    assert choose(loss, error) == 1
    assert choose(loss, error, "best") == 2


def test_unknown_rule_is_refused() -> None:
    with pytest.raises(
        ParameterError, match=r"rule='first' is not known; choose one of one-standard-error, best\."
    ):
        choose(np.zeros(2), np.zeros(2), "first")
