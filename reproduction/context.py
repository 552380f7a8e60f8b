"""Edge scores by well-known methods that are not federated, for context: they pool the rows.

Each takes recordings (n, d) and returns scores (d, d), [from, to]; the diagonal is the variable's own past.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import RidgeCV

FloatArray = NDArray[np.float64]
_PENALTIES = tuple(10.0 ** (k / 2) for k in range(9))


def ridge_var(recordings: Sequence[FloatArray]) -> FloatArray:
    """Absolute weights of a ridge regression of every standardised variable on all of the time step before.

    The penalty is chosen by leave-one-out error over all variables together.
    """
    before, after = _standardised_pairs(recordings)
    weights: FloatArray = np.abs(RidgeCV(alphas=_PENALTIES).fit(before, after).coef_.T)
    return weights


def forest_var(recordings: Sequence[FloatArray], *, n_trees: int = 100, seed: int = 0) -> FloatArray:
    """Importances of a tree ensemble for every variable given all of the time step before, as in dynGENIE3."""
    before, after = _standardised_pairs(recordings)
    scores = np.zeros((before.shape[1], after.shape[1]))
    for j in range(after.shape[1]):
        forest = ExtraTreesRegressor(n_trees, max_features="sqrt", random_state=seed, n_jobs=1)
        scores[:, j] = forest.fit(before, after[:, j]).feature_importances_
    return scores


def var_lingam(recordings: Sequence[FloatArray]) -> FloatArray:
    """Summed absolute weights of lingam's VARLiNGAM with one lag; first recording only."""
    from lingam import VARLiNGAM

    model = VARLiNGAM(lags=1, prune=False).fit(recordings[0])
    # lingam writes [to, from].
    weights: FloatArray = np.abs(np.asarray(model.adjacency_matrices_)).sum(axis=0).T
    return weights


def pcmci(recordings: Sequence[FloatArray]) -> FloatArray:
    """Largest absolute test statistic over lags 0 and 1 of tigramite's PCMCI+."""
    from tigramite import data_processing
    from tigramite.independence_tests.parcorr import ParCorr
    from tigramite.pcmci import PCMCI

    frame = data_processing.DataFrame(np.asarray(recordings[0]))
    values = PCMCI(dataframe=frame, cond_ind_test=ParCorr()).run_pcmciplus(tau_max=1)["val_matrix"]
    largest: FloatArray = np.abs(values).max(axis=2)
    return largest


def _standardised_pairs(recordings: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
    arrays = [np.asarray(recording, dtype=np.float64) for recording in recordings]
    rows = np.vstack(arrays)
    center, scale = rows.mean(axis=0), rows.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    scaled = [(array - center) / scale for array in arrays]
    return np.vstack([a[:-1] for a in scaled]), np.vstack([a[1:] for a in scaled])
