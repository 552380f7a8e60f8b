"""What a row or a recording can move is paid for, low bits and repeated shares tell nothing: noise for (epsilon, delta)."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")
from feddbn.data import read_sites
from feddbn.errors import ParameterError
from feddbn.federation import programs  # noqa: F401 (registers the site programs)
from feddbn.federation.protocol.site import Here, site_task
from feddbn.federation.protocol.study import study_from_json
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.private_moments import (
    UnitNormsQuestion,
    guaranteed_sites,
    private_moments_plan,
    study_noise_plan,
)
from feddbn.privacy.gaussian import Grid, gaussian_epsilon
from feddbn.privacy.integers import encode_fixed
from support.consortium import Consortium, Liar, by_rule, make_study, plain
from support.saying import refused

pytestmark = pytest.mark.promise

NAMES = ("u", "v")
ROWS = private_moments_plan("gram.rows", "row", 1.0, 1e-5)
RECORDINGS = private_moments_plan("gram.rows", "recording", 1.0, 1e-5)


# One row more or less -----------------------------------------------------------------------------------------------------
def clipped_sum(values, question, clock):
    frame = pd.DataFrame(values, columns=list(NAMES))
    if clock is not None:
        frame["t"] = clock
    data = read_sites({"a": frame}, **({} if clock is None else {"time": "t", "freq": 1}))["a"]
    program = site_task(question.name)
    length = program.length(question)
    weights = ROWS.rules[question.name].weights(length)
    grid = Grid.for_share(1.0)
    units = program.units(Here("a", data, {}), question, "row")
    return weights * grid.clipped_sum(units, 1.0, length, weights).steps * grid.step


def largest_move(values, question, has_clock=False):
    """Remove each row in turn, so that its neighbours become one another's past; the largest change of the clipped sum."""
    times = np.arange(len(values)) if has_clock else None
    whole = clipped_sum(values, question, times)
    moves = [0.0]
    for row in range(len(values)):
        rest = np.delete(values, row, axis=0)
        moves.append(
            np.linalg.norm(whole - clipped_sum(rest, question, np.delete(times, row) if has_clock else None))
        )
    return max(moves)


def hostile(p, seed):
    """Rows of few huge values, around which windows that go and windows that come differ most."""
    rng = np.random.default_rng([p, seed])
    return rng.choice([-100.0, 0.0, 100.0], size=(3 * p + 4, 2)) + rng.normal(scale=0.01, size=(3 * p + 4, 2))


@pytest.mark.parametrize("p", [0, 1, 3])
@pytest.mark.parametrize("has_clock", [False, True])
def test_no_row_moves_moments_by_more_than_is_paid_for(p, has_clock):
    question = GramQuestion(n_lags=p, variables=NAMES)
    moved = max(largest_move(hostile(p, seed), question, has_clock) for seed in range(6))
    # Not far below either, so the comparison means something.
    assert 0.7 * (p + 1) < moved <= ROWS.sensitivity("gram.rows", 1.0, True, p)


@pytest.mark.parametrize("p", [0, 1, 3])
def test_no_row_moves_a_histogram_by_more_than_is_paid_for_and_one_moves_it_by_all_of_it(p):
    question = UnitNormsQuestion(of=GramQuestion(n_lags=p, variables=NAMES), unit="row")
    values = np.ones((12, 2))
    values[6] = 1e4
    moved = largest_move(values, question)
    paid = ROWS.sensitivity("counts.norms", 1.0, True, p)
    assert paid == pytest.approx(np.hypot(p + 1, p))
    assert moved <= paid
    assert moved == pytest.approx(paid, rel=1e-5)
    # One for each row that changes would not be enough.
    assert not p or moved > p + 1


def test_vectors_of_two_rows_are_never_opposed():
    rng = np.random.default_rng(0)
    question = GramQuestion(n_lags=0, variables=NAMES)
    weights = ROWS.rules["gram.rows"].weights(6)
    values = 10.0 ** rng.uniform(-2, 2, (300, 1)) * rng.normal(size=(300, 2))
    data = read_sites({"a": pd.DataFrame(values, columns=list(NAMES))})["a"]
    vectors = np.array(list(site_task("gram.rows").units(Here("a", data, {}), question, "row"))) * weights
    assert 0.75 - 1e-12 <= (vectors @ vectors.T).min() < 1.0


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


# Low bits -----------------------------------------------------------------------------------------------------------------
N_BINS, N_RELEASES = 2000, 5
RNG = np.random.default_rng(8)
BEGUN = RNG.bit_generator.state
SIGMA = RECORDINGS.multiplier_of("counts.norms")


@pytest.fixture(autouse=True)
def _drawn_anew():
    """No test goes on with what another has drawn."""
    RNG.bit_generator.state = BEGUN


