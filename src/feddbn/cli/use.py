"""What is made of a network: ``feddbn report``, ``plot``, ``export``, ``forecast``, ``effects``."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feddbn.cli.options import Json, Network, OfSite, Reading, parse_variables, reads_data
from feddbn.cli.printed import print_notes
from feddbn.cli.terminal import print_frame, print_json, remark, say, tell, write_csv
from feddbn.errors import FileError, ParameterError
from feddbn.words import counted
from feddbn.words import say as say_finding

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from feddbn.analysis.history import History
    from feddbn.model.dbn import DBN
    from feddbn.results.result import Result


__all__ = ["effects", "export", "forecast", "plot", "report"]


def report(
    result: Annotated[Path, typer.Argument(help="A result file.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; by default the result's name with .html."),
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="True network of simulated data (truth.json), to mark correct edges.")
    ] = None,
    edges: Annotated[
        Path | None,
        typer.Option(help="Edge table of `feddbn confidence`, to show probabilities and intervals."),
    ] = None,
    audit: Annotated[Path | None, typer.Option(help="A site's audit log, to show what left it.")] = None,
    check: Annotated[
        Path | None,
        typer.Option(help="findings.json of a study that checked the data, to show what it found."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    as_json: Json = False,
) -> None:
    """Write a result as one HTML page that works offline: graph, edges, diagnosis, sites."""
    from feddbn.analysis.truth import read_network
    from feddbn.report import write_report
    from feddbn.report.record import read_edges, read_record
    from feddbn.results.result import Result

    stored = Result.load(result).to_dict()
    if check is not None:
        from feddbn.cli.data import read_findings

        stored["diagnostics"] = {
            **(stored.get("diagnostics") or {}),
            "check": [one.to_dict() for one in read_findings(check)],
        }
    table = None if edges is None else read_edges(edges)
    page = write_report(
        stored,
        out or result.with_suffix(".html"),
        title=title,
        truth=None if truth is None else read_network(truth),
        edges=table,
        audit=None if audit is None else _audit_rows(audit),
        audience="cli",
    )
    differ = [] if table is None else read_record(stored, {"edges": table}).findings.of("edges-differ")
    print_notes([] if as_json else differ)
    told = {"report": str(page), "bytes": page.stat().st_size}
    tell(as_json, {**told, "findings": [one.to_dict() for one in differ]}, f"Report: {page}")


def _audit_rows(path: Path) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from feddbn.cli.site import read_log
    from feddbn.privacy.audit import parse_entries

    return [asdict(entry) for entry in parse_entries(read_log(path))]


class Kind(Enum):
    """What can be drawn."""

    graph = "graph"
    time_series = "time-series"
    weights = "weights"
    truth = "truth"
    convergence = "convergence"
    sites = "sites"
    responses = "responses"
    effects = "effects"
    changes = "changes"


def plot(
    result: Annotated[Path, typer.Argument(help="A result file.", show_default=False)],
    kind: Annotated[
        Kind,
        typer.Argument(
            help="graph: variables and arrows. time-series: graph unrolled over time. weights: heat maps. truth: true "
            "network above the estimate. convergence: over rounds. sites: shared and site-specific edges. responses: to a "
            "shock. effects: curved ones, and those on counts and categories. changes: edges over time."
        ),
    ] = Kind.graph,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="A .pdf, .svg or .png file; by default named after the result and the kind of plot.",
        ),
    ] = None,
    truth: Annotated[Path | None, typer.Option(help="True network (truth.json), for `truth`.")] = None,
    shock: Annotated[
        str | None, typer.Option(help="The variable that receives the shock, for `responses`.")
    ] = None,
    horizon: Annotated[int, typer.Option(help="Number of time steps after a shock.")] = 10,
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
    """Draw a result: the graph, the weights, convergence, differences between sites, responses to a shock."""
    from feddbn.analysis.truth import read_network
    from feddbn.results.abstention import ABSTAINED
    from feddbn.results.result import Result

    loaded = Result.load(result)
    target = out or result.with_name(f"{result.stem}-{kind.value}.pdf")
    grey = bool(loaded.findings.of(ABSTAINED))
    style = {"min_weight": min_weight, "standardised": standardised, "grey": grey}
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
    from feddbn.model.network import variable_index
    from feddbn.results.changes import stored_changes

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
    if kind is Kind.effects:
        return report.plot_effects(dbn, truth=true)
    if kind is Kind.truth:
        if true is None:
            raise ParameterError("a plot of the truth needs --truth: this result holds no true network.")
        return report.plot_truth_and_estimate(true, dbn)
    if kind is Kind.convergence:
        needs(f"rounds, but {result.method} did not iterate", result.history)
        return report.plot_convergence(pd.DataFrame(result.history))
    if kind is Kind.sites:
        row = find_method(result.method)
        keeps = "the networks of several sites; this file holds one network, because each site keeps its own"
        learns = f"a network per site, which {result.method} does not learn"
        needs(keeps if row is not None and row.is_personal else learns, result.personal)
        return report.plot_site_differences(report.site_differences(dbn, result.personal or {}))
    if kind is Kind.responses:
        if shock is None:
            raise ParameterError("a plot of responses needs --shock, the variable that receives the shock.")
        i = variable_index(shock, dbn.variables, "--shock")
        curved = "linear effects; here responses depend on the value: use feddbn effects --at --by"
        needs(f"{curved}, or a plot of effects", dbn.is_linear)
        low, high = (
            (bound[:, i] for bound in bands) if (bands := result.response_bands(horizon)) else (None, None)
        )
        responses = dbn.impulse_responses(horizon)[:, i]
        return report.plot_responses(responses, dbn.variables, low=low, high=high, shock=shock)
    found = stored_changes(result.diagnostics, result.parameters)
    needs(f"segments, which {result.method} does not have; use feddbn fit --method changing", found)
    assert found is not None
    return report.plot_changes(found.networks, found.segments, unit=found.unit)


class Form(Enum):
    """What a network can be written as."""

    json = "json"
    csv = "csv"
    graphml = "graphml"
    dot = "dot"
    lingam = "lingam"
    tigramite = "tigramite"
    curves = "curves"
    coefficients = "coefficients"


def export(
    network: Network,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write: .json, .csv, .graphml or .dot.")],
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            help="By default given by the ending of --out. lingam and tigramite are .npz files. curves and coefficients are "
            ".csv tables: of curved effects, of effects on counts and categories.",
        ),
    ] = None,
    of: OfSite = None,
    as_json: Json = False,
) -> None:
    """Write a network as JSON, edge list, GraphML, DOT, or arrays for lingam or tigramite."""
    from feddbn.analysis.truth import read_network

    dbn = read_network(network, of)
    chosen = form or _form_of(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    _write_network(dbn, chosen, out)
    tell(as_json, {"file": str(out), "format": chosen.value}, f"Network: {out}")


def _form_of(path: Path) -> Form:
    ending = path.suffix.lower().lstrip(".")
    tables = (Form.lingam, Form.tigramite, Form.curves, Form.coefficients)
    known = [form.value for form in Form if form not in tables]
    if ending not in known:
        endings = ", ".join(f".{name}" for name in known)
        raise ParameterError(
            f"--out {str(path)!r} does not name a format: end it in {endings}, or give --format."
        )
    return Form(ending)


def _write_network(dbn: DBN, form: Form, path: Path) -> None:
    import numpy as np

    names = np.array(dbn.variables)
    if form in (Form.lingam, Form.tigramite) and path.suffix != ".npz":
        raise ParameterError(
            f"--out {str(path)!r} must end in .npz, because {form.value} takes several arrays."
        )
    if form is Form.curves:
        if not dbn.parts:
            raise ParameterError(
                "--format curves needs a network with curves, but all effects of this one are linear."
            )
        write_csv(dbn.curves_table(), path)
    elif form is Form.coefficients:
        write_csv(dbn.coefficients(), path)
    elif form is Form.lingam:
        np.savez(path, adjacency_matrices=dbn.to_lingam(), variables=names)
    elif form is Form.tigramite:
        graph, values = dbn.to_tigramite()
        np.savez(path, graph=graph, val_matrix=values, var_names=names)
    else:
        getattr(dbn, f"to_{form.value}")(path)


@reads_data("time", "names", "values", "freq", "irregular", "limits", "units", "sort", "jitter", "day_first")
def forecast(
    network: Network,
    history: Annotated[
        Any,
        typer.Argument(
            help="File of one recording, or a query (--sql); the forecast begins after its last row.",
        ),
    ],
    series: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN=NAME",
            help="If the file holds several recordings: use the one with this name in this column.",
        ),
    ] = None,
    steps: Annotated[int, typer.Option(help="Number of time steps to forecast.")] = 8,
    interval: Annotated[float, typer.Option(help="Coverage of the intervals.")] = 0.9,
    do: Annotated[
        list[str] | None,
        typer.Option(metavar="VARIABLE=VALUE", help="Hold a variable at a value; repeat for more."),
    ] = None,
    variables: Annotated[
        str | None, typer.Option(help="Variables to show, separated by commas; all by default.")
    ] = None,
    of: OfSite = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write the whole forecast as CSV.")
    ] = None,
    as_json: Json = False,
    *,
    read: Reading,
) -> None:
    """Forecast the time steps after a recording, with intervals; --do holds a variable at a value."""
    from feddbn.analysis.truth import has_own_scales, own_course, read_network
    from feddbn.model.network import variable_index
    from feddbn.model.trends import fit_trend

    dbn = read_network(network, of)
    every = (*dbn.variables, *dbn.definitions)
    names = parse_variables(variables) or list(every)
    shown = {every[variable_index(name, every, "--variables")] for name in names}
    past = _recording(network, dbn, history, read, series)
    if past.n_empty:
        last = "" if past.last is None else f" ({past.last})"
        rows = "row is" if past.n_empty == 1 else f"{past.n_empty} rows are"
        remark(
            f"note: the last {rows} empty; step 1 is the time step after them{last}, inferred from the rows before."
        )
    lost, held = own_course(network), _held(do, dbn)
    if has_own_scales(network):
        remark(
            "note: sites were rescaled to a common scale before learning. Weights and intervals are on that mean scale, and "
            "the recording is treated as if it were, too."
        )
    trend = None
    if lost is not None:
        trend = fit_trend(
            past.values, lost["degree"], lost["periods"], times=past.steps, variables=dbn.variables
        )
        remark(
            f"note: each recording's own {_what(lost)} was subtracted before learning; for this recording it is estimated "
            f"from its {past.n_rows} rows."
        )
        for sentence in trend.remarks(steps):
            remark(f"note: {sentence}")
    ahead = dbn.do(held, past.rows, steps, interval, random_state=0, trend=trend, end=past.end)
    if ahead.n_inferred and not past.n_empty:
        remark(f"note: inferred in the last rows: {counted(ahead.n_inferred, 'missing cell')}.")
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
    columns = ["variable", *level, "step", *(["time"] if times is not None else []), "mean", "lower", "upper"]
    if ahead.beyond is not None:
        columns.append("beyond")
    print_frame(table.sort_values(["variable", *level], kind="stable")[columns], f"{interval:.0%} intervals")
    if ahead.outcomes:
        remark(
            "note: the mean of a binary variable is the probability of its second level; a category has one for each level."
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


def _recording(network: Path, dbn: DBN, file: Any, read: Reading, series: str | None) -> History:
    """The one recording in a file; what is to know about it is said."""
    from feddbn.analysis.history import read_history
    from feddbn.analysis.truth import cell_maps_of

    kinds = zip(dbn.variables, dbn.kinds, strict=True)
    # Levels may be written by name.
    levels = {name: kind.as_recorded for name, kind in kinds if kind.levels}
    past = read_history(file, dbn.variables, read.with_kinds(levels), cell_maps_of(network), series)
    for found in past.remarks:
        remark(f"note: {say_finding(found, 'cli')}")
    return past


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


def effects(
    network: Network,
    source: Annotated[str, typer.Argument(help="The variable that is changed.", show_default=False)],
    target: Annotated[
        str | None,
        typer.Argument(help="The affected variable; all variables if left out.", show_default=False),
    ] = None,
    horizon: Annotated[int, typer.Option(help="Number of time steps after the change.")] = 10,
    at: Annotated[
        str | None,
        typer.Option(
            help="With curves, counts or categories: the value or level that SOURCE is changed from; its origin if left out."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="By how much SOURCE is changed, in its unit; one standard deviation if left out. For a category: the level "
            "that it is changed to."
        ),
    ] = None,
    of: OfSite = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the table as CSV.")] = None,
    as_json: Json = False,
) -> None:
    """Show the effect on TARGET, along all paths, of raising SOURCE for one time step.

    Without a TARGET: the largest effect on every variable, its time step, and the sum over all time steps. In networks with
    curves, counts or categories the effect depends on the value (--at, --by) and is simulated with fixed random numbers.
    """
    from feddbn.analysis.truth import read_network

    dbn = read_network(network, of)
    begin, step = (_value(text, name, dbn, source) for text, name in ((at, "--at"), (by, "--by")))
    if target is None:
        table = _on_all(dbn, source, horizon, begin, step)
    else:
        table = dbn.effects(source, target, horizon, at=begin, by=step, random_state=0)
    if out is not None:
        write_csv(table, out)
    if as_json:
        print_json({"source": source, "target": target, "effects": table})
        return
    where = "" if target is None else f", effect on {target}"
    print_frame(table, _change(dbn, source, begin, step) + where)
    if out is not None:
        say(f"Effects: {out}")


def _value(text: str | None, option: str, dbn: DBN, source: str) -> float | str | None:
    """A number, or the name of a level of the source."""
    from feddbn.model.network import variable_index

    levels = dbn.kinds[variable_index(source, dbn.variables, "source")].levels
    return text if text is None or text in levels else _number(text, option, levels)


def _number(text: str, option: str, levels: Sequence[str] = ()) -> float:
    try:
        return float(text)
    except ValueError:
        choice = f" or one of the levels {', '.join(levels)}" if levels else ""
        raise ParameterError(f"{option} {text!r} must be a number{choice}.") from None


def _change(dbn: DBN, source: str, at: float | str | None, by: float | str | None) -> str:
    """What is done to the source, in words."""
    from feddbn.model.effects import from_and_by
    from feddbn.model.network import variable_index

    i = variable_index(source, dbn.variables, "source")
    begin, step = from_and_by(dbn, i, at, by)
    if dbn.is_linear:
        one = " (one standard deviation)" if by is None else ""
        return f"raising {source} by {step:.4g}{one} for one time step"
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

    from feddbn.model.dynamics import outcome_columns
    from feddbn.model.effects import expected_changes
    from feddbn.model.network import variable_index

    i = variable_index(source, dbn.variables, "source")
    total = expected_changes(dbn, i, horizon, at=at, by=by, random_state=0).mean
    step = np.abs(total).argmax(axis=0)
    outcomes = outcome_columns(dbn)
    largest = total[step, np.arange(len(outcomes))]
    names = [outcome.name for outcome in outcomes]
    table = pd.DataFrame({"target": names, "largest": largest, "step": step, "cumulative": total.sum(axis=0)})
    others = np.array([outcome.variable != dbn.variables[i] for outcome in outcomes])
    table = table[(table["largest"] != 0) & others]
    return table.sort_values("largest", key=np.abs, ascending=False, kind="stable", ignore_index=True)
