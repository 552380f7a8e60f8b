"""``feddbn fit``: from files to a network; ``feddbn update``: new rows for a stored result."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.options import Data, Json, Params, complete_method, given_parameters, parse_n_lags, reads_data
from feddbn.cli.printed import All, print_result, print_shared_edges
from feddbn.cli.terminal import print_json, progress, say
from feddbn.errors import ParameterError, ResultWarning
from feddbn.method_table import METHODS, default_method, get_method

if TYPE_CHECKING:
    pass

__all__ = ["fit", "update"]


@reads_data()
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
    lambda_w: Annotated[float | None, typer.Option(help="Penalty of contemporaneous edges.")] = None,
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
    show_all: All = False,
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
    parameters = given_parameters(
        [chosen],
        read,
        param,
        n_lags=parse_n_lags(n_lags),
        lambda_w=lambda_w,
        lambda_a=lambda_a,
        forbidden_edges=[_edge("forbid", text) for text in forbid] if forbid else None,
        required_edges=[_edge("require", text) for text in require] if require else None,
    )
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
    print_result(result, show_all)
    if report is not None:
        print_shared_edges(report)
    say(f"Result: {out}")


def _edge(option: str, text: str) -> tuple[str, str, int]:
    parts = [part.strip() for part in text.rsplit(",", 2)]
    if len(parts) == 3 and parts[2].lstrip("-").isdigit():
        return parts[0], parts[1], int(parts[2])
    raise ParameterError(f"--{option} {text!r} must look like FROM,TO,LAG, for example --{option} x0,x1,0.")


@reads_data()
def update(
    result: Annotated[Path, typer.Argument(help="A result of `feddbn fit --keep-sums`.", show_default=False)],
    data: Data,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Where to write the new result; by default over the old one."),
    ] = None,
    show_all: All = False,
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
        estimator = make_estimator(method, stored.parameters, stored=True)
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
    print_result(found, show_all)
    say(f"Result: {path}")
