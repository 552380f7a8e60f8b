"""What a notebook shows of networks, results, scores, tables and checks: `html_of`.

A card for each type, made of the parts that pictures and reports are made of: the process graph, verdicts, the sentence
that sums a result up. `feddbn.shown.Shown` asks for it when a notebook wants HTML.

Everything is escaped by the template. A card has no scripts and asks for nothing from outside, so it is the same in every
notebook, stays readable in a stored one, and cannot do anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from pandas.api.types import is_bool_dtype, is_float_dtype, is_numeric_dtype

from feddbn.analysis.comparison import Comparison
from feddbn.analysis.confidence import ConfidenceTable
from feddbn.core.penalised.optimum import Certificate
from feddbn.findings import LEVELS, Finding, Findings
from feddbn.interop.summary import Summary
from feddbn.methods.base import FederatedEstimator
from feddbn.methods.selection import Selection
from feddbn.model.dbn import DBN
from feddbn.model.forecast import Forecast
from feddbn.model.graph import MEANINGS, AncestralGraph
from feddbn.report.graph_plots import MOST_DRAWN, graph_svg, mark_svg
from feddbn.report.page import summary_sentence, template
from feddbn.report.record import ReportRecord, read_record
from feddbn.report.verdicts import verdicts
from feddbn.results.remarks import ResidualSummary
from feddbn.results.result import Result
from feddbn.results.scoring import Scores, SiteScores
from feddbn.sim.simulation import SimulatedFederation
from feddbn.words import card, counted, full_sentence, say
from feddbn.words.tables import Table

__all__ = ["html_of"]

# Readable on light and on dark pages; the mark before a sentence says the same.
_COLOURS = {
    "good": "#2a9d6f",
    "note": "#808080",
    "unknown": "#808080",
    "warning": "#c98500",
    "error": "#dd5a50",
}
_MARKS = {"good": "✓", "note": "i", "unknown": "?", "warning": "!", "error": "✗"}


@dataclass(frozen=True)
class Point:
    """One line of a list: how good it is (the level of a finding), a question, the answer, and more."""

    text: str
    level: str = ""
    head: str = ""
    more: str = ""


@dataclass(frozen=True)
class Card:
    """What is shown, from top to bottom."""

    title: str
    says: str = ""
    points: Sequence[Point] = ()
    picture: Markup | str = ""
    legend: str = ""
    tables: Sequence[Table] = ()
    warnings: Sequence[str] = field(default_factory=tuple)

    def html(self) -> str:
        """The card as one ``<div>``."""
        return str(template("card.html").render(card=self, colours=_COLOURS, marks=_MARKS))


def point_of(finding: Finding) -> Point:
    """A finding as a line: question, answer, evidence and advice."""
    words = card(finding)
    more = "" if finding.level == "good" else f"{words.detail} {words.advice}".strip()
    if not words.answer:
        return Point(words.detail, finding.level, words.question.rstrip(":"), words.advice)
    return Point(words.answer, finding.level, words.question, more)


def table_of(
    frame: pd.DataFrame,
    at_most: int,
    *,
    title: str = "",
    all_of_it: str = "",
    closed: bool = False,
    bar: str = "",
) -> Table:
    """The first rows of a frame; `all_of_it` is what to write for all of them.

    The column `bar`, whose numbers lie between 0 and 1, is drawn in front of the others as well.
    """
    shown = frame.head(at_most)
    numbers = [
        k for k, dtype in enumerate(frame.dtypes) if is_numeric_dtype(dtype) and not is_bool_dtype(dtype)
    ]
    columns = [_cells(shown[name]) for name in frame.columns]
    heads = [str(name) for name in frame.columns]
    if bar:
        columns.insert(0, [_bar(float(share)) for share in shown[bar]])
        heads, numbers = ["", *heads], [k + 1 for k in numbers]
    rows = tuple(zip(*columns, strict=True))
    left = len(frame) - len(shown)
    more = f"and {left:,} more{f': {all_of_it}' if all_of_it else ''}" if left else ""
    return Table(tuple(heads), rows, numbers, title, more, closed=closed)


def shown_number(value: float) -> str:
    """A number as people read it: three decimals, or three digits where units make it large or tiny."""
    number = float(value)
    if not np.isfinite(number):
        return "–"
    return f"{number:.3f}" if number == 0 or 0.001 <= abs(number) < 1000 else f"{number:.3g}"


def _cells(column: pd.Series) -> list[str | Markup]:
    """The cells of a column; numbers of one column look alike."""
    if is_bool_dtype(column):
        return ["yes" if value else "no" for value in column]
    if not is_numeric_dtype(column):
        return ["–" if value is None or value is pd.NaT else str(value) for value in column]
    numbers = column.to_numpy(dtype=float)
    if is_float_dtype(column) and not np.any(np.abs(numbers) > 1):
        return [shown_number(value) for value in numbers]
    is_whole = bool(np.all(np.isnan(numbers) | (numbers == np.round(numbers))))
    return [
        ("–" if np.isnan(value) else f"{value:,.0f}") if is_whole else shown_number(value)
        for value in numbers
    ]


def _bar(share: float) -> Markup:
    """A share as a bar of 60 pixels."""
    form = (
        '<svg width="60" height="9" role="img" aria-label="{}"><rect width="60" height="9" fill="currentColor" '
        'opacity=".15"/><rect width="{:.0f}" height="9" fill="#4393c3"/></svg>'
    )
    return Markup(form).format(shown_number(share), 60 * min(max(share, 0.0), 1.0))


_EDGES, _LINES = 10, 20
_LEGEND = (
    "Width: weight in standard deviations; red is positive, blue negative. A number is a lag; straight arrows are "
    "contemporaneous. Nodes are filled by their effect on their own future."
)
_SCORES = ["part", "shd", "precision", "recall", "f1", "n_true", "n_estimated", "n_reversed"]


def html_of(value: object) -> str:
    """The HTML of anything that feddbn can show: one ``<div>`` without scripts that asks for nothing from outside.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report.notebook import html_of
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.3, 0], [0, 0]]], ["<b>", "y"])
    >>> page = html_of(dbn)
    >>> page.startswith("<div"), "&lt;b&gt;" in page, "<script" in page
    (True, True, False)
    """
    return _card(value).html()


@singledispatch
def _card(value: object) -> Card:
    return Card(type(value).__name__, str(value))


@_card.register
def _network(dbn: DBN) -> Card:
    record = read_record(dbn)
    return _of_network(record, Card(type(dbn).__name__, _counts(dbn), _network_points(record)), "dbn.edges()")


@_card.register
def _result(result: Result) -> Card:
    return _of_record(read_record(result), "result.dbn.edges()")


@_card.register(FederatedEstimator)
def _estimator(estimator: FederatedEstimator[Any]) -> Card:
    if "n_features_in_" not in vars(estimator):
        return Card(repr(estimator), "It has not learned anything yet: call fit(data).")
    graph = getattr(estimator, "ancestral_graph_", None)
    if graph is not None:
        return replace(_ancestral(graph), title=type(estimator).__name__, warnings=_told(estimator.findings_))
    if getattr(estimator, "dbn_", None) is not None:
        return _with_changes(estimator, _of_record(read_record(estimator), "estimator.dbn_.edges()"))
    name, own = type(estimator).__name__, getattr(estimator, "dbns_", None)
    if own is None:
        frames = {k: v for k, v in vars(estimator).items() if k.endswith("_") and isinstance(v, pd.DataFrame)}
        tables = [
            table_of(v, _EDGES, title=k, all_of_it=f"estimator.{k}", closed=True) for k, v in frames.items()
        ]
        return Card(
            name, "It has no network; what it learned:", tables=tables, warnings=_told(estimator.findings_)
        )
    says = f"One network for each of {len(own)} sites, and none that they share; dbns_[site] is one of them."
    return Card(name, says, tables=[_own_networks(own, None)], warnings=_told(estimator.findings_))


@_card.register
def _scores(scores: Scores) -> Card:
    parts = {**scores, "skeleton": scores.skeleton}
    found = pd.DataFrame([{"part": part, **one} for part, one in parts.items()])
    says = "W: contemporaneous; A: delayed; skeleton: contemporaneous, whichever way they point."
    return Card("Scores", says, tables=[table_of(found[_SCORES], 3)])


@_card.register
def _site_scores(scores: SiteScores) -> Card:
    rows = [
        {"site": site, **{f"{part} {key}": one[part][key] for part in one for key in ("shd", "f1")}}
        for site, one in scores.sites.items()
    ]
    each = table_of(
        pd.DataFrame(rows), _LINES, title="Each site", all_of_it="scores.sites", closed=len(rows) > 5
    )
    return Card(
        "SiteScores",
        f"Means over {len(rows)} sites.",
        tables=[table_of(scores.to_frame().reset_index(), 2), each],
    )


@_card.register
def _selection(selection: Selection) -> Card:
    chosen = ", ".join(f"{name} = {value}" for name, value in selection.chosen.items()) or "nothing"
    points = [Point(text, "warning") for text in selection.remarks]
    table = table_of(selection.to_frame(), _LINES, all_of_it="selection.to_frame()")
    return Card("Selection", f"Chosen: {chosen}.", points, tables=[table])


@_card.register
def _comparison(comparison: Comparison) -> Card:
    frame = comparison.to_frame().reset_index()
    return Card("Comparison", say(comparison.finding), tables=[table_of(frame, 40)])


@_card.register
def _confidence(table: ConfidenceTable) -> Card:
    sure, kept = int((table["probability"] >= 0.9).sum()), int((table["weight"] != 0).sum())
    shown = pd.DataFrame(table).drop(columns=["presence", "direction"], errors="ignore")
    n, level = table.attrs.get("n_replicates"), table.attrs.get("level")
    by = f" by {n} refits" if n else ""
    within = f"; ci_low and ci_high hold {level:.0%} of them" if level else ""
    says = f"{len(table):,} edges{by}: {kept:,} in the fit on all rows, {sure:,} in at least 90% of the refits{within}."
    rows = table_of(shown, _LINES, all_of_it="pd.DataFrame(table) shows every row", bar="probability")
    return Card(
        "Edge confidence",
        says,
        tables=[rows],
        warnings=_told(Findings.stored_in({str(k): v for k, v in table.attrs.items()})),
    )


@_card.register
def _summary(summary: Summary) -> Card:
    spread = np.sqrt(np.maximum(np.diag(summary.moments.scatter)[: summary.d] / summary.n, 0.0))
    frame = pd.DataFrame(
        {"variable": summary.variables, "mean": summary.moments.mean[: summary.d], "sd": spread}
    )
    rows = f"{summary.n:,.0f} rows of {summary.n_sites} site{'' if summary.n_sites == 1 else 's'}"
    says = f"Second moments of {summary.d} variables at lags 0 to {summary.n_lags}: {rows}. What it reveals:"
    points = [Point(line, "note") for line in summary.reveals()]
    return Card("Summary", says, points, tables=[table_of(frame, _LINES, all_of_it="summary.covariance()")])


@_card.register
def _findings(findings: Findings) -> Card:
    if not findings:
        return Card("Findings", "Nothing was found that a person should know.")
    counts = [(sum(one.level == kind for one in findings), kind) for kind in LEVELS]
    says = ", ".join(
        f"{n} {kind}" if kind in ("unknown", "good") else counted(n, kind) for n, kind in counts if n
    )
    return Card("Findings", f"{says}.", [point_of(one) for one in findings])


@_card.register
def _certificate(certificate: Certificate) -> Card:
    level = "good" if certificate.is_exact else "warning" if certificate.lower_bound > 0 else "unknown"
    says = "this is the global minimum" if certificate.is_exact else str(certificate)
    numbers = f"objective {certificate.objective:.6g}, lower bound {certificate.lower_bound:.6g}"
    return Card("Certificate", "", [Point(f"{says[:1].upper()}{says[1:]}.", level, "", numbers)])


@_card.register
def _residuals(found: ResidualSummary) -> Card:
    rows = [
        ("memory", found.autocorrelation, found.memory_p),
        ("dependence", found.dependence, found.dependence_p),
        ("volatility", found.arch, found.volatility_p),
        ("thirds", found.variance_ratio, found.thirds_p),
        ("spread", found.spread, found.spread_p),
        ("tails", found.kurtosis, found.tails_p),
        ("curvature", np.nan, found.curvature_p),
        ("change", len(found.changes), np.nan),
    ]
    frame = pd.DataFrame(rows, columns=["what", "size", "p"])
    frame["contradicts"] = [name in found.violations for name in frame["what"]]
    points = [Point(f"{name} contradicts the model.", "warning") for name in found.violations]
    points = points or [Point("Nothing in the residuals contradicts the model.", "good")]
    says = f"Residuals of {found.n_rows:,} rows, worth {found.n_effective:,.0f}."
    return Card("ResidualSummary", says, points, tables=[table_of(frame, len(frame))])


@_card.register
def _forecast(ahead: Forecast) -> Card:
    steps, d = ahead.mean.shape
    bounds = f" with intervals of {ahead.interval:.0%}" if ahead.interval else ""
    says = f"{steps} step{'' if steps == 1 else 's'} of {d} columns{bounds}."
    return Card(
        "Forecast", says, tables=[table_of(ahead.to_frame(), _LINES, all_of_it="forecast.to_frame()")]
    )


@_card.register
def _ancestral(graph: AncestralGraph) -> Card:
    table = graph.edges()
    marks = [Point(MEANINGS[mark], "", mark) for mark in dict.fromkeys(table["mark"])]
    says = f"{len(graph.variables)} variables, {len(table)} edges."
    rows = table_of(table, _EDGES, all_of_it="graph.edges()")
    return Card("AncestralGraph", says, marks, mark_svg(graph) if len(table) else "", tables=[rows])


@_card.register
def _simulated(federation: SimulatedFederation) -> Card:
    lengths = {site: [len(one) for one in recordings] for site, recordings in federation.sites.items()}
    frame = pd.DataFrame(
        {"site": list(lengths), "recordings": map(len, lengths.values()), "rows": map(sum, lengths.values())}
    )
    first = next(iter(federation.truths.values()))
    one = "one network" if federation.is_homogeneous else "networks of their own; that of the first is drawn"
    says = f"{len(lengths)} sites of {first.d} variables that follow {one}."
    picture = graph_svg(first) if first.d <= MOST_DRAWN else ""
    table = table_of(frame, _EDGES, all_of_it="federation.sites")
    return Card("SimulatedFederation", says, picture=picture, legend=_LEGEND, tables=[table])


def _with_changes(estimator: FederatedEstimator[Any], card: Card) -> Card:
    """What is shown of one network over time: which edges change, when; the graph is that of the last segment."""
    changes = getattr(estimator, "changes_", None)
    if changes is None:
        return card
    n = len(estimator.segments_)
    says = (
        f"{n} segments; the network is that of the last." if n > 1 else "No change: one network all the time."
    )
    table = (
        [table_of(changes, _EDGES, title="Changes", all_of_it="estimator.changes_")] if len(changes) else []
    )
    return replace(card, points=[Point(says, "note"), *card.points], tables=[*card.tables, *table])


def _of_record(record: ReportRecord, all_edges: str) -> Card:
    points = [point_of(verdict) for verdict in verdicts(record)]
    if record.abstained is not None:
        points.insert(0, Point(full_sentence(say(record.abstained)), "warning"))
    tables = [_own_networks(record.personal, record.dbn)] if record.personal else []
    says = summary_sentence(record).removeprefix(record.method).strip()
    card = Card(record.method, says, points, tables=tables, warnings=_told(record.findings))
    return _of_network(record, card, all_edges)


def _of_network(record: ReportRecord, card: Card, all_edges: str) -> Card:
    """A card with the graph and the strongest edges of a record's network before its other tables."""
    dbn, edges = record.dbn, record.edges
    columns = (
        "source",
        "target",
        "lag",
        "weight",
        "standardised",
        "probability",
        "ci_low",
        "ci_high",
        "truth",
    )
    known = [name for name in columns if name in edges and edges[name].notna().any()]
    picture: Markup | str = ""
    if len(edges) and dbn.d <= MOST_DRAWN:
        picture = graph_svg(dbn, grey=record.abstained is not None)
    elif len(edges):
        card = replace(card, says=f"{card.says} More than {MOST_DRAWN} variables are not drawn.")
    tables = [table_of(edges[known], _EDGES, all_of_it=all_edges)] if len(edges) else []
    return replace(card, picture=picture, legend=_LEGEND if picture else "", tables=[*tables, *card.tables])


