"""Red team 11 (a7, a7b): a removed row re-joins its neighbours; what it moves is paid for, whatever the rows are."""

import numpy as np
import pandas as pd
import pytest

from feddbn.data import read_sites
from feddbn.errors import ParameterError
from feddbn.federation import programs  # noqa: F401 (registers the site programs)
from feddbn.federation.protocol.site import Here, site_task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.private_moments import UnitNormsQuestion, private_moments_plan
from feddbn.privacy.gaussian import Grid
from support.saying import refused

NAMES = ("u", "v")
PLAN = private_moments_plan("gram.rows", "row", 1.0, 1e-5)


def clipped_sum(values, question, bound, with_clock):
    frame = pd.DataFrame(values, columns=list(NAMES))
    if with_clock is not None:
        frame["t"] = with_clock
    data = read_sites({"a": frame}, **({} if with_clock is None else {"time": "t", "freq": 1}))["a"]
    program = site_task(question.name)
    rule, length = PLAN.rules[question.name], program.length(question)
    weights = rule.weights(length)
    grid = Grid.for_share(1.0)
    units = program.units(Here("a", data, {}), question, "row")
    return weights * grid.clipped_sum(units, bound, length, weights).steps * grid.step


def largest_move(values, question, bound, clock=False):
    """Remove each row in turn and return the largest change of the clipped sum."""
    times = np.arange(len(values)) if clock else None
    whole = clipped_sum(values, question, bound, times)
    moves = [0.0]
    for row in range(len(values)):
        rest_of_time = None if times is None else np.delete(times, row)
        rest = clipped_sum(np.delete(values, row, axis=0), question, bound, rest_of_time)
        moves.append(float(np.linalg.norm(whole - rest)))
    return max(moves)


def hostile(p, seed):
    """Rows of few huge values, around which windows that go and windows that come differ most."""
    rng = np.random.default_rng([p, seed])
    return rng.choice([-100.0, 0.0, 100.0], size=(3 * p + 4, 2)) + rng.normal(scale=0.01, size=(3 * p + 4, 2))


@pytest.mark.parametrize("p", [0, 1, 3])
@pytest.mark.parametrize("clock", [False, True])
def test_no_row_moves_moments_by_more_than_is_paid_for(p, clock):
    question = GramQuestion(n_lags=p, variables=NAMES)
    paid = PLAN.sensitivity("gram.rows", 1.0, True, p)
    moved = max(largest_move(hostile(p, seed), question, 1.0, clock) for seed in range(6))
    assert moved <= paid
    # Not far below either, so the comparison means something.
    assert moved > 0.7 * (p + 1)


@pytest.mark.parametrize("p", [0, 1, 3])
def test_no_row_moves_a_histogram_by_more_than_is_paid_for_and_one_moves_it_by_all_of_it(p):
    question = UnitNormsQuestion(of=GramQuestion(n_lags=p, variables=NAMES), unit="row", norm="gram")
    values = np.ones((12, 2))
    values[6] = 1e4
    moved = largest_move(values, question, 1.0)
    paid = PLAN.sensitivity("counts.norms", 1.0, True, p)
    assert paid == pytest.approx(np.hypot(p + 1, p))
    assert moved <= paid
    assert moved == pytest.approx(paid, rel=1e-5)
    if p:
        # The old price would not have been enough.
        assert moved > p + 1


def test_vectors_of_two_rows_are_never_opposed():
    rng = np.random.default_rng(0)
    question = GramQuestion(n_lags=0, variables=NAMES)
    weights = PLAN.rules["gram.rows"].weights(6)
    frame = pd.DataFrame(
        10.0 ** rng.uniform(-2, 2, (300, 1)) * rng.normal(size=(300, 2)), columns=list(NAMES)
    )
    data = read_sites({"a": frame})["a"]
    vectors = np.array(list(site_task("gram.rows").units(Here("a", data, {}), question, "row"))) * weights
    products = vectors @ vectors.T
    assert products.min() >= 0.75 - 1e-12
    assert products.min() < 1.0


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"fold": (0, 3, 500)}, "fold-mixes"),
        ({"robust": "recording"}, "robust-mixes"),
        ({"robust": "site"}, "own-scales"),
        ({"row_model": np.ones((5, 4))}, "row_model-mixes"),
        ({"abstain": True}, "abstain-mixes"),
        ({"log_scales": np.zeros(2)}, "own-scales"),
    ],
)
def test_questions_by_which_one_unit_changes_anothers_vector_are_refused(more, code):
    data = read_sites({"a": pd.DataFrame(np.ones((9, 2)), columns=list(NAMES))})["a"]
    question = GramQuestion(n_lags=1, variables=NAMES, **more)
    with refused(ParameterError, code=code):
        list(site_task("gram.rows").units(Here("a", data, {}), question, "row"))
