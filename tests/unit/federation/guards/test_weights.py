"""Weights of rows: how they are drawn, that every sum has them, and what a weighted row is worth."""

import numpy as np
import pytest

import feddbn
from feddbn.core.designs import weights
from feddbn.core.designs.weights import NEAREST, SPREAD, WORTH, row_weights
from feddbn.core.statistics.moments import Moments
from feddbn.data import read_sites
from feddbn.federation.guards.weights import RowWeights
from feddbn.federation.protocol.site import Site, site_tasks
from feddbn.methods.base import in_process

SEED = b"s" * 32


def test_weights_keep_off_their_mean_and_vary_by_three_tenths():
    drawn = row_weights(SEED, 0, 200_000) / WORTH
    assert drawn.mean() == pytest.approx(1.0, abs=0.003)
    assert drawn.std() == pytest.approx(SPREAD, abs=0.003)
    assert np.abs(drawn - 1).min() >= NEAREST
    assert drawn.min() > 0.37
    # They add up to what they are worth (Kish).
    assert drawn.sum() ** 2 / (drawn**2).sum() == pytest.approx(WORTH * len(drawn), rel=0.002)


def test_a_row_has_its_weight_wherever_blocks_begin():
    whole = row_weights(SEED, 0, 1000)
    for first, n in ((0, 1), (255, 2), (300, 500), (999, 1)):
        np.testing.assert_array_equal(row_weights(SEED, first, n), whole[first : first + n])
    other = row_weights(b"t" * 32, 0, 1000)
    assert abs(np.corrcoef(whole, other)[0, 1]) < 0.1


def test_weighted_rows_are_worth_what_their_weights_add_up_to():
    """Under no effect t-values of a regression have the variance of Student's t, and would have 1.09 times it by counts."""
    rng, squares = np.random.default_rng(0), []
    for k in range(4000):
        found = Moments.of_rows(rng.normal(size=(200, 2)), row_weights(k.to_bytes(32), 0, 200))
        (xx, xy), (_, yy) = found.scatter
        squares.append(xy**2 / xx / ((yy - xy**2 / xx) / (found.n - 2)))
    assert np.mean(squares) == pytest.approx(1.0, abs=0.05)


# Every sum over rows is linear in their weights, but for what follows in brackets: numbers that are no such sum.
LINEAR = {
    "gram.blocks": 0,
    "gram.functions": 0,
    "gram.parts": 0,
    "gram.pairs": 3,  # parameters of nuisances
    "newton": 0,
    "residuals.blocks": 11,  # recordings, and logs of their variances
    "residuals.functions": 11,
    "residuals.shapes": 0,
}
# Those that take means off by weights, profiles and spectra, steps on a site's own sums, and what is no sum over rows.
OTHERS = {
    *("agree", "counts.blocks", "counts.levels", "counts.norms", "counts.variables", "gram.diagonal"),
    *("gram.kinds", "gram.rows", "local.edges", "local.fit", "loss.alone", "loss.rows"),
    *("loss.sums", "residuals.checks", "step.fdbnl", "step.finish", "step.personal", "survey.first"),
}
LEVELS = {"ordinal": ["0", "1", "2"]}


def rows_of_kinds(rng, n=400):
    x = rng.normal(size=(n, 4))
    x[:, 1] = x[:, 0] + rng.normal(size=n) > 0
    x[:, 2] = rng.poisson(np.exp(0.3 * x[:, 0]))
    x[:, 3] = np.digitize(x[:, 3] + 0.5 * x[:, 0], [-0.5, 0.5])
    return x


def studies():
    """Estimators, and sites that they have something to ask of."""
    rng = np.random.default_rng(0)
    drawn = feddbn.simulate(d=4, n_sites=3, n_samples=2400, random_state=1)
    long = read_sites(drawn.sites)
    short = read_sites(feddbn.simulate(d=4, n_sites=3, n_samples=300, random_state=1).sites)
    gaps = {
        f"s{k}": np.where(rng.random((300, 3)) < 0.1, np.nan, rng.normal(size=(300, 3))) for k in range(3)
    }
    kinds = read_sites({f"s{k}": rows_of_kinds(rng) for k in range(3)})
    return [
        (feddbn.OneShotDBN, {}, long),
        (feddbn.OneShotDBN, {"features": "spline"}, short),
        (feddbn.OneShotDBN, {"noise_variance": "free", "use_nongaussian": True}, short),
        (feddbn.OneShotDBN, {"prepare": {"missing": "fill"}}, read_sites(gaps, missing="keep")),
        (feddbn.ChangingDBN, {}, short),
        (feddbn.MixedDBN, {"kinds": {"x1": "binary", "x2": "count", "x3": LEVELS}}, kinds),
        (feddbn.MixedDBN, {"kinds": {"x1": "binary", "x3": {"categorical": 3}}}, kinds),
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_every_sum_over_rows_is_linear_in_their_weights(monkeypatch):
    """Weights u and v and u + v: nothing is left out, counted twice or taken from another row."""
    drawn = np.random.default_rng(1).uniform(0.5, 1.5, (2, 5000))
    mixed = {"share": (1.0, 1.0)}

    def given(seed, first, n):
        return np.array(mixed["share"]) @ drawn[:, first : first + n]

    monkeypatch.setattr(weights, "row_weights", given)
    seen = {}
    for make, settings, sites in studies():
        federation, tasks = in_process(sites), []
        answer = federation.sum
        federation.sum = lambda task, answer=answer, tasks=tasks: tasks.append(task) or answer(task)
        make(**settings, federation=federation).fit(None)
        name, data = next(iter(sites.items()))
        found = []
        for share in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
            mixed["share"] = share
            site = Site(name, data, (RowWeights(b"key"),))
            found.append([site.answer(task) for task in tasks])
        for task, one, other, both in zip(tasks, *found, strict=True):
            size = np.maximum(np.abs(both), 1e-6 * np.abs(both).max())
            n_apart = int((np.abs(one + other - both) > 1e-6 * size + 1e-9).sum())
            seen[task.name] = max(seen.get(task.name, 0), n_apart)
            assert np.abs(one - other).max() > 0 or task.name in OTHERS
    assert {name: seen.get(name) for name in LINEAR} == LINEAR
    # A new question is one of the two.
    assert not {name for name in seen if name not in OTHERS} - {*LINEAR}
    assert {*LINEAR, *OTHERS} <= {*site_tasks()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::feddbn.errors.UnitsWarning")
@pytest.mark.parametrize(
    "make", [feddbn.PFDBNL, lambda **k: feddbn.OneShotDBN(features="spline", **k), feddbn.OneShotDBN]
)
def test_fits_hardly_change(make):
    data = feddbn.simulate(d=4, n_sites=3, n_samples=900, random_state=1)
    exact = make().fit(data.sites)
    weighted = make(federation=feddbn.simulated(data.sites, protection="weights")).fit(None)
    assert 0 < np.abs(weighted.W_ - exact.W_).max() < 0.05
    assert ((weighted.W_ != 0) == (exact.W_ != 0)).all()
    assert {one.code for one in weighted.findings_} == {one.code for one in exact.findings_}
