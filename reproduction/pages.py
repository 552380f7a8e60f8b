"""Markdown pages of experiments, written from rows: what was asked, how, what came out, beside the paper."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproduction.cells import METHODS
from reproduction.config import PROTOCOLS, Column, Experiment, Quoted, experiment_names
from reproduction.tables import Implied, Outcome, ResultTable, implied_of

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
        "<!-- Written by `python -m reproduction --pages` from the recorded rows; do not edit by hand. -->",
        "Chen, Ma and Yue: *Federated Learning of Dynamic Bayesian Network via Continuous Optimization from Time "
        "Series Data* (FDBNL and PFDBNL). Every experiment of the paper that has been run "
        "has a page here, written from the recorded "
        "rows by one command:",
        "```\npython -m reproduction all --out reproduction/pages     # run, or resume; --quick for a tour in minutes\n"
        "python -m reproduction all --out reproduction/pages --pages reproduction/pages   # write these pages\n```",
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


def write_pages(
    tables: Iterable[ResultTable], directory: str | os.PathLike[str], figures: Mapping[str, list[str]]
) -> list[Path]:
    """Write ``<experiment>.md`` for every table that has results, and ``README.md`` with the summary.

    `figures` holds the names of image files, by experiment, that were drawn into the same directory.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    kept = [table for table in tables if not table.results.empty]
    written = []
    for table in kept:
        path = folder / f"{table.experiment.name}.md"
        path.write_text(experiment_page(table, figures.get(table.experiment.name, [])), encoding="utf-8")
        written.append(path)
    index = folder / "README.md"
    index.write_text(summary_page(kept), encoding="utf-8")
    return [*written, index]


def experiment_page(table: ResultTable, figures: list[str]) -> str:
    """The page of one experiment."""
    experiment = table.experiment
    parts = [
        f"# {experiment.title}",
        "<!-- Written by `python -m reproduction --pages` from the recorded rows; do not edit by hand. -->",
        f"Reproduces: {'; '.join(experiment.figures)}.",
        experiment.what,
        "## Setting",
        _setting(table),
        "## Command",
        f"```\n{command(experiment)}\n```",
        "## Obtained",
        _state(table),
        *[f"![{experiment.title}]({name})" for name in figures],
        *_obtained(table),
    ]
    if experiment.quoted:
        parts += ["## Beside the paper", _beside(table)]
    if experiment.claims:
        parts += ["## The paper's sentences, checked", _claims(table)]
    parts += ["## Commentary", experiment.commentary, *_troubles(table)]
    return "\n\n".join(part for part in parts if part) + "\n"


def command(experiment: Experiment) -> str:
    """What to type to run an experiment."""
    seeds = "" if experiment.kind in ("dream4", "netsim") else f" --seeds {experiment.seeds}"
    return f"python -m reproduction {experiment.name}{seeds}"


def _setting(table: ResultTable) -> str:
    experiment = table.experiment
    lines = []
    for name in table.protocols:
        if name in PROTOCOLS:
            lines.append(f"- protocol `{name}`: {PROTOCOLS[name].note}")
    point = experiment.points[0]
    for method in dict.fromkeys(column.method for column in experiment.columns):
        settings = METHODS[method].settings_for(point, experiment.kind)
        if "lambdas" in settings:
            pairs = settings.pop("lambdas")
            same = all(w == a for w, a in pairs)
            settings["lambda_w = lambda_a" if same else "(lambda_w, lambda_a)"] = (
                [w for w, _ in pairs] if same else f"{len(pairs)} pairs"
            )
        if "select" in settings:
            settings["lambda selected by BIC among"] = settings.pop("select")
        labels = ", ".join(column.label for column in experiment.columns if column.method == method)
        text = ", ".join(f"{key} {_plain(value)}" for key, value in settings.items()) or "defaults"
        lines.append(f"- {labels}: `{METHODS[method].cls}`, {text}")
    return "\n".join(lines)


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(f"{v:g}" for v in value)
    return f"`{value}`" if isinstance(value, (str, bool)) else str(value)


def _state(table: ResultTable) -> str:
    low, high = table.n_seeds()
    versions = ", ".join(table.versions)
    done = f"{table.n_rows} of {table.n_cells} cells of the full grid have been run (feddbn {versions})"
    if table.experiment.kind in ("dream4", "netsim"):
        return f"{done}. Means ± standard deviation are over networks or subjects."
    seeds = f"{low}" if low == high else f"{low} to {high}"
    return (
        f"{done}: {seeds} seed{'s' if high != 1 else ''} behind each number, of {table.experiment.seeds} planned. "
        "Mean ± standard deviation over seeds, of TPR and FDR the mean; – has not been run. "
        "SHD counts FP + FN, as in the paper. "
        "“tuned” columns choose lambda with the truth (an upper bound), the others without it; "
        "Best needs the truth too."
    )


def _obtained(table: ResultTable) -> list[str]:
    experiment, parts = table.experiment, []
    if experiment.kind in ("dream4", "netsim"):
        return _real_data(table)
    if experiment.layout == "heatmap":
        return _optimal(table)
    for protocol in table.protocols:
        parts.append(f"### Protocol `{protocol}`")
        for measures in _together(experiment.measures):
            header = [
                measure_name(measures[0])
                + "".join(f", {measure_name(one).split()[-1]}" for one in measures[1:]),
                *[f"{experiment.axis_label} = {number(at)}" for at in table.positions],
            ]
            rows = []
            for column in experiment.columns:
                found = [
                    [table.outcome(column, protocol, at, one) for one in measures] for at in table.positions
                ]
                if any(any(cell) for cell in found):
                    rows.append([column.label, *[_cell(cell, measures[0]) for cell in found]])
            parts.append(markdown_table(header, rows))
    return parts