def low_bits(count, n_sites, protect):
    """What a server that opens sums sees below the whole numbers, for bins in which one site holds `count` units."""
    seen = []
    for _ in range(N_RELEASES):
        total = np.zeros((2, N_BINS), dtype=np.uint64)
        for site in range(n_sites):
            total += encode_fixed(protect(count if site == 0 else 40, n_sites), n_sites)
        seen.append(total.view(np.int64)[0])
    return np.concatenate(seen)


def on_the_grid(count, n_sites):
    # Every bin is a release of its own: as many units in each, and the noise of one bin.
    share = SIGMA / np.sqrt(n_sites)
    grid = Grid.for_share(share)
    steps = np.full(N_BINS, count * int(np.rint(1.0 / grid.step)), dtype=np.int64)
    return (steps + grid.noise(np.full(N_BINS, share), RNG.bytes)) * grid.step


def in_floating_point(count, n_sites):
    return count * np.ones(N_BINS) + RNG.normal(scale=SIGMA / np.sqrt(n_sites), size=N_BINS)


def finer_than(bits, n_sites, power):
    return (bits % (1 << (64 - n_sites.bit_length() - power)) != 0).mean()


@pytest.mark.parametrize("n_sites", [1, 3])
def test_no_number_has_bits_below_the_grid_whatever_it_hides(n_sites):
    grid = Grid.for_share(SIGMA / np.sqrt(n_sites))
    step = 1 << (64 - n_sites.bit_length() + grid.exponent)
    for count in (0, 1, 2):
        bits = low_bits(count, n_sites, on_the_grid)
        assert finer_than(bits, n_sites, 53) == 0.0
        # All bits on the grid are used, as often with a unit as without.
        assert np.all(bits % step == 0)
        assert stats.chisquare(np.bincount((bits // step) % 64, minlength=64)).pvalue > 1e-5


def test_the_attack_works_on_floating_point_noise():
    empty, one = (finer_than(low_bits(count, 1, in_floating_point), 1, 53) for count in (0, 1))
    assert empty > 0.01
    assert one < empty / 5


def test_what_a_site_sends_is_on_a_grid_that_the_noise_alone_decides():
    grid = Grid.for_share(RECORDINGS.sigma("counts.norms", 1.0, True, 1) / np.sqrt(RECORDINGS.n_shares(3)))
    for count in (0, 1, 50):
        units = [np.eye(40)[i % 40] for i in range(count)]
        value = RECORDINGS.protect("counts.norms", units, True, 40, 1, 3, RNG.bytes).value
        assert np.all(value / grid.step == np.rint(value / grid.step))


# A site that subtracts its own share --------------------------------------------------------------------------------------
def noisy(sites=("a", "b", "c"), **privacy):
    return make_study(
        variables=("u",), sites=sites, privacy={"secure_aggregation": True, "epsilon": 1.0, **privacy}
    )


def test_three_real_sites_of_which_one_knows_its_share(tmp_path):
    sites = Consortium(tmp_path, plain(rows=12, n_recordings=3), by_rule())
    study = sites.study(privacy={"epsilon": 1.0, "clip": 5.0})
    opened = Liar(sites, study).sum(GramQuestion(n_lags=1, variables=sites.variables)).value
    plan = study_noise_plan(study)
    # What the others' clipped sums are is bounded by their units, six of norm 5; the noise is far above it.
    left = plan.rules["gram.rows"].weights(len(opened)) * (opened - sites.noise_guard("s2").last.value)
    assert np.linalg.norm(left) / np.sqrt(len(left)) > 0.15 * plan.multiplier * 5.0


@pytest.mark.parametrize("n_sites", [3, 4, 10])
def test_what_a_colluding_site_leaves_is_the_noise_that_was_booked(n_sites):
    study = noisy(tuple(f"s{i}" for i in range(n_sites)))
    plan, certain = study_noise_plan(study), guaranteed_sites(study)
    left = (certain - 1) / plan.n_shares(certain)
    assert gaussian_epsilon(1e-5, plan.multiplier * np.sqrt(left)) <= 1.0
    # Spread over all of them, it was not.
    assert gaussian_epsilon(1e-5, plan.multiplier * np.sqrt((certain - 1) / certain)) > 1.05


def test_a_study_has_at_least_one_colluding_site():
    assert noisy().privacy.n_colluding == 1
    with refused(ParameterError, "privacy.n_colluding", 1):
        study_from_json(noisy(n_colluding=2).to_json().replace('"n_colluding":2', '"n_colluding":0'))
    more = noisy(n_colluding=2)
    assert study_from_json(more.to_json()) == more
    assert "n_colluding" not in noisy().to_json()
