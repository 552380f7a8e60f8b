"""The one-page summary: every number the paper states beside ours, and why they differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from feddbn.experiments.config import Column, Quoted, experiment_names
from feddbn.experiments.tables import ResultTable

__all__ = ["QuotedRow", "measure_name", "number", "quoted_rows", "summary_page"]

_NAMES = {
    "ap": "average precision",
    "aupr": "AUPR (trapezoid)",
    "auroc": "AUROC",
    "cut_diagonal": "AUROC, 0/1, with diagonal",
    "cut_off": "AUROC, 0/1, off-diagonal",
    "diagonal": "AUROC, continuous, with diagonal",
    "off": "AUROC, continuous, off-diagonal",
    "skeleton": "AUROC, skeleton",
}
# A ranking has no 0/1 predictions; where the paper's number is one, the continuous protocol stands beside it.
_FALLBACK = {"cut_diagonal": "diagonal", "cut_off": "off"}


@dataclass(frozen=True)
class QuotedRow:
    """One number of the paper at one position."""

    table: ResultTable
    quoted: Quoted
    at: float | str
    value: float

    def cells(self, protocols: list[str]) -> list[str]:
        """Ours under the paper's method, then under the recommended one, for each protocol."""
        columns = {column.label: column for column in self.table.experiment.columns}
        chosen = [columns[self.quoted.column], columns[self.quoted.ours]]
        return [self._text(column, protocol) for column in chosen for protocol in protocols]

    def _text(self, column: Column, protocol: str) -> str:
        measure = self.quoted.measure
        at: float | str | None = self.at
        if self.table.experiment.kind == "dream4" and at == "mean":
            at = None
        if column.variant == "five subjects summed" and isinstance(at, str):
            at = at.partition(" ")[0]
        outcome = self.table.outcome(column, protocol, at, measure)
        note = ""
        if outcome is None and measure in _FALLBACK:
            outcome = self.table.outcome(column, protocol, at, _FALLBACK[measure])
            note = " (continuous)"
        if outcome is None:
            return "–"
        digits = 1 if "shd" in measure else 3 if measure in _NAMES else 2
        return f"{outcome.mean:.{digits}f}{note}"


def quoted_rows(table: ResultTable) -> Iterator[QuotedRow]:
    """Every number of the paper that the experiment quotes."""
    for quoted in table.experiment.quoted:
        for at, value in zip(quoted.at, quoted.values, strict=True):
            yield QuotedRow(table, quoted, at, value)


def summary_page(tables: Iterable[ResultTable]) -> str:
    """``README.md``: an index of the pages and the table of stated numbers."""
    kept = list(tables)
    parts = [
        "# The paper, reproduced",
        "<!-- Written by `feddbn reproduce --pages` from the recorded rows; do not edit by hand. -->",
        "Chen, Ma and Yue: *Federated Learning of Dynamic Bayesian Network via Continuous Optimization from Time "
        "Series Data* (FDBNL and PFDBNL). Every experiment of the paper that has been run "
        "has a page here, written from the recorded "
        "rows by one command:",
        "```\nfeddbn reproduce all --out docs/reproduction     # run, or resume; --quick for a tour in minutes\n"
        "feddbn reproduce all --out docs/reproduction --pages docs/reproduction   # write these pages\n```",
        "Simulated experiments are run under two protocols, because the paper's text and its released generator "
        "disagree: `paper-text` (weights ±[0.3, 0.5]) and `strong` (weights ±[0.5, 2]). Both draw from a correct "
        "structural VAR. “Paper's method” is the paper's algorithm with its schedule, weighting, thresholds and "
        "penalties (chosen with the truth where the paper did); “recommended” is what this package advises, which "
        "never looks at the truth.",
        "## Pages",
        "\n".join(_index(kept)),
        _not_run(kept),
        "## Numbers stated in the paper",
    ]
    for table in kept:
        if not table.experiment.quoted:
            continue
        protocols = table.protocols
        header = ["measure", "at", "method", "paper"]
        header += (
            [f"paper's method, {p}" for p in protocols] + [f"recommended, {p}" for p in protocols] + ["why"]
        )
        lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        for row in quoted_rows(table):
            cells = [measure_name(row.quoted.measure), number(row.at), row.quoted.column, f"{row.value:g}"]
            lines.append("| " + " | ".join([*cells, *row.cells(protocols), row.quoted.reason]) + " |")
        parts += [f"### {table.experiment.title}", f"[page]({table.experiment.name}.md)", "\n".join(lines)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _not_run(tables: list[ResultTable]) -> str:
    """Experiments without a single row; a reader must not take their absence for a result."""
    there = {table.experiment.name for table in tables}
    absent = [name for name in experiment_names() if name not in there]
    return f"Not run yet: {', '.join(absent)}." if absent else ""


def _index(tables: list[ResultTable]) -> Iterator[str]:
    for table in tables:
        experiment = table.experiment
        low, high = table.n_seeds()
        seeds = f"{low}" if low == high else f"{low} to {high}"
        state = (
            "real data" if experiment.kind in ("dream4", "netsim") else f"{seeds} of {experiment.seeds} seeds"
        )
        missing = table.n_cells - table.n_rows
        if missing:
            # Columns without any row have no number of seeds.
            state += f"; {missing} of {table.n_cells} cells not run"
        yield f"- [{experiment.title}]({experiment.name}.md): {'; '.join(experiment.figures)} ({state})"


def measure_name(measure: str) -> str:
    """A measure as a reader calls it."""
    if measure in _NAMES:
        return _NAMES[measure]
    part, _, name = measure.partition(".")
    if not name:
        return measure
    return f"{part}: {'SHD' if name == 'shd_paper' else name.upper()}"


def number(at: float | str) -> str:
    """A position without needless decimals."""
    return at if isinstance(at, str) else f"{at:g}"
