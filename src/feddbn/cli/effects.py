"""``feddbn effects``: what a change of one variable does to the others over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feddbn.cli.options import Json, Network, OfSite, parse_variables
from feddbn.cli.terminal import print_frame, print_json, say, write_csv

if TYPE_CHECKING:
    import pandas as pd

    from feddbn.model.dbn import DBN

__all__ = ["effects"]


def effects(
    network: Network,
    source: Annotated[str, typer.Argument(help="The variable that is changed.", show_default=False)],
    target: Annotated[
        str | None,
        typer.Argument(help="The variable that is looked at; all if left out.", show_default=False),
    ] = None,
    horizon: Annotated[int, typer.Option(help="How many moments to follow the change.")] = 10,
    through: Annotated[
        str | None,
        typer.Option(help="Count as mediated only what passes through these variables (commas between)."),
    ] = None,
    at: Annotated[
        float | None,
        typer.Option(help="With curves: the value that SOURCE is changed from; its origin if left out."),
    ] = None,
    by: Annotated[
        float | None, typer.Option(help="By how much SOURCE is changed: 1, or with curves its scale.")
    ] = None,
    of: OfSite = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the table as CSV.")] = None,
    as_json: Json = False,
) -> None:
    """Show what raising SOURCE by 1 for one moment adds to TARGET: in all, directly, and through others.

    Without a TARGET: the largest effect on every variable, when it comes, and the sum over all moments. In a network with
    curves it depends on the value (--at, --by) and is simulated, always with the same random numbers.
    """
    from feddbn.methods.truth import read_network

    dbn = read_network(network, of)
    if target is None:
        table = _on_all(dbn, source, horizon, at, by)
    else:
        table = dbn.effects(source, target, horizon, parse_variables(through), at=at, by=by, random_state=0)
    if out is not None:
        write_csv(table, out)
    if as_json:
        print_json({"source": source, "target": target, "effects": table})
        return
    title = _change(dbn, source, at, by) + ("" if target is None else f", effect on {target}")
    print_frame(table, title)
    if out is not None:
        say(f"Effects: {out}")


def _change(dbn: DBN, source: str, at: float | None, by: float | None) -> str:
    """What is done to the source, in words."""
    from feddbn.model.edge_effects import origin_and_scale
    from feddbn.model.inputs import variable_index

    if not dbn.bends:
        return f"raising {source} by {1 if by is None else by:g} for one moment"
    origin, scale = origin_and_scale(dbn, variable_index(source, dbn.variables, "source"))
    begin, step = origin if at is None else at, scale if by is None else by
    return f"setting {source} to {begin + step:.4g} instead of {begin:.4g} for one moment"


def _on_all(dbn: DBN, source: str, horizon: int, at: float | None, by: float | None) -> pd.DataFrame:
    """Frame target, largest, step, cumulative; strongest first, variables that are not moved left out."""
    import numpy as np
    import pandas as pd

    from feddbn.model.curved_effects import expected_changes
    from feddbn.model.inputs import variable_index

    i = variable_index(source, dbn.variables, "source")
    if not dbn.bends:
        total = dbn.total_effects(horizon)[:, i] * (1.0 if by is None else by)
    else:
        total = expected_changes(dbn, i, horizon, at=at, by=by, random_state=0).mean
    step = np.abs(total).argmax(axis=0)
    largest = total[step, np.arange(dbn.d)]
    table = pd.DataFrame(
        {"target": dbn.variables, "largest": largest, "step": step, "cumulative": total.sum(axis=0)}
    ).drop(index=i)
    table = table[table["largest"] != 0]
    return table.sort_values("largest", key=np.abs, ascending=False, kind="stable", ignore_index=True)
