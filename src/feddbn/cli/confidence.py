"""``feddbn confidence``: how far each edge can be trusted."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from feddbn.cli.options import Data, Json, Params, either, given_parameters, parse_n_lags, reads_data
from feddbn.cli.printed import All, print_notes
from feddbn.cli.terminal import print_frame, print_json, progress, say, write_csv
from feddbn.errors import ResultWarning
from feddbn.findings import Findings
from feddbn.method_table import METHODS, get_method

__all__ = ["confidence"]

_MOST_EDGES = 20
_ABLE = either(method.name for method in METHODS.values() if method.resamples)


@reads_data()
def confidence(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the table.")] = Path("edges.csv"),
    method: Annotated[str, typer.Option("--method", "-m", help=f"{_ABLE}; latent counts marks.")] = "oneshot",
    n_lags: Annotated[str | None, typer.Option(help="Number of lags.")] = None,
    param: Params = None,
    replicates: Annotated[int, typer.Option(help="How often every site resamples its rows.")] = 100,
    how: Annotated[
        str, typer.Option(help="bootstrap: with replacement. stability: half of the blocks, in pairs.")
    ] = "bootstrap",
    block_length: Annotated[
        str, typer.Option(help="Rows per block, auto, or politis-white (estimated at each site).")
    ] = "auto",
    level: Annotated[float, typer.Option(help="Coverage of the interval of a weight.")] = 0.9,
    seed: Annotated[int, typer.Option(help="The same seed and data give the same table.")] = 0,
    jobs: Annotated[int, typer.Option(help="Processes for the refits.")] = 1,
    show_all: All = False,
    as_json: Json = False,
    *,
    read: dict[str, Any],
) -> None:
    """Learn again from resamples of every site's rows and count how often each edge comes back.

    Writes a table source, target, lag, weight, ci_low, ci_high, probability, presence, direction, oriented that
    `feddbn report RESULT --edges TABLE` shows beside the graph; where effects are curved, also how often each was. Of the
    method latent the table has marks: source, target, lag, mark, edge, same, cause, hidden, reverse.
    """
    from feddbn.data import read_sites
    from feddbn.methods.confidence import confidence as resampled
    from feddbn.methods.registry import make_estimator

    parameters = given_parameters([get_method(method)], read, param, n_lags=parse_n_lags(n_lags))
    estimator = make_estimator(method, parameters)
    sites = read_sites(data, kinds=parameters.get("kinds"), **read)
    length = int(block_length) if block_length.lstrip("-").isdigit() else block_length
    with progress("refits", total=max(replicates, 1)) as (_, part), warnings.catch_warnings():
        # `feddbn fit` gives this advice; a table of probabilities cannot act on it.
        warnings.simplefilter("ignore", ResultWarning)
        table = resampled(
            estimator,
            sites,
            replicates,
            block_length=length,
            method=how,
            random_state=seed,
            level=level,
            n_jobs=jobs,
            progress=lambda done: part("refits"),
        )
    write_csv(table, out)
    if as_json:
        print_json({"edges": table, "file": str(out), **table.attrs})
        return
    if "mark" in table:
        print_frame(table.head(_MOST_EDGES), n_text=2)
        own = table[table["mark"] != ""]
        say(
            f"{int((own['same'] >= 0.9).sum())} of {len(own)} edges keep their mark in 90 % of the refits or more."
        )
        say(f"Edges: {out}")
        return
    shown = ["source", "target", "lag", "weight", "ci_low", "ci_high", "presence", "direction"]
    shown += ["curved"] if "curved" in table else []
    print_frame(table[shown].head(_MOST_EDGES).rename(columns={"presence": "link"}), n_text=2)
    sure = int((table["probability"] >= 0.9).sum())
    say(f"{sure} edges at probability 0.9 or more; {len(table)} were found at least once.")
    linked = table[(table["presence"] >= 0.9) & (table["probability"] < 0.9) & (table["weight"] != 0)]
    if len(linked):
        say(f"{len(linked)} more have a link at 0.9 or more, but not its direction.")
    print_notes(Findings.stored_in({str(name): value for name, value in table.attrs.items()}), show_all)
    say(f"Edges: {out}")
