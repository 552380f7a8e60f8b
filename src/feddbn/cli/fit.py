"""``feddbn fit``: from files to a network."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.options import (
    Data,
    Json,
    Params,
    complete_method,
    give_kinds,
    parse_n_lags,
    parse_params,
    reads_data,
)
from feddbn.cli.printed import print_changes, print_shared_edges
from feddbn.cli.terminal import number, print_json, print_table, progress, remark, say, short
from feddbn.cli.wording import as_options
from feddbn.errors import ParameterError, ResultWarning
from feddbn.method_table import METHODS, default_method, get_method

if TYPE_CHECKING:
    from feddbn.methods.result import Result

__all__ = ["fit", "print_result", "update"]

_MOST_EDGES = 20


@reads_data
def fit(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the result.")] = Path(
        "result.json"
    ),
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "-m",
            help=f"{', '.join(METHODS)}, or one of an installed package. Default: {next(iter(METHODS))}.",
            show_default=False,
            autocompletion=complete_method,
        ),
    ] = None,
    n_lags: Annotated[str | None, typer.Option(help="Number of lags, or auto where the method can.")] = None,
    lambda_w: Annotated[float | None, typer.Option(help="Penalty of edges within a moment.")] = None,
    lambda_a: Annotated[float | None, typer.Option(help="Penalty of lagged edges.")] = None,
    forbid: Annotated[
        list[str] | None,
        typer.Option(metavar="FROM,TO,LAG", help="An edge that cannot be; * is any variable."),
    ] = None,
    require: Annotated[
        list[str] | None, typer.Option(metavar="FROM,TO,LAG", help="An edge that must be.")
    ] = None,
    param: Params = None,
    truth: Annotated[
        Path | None, typer.Option(help="True network of simulated data, kept with the result.")
    ] = None,
    keep_sums: Annotated[
        bool,
        typer.Option(
            "--keep-sums",
            help="Keep the summed moments in the result, so that `feddbn update` can add new rows.",
        ),
    ] = False,
    min_count: Annotated[
        int, typer.Option(help="Personal methods: hide how many sites have an edge if they are fewer.")
    ] = 1,
    as_json: Json = False,
    *,
    read: dict[str, Any],
) -> None:
    """Learn a network from the data of several sites and write it to a JSON file.

    The sites are simulated in this process: their rows are read here. To learn from sites that keep their
    rows, see feddbn federation --help.
    """
    from feddbn.methods.comparison import fit_method
    from feddbn.methods.result import Result
    from feddbn.methods.truth import read_truth
    from feddbn.model.dbn import DBN

    chosen = get_method(method or default_method())
    true = None if truth is None else read_truth(truth)
    parameters = _parameters(n_lags, lambda_w, lambda_a, forbid, require, param)
    give_kinds(chosen, parameters, read)
    if min_count < 1:
        raise ParameterError(f"--min-count {min_count} must be a whole number of at least 1.")
    with progress(chosen.label) as (watch, _), warnings.catch_warnings():
        # The result carries these sentences and they are printed from there.
        warnings.simplefilter("ignore", ResultWarning)
        estimator = fit_method(chosen, data, parameters, true, watch, **read)
    known = true if isinstance(true, DBN) else None
    result = Result.from_estimator(estimator, truth=known, keep_sums=keep_sums)
    result.save(out)
    report = estimator.shared_edges(min_count) if hasattr(estimator, "shared_edges") else None
    if as_json:
        shared = {} if report is None else {"shared_edges": report.to_dict()}
        print_json({"result": str(out), **result.to_dict(), **shared})
        return
    print_result(result)
    if report is not None:
        print_shared_edges(report)
    say(f"Result: {out}")


def _parameters(
    n_lags: str | None,
    lambda_w: float | None,
    lambda_a: float | None,
    forbid: list[str] | None,
    require: list[str] | None,
    param: list[str] | None,
) -> dict[str, Any]:
    given: dict[str, Any] = {
        "n_lags": parse_n_lags(n_lags),
        "lambda_w": lambda_w,
        "lambda_a": lambda_a,
        "forbidden_edges": [_edge("forbid", text) for text in forbid] if forbid else None,
        "required_edges": [_edge("require", text) for text in require] if require else None,
    }
    chosen = {key: value for key, value in given.items() if value is not None}
    others = parse_params(param)
    twice = sorted(set(chosen) & set(others))
    if twice:
        raise ParameterError(f"{twice[0]} is given by its own option and by --param; keep one of them.")
    return chosen | others


def _edge(option: str, text: str) -> tuple[str, str, int]:
    parts = [part.strip() for part in text.rsplit(",", 2)]
    if len(parts) == 3 and parts[2].lstrip("-").isdigit():
        return parts[0], parts[1], int(parts[2])
    raise ParameterError(f"--{option} {text!r} must look like FROM,TO,LAG, for example --{option} x0,x1,0.")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def print_result(result: Result) -> None:
    """Print what was learned: size, how the fit ended, the strongest edges, warnings."""
    import numpy as np

    from feddbn.methods.result import stored_changes

    dbn = result.dbn
    n_rows = sum(site.get("usable_rows") or 0 for site in result.sites)
    rows = f", {n_rows} usable rows" if n_rows else ""
    sizes = [_count(dbn.d, "variable"), _count(dbn.n_lags, "lag"), _count(len(result.sites), "site")]
    say(f"{result.method}: {', '.join(sizes)}{rows}")
    what = "sum" if result.status.get("name") == "EXACT" else "round"
    rounds = "" if result.n_rounds is None else f" ({_count(result.n_rounds, what)})"
    say(f"The fit {result.status['message']}{rounds}.")
    within, lagged = np.count_nonzero(dbn.is_edge[0]), np.count_nonzero(dbn.is_edge[1:])
    say(f"{within} edges within a moment, {lagged} lagged.")
    _print_edges(result)
    changes = stored_changes(result.diagnostics, result.parameters)
    if changes is not None:
        print_changes(changes)
    for warning in result.warnings:
        remark(f"note: {as_options(warning)}")


def _print_edges(result: Result) -> None:
    """Print the strongest edges by standardised weight ("in sd"); -- is a link whose direction the data do not tell."""
    edges = sorted(result.edges, key=lambda edge: -abs(edge.get("standardised") or edge["weight"]))
    # Old results know one probability for an edge and its direction together.
    certain = [("presence", "link"), ("direction", "direction")]
    if all(edge.get("presence") is None for edge in edges):
        certain = [("probability", "probability")] if any("probability" in edge for edge in edges) else []
    table, is_open = [], set(result.dbn.open_edges)
    is_doubted = any(edge.get("could_be_hidden") for edge in edges)
    for edge in edges[:_MOST_EDGES]:
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
        say(f"{_count(len(is_open), 'link')} (--) with a direction that the data do not tell.")


@reads_data
def update(
    result: Annotated[Path, typer.Argument(help="A result of `feddbn fit --keep-sums`.", show_default=False)],
    data: Data,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write the new result; by default over the old one."),
    ] = None,
    as_json: Json = False,
    *,
    read: dict[str, Any],
) -> None:
    """Add new rows to a stored result and learn the network again from all sums; the old rows are not needed.

    A lag does not reach from new rows to old ones. Where a recording goes on, begin its new file with its last rows,
    as many as there are lags.
    """
    import pandas as pd

    from feddbn.methods.registry import make_estimator
    from feddbn.methods.result import Result

    stored = Result.load(result)
    if stored.sums is None:
        raise ParameterError(
            f"RESULT {str(result)!r} has kept no sums, so new rows cannot be added; fit all rows again, with --keep-sums."
        )
    method = next((name for name, row in METHODS.items() if row.cls == stored.method), stored.method)
    if read.pop("kinds", None) is not None:
        raise ParameterError(
            "--kinds has no meaning here: methods that can be updated treat all as numbers; leave it out."
        )
    named = read.pop("variables", None)
    if named is not None and list(named) != list(stored.dbn.variables):
        raise ParameterError(
            f"--variables must be those of the result ({', '.join(stored.dbn.variables)}); leave it out."
        )
    with progress(method) as (watch, _), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)
        estimator = make_estimator(method, stored.parameters)
        if not hasattr(estimator, "take_up"):
            raise ParameterError(f"RESULT {str(result)!r} is of {stored.method}, which cannot be updated.")
        sites = pd.DataFrame(stored.sites).set_index("name") if stored.sites else pd.DataFrame()
        estimator.take_up(stored.sums, sites, stored.n_rounds or 0, f"file {str(result)!r}")
        estimator.update(data, observer=watch, **read)
    found = Result.from_estimator(estimator, truth=stored.truth, keep_sums=True)
    path = found.save(out or result)
    if as_json:
        print_json({"result": str(path), **found.to_dict()})
        return
    print_result(found)
    say(f"Result: {path}")
