"""The report: one HTML file that needs nothing else, not even a network.

The interactive graph is plain SVG and a small script written here, not a bundled library: positions are
computed in Python (so the picture is the same everywhere and a hundred variables cost the browser nothing),
which leaves hovering, dragging, filtering and selecting: less code than the configuration of a graph
library, no licence to carry, tens of kilobytes instead of hundreds, and no canvas, so it prints, scales and
is readable by assistive technology. A content security policy in the page forbids every request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from feddbn._version import __version__
from feddbn.core.arrays import FloatArray
from feddbn.errors import FileError, ParameterError
from feddbn.findings import Finding
from feddbn.method_table import find_method
from feddbn.model.dbn import DBN
from feddbn.model.dynamics import stationary_sample
from feddbn.model.effects import changes_by_variable, expected_changes, standard_deviations
from feddbn.report.canvas import inline_svg
from feddbn.report.curve_plots import plot_changes, plot_convergence
from feddbn.report.effect_plots import plot_effects
from feddbn.report.graph_layout import graph_positions, time_series_edges
from feddbn.report.graph_plots import MOST_DRAWN, graph_svg
from feddbn.report.matrix_plots import (
    plot_site_differences,
    plot_truth_and_estimate,
    plot_weights,
    site_differences,
)
from feddbn.report.record import EDGE_COLUMNS, ReportRecord, read_record
from feddbn.report.verdicts import treatment, verdicts
from feddbn.results.abstention import ABSTAINED
from feddbn.results.changes import stored_changes
from feddbn.shown import with_code
from feddbn.words import Audience, card, counted, full_sentence, say, setting
from feddbn.words.tables import Table, change_tables, findings_table, held_out_tables, known_number

__all__ = ["page_data", "render_report", "summary_sentence", "write_report"]


def write_report(
    result: object,
    path: str | Path,
    *,
    title: str | None = None,
    edges: pd.DataFrame | None = None,
    truth: DBN | None = None,
    sites: Sequence[Mapping[str, Any]] | None = None,
    audit: Sequence[Mapping[str, Any]] | None = None,
    audience: Audience = "python",
) -> Path:
    """The path of the report written for `result`.

    Parameters
    ----------
    result
        A stored result (a mapping or the path of its file), a fitted method, or a network.
    path
        Where to write; an existing file is replaced.
    title
        Heading; made from the method and the numbers if None.
    edges
        Table source, target, lag, weight and any of probability, ci_low, ci_high, as edge confidence gives
        it; the result's own if None. Rows of weight 0 are no edges and are left out.
    truth
        The network that generated simulated data; the result's own if None.
    sites
        One mapping per site with name, recordings, rows, dropped_rows; the result's own if None.
    audit
        Entries of a site's audit log (task, event, length, n_bytes, protection, ...), summarised in the
        page; the result's own if None.
    audience
        Who reads it, and so how settings are written: "python", "cli" or "lead".

    Examples
    --------
    >>> import feddbn, tempfile, pathlib
    >>> from feddbn.report import write_report
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> write_report(dbn, pathlib.Path(tempfile.mkdtemp()) / "report.html").name
    'report.html'
    """
    target = Path(path)
    beside: dict[str, Any] = {"edges": edges, "truth": truth, "sites": sites, "audit": audit}
    text = render_report(result, title=title, audience=audience, **beside)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write the report to {target}: {error.strerror or error}.") from error
    return target


def render_report(
    result: object,
    *,
    title: str | None = None,
    edges: pd.DataFrame | None = None,
    truth: DBN | None = None,
    sites: Sequence[Mapping[str, Any]] | None = None,
    audit: Sequence[Mapping[str, Any]] | None = None,
    audience: Audience = "python",
) -> str:
    """The HTML text of the report for `result`; the same result gives the same text. See `write_report`.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import render_report
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> render_report(dbn, title="Two variables").startswith("<!doctype html>")
    True
    """
    beside: dict[str, Any] = {"edges": edges, "sites": sites, "audit": audit}
    if truth is not None:
        beside["truth"] = truth.to_dict()
    record = read_record(result, {k: v for k, v in beside.items() if v is not None})
    data = json.dumps(page_data(record), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    page: str = template("report.html").render(
        record=record,
        title=title or _title(record),
        summary=summary_sentence(record),
        abstained=None if record.abstained is None else full_sentence(say(record.abstained, audience)),
        facts=_facts(record, audience),
        parameters={k: _shown(v) for k, v in sorted(record.parameters.items())},
        verdicts=[(one, card(one, audience)) for one in verdicts(record)],
        figures=_figures(record),
        products=_products(record.dbn),
        kinds=kind_table(record.dbn),
        coefficients=coefficient_table(record.dbn),
        changes=changes_section(record, audience),
        sites=_site_rows(record),
        findings=[
            (one.level, _capitalised(say(one, audience), record.dbn.variables))
            for one in record.findings
            if one.level != "good" and one.code != ABSTAINED
        ],
        treatment=[card(one, audience) for one in treatment(record)],
        held_out=list(held_out_tables(record.diagnostics)),
        check=_check_tables(record, audience),
        audit=_audit_table(record.audit),
        spent=_spent(record.audit),
        truth=_truth_counts(record),
        # "<" cannot end the script element early once it is escaped.
        data=Markup(data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")),
        version=__version__,
    )
    return page


@cache
def template(name: str) -> Any:
    """A template of this folder; whatever is put into it is escaped."""
    loader = PackageLoader("feddbn.report")
    options: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=loader, undefined=StrictUndefined, **options)
    environment.filters["thousands"] = lambda value: "–" if value is None else f"{value:,}"
    environment.filters["code"] = with_code
    return environment.get_template(name)


def _title(record: ReportRecord) -> str:
    sites = f", {len(record.sites)} sites" if len(record.sites) > 1 else ""
    return f"{record.method}: {record.dbn.d} variables{sites}"


def summary_sentence(record: ReportRecord) -> str:
    """How many effects a result has, learned from how much."""
    is_edge = record.dbn.is_edge
    n_now, n_late = int(np.count_nonzero(is_edge[0])), int(np.count_nonzero(is_edge[1:]))
    n_curved = sum(part.term.basis != "product" for part in record.dbn.parts)
    curved = f"; {n_curved:,} of them {'is' if n_curved == 1 else 'are'} curved" if n_curved else ""
    steps = "1 step" if record.dbn.n_lags == 1 else f"{record.dbn.n_lags} steps"
    rows = f" from {record.n_rows:,} rows" if record.n_rows is not None else ""
    where = f" at {len(record.sites)} sites" if len(record.sites) > 1 else ""
    sums = f" in {counted(record.n_rounds, 'sum')}" if record.n_rounds is not None else ""
    return (
        f"{record.method} learned {n_now + n_late:,} effects among {record.dbn.d} variables{rows}{where}{sums}: "
        f"{n_now:,} contemporaneous and {n_late:,} delayed by up to {steps}{curved}."
    )


def _facts(record: ReportRecord, audience: Audience) -> list[tuple[str, str]]:
    row = find_method(record.method, offered=True)
    facts = [
        ("Method", record.method),
        ("It assumes", "" if row is None else _plain(row.assumes, audience)),
        ("Found by", "" if row is None else row.citation),
        ("Variables", f"{record.dbn.d}"),
        ("Lags", f"{record.dbn.n_lags}"),
        ("Sites", f"{len(record.sites)}" if len(record.sites) else ""),
        ("Rows used", f"{record.n_rows:,}" if record.n_rows is not None else ""),
        ("Sums", f"{record.n_rounds}" if record.n_rounds is not None else ""),
        ("Outcome", record.status_message),
        ("Protection", _protection(record.privacy or {})),
        ("Created", record.created),
    ]
    return [(name, value) for name, value in facts if value]


def _plain(markdown: str, audience: Audience) -> str:
    """Without marks, and with settings as the reader writes them."""
    text = re.sub(r'(\w+)="(\w+)"', lambda found: setting(found[1], found[2], audience), markdown)
    return text.replace("`", "").replace("**", "")


def _protection(privacy: Mapping[str, Any]) -> str:
    """The promise of a study in words; the keys are those of a study's [privacy]."""
    parts = []
    if privacy.get("secure_aggregation"):
        least = f" of at least {privacy['min_sites']} sites" if privacy.get("min_sites") else ""
        parts.append(f"secure aggregation: only sums{least} can be opened")
    if known_number(privacy.get("spread")) is not None:
        parts.append(f"secret weights of rows, which vary by {privacy['spread']:.0%}")
    if privacy.get("epsilon") is not None:
        delta = f", delta {privacy['delta']:.1g}" if privacy.get("delta") is not None else ""
        unit = f" for each {privacy['unit']}" if privacy.get("unit") else ""
        parts.append(f"differential privacy: epsilon {privacy['epsilon']:.3g}{delta}{unit}")
    return "; ".join(parts) or ("none" if privacy else "none recorded")


