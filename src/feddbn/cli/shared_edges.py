"""What sites have in common and what is special about each, as a table after a personalised fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from feddbn.cli.terminal import number, print_table, say

if TYPE_CHECKING:
    from feddbn.methods.shared_edges import SharedEdges

__all__ = ["print_shared_edges"]

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
