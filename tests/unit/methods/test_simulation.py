import numpy as np
import pytest

from feddbn.errors import ParameterError
from feddbn.methods.simulation import simulate
from feddbn.model.dbn import DBN


def test_the_contract_example_gives_frames_and_one_true_network():
    fed = simulate(
        d=10,
        n_lags=1,
        n_sites=10,
        n_samples=512,
        mean_degree=4,
        lag_degree=1,
        w_range=(0.3, 0.5),
        decay=1.5,
        heterogeneity=0.0,
        noise="gaussian",
        noise_scale=1.0,
        random_state=0,
    )
    assert list(fed.sites) == [f"site-{k}" for k in range(10)]
    assert sum(len(frame) - 1 for frames in fed.sites.values() for frame in frames) == 512
    assert list(fed.sites["site-3"][0].columns) == [f"x{i}" for i in range(10)]
    assert isinstance(fed.truth, DBN)
    assert all(truth is fed.truth for truth in fed.truths.values())
    assert fed.is_homogeneous
    assert fed.clusters is None
    assert set(fed.lag_damping.values()) == {1.0}
    assert fed.parameters["mean_degree"] == 4
    assert fed.parameters["random_state"] == 0


def test_names_and_noise_variances_reach_the_truth():
    fed = simulate(d=2, n_sites=1, n_samples=5, variables=["heart", "lung"], noise_scale=[1, 3])
    assert fed.truth.variables == ("heart", "lung")
    assert list(fed.sites["site-0"][0].columns) == ["heart", "lung"]
    np.testing.assert_array_equal(fed.truth.noise_variances, [1, 9])


@pytest.mark.parametrize(
    "arguments", [{"heterogeneity": 0.2}, {"heterogeneity": "independent"}, {"n_clusters": 2}]
)
def test_a_heterogeneous_federation_has_a_truth_per_site_and_none_for_all(arguments):
    fed = simulate(n_sites=4, **arguments)
    assert list(fed.truths) == list(fed.sites)
    assert not fed.is_homogeneous
    with pytest.raises(ParameterError) as caught:
        _ = fed.truth
    assert str(caught.value) == (
        "the sites of this federation follow different networks, so there is no single truth; "
        "use .truths, one network per site."
    )


def test_clusters_are_named_by_site():
    fed = simulate(n_sites=4, n_clusters=2)
    assert fed.clusters == {"site-0": 0, "site-1": 1, "site-2": 0, "site-3": 1}
    assert fed.truths["site-0"] is fed.truths["site-2"]


def test_a_seed_repeats_and_a_generator_moves_on():
    first, second = simulate(random_state=3), simulate(random_state=3)
    assert first.sites["site-0"][0].equals(second.sites["site-0"][0])
    rng = np.random.default_rng(3)
    from_rng, next_one = simulate(random_state=rng), simulate(random_state=rng)
    assert from_rng.sites["site-0"][0].equals(first.sites["site-0"][0])
    assert not next_one.sites["site-0"][0].equals(first.sites["site-0"][0])


def test_no_seed_gives_a_new_federation_each_time():
    assert not np.array_equal(simulate(random_state=None).truth.W, simulate(random_state=None).truth.W)


@pytest.mark.parametrize("value", [-1, 1.5, "seed", True])
def test_an_impossible_seed_is_refused_with_one_sentence(value):
    with pytest.raises(ParameterError) as caught:
        simulate(random_state=value)
    assert str(caught.value) == (
        f"random_state must be a whole number of at least 0, a numpy Generator or None, got {value!r}."
    )