def _figures(record: ReportRecord) -> dict[str, Markup]:
    figures = {"graph": "", "convergence": "", "matrices": "", "sites": "", "curves": "", "effects": ""}
    if record.dbn.d <= MOST_DRAWN:
        figures["graph"] = graph_svg(record.dbn, grey=record.abstained is not None)
    kinds = "effects", "Effects on variables of other kinds: mean or probability against each cause"
    curves = "curves", "Curved effects: what each adds to its target, value by value, with its band"
    name, text = kinds if record.dbn.has_kinds else curves
    # Without rows that are usual there is nothing to average over; the coefficients are there.
    with suppress(ParameterError):
        figures[name] = inline_svg(lambda: plot_effects(record.dbn, truth=record.truth), name, text)
    history = record.history
    if history is not None and {"h", "primal", "dual", "objective"} & set(history.columns):
        text = "Acyclicity, residuals and objective over the rounds"
        figures["convergence"] = inline_svg(lambda: plot_convergence(history), "convergence", text)
    truth = record.truth
    if truth is not None:
        text = "True weights above estimated weights, rows are causes and columns effects"
        figures["matrices"] = inline_svg(lambda: plot_truth_and_estimate(truth, record.dbn), "matrices", text)
    else:
        text = "Estimated weights in standard deviations, rows are causes and columns effects"
        figures["matrices"] = inline_svg(lambda: plot_weights(record.dbn), "matrices", text)
    if record.personal:
        table = site_differences(record.dbn, record.personal)
        text = "Shared weight of each edge and each site's deviation from it"
        figures["sites"] = inline_svg(lambda: plot_site_differences(table), "sites", text)
    return {name: Markup(svg) for name, svg in figures.items()}


