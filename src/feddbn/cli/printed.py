"""What commands print of a result: the network, what to know about it, changes, what sites share, held-out rows."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.terminal import number, print_table, remark, say, short
from feddbn.errors import ResultWarning
from feddbn.findings import Finding
from feddbn.method_table import METHODS
from feddbn.words import counted, first_lines, full_sentence
from feddbn.words import say as sentence_of
from feddbn.words.tables import Table, change_tables, held_out_tables

if TYPE_CHECKING:
    from feddbn.results.result import Result
    from feddbn.results.shared_edges import SharedEdges

__all__ = [
    "All",
    "print_held_out",
    "print_notes",
    "print_result",
    "print_shared_edges",
    "print_tables",
    "warnings_at_end",
]

All = Annotated[bool, typer.Option("--all", help="Show all findings, not only errors and those with a cure.")]
_MOST_SHOWN, _MOST_CHANGES = 20, 30


def print_result(result: Result, show_all: bool = False) -> None:
    """Print what was learned: size, how the fit ended, the strongest edges, and what to know."""
    import numpy as np

    from feddbn.results.abstention import ABSTAINED
    from feddbn.results.changes import stored_changes
    from feddbn.results.remarks import ALONE, DISCOVERIES

    # What the network rests on comes before what it claims.
    first = [one for one in result.findings.of("usable-rows") if one.level == "error"]
    first += [one for code in (ALONE, ABSTAINED, DISCOVERIES) for one in result.findings.of(code)]
    for one in first:
        say(full_sentence(sentence_of(one, "cli")))
    dbn = result.dbn
    sizes = [counted(dbn.d, "variable"), counted(dbn.n_lags, "lag"), counted(len(result.sites), "site")]
    say(f"{result.method}: {', '.join(sizes)}{_rows(result)}")
    sums = "" if result.n_rounds is None else f" ({counted(result.n_rounds, 'sum')})"
    say(f"The fit {result.status['message']}{sums}.")
    within, lagged = np.count_nonzero(dbn.is_edge[0]), np.count_nonzero(dbn.is_edge[1:])
    say(f"{within} contemporaneous edges, {lagged} lagged.")
    _print_edges(result)
    changes = stored_changes(result.diagnostics, result.parameters)
    if changes is not None:
        print_tables(change_tables(changes))
        say(sentence_of(changes.finding, "cli"))
    print_notes([one for one in result.findings if one not in first], show_all)


def _rows(result: Result) -> str:
    """How many rows the network was learned from, of how many, and what they are worth if cells are empty."""
    from feddbn.results.text import rows_words

    used, worth = result.rows_used[0], result.n_rows
    if used is None:
        return ""
    less = f", worth {worth:,} complete ones" if worth is not None and worth < 0.99 * used else ""
    return f", {rows_words(result)} rows used{less}"


def print_notes(findings: Iterable[Finding], show_all: bool = False) -> None:
    """Print what a fit found and did: errors and what has a cure, or all of it."""
    for line in first_lines(findings, "cli", every=show_all, levels=True):
        remark(line)


@contextlib.contextmanager
def warnings_at_end() -> Iterator[dict[str, Iterable[Finding]]]:
    """Print the warnings of several fits at the end, each once with the labels of all that have it, as options are typed.

    Yields where to put what each label has found; what fits warn of meanwhile is among it, in Python's words.
    """
    found: dict[str, Iterable[Finding]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)
        yield found
    told: dict[str, list[str]] = {}
    every = [
        (one, label)
        for label, findings in found.items()
        for one in findings
        if one.level in ("error", "warning")
    ]
    for one, label in sorted(every, key=lambda pair: pair[0].harm):
        told.setdefault(sentence_of(one, "cli"), []).append(label)
    for text, labels in told.items():
        remark(f"warning: {', '.join(dict.fromkeys(labels))}: {text}")


def _print_edges(result: Result) -> None:
    """Print the strongest edges by standardised weight ("in sd"); -- is a link whose direction the data do not tell."""
    from feddbn.results.text import left_out_words, likely_edges, sign_words

    edges = likely_edges(result)
    # Where links and directions have no probabilities of their own, an edge may have one for both together.
    certain = [("presence", "link"), ("direction", "direction")]
    if all(edge.get("presence") is None for edge in edges):
        certain = [("probability", "probability")] if any("probability" in edge for edge in edges) else []
    certain += [("q_value", "q")] if any("q_value" in edge for edge in edges) else []
    table, is_open = [], set(result.dbn.open_edges)
    is_doubted = any(edge.get("could_be_hidden") for edge in edges)
    for edge in edges[:_MOST_SHOWN]:
        line = "--" if edge["lag"] == 0 and (edge["source"], edge["target"]) in is_open else "->"
        cells = [edge["source"], line, edge["target"], str(edge["lag"])]
        cells += [short(edge["weight"]), number(edge.get("standardised"), 2)]
        cells += [number(edge.get(key), 2) for key, _ in certain]
        table.append([*cells, *(["?" if edge.get("could_be_hidden") else ""] if is_doubted else [])])
    if table:
        heads = ["from", "", "to", "lag", "weight", "in sd", *(head for _, head in certain)]
        heads += ["hidden"] if is_doubted else []
        print_table(heads, table, n_text=3)
    if told := sign_words(edges[:_MOST_SHOWN]):
        say(told)
    if len(edges) > len(table):
        say(f"... and {len(edges) - len(table)} weaker edges, in the result file.")
    if told := left_out_words(result, len(edges)):
        say(told)
    if any(row[1] == "--" for row in table):
        say(f"{counted(len(is_open), 'link')} (--) whose direction the data do not show.")


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables as a report shows them, each with its remarks; of long ones the first rows."""
    hidden = 0
    for table in tables:
        rows = [[str(cell) for cell in row] for row in table.rows[:_MOST_CHANGES]]
        hidden += len(table.rows) - len(rows)
        print_table(table.heads, rows, table.title, numbers=table.numbers)
        for sentence in (table.note, *table.remarks):
            for line in wrap(sentence, 80):
                say(line)
    if hidden:
        say(f"... and {hidden} more rows, in the result file.")


