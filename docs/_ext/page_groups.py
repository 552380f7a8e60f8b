"""The groups of the site's pages, as docs/index.md lists them: its headings and their lists of links.

The list is there once, for people who read the folder on a code host and for the site's sidebar alike.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["groups_in", "setup", "toctrees"]

_COMMENT = re.compile(r"<!--.*?-->", re.S)
_HEADING = re.compile(r"^## (.+)$", re.M)
_ITEM = re.compile(r"^- \[([^\]]+)\]\(([\w./-]+)\.md\)", re.M)


def groups_in(index: str) -> dict[str, dict[str, str]]:
    """Return heading -> page (without ``.md``) -> short title of docs/index.md; headings without pages are left out."""
    parts = _HEADING.split(_COMMENT.sub("", index))
    found = {
        heading: {page: title for title, page in _ITEM.findall(text)}
        for heading, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    return {heading: pages for heading, pages in found.items() if pages}


def toctrees(index: str) -> str:
    """Return what the site's sidebar needs: one hidden table of contents per group."""
    return "".join(
        f"\n\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n"
        + "\n".join(f"{title} <{page}>" for page, title in pages.items())
        + "\n```\n"
        for heading, pages in groups_in(index).items()
    )


def _add(app: Any, docname: str, source: list[str]) -> None:
    if docname == app.config.root_doc:
        source[0] += toctrees(source[0])


def setup(app: Any) -> dict[str, bool]:
    """Tell Sphinx."""
    app.connect("source-read", _add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
