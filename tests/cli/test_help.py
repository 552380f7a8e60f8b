"""The help of every command, as a manual page: purpose, options, examples that can be typed, exit codes, where to read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from feddbn.cli.main import COMMANDS, OLD_NAMES, renamed
from feddbn.cli.manual import EXIT_CODES, PAGES, commands_below

ROOT = Path(__file__).parents[2]
ALL = {
    path: command
    for name, entry in COMMANDS.items()
    for path, command in commands_below(entry.load(name), name)
}
WIDTH = 80


def headings(page):
    """Places of a page of the documentation that links can lead to."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_command_has_a_page_and_every_page_a_command():
    assert sorted(PAGES) == sorted(ALL), "add the command to feddbn/cli/manual.py"


@pytest.mark.parametrize("path", ALL)
def test_a_command_says_what_it_is_for_in_one_sentence_and_what_every_option_does(path):
    command = ALL[path]
    purpose = command.help.split("\n\n")[0].replace("\n", " ").strip()
    assert purpose[0].isupper()
    assert purpose.endswith(".")
    assert ". " not in purpose
    assert len(purpose) < 120
    silent = [one.name for one in command.params if one.name != "help" and not getattr(one, "help", None)]
    assert silent == []


@pytest.mark.parametrize("path", ALL)
def test_the_help_shows_examples_exit_codes_and_where_to_read(run, monkeypatch, path):
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("TERMINAL_WIDTH", str(WIDTH))
    outcome = run(*path.split(), "--help")
    assert outcome.exit_code == 0, outcome.output
    assert f"Usage: feddbn {path}" in outcome.output
    lines = [line.strip() for line in outcome.output.splitlines()]
    assert max(len(line) for line in lines) <= WIDTH
    after = lines[lines.index("Examples") :]
    for example in PAGES[path].examples:
        # In one piece, so that it can be copied.
        assert f"$ {example}" in after
    text = " ".join(after)
    for code in EXIT_CODES:
        assert re.search(rf"(codes:|;) {code}: \w", text), code
    assert "Read more: https://" in text


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


def test_the_first_page_has_exit_codes_and_what_to_begin_with(run):
    text = " ".join(run("--help").output.split())
    assert "Start with: feddbn demo" in text
    assert "130: interrupted" in text


def test_old_names_still_work_and_say_the_new_one(run):
    known = {tuple(path.split()) for path in ALL}
    for old, new in OLD_NAMES.items():
        assert old not in known
        words = tuple(word for word in new if not word.startswith("--"))
        assert any(
            words[: len(path)] == path for path in known if not hasattr(ALL[" ".join(path)], "commands")
        )
        done = run(*old, "--help")
        assert done.exit_code == 0
        assert f"`feddbn {' '.join(new)}`" in done.stderr
    # Old options are read, too.
    assert renamed(["site", "adopt", "--settings", "north/local/feddbn_site.toml"])[-2:] == ["--kit", "north"]
    assert renamed(["audit", "heads", "--compare", "a.json"]) == ["site", "verify", "--heads", "a.json"]


def test_documents_kits_and_messages_name_commands_that_exist():
    """Typed lines only: in backticks, after a prompt, or at the beginning of a line."""
    typed = re.compile(
        r"(?:`|\$ |^ *(?:\d\. )?)feddbn ((?:study|site|federation) [a-z]+|[a-z]+)(?![\w.:/-])", re.M
    )
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src" / "feddbn").rglob("*.py")]
    texts += [
        *(ROOT / "src" / "feddbn").rglob("*.html"),
        *(ROOT / "r").rglob("*.R"),
        ROOT / "deploy" / "compose.yaml",
    ]
    named = {
        (found[1], path.name) for path in texts for found in typed.finditer(path.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    # A sentence may begin with the name of the package.
    assert {one for one in named if one[0] not in ALL} - {("follows", "versions.md")} == set()
