import numpy as np
import pytest

from feddbn.sim import EFFECTS
from feddbn.sim.federated import simulate_arrays
from feddbn.sim.series import MAX_SPREAD_RADIUS, advance, draw_shocks
from feddbn.sim.settings import SimulationSettings
from feddbn.sim.shapes import REACH
from feddbn.sim.systems import MAX_RADIUS

CURVED = EFFECTS[1:]


def _simulate(seed=0, **arguments):
    return simulate_arrays(SimulationSettings(**arguments), np.random.default_rng(seed))


def _by_hand(system, shocks):
    """The same series by the definition: one row, one variable, one edge after the other."""
    shapes, x = system.shapes, np.zeros_like(shocks)
    for t in range(len(shocks)):
        for j in system.order:
            value = shocks[t, j]
            for lag, i, to in system.edges:
                if to != j or lag > t:
                    continue
                cause, weight = x[t - lag, i], (system.A[lag - 1] if lag else system.W)[i, j]
                curve = shapes.curves.get((lag, i, j))
                s, m = shapes.scale[i], shapes.centre[i]
                value += weight * (cause if curve is None else s * curve((cause - m) / s))
            for product in shapes.products:
                if product.target == j and all(lag <= t for _, lag in product.causes):
                    term = product.weight
                    for i, lag in product.causes:
                        z = (x[t - lag, i] - shapes.centre[i]) / shapes.scale[i]
                        term *= np.sqrt(shapes.scale[i]) * min(max(z, -REACH), REACH)
                    value += term
            x[t, j] = value
    return x


@pytest.mark.parametrize("effects", EFFECTS)
def test_series_follow_the_definition(effects):
    arrays = _simulate(d=5, n_lags=2, n_sites=2, n_samples=60, effects=effects, interactions=3)
    system = arrays.systems["site-0"]
    shocks = draw_shocks([40, 40, 25], [np.random.default_rng(k) for k in range(3)], "laplace", np.ones(5), 5)
    for rows, noise in zip(advance([system] * 3, shocks, 5), shocks, strict=True):
        np.testing.assert_allclose(rows, _by_hand(system, noise)[5:], atol=1e-10)


