"""What a fit claims, counted against the truth, and the lines of a table that are printed of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

import feddbn
from feddbn.errors import FeddbnError

SURE, LIKELY = 0.9, 0.5
BINS = ((0.5, 0.8), (0.8, 0.95), (0.95, 1.0))
Edge = tuple[str, str]


@dataclass(frozen=True)
class Told:
    """What one fit says: probabilities of links either way, directions and delayed edges; its CPU seconds.

    The key of a link is its pair of names in alphabetical order; directions and delayed edges are (from, to).
    What a variable's own past does to it is left out.
    """

    links: Mapping[Edge, float]
    directions: Mapping[Edge, float]
    delayed: Mapping[Edge, float]
    seconds: float
    refused: str = ""


def pair(source: str, target: str) -> Edge:
    """The two names in alphabetical order."""
    return (source, target) if source < target else (target, source)


def read_table(table: pd.DataFrame, seconds: float = 0.0) -> Told:
    """What `edge_probabilities_` of a fit says, of lag 0 and lag 1."""
    links: dict[Edge, float] = {}
    directions: dict[Edge, float] = {}
    delayed: dict[Edge, float] = {}
    for row in table[table["source"] != table["target"]].itertuples():
        edge = str(row.source), str(row.target)
        if row.lag == 0:
            directions[edge] = float(row.probability)
            links[pair(*edge)] = max(links.get(pair(*edge), 0.0), float(row.presence))
        elif row.lag == 1:
            delayed[edge] = float(row.probability)
    return Told(links, directions, delayed, seconds)


def fitted(sites: Mapping[str, Any]) -> Told:
    """What `OneShotDBN` says of the sites at its defaults with one lag; nothing where it refuses the data."""
    start = time.process_time()
    try:
        model = feddbn.OneShotDBN(n_lags=1).fit(sites)
    except FeddbnError as error:
        return Told({}, {}, {}, time.process_time() - start, str(error) or type(error).__name__)
    return read_table(model.edge_probabilities_, time.process_time() - start)


@dataclass(frozen=True)
class Truth:
    """The edges that are there, (from, to), without own pasts; knobs: inputs that are set at random."""

    instant: frozenset[Edge]
    delayed: frozenset[Edge]
    knobs: frozenset[str] = frozenset()

    @property
    def links(self) -> frozenset[Edge]:
        """The pairs with an edge within a time step, whichever way."""
        return frozenset(pair(*edge) for edge in self.instant)


@dataclass
class Score:
    """Sums over fits of what was right and wrong; `columns` and `cells` make a line of a table of them."""

    n: int = 0
    refused: int = 0
    seconds: float = 0.0
    wrong: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("links", "delayed"), 0))
    claimed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("links", "delayed"), 0))
    found: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("links", "delayed"), 0))
    there: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("links", "delayed"), 0))
    right: int = 0
    reversed: int = 0
    false: int = 0
    into_knobs: int = 0
    knobs: int = 0
    binned: np.ndarray = field(default_factory=lambda: np.zeros((len(BINS), 2), dtype=int))

    def add(self, told: Told, truth: Truth) -> None:
        """Nothing is returned: one more fit is counted; a refused one counts as a fit that claims nothing."""
        self.n += 1
        self.refused += bool(told.refused)
        self.seconds += told.seconds
        both = (("links", told.links, truth.links), ("delayed", told.delayed, truth.delayed))
        for name, said, true in both:
            drawn = {edge for edge, p in said.items() if p > LIKELY}
            sure = {edge for edge, p in said.items() if p > SURE}
            self.wrong[name] += len(drawn ^ true)
            self.claimed[name] += len(sure)
            self.found[name] += len(sure & true)
            self.there[name] += len(true)
            for edge, p in said.items():
                for k, (low, high) in enumerate(BINS):
                    if low < p <= high:
                        self.binned[k] += (1, edge in true)
        for edge in (edge for edge, p in told.directions.items() if p > SURE):
            self.right += edge in truth.instant
            self.reversed += edge not in truth.instant and edge[::-1] in truth.instant
            self.false += pair(*edge) not in truth.links
        self.knobs += len(truth.knobs)
        for said in (told.directions, told.delayed):
            self.into_knobs += sum(p > LIKELY and edge[1] in truth.knobs for edge, p in said.items())

    @staticmethod
    def columns() -> list[str]:
        """What stands above the cells."""
        bins = [f"true at {low:g}-{high:g} (of)" for low, high in BINS]
        return [
            *("fits", "wrong links", "wrong delayed", "links > .9 prec, rec", "delayed > .9 prec, rec"),
            *("directions right / rev / false", "into knobs", *bins, "CPU s"),
        ]

    def cells(self) -> list[str]:
        """The line: means over fits, except shares and calibration, which are of all edges together."""
        n = max(self.n, 1)
        claims = [
            f"{share(self.found[part], self.claimed[part])}, {share(self.found[part], self.there[part])}"
            for part in ("links", "delayed")
        ]
        return [
            f"{self.n}" + (f" ({self.refused} refused)" if self.refused else ""),
            *(f"{self.wrong[part] / n:.1f}" for part in ("links", "delayed")),
            *claims,
            f"{self.right / n:.1f} / {self.reversed / n:.2f} / {self.false / n:.2f}",
            f"{self.into_knobs / n:.1f}" if self.knobs else "-",
            *(f"{share(int(true), int(all_))} ({all_})" for all_, true in self.binned),
            f"{self.seconds / n:.1f}",
        ]


def share(part: int, whole: int) -> str:
    """A share with two digits, or a dash where there is nothing to take it of."""
    return f"{part / whole:.2f}" if whole else "-"


def print_head(columns: Sequence[str]) -> None:
    """Nothing is returned: the head of a Markdown table is printed."""
    print_line(columns)
    print_line(["---"] * len(columns))


def print_line(cells: Iterable[Any]) -> None:
    """Nothing is returned: one line of a Markdown table is printed at once, as fits take long."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)
