"""Markdown pages of experiments, written from rows: what was asked, how, what came out, beside the paper."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from feddbn.experiments.config import PROTOCOLS, Column, Experiment
from feddbn.experiments.registry import METHODS
from feddbn.experiments.summary import markdown_table, measure_name, number, quoted_rows, summary_page
from feddbn.experiments.tables import Outcome, ResultTable

__all__ = ["experiment_page", "write_pages"]


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
        "<!-- Written by `feddbn reproduce --pages` from the recorded rows; do not edit by hand. -->",
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
    return f"feddbn reproduce {experiment.name}{seeds}"


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
        "Mean ± standard deviation over seeds; – has not been run. SHD counts FP + FN, as the paper does. "
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
        for measure in experiment.measures:
            header = [
                measure_name(measure),
                *[f"{experiment.axis_label} = {number(at)}" for at in table.positions],
            ]
            rows = []
            for column in experiment.columns:
                found = [table.outcome(column, protocol, at, measure) for at in table.positions]
                if any(found):
                    rows.append([column.label, *[_cell(one, measure) for one in found]])
            parts.append(markdown_table(header, rows))
    return parts


def _cell(outcome: Outcome | None, measure: str) -> str:
    if outcome is None:
        return "–"
    return outcome.text(1 if "shd" in measure else 2)


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
