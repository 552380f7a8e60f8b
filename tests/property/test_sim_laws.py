import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from feddbn.core.graphs.constraints import has_cycle
from feddbn.sim import SimulationSettings, simulate_arrays
from feddbn.sim.systems import MAX_RADIUS

FEDERATIONS = st.fixed_dictionaries(
    {
        "d": st.integers(1, 9),
        "n_lags": st.integers(0, 3),
        "n_sites": st.integers(1, 5),
        "n_samples": st.integers(15, 60),
        "mean_degree": st.floats(0, 8),
        "lag_degree": st.floats(0, 4),
        "w_range": st.sampled_from([(0.3, 0.5), (0.5, 2.0), (0.1, 0.1)]),
        "graph": st.sampled_from(["erdos-renyi", "scale-free"]),
        "heterogeneity": st.one_of(st.floats(0, 1), st.just("independent")),
        "connectivity": st.sampled_from([None, "low", "high", "mixed"]),
        "n_recordings": st.integers(1, 3),
        "burn_in": st.integers(0, 20),
    }
)


@given(arguments=FEDERATIONS, seed=st.integers(0, 2**31), clusters=st.integers(0, 3))
def test_every_federation_is_acyclic_stable_finite_and_of_the_size_asked_for(arguments, seed, clusters):
    n_clusters = min(clusters, arguments["n_sites"]) or None
    asked = SimulationSettings(n_clusters=n_clusters, **arguments)
    arrays = simulate_arrays(asked, np.random.default_rng(seed))
    for system in arrays.systems.values():
        assert not has_cycle(system.W != 0)
        assert system.A.shape == (asked.n_lags, asked.d, asked.d)
        assert system.spectral_radius <= MAX_RADIUS + 1e-6
        assert 0 < system.lag_damping <= 1
    recordings = [rows for site in arrays.recordings.values() for rows in site]
    assert all(np.isfinite(rows).all() and rows.shape[1] == asked.d for rows in recordings)
    assert sum(len(rows) - asked.n_lags for rows in recordings) == asked.n_samples
    assert len(arrays.recordings) == asked.n_sites
