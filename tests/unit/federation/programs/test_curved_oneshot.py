"""When curves are not looked for."""

import numpy as np
import pytest

from feddbn import OneShotDBN
from feddbn.errors import ResultWarning
from feddbn.federation.programs import curved
from support.saying import only


def bent(rng, n=400):
    x = np.zeros((n, 3))
    for t in range(1, n):
        x[t] = 0.3 * x[t - 1] + rng.normal(size=3)
        x[t, 1] += np.abs(x[t - 1, 0])
    return x


def test_of_too_many_variables_curves_are_reported_and_not_asked_for(monkeypatch):
    rng = np.random.default_rng(0)
    sites = {f"s{k}": bent(rng) for k in range(4)}
    assert OneShotDBN(n_lags=1).fit(sites).features_ == "spline"
    monkeypatch.setattr(curved, "MANY_NODES", 2)
    with pytest.warns(ResultWarning):
        model = OneShotDBN(n_lags=1).fit(sites)
    assert "curvature" in only(model.findings_, "residuals").values["violations"]
    assert model.features_ == "linear"
    assert "curvature" in model.residuals_.violations
