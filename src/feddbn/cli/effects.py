"""``feddbn effects``: what a change of one variable does to the others over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feddbn.cli.options import Json, Network, OfSite, parse_variables
from feddbn.cli.terminal import print_frame, print_json, say, write_csv
from feddbn.errors import ParameterError

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
    horizon: Annotated[int, typer.Option(help="How many time steps to follow the change.")] = 10,
    through: Annotated[
        str | None,
        typer.Option(help="Count as mediated only what passes through these variables (commas between)."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="With curves or other kinds: the value, or level, that SOURCE is changed from; its origin if left out."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="By how much SOURCE is changed: 1, or with curves its scale; of levels, the one that it is changed to."
        ),
    ] = None,
    of: OfSite = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the table as CSV.")] = None,
    as_json: Json = False,
) -> None:
    """Show what raising SOURCE by 1 for one time step adds to TARGET: in all, directly, and through others.

    Without a TARGET: the largest effect on every variable, when it comes, and the sum over all time steps. In a network with
    curves or other kinds it depends on the value (--at, --by) and is simulated, always with the same random numbers.
    """
    from feddbn.methods.truth import read_network

    dbn = read_network(network, of)
    begin, step = (_value(text, name, dbn, source) for text, name in ((at, "--at"), (by, "--by")))
    if target is None:
        table = _on_all(dbn, source, horizon, begin, step)
    else:
        mediators = parse_variables(through)
        table = dbn.effects(source, target, horizon, mediators, at=begin, by=step, random_state=0)
    if out is not None:
        write_csv(table, out)
    if as_json:
        print_json({"source": source, "target": target, "effects": table})
        return
    title = _change(dbn, source, begin, step) + ("" if target is None else f", effect on {target}")
    print_frame(table, title)
    if out is not None:
        say(f"Effects: {out}")


def _value(text: str | None, option: str, dbn: DBN, source: str) -> float | str | None:
    """A number, or the name of a level of the source."""
    from feddbn.model.inputs import variable_index

    levels = dbn.kinds[variable_index(source, dbn.variables, "source")].levels
    if text is None or text in levels:
        return text
    try:
        return float(text)
    except ValueError:
        choice = f" or one of the levels {', '.join(levels)}" if levels else ""
        raise ParameterError(f"{option} {text!r} must be a number{choice}.") from None


def _change(dbn: DBN, source: str, at: float | str | None, by: float | str | None) -> str:
    """What is done to the source, in words."""
    from feddbn.model.effects import from_and_by
    from feddbn.model.inputs import variable_index

    if not dbn.bends:
        return f"raising {source} by {1 if by is None else by:g} for one time step"
    i = variable_index(source, dbn.variables, "source")
    begin, step = from_and_by(dbn, i, at, by)
    levels = dbn.kinds[i].levels
    one, other = (levels[int(x)] if levels else f"{x:.4g}" for x in (begin, begin + step))
    return f"setting {source} to {other} instead of {one} for one time step"


def _on_all(
    dbn: DBN, source: str, horizon: int, at: float | str | None, by: float | str | None
) -> pd.DataFrame:
    """Frame target, largest, step, cumulative; strongest first, variables that are not moved left out. A variable with
    several levels has a row for each.
    """
    import numpy as np
    import pandas as pd

    from feddbn.model.effects import expected_changes
    from feddbn.model.inputs import variable_index
    from feddbn.model.outcomes import outcome_columns

    i = variable_index(source, dbn.variables, "source")
    if not dbn.bends:
        total = dbn.total_effects(horizon)[:, i] * (1.0 if by is None else float(by))
    else:
        total = expected_changes(dbn, i, horizon, at=at, by=by, random_state=0).mean
    step = np.abs(total).argmax(axis=0)
    outcomes = outcome_columns(dbn)
    largest = total[step, np.arange(len(outcomes))]
    names = [outcome.name for outcome in outcomes]
    table = pd.DataFrame({"target": names, "largest": largest, "step": step, "cumulative": total.sum(axis=0)})
    others = np.array([outcome.variable != dbn.variables[i] for outcome in outcomes])
    table = table[(table["largest"] != 0) & others]
    return table.sort_values("largest", key=np.abs, ascending=False, kind="stable", ignore_index=True)