def _products(dbn: DBN) -> Table | None:
    """What pairs of variables do together, strongest first; squares are among the curves."""
    names, rows = dbn.variables, []
    products = [(one, float(np.asarray(one.coefficients)[0, 0])) for one in dbn.parts if not one.term.edge]
    for one, weight in sorted(products, key=lambda product: -abs(product[1])):
        pairs = (one.term.origins, one.term.scales)
        origins, scales = (" and ".join(f"{x:.4g}" for x in pair) for pair in pairs)
        causes = " × ".join(names[i] for i, _ in one.term.sources)
        lags = " and ".join(map(str, dict.fromkeys(lag for _, lag in one.term.sources)))
        rows.append((causes, names[one.target], lags, f"{weight:.4g}", origins, scales))
    heads = ("Causes", "Effect", "Lag", "Weight", "Origins", "Scales")
    return Table(heads, rows, range(2, 4)) if rows else None


def _site_rows(record: ReportRecord) -> list[dict[str, Any]]:
    rows = []
    total = record.n_rows or 0
    shared = record.dbn.is_edge
    table = {str(r["name"]): r for r in record.sites.to_dict("records")}
    for name in dict.fromkeys([*table, *record.personal]):
        site = table.get(name, {})
        own = record.personal.get(name)
        has = own.is_edge if own is not None else None
        n_rows = _whole(site.get("rows"))
        rows.append(
            {
                "name": name,
                "recordings": _whole(site.get("recordings")),
                "rows": n_rows,
                "dropped": _whole(site.get("dropped_rows")),
                "share": n_rows / total if n_rows is not None and total else None,
                "edges": None if has is None else int(has.sum()),
                "own": None if has is None else int((has & ~shared).sum()),
                "lacking": None if has is None else int((shared & ~has).sum()),
            }
        )
    return rows


