"""Tests hold to codes, names and numbers, so that a sentence can be rewritten without them.

`python tests/docs/test_wording_assertions.py` counts per file; with names of files it lists their lines.
Prose is a literal with three ordinary lower-case words in a row. Counted are asserts that compare with such a literal,
also through a name, `match=` of pytest's `raises` and `warns`, and what is handed to an argument that is so compared:
a case of `parametrize`, or a call of a helper in the same file.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
# Where sentences are made, sentences are tested.
WORDS = TESTS / "unit" / "words"
LIMIT = 200
PROSE = re.compile(r"(?<![\w=./\[-])(?:(?:[a-z]{2,}|a)[,;:]? ){2}[a-z]{2,}(?![\w=(/\]])")


def is_prose(node: ast.AST) -> bool:
    """Whether a literal below this node has three ordinary words in a row."""
    return any(PROSE.search(literal.value.replace(r"\ ", " ")) for literal in literals(node))


def literals(node: ast.AST) -> Iterator[ast.Constant]:
    return (n for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))


def called(node: ast.Call) -> str:
    return getattr(node.func, "attr", None) or getattr(node.func, "id", "")


def names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def compared(tree: ast.AST) -> Iterator[ast.AST]:
    """What is compared with: the tests of asserts, without what is only shown, and patterns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield node.test
        elif isinstance(node, ast.Call) and called(node) in {"raises", "warns", "RaisesExc"}:
            yield from (word.value for word in node.keywords if word.arg == "match")


def sentences(statements: list[ast.stmt]) -> set[str]:
    """Names that stand for prose."""
    return {
        target.id
        for node in statements
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.JoinedStr | ast.Tuple)
        if is_prose(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def cases(decorator: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The arguments of a test and the values that `parametrize` hands to them."""
    if not (
        isinstance(decorator, ast.Call) and called(decorator) == "parametrize" and len(decorator.args) > 1
    ):
        return
    listed, values = decorator.args[:2]
    order = [name.strip() for text in literals(listed) for name in text.value.split(",")]
    for case in getattr(values, "elts", [values]):
        parts = case.args if isinstance(case, ast.Call) and called(case) == "param" else [case]
        if len(parts) == 1 and len(order) > 1:
            parts = getattr(parts[0], "elts", parts)
        yield from zip(order, parts, strict=False)


def wording_assertions(path: Path) -> list[int]:
    """The lines of a file that hold to wording."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    told = sentences(tree.body)
    lines = {node.lineno for node in compared(tree) if is_prose(node) or names(node) & told}
    nodes = [*ast.walk(tree)]
    calls: dict[str, list[ast.Call]] = {}
    for node in nodes:
        if isinstance(node, ast.Call):
            calls.setdefault(called(node), []).append(node)
    for function in (node for node in nodes if isinstance(node, ast.FunctionDef)):
        told = sentences(function.body)
        held = [(names(node), node.lineno) for node in compared(function)]
        lines |= {line for used, line in held if used & told}
        order = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
        handed = [pair for decorator in function.decorator_list for pair in cases(decorator)]
        for call in calls.get(function.name, []):
            handed += [*zip(order, call.args, strict=False), *((w.arg, w.value) for w in call.keywords)]
        used = {name for some, _ in held for name in some} & set(order)
        lines |= {value.lineno for name, value in handed if name in used and is_prose(value)}
    return sorted(lines)


def counts() -> dict[str, int]:
    """How many assertions on wording a file has, the most first; files without one are left out."""
    found = {
        str(path.relative_to(TESTS)): len(wording_assertions(path))
        for path in sorted(TESTS.rglob("*.py"))
        if WORDS not in path.parents
    }
    return dict(sorted(((name, n) for name, n in found.items() if n), key=lambda row: -row[1]))


def test_few_tests_hold_to_wording():
    assert sum(counts().values()) <= LIMIT


if __name__ == "__main__":
    for name in sys.argv[1:]:
        text = Path(name).read_text(encoding="utf-8").splitlines()
        for line in wording_assertions(Path(name)):
            sys.stdout.write(f"{name}:{line}: {text[line - 1].strip()}\n")
    if len(sys.argv) == 1:
        found = counts()
        for name, n in found.items():
            sys.stdout.write(f"{n:5d} {name}\n")
        sys.stdout.write(f"{sum(found.values()):5d} in all, limit {LIMIT}\n")
