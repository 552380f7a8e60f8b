"""What a study can find: which rows count, what a pilot says, and what is refused."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

import feddbn
from feddbn.core.designs.parts import least_rows
from feddbn.core.statistics.parts import UNKNOWN_DISPERSION
from feddbn.errors import ParameterError
from feddbn.results.result import Result

pytestmark = pytest.mark.promise


def test_everything_that_costs_rows_makes_the_smallest_effect_larger():
    usual = {"rows": 1500, "sites": 4, "recordings": 20}
    least = feddbn.power(**usual).smallest_effect()
    assert feddbn.power(6000, sites=4, recordings=20).smallest_effect() < least
    others = [{"recordings": 300}, {"n_lags": 4}, {"missing": 0.3}, {"masked": True}, {"threshold": 0.4}]
    for other in others:
        assert feddbn.power(**{**usual, **other}).smallest_effect() > least
    plan = feddbn.power(**usual)
    # Nobody knows how much parts of few rows differ.
    assert (plan.n_effective, plan.least) == ((1500 - 2 * 20) / UNKNOWN_DISPERSION, 4 * least_rows(20))
    many = feddbn.power(6000, sites=4, recordings=20)
    assert many.n_effective == 6000 - 2 * 20
    assert many.rows_for(many.smallest_effect()) == pytest.approx(6000, rel=1e-3)
    assert plan.rows_for(least) == pytest.approx(1500, rel=1e-3)
    assert plan.to_dict((0.2,))["rows_for"] == {"0.2": round(plan.rows_for(0.2))}
    rule, n = feddbn.power(**usual, fdr=0.1).rule, plan.n_effective
    found = [replace(rule, edges=edges).smallest(n) for edges in (2, 5, 10)]
    assert found == sorted(found, reverse=True)
    assert replace(rule, fdr=0.2).smallest(n) < found[1]
    none = feddbn.power(60, sites=3, recordings=30)
    assert (none.smallest_effect(), none.to_dict()["smallest_effect"]) == (inf, None)


def test_a_pilot_gives_sizes_and_network():
    data = feddbn.simulate(4, 1, 2, 1000, mean_degree=1, noise_scale=[0.3, 1, 2, 5], random_state=700)
    pilot = Result.from_estimator(feddbn.OneShotDBN(check_residuals=False).fit(data.sites))
    plan, usual = (feddbn.power(800, sites=2, fdr=0.1, **one) for one in ({"pilot": pilot}, {"variables": 4}))
    assert plan.rule.tested == 16
    # Its edges are discoveries, too.
    assert len(plan.rule.others) > len(usual.rule.others)
    assert plan.smallest_effect() == pytest.approx(usual.smallest_effect(), rel=0.2)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"rows": 0}, "rows"),
        ({"sites": 3, "recordings": 2}, "recordings"),
        ({"missing": 1.0}, "missing"),
        ({"variables": 1}, "variables"),
        ({"criterion": "aic"}, "criterion"),
        ({"threshold": 0.1, "fdr": 0.1}, "threshold"),
        ({"fdr": 1.5}, "fdr"),
        ({"edges": 11}, "edges"),
        ({"n_lags": np.nan}, "n_lags"),
    ],
)
def test_bad_input_is_named(given, name):
    with pytest.raises(ParameterError, match=name):
        feddbn.power(**{"rows": 500, **given})
