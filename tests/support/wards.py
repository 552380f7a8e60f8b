"""Small federations of wards with four vital signs, clean and in every kind of disorder."""

from __future__ import annotations

import numpy as np
import pandas as pd

COLUMNS = ["pulse", "pressure", "breath", "oxygen"]
UNITS = np.array([9.0, 14.0, 2.5, 1.2])
LEVELS = np.array([78.0, 121.0, 15.0, 96.0])


def ward(n: int = 300, seed: int = 0, in_units: bool = True) -> pd.DataFrame:
    """Rows of a stable process: pulse -> pressure at once, oxygen -> pulse and pressure -> breath a step later."""
    rng = np.random.default_rng(seed)
    x = np.zeros(4)
    rows = []
    for _ in range(n + 50):
        noise = rng.normal(size=4)
        new = 0.4 * x + noise
        new[0] += 0.5 * x[3]
        new[2] -= 0.5 * x[1]
        new[1] += 0.6 * new[0]
        x = new
        rows.append(x)
    values = np.array(rows[50:])
    return pd.DataFrame(values * UNITS + LEVELS if in_units else values, columns=COLUMNS)


def wards(n_sites: int = 6, n: int = 300, in_units: bool = True) -> dict[str, pd.DataFrame]:
    """Return site -> rows; all sites share process, units and levels."""
    return {f"ward-{k}": ward(n, 100 + k, in_units) for k in range(n_sites)}


def stays(n_patients: int = 6, n: int = 50) -> pd.DataFrame:
    """Several patients one below the other, each with hours from 0 on and a level of its own."""
    parts = []
    for patient in range(n_patients):
        part = ward(n, 200 + patient) + np.random.default_rng(patient).normal(size=4) * UNITS
        part.insert(0, "hour", np.arange(n))
        part.insert(0, "patient", 500 + patient)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)
