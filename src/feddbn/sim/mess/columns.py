"""Mess by columns that are no measurements of their own: sums and copies.

A new column is an effect without delay of the columns it is made of, so the truth gets these edges and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.sim.systems import System

__all__ = ["NewColumn", "add_to_rows", "add_to_system", "new_columns"]


@dataclass(frozen=True, eq=False)
class NewColumn:
    """``x @ weights`` plus noise with standard deviation `noise` times that of the column it copies."""

    name: str
    weights: FloatArray
    noise: float = 0.0


def new_columns(
    mess: dict[str, float], names: Sequence[str], generators: dict[str, np.random.Generator]
) -> list[NewColumn]:
    """Return the columns that a mess adds to d columns, one after the other."""
    d, columns = len(names), []
    if "sum-column" in mess:
        parts = generators["sum-column"].choice(d, size=min(round(mess["sum-column"]), d), replace=False)
        weights = np.zeros(d)
        weights[parts] = 1.0
        columns.append(
            NewColumn(_free("sum_of_" + "_".join(names[i] for i in sorted(parts)), names), weights)
        )
    if "duplicate" in mess:
        copied = int(generators["duplicate"].integers(d))
        weights = np.zeros(d)
        weights[copied] = 1.0
        columns.append(NewColumn(_free(f"{names[copied]}_copy", names), weights, mess["duplicate"]))
    return columns


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


def add_to_rows(
    rows: FloatArray, columns: Sequence[NewColumn], scale: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """(n, d) rows with the new columns behind them; `scale` holds d standard deviations."""
    new = []
    for column in columns:
        value = rows @ column.weights
        if column.noise:
            value = value + rng.standard_normal(len(rows)) * column.noise * (scale @ column.weights)
        new.append(value)
    return np.column_stack([rows, *new])


def add_to_system(system: System, columns: Sequence[NewColumn]) -> System:
    """The system with an edge within a moment, of weight 1, from every part of a new column to it."""
    d, m = len(system.W), len(columns)
    W = np.pad(system.W, ((0, m), (0, m)))
    for k, column in enumerate(columns):
        W[:d, d + k] = column.weights
    A = np.pad(system.A, ((0, 0), (0, m), (0, m)))
    return replace(system, W=W, A=A, order=np.append(system.order, np.arange(d, d + m)))