def _told(findings: Findings) -> list[str]:
    return [say(one) for one in findings if one.level != "good"]


def _network_points(record: ReportRecord) -> list[Point]:
    """What a network says of itself, without knowing how it was learned."""
    about = {"verdict-acyclic", "verdict-stable"} | ({"verdict-order"} if record.dbn.open_edges else set())
    return [point_of(verdict) for verdict in verdicts(record) if verdict.code in about]


def _counts(dbn: DBN) -> str:
    now, late = int(np.count_nonzero(dbn.is_edge[0])), int(np.count_nonzero(dbn.is_edge[1:]))
    lags = f"{dbn.n_lags} lag{'' if dbn.n_lags == 1 else 's'}"
    names = f"{dbn.d} variable{'' if dbn.d == 1 else 's'}"
    if not now + late:
        return f"{names}, {lags}, and no effect among them: the graph is empty."
    return f"{names}, {lags}: {now:,} effect{'' if now == 1 else 's'} within a time step, {late:,} delayed."


def _own_networks(own: Mapping[str, DBN], shared: DBN | None) -> Any:
    rows = []
    for site, dbn in own.items():
        row: dict[str, Any] = {"site": site, "edges": int(dbn.is_edge.sum())}
        if shared is not None and shared.is_edge.shape == dbn.is_edge.shape:
            row |= {
                "not shared": int((dbn.is_edge & ~shared.is_edge).sum()),
                "lacking": int((shared.is_edge & ~dbn.is_edge).sum()),
            }
        rows.append(row)
    return table_of(
        pd.DataFrame(rows), _LINES, title=f"{len(own)} sites' own networks", all_of_it="dbns_", closed=True
    )
