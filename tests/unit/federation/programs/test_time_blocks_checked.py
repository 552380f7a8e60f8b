"""Residual checks of a network that changes: against residual checks of recordings cut by hand."""

import numpy as np
import pytest

from feddbn.core.designs.design import public_units
from feddbn.errors import ProtocolError
from feddbn.federation.programs.residual_checks import ResidualsQuestion
from feddbn.federation.protocol.task import Task
from support.sites import federation_of, memory_site

NAMES, D, P, CUT = ("x0", "x1"), 2, 1, 48
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(120, D)).cumsum(axis=0) + 3.0
COEFFICIENTS, OFFSETS = RNG.normal(size=(2, 2 * D, D)), RNG.normal(size=(2, D))
UNITS = np.stack(public_units(np.array([3.0, 2.0]), np.array([4.0, 4.0])))


def total(question, rows):
    return federation_of({"a": memory_site(rows)}).sum(Task(question)).value


def asked(cuts, segments, **more):
    return ResidualsQuestion(
        n_lags=P, variables=NAMES, block_rows=16, n_blocks=7, cuts=cuts, units=UNITS,
        coefficients=np.concatenate(COEFFICIENTS[:segments]), offset=OFFSETS[:segments].ravel(), **more,
    )  # fmt: skip


def plain(s, **more):
    return ResidualsQuestion(
        n_lags=P, variables=NAMES, units=UNITS, coefficients=COEFFICIENTS[s], offset=OFFSETS[s], **more
    )


def unchanging(answer):
    """The answer to a plain question without what it says about change over time, which blocks leave out."""
    stop = len(answer) - 6 * 2 * D * D
    return np.append(answer[:stop], answer[stop:].reshape(2, 3, -1)[:, :2])


def test_without_a_cut_it_is_the_residual_check_of_all_rows():
    rows = ROWS.copy()
    rows[70, 1] = np.nan
    np.testing.assert_allclose(total(asked((), 1), rows), unchanging(total(plain(0), rows)), rtol=1e-10)


def test_segments_are_recordings_cut_by_hand_and_lags_reach_back():
    found = total(asked((CUT // 16,), 2), ROWS)[1:]
    both = total(plain(0), ROWS[:CUT]) + total(plain(1), ROWS[CUT - P :])
    np.testing.assert_allclose(found, unchanging(both)[1:], rtol=1e-10)


def test_what_is_a_recordings_own_is_taken_off_over_the_whole_recording():
    given = {"center": "recording", "degree": 1}
    z = np.concatenate([ROWS[1:], ROWS[:-1]], axis=1)
    basis = np.stack([np.ones(len(z)), np.arange(len(z))], axis=1)
    z = z - basis @ np.linalg.lstsq(basis, z, rcond=None)[0]
    found = total(asked((CUT // 16,), 2, **given), ROWS)[1:]
    u = [part @ COEFFICIENTS[s] - OFFSETS[s] for s, part in enumerate((z[: CUT - 1], z[CUT - 1 :]))]
    # Counts, then products of residuals of the same row.
    assert found[:3].tolist() == [119, 117, 115]
    products = sum(part.T @ part for part in (np.clip(one, -20, 20) for one in u))
    np.testing.assert_allclose(found[3 : 3 + D * D].reshape(D, D), products, rtol=1e-8)


def test_no_product_reaches_over_a_cut():
    # A residual of the first segment alone, and one of the second: their product is that of the rows at the cut.
    coefficients = np.zeros((2, 2 * D, D))
    coefficients[0, 0, 0] = coefficients[1, 1, 1] = 1.0
    question = ResidualsQuestion(
        n_lags=P, variables=NAMES, block_rows=16, n_blocks=7, cuts=(3,), units=UNITS,
        coefficients=np.concatenate(coefficients), offset=np.zeros(2 * D),
    )  # fmt: skip
    products = total(question, ROWS)[4:][: 3 * D * D].reshape(3, D, D)
    assert (products[:, [0, 1], [1, 0]] == 0).all()
    assert (np.diagonal(products, axis1=1, axis2=2) != 0).all()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"n_lags": 0, "coefficients": np.zeros((2 * D, D))}, "'n_lags' is 0"),
        ({"cuts": (7,)}, "'cuts' is"),
        ({"cuts": (3, 3), "coefficients": np.zeros((6 * D, D)), "offset": np.zeros(3 * D)}, "'cuts' is"),
        ({"coefficients": np.zeros((2 * D, D))}, "coefficients"),
        ({"units": UNITS * 1.01}, "public grid"),
    ],
)
def test_a_question_that_cannot_be_is_none(wrong, why):
    given = {"n_lags": P, "variables": NAMES, "block_rows": 16, "n_blocks": 7, "cuts": (3,), "units": UNITS}
    arrays = {"coefficients": np.concatenate(COEFFICIENTS), "offset": OFFSETS.ravel()}
    with pytest.raises(ProtocolError, match=why):
        ResidualsQuestion(**{**given, **arrays, **wrong})
