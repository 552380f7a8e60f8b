"""Imports never go round in a circle, also those that are made only when a function is called."""

from __future__ import annotations

import ast
from pathlib import Path

import networkx as nx

SRC = Path(__file__).parents[2] / "src"
KNOWN: set[frozenset[str]] = {
    frozenset({"feddbn.methods.comparison", "feddbn.methods.registry", "feddbn.methods.studies"}),
    frozenset({"feddbn.core.backend.device", "feddbn.core.backend.torch_device"}),
}


def imported(tree: ast.AST, modules: set[str]) -> set[str]:
    """The modules that a module imports anywhere in its code, by a statement or by ``import_module("...")``."""
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & modules
            found |= inside or {str(node.module)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
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
    assert circles - KNOWN == set()
