from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from feddbn.data.preflight import preflight
from feddbn.data.preflight.columns import rows_held


def held_every(k: int, n: int = 300, seed: int = 0) -> np.ndarray:
    walk = np.random.default_rng(seed).standard_normal(n).cumsum()
    return walk[np.arange(n) // k * k]


@pytest.mark.parametrize("k", [2, 12])
def test_a_column_held_for_some_rows_is_named_with_their_number(k):
    noise = np.random.default_rng(1).standard_normal(300)
    (finding,) = preflight({"a": pd.DataFrame({"slow": held_every(k), "quick": noise})}).of("held")
    assert (finding.level, finding.about, finding.values["n_rows"]) == ("warning", ("slow",), k)


def test_columns_that_change_or_stay_irregularly_or_all_alike_are_no_reason_to_warn():
    rng = np.random.default_rng(3)
    events = np.where(rng.random(300) < 0.1, rng.exponential(5, 300), 0.0)
    rounded = np.rint(3 * rng.standard_normal(300))
    frame = pd.DataFrame({"events": events, "rounded": rounded, "noise": rng.standard_normal(300)})
    alike = pd.DataFrame({"a": held_every(5), "b": held_every(5, seed=4)})
    assert not preflight({"a": frame}).of("held")
    assert not preflight({"a": alike}).of("held")
    assert rows_held([np.repeat(rng.standard_normal(40), rng.geometric(0.2, 40))]) is None
    assert rows_held([np.empty(0)]) is None


def test_readings_that_come_a_row_early_or_late_are_seen_too():
    rng = np.random.default_rng(2)
    assert rows_held([np.repeat(rng.standard_normal(60), rng.choice([4, 5, 6], 60))]) == 5
