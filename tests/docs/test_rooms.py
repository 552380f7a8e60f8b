"""Every room says in its `__init__` what it is for and, in its last line, what it may import."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "feddbn"
ROOMS = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = [re.findall(r"feddbn\.(\w+)", layer) for layer in CONTRACTS[0]["layers"]]
PLACE = {name: k for k, names in enumerate(LAYERS) for name in names}


def name_of(room: Path) -> str:
    return ".".join(room.relative_to(PACKAGE).parts)


def docstring(room: Path) -> list[str]:
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8")))
    return (text or "").splitlines()


def said(room: Path) -> list[str]:
    """What the last line says that the room may import, as it stands there."""
    found = re.fullmatch(r"May import: ([\w., ]+)\.", docstring(room)[-1])
    assert found, f"{name_of(room)}: the last line must be 'May import: ..., ... and below.'"
    return found[1].split(", ")


def allowed(name: str) -> set[str]:
    """What one entry of that line allows: itself, and with "and below" every layer under it."""
    top = name.removesuffix(" and below")
    return {top} if top == name else {one for layer in LAYERS[PLACE[top] :] for one in layer}


def modules_named(file: Path) -> set[str]:
    """Every module of this package that a file imports, at its top or within a function."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}: imports name whole modules"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.removeprefix("feddbn.") for name in found if name.startswith("feddbn.")}


def imported(room: Path) -> set[str]:
    """What a room and the rooms in it import: of other houses their names, of its own house what stands in it."""
    own, house = name_of(room), name_of(room).split(".")[0]
    found = set()
    for file in room.rglob("*.py"):
        for name in modules_named(file):
            parts = name.split(".")
            if not f"{name}.".startswith(f"{own}.") and parts[0] != "_version":
                found.add(".".join(parts[:2]) if parts[0] == house else parts[0])
    return found - {house}


def usual_line(room: Path) -> str:
    """The line as it should be: names, or the highest of them "and below" where there are many."""
    real = imported(room)
    own, others = sorted(n for n in real if "." in n), sorted(n for n in real if "." not in n)
    if len(others) > 4:
        others = [f"{min(others, key=PLACE.__getitem__)} and below"]
    return f"May import: {', '.join([*own, *others])}."


@pytest.mark.parametrize("room", ROOMS, ids=name_of)
def test_a_room_says_what_it_is_for_and_what_it_may_import(room):
    lines, real = docstring(room), imported(room)
    assert len(lines) >= 3
    assert lines[0].endswith((".", ":")), "the first line is a sentence"
    entries = said(room)
    assert real <= set().union(*map(allowed, entries)), usual_line(room)
    # No entry is idle.
    assert {entry.removesuffix(" and below") for entry in entries} <= real, usual_line(room)


@pytest.mark.parametrize("room", ROOMS, ids=name_of)
def test_a_room_may_import_only_what_lies_below_it(room):
    house = name_of(room).split(".")[0]
    for name in {one.split(".")[0] for one in set().union(*map(allowed, said(room)))} - {house}:
        assert PLACE[name] > PLACE[house], f"{house} lies below {name}"


def test_the_page_is_one_page_with_one_picture_and_names_the_rooms_in_their_order():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 110
    assert re.findall(r"!\[[^]]*\]\(([^)]*)\)", page) == ["architecture.svg"]
    listed = page.split("## Rooms\n")[1].split("\n## ")[0]
    heads = [line.strip().split("  ")[0] for line in listed.splitlines() if line.startswith("    ")]
    assert [name for head in heads for name in head.split(", ")] == [
        name for layer in LAYERS for name in layer
    ]


def test_the_picture_is_that_of_the_code(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from architecture_picture import PICTURE, picture

    assert PICTURE.read_text(encoding="utf-8") == picture(), "python tools/architecture_picture.py writes it"
