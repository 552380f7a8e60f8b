"""Plots and the HTML report.

Every plot takes ``ax=None`` and returns the axes; ``ax.figure.savefig("figure.pdf")`` stores it and ``ax.figure`` as the last
line of a notebook cell shows it. `graph_layout` says where the parts of a graph go; each family of plots is one file; `page`
and `notebook` are made of them.
May import: analysis and below.
"""

from __future__ import annotations

from feddbn.report.curve_plots import (
    edge_steps,
    plot_changes,
    plot_convergence,
    plot_forecast,
    plot_outlook,
    plot_responses,
    strongest_responses,
)
from feddbn.report.effect_plots import effect_panels, plot_effects
from feddbn.report.evidence_plots import plot_evidence
from feddbn.report.graph_layout import process_graph, time_series_edges
from feddbn.report.graph_plots import plot_marks, plot_process_graph, plot_time_series_graph
from feddbn.report.matrix_plots import (
    plot_site_differences,
    plot_truth_and_estimate,
    plot_weights,
    site_differences,
)
from feddbn.report.page import render_report, write_report

__all__ = [
    "edge_steps",
    "effect_panels",
    "plot_changes",
    "plot_convergence",
    "plot_effects",
    "plot_evidence",
    "plot_forecast",
    "plot_marks",
    "plot_outlook",
    "plot_process_graph",
    "plot_responses",
    "plot_site_differences",
    "plot_time_series_graph",
    "plot_truth_and_estimate",
    "plot_weights",
    "process_graph",
    "render_report",
    "site_differences",
    "strongest_responses",
    "time_series_edges",
    "write_report",
]
