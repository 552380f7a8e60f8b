import numpy as np
import pytest

from support.messy import values, with_mess


def test_a_sum_is_a_column_and_an_effect_of_its_parts(clean, rows):
    fed = with_mess("sum-column")
    name = fed.truth.variables[-1]
    parts = [f"x{i}" for i in np.flatnonzero(fed.truth.W[:, -1])]
    assert len(parts) == 3
    assert name == "sum_of_" + "_".join(parts)
    frame = fed.sites["site-2"][0]
    np.testing.assert_allclose(frame[name], frame[parts].sum(axis=1))
    np.testing.assert_array_equal(frame.iloc[:, :5], rows[2])
    np.testing.assert_array_equal(fed.truth.W[:5, :5], clean.truth.W)
    assert fed.truth.W[5].tolist() == [0] * 6
    assert fed.truth.A.shape == (1, 6, 6)
    assert fed.truth.noise_variances.tolist() == [1, 1, 1, 1, 1, 0]


def test_a_copy_is_exact_or_noisy(spread):
    exact, noisy = with_mess("duplicate"), with_mess({"duplicate": 0.5})
    source = int(np.flatnonzero(exact.truth.W[:, -1])[0])
    assert exact.truth.variables[-1] == f"x{source}_copy"
    stacked = np.vstack(values(exact))
    np.testing.assert_array_equal(stacked[:, -1], stacked[:, source])
    difference = np.vstack(values(noisy))[:, -1] - stacked[:, source]
    assert difference.std() == pytest.approx(0.5 * spread[source], rel=0.05)
    assert noisy.truth.noise_variances[-1] == pytest.approx((0.5 * spread[source]) ** 2)


def test_a_new_column_takes_no_name_that_is_there():
    names = [*(f"x{i}" for i in range(4)), "x0_copy", "x1_copy", "x2_copy", "x3_copy"]
    fed = with_mess("duplicate", d=8, variables=names)
    assert len(set(fed.truth.variables)) == 9
