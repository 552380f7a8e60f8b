"""When a network changes and what is different then, as tables after a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from feddbn.cli.terminal import number, print_table, say, short

if TYPE_CHECKING:
    from feddbn.methods.stored_changes import StoredChanges

__all__ = ["print_changes"]

_MOST_CHANGES = 30


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
    say(found.sentence)


def _cells(row: dict[str, Any]) -> list[str]:
    return [str(row["row"]), short(row["before"]), short(row["after"]), number(row["probability"], 2)]
