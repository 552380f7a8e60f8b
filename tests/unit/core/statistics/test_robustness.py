"""Robustness values against a published example and against made-up hidden causes."""

import numpy as np
import pytest

from feddbn.core.statistics.diagnostics import edge_robustness, robustness_value
from feddbn.core.statistics.moments import Moments


def test_the_published_example():
    # Cinelli and Hazlett (2020), Darfur: t = 4.18 with 783 degrees of freedom has a robustness value of 13.9 %.
    assert float(robustness_value(4.18, 783)) == pytest.approx(0.139, abs=5e-4)


def test_limits():
    assert robustness_value(np.array([0.0, 1e-200, 1e8, 1e200]), 100).tolist() == pytest.approx(
        [0.0, 0.0, 1.0, 1.0]
    )


def test_a_hidden_cause_of_just_that_strength_explains_an_effect_away():
    rng = np.random.default_rng(0)
    x, y, z = rng.standard_normal((3, 4000))
    y = 0.3 * x + y + 0.2 * z
    rows = np.column_stack([y, x, z])
    moments = Moments.of_rows(rows)
    support = np.zeros((3, 1), dtype=bool)
    support[1:] = True
    share = edge_robustness(moments, support)[1, 0]
    # What z leaves of x and y, and a cause made of both residuals that explains `share` of each.
    z1 = np.column_stack([np.ones(4000), z])
    rx, ry = (v - z1 @ np.linalg.lstsq(z1, v, rcond=None)[0] for v in (x, y))
    ex = rx / np.linalg.norm(rx)
    ey = ry - (ry @ ex) * ex
    ey /= np.linalg.norm(ey)
    noise = rng.standard_normal(4000)
    noise -= (
        np.column_stack([z1, ex, ey]) @ np.linalg.lstsq(np.column_stack([z1, ex, ey]), noise, rcond=None)[0]
    )
    noise /= np.linalg.norm(noise)
    # u explains `share` of rx, and given rx `share` of what is left of ry.
    u = np.sqrt(share) * ex + np.sqrt(share * (1 - share)) * ey + (1 - share) * noise
    full = np.column_stack([np.ones(4000), x, z, u])
    beta = np.linalg.lstsq(full, y, rcond=None)[0]
    assert abs(beta[1]) < 0.003
    weaker = u + 0.5 * noise
    beta = np.linalg.lstsq(np.column_stack([np.ones(4000), x, z, weaker]), y, rcond=None)[0]
    assert beta[1] > 0.03
