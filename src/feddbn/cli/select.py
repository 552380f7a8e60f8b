"""``feddbn select``: parameters chosen without the truth."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from feddbn.cli.options import Data, Json, Params, either, given_parameters, reads_data
from feddbn.cli.printed import print_selection
from feddbn.cli.terminal import print_json, progress, say
from feddbn.errors import ParameterError
from feddbn.method_table import METHODS, get_method

__all__ = ["select"]

_ABLE = either(method.name for method in METHODS.values() if method.selects)


@reads_data()
def select(
    data: Data,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            "-g",
            metavar="KEY=V1,V2,...",
            help="Values to try; repeat to combine. Both penalties by default, mu for pfdbnl.",
        ),
    ] = None,
    method: Annotated[str, typer.Option("--method", "-m", help=f"{_ABLE}.")] = "fdbnl",
    n_blocks: Annotated[int, typer.Option(help="Blocks of held-out rows, one after the other.")] = 2,
    share: Annotated[
        float, typer.Option(help="Share of rows at the end of each recording to test on.")
    ] = 0.3,
    rule: Annotated[str, typer.Option(help="one-standard-error or best.")] = "one-standard-error",
    param: Params = None,
    as_json: Json = False,
    *,
    read: dict[str, Any],
) -> None:
    """Choose parameters by the loss on later rows of every site; only sums of losses are used.

    Example: feddbn select DATA -g n_lags=1,2,3 -g lambda_w=0.1,0.05
    """
    from feddbn.methods import selection
    from feddbn.methods.registry import make_estimator

    chosen = get_method(method)
    estimator = make_estimator(chosen.name, given_parameters([chosen], read, param))
    candidates = _grid(grid) if grid else selection.default_grid(chosen)
    options: dict[str, Any] = {"n_blocks": n_blocks, "share": share, "rule": rule, **read}
    with progress(f"{chosen.label}: select") as (watch, _):
        found = selection.select(estimator, data, candidates, observer=watch, **options)
    if as_json:
        print_json(found.to_dict())
        return
    print_selection(found.to_dict())
    say("Fit with: " + " ".join(f"-p {name}={value:g}" for name, value in found.chosen.items()))


def _grid(texts: list[str]) -> dict[str, list[Any]]:
    grid: dict[str, list[Any]] = {}
    for text in texts:
        key, sign, values = text.partition("=")
        grid[key.strip().replace("-", "_")] = [_number(value.strip()) for value in values.split(",")]
        if not sign or not key.strip() or "" in values.split(","):
            raise ParameterError(f"--grid {text!r} must look like key=v1,v2,..., for example -g n_lags=1,2.")
    return grid


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
