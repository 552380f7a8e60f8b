"""Write docs/settings.md from the settings themselves: `python tools/settings_page.py`; a test compares the page with it."""

from __future__ import annotations

from pathlib import Path

from feddbn.data.layout import Layout
from feddbn.federation.sums.prepare import Prepare
from feddbn.method_table import METHODS
from feddbn.settings import Settings, in_order

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
HEAD = (
    "# Every setting\n\n"
    "This page lists the settings of every method. In Python they are arguments. On the command line, write `-p name=value`. "
    "In a study, they are keys under `[parameters]`.\n"
    'Related settings form one object: `OneShotDBN(prepare=Prepare(robust="off"))` is '
    '`-p prepare.robust=off`, and `prepare.robust = "off"` in a study.\n'
    "`python tools/settings_page.py` generates this page.\n"
)


def table(kind: type[Settings]) -> str:
    """One line per setting: name, default, what it may be, what it is for."""
    lines = ["| setting | default | may be | what it is for |", "|---|---|---|---|"]
    for one in in_order(kind):
        if one.name == "federation":
            continue
        shown = repr(one.default).replace("'", '"')
        may_be = ", ".join(one.metadata["rule"].passing).replace("'", '"')
        about = " ".join(one.metadata["about"].split()).replace("``", "`")
        lines.append(f"| `{one.name}` | `{shown}` | {may_be} | {about} |".replace("|->", "->"))
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    parts = [
        HEAD,
        "## What is done to the rows: `prepare=Prepare(...)`\n",
        "Most methods have these settings; a method refuses those that it does not support. "
        "`feddbn.AS_THEY_ARE` leaves rows unchanged ([preparing data](preparing-data.md)).\n",
        f"{table(Prepare)}\n",
        "## How a table is read: `layout=Layout(...)`\n",
        "All functions that read data accept a layout (`fit`, `check`, `confidence`, `compare_methods`, `select`, `update`, "
        '`summary`, `simulated`, `read_sites`), or its fields by name: `fit(rows, site="ward", time="t")`.\n',
        f"{table(Layout)}\n",
    ]
    shown: set[type[Settings]] = {Prepare}
    tables: dict[str, str] = {}
    for method in METHODS.values():
        cls = method.load()
        first = tables.setdefault(table(cls.settings), cls.__name__)
        same = "" if first == cls.__name__ else f"As `{first}`."
        parts += [f"## `{cls.__name__}`\n", f"{same or table(cls.settings)}\n"]
        for name, one in cls.settings.groups().items():
            if type(one) not in shown:
                shown.add(type(one))
                parts += [f"### `{name}={type(one).__name__}(...)`\n", f"{table(type(one))}\n"]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
