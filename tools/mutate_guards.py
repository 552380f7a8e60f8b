"""Take each guard of a site out, one at a time, and say which of them no test notices.

A guard is a refusal (`raise SiteRefused(...)` and its kin) or a hook of a class of guards (`before`, `reads`, `make`,
`after`). Each is removed alone, and the tests run whose text names its code. For those that none of them notices, all tests
run once in a copy of the package that notes which test reaches which guard; then those tests run without the guard. One
that no test reaches, or notices, is named. `make mutants` does all; ``--only few-rows`` does some, ``--list`` none.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src") / "feddbn"
GUARDED = (
    "federation/guards/*.py",
    "federation/protocol/endpoint.py",
    "privacy/policy.py",
    "privacy/register.py",
    "privacy/ledger.py",
    "privacy/secagg_site.py",
    "runtime/site/owner.py",
    "runtime/site/protection.py",
    "runtime/site/registers.py",
    "runtime/site/open_site.py",
    "runtime/store.py",
)
TESTS = (
    "tests/contract",
    "tests/redteam",
    "tests/unit/federation/guards",
    "tests/unit/federation/protocol",
    "tests/unit/privacy",
    "tests/unit/runtime/server",
    "tests/unit/runtime/site",
    "tests/unit/runtime/test_store.py",
)
REFUSALS = (
    "SiteRefused",
    "AggregationError",
    "BudgetExceeded",
    "StateError",
    "FileError",
    "_damaged",
)
HOOKS = ("before", "reads", "make", "after")
MOST_TESTS = 40
"""Tests that run at once of those that reach a guard."""
AT_ONCE = 2
"""Guards that are tried at once, and processes that run all tests."""
MOST_S = 900.0
"""Seconds after which tests without a guard are taken to fail."""


NOTE = (
    "import os as _os; "
    "_noted = open(_os.environ['GUARDS_REACHED'], 'a'); "
    "_noted.write({name!r} + '\\t' + _os.environ.get('PYTEST_CURRENT_TEST', '') + '\\n'); "
    "_noted.close()\n"
)


@dataclass(frozen=True)
class Guarded:
    """One guard: where it is, what it is called, and the lines of its file that it is made of.

    Attributes
    ----------
    line, stop
        Its lines, from 1 on, the last included.
    inside
        Before which line a note can be made that it was reached.
    codes
        What a test that is about it names: the code of a refusal; of a hook, those of its class.
    gone
        What stands in its place without it.
    """

    path: Path
    line: int
    stop: int
    inside: int
    name: str
    codes: tuple[str, ...]
    gone: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.name}"

    def without(self, text: str) -> str:
        """The file without it."""
        lines = text.splitlines(keepends=True)
        return "".join([*lines[: self.line - 1], self.gone, *lines[self.stop :]])


def guards_of(path: Path, text: str) -> Iterator[Guarded]:
    """Yield the guards of a file."""
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _called(node.exc) in REFUSALS:
            codes = _codes(node)
            name = codes[0] if codes else _called(node.exc)
            stop = node.end_lineno or node.lineno
            yield Guarded(path, node.lineno, stop, node.lineno, name, codes, " " * node.col_offset + "pass\n")
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Guard") for base in node.bases):
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name in HOOKS and len(one.body) > 1:
                    at = one.lineno
                    gone = lines[at - 1].replace(f"def {one.name}(", f"def no_{one.name}(", 1)
                    name = f"{node.name}.{one.name}"
                    yield Guarded(path, at, at, one.body[1].lineno, name, _codes(node), gone)


def _codes(node: ast.AST) -> tuple[str, ...]:
    """Return the codes of the refusals in a piece of code."""
    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call) and _called(one) in REFUSALS]
    said = [word.value for call in calls for word in call.keywords if word.arg == "code"]
    return tuple(str(one.value) for one in said if isinstance(one, ast.Constant))


def noting(text: str, guards: Sequence[Guarded]) -> str:
    """A file that notes which of its guards a test reaches."""
    lines = text.splitlines(keepends=True)
    for one in sorted(guards, key=lambda one: one.inside, reverse=True):
        shown = lines[one.inside - 1]
        indent = shown[: len(shown) - len(shown.lstrip())]
        lines.insert(one.inside - 1, indent + NOTE.format(name=str(one)))
    return "".join(lines)


@contextmanager
def copied(texts: Mapping[Path, str]) -> Iterator[Path]:
    """A place with a copy of the package in which some files have other texts."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place)
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for path, text in texts.items():
            (copy / path).write_text(text, encoding="utf-8")
        yield copy


