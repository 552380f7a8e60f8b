from dataclasses import replace

import numpy as np
import pytest

from feddbn.core.designs.design import Nuisance
from feddbn.core.statistics.residual_checks import CurvatureSums, ResidualSums, residual_sums, sums_length
from feddbn.errors import ProtocolError
from feddbn.federation.programs.residual_checks import (
    ResidualsQuestion,
    own_nuisances,
    residual_checks_program,
)
from feddbn.federation.protocol.site import Site, site_task
from feddbn.federation.protocol.task import Task, run_program
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.secure import secure_federation
from support.saying import refused
from support.sites import memory_site

NAMES = ("x0", "x1", "x2")


def sites(tables):
    """One site per list of arrays."""
    return {f"s{k}": Site(f"s{k}", memory_site(*arrays)) for k, arrays in enumerate(tables)}


def tables(n_sites=3):
    return [
        [np.random.default_rng(10 * k + i).standard_normal((25 + k, 3)) for i in range(2)]
        for k in range(n_sites)
    ]


def question(n_lags=1, seed=0, **more):
    rng = np.random.default_rng(seed)
    q = (n_lags + 1) * 3
    return ResidualsQuestion(
        n_lags=n_lags,
        variables=NAMES,
        coefficients=rng.normal(size=(q, 3)) / 3,
        offset=rng.normal(size=3),
        **more,
    )


def by_hand(arrays, asked):
    total = 0.0
    for x in arrays:
        z = np.hstack([x[1:], x[:-1]])
        u = z @ asked.coefficients - (0.0 if asked.center == "recording" else asked.offset)
        u = u - u.mean(axis=0) if asked.center == "recording" else u
        total = total + residual_sums([(1, u, None)], (1, len(x) - 1), 3, 2).to_vector()
    return total


