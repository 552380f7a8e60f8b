import numpy as np
import pytest
from scipy.linalg import expm
from scipy.optimize import approx_fprime

from feddbn.core.penalised.acyclicity import (
    ACYCLICITIES,
    expm_value_and_grad,
    get_acyclicity,
    logdet_value_and_grad,
    start_within_reach,
)


def of_one(h, W):
    """Value and gradient of a single graph."""
    values, gradients = h(W[None])
    return float(values[0]), gradients[0]


def random_matrix(seed, d=6, scale=0.5):
    W = np.random.default_rng(seed).normal(scale=scale, size=(d, d))
    np.fill_diagonal(W, 0.0)
    return W


@pytest.mark.parametrize("scale", [1e-3, 0.1, 0.5, 1.0, 2.0])
def test_expm_form_equals_scipys_matrix_exponential(scale):
    W = random_matrix(0, scale=scale)
    value, gradient = of_one(expm_value_and_grad, W)
    exponential = expm(W * W)
    assert value == pytest.approx(np.trace(exponential) - 6, rel=1e-9, abs=1e-14)
    np.testing.assert_allclose(gradient, 2 * W * exponential.T, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("name", sorted(ACYCLICITIES))
@pytest.mark.parametrize("seed", range(3))
def test_gradient_equals_finite_differences(name, seed):
    h = get_acyclicity(name)
    W = random_matrix(seed, d=4, scale=0.25)
    numeric = approx_fprime(W.ravel(), lambda x: of_one(h, x.reshape(4, 4))[0], 1e-7).reshape(4, 4)
    np.testing.assert_allclose(of_one(h, W)[1], numeric, atol=2e-6)


def test_logdet_is_infinite_outside_its_domain():
    W = np.array([[0.0, 2.0], [2.0, 0.0]])
    assert of_one(logdet_value_and_grad, W)[0] == np.inf


def test_huge_weights_overflow_to_infinity_instead_of_garbage():
    assert of_one(expm_value_and_grad, np.array([[0.0, 1e10], [1e10, 0.0]]))[0] == np.inf


def test_units_of_the_variables_do_not_change_h():
    W = random_matrix(4)
    value, gradient = of_one(expm_value_and_grad, W)
    units = 10.0 ** np.linspace(-3, 3, 6)
    scaled_value, scaled_gradient = of_one(expm_value_and_grad, units[:, None] * W / units)
    assert scaled_value == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(units[:, None] * scaled_gradient / units, gradient, rtol=1e-11)


@pytest.mark.parametrize("name", sorted(ACYCLICITIES))
def test_a_start_where_h_overflows_is_halved_until_it_does_not(name):
    W = np.array([[0.0, 1e3], [1e2, 0.0]])
    start, h, gradient = (found[0] for found in start_within_reach(W[None], get_acyclicity(name)))
    factor = W[0, 1] / start[0, 1]
    assert np.log2(factor) == round(np.log2(factor)) > 0
    np.testing.assert_array_equal(factor * start, W)
    assert h == of_one(get_acyclicity(name), start)[0] < 1e7
    assert np.isfinite(gradient).all()
