"""``feddbn monitor``: whether new rows still follow a network, one look after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.options import Json, Reading, reads_data
from feddbn.cli.printed import print_tables
from feddbn.cli.terminal import print_json, progress, remark, say
from feddbn.errors import DataError, ParameterError
from feddbn.words import counted
from feddbn.words.tables import look_table

if TYPE_CHECKING:
    from feddbn.analysis.monitor import Monitor
    from feddbn.data.layout import Layout
    from feddbn.federation.sums.tally import Tally
    from feddbn.results.result import Result

__all__ = ["monitor"]

_MOST_LOOKS = 30
_PICTURES = (".png", ".svg", ".pdf")


@reads_data()
def monitor(
    result: Annotated[
        Path,
        typer.Argument(
            help="A result of `feddbn fit --keep-sums`, or the result of a study that updated another.",
            show_default=False,
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NEW_ROWS]...",
            help="New rows, one look for each: files, directories or queries as in `feddbn update`; or results of `feddbn "
            "update`, each made from the one before. Without any, show the looks so far.",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Where looks are kept; by default the result's name with .monitor.json."),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="Chance of any false alarm, however often you look; 0.05 by default.", show_default=False
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw the evidence over time: a .png, .svg or .pdf file.")
    ] = None,
    as_json: Json = False,
    *,
    read: Reading,
) -> None:
    """Look at new rows and say which edges, noise variances or levels have changed since a network was learned.

    You may look as often as you like. Rows that were looked at before are not counted again. The exit code is 1 if the
    newest look raised an alarm. All rows are read on this machine and nothing leaves it.
    """
    from feddbn.results.result import Result

    if plot is not None and plot.suffix.lower() not in _PICTURES:
        raise ParameterError(f"--plot {str(plot)!r} must end in .png, .svg or .pdf.")
    if result.is_dir():
        # The folder of a run that was fetched.
        result = result / "result.json"
    stored = Result.load(result)
    path = state or result.with_suffix(".monitor.json")
    n_new, watch = 0, None
    if data or path.exists() or "monitor" not in stored.diagnostics:
        watch = _opened(stored, result, path, alpha)
        n_new = _look(watch, data or (), read.for_rows_of(stored.dbn.variables))
        # A result that was updated meanwhile is known again when its new rows were looked at.
        if not watch.is_of(stored):
            raise ParameterError(
                f"--state {str(path)!r} is of another network than RESULT {str(result)!r}; give another --state or, if "
                "RESULT was updated, all rows that were added.",
                code="other-network",
            )
    told = stored.diagnostics["monitor"] if watch is None else watch.told()
    if alpha not in (None, told["alpha"]):
        raise ParameterError(
            f"--alpha {alpha:g} differs from {told['alpha']:g}, with which it began; leave it out, or give another --state.",
            code="other-alpha",
        )
    if watch is not None and n_new:
        watch.save(path)
    looks = told["looks"][len(told["looks"]) - n_new :] if data else told["looks"]
    if plot is not None:
        _draw(told, plot)
    if as_json:
        files = {"result": str(result), "state": None if watch is None else str(path), "n_new": n_new}
        print_json({**files, **told, **({} if watch is None else {"evidence": watch.evidence})})
    else:
        _print(told, looks, result)
        for what, file in (("State", path if watch is not None and looks else None), ("Figure", plot)):
            if file is not None:
                say(f"{what}: {file}")
    if any(look["alarms"] for look in looks):
        raise typer.Exit(1)


def _print(told: Mapping[str, Any], looks: Sequence[Mapping[str, Any]], result: Path) -> None:
    """Print some looks, and how many alarms the others had."""
    if looks:
        print_tables([look_table(looks[-_MOST_LOOKS:])])
    others = sum(len(look["alarms"]) for look in told["looks"] if look not in looks[-_MOST_LOOKS:])
    if not told["looks"]:
        say("No looks so far; give new rows.")
    elif others or not looks:
        what = counted(others, "alarm") if others else "No alarm"
        say(
            f"{what} in {counted(len(told['looks']) - len(looks), 'earlier look')}; `feddbn monitor {result}` shows them."
        )


def _opened(stored: Result, result: Path, path: Path, alpha: float | None) -> Monitor:
    """The monitor of a state that was kept, or a new one."""
    from feddbn.analysis.monitor import Monitor

    if not path.exists():
        return Monitor(stored, 0.05 if alpha is None else alpha)
    return Monitor.load(path)


def _look(watch: Monitor, data: Sequence[Any], layout: Layout) -> int:
    """Look at each of `data`; return how many had rows that were not counted before."""
    n_new = 0
    with progress("monitor", total=len(data)) as (_, part):
        for one in data:
            part(str(one))
            try:
                if isinstance(one, Path) and one.suffix == ".json":
                    watch.look_at_update(_sums(one))
                else:
                    watch.look(one, layout=layout)
            except DataError as error:
                if error.code == "no-update":
                    raise ParameterError(f"NEW_ROWS {str(one)!r}: {error}", code=error.code) from None
                if error.code != "counted-before":
                    raise
                seen = error.values["look"]
                remark(
                    f"note: {one} was counted in {f'look {seen}' if seen else 'the fit'} and is not counted again."
                )
                continue
            n_new += 1
    return n_new


def _sums(path: Path) -> Tally:
    from feddbn.federation.sums.tally import Tally
    from feddbn.results.result import Result

    sums = Result.load(path).sums
    if sums is None:
        raise ParameterError(
            f"NEW_ROWS {str(path)!r} is a result without sums; give results of `feddbn update`."
        )
    return Tally.from_dict(sums, f"file {str(path)!r}")


def _draw(told: Mapping[str, Any], path: Path) -> None:
    from feddbn.report import plot_evidence

    figure = plot_evidence(told).get_figure(root=True)
    assert figure is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=200)
