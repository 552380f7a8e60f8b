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
    "What a person may choose, by method. Names are those of the arguments in Python. On the command line a setting is given "
    "as `-p name=value`, in a study as a key under `[parameters]`.\n"
    'Settings that belong together are one object: `OneShotDBN(prepare=Prepare(robust="off"))` is '
    '`-p prepare.robust=off`, and `prepare.robust = "off"` in a study.\n'
    "This page is made from the settings (`python tools/settings_page.py`).\n"
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
        "Every method that learns from sums takes it; what a method cannot do is refused. "
        "`feddbn.AS_THEY_ARE` leaves rows as they are ([preparing data](preparing-data.md)).\n",
        f"{table(Prepare)}\n",
        "## How a table is read: `layout=Layout(...)`\n",
        "Whatever reads data takes it (`fit`, `check`, `confidence`, `compare_methods`, `select`, `update`, `summary`, "
        '`simulated`, `read_sites`), or its fields by name: `fit(rows, site="ward", time="t")`.\n',
        f"{table(Layout)}\n",
    ]
    shown: set[type[Settings]] = {Prepare}
    for method in METHODS.values():
        cls = method.load()
        parts += [f"## `{cls.__name__}`\n", f"{table(cls.settings)}\n"]
        for name, one in cls.settings.groups().items():
            if type(one) not in shown:
                shown.add(type(one))
                parts += [f"### `{name}={type(one).__name__}(...)`\n", f"{table(type(one))}\n"]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