@pytest.mark.parametrize("center", ["none", "recording"])
def test_a_site_sends_the_sums_of_its_residuals(center):
    asked, data = question(center=center), tables()
    found = sites(data)
    for k, site in enumerate(found.values()):
        _, vector = site_task("residuals.checks").answer(site.here, asked)
        assert vector[0] == 0.0
        np.testing.assert_allclose(vector[1:], by_hand(data[k], asked), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("center", ["none", "recording"])
def test_places_count_the_rows_of_each_recording(center):
    units = np.array([[0.5, 0.0, -0.5], [1.0, 2.0, 0.5]])
    asked, data = question(center=center, units=units), tables(1)
    # A cell that is empty breaks a recording in two, and rows are counted on.
    data[0][0][10, 1] = np.nan
    (site,) = sites(data).values()
    _, vector = site_task("residuals.checks").answer(site.here, asked)
    expected = np.zeros((6, 3))
    for x in data[0]:
        z = np.hstack([x[1:], x[:-1]])
        used = ~np.isnan(z).any(axis=1)
        u = z[used] @ asked.coefficients - asked.offset
        level = x[~np.isnan(x).any(axis=1)].mean(axis=0) if center == "recording" else units[0]
        u = u - u.mean(axis=0) if center == "recording" else u
        columns = np.clip((z[used] - np.tile(level, 2)) / np.tile(units[1], 2), -3, 3)
        n = used.sum()
        places = np.linspace(-1, 1, n) * np.sqrt(3 * (n - 1) / (n + 1))
        expected += (columns * places[:, None]).T @ u
    found = CurvatureSums.from_vector(vector[1 + sums_length(3, 2) :], 6, 3).products[2]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("make", [InProcessFederation, secure_federation])
def test_sites_together_give_the_sum_of_sites_alone(make):
    asked, data = question(), tables()
    total = make(sites(data)).sum(Task(asked)).value
    alone = sum(site_task("residuals.checks").answer(site.here, asked)[1] for site in sites(data).values())
    np.testing.assert_allclose(total, alone, rtol=1e-9, atol=1e-9)


def test_a_site_without_a_row_for_one_lag_more_is_counted():
    data = [[np.ones((2, 3))], *tables()]
    _, may_add, _ = run_program(
        residual_checks_program(NAMES, 1, np.eye(6, 3), np.zeros(3)), InProcessFederation(sites(data))
    )
    assert not may_add
    sums, may_add, _ = run_program(
        residual_checks_program(NAMES, 1, np.eye(6, 3), np.zeros(3)), InProcessFederation(sites(tables()))
    )
    assert may_add
    assert sums.counts[0] == 2 * (24 + 25 + 26)


def test_networks_without_lags_are_asked_with_one_that_does_nothing():
    data = tables()
    sums, _, _ = run_program(
        residual_checks_program(NAMES, 0, np.eye(3), np.zeros(3)), InProcessFederation(sites(data))
    )
    assert isinstance(sums, ResidualSums)
    rows = np.concatenate([x[1:] for arrays in data for x in arrays])
    np.testing.assert_allclose(sums.products[0], rows.T @ rows, rtol=1e-9)


def test_trends_and_cycles_of_a_recording_are_taken_off():
    rng = np.random.default_rng(0)
    time = np.arange(60.0)
    u = rng.standard_normal((60, 3))
    columns = np.column_stack(
        [np.ones(60), time, np.sin(2 * np.pi * time / 12), np.cos(2 * np.pi * time / 12)]
    )
    expected = u - columns @ np.linalg.lstsq(columns, u, rcond=None)[0]
    asked = question()
    design = replace(asked.design, nuisance=Nuisance("recording", 1, (12.0,)))
    pieces = [(0, u[:25] + 3.0, None), (25, u[25:] + 3.0, None)]
    found = np.concatenate([part for _, part, _ in own_nuisances(design, lambda: iter(pieces), ((0, 60),))])
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_question_out_of_bounds_is_refused():
    with pytest.raises(ProtocolError, match="'n_lags' is 0"):
        ResidualsQuestion(n_lags=0, variables=NAMES, coefficients=np.zeros((3, 3)), offset=np.zeros(3))
    with refused(ProtocolError, 3, code="bad-question"):
        replace(question(), coefficients=np.zeros((6, 4)))
    with pytest.raises(ProtocolError, match="finite"):
        replace(question(), offset=np.full(3, np.nan))
    site = sites(tables(1))["s0"]
    other = replace(question(), variables=("a", "b", "c"))
    with refused(ProtocolError, code="other-variables"):
        site_task("residuals.checks").answer(site.here, other)


def own_question(**more):
    allowed = np.concatenate([1.0 - np.eye(3), np.ones((3, 3))])
    return ResidualsQuestion(n_lags=1, variables=NAMES, allowed=allowed, **more)


def with_network(site, C):
    return replace(site.here, state={**site.here.state, "personal.final": C})


def test_a_site_standardises_the_residuals_of_its_own_network_itself():
    x = np.random.default_rng(5).standard_normal((400, 3))
    x[1:, 1] += 0.8 * x[1:, 0]
    x[1:, 2] += 0.5 * x[:-1, 1]
    # The network lacks the lagged effect, as a threshold might have it.
    C = np.zeros((6, 3))
    C[0, 1] = 0.3
    site = sites([[x]])["s0"]
    _, vector = site_task("residuals.checks").answer(with_network(site, C), own_question())
    z = np.hstack([x[1:], x[:-1]])
    parents = {0: [], 1: [0], 2: [4]}
    u = np.empty((399, 3))
    for j, S in parents.items():
        design = np.column_stack([np.ones(399), z[:, S]])
        u[:, j] = z[:, j] - design @ np.linalg.lstsq(design, z[:, j], rcond=None)[0]
    u /= np.sqrt((u**2).mean(axis=0))
    assert vector[0] == 0.0
    np.testing.assert_allclose(
        vector[1:], residual_sums([(1, u, None)], (1, 399), 3, 2).to_vector(), atol=1e-8
    )


def test_weights_and_units_of_a_site_do_not_leave_it():
    x = np.random.default_rng(6).standard_normal((300, 3))
    x[1:] += 0.5 * x[:-1]
    vectors = []
    for scale, weight in ((1.0, 0.5), (7.0, 0.3)):
        site = sites([[scale * x + 3.0]])["s0"]
        here = with_network(site, np.concatenate([np.zeros((3, 3)), weight * np.eye(3)]))
        vectors.append(site_task("residuals.checks").answer(here, own_question())[1])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-7)


@pytest.mark.parametrize(("n", "C"), [(18, np.zeros((6, 3))), (200, None)])
def test_a_site_with_few_rows_or_no_network_sends_zeros_and_says_so(n, C):
    site = sites([[np.random.default_rng(0).standard_normal((n, 3))]])["s0"]
    here = site.here if C is None else with_network(site, C)
    _, vector = site_task("residuals.checks").answer(here, own_question())
    assert vector[0] == 1.0
    assert not vector[1:].any()


def test_of_inputs_there_are_no_residuals_of_a_sites_own():
    site = sites([[np.random.default_rng(0).standard_normal((200, 3))]])["s0"]
    here = with_network(site, np.zeros((6, 3)))
    _, vector = site_task("residuals.checks").answer(here, own_question(silent=(1,)))
    sums = ResidualSums.from_vector(vector[1:], 3, 2)
    np.testing.assert_allclose(np.diag(sums.products[0]), [199, 0, 199], rtol=1e-9)


def test_a_question_names_one_network_or_asks_for_the_sites_own():
    with refused(ProtocolError, code="bad-question"):
        replace(question(), allowed=np.ones((6, 3)))
    with refused(ProtocolError, code="bad-question"):
        ResidualsQuestion(n_lags=1, variables=NAMES)
    with pytest.raises(ProtocolError, match="go together"):
        replace(question(), offset=None)
    with pytest.raises(ProtocolError, match="there are 3 variables"):
        own_question(silent=(3,))
    site = sites(tables(1))["s0"]
    with refused(ProtocolError, code="other-variables"):
        site_task("residuals.checks").answer(with_network(site, np.zeros((9, 3))), own_question())
