import numpy as np

from feddbn.core.orders.learn import varsortability


def chain():
    W = np.zeros((3, 3), bool)
    W[0, 1] = W[1, 2] = True
    return W


def test_variance_that_rises_along_every_path_gives_one():
    assert varsortability(chain(), np.array([1.0, 2.0, 3.0])) == 1.0


def test_variance_that_falls_gives_zero_and_ties_count_half():
    assert varsortability(chain(), np.array([3.0, 2.0, 1.0])) == 0.0
    assert varsortability(chain(), np.ones(3)) == 0.5


def test_longer_paths_count():
    # Paths 0->1 (falls), 1->2 (rises), 0->1->2 (rises).
    assert varsortability(chain(), np.array([2.0, 1.0, 3.0])) == 2 / 3


def test_no_edges_give_nan():
    assert np.isnan(varsortability(np.zeros((2, 2), bool), np.ones(2)))


def test_paths_are_those_of_matrix_powers():
    rng = np.random.default_rng(0)
    W = np.triu(rng.random((12, 12)) < 0.3, 1)
    W[:, 4] = W[6] = False
    variances = rng.permutation(12).astype(float)
    n_paths = rising = 0
    for length in range(1, 12):
        causes, effects = np.nonzero(np.linalg.matrix_power(W.astype(int), length))
        n_paths += len(causes)
        rising += int((variances[effects] > variances[causes]).sum())
    assert varsortability(W, variances) == rising / n_paths
