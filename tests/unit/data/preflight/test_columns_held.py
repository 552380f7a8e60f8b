"""`data.preflight.columns`: columns that are read less often than rows are written."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from feddbn.data.preflight import preflight
from feddbn.data.preflight.columns import rows_held


def held_every(k: int, n: int = 300, seed: int = 0) -> np.ndarray:
    walk = np.random.default_rng(seed).standard_normal(n).cumsum()
    return walk[np.arange(n) // k * k]


def findings(frame: pd.DataFrame) -> list:
    return [finding for finding in preflight({"a": frame}) if finding.what == "held"]


@pytest.mark.parametrize("k", [2, 5, 12])
def test_a_column_held_for_some_rows_is_named_with_their_number(k):
    noise = np.random.default_rng(1).standard_normal(300)
    (finding,) = findings(pd.DataFrame({"slow": held_every(k), "quick": noise}))
    assert finding.columns == ("slow",)
    assert f"keeps its value for about {k} rows at a time" in finding.sentence
    assert finding.severity == "warning"
    assert "without their direction" in finding.cure


def test_readings_that_come_a_row_early_or_late_are_seen_too():
    rng = np.random.default_rng(2)
    lengths = rng.choice([4, 5, 6], 60)
    assert rows_held([np.repeat(rng.standard_normal(60), lengths)]) == 5


def test_columns_that_change_or_stay_irregularly_are_no_reason_to_warn():
    rng = np.random.default_rng(3)
    events = np.where(rng.random(300) < 0.1, rng.exponential(5, 300), 0.0)
    rounded = np.rint(3 * rng.standard_normal(300))
    frame = pd.DataFrame({"events": events, "rounded": rounded, "noise": rng.standard_normal(300)})
    assert not findings(frame)
    assert rows_held([np.repeat(rng.standard_normal(40), rng.geometric(0.2, 40))]) is None
    assert rows_held([np.empty(0)]) is None


def test_if_all_columns_are_held_alike_no_one_is_late():
    assert not findings(pd.DataFrame({"a": held_every(5), "b": held_every(5, seed=4)}))
