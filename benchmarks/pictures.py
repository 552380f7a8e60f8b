"""How the figures of the benchmarks are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def save(ax: Any, target: Path) -> None:
    """Write the figure of the axes; SVG files carry no date."""
    ax.get_figure().savefig(target, metadata={"Date": None} if target.suffix == ".svg" else None)
