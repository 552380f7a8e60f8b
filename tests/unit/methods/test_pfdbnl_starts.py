"""PFDBNL's two starts: where the path to acyclicity ends, and orders searched on each site's own data."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest

import feddbn
from feddbn import PFDBNL, Prepare, simulate
from feddbn.core.fdbnl.path import make_schedule
from feddbn.core.fdbnl.server import penalty_matrix
from feddbn.core.graphs.constraints import EdgeConstraints, topological_order
from feddbn.core.pfdbnl.server import N_NUMBERS, PersonalOptions, PersonalRun
from feddbn.core.pfdbnl.stages import searched_order
from feddbn.core.solvers.lasso import loss_value, penalty_value
from feddbn.federation.programs.pfdbnl import site as personal_site
from support.lassos import solve_lasso

STRONG = (0.5, 2.0)


def stages(model: PFDBNL) -> list[str]:
    return [stage for stage, _ in groupby(model.history_["stage"])]


def gram(rows: np.ndarray) -> np.ndarray:
    Z = np.hstack([rows[1:], rows[:-1]])
    return Z.T @ Z / len(Z)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
def test_strong_weights_end_as_low_as_in_the_true_orders(seed: int) -> None:
    fed = simulate(
        d=10, n_sites=3, n_samples=240, heterogeneity="independent", w_range=STRONG, random_state=seed
    )
    model = PFDBNL(mu=1e-4, prepare=Prepare(center="none")).fit(fed.sites)
    free = EdgeConstraints.none(10, 1)
    lowest = 0.0
    for name, (frame,) in fed.sites.items():
        G = gram(frame.to_numpy())
        constraints = free.within_order(topological_order(fed.truths[name].W != 0))
        L = penalty_matrix(constraints, 0.05, 0.05)
        C = solve_lasso(G, L, constraints.allowed)
        lowest += loss_value(G, C) + penalty_value(C, L)
    # The path to acyclicity alone ends 10 per cent above (2 to 50 on seeds 0-7).
    assert model.objective_ <= 1.005 * lowest


@pytest.mark.parametrize("w_range", [(0.3, 0.5), STRONG], ids=["weak", "strong"])
@pytest.mark.parametrize("mu", [0.05, 1.0])
@pytest.mark.parametrize("n_sites", [2, 12])
def test_what_is_kept_is_the_lower_start(w_range: tuple[float, float], mu: float, n_sites: int) -> None:
    fed = simulate(d=6, n_sites=n_sites, n_samples=192, w_range=w_range, random_state=4)
    history = PFDBNL(mu=mu).fit(fed.sites).history_
    runs = [list(rows) for _, rows in groupby(history.itertuples(), key=lambda row: row.stage)]
    ends = {rows[0].stage: rows[-1].objective for rows in reversed(runs)}
    # These stages end at a residual of one per cent.
    assert ends["lasso"] <= 1.01 * min(ends["order"], ends["chosen"])


@pytest.mark.parametrize(
    ("gain", "end"), [(1.0, ["lasso"]), (0.0, ["lasso"]), (-1e-9, ["lasso"]), (-1.0, ["order", "lasso"])]
)
@pytest.mark.parametrize("n_participants", [4, 1])
def test_server_goes_back_where_the_second_start_is_worse(
    gain: float, end: list[str], n_participants: int
) -> None:
    constraints = EdgeConstraints.none(3, 1)
    options = PersonalOptions(
        mu=1.0,
        penalty=penalty_matrix(constraints, 0.1, 0.1),
        metric=np.ones(6),
        constraints=constraints,
        schedule=make_schedule("rounds", 1, 1.0),
    )
    run = PersonalRun(options, n_sites=4)
    seen = []
    while not run.is_done:
        seen.append(run.stage.value)
        answer = np.zeros(18 + N_NUMBERS + 1)
        answer[18 + N_NUMBERS - 2 : 18 + N_NUMBERS] = (
            10.0 * n_participants,
            gain if seen[-1] == "chosen" else 0.0,
        )
        run.advance(answer, n_participants)
    order = [stage for stage, _ in groupby(seen)]
    assert order == ["warm", "acyclic", "order", "searched", "chosen", *end]


def test_one_graph_for_all_needs_no_search() -> None:
    fed = simulate(d=4, n_sites=3, n_samples=120, random_state=1)
    assert stages(PFDBNL(mu=np.inf).fit(fed.sites)) == ["warm", "acyclic", "order", "lasso", "support"]


def test_a_site_searches_each_of_its_folds_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(G: np.ndarray, n: float, constraints: EdgeConstraints, *, moves: bool) -> np.ndarray:
        calls.append(n)
        return searched_order(G, n, constraints, moves=moves)

    monkeypatch.setattr(personal_site, "searched_order", counted)
    fed = simulate(d=3, n_sites=2, n_samples=120, heterogeneity=0.3, random_state=2)
    PFDBNL(mu="auto").fit(fed.sites)
    # Seven values of mu on two folds, then the fit to all rows.
    assert len(calls) == 2 * 3


def test_searched_order_is_the_causal_one_and_keeps_the_constraints() -> None:
    rng = np.random.default_rng(0)
    E = rng.standard_normal((2000, 4))
    X = E.copy()
    for effect, cause in ((1, 3), (0, 1), (2, 0)):
        X[:, effect] += 1.5 * X[:, cause]
    G = gram(X)
    found = searched_order(G, 2000.0, EdgeConstraints.none(4, 1), moves=True)
    assert found[3, 1]
    assert found[1, 0]
    assert found[0, 2]
    assert not found[2, 0]
    names = ("a", "b", "c", "d")
    turned = EdgeConstraints.from_edges(names, 1, forbidden=[("d", "b", 0)], required=[("c", "a", 0)])
    kept = searched_order(G, 2000.0, turned, moves=True)
    assert kept[2, 0]
    assert not kept[3, 1]
    assert (turned.allowed | ~kept).all()


def test_strong_and_different_sites_are_told_apart_at_twenty_variables() -> None:
    fed = feddbn.simulate(
        d=20, n_sites=3, n_samples=360, heterogeneity="independent", w_range=STRONG, random_state=0
    )
    scores = feddbn.score_sites(fed.truths, PFDBNL(mu=0.01).fit(fed.sites).dbns_)
    # 35.7 wrong edges of W per site from the path alone.
    assert scores["W"]["mshd"] <= 8.0
