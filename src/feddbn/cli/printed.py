"""What commands print of a result: the network, what to know about it, changes, what sites share, held-out rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.terminal import number, print_table, remark, say, short
from feddbn.findings import Finding
from feddbn.method_table import METHODS
from feddbn.words import counted, first_lines
from feddbn.words import say as sentence_of

if TYPE_CHECKING:
    from feddbn.methods.result import Result, StoredChanges
    from feddbn.methods.shared_edges import SharedEdges

__all__ = [
    "All",
    "print_comparison",
    "print_held_out",
    "print_notes",
    "print_result",
    "print_selection",
    "print_shared_edges",
]

All = Annotated[bool, typer.Option("--all", help="Show all there is to know, not only what matters most.")]
_MOST_SHOWN, _MOST_CHANGES = 20, 30


def print_result(result: Result, show_all: bool = False) -> None:
    """Print what was learned: size, how the fit ended, the strongest edges, and what to know."""
    import numpy as np

    from feddbn.methods.result import stored_changes

    dbn = result.dbn
    n_rows = sum(site.get("usable_rows") or 0 for site in result.sites)
    rows = f", {n_rows} usable rows" if n_rows else ""
    sizes = [counted(dbn.d, "variable"), counted(dbn.n_lags, "lag"), counted(len(result.sites), "site")]
    say(f"{result.method}: {', '.join(sizes)}{rows}")
    what = "sum" if result.status.get("name") == "EXACT" else "round"
    rounds = "" if result.n_rounds is None else f" ({counted(result.n_rounds, what)})"
    say(f"The fit {result.status['message']}{rounds}.")
    within, lagged = np.count_nonzero(dbn.is_edge[0]), np.count_nonzero(dbn.is_edge[1:])
    say(f"{within} contemporaneous edges, {lagged} lagged.")
    _print_edges(result)
    changes = stored_changes(result.diagnostics, result.parameters)
    if changes is not None:
        print_changes(changes)
    print_notes(result.findings, show_all)


def print_notes(findings: Iterable[Finding], show_all: bool = False) -> None:
    """Print what a fit found and did: what matters most, or all of it."""
    told = list(findings)
    for line in first_lines(told, "cli", len(told) if show_all else 5):
        remark(line if line.startswith("and ") else f"note: {line}")


def _print_edges(result: Result) -> None:
    """Print the strongest edges by standardised weight ("in sd"); -- is a link whose direction the data do not tell."""
    edges = sorted(result.edges, key=lambda edge: -abs(edge.get("standardised") or edge["weight"]))
    # Old results know one probability for an edge and its direction together.
    certain = [("presence", "link"), ("direction", "direction")]
    if all(edge.get("presence") is None for edge in edges):
        certain = [("probability", "probability")] if any("probability" in edge for edge in edges) else []
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
    if len(edges) > len(table):
        say(f"... and {len(edges) - len(table)} weaker edges, in the result file.")
    if is_open:
        say(f"{counted(len(is_open), 'link')} (--) with a direction that the data do not tell.")


def print_changes(found: StoredChanges) -> None:
    """Print the segments, the edges that change, and the noise variances and levels that do."""
    rows = found.segments.to_dict("records")
    print_table(
        ["segment", "from", "to", "rows", "edges"],
        [
            [str(k + 1), str(row["start"]), str(row["stop"]), str(row["rows"]), str(int(dbn.is_edge.sum()))]
            for k, (row, dbn) in enumerate(zip(rows, found.networks, strict=True))
        ],
        f"segments, by {found.unit}",
    )
    if found.changes:
        print_table(
            ["from", "to", "lag", "at", "before", "after", "probability"],
            [
                [row["source"], row["target"], str(row["lag"]), *_cells(row)]
                for row in found.changes[:_MOST_CHANGES]
            ],
            "edges that change",
            n_text=2,
        )
    if found.variances:
        print_table(
            ["variable", "what", "at", "before", "after", "probability"],
            [[row["target"], row["what"], *_cells(row)] for row in found.variances[:_MOST_CHANGES]],
            "noise variances and levels that change",
            n_text=2,
        )
    if found.drift:
        print_table(
            ["from", "to", "lag", "at first", "in the middle", "at last", "probability"],
            [
                [
                    row["source"] or "(level)",
                    row["target"],
                    str(row["lag"]),
                    *(short(row[place]) for place in ("start", "middle", "end")),
                    number(row["probability"], 2),
                ]
                for row in found.drift[:_MOST_CHANGES]
            ],
            "weights and levels that drift",
            n_text=2,
        )
    if found.sites:
        print_table(
            ["site", "at", "from regime", "to regime"],
            [[row["site"], str(row["row"]), str(row["before"]), str(row["after"])] for row in found.sites],
            "when each site changes",
            n_text=2,
        )
    tables = (found.changes, found.variances, found.drift)
    hidden = sum(max(len(table) - _MOST_CHANGES, 0) for table in tables)
    if hidden:
        say(f"... and {hidden} more changes, in the result file.")
    say(sentence_of(found.finding, "cli"))


def _cells(row: dict[str, Any]) -> list[str]:
    return [str(row["row"]), short(row["before"]), short(row["after"]), number(row["probability"], 2)]


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
        print_table(heads, rows, "what the sites share", n_text=3)
    if len(records) > len(rows):
        say(f"... and {len(records) - len(rows)} edges of fewer sites, with --json.")
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
        heads = ["site", "differs most at", "by", "own edges", "shared edges it lacks"]
        print_table(heads, lines, "what is special about each site", n_text=2)


def print_held_out(summary: Mapping[str, Any]) -> None:
    """Print what the summary of a study's result says about held-out rows; nothing if it says nothing."""
    if "selection" in summary:
        print_selection(summary["selection"])
        chosen = summary["selection"]["chosen"]
        say("The network has " + ", ".join(f"{name} = {value:g}" for name, value in chosen.items()) + ".")
    if "comparison" in summary:
        print_comparison(summary["comparison"])
        say(f"The network is that of {METHODS[summary['method']].label}, learned from all rows.")


