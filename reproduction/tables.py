"""From rows to numbers: one long table of results, and means over seeds for each column of an experiment.

How many true edges the paper's SHD, TPR and FDR imply (`implied_of`): of E true edges, ``(1 - TPR) E`` are missed, and
``TPR E FDR / (1 - FDR)`` of those found are false. SHD lies between the larger of the two (every missed edge was found
reversed, a reversal counts once) and their sum (none was, or a reversal counts twice), so the three numbers leave E an
interval. Means over networks are taken as if they were one's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from reproduction.cells import Cell, expand
from reproduction.config import Claim, Column, Experiment, Point

_NODES = {1: 5, 2: 10, 3: 15}
_NOT_MEASURES = ("weights", "truth")


@dataclass(frozen=True)
class Outcome:
    """Mean of a measure over repetitions (seeds, networks or subjects), its standard deviation and their number."""

    mean: float
    spread: float
    n: int
    lambdas: tuple[float, float] | None = None

    def text(self, digits: int = 2) -> str:
        """``mean ± spread``, or the mean alone if there is one repetition."""
        if self.n < 2:
            return f"{self.mean:.{digits}f}"
        return f"{self.mean:.{digits}f} ± {self.spread:.{digits}f}"


def position(experiment: Experiment, point: Point) -> float | str:
    """Where a point stands on its experiment's axis."""
    if experiment.axis == "setting":
        return f"d={point.d} n={point.n_samples} K={point.n_sites}"
    if experiment.kind == "netsim":
        return f"d={_NODES[point.sim or 3]}"
    value = getattr(point, experiment.axis)
    return value if isinstance(value, str) else float(value)


