"""What a text refers to: dotted names, files and tests; and whether they are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
_NAME = re.compile(r"(?<![\w./-])(?:feddbn|core|federation|runtime)(?:\.[A-Za-z_]\w*)+(?![\w/(]|\.\w)")
_ROOMS = ("feddbn", "core", "federation", "runtime")
_OWN = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)`(?!`)")
_FILE = re.compile(r"(?<![\w/.{}<~-])((?:[\w-]+/)*[\w-]+\.(?:py|md))\b(?!\.)")
_PATH = re.compile(r"`((?:src|tests|docs|tools|examples|benchmarks|deploy)/[\w./-]*)(?:::\w+)?`")
_BLOCK = re.compile(r"```(?:python|\{code-cell\}[^\n]*)\n(.*?)```", re.S)
# Where it begins a line it is a docstring.
_TRIPLE = re.compile(r'(^ *r?)?""".*?"""', re.S | re.M)
_COMMENT = re.compile(r"(?m)(?:^|\s)# .*$")
_TEST = re.compile(r"\btest_\w+")


@cache
def prose(path: Path) -> str:
    """Docstrings and comments of a module, or a page without its blocks of code and comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.S)
    said = [found[0] for found in _TRIPLE.finditer(text) if found[1] is not None]
    return "\n".join([*said, *_COMMENT.findall(text)])


def names_in(text: str) -> set[str]:
    """Dotted names of modules of the package, and of what is in them."""
    found = {name for name in _NAME.findall(text) if not name.endswith((".py", ".md"))}
    return {name if name.startswith("feddbn.") else f"feddbn.{name}" for name in found}


def names_in_code(page: str) -> set[str]:
    """Dotted names of the package that the blocks of Python of a page import or use."""
    found: set[str] = set()
    for block in _BLOCK.findall(page):
        for node in ast.walk(ast.parse(re.sub(r"^[:%].*$", "", block, flags=re.M))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("feddbn"):
                found.update(f"{node.module}.{one.name}" for one in node.names)
            elif isinstance(node, ast.Import):
                found.update(one.name for one in node.names if one.name.startswith("feddbn."))
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "feddbn":
                found.add(f"feddbn.{node.attr}")
    return found


def paths_in(text: str) -> set[str]:
    """Files and folders of the repository in backticks, from its root."""
    return set(_PATH.findall(text))


def files_in(text: str) -> set[str]:
    """Modules and pages named by a path."""
    return set(_FILE.findall(text))


def cited_tests(text: str) -> set[str]:
    """Names of tests, or of modules of tests."""
    return set(_TEST.findall(re.sub(r"\S+\.py\b", "", text)))


def own_names_in(text: str) -> set[str]:
    """Names in single backticks, which stand for something of this package; others' stand in double ones."""
    return {name for name in _OWN.findall(text) if name.split(".")[0] not in _ROOMS}


@cache
def words_of_the_code() -> frozenset[str]:
    """Every word of the package outside of docstrings and comments, which must not vouch for themselves."""
    words: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        words.update(path.with_suffix("").parts)
        text = path.read_text(encoding="utf-8")
        text = _TRIPLE.sub(lambda found: "" if found[1] is not None else found[0], text)
        words.update(re.findall(r"\w+", _COMMENT.sub("", text)))
    return frozenset(words)


def is_own_name(name: str) -> bool:
    """Whether every part of a name occurs in the code."""
    return words_of_the_code().issuperset(name.split("."))


@cache
def is_there(name: str) -> bool:
    """Whether a dotted name can be imported."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            if not hasattr(found, attribute) and attribute not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, attribute, None)
        return True
    return False


def is_file(name: str, beside: Path) -> bool:
    """Whether a path leads somewhere from the root, the package, the tests, the pages or beside, or names a module."""
    places = (ROOT, ROOT / "src" / "feddbn", ROOT / "tests", ROOT / "docs", beside.parent)
    return any((place / name).is_file() for place in places) or name in _modules()


@cache
def _modules() -> frozenset[str]:
    """Names of modules without their folders, as a page about a room gives them."""
    return frozenset(path.name for path in (ROOT / "src").rglob("*.py"))


@cache
def _source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def is_test(name: str) -> bool:
    """Whether ``path`` or ``path::test`` is there."""
    path, _, test = name.partition("::")
    return (ROOT / path).is_file() and (not test or f"def {test}(" in _source(ROOT / path))


def is_some_test(name: str) -> bool:
    """Whether some file has that name, or some file has a test of that name."""
    modules = (ROOT / "tests").rglob("test_*.py")
    return any(path.stem == name or f"def {name}(" in _source(path) for path in modules)
