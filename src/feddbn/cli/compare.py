"""``feddbn compare``: several methods on the same data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.held_out import print_comparison
from feddbn.cli.kinds import give_kinds
from feddbn.cli.options import (
    Data,
    Json,
    Params,
    complete_method,
    parse_n_lags,
    parse_params,
    reads_data,
)
from feddbn.cli.terminal import number, print_json, print_table, progress
from feddbn.method_table import get_method

if TYPE_CHECKING:
    from feddbn.methods.comparison import Compared

__all__ = ["compare", "print_scores"]


@reads_data
def compare(
    data: Data,
    truth: Annotated[Path | None, typer.Option(help="truth.json of simulated data.")] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "-m",
            help="Repeat for each; all that fit by default.",
            autocompletion=complete_method,
        ),
    ] = None,
    personal: Annotated[
        bool, typer.Option("--personal", help="Also methods with one network per site.")
    ] = False,
    held_out: Annotated[
        float | None,
        typer.Option(help="Share of rows at the end of each recording to test on; 0.2 without a truth."),
    ] = None,
    n_lags: Annotated[str | None, typer.Option(help="Number of lags.")] = None,
    param: Params = None,
    as_json: Json = False,
    *,
    read: dict[str, Any],
) -> None:
    """Learn with several methods from the same data and show how good each is.

    With a truth: structural errors (SHD), share of true edges found (TPR), share of found edges that are
    wrong (FDR). Without one: mean log-likelihood of rows that no method has seen; higher is better.
    """
    from feddbn.data import read_sites
    from feddbn.methods.comparison import compare as compare_methods
    from feddbn.methods.comparison import default_methods
    from feddbn.methods.truth import read_truth

    true = None if truth is None else read_truth(truth)
    methods = [get_method(name) for name in method] if method else default_methods(true, personal)
    parameters = parse_params(param)
    if n_lags is not None:
        parameters["n_lags"] = parse_n_lags(n_lags)
    give_kinds(methods, parameters, read)
    sites = read_sites(data, kinds=parameters.get("kinds"), **read)
    share = (0.0 if true is not None else 0.2) if held_out is None else held_out
    with progress("compare", total=len(methods)) as (watch, part):
        lines = list(compare_methods(sites, methods, parameters, true, share, watch, part))
    found = {"held_out_share": share, "methods": [line.to_dict() for line in lines]}
    if as_json:
        print_json(found)
        return
    if true is not None:
        print_scores(lines)
    if share:
        print_comparison(found)


def print_scores(lines: Sequence[Compared]) -> None:
    """Print SHD, TPR and FDR of both parts."""
    rows = []
    for line in lines:
        assert line.scores is not None
        cells = [number(line.scores[part][key]) for part in ("W", "A") for key in ("shd", "tpr", "fdr")]
        known = line.to_dict()
        rows.append([known["label"], *cells, number(known["rounds"]), number(known["seconds"], 1)])
    heads = ["method", "W shd", "tpr", "fdr", "A shd", "tpr", "fdr", "rounds", "s"]
    print_table(heads, rows, "edges within a moment (W) and lagged (A)")
