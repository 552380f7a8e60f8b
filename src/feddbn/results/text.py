"""A result as text, in the layout of statsmodels' summaries: sizes, what to know, and every edge with its standard error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.results.changes import stored_changes
from feddbn.results.remarks import ALONE
from feddbn.words import counted, first_lines, full_sentence, say
from feddbn.words.tables import change_tables

if TYPE_CHECKING:
    from feddbn.results.result import Result

__all__ = [
    "by_strength",
    "left_out_words",
    "likely_edges",
    "rows_of_errors",
    "rows_words",
    "sign_words",
    "summary_text",
    "weight_errors",
]

_WIDTH, _MOST_NAME = 79, 16


def rows_of_errors(result: Result) -> int | None:
    """How many rows the sampling errors of weights follow from; None where they are not known.

    Known they are for straight effects that settle, where the noise and the number of rows are known.
    """
    dbn = result.dbn
    if not dbn.is_linear or dbn.noise_variances is None or (dbn.noise_variances <= 0).any():
        return None
    try:
        return result.n_rows if dbn.is_stationary else None
    except (ParameterError, np.linalg.LinAlgError):
        # An average of graphs may hold a cycle of weight 1.
        return None


def weight_errors(result: Result) -> FloatArray | None:
    """(p+1, d, d) standard errors of the weights; None where they are not known."""
    n = rows_of_errors(result)
    return None if n is None else result.dbn.standard_errors(n)


def rows_words(result: Result) -> str:
    """How many rows a network was learned from, of how many; empty if nobody knows."""
    used, n_rows = result.rows_used
    return "" if used is None else f"{used:,}" + ("" if n_rows is None else f" of {n_rows:,}")


def summary_text(result: Result) -> str:
    """The text of `Result.summary`."""
    dbn = result.dbn
    left = [
        ("Method", result.method),
        ("Sites", str(len(result.sites))),
        ("Rows used", rows_words(result) or "not known"),
    ]
    n_now, n_lagged = np.count_nonzero(dbn.is_edge[0]), np.count_nonzero(dbn.is_edge[1:])
    right = [
        ("Variables", str(dbn.d)),
        ("Lags", str(dbn.n_lags)),
        ("Edges now / lagged", f"{n_now} / {n_lagged}"),
    ]
    lines = ["=" * _WIDTH]
    for (a, x), (b, y) in zip(left, right, strict=True):
        lines.append(f"{a + ':':<11} {x:>26}   {b + ':':<20} {y:>16}")
    lines.append("=" * _WIDTH)
    alone = result.findings.of(ALONE)
    for line in (
        *(full_sentence(say(one)) for one in alone),
        *first_lines([one for one in result.findings if one not in alone], "python"),
        f"The fit {result.status.get('message', 'ended')}.",
    ):
        lines += wrap(line, _WIDTH, initial_indent="- ", subsequent_indent="  ")
    return "\n".join([*lines, "=" * _WIDTH, *_edges(result), *_changes(result), "=" * _WIDTH])


def likely_edges(result: Result) -> list[Mapping[str, Any]]:
    """The edges that are shown, the strongest first: where there are probabilities, those of one half or more.

    Of a link whose direction is open it is the probability of the link. Among discoveries the level decides.
    """
    is_open = set(result.dbn.open_edges)

    def is_likely(edge: Mapping[str, Any]) -> bool:
        is_link = edge["lag"] == 0 and (edge["source"], edge["target"]) in is_open
        known = edge.get("presence" if is_link else "probability", edge.get("probability"))
        return edge.get("q_value") is not None or known is None or known >= 0.5

    return [edge for edge in by_strength(result.edges) if is_likely(edge)]


def left_out_words(result: Result, n_shown: int) -> str:
    """How many edges are not shown, and where they are; empty if all are."""
    n = len(result.edges) - n_shown
    if not n:
        return ""
    less = counted(n, "edge") + (" has" if n == 1 else " have")
    return f"{less} a probability below one half and {'is' if n == 1 else 'are'} not shown; the result file has all."


def by_strength(edges: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Edges by their size in standard deviations; those where it is not known come last, by their weights."""

    def place(edge: Mapping[str, Any]) -> tuple[bool, float]:
        size = edge.get("standardised")
        return size is None, -abs(edge["weight"] if size is None else size)

    return sorted(edges, key=place)


def sign_words(edges: Iterable[Mapping[str, Any]]) -> str:
    """What "in sd" is of edges that are no straight lines; empty if all are."""
    if all(edge.get("shape", "linear") == "linear" for edge in edges):
        return ""
    return (
        'Of a curve "weight" is the average slope, and "in sd" the size of the whole effect, negative only if it mostly '
        "falls."
    )


def _changes(result: Result) -> list[str]:
    """What changes and when, of a network that changes; empty for others."""
    changes = stored_changes(result.diagnostics, result.parameters)
    if changes is None:
        return []
    lines = ["-" * _WIDTH, *wrap(full_sentence(say(changes.finding)), _WIDTH)]
    for table in change_tables(changes):
        if table.rows:
            frame = pd.DataFrame(table.rows, columns=list(table.heads))
            lines += ["", table.title, *frame.to_string(index=False).splitlines()]
    return lines


def _edges(result: Result) -> list[str]:
    """One line for every edge, the strongest first; standard errors are given the edges found."""
    errors, place = weight_errors(result), {name: i for i, name in enumerate(result.dbn.variables)}
    wide = min(max(4, *map(len, place)), _MOST_NAME)
    ends = f"{{:<{wide}.{wide}}} {{:2}} {{:<{wide}.{wide}}} {{:>3}}"
    # Among discoveries the level decides, not the probability; of a link without a direction it is that of the link.
    is_tested = any("q_value" in edge for edge in result.edges)
    head = (
        ends.format("from", "", "to", "lag")
        + f" {'weight':>10} {'std err':>9} {'in sd':>7} {'q value' if is_tested else 'probability':>11}"
    )
    lines, is_open = [head, "-" * _WIDTH], set(result.dbn.open_edges)
    shown = likely_edges(result)
    for edge in shown:
        source, target, lag = edge["source"], edge["target"], edge["lag"]
        known = None if errors is None else errors[lag, place[source], place[target]]
        arrow = "--" if lag == 0 and (source, target) in is_open else "->"
        numbers = [(edge["weight"], 10, "10.4g"), (known, 9, "9.2g"), (edge.get("standardised"), 7, "7.2f")]
        cells = [" " * (k - 1) + "-" if x is None else format(x, form) for x, k, form in numbers]
        column = "q_value" if is_tested else "presence" if arrow == "--" else "probability"
        sure = edge.get(column, edge.get("probability"))
        lines.append(
            ends.format(source, arrow, target, lag) + f" {' '.join(cells)} "
            + (f"{'-':>11}" if sure is None else f"{sure:11.2f}")
        )  # fmt: skip
    return [
        *lines,
        *wrap(left_out_words(result, len(shown)), _WIDTH),
        *wrap(sign_words(shown), _WIDTH),
    ]
