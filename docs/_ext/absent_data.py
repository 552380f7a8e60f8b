"""Tutorials on other people's data: where the data are not there, the page says so and its cells are not run.

A tutorial names the file it needs in a comment on a line of its own: ``<!-- needs clif-demo/clif_vitals.parquet -->``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

__all__ = ["needed_file", "setup"]

_NEEDS = re.compile(r"^<!-- needs (\S+) -->$", re.M)
_NOTE = """
:::{{warning}}
**This copy of the page has no results.** The folder of other people's data (`FEDDBN_DATA`) had no `{file}` when the page was
built, so its code is shown and was not run. The page says where the data come from.
:::
"""


def needed_file(text: str) -> str | None:
    """Return the file under FEDDBN_DATA that a tutorial's text says it needs."""
    found = _NEEDS.search(text)
    return found[1] if found else None


def _is_there(file: str) -> bool:
    folder = os.environ.get("FEDDBN_DATA")
    return bool(folder) and (Path(str(folder)) / file).is_file()


def _exclude(app: Any, config: Any) -> None:
    absent = []
    for page in sorted(Path(app.srcdir, "tutorials").glob("*.md")):
        file = needed_file(page.read_text(encoding="utf-8"))
        if file and not _is_there(file):
            absent.append(f"tutorials/{page.name}")
    config.nb_execution_excludepatterns = (*config.nb_execution_excludepatterns, *absent)


def _add_note(app: Any, docname: str, source: list[str]) -> None:
    file = needed_file(source[0])
    if file and not _is_there(file):
        source[0] = _NEEDS.sub(lambda found: _NOTE.format(file=found[1]), source[0])


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx."""
    app.connect("config-inited", _exclude)
    app.connect("source-read", _add_note)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
