"""PFDBNL: limits, participation, privacy of personal graphs, different variables, clusters."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from sklearn.base import clone

import feddbn
from feddbn import FDBNL, PFDBNL, Dynotears, Partial, PersonalRounds, Prepare, simulate
from feddbn.core.graphs.constraints import has_cycle
from feddbn.data import read_sites
from feddbn.errors import DataError, ParameterError
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Sum, Task
from feddbn.runtime.simulated.in_process import InProcessFederation
from support.saying import only, refused


@pytest.fixture(scope="module")
def fed() -> feddbn.SimulatedFederation:
    return simulate(d=4, n_sites=4, n_samples=240, mean_degree=2, heterogeneity=0.2, random_state=3)


class FlakyFederation(InProcessFederation):
    """Sites that are away in some rounds, or whose answers are lost after they were computed."""

    def __init__(self, data: dict, away: dict[str, range], lost: dict[str, range] | None = None) -> None:
        sites = read_sites(data)
        super().__init__({name: Site(name, site) for name, site in sites.items()})
        self.away, self.lost, self.messages = away, lost or {}, []

    def sum(self, task: Task) -> Sum:
        t = task.params.get("round")
        names = self.sites if task.participants is None else task.participants
        if task.name == "personal-step":
            for name in names:
                if t in self.lost.get(name, ()):
                    before = self.site(name).state
                    self.site(name).answer(task)
                    # A deployed site goes on from the last answer that counted.
                    self.site(name).state = before
            names = [n for n in names if t not in self.away.get(n, ()) and t not in self.lost.get(n, ())]
        answer = super().sum(replace(task, participants=tuple(names)))
        self.messages.append((task, answer))
        return answer


def test_infinite_mu_gives_one_common_graph(fed: feddbn.SimulatedFederation) -> None:
    m = PFDBNL(mu=np.inf, rounds=PersonalRounds(tol=1e-6)).fit(fed.sites)
    first, *others = m.dbns_.values()
    for other in others:
        assert np.allclose(first.W, other.W, atol=1e-4)
        assert np.allclose(first.A, other.A, atol=1e-4)
    # The same problem as FDBNL's, whose objective is a mean over sites; both are local methods.
    assert m.objective_ / 4 == pytest.approx(FDBNL().fit(fed.sites).objective_, rel=0.01)


def test_vanishing_mu_gives_separate_dynotears_fits(fed: feddbn.SimulatedFederation) -> None:
    m = PFDBNL(mu=1e-6, rounds=PersonalRounds(tol=1e-6)).fit(fed.sites)
    separate = sum(
        Dynotears(prepare=Prepare(center="none")).fit({name: x}).objective_ for name, x in fed.sites.items()
    )
    assert m.objective_ == pytest.approx(separate, rel=0.01)


def test_identical_sites_give_the_one_site_answer(fed: feddbn.SimulatedFederation) -> None:
    rows = fed.sites["site-0"]
    # Rows that count three times make chance look like memory.
    m = PFDBNL(mu=0.5, check_residuals=False, rounds=PersonalRounds(tol=1e-7)).fit(
        {"a": rows, "b": rows, "c": rows}
    )
    one = PFDBNL(mu=0.5, rounds=PersonalRounds(tol=1e-7)).fit({"a": rows})
    assert m.objective_ / 3 == pytest.approx(one.objective_, abs=1e-4)
    assert np.allclose(m.dbns_["b"].W, one.dbns_["a"].W, atol=1e-3)
    assert np.allclose(m.dbns_["a"].W, m.dbns_["c"].W, atol=1e-12)


def test_sampling_every_site_equals_the_full_run_bit_for_bit(fed: feddbn.SimulatedFederation) -> None:
    full, sampled = (
        PFDBNL().fit(fed.sites),
        PFDBNL(participation=4, rounds=PersonalRounds(random_state=9)).fit(fed.sites),
    )
    assert full.n_rounds_ == sampled.n_rounds_
    for name in fed.sites:
        assert np.array_equal(full.dbns_[name].W, sampled.dbns_[name].W)
        assert np.array_equal(full.dbns_[name].A, sampled.dbns_[name].A)


def test_running_average_converges_under_partial_participation(fed: feddbn.SimulatedFederation) -> None:
    full = PFDBNL(rounds=PersonalRounds(tol=1e-5)).fit(fed.sites)
    part = PFDBNL(participation=2, rounds=PersonalRounds(tol=1e-5, max_rounds=3000)).fit(fed.sites)
    assert part.status_.is_converged
    assert part.objective_ == pytest.approx(full.objective_, rel=0.01)
    assert set(part.history_["participants"]) == {2}


def test_variables_of_very_different_variance_do_not_slow_the_consensus() -> None:
    strong = feddbn.simulate(
        d=5, n_sites=6, n_samples=180, heterogeneity="independent", w_range=(0.5, 2), random_state=0
    )
    model = PFDBNL(mu=0.01).fit(strong.sites)
    assert model.status_.is_converged
    # 293 rounds when sites and consensus were held together in proportion to each variable's variance.
    assert model.n_rounds_ < 200


def test_every_personal_graph_is_acyclic(fed: feddbn.SimulatedFederation) -> None:
    for schedule, rounds in (("rounds", {}), ("rounds", {"refit": False}), ("paper", {"max_rounds": 10})):
        given = {"schedule": schedule, "rounds": PersonalRounds(**rounds)}
        m = PFDBNL(w_threshold=0, a_threshold=0, **given).fit(fed.sites)
        assert not any(has_cycle(dbn.W != 0) for dbn in m.dbns_.values())
        assert not has_cycle(m.W_ != 0)


@pytest.mark.parametrize("alpha", ["site", "shared"])
def test_paper_and_rounds_solve_the_same_problem(alpha: str) -> None:
    fed = simulate(d=3, n_sites=2, n_samples=120, mean_degree=2, heterogeneity=0.2, random_state=3)
    ours = PFDBNL(rounds=PersonalRounds(alpha=alpha)).fit(fed.sites)
    paper = PFDBNL(schedule="paper", rounds=PersonalRounds(alpha=alpha)).fit(fed.sites)
    assert paper.status_.is_converged
    # The paper's growing rho2 stops C early, so it may end higher but not lower than a little above ours.
    assert paper.objective_ == pytest.approx(ours.objective_, rel=0.05)


def test_site_that_never_took_part_gets_the_shared_network(fed: feddbn.SimulatedFederation) -> None:
    federation = FlakyFederation(fed.sites, {"site-2": range(10_000)})
    m = PFDBNL(federation=federation).fit(None)
    assert m.never_joined_ == ("site-2",)
    assert np.array_equal(m.dbns_["site-2"].W, m.W_)
    assert only(m.findings_, "never-joined").about == ("site-2",)
    alone = PFDBNL().fit({name: x for name, x in fed.sites.items() if name != "site-2"})
    assert m.objective_ == pytest.approx(alone.objective_, rel=0.02)


def test_absence_and_return_and_late_joining_do_not_change_the_answer(
    fed: feddbn.SimulatedFederation,
) -> None:
    full = PFDBNL(rounds=PersonalRounds(tol=1e-5)).fit(fed.sites)
    away = {"site-0": range(0, 12), "site-1": range(20, 30), "site-3": range(25, 35)}
    m = PFDBNL(federation=FlakyFederation(fed.sites, away), rounds=PersonalRounds(tol=1e-5)).fit(None)
    assert m.never_joined_ == ()
    assert m.objective_ == pytest.approx(full.objective_, rel=0.01)


def test_answers_lost_on_the_way_are_part_of_the_next_one(fed: feddbn.SimulatedFederation) -> None:
    full = PFDBNL(rounds=PersonalRounds(tol=1e-5)).fit(fed.sites)
    federation = FlakyFederation(fed.sites, {}, {"site-1": range(0, 3), "site-2": range(10, 60, 7)})
    m = PFDBNL(federation=federation, rounds=PersonalRounds(tol=1e-5)).fit(None)
    assert m.objective_ == pytest.approx(full.objective_, rel=0.01)
    # The server's running mean is exactly the mean of what the sites hold.
    offered = np.mean([federation.site(n).state["personal.offered"] for n in federation.sites], axis=0)
    last = next(task for task, _ in reversed(federation.messages) if task.name == "personal-finish")
    assert np.allclose(last.arrays["C"][0], offered, atol=1e-12)


def test_server_never_receives_a_personal_graph(fed: feddbn.SimulatedFederation) -> None:
    federation = FlakyFederation(fed.sites, {})
    PFDBNL(federation=federation).fit(None)
    personal = [federation.site(name).state["personal.final"] for name in federation.sites]
    for task, answer in federation.messages:
        assert answer.contributors == federation.sites
        for array in (*task.arrays.values(), answer.value):
            assert not any(C.size == array.size and np.allclose(array.ravel(), C.ravel()) for C in personal)


def test_sites_left_out_of_a_round_keep_their_state(fed: feddbn.SimulatedFederation) -> None:
    sites = read_sites(fed.sites)
    federation = InProcessFederation({name: Site(name, site) for name, site in sites.items()})
    seen: list[tuple[set[str], dict[str, bytes]]] = []

    def watch(task: Task, answer: Sum) -> None:
        if task.name == "personal-step":
            states = {
                n: federation.site(n).state.get("personal.C", np.zeros(1)).tobytes() for n in federation.sites
            }
            seen.append((set(answer.contributors), states))

    PFDBNL(participation=1, federation=federation, rounds=PersonalRounds(max_rounds=10)).fit(
        None, observer=watch
    )
    for (_, before), (asked, after) in pairwise(seen):
        assert all(before[name] == after[name] for name in before if name not in asked)


def test_clusters_are_found_and_the_server_sees_one_sum() -> None:
    fed = simulate(d=5, n_sites=6, n_samples=900, mean_degree=3, n_clusters=2, random_state=0)
    one, two = PFDBNL(mu=1.0).fit(fed.sites), PFDBNL(mu=1.0, n_clusters=2).fit(fed.sites)
    assert (
        feddbn.score_sites(fed.truths, two.dbns_)["W"]["mshd"]
        < feddbn.score_sites(fed.truths, one.dbns_)["W"]["mshd"]
    )
    assert len(two.cluster_dbns_) == 2
    W = [two.dbns_[f"site-{k}"].W for k in range(4)]
    assert np.abs(W[0] - W[2]).max() < np.abs(W[0] - W[1]).max()


def test_different_variables_come_close_to_the_full_fit() -> None:
    fed = simulate(d=6, n_sites=3, n_samples=1500, mean_degree=3, random_state=1)
    missing = {"site-0": ["x0", "x1"], "site-1": ["x2", "x3"], "site-2": ["x4", "x5"]}
    data = {name: [x.drop(columns=missing[name]) for x in frames] for name, frames in fed.sites.items()}
    m = PFDBNL(mu=1.0, partial=Partial(different_variables=True)).fit(data)
    full = PFDBNL(mu=1.0).fit(fed.sites)
    order = [list(m.feature_names_in_).index(f"x{i}") for i in range(6)]
    difference = np.abs(m.W_[np.ix_(order, order)] - full.W_)
    holds = [np.array([f"x{i}" not in names for i in range(6)]) for names in missing.values()]
    n_holders = sum(np.outer(x, x).astype(int) for x in holds)
    assert difference[n_holders >= 2].max() < 0.1
    # Pairs that one site alone has measured together rest on a third of the rows.
    assert difference.max() < 0.2
    assert m.dbns_["site-0"].variables == ("x2", "x3", "x4", "x5")


def test_fewer_lags_at_one_site() -> None:
    fed = simulate(d=4, n_lags=2, n_sites=3, n_samples=600, mean_degree=2, random_state=2)
    m = PFDBNL(n_lags=2, partial=Partial(site_lags={"site-1": 1})).fit(fed.sites)
    assert m.dbns_["site-1"].n_lags == 1
    assert m.dbns_["site-0"].n_lags == 2
    # On this seed residuals give a false alarm (docs/edge-confidence.md).
    whole = PFDBNL(n_lags=2, check_residuals=False).fit(fed.sites)
    assert np.abs(m.A_ - whole.A_).max() < 0.25


def test_variables_that_no_two_sites_share_are_refused_with_a_sentence() -> None:
    fed = simulate(d=4, n_sites=2, n_samples=200, random_state=0)
    data = {
        "a": [x[["x0", "x1"]] for x in fed.sites["site-0"]],
        "b": [x[["x1", "x2"]] for x in fed.sites["site-1"]],
    }
    with refused(DataError, "'x0'", "'x2'"):
        PFDBNL(partial=Partial(different_variables=True)).fit(data)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"mu": 0}, "mu=0"),
        ({"participation": 1.5}, "participation=1.5"),
        ({"n_clusters": 9}, "n_clusters=9"),
        ({"mu": np.inf, "schedule": "paper"}, "mu=inf"),
        ({"partial": Partial(site_lags={"site-9": 1})}, "'site-9'"),
        ({"partial": Partial(site_lags={"site-0": 5})}, "site_lags['site-0']=5"),
        ({"partial": Partial(site_lags={"site-0": 0}), "mu": "auto"}, "site_lags"),
        ({"n_clusters": 2, "rounds": PersonalRounds(average="participants")}, "rounds.average"),
        ({"rounds": PersonalRounds(rho2=2.0)}, "rounds.rho2=2.0"),
    ],
)
def test_bad_arguments_are_named(fed: feddbn.SimulatedFederation, arguments: dict, named: str) -> None:
    with refused(ParameterError, named):
        PFDBNL(**arguments).fit(fed.sites)


def test_parameters_survive_cloning() -> None:
    m = PFDBNL(mu=0.3, participation=2, n_clusters=2, partial=Partial(site_lags={"a": 1}))
    assert clone(m).get_params() == m.get_params()


def test_shared_edges_count_sites_and_hide_small_counts(fed: feddbn.SimulatedFederation) -> None:
    m = PFDBNL(mu=0.3).fit(fed.sites)
    report = m.shared_edges()
    for row in report.table.itertuples():
        matrices = [
            dbn.adjacency_matrices[row.lag][dbn.variables.index(row.source), dbn.variables.index(row.target)]
            for dbn in m.dbns_.values()
        ]
        assert row.n_present == np.count_nonzero(matrices)
        if row.n_present:
            assert row.mean_weight == pytest.approx(np.sum(matrices) / row.n_present)
    hidden = m.shared_edges(min_count=2)
    assert hidden.table["n_present"].dropna().min() >= 2
    assert not (hidden.table["n_present"].isna() & (hidden.table["shared_weight"] == 0)).any()
    own = report.deviations["site-1"]
    assert np.allclose(own["deviation"], own["weight"] - own["shared_weight"])
    assert report.to_dict()["edges"][0]["n_sites"] == 4


def test_sites_that_opt_out_are_counted_for_shared_edges_only(fed: feddbn.SimulatedFederation) -> None:
    m = PFDBNL(mu=0.1).fit(fed.sites)
    table = m.shared_edges(opt_out=list(fed.sites)).table
    assert (table["shared_weight"] != 0).all()
    assert len(m.shared_edges().table) > len(table)
