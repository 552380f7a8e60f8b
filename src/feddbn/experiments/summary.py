"""The summary page: every number the paper states beside ours, where they agree, and why where they do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from feddbn.experiments.config import Column, Quoted, experiment_names
from feddbn.experiments.implied import Implied, implied_of
from feddbn.experiments.tables import Outcome, ResultTable

__all__ = ["QuotedRow", "markdown_table", "measure_name", "number", "quoted_rows", "summary_page"]

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
        chosen = [self._column(self.quoted.column), self._column(self.quoted.ours)]
        return [self._text(column, protocol) for column in chosen for protocol in protocols]

    def agrees(self, protocol: str) -> bool:
        """Whether the paper's method is as near as the spread of our repetitions, or the paper's rounding, allows."""
        outcome = self._outcome(self._column(self.quoted.column), protocol, self.quoted.measure)
        decimals = len(f"{self.value:g}".partition(".")[2])
        rounding = 0.5 * 10.0**-decimals
        return outcome is not None and abs(outcome.mean - self.value) <= max(outcome.spread, rounding) + 1e-9

    def is_reached(self, protocol: str) -> bool | None:
        """Whether the recommended method is at least as good as the paper's number; None where neither is better."""
        measure = self.quoted.measure
        outcome = self._shown(self._column(self.quoted.ours), protocol)[0]
        if outcome is None or measure.startswith("lambda"):
            return None
        sign = -1.0 if measure.endswith(("shd_paper", "fdr")) else 1.0
        return sign * (outcome.mean - self.value) >= -1e-9

    def _column(self, label: str) -> Column:
        return next(column for column in self.table.experiment.columns if column.label == label)

    def _outcome(self, column: Column, protocol: str, measure: str) -> Outcome | None:
        at: float | str | None = self.at
        if self.table.experiment.kind == "dream4" and at == "mean":
            at = None
        if column.variant == "five subjects summed" and isinstance(at, str):
            at = at.partition(" ")[0]
        return self.table.outcome(column, protocol, at, measure)

    def _shown(self, column: Column, protocol: str) -> tuple[Outcome | None, str]:
        """What stands beside the paper's number, and a note if it is another measure."""
        measure = self.quoted.measure
        outcome = self._outcome(column, protocol, measure)
        if outcome is None and measure in _FALLBACK:
            return self._outcome(column, protocol, _FALLBACK[measure]), " (continuous)"
        return outcome, ""

    def _text(self, column: Column, protocol: str) -> str:
        outcome, note = self._shown(column, protocol)
        if outcome is None:
            return "–"
        measure = self.quoted.measure
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
        "Last column: the protocols under which the paper's method agrees here, which is to within one standard deviation "
        "over our repetitions (about twice the standard error of a difference of two means of ten) or the paper's "
        "rounding; otherwise a letter for why not.",
        _in_short(kept),
    ]
    for table in kept:
        if table.experiment.quoted:
            parts += _stated(table)
    return "\n\n".join(part for part in parts if part) + "\n"


def _in_short(tables: list[ResultTable]) -> str:
    """How many of the numbers agree, and how many the recommended method reaches, protocol by protocol."""
    counts: dict[str, list[int]] = {}
    for table in tables:
        for row in quoted_rows(table):
            for protocol in table.protocols:
                reached = row.is_reached(protocol)
                if reached is not None:
                    of = counts.setdefault(protocol, [0, 0, 0])
                    of[:] = [of[0] + 1, of[1] + row.agrees(protocol), of[2] + reached]
    parts = [
        f"{protocol}: the paper's method agrees with {agrees} of {n}, the recommended one is at least as good as {reached}"
        for protocol, (n, agrees, reached) in counts.items()
    ]
    return "In short, penalties aside:\n\n" + "\n".join(f"- {part}." for part in parts) if parts else ""


def _stated(table: ResultTable) -> list[str]:
    """The section of one experiment: its numbers, why they differ, and what the paper's imply about its networks."""
    experiment, protocols = table.experiment, table.protocols
    header = ["measure", "at", "method", "paper"]
    header += [f"paper's method, {p}" for p in protocols] + [f"recommended, {p}" for p in protocols]
    lines: list[list[str]] = []
    letters: dict[str, str] = {}
    for row in quoted_rows(table):
        same = [protocol for protocol in protocols if row.agrees(protocol)]
        if same:
            last = "agrees" if same == protocols else f"agrees ({', '.join(same)})"
        else:
            last = letters.setdefault(row.quoted.reason, chr(ord("a") + len(letters)))
        cells = [measure_name(row.quoted.measure), number(row.at), row.quoted.column, f"{row.value:g}"]
        lines.append([*cells, *row.cells(protocols), last])
    why = "\n".join(f"- **{letter}**: {reason}." for reason, letter in letters.items())
    return [
        f"### {experiment.title}",
        f"[page]({experiment.name}.md)",
        markdown_table([*header, "agrees, or why not"], lines),
        why,
        _edges(list(implied_of(experiment)), experiment.axis_label),
    ]


def _edges(implied: list[Implied], axis: str) -> str:
    """How many true edges the paper's numbers imply, one line for each method and part."""
    if not implied:
        return ""
    places = list(dict.fromkeys(one.at for one in implied))
    header = ["edges of", *(f"{axis} = {number(at)}" for at in places)]
    lines: list[list[str]] = []
    for column, part in dict.fromkeys((one.column, one.part) for one in implied):
        here = {one.at: one for one in implied if (one.column, one.part) == (column, part)}
        cells = [f"{here[at].low:.0f}–{here[at].high:.0f}" if at in here else "–" for at in places]
        lines.append([f"{part}, implied by the paper's {column}", *cells])
    for part in dict.fromkeys(one.part for one in implied):
        stated = {one.at: one.stated for one in implied if one.part == part}
        cells = [f"{stated[at]:g}" if at in stated else "–" for at in places]
        lines.append([f"{part}, expected from the stated degree", *cells])
    return (
        "True edges with which the paper's SHD, TPR and FDR can belong together (reversals counted twice to once), and "
        "those expected from the degrees it states, which our networks have:\n\n"
        + markdown_table(header, lines)
    )


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


def markdown_table(header: list[str], rows: Iterable[list[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


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
