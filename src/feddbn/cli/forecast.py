"""``feddbn forecast``: what comes next, and what would come if variables were held."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feddbn.cli.options import Freq, Json, Network, OfSite, Time, parse_variables
from feddbn.cli.terminal import print_frame, print_json, remark, say, write_csv
from feddbn.errors import DataError, ParameterError

if TYPE_CHECKING:
    from feddbn.core.arrays import FloatArray
    from feddbn.model.dbn import DBN

__all__ = ["forecast"]


def forecast(
    network: Network,
    history: Annotated[
        Path, typer.Argument(help="CSV or Parquet file of one recording; its end is where it goes on.")
    ],
    steps: Annotated[int, typer.Option(help="How many moments ahead.")] = 8,
    interval: Annotated[float, typer.Option(help="Probability that an interval covers.")] = 0.9,
    do: Annotated[
        list[str] | None, typer.Option(metavar="VARIABLE=VALUE", help="Hold a variable at a value.")
    ] = None,
    variables: Annotated[
        str | None, typer.Option(help="Variables to show, separated by commas; all by default.")
    ] = None,
    of: OfSite = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write all of it as CSV.")] = None,
    time: Time = None,
    freq: Freq = None,
    as_json: Json = False,
) -> None:
    """Forecast the moments after a recording, with intervals; --do shows what holding a variable would do."""
    from feddbn.methods.truth import has_own_levels, read_network
    from feddbn.model.inputs import variable_index

    dbn = read_network(network, of)
    names = parse_variables(variables) or list(dbn.variables)
    shown = {dbn.variables[variable_index(name, dbn.variables, "--variables")] for name in names}
    rows, mean, n_rows = _last_rows(history, dbn, time, freq)
    if has_own_levels(network):
        remark(
            f"note: the network was learned about each recording's own level; this one's is the mean of its {n_rows} rows."
        )
        dbn = dbn.at_level(mean)
    ahead = dbn.do(_held(do), rows, steps, interval)
    table = ahead.to_frame().drop(columns="time")
    if out is not None:
        write_csv(table, out)
    table = table[table["variable"].isin(shown)]
    if as_json:
        print_json({"interval": interval, "forecast": table})
        return
    columns = ["variable", "step", "mean", "lower", "upper"]
    print_frame(table.sort_values("variable", kind="stable")[columns], f"{interval:.0%} intervals")
    if out is not None:
        say(f"Forecast: {out}")


def _held(texts: list[str] | None) -> dict[str | int, float]:
    held: dict[str | int, float] = {}
    for text in texts or ():
        name, sign, value = text.rpartition("=")
        try:
            held[name.strip()] = float(value)
        except ValueError:
            sign = ""
        if not sign or not name.strip():
            raise ParameterError(f"--do {text!r} must look like VARIABLE=VALUE, for example --do x3=1.5.")
    return held


def _last_rows(
    path: Path, dbn: DBN, time: str | None, freq: str | None
) -> tuple[FloatArray, FloatArray, int]:
    """The rows that a forecast goes on from (the recording's end, back to its last gap), its mean and number of rows."""
    import numpy as np

    from feddbn.cli.options import column_options
    from feddbn.data import read_sites

    sites = read_sites(path, **{**column_options(None, None, time, None, freq), "variables": dbn.variables})
    recordings = [recording for site in sites.values() for recording in site.recordings()]
    if len(recordings) != 1:
        raise DataError(f"history={str(path)!r} holds {len(recordings)} recordings; give the file of one.")
    pieces: list[FloatArray] = []
    total, n_rows = np.zeros(dbn.d), 0
    for block in recordings[0].blocks():
        total, n_rows = total + block.values.sum(axis=0), n_rows + len(block.values)
        pieces = [block.values] if block.starts_segment else [*pieces, block.values]
    if sum(map(len, pieces)) == 0:
        raise DataError(f"history={str(path)!r} has no usable row; a forecast goes on from its last ones.")
    return np.concatenate(pieces), total / n_rows, n_rows
