from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from feddbn import AS_THEY_ARE, DBN, simulate
from feddbn.analysis.comparison import Compared, _log_likelihood, compare, default_methods
from feddbn.data import read_sites
from feddbn.federation.programs.held_out import Judge
from feddbn.federation.protocol.rows import Treatment
from feddbn.federation.sums.statistics import make_fold
from feddbn.method_table import get_method, make_estimator
from feddbn.methods.base import simulated


def held_out_by_hand(networks, tables, share):
    """Mean log-likelihood of the last rows of every site, at their own noise variances, from the rows themselves."""
    parts, log_det = [], 0.0
    for name, rows in tables.items():
        dbn = networks[name] if isinstance(networks, dict) else networks
        n_test = round(share * len(rows))
        parts.append(dbn.residuals(rows[len(rows) - n_test - dbn.n_lags :]))
        log_det += n_test * np.linalg.slogdet(np.eye(dbn.d) - dbn.W)[1]
    residuals = np.concatenate(parts)
    variances = (residuals**2).mean(axis=0)
    return log_det / len(residuals) - 0.5 * np.sum(np.log(2 * np.pi * variances) + 1)


@pytest.mark.parametrize("name", ["fdbnl", "oneshot", "average", "pfdbnl", "local"])
def test_the_score_is_the_likelihood_of_rows_that_were_not_learned_from(name):
    federation = simulate(d=3, n_sites=3, n_samples=300, random_state=0)
    tables = {site: frames[0].to_numpy() for site, frames in federation.sites.items()}
    given = {"prepare": dict(AS_THEY_ARE)}
    (line,) = compare(read_sites(federation.sites), [get_method(name)], given, held_out=0.2)
    assert line.held_out == pytest.approx(held_out_by_hand(line.networks, tables, 0.2), rel=1e-9)
    early = {site: rows[: len(rows) - round(0.2 * len(rows))] for site, rows in tables.items()}
    alone = make_estimator(name, line.method.own(given)).fit(early)
    for found, expected in zip(
        line.all_networks, Compared(line.method, alone, 0, None, None).all_networks, strict=True
    ):
        np.testing.assert_allclose(found.W, expected.W, atol=1e-9)
        np.testing.assert_allclose(found.A, expected.A, atol=1e-9)


def test_cycles_are_charged_for():
    rows = np.random.default_rng(0).normal(size=(400, 2))
    cycle = DBN(np.array([[0, 0.9], [0.9, 0]]), np.zeros((0, 2, 2)))
    empty = DBN(np.zeros((2, 2)), np.zeros((0, 2, 2)))
    scores = []
    for dbn in (cycle, empty):
        line = Compared(get_method("average"), SimpleNamespace(dbn_=dbn), 0.0, None, None)
        federation = simulated({"s": rows})
        judge = Judge(make_fold(0, 1, 0.3), 0, federation.variables, Treatment())
        scores.append(_log_likelihood(line, judge, federation, None))
        assert scores[-1] == pytest.approx(held_out_by_hand(dbn, {"s": rows}, 0.3), rel=1e-12)
    assert scores[0] < scores[1]


@pytest.mark.parametrize("corruption", ["trend", "gains", {"missing": 0.1}])
def test_a_corruption_that_is_dealt_with_costs_no_prediction(corruption):
    methods, given = [get_method("fdbnl")], {"rounds.tol": 1e-3}
    (clean,), (corrupt,) = (
        compare(
            read_sites(
                simulate(d=4, n_sites=4, n_samples=1200, random_state=3, corruptions=what).sites,
                missing="keep",
            ),
            methods,
            given,
            held_out=0.25,
        )
        for what in (None, corruption)
    )
    # Gains are common scales, so the level of the score is another; nothing else is far off.
    near = 1.0 if corruption == "gains" else 0.2
    assert corrupt.held_out == pytest.approx(clean.held_out, abs=near)


def test_each_method_takes_the_parameters_it_has():
    federation = simulate(d=3, n_sites=2, n_samples=80, random_state=0)
    methods = [get_method("fdbnl"), get_method("average")]
    started = []
    sites = read_sites(federation.sites)
    lines = list(compare(sites, methods, {"rounds.tol": 1e-3}, federation.truth, 0.2, start=started.append))
    assert started == ["FDBNL", "Ave"]
    for line in lines:
        assert line.estimator.rounds.tol == 1e-3
        assert line.scores is not None
        assert line.held_out is not None
        assert line.seconds > 0


def test_defaults_leave_out_what_cannot_be_compared():
    assert "local" not in {m.name for m in default_methods(personal=False)}
    assert "local" in {m.name for m in default_methods(personal=True)}
