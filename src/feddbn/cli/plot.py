"""``feddbn plot``: a result as a figure for a paper."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.options import Json
from feddbn.cli.terminal import tell
from feddbn.errors import FileError, ParameterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from feddbn.methods.result import Result
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
    from feddbn.methods.truth import read_network

    loaded = Result.load(result)
    target = out or result.with_name(f"{result.stem}-{kind.value}.pdf")
    style = {"min_weight": min_weight, "standardised": standardised}
    axes = _axes(loaded, kind, None if truth is None else read_network(truth), shock, horizon, style)
    figure = axes.get_figure(root=True)
    assert figure is not None
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix.lower().lstrip(".") not in figure.canvas.get_supported_filetypes():
        raise FileError(f"--out {str(target)!r} must end in .pdf, .svg or .png.")
    figure.savefig(target, dpi=dpi)
    tell(as_json, {"figure": str(target), "kind": kind.value}, f"Figure: {target}")


def _axes(
    result: Result, kind: Kind, truth: DBN | None, shock: str | None, horizon: int, style: dict[str, Any]
) -> Axes:
    """Draw what was asked for; refuse what the result does not have."""
    import pandas as pd

    from feddbn import report
    from feddbn.method_table import find_method
    from feddbn.methods.result import stored_changes
    from feddbn.model.inputs import variable_index

    dbn, true = result.dbn, truth or result.truth

    def needs(what: str, is_there: object) -> None:
        if not is_there:
            raise ParameterError(f"a plot of {kind.value} needs {what}.")

    if kind is Kind.graph:
        return report.plot_process_graph(dbn, **style)
    if kind is Kind.time_series:
        return report.plot_time_series_graph(dbn, **style)
    if kind is Kind.weights:
        return report.plot_weights(dbn, standardised=style["standardised"])
    if kind is Kind.curves:
        return report.plot_curves(dbn, truth=true)
    if kind is Kind.effects:
        return report.plot_effects(dbn)
    if kind is Kind.truth:
        if true is None:
            raise ParameterError("a plot of the truth needs --truth: this result does not hold one.")
        return report.plot_truth_and_estimate(true, dbn)
    if kind is Kind.convergence:
        needs(f"rounds, but {result.method} did not iterate", result.history)
        return report.plot_convergence(pd.DataFrame(result.history))
    if kind is Kind.sites:
        row = find_method(result.method)
        keeps = "the networks of several sites; this file holds one network, each site keeps its own"
        learns = f"a network per site, which {result.method} does not learn"
        needs(keeps if row is not None and row.is_personal else learns, result.personal)
        return report.plot_site_differences(report.site_differences(dbn, result.personal or {}))
    if kind is Kind.responses:
        if shock is None:
            raise ParameterError("a plot of responses needs --shock, the variable that is shocked.")
        i = variable_index(shock, dbn.variables, "--shock")
        curved = (
            "straight effects; with curves or other kinds they depend on the value: feddbn effects --at --by"
        )
        needs(f"{curved}, or a plot of curves", not dbn.bends)
        return report.plot_responses(dbn.impulse_responses(horizon)[:, i], dbn.variables, shock=shock)
    found = stored_changes(result.diagnostics, result.parameters)
    needs(f"segments, which {result.method} does not have; use feddbn fit --method changing", found)
    assert found is not None
    if kind is Kind.changes:
        return report.plot_changes(found.networks, found.segments, unit=found.unit)
    needs("weights that drift, and in this result none does", len(found.courses))
    return report.plot_drift(found.courses, unit=found.unit)
