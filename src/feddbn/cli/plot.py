"""``feddbn plot``: a result as a figure for a paper."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feddbn.cli.options import Json
from feddbn.cli.terminal import print_json, say
from feddbn.errors import FileError, ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from feddbn.methods.result import Result, StoredChanges
    from feddbn.model.dbn import DBN

__all__ = ["plot"]


class Kind(Enum):
    """What can be drawn."""

    graph = "graph"
    time_series = "time-series"
    weights = "weights"
    truth = "truth"
    convergence = "convergence"
    sites = "sites"
    responses = "responses"
    curves = "curves"
    effects = "effects"
    changes = "changes"
    drift = "drift"


def plot(
    result: Annotated[Path, typer.Argument(help="A result file.", show_default=False)],
    kind: Annotated[
        Kind,
        typer.Argument(
            help="graph: variables and arrows. time-series: unrolled. weights: heat maps. truth: above the "
            "estimate. convergence. sites: shared and specific edges. responses: to a shock. curves: effects that are no "
            "straight lines. effects: on means and probabilities of variables of other kinds. changes: edges over time. "
            "drift: weights over time."
        ),
    ] = Kind.graph,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A .pdf, .svg or .png file; by default named after result and kind."
        ),
    ] = None,
    truth: Annotated[Path | None, typer.Option(help="truth.json of simulated data, for `truth`.")] = None,
    shock: Annotated[str | None, typer.Option(help="The variable that is shocked, for `responses`.")] = None,
    horizon: Annotated[int, typer.Option(help="Time steps to follow a shock.")] = 10,
    min_weight: Annotated[float, typer.Option(help="Leave out weaker arrows (graph, time-series).")] = 0.0,
    standardised: Annotated[
        bool,
        typer.Option(
            "--standardised/--raw", help="Weights in standard deviations, or in the units of the data."
        ),
    ] = True,
    dpi: Annotated[int, typer.Option(help="Dots per inch of a .png.")] = 200,
    as_json: Json = False,
) -> None:
    """Draw a result: the graph, the weights, how it converged, how sites differ, what a shock does."""
    from feddbn.methods.result import Result

    loaded = Result.load(result)
    target = out or result.with_name(f"{result.stem}-{kind.value}.pdf")
    axes = _axes(loaded, kind, truth, shock, horizon, min_weight, standardised)
    figure = axes.get_figure(root=True)
    assert figure is not None
    target.parent.mkdir(parents=True, exist_ok=True)
    known = figure.canvas.get_supported_filetypes()
    if target.suffix.lower().lstrip(".") not in known:
        raise FileError(f"--out {str(target)!r} must end in .pdf, .svg or .png.")
    figure.savefig(target, dpi=dpi)
    if as_json:
        print_json({"figure": str(target), "kind": kind.value})
        return
    say(f"Figure: {target}")


def _axes(
    result: Result,
    kind: Kind,
    truth: Path | None,
    shock: str | None,
    horizon: int,
    min_weight: float,
    standardised: bool,
) -> Axes:
    from feddbn import report

    dbn = result.dbn
    draw: dict[Kind, Callable[[], Axes]] = {
        Kind.graph: lambda: report.plot_process_graph(dbn, min_weight=min_weight, standardised=standardised),
        Kind.time_series: lambda: report.plot_time_series_graph(
            dbn, min_weight=min_weight, standardised=standardised
        ),
        Kind.weights: lambda: report.plot_weights(dbn, standardised=standardised),
        Kind.truth: lambda: _against_truth(result, truth),
        Kind.convergence: lambda: _convergence(result),
        Kind.sites: lambda: _sites(result),
        Kind.responses: lambda: _responses(result, shock, horizon),
        Kind.changes: lambda: _changes(result),
        Kind.drift: lambda: _drift(result),
        Kind.curves: lambda: report.plot_curves(dbn, truth=result.truth if truth is None else _truth(truth)),
        Kind.effects: lambda: report.plot_effects(dbn),
    }
    return draw[kind]()


def _against_truth(result: Result, path: Path | None) -> Axes:
    from feddbn.report import plot_truth_and_estimate

    true = result.truth if path is None else _truth(path)
    if true is None:
        raise ParameterError("a plot of the truth needs --truth: this result does not hold one.")
    return plot_truth_and_estimate(true, result.dbn)


def _truth(path: Path) -> DBN:
    from feddbn.methods.truth import read_network

    return read_network(path)


def _convergence(result: Result) -> Axes:
    import pandas as pd

    from feddbn.report import plot_convergence

    if not result.history:
        raise ParameterError(f"a plot of convergence needs rounds, but {result.method} did not iterate.")
    return plot_convergence(pd.DataFrame(result.history))


def _sites(result: Result) -> Axes:
    from feddbn.method_table import find_method
    from feddbn.report import plot_site_differences, site_differences

    if not result.personal:
        row = find_method(result.method)
        if row is not None and row.is_personal:
            raise ParameterError(
                "a plot of sites needs the networks of several sites; this file holds one network, each site keeps its own."
            )
        raise ParameterError(
            f"a plot of sites needs a network per site, which {result.method} does not learn."
        )
    return plot_site_differences(site_differences(result.dbn, result.personal))


def _changes(result: Result) -> Axes:
    from feddbn.report import plot_changes

    found = _segments(result, "changes")
    return plot_changes(found.networks, found.segments, unit=found.unit)


def _drift(result: Result) -> Axes:
    from feddbn.report import plot_drift

    found = _segments(result, "drift")
    if not len(found.courses):
        raise ParameterError("a plot of drift needs weights that drift, and in this result none does.")
    return plot_drift(found.courses, unit=found.unit)


def _segments(result: Result, kind: str) -> StoredChanges:
    from feddbn.methods.result import stored_changes

    found = stored_changes(result.diagnostics, result.parameters)
    if found is None:
        raise ParameterError(
            f"a plot of {kind} needs segments, which {result.method} does not have; use feddbn fit --method changing."
        )
    return found


def _responses(result: Result, shock: str | None, horizon: int) -> Axes:
    from feddbn.model.inputs import variable_index
    from feddbn.report import plot_responses

    if shock is None:
        raise ParameterError("a plot of responses needs --shock, the variable that is shocked.")
    i = variable_index(shock, result.dbn.variables, "--shock")
    if result.dbn.bends:
        raise ParameterError(
            "a plot of responses needs straight effects; with curves or other kinds they depend on the value: feddbn effects"
            " --at --by, or a plot of curves."
        )
    return plot_responses(result.dbn.impulse_responses(horizon)[:, i], result.dbn.variables, shock=shock)
