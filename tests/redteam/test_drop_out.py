"""An honest server and an ordinary run in which one site is lost: the sums with and without it must not both exist."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("cryptography")
from feddbn import FDBNL
from feddbn.data.read import read_sites
from feddbn.errors import AggregationError
from feddbn.federation.protocol.site import Site
from feddbn.runtime.simulated.secure import secure_federation
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")


def test_rounds_without_a_site_that_was_in_earlier_ones_are_not_opened():
    rng = np.random.default_rng(0)
    data = read_sites(
        {f"s{i}": pd.DataFrame(rng.normal(size=(100, 3)) * (1 + i), columns=list("abc")) for i in range(5)}
    )
    rounds = []

    def fault(site, phase):
        return "request lost" if site == "s4" and phase == "masked" and len(rounds) >= 4 else None

    federation = secure_federation({name: Site(name, data[name]) for name in data}, fault=fault)

    class Watched:
        sites, variables, answered_tasks = federation.sites, federation.variables, None

        def state_of(self, site):
            return None

        def sum(self, task):
            answer = federation.sum(task)
            rounds.append(answer.contributors)
            return answer

    with refused(AggregationError, 3, code="shows-few-sites"):
        FDBNL(n_lags=1, lambda_w=0.05, lambda_a=0.05, schedule="rounds", federation=Watched()).fit(None)
    assert set(rounds) == {tuple(data)}
    assert len(rounds) == 4