def _together(measures: Iterable[str]) -> list[list[str]]:
    """Measures of one part of the network share a table."""
    groups: dict[str, list[str]] = {}
    for measure in measures:
        groups.setdefault(measure.partition(".")[0], []).append(measure)
    return list(groups.values())


def _cell(outcomes: list[Outcome | None], measure: str) -> str:
    """The first measure with its standard deviation, the means of the others."""
    first, *others = outcomes
    if first is None:
        return "–"
    text = first.text(1 if "shd" in measure else 2).replace(" ± ", "±")
    return ", ".join([text, *("–" if one is None else f"{one.mean:.2f}" for one in others)])


def _ranking_cell(outcome: Outcome | None, n_expected: int) -> str:
    """The mean, saying so if it is over fewer networks than there are."""
    if outcome is None:
        return "–"
    missing = n_expected and outcome.n % n_expected
    return outcome.text(3) + (f" (only {outcome.n} of {n_expected})" if missing else "")


def _real_data(table: ResultTable) -> list[str]:
    experiment, parts = table.experiment, []
    groups: list[tuple[str, float | str | None, list[str]]]
    if experiment.kind == "dream4":
        groups = [("All networks", None, [f"network {n}" for n in range(1, 6)])]
    else:
        groups = [(str(at), at, []) for at in table.positions]
    for title, at, items in groups:
        parts.append(f"### {title}")
        rows = []
        for column in experiment.columns:
            found = [table.outcome(column, "data", at, measure) for measure in experiment.measures]
            if any(found):
                rows.append([column.label, *[_ranking_cell(one, len(items)) for one in found]])
        quoted = [
            [
                f"{one.label} ({one.note})",
                *[f"{one.values[m]:g}" if m in one.values else "–" for m in experiment.measures],
            ]
            for one in experiment.published
            if experiment.kind == "dream4" or at == "d=15"
        ]
        parts.append(markdown_table(["", *[measure_name(m) for m in experiment.measures]], rows + quoted))
        for measure in experiment.measures[:1] + experiment.measures[-1:] if items else ():
            per_item = []
            for column in experiment.columns:
                each = [table.outcome(column, "data", item, measure) for item in items]
                if any(each):
                    per_item.append(
                        [column.label, *["–" if one is None else f"{one.mean:.3f}" for one in each]]
                    )
            parts.append(markdown_table([f"{measure_name(measure)}, per network", *items], per_item))
    return parts


def _optimal(table: ResultTable) -> list[str]:
    parts = []
    method = table.experiment.methods[0]
    for protocol in table.protocols:
        rows = []
        for at in table.positions:
            surface = table.surface(method, protocol, at)
            pair = table.best_pair(method, protocol, at)
            if pair is None:
                continue
            near = int((surface <= surface.min() + 5).sum())
            rows.append(
                [str(at), f"{pair[0]:g}", f"{pair[1]:g}", f"{surface.min():.1f}", f"{near} of {len(surface)}"]
            )
        parts.append(f"### Protocol `{protocol}`")
        parts.append(
            markdown_table(
                ["setting", "best lambda_w", "best lambda_a", "SHD of W + A", "range within 5"], rows
            )
        )
    return parts


def _beside(table: ResultTable) -> str:
    protocols = table.protocols
    header = ["quoted from", "at", "measure", "paper"]
    header += [f"paper's method here ({p})" for p in protocols] + [
        f"recommended here ({p})" for p in protocols
    ]
    rows = [
        [
            row.quoted.source,
            number(row.at),
            measure_name(row.quoted.measure),
            f"{row.value:g}",
            *row.cells(protocols),
        ]
        for row in quoted_rows(table)
    ]
    pairs = {(quoted.column, quoted.ours) for quoted in table.experiment.quoted}
    legend = "; ".join(f"paper's method `{ours}`, recommended `{best}`" for ours, best in sorted(pairs))
    return f"Shown: {legend}.\n\n" + markdown_table(header, rows)


def _claims(table: ResultTable) -> str:
    rows = []
    for claim in table.experiment.claims:
        cells = []
        for protocol in table.protocols:
            held, checked = table.holds(claim, protocol)
            where = f" ({', '.join(number(at) for at in held)})" if held else ""
            cells.append(f"{len(held)} of {len(checked)}{where}" if checked else "–")
        rows.append([claim.text, *cells])
    header = ["claim", *[f"holds at ({protocol})" for protocol in table.protocols]]
    return markdown_table(header, rows)


def _troubles(table: ResultTable) -> list[str]:
    """Fits that did not converge, and cells whose method refused."""
    lines = []
    if not table.results.empty and "converged" in table.results:
        grouped = table.results.groupby("method")["converged"]
        for method, share in grouped.mean().items():
            if share < 1:
                labels = _labels(table.experiment.columns, str(method))
                n = len(table.results[table.results["method"] == method])
                lines.append(
                    f"- {labels}: {round((1 - share) * n)} of {n} fits ended before every tolerance was met."
                )
    for cell, sentence in table.errors:
        lines.append(f"- {_labels(table.experiment.columns, cell.method)} at {cell.point.axes()}: {sentence}")
    return ["## Fits that did not end well", "\n".join(lines)] if lines else []


def _labels(columns: tuple[Column, ...], method: str) -> str:
    return ", ".join(column.label for column in columns if column.method == method) or method