class ResultTable:
    """The results of one experiment.

    Attributes
    ----------
    experiment
        What was asked.
    results
        One row per result: protocol, at, item, method, variant, seed, lambda_w, lambda_a, converged, and measures
        named ``W.shd`` and so on.
    n_cells, n_rows
        Cells of the grid, and how many of them have a row.
    errors
        (cell, sentence) of cells whose method refused.
    """

    def __init__(
        self,
        experiment: Experiment,
        rows: Mapping[str, Mapping[str, Any]],
        *,
        seeds: int | None = None,
        quick: bool = False,
    ) -> None:
        self.experiment = experiment
        cells = expand(experiment, seeds=seeds, quick=quick)
        self.n_cells = len(cells)
        found = [(cell, rows[cell.id]) for cell in cells if cell.id in rows]
        self.n_rows = len(found)
        self.errors = [(cell, str(row["error"])) for cell, row in found if "error" in row]
        self.versions = sorted({str(row["version"]) for _, row in found})
        self.seconds = float(sum(row.get("seconds", 0.0) for _, row in found))
        self.extras = [
            (cell, result) for cell, row in found for result in row["results"] if "weights" in result
        ]
        self.results = pd.DataFrame(
            [self._flat(cell, result) for cell, row in found for result in row["results"]]
        )

    def _flat(self, cell: Cell, result: Mapping[str, Any]) -> dict[str, Any]:
        flat: dict[str, Any] = {
            "protocol": cell.protocol,
            "at": position(self.experiment, cell.point),
            "item": str(cell.seed),
            "method": cell.method,
            "variant": None,
            "seed": cell.seed,
            "lambda_w": np.nan,
            "lambda_a": np.nan,
            "converged": True,
        }
        for key, value in result.items():
            if key in _NOT_MEASURES:
                continue
            if isinstance(value, Mapping):
                flat.update({f"{key}.{name}": number for name, number in value.items()})
            else:
                flat[key] = value
        return flat

    @property
    def positions(self) -> list[float | str]:
        """Positions on the axis that have results, in the configuration's order."""
        there = set() if self.results.empty else set(self.results["at"])
        ordered = dict.fromkeys(position(self.experiment, point) for point in self.experiment.points)
        return [at for at in ordered if at in there]

    @property
    def protocols(self) -> list[str]:
        """Protocols that have results."""
        there = set() if self.results.empty else set(self.results["protocol"])
        return [name for name in self.experiment.protocols if name in there]

    def n_seeds(self) -> tuple[int, int]:
        """Smallest and largest number of seeds behind a shown number."""
        if self.results.empty:
            return (0, 0)
        counts = self.results.groupby(["protocol", "at", "method"])["seed"].nunique()
        return int(counts.min()), int(counts.max())

    def outcome(self, column: Column, protocol: str, at: float | str | None, measure: str) -> Outcome | None:
        """Mean of a measure for a column at a position, or None if nothing was run.

        On real data, `at` may also name one network or subject, and None is the mean over all of them.
        """
        chosen = self._chosen(column, protocol, at)
        if chosen.empty or measure not in chosen:
            return None
        values = chosen[measure].dropna().to_numpy(dtype=float)
        if not len(values):
            return None
        lambdas = None
        if column.pick != "only" or chosen["lambda_w"].notna().any():
            lambdas = (float(chosen["lambda_w"].median()), float(chosen["lambda_a"].median()))
        return Outcome(
            float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0, len(values), lambdas
        )

    def best_pair(self, method: str, protocol: str, at: float | str) -> tuple[float, float] | None:
        """The penalties with the lowest SHD of W plus SHD of A, averaged over seeds: chosen with the truth."""
        surface = self.surface(method, protocol, at)
        if surface.empty:
            return None
        pair: Any = surface.idxmin()
        return float(pair[0]), float(pair[1])

    def best_threshold(self, method: str, at: float | str | None) -> str | None:
        """NetSim: the threshold with the highest mean AUROC by the paper's protocol, chosen with the truth."""
        part = self._of(method, "data", at)
        tried = part[part["variant"].astype(str).str.startswith("threshold")]
        if tried.empty:
            return None
        return str(tried.groupby("variant")["cut_diagonal"].mean().idxmax())

    def surface(self, method: str, protocol: str, at: float | str) -> pd.Series:
        """(lambda_w, lambda_a) -> mean SHD of W plus SHD of A (FP + FN, as the paper counts)."""
        part = self._of(method, protocol, at)
        if part.empty or "W.shd_paper" not in part:
            return pd.Series(dtype=float)
        total = part["W.shd_paper"] + part["A.shd_paper"]
        return total.groupby([part["lambda_w"], part["lambda_a"]]).mean()

    def holds(self, claim: Claim, protocol: str) -> tuple[list[float | str], list[float | str]]:
        """Positions at which a claim holds, and all at which it can be checked."""
        columns = {column.label: column for column in self.experiment.columns}
        wanted = [at for at in self.positions if not claim.at or at in claim.at]
        held: list[float | str] = []
        checked: list[float | str] = []
        for at in wanted:
            own = self.outcome(columns[claim.column], protocol, at, claim.measure)
            others = [self.outcome(columns[name], protocol, at, claim.measure) for name in claim.than]
            if own is None or any(other is None for other in others):
                continue
            checked.append(at)
            values = [other.mean for other in others if other is not None]
            if own.mean < min(values) if claim.order == "lower" else own.mean > max(values):
                held.append(at)
        return held, checked

    def _of(self, method: str, protocol: str, at: float | str | None) -> pd.DataFrame:
        table = self.results
        if table.empty:
            return table
        mask = (table["method"] == method) & (table["protocol"] == protocol)
        if at is not None:
            mask &= table["at"] == at
        return table[mask]

    def _chosen(self, column: Column, protocol: str, at: float | str | None) -> pd.DataFrame:
        where, item = _split(self.experiment, at)
        part = self._of(column.method, protocol, where)
        if part.empty:
            return part
        variants = part["variant"].astype(object).where(part["variant"].notna(), None)
        if column.pick == "best" and self.experiment.kind == "netsim":
            part = part[variants == self.best_threshold(column.method, where)]
        else:
            part = part[[variant == column.variant for variant in variants]]
        if item is not None:
            part = part[part["item"] == item]
        if column.pick == "best" and where is not None and self.experiment.kind != "netsim":
            pair = self.best_pair(column.method, protocol, where)
            if pair is not None:
                part = part[(part["lambda_w"] == pair[0]) & (part["lambda_a"] == pair[1])]
        elif isinstance(column.pick, float):
            part = part[np.isclose(part["lambda_w"].astype(float), column.pick)]
        return part


def _split(experiment: Experiment, at: float | str | None) -> tuple[float | str | None, str | None]:
    """The axis position and the item (network, subject) that a quoted position names."""
    if not isinstance(at, str) or experiment.kind not in ("dream4", "netsim"):
        return at, None
    if experiment.kind == "dream4":
        # Joint fits stand at network 0 and have one item per network, so items are looked up everywhere.
        return None, (at if at.startswith("network") else None)
    where, _, item = at.partition(" ")
    return where, (item if item and item != "mean" else None)


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
    return point.degree * d / 2.0


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
