"""Imports never go round in a circle, also those made when a function is called, and the demo needs no extra package."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import networkx as nx

import feddbn
from feddbn.results.result import Result

SRC = Path(__file__).parents[2] / "src"


def imported(tree: ast.AST, modules: set[str]) -> set[str]:
    """The modules that a module imports anywhere in its code, by a statement or by ``import_module("...")``."""
    found, waiting = set(), [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & modules
            found |= inside or {str(node.module)}
        elif isinstance(node, ast.Call) and "import_module" in (
            getattr(node.func, "id", ""),
            getattr(node.func, "attr", ""),
        ):
            found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    return found & modules


def test_no_imports_go_round_in_a_circle():
    files = {
        ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): path
        for path in SRC.rglob("*.py")
    }
    graph = nx.DiGraph()
    for name, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        graph.add_edges_from((name, other) for other in imported(tree, set(files)) - {name})
    circles = {frozenset(group) for group in nx.strongly_connected_components(graph) if len(group) > 1}
    assert circles == set()


EXTRAS = (
    "pyarrow",
    "cryptography",
    "dp_accounting",
    "arch",
    "pooch",
    "nvflare",
    "starlette",
)
WITHOUT = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS}:
            raise ModuleNotFoundError(name, name=name.partition(".")[0])
sys.meta_path.insert(0, Absent())
import feddbn.cli.data, feddbn.cli.main
# Smaller than what people see, with all its methods.
feddbn.cli.data.simulate_demo = lambda n_sites, seed: feddbn.simulate(
    d=4, n_sites=n_sites, n_samples=200, random_state=seed
)
feddbn.cli.main.main()
"""


def test_the_demo_runs_with_a_plain_installation(tmp_path):
    command = [sys.executable, "-c", WITHOUT, "demo", "--out", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Alldata" in done.stdout
    assert len(list((tmp_path / "demo" / "data").glob("*.csv"))) == 10
    result = Result.load(tmp_path / "demo" / "result.json")
    assert result.truth.equals(feddbn.DBN.from_json(tmp_path / "demo" / "truth.json"))
    page = done.stdout.strip().splitlines()[-1].removeprefix("Report: ")
    assert Path(page).stat().st_size > 10_000


IN_STEPS = """
import sys
def loaded(*packages):
    return [name for name in sys.modules if name.startswith(packages)]
from feddbn.cli.main import app
try:
    app(["--help"])
except SystemExit:
    pass
assert not loaded("numpy", "pandas", "scipy", "sklearn", "matplotlib"), "help needs no numbers"
import feddbn.runtime.site.open_site, feddbn.federation.programs
from feddbn.privacy.policy import SitePolicy
SitePolicy().check_study("fdbnl", 3, True, None)
assert not loaded("feddbn.methods", "sklearn"), "a site needs no estimators"
from feddbn import DBN, FDBNL
assert not loaded("networkx"), "few people export graphs"
"""


def test_nothing_is_imported_before_it_is_needed():
    done = subprocess.run([sys.executable, "-c", IN_STEPS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
