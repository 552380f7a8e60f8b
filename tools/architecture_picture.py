"""Write docs/architecture.svg: `python tools/architecture_picture.py`; a test compares the picture with it.

Which room does what is said here; that the rooms exist, and in which order they lie, is read from the package.
"""

from __future__ import annotations

import re
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "architecture.svg"
INK, SOFT, LINE = "#1f2933", "#52606d", "#9aa5b1"
SITE, SERVER, SHARED = "#e3f2ec", "#e6eefb", "#fdf3dc"

SITE_STEPS = (
    ("rows", "files or frames, recordings, segments", ("data",)),
    ("treatment", "what is done to cells and recordings", ("federation.protocol", "core.designs")),
    ("design", "which columns a row has", ("core.designs",)),
    ("answer", "one vector: Gram, residuals, a step", ("federation.sums", "federation.programs")),
    ("guards", "may it leave? noise, masks, audit log", ("federation.guards", "privacy")),
)
SERVER_STEPS = (
    ("results", "file, tables, findings in words, pages", ("results", "analysis", "report")),
    ("network", "what variables do: forecast, effects", ("model",)),
    ("learner", "learn(gram, limits, rng)", ("core.orders", "core.penalised")),
    ("program", "generator: yields questions, gets sums", ("federation.sums", "federation.programs")),
    ("method", "settings, and which program to run", ("methods", "method_table")),
)
PLACES = (
    ("in one process", "runtime.simulated"),
    ("server", "runtime.server"),
    ("site", "runtime.site"),
    ("engine", "runtime.engines"),
)


def layers() -> list[str]:
    """Rooms from the highest to the lowest, as the import contract has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    return [", ".join(re.findall(r"feddbn\.(\w+)", layer)) for layer in contracts[0]["layers"]]


def check(room: str) -> str:
    """Return the name of a room or module, or refuse one that is not there."""
    path = ROOT / "src" / "feddbn" / Path(*room.split("."))
    if not ((path / "__init__.py").exists() or path.with_suffix(".py").exists()):
        raise SystemExit(f"there is no room {room!r}; say where it went in {Path(__file__).name}.")
    return room


def text(x: float, y: float, words: str, size: float = 13, colour: str = INK, **more: str) -> str:
    """A line of text."""
    given = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{colour}"{given}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, stroke: str = LINE) -> str:
    """A rectangle with round corners."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}" stroke="{stroke}"/>'


def arrow(x1: float, y1: float, x2: float, y2: float, **more: str) -> str:
    """A line with a head."""
    given = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    ends = f'x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"'
    return f'<line {ends} stroke="{SOFT}" stroke-width="1.6" marker-end="url(#head)"{given}/>'


def panel(
    x: float, title: str, steps: tuple[tuple[str, str, tuple[str, ...]], ...], fill: str, down: bool
) -> list[str]:
    """A column of steps and the arrows between them."""
    found = [
        box(x, 36, 290, 474, fill),
        text(x + 145, 58, title, 14, font_weight="bold", text_anchor="middle"),
    ]
    for k, (name, about, rooms) in enumerate(steps):
        y = 74 + k * 87
        found += [
            box(x + 14, y, 262, 66, "#ffffff"),
            text(x + 26, y + 20, name, 14, font_weight="bold"),
            text(x + 26, y + 38, about, 12),
            text(x + 26, y + 56, "  ".join(map(check, rooms)), 11, SOFT, font_family="monospace"),
        ]
        if k:
            ends = (y - 21, y - 2) if down else (y, y - 19)
            found.append(arrow(x + 145, ends[0], x + 145, ends[1]))
    return found


def picture() -> str:
    """The whole picture."""
    parts = [box(22 - shift, 36 - shift, 290, 474, SITE) for shift in (12, 6)]
    parts += panel(22, "a site: its rows stay here", SITE_STEPS, SITE, down=True)
    parts += panel(528, "the server: sees sums alone", SERVER_STEPS, SERVER, down=False)
    # A question goes to every site; what comes back is added up before anybody reads it.
    parts += [
        arrow(542, 352, 300, 196, stroke_dasharray="5 4"),
        box(352, 252, 136, 40, "#ffffff", "#ffffff"),
        text(420, 268, "question", 13, text_anchor="middle", font_weight="bold"),
        text(420, 285, "checked at both ends", 11.5, SOFT, text_anchor="middle"),
        arrow(298, 456, 380, 416),
        text(350, 412, "vector", 13, text_anchor="middle", font_weight="bold"),
        f'<circle cx="420" cy="397" r="38" fill="{SHARED}" stroke="{LINE}"/>',
        text(420, 403, "sum", 17, text_anchor="middle", font_weight="bold"),
        arrow(459, 392, 539, 378),
    ]
    for k, (place, room) in enumerate(PLACES):
        y = 462 + 16 * k
        parts += [
            text(410, y, place, 11, SOFT, text_anchor="end"),
            text(416, y, check(room), 10.5, SOFT, font_family="monospace"),
        ]
    parts += [text(846, 58, "imports point down", 13, font_weight="bold"), arrow(836, 70, 836, 508)]
    names = layers()
    step = 435 / len(names)
    parts += [text(848, 82 + step * k, name, 11, font_family="monospace") for k, name in enumerate(names)]
    head = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{SOFT}"/></marker></defs>'
    )
    size = 'viewBox="0 0 1024 526" width="1024" height="526"'
    lines = [head, '<rect width="1024" height="526" fill="#ffffff"/>', *parts]
    title = "A question goes from the server's program to every site; the answers are added up before anybody reads them"
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, Helvetica, Arial, sans-serif" role="img">\n'
        f"<title>{escape(title)}</title>\n{body}\n</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
