"""How often marks come again: counted by hand, and on simulated sites."""

from __future__ import annotations

import numpy as np
import pytest

import feddbn
from feddbn import AS_THEY_ARE, LatentDBN, mark_confidence
from feddbn.errors import ParameterError
from feddbn.methods.mark_confidence import _table
from feddbn.model.ancestral import AncestralGraph


def graph(mark_now, mark_lagged):
    marks = np.full((2, 2, 2), "", dtype="<U3")
    marks[0, 1, 0] = mark_now
    marks[1, 0, 0] = mark_now[::-1].translate(str.maketrans("<>", "><"))
    marks[0, 1, 1] = mark_lagged
    return AncestralGraph(marks, ("a", "b"))


def test_shares_are_counted():
    others = [graph("<--", "-->"), graph("-->", ""), graph("<->", "<->"), graph("", "-->")]
    table = _table(graph("<--", "-->"), others).set_index(["source", "target", "lag"])
    assert table.index.tolist() == [("a", "b", 1), ("b", "a", 0)]
    assert table.loc["b", "a", 0].tolist() == ["-->", 0.75, 0.25, 0.25, 0.25, 0.25]
    assert table.loc["a", "b", 1].tolist() == ["-->", 0.75, 0.5, 0.5, 0.25, 0.0]
    new = _table(graph("", ""), [graph("o->", ""), graph("", "")])
    assert new.iloc[0].tolist() == ["a", "b", 0, "", 0.5, 0.0, 0.0, 0.0, 0.0]


def test_edges_of_the_fit_come_again_and_so_does_the_table():
    made = feddbn.simulate(d=3, n_sites=3, n_samples=1500, mean_degree=1, n_latent=1, random_state=2)
    table = mark_confidence(LatentDBN(prepare=AS_THEY_ARE), made.sites, 12)
    fitted = LatentDBN(prepare=AS_THEY_ARE).fit(made.sites)
    own = table[table["mark"] != ""]
    assert len(own) == len(fitted.edges_)
    assert own["edge"].mean() > 0.8
    assert (table[table["mark"] == ""]["edge"] < 0.7).all()
    assert (table["same"] <= table["edge"]).all()
    again = mark_confidence(LatentDBN(prepare=AS_THEY_ARE), made.sites, 12)
    assert table.equals(again)


def test_wrong_arguments_are_named():
    rows = {"a": np.random.default_rng(0).normal(size=(60, 2))}
    for estimator, options, sentence in (
        (feddbn.OneShotDBN(), {}, "must be a LatentDBN"),
        (LatentDBN(alpha=2), {}, "alpha=2 must be"),
        (LatentDBN(), {"n_replicates": 1}, "n_replicates=1 must be a whole number of at least 2"),
        (LatentDBN(), {"block_length": "long"}, "block_length='long' must be"),
        (LatentDBN(), {"random_state": -1}, "random_state=-1 must be"),
    ):
        with pytest.raises(ParameterError, match=sentence):
            mark_confidence(estimator, rows, **options)
