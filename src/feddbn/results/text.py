"""A result as text, in the layout of statsmodels' summaries: sizes, what to know, and every edge with its standard error."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.results.remarks import ALONE
from feddbn.words import first_lines, full_sentence, say

if TYPE_CHECKING:
    from feddbn.results.result import Result

__all__ = ["rows_of_errors", "rows_words", "summary_text", "weight_errors"]

_WIDTH, _MOST_NAME = 79, 16


def rows_of_errors(result: Result) -> int | None:
    """How many rows the sampling errors of weights follow from; None where they are not known.

    Known they are for straight effects that settle, where the noise and the number of rows are known.
    """
    dbn = result.dbn
    if (
        dbn.bends
        or result.rates is not None
        or dbn.noise_variances is None
        or (dbn.noise_variances <= 0).any()
    ):
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
    right = [
        ("Variables", str(dbn.d)),
        ("Lags", str(dbn.n_lags)),
        ("Edges now / lagged", f"{np.count_nonzero(dbn.is_edge[0])} / {np.count_nonzero(dbn.is_edge[1:])}"),
    ]
    lines = ["=" * _WIDTH]
    for (a, x), (b, y) in zip(left, right, strict=True):
        lines.append(f"{a + ':':<11} {x:>26}   {b + ':':<20} {y:>16}")
    lines.append("=" * _WIDTH)
    alone = result.findings.of(ALONE)
    for line in (
        *(full_sentence(say(one)) for one in alone),
        *first_lines([one for one in result.findings if one not in alone], "python", 5),
        f"The fit {result.status.get('message', 'ended')}.",
    ):
        lines += wrap(line, _WIDTH, initial_indent="- ", subsequent_indent="  ")
    return "\n".join([*lines, "=" * _WIDTH, *_edges(result), "=" * _WIDTH])


def _edges(result: Result) -> list[str]:
    """One line for every edge, the strongest first; standard errors are given the edges found."""
    errors, place = weight_errors(result), {name: i for i, name in enumerate(result.dbn.variables)}
    wide = min(max(4, *map(len, place)), _MOST_NAME)
    ends = f"{{:<{wide}.{wide}}} {{:2}} {{:<{wide}.{wide}}} {{:>3}}"
    head = (
        ends.format("from", "", "to", "lag")
        + f" {'weight':>10} {'std err':>9} {'in sd':>7} {'probability':>11}"
    )
    lines, is_open = [head, "-" * _WIDTH], set(result.dbn.open_edges)
    for edge in sorted(result.edges, key=lambda edge: -abs(edge.get("standardised") or edge["weight"])):
        source, target, lag = edge["source"], edge["target"], edge["lag"]
        known = None if errors is None else errors[lag, place[source], place[target]]
        arrow = "--" if lag == 0 and (source, target) in is_open else "->"
        numbers = [(edge["weight"], 10, "10.4g"), (known, 9, "9.2g"), (edge.get("standardised"), 7, "7.2f")]
        cells = [" " * (k - 1) + "-" if x is None else format(x, form) for x, k, form in numbers]
        sure = edge.get("probability")
        lines.append(
            ends.format(source, arrow, target, lag) + f" {' '.join(cells)} "
            + (f"{'-':>11}" if sure is None else f"{sure:11.2f}")
        )  # fmt: skip
    return lines
