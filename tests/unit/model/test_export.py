"""Several modules: no CSV file that feddbn writes holds a cell that a spreadsheet runs."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddbn.cli.terminal import write_csv
from feddbn.errors import FileError, ParameterError
from feddbn.federation.protocol.study import StudyResult
from feddbn.model.dbn import DBN
from feddbn.model.export import guarded, unguarded
from feddbn.report.record import read_edges
from feddbn.runtime.server.results import export_result


@pytest.fixture
def small() -> DBN:
    W = np.zeros((3, 3))
    W[0, 1] = 0.5
    A = np.zeros((2, 3, 3))
    A[0, 1, 1], A[1, 2, 0] = 0.25, -1.5
    return DBN(W, A, ["a", 'b "x"', "c"], np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.2, 0.3]))


def test_edges_are_tidy_and_sorted_by_lag(small: DBN) -> None:
    table = small.edges()
    assert list(table.columns) == ["source", "target", "lag", "weight", "standardised", "oriented"]
    assert table[["source", "target", "lag", "weight"]].to_dict("records") == [
        {"source": "a", "target": 'b "x"', "lag": 0, "weight": 0.5},
        {"source": 'b "x"', "target": 'b "x"', "lag": 1, "weight": 0.25},
        {"source": "c", "target": "a", "lag": 2, "weight": -1.5},
    ]
    assert table["oriented"].all()


def test_orientation_is_from_to_here_and_in_tigramite_and_to_from_in_lingam(small: DBN) -> None:
    assert small.adjacency_matrices[2, 2, 0] == -1.5
    assert small.to_lingam()[2, 0, 2] == -1.5
    graph, values = small.to_tigramite()
    assert (graph[2, 0, 2], values[2, 0, 2]) == ("-->", -1.5)
    assert (graph[0, 1, 0], graph[1, 0, 0]) == ("-->", "<--")
    assert values[0, 1, 0] == values[1, 0, 0] == 0.5
    assert np.count_nonzero(graph == "-->") == 3


def test_graphs_name_nodes_by_variable_and_lag_and_summarise_over_lags(small: DBN) -> None:
    graph = small.to_networkx()
    assert graph.edges["c_lag2", "a_lag0"]["weight"] == -1.5
    assert graph.nodes["c_lag0"]["intercept"] == 3.0


def test_dot_quotes_names_and_lists_every_edge(small: DBN, tmp_path: Path) -> None:
    text = small.to_dot(tmp_path / "g.dot")
    assert (tmp_path / "g.dot").read_text() == text
    assert text.startswith("digraph dbn {")
    assert '"a_lag0" -> "b \\"x\\"_lag0" [weight_value="0.5", label="0.5"];' in text
    assert text.count("->") == 3
    assert text.count("rank=same") == 3


def test_documented_schema_lists_the_keys_that_are_written(small: DBN) -> None:
    page = (Path(__file__).parents[3] / "docs" / "schema.md").read_text()
    example = json.loads(page.split("```json")[1].split("```")[0])
    with_open = DBN(small.W, small.A, small.variables, open_edges=[("a", 'b "x"')])
    assert set(example) == set(with_open.to_dict())
    assert DBN.from_dict(example).edges().to_dict("records")[0]["source"] == "heart_rate"


def broken(**changes: object) -> str:
    stored = {**DBN(np.zeros((2, 2)), np.zeros((1, 2, 2))).to_dict(), **changes}
    return json.dumps({k: v for k, v in stored.items() if v != "drop"})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (broken(version=2), "2.*1"),
        ('{"a":' * 100_000, "JSON"),
    ],
)
def test_future_or_corrupt_json_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(FileError, match=sentence):
        DBN.from_json(text)


def test_unknown_keys_of_the_same_version_are_ignored() -> None:
    assert DBN.from_json(broken(comment="hello")).d == 2


NAMES = ("=cmd|' /C calc'!A0", "+1", "-2", "@SUM(1)", "\tx", "'=y", "''-z", "＝wide", "plain", "o'hara", "5")
DANGEROUS = tuple("=+-@\t\r\n\0＝＋－＠")


@given(st.text(alphabet=st.sampled_from("='+-@\t\r\n\0＝ab1 ")) | st.text())
def test_written_text_is_no_formula_and_can_be_read_back(text):
    assert not guarded(text).startswith(DANGEROUS)
    assert unguarded(guarded(text)) == text


@pytest.fixture
def dbn():
    d = len(NAMES)
    return DBN(np.diag(np.full(d - 1, -0.5), 1), np.zeros((1, d, d)), NAMES)


def names_in(text):
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert rows
    assert all(float(row["weight"]) == -0.5 for row in rows)
    return {row[end] for row in rows for end in ("source", "target")}


@pytest.mark.promise
def test_an_exported_network_has_no_formulas_and_reads_back(dbn, tmp_path):
    path = tmp_path / "edges.csv"
    assert not [name for name in names_in(dbn.to_csv(path)) if name.startswith(DANGEROUS)]
    again = DBN.from_csv(path, NAMES, 1)
    assert again.variables == NAMES
    np.testing.assert_array_equal(again.W, dbn.W)


def test_tables_of_commands_and_studies_have_no_formulas_and_reports_read_them(dbn, tmp_path):
    edges = dbn.edges().assign(probability=0.9)
    write_csv(edges, tmp_path / "table.csv")
    result = StudyResult({"x": np.zeros(1)}, {"edges": edges.to_dict("records")})
    (tmp_path / "result.feddbn").write_bytes(result.to_bytes())
    export_result(tmp_path)
    for path in (tmp_path / "table.csv", tmp_path / "edges.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            assert not [name for name in names_in(file.read()) if name.startswith(DANGEROUS)]
        assert set(read_edges(path)["source"]) == set(edges["source"])


@pytest.fixture
def partly() -> DBN:
    """a -- b -> c with a -> a one step later; the direction between a and b is open."""
    W = np.zeros((3, 3))
    W[0, 1], W[1, 2] = 0.5, -0.8
    A = np.zeros((1, 3, 3))
    A[0, 0, 0] = 0.6
    return DBN(W, A, ["a", "b", "c"], np.ones(3), np.array([1.0, 4.0, 0.25]), [("a", "b")])


def test_what_is_open_is_part_of_the_network(partly: DBN) -> None:
    assert partly.open_edges == (("a", "b"),)
    assert partly.is_oriented.sum() == 2
    assert not partly.is_oriented[0, 0, 1]
    assert partly.edges()["oriented"].tolist() == [False, True, True]
    assert partly.at_level([1.0, 2.0, 3.0]).open_edges == partly.open_edges
    assert not partly.equals(DBN(partly.W, partly.A, partly.variables, np.ones(3), partly.noise_variances))


@pytest.mark.parametrize("pair", [("b", "a"), ("a", "c")])
def test_only_an_edge_within_a_moment_can_be_open(partly: DBN, pair: tuple[str, str]) -> None:
    with pytest.raises(ParameterError, match=f"open_edges.*{pair[0]} -> {pair[1]}"):
        DBN(partly.W, partly.A, partly.variables, open_edges=[pair])


def test_a_file_names_open_edges_only_where_some_are(partly: DBN) -> None:
    stored = DBN(partly.W, partly.A, partly.variables).to_dict()
    assert "open_edges" not in stored
    assert DBN.from_json(json.dumps(stored)).open_edges == ()


def test_drawings_and_neighbours_mark_it(partly: DBN) -> None:
    lines = partly.to_dot().splitlines()
    assert [line for line in lines if "dir=none" in line] == [
        '  "a_lag0" -> "b_lag0" [weight_value="0.5", label="0.5", dir=none];'
    ]
    graph, values = partly.to_tigramite()
    assert graph[0, 1, 0] == graph[1, 0, 0] == "o-o"
    assert (graph[1, 2, 0], graph[2, 1, 0]) == ("-->", "<--")
    assert values[0, 1, 0] == values[1, 0, 0] == 0.5
    with pytest.raises(ParameterError, match=r"graph\[0, 1\] .*'o-o'.*'-->'.*'<--'"):
        DBN.from_tigramite(graph, values)
    assert "false" in partly.to_csv().splitlines()[1]


# Standardised weights.


def test_standardised_weights_are_those_of_standardised_rows(partly: DBN) -> None:
    rows = partly.simulate(20_000, random_state=0).to_numpy()
    sd = rows.std(axis=0)
    scaled = (rows - rows.mean(axis=0)) / sd
    x, past = scaled[1:], scaled[:-1]
    by_regression = np.linalg.lstsq(np.column_stack([x[:, 1], past]), x[:, 2], rcond=None)[0][0]
    assert partly.standardised_weights()[0, 1, 2] == pytest.approx(by_regression, abs=0.03)


def test_without_a_stationary_process_one_moment_given_the_past_is_the_unit() -> None:
    W = np.array([[0.0, 2.0], [0.0, 0.0]])
    grows = DBN(W, 1.1 * np.eye(2)[None], noise_variances=np.array([4.0, 9.0]))
    assert grows.standardised_weights()[0, 0, 1] == pytest.approx(2.0 * 2.0 / np.sqrt(4 * 4 + 9))


def test_a_cycle_without_a_solution_falls_back_on_the_noise() -> None:
    cyclic = DBN(
        np.array([[0.0, 1.0], [1.0, 0.0]]), np.zeros((0, 2, 2)), noise_variances=np.array([4.0, 1.0])
    )
    assert cyclic.standardised_weights()[0, 0, 1] == 2.0
