"""Unit tests mirror the package, so that a module's tests are found without a search."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "src" / "feddbn"


def mirrors_a_module(path: Path) -> bool:
    """Whether a file of tests stands in the folder of a module that it imports from, or has the name of one of its files."""
    folder = path.parent.relative_to(TESTS / "unit")
    about, room = path.stem.removeprefix("test_"), ".".join(("feddbn", *folder.parts))
    if re.search(rf"(from|import) {re.escape(room)}\b", path.read_text(encoding="utf-8")):
        return True
    modules = [module.stem for module in (PACKAGE / folder).glob("*.py")]
    return any(about == module or about.startswith(f"{module}_") for module in modules)


def test_unit_tests_stand_where_what_they_test_does_or_say_that_they_test_several():
    lost = [
        str(path.relative_to(TESTS))
        for path in sorted((TESTS / "unit").rglob("test_*.py"))
        if not mirrors_a_module(path)
        and not path.read_text(encoding="utf-8").startswith('"""Several modules: ')
    ]
    assert lost == []


def test_helper_modules_are_in_one_package():
    allowed = {"conftest.py", "__init__.py"}
    elsewhere = [
        str(path.relative_to(TESTS))
        for path in sorted(TESTS.rglob("*.py"))
        if path.parent.name != "support" and path.name not in allowed and not path.name.startswith("test_")
    ]
    assert elsewhere == []
