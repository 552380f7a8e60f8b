"""The page for R users and the R package: both are run where there is R; files are read by parsers that know no feddbn."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import feddbn
from feddbn import DBN, OneShotDBN
from feddbn.cli.main import app
from feddbn.results.result import Result

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "r.md").read_text(encoding="utf-8")
SITES = ("north", "south", "west")
# R knows no releases in the making.
RELEASE = feddbn.__version__.partition(".dev")[0]
PACKAGES = ("jsonlite", "igraph", "reticulate")


def run_r(folder, code, library=""):
    """What R prints; reticulate calls the Python that runs this."""
    (folder / "script.R").write_text(code, encoding="utf-8")
    places = {"RETICULATE_PYTHON": sys.executable, "R_LIBS": str(library), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["Rscript", "--vanilla", "script.R"],
        cwd=folder,
        env=os.environ | places,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A folder in which the R package is installed, as R builds it."""
    if shutil.which("Rscript") is None:
        pytest.skip("no R: install r-base-core, r-cran-jsonlite, r-cran-igraph and r-cran-reticulate")
    folder = tmp_path_factory.mktemp("r")
    lacking = run_r(folder, f"for (p in c{PACKAGES}) if (!nzchar(system.file(package = p))) cat(p, '')")
    if lacking:
        pytest.skip(f"R lacks {lacking}(Debian: r-cran-...)")
    for command in (
        ["build", str(ROOT / "r")],
        ["INSTALL", "-l", ".", f"feddbn_{RELEASE}.tar.gz"],
    ):
        done = subprocess.run(["R", "CMD", *command], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "WARNING" not in done.stdout + done.stderr
    return folder


def without_output(block):
    return re.sub(r"^#>.*\n", "", block, flags=re.M)


@pytest.mark.slow
def test_every_block_of_the_page_prints_what_it_says(library, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (commands,) = re.findall(r"```sh\n(.*?)```", PAGE, re.S)
    for line in commands.splitlines():
        outcome = CliRunner().invoke(app, shlex.split(line)[1:], prog_name="feddbn")
        assert outcome.exit_code == 0, f"{line}: {outcome.output}"
    # The first installs the package from the network.
    blocks = re.findall(r"```r\n(.*?)```", PAGE, re.S)[1:]
    assert len(blocks) > 8
    code = "".join(f"{without_output(block)}cat('====\\n')\n" for block in blocks)
    printed = run_r(tmp_path, code, library).split("====\n")[:-1]
    expected = [re.findall(r"^#> ?(.*)$", block, re.M) for block in blocks]
    assert [[line.rstrip() for line in text.splitlines()] for text in printed] == expected
    made = {path.name for path in tmp_path.iterdir()}
    assert {"network.pdf", "report.html", "model.json", "model.graphml"} <= made


def stored_networks(dbn):
    """Networks of every shape: two lags and an open edge, one variable, no lags, no edges."""
    one = DBN(np.zeros((1, 1)), np.array([[[1 / 3]]]), ("é",), np.array([0.1]), np.array([1.0]))
    static = DBN(np.array([[0, 0.7], [0, 0]]), np.zeros((0, 2, 2)), ("a", "b"), np.zeros(2), np.ones(2))
    empty = DBN(np.zeros((2, 2)), np.zeros((1, 2, 2)), ("a", "b"), np.zeros(2), np.ones(2))
    return {"two-lags": dbn, "one": one, "static": static, "empty": empty}


@pytest.mark.slow
def test_the_package_reads_the_same_doubles_edges_and_effects(library, tmp_path, dbn):
    networks = stored_networks(dbn)
    for name, network in networks.items():
        network.to_json(tmp_path / f"{name}.json")
    # jsonlite reads doubles as they are, and writes 15 digits of them.
    code = r"""
    library(feddbn)
    whole <- function(array) sprintf("%.17g", aperm(array))
    for (name in NAMES) {
      n <- read_network(paste0(name, ".json"))
      edges <- transform(as.data.frame(n), weight = whole(as.array(weight)))
      moved <- effects(n, horizon = 4)
      nodes <- igraph::V(igraph::as.igraph(n, unrolled = TRUE))$name
      told <- list(W = whole(n$W), A = whole(n$A), intercept = whole(as.array(n$intercept)), edges = edges, moved = moved,
                   nodes = nodes, printed = capture.output(print(n)))
      cat(jsonlite::toJSON(told, digits = NA), "\n", sep = "")
    }
    """.replace("NAMES", f"c{tuple(networks)}")
    lines = run_r(tmp_path, code, library).splitlines()
    for network, line in zip(networks.values(), lines, strict=True):
        read = json.loads(line)
        for key, array in (("W", network.W), ("A", network.A), ("intercept", network.intercept)):
            assert [float(text) for text in read[key]] == array.ravel().tolist()
        columns = ["source", "target", "lag", "weight", "oriented"]
        edges = [tuple((row | {"weight": float(row["weight"])})[c] for c in columns) for row in read["edges"]]
        assert sorted(edges) == sorted(network.edges()[columns].itertuples(index=False, name=None))
        moved = {(row["step"], row["source"], row["target"]): row["effect"] for row in read["moved"]}
        responses = network.impulse_responses(4)
        for (h, i, j), value in np.ndenumerate(responses):
            assert moved[h, network.variables[i], network.variables[j]] == pytest.approx(value, abs=1e-14)
        assert set(read["nodes"]) == set(network.to_networkx().nodes)
        assert f"edges: {len(network.edges())}" in read["printed"][0]


@pytest.mark.slow
def test_the_package_refuses_what_it_would_misread(library, tmp_path, dbn):
    stored = dbn.to_dict()
    files = {
        "newer": stored | {"version": 5},
        "other": {"format": "something"},
        "curved": stored | {"nodes": [{"terms": [{"basis": "spline"}]}]},
        "result": {"format": "feddbn-result", "version": 1, "dbn": stored, "edges": [], "personal": None},
    }
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    code = """
    library(feddbn)
    said <- function(expression) tryCatch({expression; "nothing"}, error = conditionMessage)
    for (name in c("newer", "other", "curved", "broken", "absent")) writeLines(said(read_network(paste0(name, ".json"))))
    writeLines(said(read_network("result.json", of = "north")))
    writeLines(said(effects(structure(list(is_straight = FALSE), class = "feddbn_network"))))
    """
    told = run_r(tmp_path, code, library).splitlines()
    parts = ("up to 4", "neither", "has curves", "neither", "is no file", "north", "depend")
    assert len(told) == len(parts)
    assert all(part in sentence for part, sentence in zip(parts, told, strict=True)), told


@pytest.mark.slow
def test_tables_cross_between_r_and_python_without_loss(library, tmp_path):
    # Both ways in one script: the start of Python within R takes longest.
    code = """
    library(feddbn)
    py <- reticulate::py_run_string("import pandas
    table = pandas.DataFrame({'a b': [1/3, float('nan')], 'n': [1, 2], 's': ['x', None], 'yes': [True, False]})
    none = pandas.DataFrame({'a': [], 'b': []})
    def told(frame):
        return str([frame.isna().to_numpy().sum(axis=0).tolist(), [column[0] for column in frame.to_dict('list').values()]])
    ")
    frame <- as_frame(py$table)
    writeLines(c(sprintf("%.17g", frame[["a b"]]), class(frame$n), frame$s, class(frame$yes)))
    dim(as_frame(py$none))
    rows <- data.frame(n = c(1L, NA), yes = c(TRUE, NA), s = c("u", NA), f = factor(c("u", NA)), x = c(0.5, NA), k = 1:2)
    sites <- as_sites(list(north = list(rows), south = rows))
    writeLines(c(py$told(sites$north[[1]]), py$told(sites$south)))
    """
    third, *told = run_r(tmp_path, dedent(code), library).splitlines()
    assert float(third) == 1 / 3
    assert told[:6] == ["NaN", "integer", "x", "NA", "logical", "[1] 0 2"]
    assert told[6:] == ["[[1, 1, 1, 1, 1, 0], [1.0, 1.0, 'u', 'u', 0.5, 1]]"] * 2


def test_the_package_has_the_version_of_the_project():
    description = (ROOT / "r" / "DESCRIPTION").read_text(encoding="utf-8")
    assert f"\nVersion: {RELEASE}\n" in description


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


def test_frames_and_matrices_as_r_hands_them_over_give_the_same_network(sites):
    expected = OneShotDBN(n_lags=1).fit(sites)
    # R's matrices are stored by columns; its lists of frames are lists.
    from_r = {name: [frame.copy(deep=True)] for name, frame in sites.items()}
    assert OneShotDBN(n_lags=1).fit(from_r).dbn_.equals(expected.dbn_)
    by_columns = {name: np.asfortranarray(frame.to_numpy()) for name, frame in sites.items()}
    np.testing.assert_array_equal(OneShotDBN(n_lags=1).fit(by_columns).W_, expected.W_)


def test_the_page_reads_keys_that_results_have(sites):
    stored = Result.from_estimator(OneShotDBN(n_lags=1).fit(sites)).to_dict()
    for chain in re.findall(r"(?<![\w$])result\$([\w$]+)", PAGE):
        value = stored
        for key in chain.split("$"):
            assert key in value, chain
            value = value[key]