def test_different_systems_advance_together_as_alone():
    arrays = _simulate(
        d=4, n_sites=3, n_samples=60, effects="mixed", interactions=2, heterogeneity="independent"
    )
    systems = list(arrays.systems.values())
    shocks = draw_shocks([30] * 3, [np.random.default_rng(k) for k in range(3)], "gaussian", np.ones(4), 0)
    for rows, system, noise in zip(advance(systems, shocks, 0), systems, shocks, strict=True):
        np.testing.assert_allclose(rows, _by_hand(system, noise), atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("effects", CURVED)
@pytest.mark.parametrize(
    ("more", "within"),
    [({}, 0.15), ({"noise_scale": 20.0}, 0.15), ({"w_range": (0.6, 1.0), "interactions": 4}, 0.1)],
)
def test_curves_refer_to_means_and_standard_deviations_of_the_causes(effects, more, within):
    if "w_range" in more and effects in ("quadratic", "mixed"):
        pytest.skip("these feed on themselves and may have no such units")
    arrays = _simulate(d=8, n_sites=4, n_samples=4000, effects=effects, **{"interactions": 2, **more})
    rows, shapes = np.vstack([r[0] for r in arrays.recordings.values()]), arrays.systems["site-0"].shapes
    np.testing.assert_allclose(rows.std(axis=0) / shapes.scale, 1, atol=0.8 * within if not more else within)
    np.testing.assert_allclose((rows.mean(axis=0) - shapes.centre) / shapes.scale, 0, atol=within)


@pytest.mark.slow
@pytest.mark.parametrize("effects", CURVED)
@pytest.mark.parametrize("w_range", [(0.3, 0.5), (0.5, 2.0)])
def test_series_stay_bounded_and_their_variances_settle(effects, w_range):
    for seed in range(2):
        arrays = _simulate(
            seed, d=10, n_sites=1, n_samples=1000, effects=effects, w_range=w_range, mean_degree=3
        )
        rows, system = arrays.recordings["site-0"][0], arrays.systems["site-0"]
        assert np.isfinite(rows).all()
        assert system.spectral_radius <= MAX_RADIUS + 1e-9, "of the straight edges"
        first, last = rows[:500].std(axis=0), rows[500:].std(axis=0)
        assert (last < 3 * first).all()
        assert (first < 3 * last).all()


@pytest.mark.slow
def test_weights_whose_variances_would_not_settle_are_damped_and_that_is_recorded():
    # Two loops of a straight system that cancel each other do not cancel any more once they are curved.
    arrays = [
        _simulate(seed, d=10, n_sites=1, n_samples=50, effects="gp", w_range=(0.5, 1.0)) for seed in range(5)
    ]
    damping = [a.systems["site-0"].lag_damping for a in arrays]
    assert min(damping) < 1 == max(damping)
    for a in arrays:
        system = a.systems["site-0"]
        mixing = np.linalg.inv(np.eye(10) - system.W**2)
        spread = np.abs(np.linalg.eigvals(system.A[0] ** 2 @ mixing)).max()
        assert spread <= MAX_SPREAD_RADIUS**2 + 1e-9
        assert system.lag_damping == 1 or spread == pytest.approx(MAX_SPREAD_RADIUS**2)


@pytest.mark.slow
def test_products_count_for_what_settles_and_are_damped_as_lagged_edges_are():
    plain, many = (
        _simulate(d=4, n_sites=1, n_samples=500, lag_degree=0, interactions=n, w_range=(0.6, 0.8))
        for n in (1, 24)
    )
    assert plain.systems["site-0"].lag_damping == 1
    system = many.systems["site-0"]
    assert system.lag_damping < 1
    sizes = [abs(p.weight) / system.lag_damping for p in system.shapes.products]
    assert 0.6 <= min(sizes) <= max(sizes) <= 0.8
    rows = many.recordings["site-0"][0]
    assert (rows.std(axis=0) < 10).all()


def test_sites_around_a_backbone_share_the_functions_of_the_edges_they_share():
    arrays = _simulate(d=8, n_sites=3, n_samples=60, effects="mixed", interactions=2, heterogeneity=0.3)
    first, second = arrays.systems["site-0"], arrays.systems["site-1"]
    shared = [e for e in first.edges if e in second.edges and first.weight(e) == second.weight(e)]
    assert len(shared) > 10
    for edge in shared:
        one, other = (system.shapes.curves.get(edge) for system in (first, second))
        assert (one is None) == (other is None)
        assert one is None or np.array_equal(one.table, other.table)
    assert first.shapes.products == second.shapes.products
    independent = _simulate(
        d=8, n_sites=2, n_samples=60, effects="gp", interactions=2, heterogeneity="independent"
    )
    first, second = independent.systems["site-0"], independent.systems["site-1"]
    assert first.shapes.products != second.shapes.products
    both = set(first.shapes.curves) & set(second.shapes.curves)
    assert both
    assert not any(np.array_equal(first.shapes.curves[e].table, second.shapes.curves[e].table) for e in both)


def test_the_number_of_products_is_as_asked_and_their_causes_are_edges_of_the_truth():
    arrays = _simulate(d=6, n_lags=2, effects="linear", interactions=7)
    system = arrays.systems["site-0"]
    products = system.shapes.products
    assert len(products) == 7 == len({(frozenset(p.causes), p.target) for p in products})
    plain = _simulate(d=6, n_lags=2).systems["site-0"]
    added = np.argwhere((system.A != 0) & (plain.A == 0)).tolist()
    wanted = {(lag - 1, i, p.target) for p in products for i, lag in p.causes}
    assert {tuple(edge) for edge in added} == {e for e in wanted if not plain.A[e]}
    assert added, "a product has a cause without an edge of its own"
    for lag, i, j in added:
        assert system.effect((lag + 1, i, j)).kind == "product"
        assert not system.effect((lag + 1, i, j))(np.linspace(-3, 3, 7)).any()
    for p in products:
        (a, lag_a), (b, lag_b) = p.causes
        assert a != b
        assert 1.5 ** (1 - max(lag_a, lag_b)) * 0.3 <= abs(p.weight) <= 1.5 ** (1 - max(lag_a, lag_b)) * 0.5
