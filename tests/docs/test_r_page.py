"""The page for R users: files read by parsers that know nothing of feddbn, and what reticulate would call.

R itself is not run here. A line of R that calls feddbn is the same line of Python with other signs, so it is translated.
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from feddbn import DBN, OneShotDBN
from feddbn.errors import ParameterError
from feddbn.methods.result import Result

PAGE = (Path(__file__).parents[2] / "docs" / "r.md").read_text(encoding="utf-8")
GRAPHML = "{http://graphml.graphdrawing.org/xmlns}"
SITES = ("north", "south", "west")


@pytest.fixture(scope="module")
def sites():
    """Three sites that measure a, b and c: c follows a, b remembers itself."""
    rng = np.random.default_rng(5)
    made = {}
    for name in SITES:
        x = np.zeros((150, 3))
        for t in range(1, len(x)):
            x[t] = 0.4 * x[t - 1] + rng.normal(size=3)
            x[t, 2] += 0.8 * x[t, 0]
        made[name] = pd.DataFrame(x, columns=["a", "b", "c"])
    return made


@pytest.fixture
def dbn():
    """An open direction, two lags, and a name that is also a word of XML's and of Python's."""
    W = np.array([[0, 0.4, 0], [0, 0, 0], [0.1, 0, 0]])
    A = np.zeros((2, 3, 3))
    A[0, 1, 2], A[1, 2, 2] = -0.3, 1 / 3
    return DBN(
        W, A, ("True", "b", "<c>"), np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.0, 2.0]), [("True", "b")]
    )


def in_python(lines):
    """R that only assigns and calls, as Python."""
    text = re.sub(r"library\(\w+\)\n", "", lines)
    text = re.sub(r"\b(\d+)L\b", r"\1", text)
    for r, python in (
        (" <- ", " = "),
        ("read.csv(", "read_csv("),
        ("list(", "dict("),
        ("sites$north", "sites['north']"),
    ):
        text = text.replace(r, python)
    return text.replace("$", ".")


def test_the_lines_that_call_feddbn_do_what_the_page_says(sites, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name, frame in sites.items():
        frame.to_csv(tmp_path / "data" / f"{name}.csv", index=False)
    (lines,) = re.findall(r"<!-- r: run -->\n```r\n(.*?)```", PAGE, re.S)
    code = in_python(lines).replace("import(", "import_module(")
    names = {"import_module": import_module, "read_csv": pd.read_csv}
    exec(compile(code, "r.md", "exec"), names)
    model = names["model"]
    assert {"network.json", "network.graphml", "result.json", "report.html"} <= {
        p.name for p in tmp_path.iterdir()
    }
    assert ("a", "c", 0) in set(
        model.dbn_.edges()[["source", "target", "lag"]].itertuples(index=False, name=None)
    )


def test_tables_have_only_what_reticulate_turns_into_columns(sites):
    model = OneShotDBN(n_lags=1).fit(sites)
    for table in (model.dbn_.edges(), model.edge_probabilities_):
        assert isinstance(table.index, pd.RangeIndex)
        for name, column in table.items():
            assert isinstance(name, str)
            is_text = all(isinstance(value, str) for value in column)
            assert is_text or column.dtype in (np.float64, np.int64, np.bool_), name
    assert (model.W_.dtype, model.W_.shape) == (np.float64, (3, 3))


def test_frames_and_matrices_as_r_hands_them_over_give_the_same_network(sites):
    expected = OneShotDBN(n_lags=1).fit(sites)
    # R's matrices are stored by columns; its lists of frames are lists.
    from_r = {name: [frame.copy(deep=True)] for name, frame in sites.items()}
    assert OneShotDBN(n_lags=1).fit(from_r).dbn_.equals(expected.dbn_)
    by_columns = {name: np.asfortranarray(frame.to_numpy()) for name, frame in sites.items()}
    np.testing.assert_array_equal(OneShotDBN(n_lags=1).fit(by_columns).W_, expected.W_)


def test_a_number_without_l_is_refused_in_a_sentence(sites):
    with pytest.raises(ParameterError, match=r"n_lags=1\.0 must be a whole number"):
        OneShotDBN(n_lags=1.0).fit(sites)


def test_a_result_is_read_by_keys_alone(sites, tmp_path):
    model = OneShotDBN(n_lags=1).fit(sites)
    Result.from_estimator(model).save(tmp_path / "result.json")
    read = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert (read["method"], read["format"]) == ("OneShotDBN", "feddbn-result")
    W, A = np.array(read["dbn"]["W"]), np.array(read["dbn"]["A"])
    np.testing.assert_array_equal(W, model.W_)
    np.testing.assert_array_equal(A, model.A_)
    assert read["variables"] == ["a", "b", "c"]
    assert {"source", "target", "lag", "weight"} <= read["edges"][0].keys()
    # All rows of the table have the same keys, so that it is a data frame.
    assert len({tuple(row) for row in read["edges"]}) == 1
    # The page's one step ahead, by its formula.
    x = sites["north"].to_numpy()[-1]
    ahead = (np.array(read["dbn"]["intercept"]) + x @ A[0]) @ np.linalg.inv(np.eye(3) - W)
    forecast = model.dbn_.forecast(sites["north"], steps=1).mean
    np.testing.assert_allclose(ahead, np.asarray(forecast)[0], rtol=1e-10)


def test_graphml_is_read_without_networkx(dbn):
    root = ElementTree.fromstring(dbn.to_graphml())
    keys = {key.get("id"): (key.get("attr.name"), key.get("attr.type")) for key in root.iter(f"{GRAPHML}key")}
    # The types that GraphML knows, and xsd:boolean has small letters.
    assert {kind for _, kind in keys.values()} <= {"boolean", "int", "long", "float", "double", "string"}
    read = {
        "boolean": {"true": True, "false": False}.__getitem__,
        "long": int,
        "double": float,
        "string": str,
    }

    def values(element):
        found = [(*keys[data.get("key")], data.text) for data in element.iter(f"{GRAPHML}data")]
        return {name: read[kind](text) for name, kind, text in found}

    nodes = {node.get("id"): values(node) for node in root.iter(f"{GRAPHML}node")}
    assert {one["variable"] for one in nodes.values()} == set(dbn.variables)
    weights = np.zeros((3, 3, 3))
    is_open = []
    for edge in root.iter(f"{GRAPHML}edge"):
        about, source, target = values(edge), nodes[edge.get("source")], nodes[edge.get("target")]
        assert (source["lag"], target["lag"]) == (about["lag"], 0)
        weights[about["lag"], source["position"], target["position"]] = about["weight"]
        is_open += [] if about["oriented"] else [(source["variable"], target["variable"])]
    np.testing.assert_array_equal(weights, np.concatenate([dbn.W[None], dbn.A]))
    assert is_open == [("True", "b")]
    assert DBN.from_graphml(dbn.to_graphml()).equals(dbn)


def test_the_page_reads_keys_that_results_have(sites):
    stored = Result.from_estimator(OneShotDBN(n_lags=1).fit(sites)).to_dict()
    for chain in re.findall(r"(?<![\w$])result\$([\w$]+)", PAGE):
        value = stored
        for key in chain.split("$"):
            assert key in value, chain
            value = value[key]