def _check_tables(record: ReportRecord, audience: Audience) -> list[Table]:
    """The table of a check that is told beside the result; none if there was none."""
    found = record.diagnostics.get("check")
    return [findings_table(list(map(Finding.from_dict, found)), audience)] if isinstance(found, list) else []


def _audit_table(audit: Sequence[Mapping[str, Any]]) -> Table | None:
    """Per kind of task: answers that left, refusals, bytes, numbers in an answer, and what protected them.

    The keys are those of a site's audit log (`feddbn.privacy.audit.AuditEntry`).
    """
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for entry in audit:
        # Greetings and approvals are in the site's own log and send nothing.
        if entry.get("event", "sent") in ("sent", "refused"):
            kinds.setdefault(str(entry.get("task") or "unknown task"), []).append(entry)
    rows = []
    for task, entries in kinds.items():
        sent = [one for one in entries if one.get("event") != "refused"]
        lengths = sorted({int(one["length"]) for one in sent if one.get("length") is not None})
        n_bytes = sum(int(one.get("n_bytes") or 0) for one in sent)
        protection = "; ".join(sorted({str(one.get("protection") or "none") for one in sent}))
        counts = (f"{n:,}" for n in (len(sent), len(entries) - len(sent), n_bytes))
        rows.append((task, *counts, ", ".join(f"{n:,}" for n in lengths) or "–", protection or "–"))
    heads = ("Task", "Answers", "Refused", "Bytes", "Numbers in an answer", "Protection")
    return Table(heads, rows, range(1, 4)) if rows else None


def _spent(audit: Sequence[Mapping[str, Any]]) -> str:
    """The privacy a site has spent by its log's last entry that says so."""
    for entry in reversed(audit):
        if entry.get("epsilon") is not None:
            delta = f", delta {entry['delta']:.1g}" if entry.get("delta") is not None else ""
            return f"Spent so far: epsilon {entry['epsilon']:.3g}{delta} per {entry.get('unit') or 'unit'}."
    return ""


def _truth_counts(record: ReportRecord) -> dict[str, int] | None:
    if record.truth is None:
        return None
    marks = record.edges["truth"].value_counts()
    n_true = int(np.count_nonzero(record.truth.is_edge))
    found = int(marks.get("found", 0))
    return {
        "true": n_true,
        "found": found,
        "reversed": int(marks.get("reversed", 0)),
        "extra": int(marks.get("extra", 0)),
        "missing": n_true - found - int(marks.get("reversed", 0)),
    }


def _capitalised(text: str, variables: Sequence[str]) -> str:
    # A sentence may begin with the name of a variable, which stays as it is written.
    return text if text.startswith(tuple(variables)) else text[:1].upper() + text[1:]


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        text = ", ".join(_shown(v) for v in value)
        return text if len(text) <= 200 else text[:199] + "…"
    return str(value)


def _whole(value: object) -> int | None:
    if not isinstance(value, (int, float, np.number)) or not np.isfinite(float(value)):
        return None
    return int(value)


HORIZON = 12
EFFECTS_PER_VARIABLE = 6
# Above this many (network, variable) pairs only the shared network carries effects, to keep the file small.
EFFECTS_BUDGET = 1200
# Simulated paths of all variables together; pairs with the same noise need few.
_N_PATHS = 8000
# Larger networks are drawn without bands, which would take seconds.
_MOST_WITH_BANDS = 40