def print_selection(found: Mapping[str, Any]) -> None:
    """Print the held-out loss of every candidate (`Selection.to_dict`)."""
    names = list(found["chosen"])
    rows = [
        [
            *(f"{row[name]:g}" for name in names),
            number(row["loss"], 4),
            number(row["standard_error"], 4),
            "<-" if row["chosen"] else "",
        ]
        for row in found["candidates"]
    ]
    print_table([*names, "held-out loss", "se of difference", "chosen"], rows, n_text=0)
    for text in found["remarks"]:
        say(text[0].upper() + text[1:])


def print_comparison(found: Mapping[str, Any]) -> None:
    """Print the scores of methods (`Compared.to_dict`) on held-out rows, with the sizes of the networks."""
    lines: Sequence[Mapping[str, Any]] = found["methods"]
    heads = ["method", "log-likelihood of a row", "edges W", "edges A", "rounds"]
    keys = [("held_out_log_likelihood", 3), ("edges_w", 1), ("edges_a", 1), ("rounds", 2)]
    if any("seconds" in line for line in lines):
        heads.append("s")
        keys.append(("seconds", 1))
    rows = [[str(line["label"]), *(number(line[key], digits) for key, digits in keys)] for line in lines]
    print_table(heads, rows, f"tested on the last {found['held_out_share']:.0%} of each recording")
    silent = [str(line["label"]) for line in lines if line["held_out_log_likelihood"] is None]
    say("Higher is better.")
    for label in silent:
        say(f"Weights of {label} are no straight lines; it is not judged here.")
    for line in lines:
        if line["converged"] is False:
            say(f"{line['label']} stopped before it had converged.")
