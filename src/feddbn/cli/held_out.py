"""Tables of held-out rows in a terminal: which parameters were chosen, and how well methods predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from feddbn.cli.terminal import number, print_table, say
from feddbn.method_table import METHODS

__all__ = ["print_comparison", "print_held_out", "print_selection"]


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
    for remark in found["remarks"]:
        say(remark[0].upper() + remark[1:])


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