def reached(guards: Sequence[Guarded]) -> dict[str, list[str]]:
    """Return which tests reach each guard."""
    texts = {
        path: noting((ROOT / path).read_text(encoding="utf-8"), [one for one in guards if one.path == path])
        for path in {one.path for one in guards}
    }
    more = ["-n", str(AT_ONCE)] if importlib.util.find_spec("xdist") else []
    with copied(texts) as copy:
        notes = copy / "reached.txt"
        notes.touch()
        _pytest([*more, *TESTS], copy, {"GUARDS_REACHED": str(notes)})
        lines = notes.read_text(encoding="utf-8").splitlines()
    found: dict[str, list[str]] = {str(one): [] for one in guards}
    for line in lines:
        name, _, test = line.partition("\t")
        # Set-up that tests share has no test of its own; a note on a full disk may be torn.
        torn, test = "\t" in test or name not in found, test.rpartition(" ")[0]
        if test and not torn and test not in found[name]:
            found[name].append(test)
    return found


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def all_guards() -> list[Guarded]:
    """Return every guard."""
    paths = sorted({path for pattern in GUARDED for path in (ROOT / PACKAGE).glob(pattern)})
    return [
        one for path in paths for one in guards_of(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
    ]


def texts_of_tests() -> dict[str, str]:
    """Return the text of each test function, by how pytest calls it."""
    found = {}
    for path in _test_files():
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                lines = text.splitlines()[first - 1 : node.end_lineno]
                found[f"{path.relative_to(ROOT)}::{node.name}"] = "\n".join(lines)
    return found


def is_noticed(guard: Guarded, tests: Sequence[str]) -> bool:
    """Whether one of some tests fails without a guard."""
    gone = guard.without((ROOT / guard.path).read_text(encoding="utf-8"))
    with copied({guard.path: gone}) as copy:
        found = any(
            _fails(tests[first : first + MOST_TESTS], copy) for first in range(0, len(tests), MOST_TESTS)
        )
    print(f"{guard} {'noticed' if found else 'not yet noticed'} ({len(tests)} tests)", flush=True)
    return found


def _test_files() -> list[Path]:
    places = [ROOT / place for place in TESTS]
    return [
        one for place in places for one in ([place] if place.is_file() else sorted(place.rglob("test_*.py")))
    ]


def _pytest(
    asked: Sequence[str], copy: Path, more: Mapping[str, str], most_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    # In the copy nothing of an earlier mutant may be left, compiled or remembered.
    ours = {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1", **more}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *asked]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **ours},
        capture_output=True,
        text=True,
        check=False,
        timeout=most_s,
    )
    if done.returncode not in (0, 1, 2):
        sys.exit(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


def _fails(tests: Sequence[str], copy: Path) -> bool:
    try:
        done = _pytest(["-x", *tests], copy, {}, MOST_S)
    except subprocess.TimeoutExpired:
        # Without a limit on what may be asked, asking does not end.
        return True
    failed = re.findall(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode and copy != ROOT and failed and _fails([failed[0]], ROOT):
        sys.exit(f"{failed[0]} fails with all guards, too; mend it first.")
    return done.returncode != 0


def main() -> None:
    """Try every guard, or some, and end with 1 if one is not noticed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="guards with this in their line of --list")
    parser.add_argument("--list", action="store_true", help="list the guards and run nothing")
    chosen = parser.parse_args()
    guards = [one for one in all_guards() if chosen.only in str(one)]
    if chosen.list:
        print("\n".join(map(str, guards)))
        return
    texts = texts_of_tests()
    named = {
        str(one): [test for test, text in texts.items() if any(f'"{code}"' in text for code in one.codes)]
        for one in guards
    }
    left = _not_noticed(guards, named)
    tests = reached(left) if left else {}
    others = {name: [one for one in some if one not in named[name]] for name, some in tests.items()}
    left = _not_noticed(left, others)
    for one in left:
        print(f"{one} {'NOT NOTICED' if tests[str(one)] else 'NOT REACHED'}")
    print(f"{len(guards)} guards, {len(left)} that no test notices")
    sys.exit(bool(left))


def _not_noticed(guards: Sequence[Guarded], tests: Mapping[str, Sequence[str]]) -> list[Guarded]:
    """Return the guards that none of their tests notices."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        noticed = pool.map(lambda one: is_noticed(one, tests[str(one)]), guards)
        return [one for one, found in zip(guards, noticed, strict=True) if not found]


if __name__ == "__main__":
    main()
