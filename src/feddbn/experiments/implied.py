"""How many true edges the paper's SHD, TPR and FDR imply, beside the number its stated degrees give.

Of E true edges, ``(1 - TPR) E`` are missed, and ``TPR E FDR / (1 - FDR)`` of those found are false. SHD lies between the
larger of the two (every missed edge was found reversed, a reversal counts once) and their sum (none was, or a
reversal counts twice), so the three numbers leave E an interval. Means over networks are taken as if they were one's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from feddbn.experiments.config import Experiment, Point
from feddbn.experiments.tables import position
from feddbn.sim.settings import connectivity_degree

__all__ = ["Implied", "implied_edges", "implied_of", "stated_edges"]

_MEASURES = ("shd_paper", "tpr", "fdr")


@dataclass(frozen=True)
class Implied:
    """The interval for one part ("W" or "A") of one of the paper's columns at one position, and what was stated."""

    column: str
    part: str
    at: float | str
    low: float
    high: float
    stated: float


def implied_edges(shd: float, tpr: float, fdr: float) -> tuple[float, float]:
    """Fewest and most true edges with which the three numbers can belong together."""
    missed = 1.0 - tpr
    false = tpr * fdr / (1.0 - fdr) if fdr < 1.0 else math.inf
    total, larger = missed + false, max(missed, false)
    return (shd / total if total > 0 else math.inf, shd / larger if larger > 0 else math.inf)


def stated_edges(point: Point, part: str) -> float:
    """Expected edges of W or A in the networks of a point, from the degrees the paper states."""
    d = point.d or 0
    if part == "A":
        return point.lag_degree * d * point.n_lags
    degree = point.mean_degree if point.connectivity is None else connectivity_degree(point.connectivity, d)
    return degree * d / 2.0


def implied_of(experiment: Experiment) -> Iterator[Implied]:
    """Every place for which an experiment quotes all three numbers."""
    points = {position(experiment, point): point for point in experiment.points}
    numbers = {
        (quoted.column, quoted.measure, at): value
        for quoted in experiment.quoted
        for at, value in zip(quoted.at, quoted.values, strict=True)
    }
    for column in dict.fromkeys(quoted.column for quoted in experiment.quoted):
        for part in ("W", "A"):
            for at, point in points.items():
                shd, tpr, fdr = (numbers.get((column, f"{part}.{name}", at)) for name in _MEASURES)
                if shd is not None and tpr is not None and fdr is not None:
                    low, high = implied_edges(shd, tpr, fdr)
                    yield Implied(column, part, at, low, high, stated_edges(point, part))
