"""``feddbn update``: new rows for a stored result."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from feddbn.cli.fit import print_result
from feddbn.cli.options import Data, Json, reads_data
from feddbn.cli.terminal import print_json, progress, say
from feddbn.errors import ParameterError, ResultWarning
from feddbn.method_table import METHODS

__all__ = ["update"]


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
