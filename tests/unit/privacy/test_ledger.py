import math
from dataclasses import dataclass

import numpy as np
import pytest

from feddbn.errors import BudgetExceeded, ParameterError
from feddbn.privacy.audit import AuditChain
from feddbn.privacy.gaussian import SLACK, gaussian_epsilon, noise_multiplier
from feddbn.privacy.ledger import GaussianRelease, Ledger, Release, UnprotectedRelease
from support.saying import refused

pytestmark = pytest.mark.promise


def _ledger(z, n):
    return Ledger((GaussianRelease("round", z),) * n)


@pytest.mark.parametrize(("n", "z"), [(1, 3.73), (1, 0.65), (70, 20.0), (70, 5.0)])
def test_accounting_agrees_with_the_exact_formula_for_1_and_70_releases(n, z):
    exact = gaussian_epsilon(1e-5, z, n)
    tight = _ledger(z, n).epsilon(1e-5, "pld")
    loose = _ledger(z, n).epsilon(1e-5, "rdp")
    assert tight == pytest.approx(exact, rel=1e-3)
    assert tight >= exact * (1 - 1e-6)
    assert exact <= loose <= 1.15 * exact


def test_different_noise_composes_by_the_sum_of_squares():
    ledger = Ledger((GaussianRelease("a", 2.0), GaussianRelease("b", 5.0), GaussianRelease("b", 5.0)))
    equivalent = (1 / 4 + 2 / 25) ** -0.5
    assert ledger.epsilon(1e-5) == pytest.approx(gaussian_epsilon(1e-5, equivalent), rel=1e-3)


def test_epsilon_rises_with_releases_and_falls_with_noise():
    values = [_ledger(10.0, n).epsilon(1e-5) for n in (1, 2, 10, 40)]
    assert values == sorted(values)
    assert len(set(values)) == 4
    assert _ledger(20.0, 5).epsilon(1e-5) < _ledger(10.0, 5).epsilon(1e-5)


def test_empty_ledger_has_cost_nothing():
    assert Ledger().epsilon(1e-5) == 0.0


def test_unprotected_release_costs_infinitely_much():
    ledger = _ledger(5.0, 2).add(UnprotectedRelease("summary"))
    assert math.isinf(ledger.epsilon(1e-5, "pld"))
    assert math.isinf(ledger.epsilon(1e-5, "rdp"))


def test_unknown_release_costs_infinitely_much():
    @dataclass(frozen=True)
    class Laplace(Release):
        scale: float

    @dataclass(frozen=True)
    class Better(GaussianRelease):
        pass

    assert math.isinf(Ledger((Laplace("x", 1.0),)).epsilon(1e-5))
    assert math.isinf(Ledger((Better("x", 10.0),)).epsilon(1e-5))


def test_release_over_budget_is_refused_with_unit_and_numbers():
    z = noise_multiplier(1.0, 1e-5)
    ledger = Ledger()
    ledger.check(GaussianRelease("moments", z), 1e-5, 1.001, "recording")
    after = ledger.add(GaussianRelease("moments", z))
    with refused(BudgetExceeded, "moments", "1.4", "delta = 1e", code="over-budget"):
        after.check(GaussianRelease("moments", z), 1e-5, 1.001, "recording")
    assert len(after.releases) == 1
    with refused(BudgetExceeded, code="over-budget"):
        ledger.check(UnprotectedRelease("summary"), 1e-5, 100.0, "row")


def test_run_of_seventy_rounds_fits_its_budget_and_the_next_round_does_not():
    z = noise_multiplier(4.0, 1e-5, 70)
    ledger = _ledger(z, 69)
    ledger.check(GaussianRelease("round", z), 1e-5, 4.01, "recording")
    full = ledger.add(GaussianRelease("round", z))
    with pytest.raises(BudgetExceeded):
        full.check(GaussianRelease("round", z), 1e-5, 4.01, "recording")


def test_run_calibrated_to_its_budget_is_not_refused_for_rounding():
    # PLD rounds up: at this budget it says 4.0001 or so, and the exact composition says 4.
    multipliers = [noise_multiplier(4.0 - 2 * SLACK, 1e-5) / np.sqrt(share) for share in (0.1, 0.9)]
    ledger = Ledger()
    for z in multipliers:
        ledger.check(GaussianRelease("moments", z), 1e-5, 4.0, "recording")
        ledger = ledger.add(GaussianRelease("moments", z))
    assert ledger.epsilon(1e-5) > 4.0
    with refused(BudgetExceeded, "3.999", code="over-budget"):
        Ledger(ledger.releases[:1]).check(ledger.releases[1], 1e-5, 3.999, "row", "what the study promises")


def test_small_release_is_let_through_by_the_quick_bound():
    Ledger().check(GaussianRelease("moments", 50.0), 1e-5, 4.0, "recording")


def entry(task, noise_multiplier, unit="recording", event="sent"):
    return AuditChain().add(
        time="", site="a", event=event, task=task, asked_by="s", unit=unit, noise_multiplier=noise_multiplier
    )


def test_ledger_is_replayed_from_what_the_audit_log_holds():
    ledger = Ledger.replay(
        [entry("moments", 3.0), entry("moments", 1.0, event="refused"), entry("summary", None)]
    )
    assert ledger.releases == (GaussianRelease("moments", 3.0), UnprotectedRelease("summary"))
    assert Ledger.replay([entry("moments", 3.0, unit=None)]).releases == (UnprotectedRelease("moments"),)


def test_costs_are_added_for_one_unit_at_a_time():
    by_row = Ledger((GaussianRelease("moments", 5.0, "row"),))
    assert by_row.for_unit("row") == by_row
    assert math.isinf(by_row.for_unit("recording").epsilon(1e-5))
    by_recording = _ledger(5.0, 1)
    # A row that changes changes its recording's vector by up to twice the bound.
    assert by_recording.for_unit("row").epsilon(1e-5) == pytest.approx(
        gaussian_epsilon(1e-5, 2.5) + SLACK, rel=1e-3
    )
    mixed = Ledger((*by_row.releases, *by_recording.releases))
    assert math.isinf(mixed.epsilon(1e-5))
    together = (1 / 5.0**2 + 1 / 2.5**2) ** -0.5
    assert mixed.for_unit("row").epsilon(1e-5) == pytest.approx(gaussian_epsilon(1e-5, together), rel=1e-3)


def test_every_release_on_a_grid_costs_its_slack():
    many = _ledger(1e5, 1000)
    assert many._exact_epsilon(1e-5) >= 1000 * SLACK


def test_impossible_arguments_are_named():
    with refused(ParameterError, 0):
        GaussianRelease("x", 0.0)
    with refused(ParameterError, 0, 1):
        Ledger().epsilon(1.0)
    with refused(ParameterError, "pld", "rdp", "moments"):
        Ledger().epsilon(1e-5, "moments")
