"""Files and tables of networks with curves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feddbn.errors import FileError, ParameterError
from feddbn.model.curves import Curve
from feddbn.model.dbn import DBN

CurvedDBN = Callable[..., DBN]


def test_every_whole_form_reads_back_bit_for_bit(curved_dbn: CurvedDBN, tmp_path: Path) -> None:
    dbn = curved_dbn()
    dbn.to_npz(tmp_path / "n.npz")
    for again in (
        DBN.from_json(dbn.to_json()),
        DBN.from_dict(dbn.to_dict()),
        DBN.from_npz(tmp_path / "n.npz"),
        DBN.from_networkx(dbn.to_networkx()),
        DBN.from_graphml(dbn.to_graphml()),
    ):
        assert again.curves == dbn.curves
        assert again.products == dbn.products
        assert again.equals(dbn)
    assert dbn.to_dict()["version"] == 3


def test_a_linear_network_is_stored_as_before(random_dbn: Callable[..., DBN]) -> None:
    dbn = random_dbn(0)
    assert sorted(dbn.to_dict()) == sorted(
        ["format", "version", "variables", "n_lags", "W", "A", "intercept", "noise_variances"]
    )
    assert dbn.to_dict()["version"] == 1
    assert "curves" not in dbn.to_networkx().graph
    assert "shape" not in dbn.edges().columns


def test_networks_that_differ_in_a_curve_are_not_equal(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn()
    stored = dbn.to_dict()
    stored["curves"][0]["coefficients"][0] += 1e-3
    other = DBN.from_dict(stored)
    assert not dbn.equals(other)
    assert dbn.equals(other, atol=2e-3)
    straight = DBN(dbn.W, dbn.A, dbn.variables, dbn.intercept, dbn.noise_variances)
    assert not dbn.equals(straight)
    assert not straight.equals(dbn)


def changed(dbn: DBN, key: str, **changes: Any) -> str:
    stored = dbn.to_dict()
    stored[key][0].update(changes)
    for name, value in changes.items():
        if value == "drop":
            del stored[key][0][name]
    return json.dumps(stored)


@pytest.mark.parametrize(
    ("key", "changes", "sentence"),
    [
        (
            "curves",
            {"source": "z"},
            "'curves'",
        ),
        ("curves", {"scale": "drop"}, "'curves'"),
        ("curves", {"scale": -1.0}, "'curves'.*-1.0"),
        ("curves", {"lag": 7}, "7.*2"),
        ("curves", {"coefficients": ["a"]}, "'curves'"),
        ("curves", {"coefficients": 3}, "'curves'"),
        ("curves", {"covariance": [[1.0]]}, "'curves'"),
        ("products", {"sources": ["a"]}, "'products'"),
        (
            "products",
            {"weight": None},
            "'products'",
        ),
    ],
)
def test_damaged_parts_are_refused_with_a_sentence(
    key: str, changes: dict[str, Any], sentence: str, curved_dbn: CurvedDBN
) -> None:
    with pytest.raises(FileError, match=sentence):
        DBN.from_json(changed(curved_dbn(), key, **changes))


def test_parts_that_are_no_lists_and_graphs_that_are_damaged_are_refused(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn()
    with pytest.raises(FileError, match="'curves'"):
        DBN.from_dict({**dbn.to_dict(), "curves": {"a": 1}})
    graph = dbn.to_networkx()
    graph.graph["curves"] = "[{"
    with pytest.raises(FileError, match=r"'curves'.*JSON"):
        DBN.from_networkx(graph)


def test_the_csv_of_curves_reads_back_and_its_names_are_guarded(
    curved_dbn: CurvedDBN, tmp_path: Path
) -> None:
    dbn = curved_dbn()
    text = dbn.to_curves_csv(tmp_path / "curves.csv", n=11)
    assert (tmp_path / "curves.csv").read_text() == text
    lines = [line.split(",") for line in text.splitlines()]
    table = dbn.curves_table(n=11)
    assert lines[0] == list(table.columns)
    for line, row in zip(lines[1:], table.itertuples(index=False), strict=True):
        assert line[:3] == [row.source, row.target, str(row.lag)]
        numbers = [float(cell) if cell else np.nan for cell in line[3:7]]
        np.testing.assert_array_equal(numbers, [row.value, row.effect, row.lower, row.upper])
        assert line[7] == str(row.inside)
    formula = DBN(
        np.zeros((2, 2)), np.zeros((1, 2, 2)), ["=1+1", "b"], curves=[Curve(0, 1, 1, 0.0, 1.0, (1.0,))]
    )
    assert formula.to_curves_csv().splitlines()[1].startswith("'=1+1,b,1,")
    with pytest.raises(ParameterError, match=r"2.*1"):
        dbn.to_curves_csv(n=1)


def test_edge_lists_keep_their_columns_and_list_curved_edges(curved_dbn: CurvedDBN) -> None:
    dbn = curved_dbn()
    lines = dbn.to_csv().splitlines()
    assert lines[0] == "source,target,lag,weight,standardised,oriented"
    assert len(lines) - 1 == len(dbn.edges()) == int(dbn.is_edge.sum())
    again = DBN.from_csv(dbn.to_csv(), dbn.variables, dbn.n_lags)
    np.testing.assert_array_equal(again.W, dbn.W)
    assert again.is_linear
    assert dbn.to_dot().count("->") == len(dbn.edges())