def page_data(record: ReportRecord) -> dict[str, Any]:
    """A JSON-able mapping: variables, positions, lags, and per network its edges and effects.

    An edge is ``[source, target, lag, weight, probability, ci_low, ci_high, truth, standardised, oriented, presence,
    direction, robustness, could_be_hidden, q_value]`` with positions instead of names and null for what is unknown; in a
    network with curves the shape and whether the effect goes one way follow. Effects are ``{source: [[target, peak, step,
    [responses], [low], [high]], ...]}``, without bounds where they are not known.
    """
    # Bands are as wide as complete rows make them, of which rows with empty cells are worth fewer.
    worth = record.diagnostics.get("n_samples")
    networks: list[dict[str, Any]] = [
        {"name": "shared" if record.personal else "learned", "edges": _edge_rows(record.edges, record.dbn)}
    ]
    networks[0]["effects"] = _effects(record.dbn, worth or record.n_rows)
    in_budget = (len(record.personal) + 1) * record.dbn.d <= EFFECTS_BUDGET
    for site, dbn in record.personal.items():
        columns = [*EDGE_COLUMNS, "standardised", "oriented"]
        table = time_series_edges(dbn).iloc[::-1].reindex(columns=columns).reset_index(drop=True)
        networks.append(
            {"name": site, "edges": _edge_rows(table, dbn), "effects": _effects(dbn) if in_budget else {}}
        )
    edges = record.edges
    return {
        "variables": list(record.dbn.variables),
        "positions": [[round(float(x), 4), round(1 - float(y), 4)] for x, y in graph_positions(record.dbn)],
        "n_lags": int(max([record.dbn.n_lags, *edges["lag"]])),
        "has_probability": bool(edges["probability"].notna().any()),
        "has_interval": bool(edges["ci_low"].notna().any()),
        "has_presence": bool(edges["presence"].notna().any()),
        "has_hidden": bool(edges["could_be_hidden"].notna().any()),
        "has_q": bool(edges["q_value"].notna().any()),
        "is_grey": record.abstained is not None,
        "has_open": any(dbn.open_edges for dbn in [record.dbn, *record.personal.values()]),
        "has_truth": "truth" in edges,
        "is_linear": all(dbn.is_linear for dbn in [record.dbn, *record.personal.values()]),
        "kinds": [kind.name for kind in record.dbn.kinds] if record.dbn.has_kinds else [],
        "horizon": HORIZON,
        "networks": networks,
    }


def _effects(dbn: DBN, n_rows: int | None = None) -> dict[str, list[list[Any]]]:
    """Responses to a shock of one standard deviation, in standard deviations: comparable whatever the units."""
    scale, bands = standard_deviations(dbn), list[FloatArray]()
    try:
        if dbn.is_linear:
            responses = dbn.impulse_responses(HORIZON) * (scale[:, None] / scale)
            if n_rows and dbn.d <= _MOST_WITH_BANDS and dbn.is_stationary:
                bands = [bound * (scale[:, None] / scale) for bound in dbn.response_bands(HORIZON, n_rows)]
        else:
            responses = _simulated_responses(dbn) / scale
    except ParameterError:
        # An average of graphs may hold a cycle of weight 1: shocks then have no finite effect to show. Nor have paths
        # of curved effects that leave all bounds.
        return {}
    if not np.all(np.isfinite(responses)):
        return {}
    peak_step = np.abs(responses).argmax(axis=0)
    peak = np.take_along_axis(responses, peak_step[None], axis=0)[0]
    effects: dict[str, list[list[Any]]] = {}
    for i in range(dbn.d):
        strength = np.abs(peak[i]).copy()
        strength[i] = 0.0
        best = [
            int(j) for j in np.argsort(-strength, kind="stable")[:EFFECTS_PER_VARIABLE] if strength[j] > 0.005
        ]
        if best:
            effects[str(i)] = [
                [j, _rounded(peak[i, j]), int(peak_step[i, j])]
                + [[_rounded(v) for v in course[:, i, j]] for course in (responses, *bands)]
                for j in best
            ]
    return effects


