"""Each learner at both places: what the server learns from the sum of one site is what the site learns from its part."""

from dataclasses import FrozenInstanceError, fields, is_dataclass
from inspect import signature

import numpy as np
import pytest

import feddbn
from feddbn.core.ancestral.search import MarkLearner
from feddbn.core.changes import CutLearner
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.orders.learn import OrderLearner
from feddbn.core.penalised.pooled import PenalisedLearner
from feddbn.core.statistics.moments import Moments
from feddbn.federation.programs.changing import block_moments_program
from feddbn.federation.protocol.task import run_program
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.treatment import moments_program
from support.sites import federation_of

D, BLOCK = 4, 64
LIMITS = EdgeConstraints.none(D, 1)


def rows_of(seed):
    data = feddbn.simulate(d=D, n_lags=1, n_sites=1, n_samples=400, mean_degree=2, random_state=seed)
    return next(iter(data.sites.values()))[0].to_numpy().copy()


def lagged(rows, n_lags):
    n = len(rows) - n_lags
    return np.hstack([rows[n_lags - lag : n_lags - lag + n] for lag in range(n_lags + 1)])


def summed(rows, n_lags):
    federation = federation_of([[rows]])
    return run_program(moments_program(federation.variables, n_lags), federation)


def summed_blocks(rows):
    federation = federation_of([[rows]])
    n_blocks = -(-len(rows) // BLOCK)
    question = GramQuestion(n_lags=1, variables=federation.variables, block_rows=BLOCK, n_blocks=n_blocks)
    return run_program(block_moments_program(question), federation)


def part(rows, n_lags):
    return Moments.of_rows(lagged(rows, n_lags))


def part_blocks(rows):
    z, block = lagged(rows, 1), np.arange(1, len(rows)) // BLOCK
    return tuple(Moments.of_rows(z[block == k]) for k in range(block[-1] + 1))


def numbers(found):
    """All arrays and numbers of what a learner found."""
    if is_dataclass(found):
        return [n for f in fields(found) for n in numbers(getattr(found, f.name))]
    if isinstance(found, (tuple, list)):
        return [n for one in found for n in numbers(one)]
    if isinstance(found, (bool, int, float, str, np.ndarray)):
        return [np.asarray(found)]
    return []


def of_order(found):
    return numbers([found.support, found.order, found.orientation, found.score, found.network.support])


def of_penalised(found):
    run = found.run
    return numbers([run.C_raw, run.graph(), run.target_loss, found.units, found.scale, run.certificate])


def of_cuts(found):
    assert found.cuts
    return numbers([found.cuts, found.order, found.score])


PLACES = {
    "order": (OrderLearner(), lambda x: summed(x, 1), lambda x: part(x, 1), of_order),
    "penalised": (PenalisedLearner(), lambda x: summed(x, 1), lambda x: part(x, 1), of_penalised),
    "marks": (MarkLearner(), lambda x: summed(x, 2), lambda x: part(x, 2), numbers),
    "cuts": (CutLearner(shortest=100.0), summed_blocks, part_blocks, of_cuts),
}


@pytest.mark.parametrize("name", PLACES)
def test_all_have_the_signature_of_a_learner(name):
    learner = PLACES[name][0]
    assert list(signature(learner.learn).parameters) == ["gram", "limits", "rng"]
    with pytest.raises(FrozenInstanceError):
        learner.lambda_w = 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", PLACES)
def test_the_sum_of_one_site_is_its_part(name):
    learner, at_server, at_site, read = PLACES[name]
    for seed in range(3):
        rows = rows_of(seed)
        if name == "cuts":
            rows[len(rows) // 2 :] = rows[len(rows) // 2 :] @ np.diag([1.0, 3.0, 1.0, 1.0])
        server, site = (
            read(learner.learn(gram(rows), LIMITS, np.random.default_rng(0))) for gram in (at_server, at_site)
        )
        assert len(server) > 2
        for ours, theirs in zip(server, site, strict=True):
            if ours.dtype.kind == "f":
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
            else:
                assert np.array_equal(ours, theirs)


@pytest.mark.slow
def test_a_lone_site_is_its_own_federation():
    """The penalised problem has one way: Dynotears and FDBNL on one site's rows, and the site itself."""
    data = feddbn.simulate(d=D, n_sites=3, n_samples=600, random_state=1)
    alone = feddbn.LocalOnly().fit(data.sites).dbns_
    for name, rows in data.sites.items():
        for model in (feddbn.Dynotears(), feddbn.FDBNL()):
            found = model.fit({name: rows}).dbn_
            for ours, theirs in ((found.W, alone[name].W), (found.A, alone[name].A)):
                assert np.array_equal(ours != 0, theirs != 0)
                # A sum of products travels with another rounding than the site's own moments.
                np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
