"""``feddbn forecast``: what comes next, and what would come if variables were held."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.options import Json, Network, OfSite, parse_variables, reads_data
from feddbn.cli.terminal import print_frame, print_json, remark, say, write_csv
from feddbn.errors import ParameterError
from feddbn.words import say as say_finding

if TYPE_CHECKING:
    from feddbn.data.history import History
    from feddbn.model.dbn import DBN

__all__ = ["forecast"]


@reads_data("time", "freq", "sort", "jitter", "day_first")
def forecast(
    network: Network,
    history: Annotated[
        Path, typer.Argument(help="CSV or Parquet file of one recording; its end is where it goes on.")
    ],
    steps: Annotated[int, typer.Option(help="How many time steps ahead.")] = 8,
    interval: Annotated[float, typer.Option(help="Probability that an interval covers.")] = 0.9,
    do: Annotated[
        list[str] | None, typer.Option(metavar="VARIABLE=VALUE", help="Hold a variable at a value.")
    ] = None,
    variables: Annotated[
        str | None, typer.Option(help="Variables to show, separated by commas; all by default.")
    ] = None,
    of: OfSite = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write all of it as CSV.")] = None,
    as_json: Json = False,
    *,
    read: dict[str, Any],
) -> None:
    """Forecast the time steps after a recording, with intervals; --do shows what holding a variable would do."""
    from feddbn.data.history import read_history
    from feddbn.methods.truth import has_own_scales, own_course, read_network
    from feddbn.model.courses import fit_course, forecast_along
    from feddbn.model.inputs import variable_index

    dbn = read_network(network, of)
    names = parse_variables(variables) or list(dbn.variables)
    shown = {dbn.variables[variable_index(name, dbn.variables, "--variables")] for name in names}
    kinds = zip(dbn.variables, dbn.kinds, strict=True)
    # Levels may be written by name.
    read["kinds"] = {name: kind.as_recorded for name, kind in kinds if kind.levels}
    past = read_history(history, dbn.variables, **read)
    _tell(past)
    lost, held = own_course(network), _held(do, dbn)
    if has_own_scales(network):
        remark(
            "note: sites were brought to one scale before learning, so weights and intervals are on the mean scale; a "
            "recording in its site's own units is forecast as if it were on that."
        )
    if lost is None:
        ahead = dbn.do(held, past.rows, steps, interval, random_state=0)
    else:
        course = fit_course(
            past.values, lost["degree"], lost["periods"], times=past.steps, variables=dbn.variables
        )
        remark(
            f"note: the network was learned about each recording's own {_what(lost)}; this one's is that of its "
            f"{past.n_rows} rows."
        )
        for sentence in course.remarks(steps):
            remark(f"note: {sentence}")
        ahead = forecast_along(
            dbn, course, past.rows, steps, end=past.end, held=held, interval=interval, random_state=0
        )
    if ahead.n_inferred and not past.n_empty:
        remark(f"note: {ahead.n_inferred} cells that are missing in the last rows were inferred.")
    table = ahead.to_frame().drop(columns="time")
    times = past.times(steps)
    if times is not None:
        text = [one if isinstance(one, (int, float)) else str(one) for one in times]
        table.insert(1, "time", [text[step - 1] for step in table["step"]])
    if out is not None:
        write_csv(table, out)
    table = table[table["variable"].isin(shown)]
    if as_json:
        print_json({"interval": interval, "forecast": table})
        return
    level = ["level"] if ahead.outcomes else []
    columns = [
        "variable",
        *level,
        "step",
        *(["time"] if times is not None else []),
        "mean",
        "lower",
        "upper",
    ]
    if ahead.beyond is not None:
        columns.append("beyond")
    print_frame(table.sort_values(["variable", *level], kind="stable")[columns], f"{interval:.0%} intervals")
    if ahead.outcomes:
        remark(
            "note: the mean of a binary variable is the probability of its second level; of levels, that of each level."
        )
    if out is not None:
        say(f"Forecast: {out}")


def _what(lost: dict[str, Any]) -> str:
    parts = ["level"]
    if lost["degree"]:
        parts.append("trend" if lost["degree"] == 1 else "slow changes")
    if lost["periods"]:
        parts.append(f"cycles of {', '.join(f'{period:.4g}' for period in lost['periods'])} rows")
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _tell(past: History) -> None:
    """Say from where the forecast goes on, if that is not simply the end of the file."""
    for found in past.remarks:
        remark(f"note: {say_finding(found, 'cli')}")
    if past.n_empty:
        last = "" if past.last is None else f" ({past.last})"
        rows = "row is" if past.n_empty == 1 else f"{past.n_empty} rows are"
        remark(
            f"note: the last {rows} empty; step 1 is the time step after them{last}, inferred from the rows before."
        )


def _held(texts: list[str] | None, dbn: DBN) -> dict[str | int, float | str]:
    """What variables are held at: numbers, or names of levels."""
    levels = {name: kind.levels for name, kind in zip(dbn.variables, dbn.kinds, strict=True)}
    held: dict[str | int, float | str] = {}
    for text in texts or ():
        name, sign, value = (part.strip() for part in text.rpartition("="))
        try:
            held[name] = value if value in levels.get(name, ()) else float(value)
        except ValueError:
            sign = ""
        if not sign or not name:
            choice = f", or a level of {', '.join(levels[name])}" if levels.get(name) else ""
            raise ParameterError(
                f"--do {text!r} must look like VARIABLE=VALUE, for example --do x3=1.5{choice}."
            )
    return held
