"""CPU seconds, peak memory and tables: what every benchmark here is written with."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Size = Literal["tiny", "quick", "full"]


@dataclass
class Table:
    """One table: columns, rows of plain values, and a sentence on how it was measured."""

    title: str
    columns: list[str]
    rows: list[list[Any]] = field(default_factory=list)
    note: str = ""

    def add(self, *cells: Any) -> None:
        self.rows.append(list(cells))

    def text(self) -> str:
        cells = [[_cell(c) for c in row] for row in self.rows]
        widths = [max(len(str(x)) for x in column) for column in zip(self.columns, *cells, strict=True)]

        def line(row):
            return "| " + " | ".join(str(c).ljust(w) for c, w in zip(row, widths, strict=True)) + " |"

        rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
        body = "\n".join([line(self.columns), rule, *(line(row) for row in cells)])
        return f"\n### {self.title}\n\n{body}\n" + (f"\n{self.note}\n" if self.note else "")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)


def cpu_seconds(work: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """Return the least CPU time of `repeats` runs and the last result: other processes cost wall clock, not CPU time."""
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """Return the slope of log(seconds) over log(size)."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def in_fresh_process(code: str) -> tuple[float, float, str]:
    """Run code in a new interpreter; return its CPU seconds, peak megabytes and what it printed."""
    meter = (
        "import resource as _r, sys as _s\n"
        "_u = _r.getrusage(_r.RUSAGE_SELF)\n"
        "print(f'\\n@@{_u.ru_utime + _u.ru_stime} {_u.ru_maxrss / 1024}', file=_s.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{meter}"], capture_output=True, text=True, check=True
    )
    seconds, megabytes = done.stderr.rsplit("@@", 1)[1].split()
    return float(seconds), float(megabytes), done.stdout
