"""PFDBNL's rounds computed together give what the sites' own programs give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from feddbn import PFDBNL, simulate
from feddbn.core.solvers import ordered_step
from feddbn.data import read_sites
from feddbn.federation.protocol.site import Guard, Site
from feddbn.runtime.simulated import stacked_personal
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.stacked import StackedFederation

PAPER = {
    "schedule": "paper",
    "alpha": "shared",
    "average": "participants",
    "weighting": "sites",
    "refit": False,
}


def fitted(
    kind: type[InProcessFederation], data: Any, guards: tuple[Guard, ...] = (), **settings: Any
) -> PFDBNL:
    sites = read_sites(data)
    federation = kind({name: Site(name, site, guards) for name, site in sites.items()})
    return PFDBNL(federation=federation, **settings).fit(None)


@pytest.mark.parametrize(
    "settings",
    [
        {"mu": 0.5},
        {"mu": np.inf},
        {"mu": 0.5, "participation": 0.5},
        {"mu": 1.0, "n_clusters": 2},
        {"mu": 0.3, "acyclicity": "logdet"},
        {"mu": 0.3, "lambda_w": 0.0, "lambda_a": 0.0},
        {"mu": 0.3, "lambda_w": 100.0, "lambda_a": 100.0},
        {
            "mu": 0.3,
            "forbidden_edges": [("x0", "x1", 0), ("x2", "x1", 1)],
            "required_edges": [("x3", "x0", 0)],
        },
        {"mu": "auto"},
        {**PAPER, "mu": 0.1, "max_rounds": 30},
        {**PAPER, "mu": 0.1, "max_rounds": 30, "participation": 0.5, "alpha": "site"},
    ],
    ids=str,
)
@pytest.mark.parametrize("w_range", [(0.3, 0.5), (0.5, 2.0)], ids=["weak", "strong"])
def test_equals_the_sites_own_programs(settings: dict[str, Any], w_range: tuple[float, float]) -> None:
    fed = simulate(
        d=5, n_lags=1, n_sites=7, n_samples=280, heterogeneity=0.3, w_range=w_range, random_state=5
    )
    alone = fitted(InProcessFederation, fed.sites, **settings)
    together = fitted(StackedFederation, fed.sites, **settings)
    # The paper's steps stop at a tolerance, on a path that doubles rounding errors; the others are exact.
    close = 1e-2 if settings.get("schedule") == "paper" else 1e-9
    assert together.n_rounds_ == alone.n_rounds_
    assert together.objective_ == pytest.approx(alone.objective_, rel=close)
    np.testing.assert_allclose(together.dbn_.W, alone.dbn_.W, atol=close)
    for name, dbn in alone.dbns_.items():
        np.testing.assert_allclose(together.dbns_[name].W, dbn.W, atol=close)
        np.testing.assert_allclose(together.dbns_[name].A, dbn.A, atol=close)


@pytest.mark.parametrize(
    ("module", "limit", "value"),
    [(stacked_personal, "CHUNK", 1), (ordered_step, "_ROOM", 0)],
    ids=["chunk", "room"],
)
def test_limits_of_memory_do_not_change_the_answer(
    monkeypatch: pytest.MonkeyPatch, module: Any, limit: str, value: int
) -> None:
    fed = simulate(d=4, n_sites=5, n_samples=200, random_state=1)
    plenty = fitted(StackedFederation, fed.sites, mu=0.5)
    monkeypatch.setattr(module, limit, value)
    little = fitted(StackedFederation, fed.sites, mu=0.5)
    np.testing.assert_allclose(little.dbn_.W, plenty.dbn_.W, atol=1e-10)


def test_counts_of_shared_edges_read_the_sites_states() -> None:
    fed = simulate(d=4, n_sites=5, n_samples=400, random_state=1)
    alone, together = (
        fitted(kind, fed.sites, mu=0.5).shared_edges() for kind in (InProcessFederation, StackedFederation)
    )
    counted = ["source", "target", "lag", "n_present"]
    assert together.table[counted].equals(alone.table[counted])


def test_guarded_sites_answer_for_themselves() -> None:
    class Count(Guard):
        n = 0

        def before(self, task: Any, state: Any, channel: Any) -> None:
            self.n += task.name == "personal-step"

    fed = simulate(d=4, n_sites=3, n_samples=120, random_state=1)
    guard = Count()
    model = fitted(StackedFederation, fed.sites, (guard,), mu=0.5)
    assert guard.n == 3 * model.n_rounds_
