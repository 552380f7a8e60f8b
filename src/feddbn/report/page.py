"""The report: one HTML file that needs nothing else, not even a network.

The interactive graph is plain SVG and a small script written here, not a bundled library: positions are
computed in Python (so the picture is the same everywhere and a hundred variables cost the browser nothing),
which leaves hovering, dragging, filtering and selecting: less code than the configuration of a graph
library, no licence to carry, tens of kilobytes instead of hundreds, and no canvas, so it prints, scales and
is readable by assistive technology. A content security policy in the page forbids every request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from feddbn._version import __version__
from feddbn.errors import FileError, ParameterError
from feddbn.method_table import find_method
from feddbn.model.dbn import DBN
from feddbn.report.changes_section import changes_section
from feddbn.report.curve_plots import plot_convergence
from feddbn.report.effect_plots import curve_panels, plot_curves
from feddbn.report.figures import inline_svg
from feddbn.report.findings_table import findings_tables
from feddbn.report.held_out_table import held_out_tables
from feddbn.report.kind_plots import plot_effects
from feddbn.report.kind_tables import coefficient_rows, kind_rows
from feddbn.report.matrix_plots import plot_truth_and_estimate, plot_weights
from feddbn.report.page_data import page_data
from feddbn.report.record import ReportRecord, read_record
from feddbn.report.site_plots import plot_site_differences, site_differences
from feddbn.report.treatment_words import treatment_rows
from feddbn.report.verdicts import verdicts

__all__ = ["render_report", "summary_sentence", "write_report"]


def write_report(
    result: object,
    path: str | Path,
    *,
    title: str | None = None,
    edges: pd.DataFrame | None = None,
    truth: DBN | None = None,
    sites: Sequence[Mapping[str, Any]] | None = None,
    audit: Sequence[Mapping[str, Any]] | None = None,
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

    Examples
    --------
    >>> import feddbn, tempfile, pathlib
    >>> from feddbn.report import write_report
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> write_report(dbn, pathlib.Path(tempfile.mkdtemp()) / "report.html").name
    'report.html'
    """
    target = Path(path)
    text = render_report(result, title=title, edges=edges, truth=truth, sites=sites, audit=audit)
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
    environment = Environment(
        loader=PackageLoader("feddbn.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["thousands"] = _thousands
    data = json.dumps(page_data(record), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return environment.get_template("report.html").render(
        record=record,
        title=title or _title(record),
        summary=summary_sentence(record),
        facts=_facts(record),
        parameters={k: _shown(v) for k, v in sorted(record.parameters.items())},
        verdicts=verdicts(record),
        figures=_figures(record),
        products=_product_rows(record.dbn),
        kinds=kind_rows(record.dbn),
        coefficients=coefficient_rows(record.dbn),
        changes=changes_section(record),
        sites=_site_rows(record),
        warnings=[_capitalised(text) for text in record.warnings],
        treatment=treatment_rows(record),
        held_out=held_out_tables(record),
        check=findings_tables(record),
        audit=_audit_rows(record.audit),
        spent=_spent(record.audit),
        truth=_truth_counts(record),
        # "<" cannot end the script element early once it is escaped.
        data=Markup(data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")),
        version=__version__,
    )


def _title(record: ReportRecord) -> str:
    sites = f", {len(record.sites)} sites" if len(record.sites) > 1 else ""
    return f"{record.method}: {record.dbn.d} variables{sites}"


def summary_sentence(record: ReportRecord) -> str:
    """How many effects a result has, learned from how much."""
    is_edge = record.dbn.is_edge
    n_now, n_late = int(np.count_nonzero(is_edge[0])), int(np.count_nonzero(is_edge[1:]))
    rows = f" from {record.n_rows:,} rows" if record.n_rows is not None else ""
    where = f" at {len(record.sites)} sites" if len(record.sites) > 1 else ""
    rounds = (
        f" in {record.n_rounds} round{'' if record.n_rounds == 1 else 's'}"
        if record.n_rounds is not None
        else ""
    )
    n_curved = len(record.dbn.curves)
    curved = f"; {n_curved:,} of them {'is' if n_curved == 1 else 'are'} curved" if n_curved else ""
    steps = "1 step" if record.dbn.n_lags == 1 else f"{record.dbn.n_lags} steps"
    return (
        f"{record.method} learned {n_now + n_late:,} effects among {record.dbn.d} "
        f"variables{rows}{where}{rounds}: "
        f"{n_now:,} within a moment and {n_late:,} delayed by up to {steps}{curved}."
    )


def _facts(record: ReportRecord) -> list[tuple[str, str]]:
    row = find_method(record.method, offered=True)
    facts = [
        ("Method", record.method),
        ("It assumes", "" if row is None else _plain(row.assumes)),
        ("Found by", "" if row is None else row.citation),
        ("Variables", f"{record.dbn.d}"),
        ("Lags", f"{record.dbn.n_lags}"),
        ("Sites", f"{len(record.sites)}" if len(record.sites) else ""),
        ("Rows used", f"{record.n_rows:,}" if record.n_rows is not None else ""),
        ("Rounds", f"{record.n_rounds}" if record.n_rounds is not None else ""),
        ("Outcome", record.status_message),
        ("Protection", _protection(record.privacy or {})),
        ("Created", record.created),
    ]
    return [(name, value) for name, value in facts if value]


def _plain(markdown: str) -> str:
    return markdown.replace("`", "").replace("**", "")


def _protection(privacy: Mapping[str, Any]) -> str:
    """The promise of a study in words; the keys are those of a study's [privacy]."""
    parts = []
    if privacy.get("secure_aggregation"):
        least = f" of at least {privacy['min_sites']} sites" if privacy.get("min_sites") else ""
        parts.append(f"secure aggregation: only sums{least} can be opened")
    if privacy.get("epsilon") is not None:
        delta = f", delta {privacy['delta']:.1g}" if privacy.get("delta") is not None else ""
        unit = f" for each {privacy['unit']}" if privacy.get("unit") else ""
        parts.append(f"differential privacy: epsilon {privacy['epsilon']:.3g}{delta}{unit}")
    return "; ".join(parts) or ("none" if privacy else "none recorded")


def _figures(record: ReportRecord) -> dict[str, Markup]:
    figures = {"convergence": "", "matrices": "", "sites": "", "curves": "", "effects": ""}
    if record.dbn.conditionals and record.dbn.is_edge.any():
        text = "Effects on variables of other kinds: mean or probability against each cause"
        # Without rows that are usual there is nothing to average over; the coefficients are there.
        with suppress(ParameterError):
            figures["effects"] = inline_svg(lambda: plot_effects(record.dbn), "effects", text)
    if curve_panels(record.dbn, at_most=1):
        text = "Curved effects: what each adds to its target, value by value, with its band"
        figures["curves"] = inline_svg(lambda: plot_curves(record.dbn, truth=record.truth), "curves", text)
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


def _product_rows(dbn: DBN) -> list[dict[str, Any]]:
    """What pairs of variables do together, strongest first; squares are among the curves."""
    pairs = [product for product in dbn.products if product.first != product.second]
    return [
        {
            "first": dbn.variables[product.first],
            "second": dbn.variables[product.second],
            "target": dbn.variables[product.target],
            "lag": product.lag,
            "weight": f"{product.weight:.4g}",
            "origins": " and ".join(f"{origin:.4g}" for origin in product.origins),
            "scales": " and ".join(f"{scale:.4g}" for scale in product.scales),
        }
        for product in sorted(pairs, key=lambda product: -abs(product.weight))
    ]


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


def _audit_rows(audit: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Per kind of task: answers that left, refusals, bytes, numbers in an answer, and what protected them.

    The keys are those of a site's audit log (`feddbn.privacy.audit.AuditEntry`).
    """
    kinds: dict[str, dict[str, Any]] = {}
    for entry in audit:
        # Greetings and approvals are in the site's own log and send nothing.
        if entry.get("event", "sent") not in ("sent", "refused"):
            continue
        kind = str(entry.get("task") or "unknown task")
        row = kinds.setdefault(
            kind, {"task": kind, "sent": 0, "refused": 0, "bytes": 0, "lengths": set(), "protection": set()}
        )
        if entry.get("event") == "refused":
            row["refused"] += 1
            continue
        row["sent"] += 1
        row["bytes"] += int(entry.get("n_bytes") or 0)
        if entry.get("length") is not None:
            row["lengths"].add(int(entry["length"]))
        row["protection"].add(str(entry.get("protection") or "none"))
    return [
        {
            **row,
            "lengths": ", ".join(f"{n:,}" for n in sorted(row["lengths"])),
            "protection": "; ".join(sorted(row["protection"])),
        }
        for row in kinds.values()
    ]


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


def _capitalised(text: str) -> str:
    # Other sentences may begin with the name of a site or a variable, which stays as it is written.
    return text[:1].upper() + text[1:] if text.startswith(("the ", "this ")) else text


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


def _thousands(value: object) -> str:
    return "–" if value is None else f"{value:,}"
