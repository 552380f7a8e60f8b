"""Take each guard of a site out, one at a time, and say which of them no test misses.

A guard is a refusal (`raise SiteRefused(...)` and its kin) or a hook of a class of guards (`before`, `reads`, `make`,
`after`). Each is removed alone in a copy of the package, and the tests that could notice run: those that name the refusal's
code or the class first, then all of `TESTS`. `make mutants` does all of them, which takes hours; ``--only few-rows`` does
some, ``--list`` none.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src") / "feddbn"
GUARDED = (
    "federation/guards/*.py",
    "federation/protocol/endpoint.py",
    "federation/protocol/study.py",
    "privacy/policy.py",
    "privacy/register.py",
    "privacy/ledger.py",
    "privacy/secagg_site.py",
    "runtime/deployed/owner.py",
    "runtime/deployed/protection.py",
    "runtime/deployed/registers.py",
    "runtime/deployed/open_site.py",
)
TESTS = (
    "tests/redteam",
    "tests/unit/federation/guards",
    "tests/unit/federation/protocol",
    "tests/unit/privacy",
    "tests/unit/runtime/deployed",
)
REFUSALS = ("SiteRefused", "AggregationError", "BudgetExceeded", "PrivacyError", "StateError", "FileError")
HOOKS = ("before", "reads", "make", "after")


@dataclass(frozen=True)
class Mutant:
    """One guard: where it is, what tests call it, and the file's text without it."""

    path: Path
    line: int
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.name}"


def mutants(path: Path, text: str) -> Iterator[Mutant]:
    """Yield a file without each of its guards."""
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _called(node.exc) in REFUSALS:
            codes = [one.value for one in node.exc.keywords if one.arg == "code"]
            named = codes and isinstance(codes[0], ast.Constant)
            name = str(codes[0].value) if named else _called(node.exc)  # type: ignore[attr-defined]
            gone = [" " * node.col_offset + "pass\n"]
            yield Mutant(
                path,
                node.lineno,
                name,
                "".join([*lines[: node.lineno - 1], *gone, *lines[node.end_lineno :]]),
            )
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Guard") for base in node.bases):
            for one in node.body:
                if isinstance(one, ast.FunctionDef) and one.name in HOOKS:
                    at = one.lineno - 1
                    gone = [lines[at].replace(f"def {one.name}(", f"def no_{one.name}(", 1)]
                    yield Mutant(
                        path,
                        one.lineno,
                        f"{node.name}.{one.name}",
                        "".join([*lines[:at], *gone, *lines[at + 1 :]]),
                    )


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def all_mutants() -> list[Mutant]:
    """Return every guard, taken out."""
    paths = sorted({path for pattern in GUARDED for path in (ROOT / PACKAGE).glob(pattern)})
    return [
        one for path in paths for one in mutants(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
    ]


def is_noticed(mutant: Mutant, copy: Path, thorough: bool) -> bool:
    """Whether a test fails without this guard."""
    place, whole = copy / mutant.path, (ROOT / mutant.path).read_text(encoding="utf-8")
    about = mutant.name.partition(".")[0]
    files = sorted(path for room in TESTS for path in (ROOT / room).rglob("test_*.py"))
    near = [path for path in files if about in path.read_text(encoding="utf-8")]
    far = [path for path in files if path not in near] if thorough or not near else []
    place.write_text(mutant.text, encoding="utf-8")
    try:
        return any(_fails(some, copy) for some in (near, far) if some)
    finally:
        place.write_text(whole, encoding="utf-8")


def _fails(files: list[Path], copy: Path) -> bool:
    # In the copy nothing of an earlier mutant may be left, compiled or remembered.
    more = {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *map(str, files)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **more}, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1, 2):
        sys.exit(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode and copy != ROOT and failed and _fails([Path(failed[0])], ROOT):
        sys.exit(f"{failed[0]} fails with all guards, too; mend it first.")
    return done.returncode != 0


def main() -> None:
    """Try every guard, or some, and end with 1 if one is not missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="guards with this in their line of --list")
    parser.add_argument("--list", action="store_true", help="list the guards and run nothing")
    parser.add_argument(
        "--near", action="store_true", help="only tests that name the guard, where there are any"
    )
    chosen = parser.parse_args()
    found = [one for one in all_mutants() if chosen.only in str(one)]
    missed = []
    with tempfile.TemporaryDirectory() as place:
        if not chosen.list:
            shutil.copytree(ROOT / "src", Path(place) / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for one in found:
            noticed = chosen.list or is_noticed(one, Path(place), not chosen.near)
            print(one, "" if chosen.list else "noticed" if noticed else "NOT NOTICED", flush=True)
            missed += [] if noticed else [one]
    print(f"{len(found)} guards" + ("" if chosen.list else f", {len(missed)} that no test misses"))
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
