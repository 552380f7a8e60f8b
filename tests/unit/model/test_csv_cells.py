"""Several modules: no CSV file that feddbn writes holds a cell that a spreadsheet runs."""

import csv
import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddbn.cli.terminal import write_csv
from feddbn.federation.protocol.study_methods import StudyResult
from feddbn.model.csv_cells import guarded, guarded_frame, unguarded
from feddbn.model.dbn import DBN
from feddbn.report.record import read_edges
from feddbn.runtime.deployed.results import export_result

NAMES = ("=cmd|' /C calc'!A0", "+1", "-2", "@SUM(1)", "\tx", "'=y", "''-z", "＝wide", "plain", "o'hara", "5")
DANGEROUS = tuple("=+-@\t\r\n\0＝＋－＠")


@given(st.text(alphabet=st.sampled_from("='+-@\t\r\n\0＝ab1 ")) | st.text())
def test_written_text_is_no_formula_and_can_be_read_back(text):
    assert not guarded(text).startswith(DANGEROUS)
    assert unguarded(guarded(text)) == text


def test_text_without_a_sign_in_front_and_numbers_are_left_alone():
    for value in ("plain", "o'hara", "'quoted'", "a=b", "", " =x", -3, -0.5, None):
        assert guarded(value) is value


def test_cells_and_names_of_columns_of_a_table():
    frame = pd.DataFrame({"=a": ["-x", "y"], "b": [-1.5, 2.0]})
    out = guarded_frame(frame)
    assert out.to_csv(index=False) == "'=a,b\n'-x,-1.5\ny,2.0\n"
    assert list(frame.columns) == ["=a", "b"]


@pytest.fixture
def dbn():
    d = len(NAMES)
    return DBN(np.diag(np.full(d - 1, -0.5), 1), np.zeros((1, d, d)), NAMES)


def names_in(text):
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert rows
    assert all(float(row["weight"]) == -0.5 for row in rows)
    return {row[end] for row in rows for end in ("source", "target")}


def test_an_exported_network_has_no_formulas_and_reads_back(dbn, tmp_path):
    path = tmp_path / "edges.csv"
    assert not [name for name in names_in(dbn.to_csv(path)) if name.startswith(DANGEROUS)]
    again = DBN.from_csv(path, NAMES, 1)
    assert again.variables == NAMES
    np.testing.assert_array_equal(again.W, dbn.W)


def test_an_edge_list_of_an_earlier_version_still_opens():
    assert DBN.from_csv("source,target,lag,weight\n-a,=b,0,1.5\n").variables == ("-a", "=b")


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
