"""The arena counts what it says it counts."""

from argparse import ArgumentTypeError

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.sim import MESSES

pytestmark = pytest.mark.slow


@pytest.fixture
def arena(script):
    return script("arena")


def test_every_mess_has_a_scenario(arena):
    assert {name for scenario in arena.SCENARIOS.values() for name in scenario.mess} == set(MESSES)


def test_sure_edges_are_compared_with_the_truth_at_their_lag(arena):
    W, A = np.zeros((2, 2)), np.zeros((1, 2, 2))
    W[0, 1] = A[0, 1, 1] = 0.5
    rows = [
        ("x0", "x1", 0, 0.99),
        ("x1", "x0", 0, 0.95),
        ("x1", "x1", 1, 1.0),
        ("x0", "x1", 1, 0.96),
        ("x0", "x0", 1, 0.9),
    ]
    table = pd.DataFrame(rows, columns=["source", "target", "lag", "probability"])
    assert arena.sure_edges(table, feddbn.DBN(W, A)) == (4, 2)


def test_a_reversed_edge_and_one_without_direction_count_one(arena, monkeypatch):
    fed = feddbn.simulate(d=3, n_sites=2, n_samples=40, mean_degree=2)
    W, A = fed.truth.W, fed.truth.A
    i, j = np.argwhere(W)[0]
    for turned in ("reversed", "both"):
        found = W.copy()
        found[j, i] = 1.0
        found[i, j] = 0.0 if turned == "reversed" else 1.0
        monkeypatch.setitem(arena.LAGGED_PEERS, "a peer", ("", lambda _, found=found: (found, A)))
        outcome = arena.trial("a peer", fed)
        assert (outcome["w"], outcome["a"]) == (1, 0)


def test_marks_of_edges_are_read_from_and_to(script):
    marks = np.full((2, 2, 2), "", dtype="<U3")
    marks[0, 1, 0], marks[1, 0, 0], marks[1, 0, 1] = "-->", "<--", "-->"
    W, A = script("peers").edges_of(marks)
    assert W.tolist() == [[0, 1], [0, 0]]
    assert A.tolist() == [[[0, 0], [1, 0]]]
    marks[0, 1, 0] = marks[1, 0, 0] = "o-o"
    assert script("peers").edges_of(marks)[0].tolist() == [[0, 1], [1, 0]]


def test_a_fit_that_is_refused_and_a_peer_that_fails_are_rows_too(arena, monkeypatch):
    def fails(_):
        raise ZeroDivisionError("no rows")

    monkeypatch.setitem(arena.LAGGED_PEERS, "a peer", ("", fails))
    empty = feddbn.simulate(d=3, n_sites=2, n_samples=8, mess={"missing": 0.95})
    ours, theirs = arena.trial("OneShotDBN", empty), arena.trial("a peer", empty)
    assert ours["refused"]
    assert theirs["refused"] == "ZeroDivisionError: no rows"
    assert arena.wrong_edges([ours]) == "refused 1 of 1"
    assert arena.wrong_edges([ours, {"w": 2, "a": 1}]) == "2.0 / 1.0 (refused 1 of 2)"
    assert arena.wrong_edges([{"w": 2, "a": 1}, {"w": 1, "a": 0}]) == "1.5 / 0.5 (1-3)"


def test_sentences_about_the_same_thing_have_one_gist(arena):
    one = arena.gist("site 'site-0': columns 'x1', 'x2': -999 stands for something in 13 cells")
    two = arena.gist("site 'site-12': columns 'x4': -999 stands for something in 2 cells")
    assert one == two == "site '..': columns '..': -# stands for"
    trials = [{"warnings": ["a 1", "a 2", "b"]}, {"warnings": ["a 3"]}, {}]
    assert arena.words(trials) == "2x a #; 1x b"


def test_scenarios_and_seeds_are_read_from_words(arena):
    assert arena.scenario_of("missing-30")[1].mess == {"missing": 0.3}
    assert arena.scenario_of("spikes=0.02")[1].mess == {"spikes": 0.02}
    assert arena.seeds_of("700-702") == (700, 701, 702)
    assert arena.seeds_of("5") == (5,)
    for word in ("sunspots", "spikes=many", "spikes=7"):
        with pytest.raises(ArgumentTypeError, match="is no scenario"):
            arena.scenario_of(word)


def test_what_a_run_wrote_is_read_again(arena, tmp_path):
    fed = feddbn.simulate(d=3, n_sites=2, n_samples=80, mean_degree=2)
    trials = [
        {"scenario": "none", "seed": 3, "method": "FDBNL", **arena.trial("FDBNL", fed)},
        {"scenario": "none", "seed": 3, "method": "OneShotDBN", "seconds": 0.5, "refused": "too few rows"},
    ]
    written = list(arena.noted(iter(trials), tmp_path / "arena.csv"))
    again = list(arena.read_trials(tmp_path / "arena.csv"))
    assert written == trials
    assert again[1] == trials[1]
    assert again[0] == {**trials[0], "seconds": round(trials[0]["seconds"], 3)}