def _simulated_responses(dbn: DBN) -> FloatArray:
    """(horizon+1, d, d) what setting a variable one scale above its origin changes; the same in every report."""
    n = max(_N_PATHS // dbn.d, 50)
    found = [expected_changes(dbn, i, HORIZON, n_paths=n, random_state=0) for i in range(dbn.d)]
    return np.stack([changes_by_variable(dbn, changes) for changes in found], axis=1)


def _edge_rows(table: pd.DataFrame, dbn: DBN) -> list[list[Any]]:
    place = {name: i for i, name in enumerate(dbn.variables)}
    truth = table["truth"] if "truth" in table else [None] * len(table)
    numbers = zip(
        table["weight"], table["probability"], table["ci_low"], table["ci_high"], truth,
        table["source"], table["target"], table["lag"], table["standardised"], table["oriented"],
        table["presence"], table["direction"], table["robustness"], table["could_be_hidden"],
        table["q_value"], strict=True,
    )  # fmt: skip
    shapes, signs = dbn.shapes(), dbn.signs()

    def shape(lag: int, i: int, j: int) -> list[Any]:
        return [] if dbn.is_linear or lag > dbn.n_lags else [str(shapes[lag, i, j]), int(signs[lag, i, j])]

    return [
        [place[s], place[t], int(lag), _rounded(w), _rounded(prob), _rounded(low), _rounded(high), mark,
         _rounded(share), int(oriented), _rounded(presence), _rounded(direction), _rounded(robust),
         _rounded(hidden), _rounded(q), *shape(lag, place[s], place[t])]
        for w, prob, low, high, mark, s, t, lag, share, oriented, presence, direction, robust, hidden, q in numbers
    ]  # fmt: skip


def _rounded(value: float) -> float | None:
    number = float(value)
    return float(f"{number:.4g}") if np.isfinite(number) else None


_MOST_ROWS = 200
_MOST_LEVELS = 8
_DISTRIBUTIONS = {
    "continuous": "normal",
    "positive": "log-normal",
    "count": "Poisson",
    "binary": "logistic",
    "ordinal": "cumulative logistic",
    "categorical": "multinomial logistic",
}


def kind_table(dbn: DBN) -> Table | None:
    """Variable, kind, distribution and usual values of each; None without variables of other kinds."""
    if not dbn.has_kinds:
        return None
    try:
        rows = stationary_sample(dbn).reshape(-1, dbn.d)
    except ParameterError:
        rows = np.zeros((0, dbn.d))
    found = []
    for j, (name, node) in enumerate(zip(dbn.variables, dbn.nodes, strict=True)):
        law = _DISTRIBUTIONS[node.kind.name]
        if node.kind.name == "count" and node.dispersion:
            law = f"negative binomial (overdispersion {node.dispersion:.3g})"
        found.append((name, node.kind.name, law, _usual_values(rows[:, j], node.kind.levels)))
    return Table(("Variable", "Kind", "Distribution", "Usual values"), found)


def _usual_values(x: np.ndarray, levels: tuple[str, ...]) -> str:
    if not len(x):
        return "no usual level"
    if levels:
        shares = [f"{level} {np.mean(x == k):.0%}" for k, level in enumerate(levels[:_MOST_LEVELS])]
        return ", ".join(shares) + (", …" if len(levels) > _MOST_LEVELS else "")
    low, middle, high = np.quantile(x, [0.05, 0.5, 0.95])
    return f"{low:.3g} to {high:.3g}, median {middle:.3g}"


def coefficient_table(dbn: DBN) -> Table | None:
    """Every coefficient with its interval and scale, by target; None without variables of other kinds."""
    if not dbn.has_kinds:
        return None
    rows = []
    for row in dbn.coefficients().head(_MOST_ROWS).to_dict("records"):
        ends = (_named(row[end], row[f"{end}_level"]) for end in ("source", "target"))
        interval = "–" if pd.isna(row["lower"]) else f"{row['lower']:.3g} to {row['upper']:.3g}"
        ratio = "–" if pd.isna(row["ratio"]) else f"{row['ratio']:.3g}"
        rows.append((*ends, int(row["lag"]), f"{row['coefficient']:.3g}", ratio, interval, row["scale"]))
    heads = ("Cause", "Effect", "Lag", "Coefficient", "Ratio", "95% interval", "Change of")
    return Table(heads, rows, range(2, 5))


def _named(variable: str, level: str) -> str:
    return f"{variable} = {level}" if level else variable


def changes_section(record: ReportRecord, audience: Audience = "python") -> dict[str, Any] | None:
    """Return what the section shows; None for a result without segments."""
    found = stored_changes(record.diagnostics, record.parameters)
    if found is None:
        return None
    figure = ""
    if found.changes:
        text = "Edges that change: where each is there, and with which weight"
        figure = inline_svg(
            lambda: plot_changes(found.networks, found.segments, unit=found.unit), "changes", text
        )
    segments, *tables = change_tables(found)
    return {
        "sentence": say(found.finding, audience),
        "figure": Markup(figure),
        "segments": segments,
        "tables": tables,
    }
