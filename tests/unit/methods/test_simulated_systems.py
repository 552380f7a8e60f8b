import numpy as np
import pytest

import feddbn
from feddbn.errors import ParameterError
from feddbn.methods.simulation import SYSTEMS
from feddbn.sim import lorenz96


def test_sites_hold_independent_paths_and_share_one_truth():
    fed = feddbn.simulate_system("lorenz96", d=6, n_sites=3, n_samples=100, random_state=2, F=8.0, dt=0.05)
    assert [len(frames[0]) for frames in fed.sites.values()] == [35, 34, 34]
    drawn = lorenz96(6, 35, F=8.0, dt=0.05, n_sites=3, rng=np.random.default_rng(2))
    np.testing.assert_array_equal(fed.sites["site-1"][0].to_numpy(), drawn.recordings[1][:34])
    assert fed.is_homogeneous
    assert not fed.truth.W.any()
    np.testing.assert_array_equal(fed.truth.A[0] != 0, drawn.graph)
    assert fed.parameters == {
        "system": "lorenz96", "d": 6, "n_sites": 3, "n_samples": 100, "F": 8.0, "dt": 0.05, "random_state": 2,
    }  # fmt: skip


def test_a_graph_has_no_functions_of_single_edges():
    truth = feddbn.simulate_system("lotka-volterra", d=4, n_sites=1, n_samples=5).truth
    assert truth.variables == ("prey0", "prey1", "predator0", "predator1")
    assert not truth.is_linear
    assert truth.functions() == truth.interactions == []
    for ask in (
        lambda: truth.effect("prey0", "prey0", 1),
        lambda: truth.residuals(np.zeros((5, 4))),
        lambda: truth.simulate(5),
    ):
        with pytest.raises(ParameterError):
            ask()
    assert len(truth.edges()) == 4 + 2 * 4


@pytest.mark.slow
@pytest.mark.parametrize("system", list(SYSTEMS))
def test_lagged_causes_stand_out_in_a_plain_regression(system):
    """A weak, independent look at the graph: causes have larger standardised weights in a VAR than others."""
    fed = feddbn.simulate_system(system, d=10, n_sites=2, n_samples=1000, random_state=1)
    past, now = (
        np.vstack([f[0].to_numpy()[k : len(f[0]) - 1 + k] for f in fed.sites.values()]) for k in (0, 1)
    )
    past, now = ((x - x.mean(axis=0)) / x.std(axis=0) for x in (past, now))
    weights = np.abs(np.linalg.lstsq(past, now, rcond=None)[0])
    off = ~np.eye(10, dtype=bool)
    truth = fed.truth.A[0] != 0
    assert weights[truth & off].mean() > 1.5 * weights[~truth & off].mean()


@pytest.mark.parametrize(
    ("system", "arguments", "sentence"),
    [
        ("lorentz", {}, "'lorentz'"),
        ("lorenz96", {"n_hunted": 2}, "n_hunted=2"),
        ("lotka-volterra", {"F": 3}, "n_hunted"),
        ("lorenz96", {"n_samples": 5}, "n_samples"),
        ("lorenz96", {"n_sites": 0}, "n_sites"),
        ("lorenz96", {"d": 3}, "4, got 3"),
        ("lorenz96", {"random_state": -1}, "random_state"),
    ],
)
def test_impossible_systems_are_refused_with_one_sentence(system, arguments, sentence):
    with pytest.raises(ParameterError) as caught:
        feddbn.simulate_system(system, **arguments)
    assert sentence in str(caught.value)
