"""Docstrings of this package as reStructuredText.

They are written to be read in a terminal: formulas and tables are indented, and names like `W_raw_` and sums like |C| mean
what they say. Markup would read these as quotations, links and substitutions. Members of other packages are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

__all__ = ["escaped", "marked_up", "setup"]

_CODE = re.compile(r"(``.+?``|`[^`]+`)")
_UNDERSCORE = re.compile(r"(?<=\w)_(?!\w)")
_PLURAL = re.compile(r"(?<!`)(`[^`]+`)(?=\w)")
_DOCS = re.compile(r"\bdocs/([\w/-]+)\.md(?!\w)")
_RULE = re.compile(r"^-{3,}$")
_INDENT = "    "
_TYPE = re.compile(r":(?:var)?type\b")


def escaped(line: str) -> str:
    """Return a line of prose in which only what stands in backticks is markup; pages of this folder become links."""
    parts = _CODE.split(_PLURAL.sub(r"\1\\ ", line))
    for i in range(0, len(parts), 2):
        parts[i] = _UNDERSCORE.sub(r"\\_", parts[i]).replace("|", r"\|").replace("*", r"\*")
        parts[i] = _DOCS.sub(r":doc:`docs/\1.md </\1>`", parts[i])
    return "".join(parts)


def marked_up(lines: Iterable[str]) -> list[str]:
    """Return the lines with formulas and tables of the prose as literal blocks and the rest escaped.

    A paragraph with an indented line is a formula or a table. In sections with a rule below their heading ("Parameters")
    indentation says what belongs to which name, so nothing is a block there. Examples (from ``>>>`` to the next blank line)
    stay as they are.
    """
    given = list(lines)
    rules = [i for i, line in enumerate(given) if _RULE.match(line)]
    cut = rules[0] - 1 if rules else len(given)
    return [*_prose(given[:cut]), *_sections(given[cut:])]


def _prose(lines: list[str]) -> list[str]:
    found: list[str] = []
    was_literal = False
    for paragraph in _paragraphs(lines):
        is_literal = any(line.startswith(_INDENT) for line in paragraph)
        if is_literal:
            announced = was_literal or (len(found) > 1 and found[-2].endswith("::"))
            shift = "" if paragraph[0].startswith(_INDENT) else _INDENT
            found += [*([] if announced else ["::", ""]), *(shift + line for line in paragraph), ""]
        else:
            found += [*_sections(paragraph), ""]
        was_literal = is_literal
    return found


def _paragraphs(lines: list[str]) -> Iterator[list[str]]:
    for is_text, group in groupby(lines, key=lambda line: bool(line.strip())):
        if is_text:
            yield list(group)


def _sections(lines: list[str]) -> list[str]:
    found: list[str] = []
    in_example = False
    for line in lines:
        in_example = (in_example and bool(line.strip())) or line.lstrip().startswith(">>>")
        is_markup = in_example or bool(_RULE.match(line)) or line.endswith("::")
        found.append(line if is_markup else escaped(line))
    return found


def _before(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = marked_up(lines)


def _after(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Types that were put in meanwhile may end with an underscore (``numpy.str_``)."""
    lines[:] = [_UNDERSCORE.sub(r"\\_", line) if _TYPE.search(line) else line for line in lines]


def _skip(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    home = getattr(obj, "__module__", None) or getattr(getattr(obj, "fget", None), "__module__", None)
    return True if isinstance(home, str) and not home.startswith("feddbn") else None


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx; napoleon, which reads the sections, comes between the two."""
    app.connect("autodoc-process-docstring", _before, priority=100)
    app.connect("autodoc-process-docstring", _after, priority=900)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
