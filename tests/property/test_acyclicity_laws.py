import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from feddbn.core.graphs.acyclicity import expm_value_and_grad, logdet_value_and_grad
from feddbn.core.graphs.constraints import break_cycles, has_cycle, topological_order

matrices = arrays(
    np.float64, (5, 5), elements=st.floats(-0.4, 0.4).map(lambda x: 0.0 if abs(x) < 0.15 else x)
).map(lambda W: W * (1 - np.eye(5)))


@given(matrices)
def test_both_forms_are_zero_exactly_when_the_graph_has_no_cycle(W):
    for h in (expm_value_and_grad, logdet_value_and_grad):
        value = h(W[None])[0][0]
        assert value >= -1e-12
        assert (value > 1e-9) == has_cycle(W != 0)


@given(matrices, st.permutations(range(5)))
def test_relabelling_changes_nothing(W, order):
    shuffled = W[np.ix_(order, order)]
    assert np.allclose(*expm_value_and_grad(np.stack([W, shuffled]))[0], atol=1e-12)


@given(matrices)
def test_breaking_cycles_leaves_a_dag_and_reports_what_went(W):
    cut, dropped = break_cycles(W)
    assert not has_cycle(cut != 0)
    order = topological_order(cut != 0)
    position = np.argsort(order)
    assert all(position[i] < position[j] for i, j in zip(*np.nonzero(cut), strict=True))
    restored = cut.copy()
    for i, j, weight in dropped:
        restored[i, j] = weight
    np.testing.assert_array_equal(restored, W)