_MOST_EDGES = 40


def print_shared_edges(report: SharedEdges) -> None:
    """Print in how many sites each edge is present, its shared and mean weight, and what differs most at each site."""
    records = report.to_dict()["edges"]
    rows = [
        [
            edge["source"],
            edge["target"],
            edge["kind"],
            str(edge["lag"]),
            f"< {report.min_count}"
            if edge["n_present"] is None
            else f"{edge['n_present']}/{edge['n_sites']}",
            number(edge["shared_weight"], 3),
            number(edge["mean_weight"], 3),
        ]
        for edge in records[:_MOST_EDGES]
    ]
    if rows:
        heads = ["from", "to", "kind", "lag", "sites", "shared weight", "mean weight"]
        print_table(heads, rows, "edges by number of sites", n_text=3)
    if len(records) > len(rows):
        say(f"... and {len(records) - len(rows)} edges found at fewer sites; --json shows them.")
    lines = []
    for site, frame in report.deviations.items():
        own, absent = frame[frame.shared_weight == 0], frame[frame.weight == 0]
        largest = frame.iloc[0] if len(frame) else None
        edge = "-" if largest is None else f"{largest.source} -> {largest.target} lag {largest.lag}"
        lines.append(
            [
                site,
                edge,
                number(None if largest is None else float(largest.deviation), 3),
                str(len(own)),
                str(len(absent)),
            ]
        )
    if lines:
        heads = ["site", "differs most at", "by", "extra edges", "missing shared edges"]
        print_table(heads, lines, "how each site differs", n_text=2)


def print_held_out(summary: Mapping[str, Any]) -> None:
    """Print what the summary of a study's result says about held-out rows; nothing if it says nothing."""
    print_tables(held_out_tables(summary))
    if "selection" in summary:
        chosen = summary["selection"]["chosen"]
        say("The network has " + ", ".join(f"{name} = {value:g}" for name, value in chosen.items()) + ".")
    if "comparison" in summary:
        say(f"The network was learned by {METHODS[summary['method']].label} from all rows.")
