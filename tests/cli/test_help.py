"""The help of every command: options, examples that can be typed, where to read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from feddbn.cli.main import COMMANDS
from feddbn.cli.manual import PAGES, commands_below

ROOT = Path(__file__).parents[2]
ALL = {
    path: command
    for name, entry in COMMANDS.items()
    for path, command in commands_below(entry.load(name), name)
}


def headings(page):
    """Places of a page of the documentation that links can lead to."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_command_has_a_page_and_every_page_a_command():
    assert sorted(PAGES) == sorted(ALL), "add the command to feddbn/cli/manual.py"


@pytest.mark.parametrize("path", ALL)
def test_a_command_has_help_with_its_examples(run, path):
    outcome = run(*path.split(), "--help")
    assert outcome.exit_code == 0, outcome.output
    shown = "".join(outcome.output.split())
    assert all("".join(example.split()) in shown for example in PAGES[path].examples)
    assert [
        one.name for one in ALL[path].params if one.name != "help" and not getattr(one, "help", None)
    ] == []


@pytest.mark.parametrize("path", ALL)
def test_where_to_read_more_is_there(path):
    page, _, place = PAGES[path].more.partition("#")
    assert (ROOT / "docs" / page).is_file()
    assert not place or place in headings(ROOT / "docs" / page)


@pytest.mark.parametrize("path", ALL)
def test_examples_are_lines_that_are_understood(path):
    assert PAGES[path].examples
    for example in PAGES[path].examples:
        words = shlex.split(example, comments=True)
        words = (
            [word for word in words if not word.startswith("FEDDBN_KIT=")]
            if "FEDDBN_KIT=" in example
            else words
        )
        kit = ["--kit", "kit"] if "FEDDBN_KIT=" in example else []
        assert words[0] == "feddbn"
        shown = max((one for one in ALL if words[1 : 1 + len(one.split())] == one.split()), key=len)
        assert shown.startswith(path) or (path, shown) == ("update", "fit")
        assert not hasattr(ALL[shown], "commands")
        # Reads the line as the command would, and does not run it.
        ALL[shown].make_context(shown, [*words[1 + len(shown.split()) :], *kit])


def test_documents_kits_and_messages_name_commands_that_exist():
    """Typed lines only: in backticks, after a prompt, or at the beginning of a line."""
    typed = re.compile(
        r"(?:`|\$ |^ *(?:\d\. )?)feddbn ((?:study|site|federation) [a-z]+|[a-z]+)(?![\w.:/-])", re.M
    )
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src" / "feddbn").rglob("*.py")]
    texts += [
        *(ROOT / "src" / "feddbn").rglob("*.html"),
        *(ROOT / "r").rglob("*.R"),
    ]
    named = {
        (found[1], path.name) for path in texts for found in typed.finditer(path.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert {one for one in named if one[0] not in ALL} == set()
