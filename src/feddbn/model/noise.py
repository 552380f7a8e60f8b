"""Independent shocks with given variances."""

from __future__ import annotations

from typing import Literal

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError

__all__ = ["Noise", "draw_noise"]

Noise = Literal["gaussian", "laplace", "uniform"] | FloatArray


def draw_noise(
    noise: Noise, variances: FloatArray, shape: tuple[int, ...], rng: np.random.Generator
) -> FloatArray:
    """(*shape, d) shocks: a named distribution with mean 0 and `variances`, or rows drawn from an (m, d)
    array.

    An array holds residuals; whole rows are drawn with replacement, so that dependence between them is kept.
    """
    d = len(variances)
    if not isinstance(noise, str):
        rows = np.asarray(noise, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != d or not len(rows) or not np.all(np.isfinite(rows)):
            raise ParameterError(
                f"noise must be a name or a finite array of residuals (m, {d}), got shape {rows.shape}."
            )
        return np.asarray(rows[rng.integers(len(rows), size=shape)])
    full = (*shape, d)
    if noise == "gaussian":
        standard = rng.standard_normal(full)
    elif noise == "laplace":
        standard = rng.laplace(scale=np.sqrt(0.5), size=full)
    elif noise == "uniform":
        standard = rng.uniform(-np.sqrt(3.0), np.sqrt(3.0), size=full)
    else:
        raise ParameterError(
            f"noise must be 'gaussian', 'laplace', 'uniform' or an array of residuals, got {noise!r}."
        )
    return np.asarray(standard * np.sqrt(variances))
