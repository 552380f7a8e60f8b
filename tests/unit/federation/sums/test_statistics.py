import numpy as np
import pytest

import feddbn
from feddbn.core.statistics.diagnostics import summary_of_moments
from feddbn.core.statistics.moments import Moments
from feddbn.data import read_sites
from feddbn.errors import DataError, ParameterError, ProtocolError
from feddbn.federation.protocol.site import Guard, Here, Site, site_task
from feddbn.federation.protocol.task import Sum, Task, run_program
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.statistics import prepare, summary_program
from feddbn.federation.sums.treatment import moments_program
from feddbn.runtime.simulated.in_process import InProcessFederation
from support.saying import refused
from support.sites import federation_of

MOMENTS = GramQuestion(n_lags=2, variables=("x0", "x1", "x2", "x3"))


def simulated(n_sites=4, **options):
    return feddbn.simulate(d=4, n_lags=2, n_sites=n_sites, n_samples=200, random_state=0, **options).sites


@pytest.mark.parametrize("offset", [0.0, 1e7])
def test_sums_over_sites_equal_pooled_statistics(offset):
    sites = {name: [r + offset for r in recordings] for name, recordings in simulated().items()}
    federation = federation_of(read_sites(sites))
    total = run_program(moments_program(MOMENTS.variables, 2), federation)
    pooled = Moments.empty(12)
    for recordings in sites.values():
        for r in recordings:
            x = r.to_numpy()
            pooled = pooled.merge(Moments.of_rows(np.hstack([x[2:], x[1:-1], x[:-2]])))
    assert total.n == pooled.n == 200
    np.testing.assert_allclose(total.mean, pooled.mean, rtol=1e-12)
    tolerance = 1e-12 if offset == 0 else 1e-7
    np.testing.assert_allclose(
        total.scatter, pooled.scatter, rtol=tolerance, atol=tolerance * np.abs(pooled.scatter).max()
    )


def test_summary_is_the_diagonal_of_the_moments():
    federation = federation_of(read_sites(simulated()))
    summary = run_program(summary_program(MOMENTS.variables, 2), federation)
    whole = summary_of_moments(run_program(moments_program(MOMENTS.variables, 2), federation), 4)
    np.testing.assert_allclose(summary.mean, whole.mean, atol=1e-12)
    np.testing.assert_allclose(summary.variance, whole.variance, rtol=1e-10)
    np.testing.assert_allclose(summary.autocorrelation, whole.autocorrelation, atol=1e-10)


def test_centring_is_chosen_from_the_means():
    sites = simulated()
    shifted = {name: [r + 5.0 for r in recordings] for name, recordings in sites.items()}
    for data, is_centred in ((sites, False), (shifted, True)):
        summary = run_program(summary_program(MOMENTS.variables, 2), federation_of(read_sites(data)))
        assert prepare(summary, 4, "auto", "none").center.any() == is_centred
        # One mean for all by name is taken off whatever it is.
        np.testing.assert_array_equal(prepare(summary, 4, "none", "none").center, summary.mean)


def test_units_add_up_to_the_site_vector():
    data = read_sites(simulated(n_sites=1, n_recordings=5))["site-0"]
    here, program = Here("site-0", data, {}), site_task("gram.rows")
    _, vector = program.answer(here, MOMENTS)
    assert program.units is not None
    units = list(program.units(here, MOMENTS, "recording"))
    assert len(units) == 5
    np.testing.assert_allclose(sum(units), vector, rtol=1e-10)
    with pytest.raises(ParameterError, match="unit='eon'"):
        list(program.units(here, MOMENTS, "eon"))


def test_a_site_reads_its_rows_once():
    class Counting:
        def __init__(self, inner):
            self.inner, self.variables, self.reads = inner, inner.variables, 0

        def recordings(self):
            self.reads += 1
            return self.inner.recordings()

    data = Counting(read_sites(simulated(n_sites=1))["site-0"])
    federation = InProcessFederation({"a": Site("a", data)})
    for _ in range(3):
        run_program(moments_program(data.variables, 2), federation)
    assert data.reads == 1


def test_other_variables_are_refused_before_anything_is_computed():
    federation = federation_of(read_sites(simulated()))
    with refused(ProtocolError, code="other-variables"):
        run_program(moments_program(("a", "b", "c", "d"), 2), federation)


def test_a_site_without_usable_rows_says_so():
    federation = federation_of([[np.random.default_rng(0).normal(size=(3, 2))]])
    with refused(DataError, "n_lags=4"):
        run_program(moments_program(("x0", "x1"), 4), federation)


def test_the_server_program_sees_sums_only():
    federation = federation_of(read_sites(simulated()))
    seen = []
    run_program(moments_program(MOMENTS.variables, 2), federation, lambda task, total: seen.append(total))
    assert all(type(total) is Sum for total in seen)
    assert seen[0].contributors == ("site-0", "site-1", "site-2", "site-3")


def test_a_failing_site_program_changes_no_state():
    class Refuse(Guard):
        def after(self, task, vector, channel):
            raise ProtocolError("no")

    data = read_sites(simulated(n_sites=1))["site-0"]
    site = Site("a", data, guards=[Refuse()])
    with pytest.raises(ProtocolError, match="no"):
        site.answer(Task(MOMENTS))
    assert site.state == {}


def test_sums_that_are_not_finite_stop_the_run():
    class Broken:
        sites = ("a",)

        def sum(self, task):
            return Sum(np.array([np.nan]), ("a",))

    with refused(ProtocolError, code="not-finite"):
        run_program(moments_program(("x0",), 0), Broken())
