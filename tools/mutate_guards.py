"""Take each guard of a site out, one at a time, and say which of them no test misses.

A guard is a refusal (`raise SiteRefused(...)` and its kin) or a hook of a class of guards (`before`, `reads`, `make`,
`after`). First all tests run once in a copy of the package that notes which test reaches which guard. Then each guard is
removed alone, and the tests that reach it run: one that no test reaches, or misses, is named. `make mutants` does all;
``--only few-rows`` does some, ``--list`` none.
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
    gone
        What stands in its place without it.
    """

    path: Path
    line: int
    stop: int
    inside: int
    name: str
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
            codes = [one.value for one in node.exc.keywords if one.arg == "code"]
            named = codes and isinstance(codes[0], ast.Constant)
            name = str(codes[0].value) if named else _called(node.exc)  # type: ignore[attr-defined]
            stop = node.end_lineno or node.lineno
            yield Guarded(path, node.lineno, stop, node.lineno, name, " " * node.col_offset + "pass\n")
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Guard") for base in node.bases):
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name in HOOKS and len(one.body) > 1:
                    at = one.lineno
                    gone = lines[at - 1].replace(f"def {one.name}(", f"def no_{one.name}(", 1)
                    yield Guarded(path, at, at, one.body[1].lineno, f"{node.name}.{one.name}", gone)


def noting(text: str, guards: Sequence[Guarded]) -> str:
    """A file that notes which of its guards a test reaches."""
    lines = text.splitlines(keepends=True)
    for one in sorted(guards, key=lambda one: one.inside, reverse=True):
        shown = lines[one.inside - 1]
        indent = shown[: len(shown) - len(shown.lstrip())]
        lines.insert(one.inside - 1, indent + NOTE.format(name=str(one)))
    return "".join(lines)


def reached(guards: Sequence[Guarded], copy: Path) -> dict[str, list[str]]:
    """Return which tests reach each guard."""
    notes = copy / "reached.txt"
    notes.touch()
    for path in {one.path for one in guards}:
        text = (ROOT / path).read_text(encoding="utf-8")
        (copy / path).write_text(noting(text, [one for one in guards if one.path == path]), encoding="utf-8")
    more = ["-n", "2"] if importlib.util.find_spec("xdist") else []
    _pytest([*more, *TESTS], copy, {"GUARDS_REACHED": str(notes)})
    for path in {one.path for one in guards}:
        shutil.copyfile(ROOT / path, copy / path)
    found: dict[str, list[str]] = {str(one): [] for one in guards}
    for line in notes.read_text(encoding="utf-8").splitlines():
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


def is_noticed(guard: Guarded, tests: Sequence[str], copy: Path) -> bool:
    """Whether one of the tests that reach a guard fails without it."""
    whole = (ROOT / guard.path).read_text(encoding="utf-8")
    about = guard.name.partition(".")[0]
    # Tests that name it first, then the others.
    near = [test for test in tests if about in (ROOT / test.partition("::")[0]).read_text(encoding="utf-8")]
    far = [test for test in tests if test not in near]
    # Where nothing can be written, on a full disk say, no note was made of a test that reaches it.
    named = [
        str(path) for path in _test_files() if f'code="{guard.name}"' in path.read_text(encoding="utf-8")
    ]
    (copy / guard.path).write_text(guard.without(whole), encoding="utf-8")
    try:
        return any(
            _fails(some[first : first + MOST_TESTS], copy)
            for some in (near, far, named)
            for first in range(0, len(some), MOST_TESTS)
        )
    finally:
        (copy / guard.path).write_text(whole, encoding="utf-8")


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
    """Try every guard, or some, and end with 1 if one is not missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="guards with this in their line of --list")
    parser.add_argument("--list", action="store_true", help="list the guards and run nothing")
    chosen = parser.parse_args()
    guards = [one for one in all_guards() if chosen.only in str(one)]
    if chosen.list:
        print("\n".join(map(str, guards)))
        return
    missed = 0
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place)
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
        tests = reached(guards, copy)
        for one in guards:
            noticed = is_noticed(one, tests[str(one)], copy)
            how = "noticed" if noticed else "NOT NOTICED" if tests[str(one)] else "NOT REACHED"
            print(f"{one} {how} ({len(tests[str(one)])} tests reach it)", flush=True)
            missed += not noticed
    print(f"{len(guards)} guards, {missed} that no test misses")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
