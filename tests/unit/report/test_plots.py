"""Several modules: every plot under the same rules."""

from __future__ import annotations

import io
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, PathPatch

from feddbn import DBN, AncestralGraph
from feddbn.report import (
    plot_changes,
    plot_convergence,
    plot_effects,
    plot_forecast,
    plot_marks,
    plot_process_graph,
    plot_responses,
    plot_site_differences,
    plot_time_series_graph,
    plot_truth_and_estimate,
    plot_weights,
    process_graph,
    site_differences,
    time_series_edges,
)
from feddbn.report.graph_layout import CIRCLE_LIMIT, graph_positions
from support.report_results import curved_dbn, random_dbn


def chain() -> DBN:
    """x0 -> x1 now; x1 -> x2 at lags 1 (weak) and 2 (strong); x2 on itself."""
    W, A = np.zeros((3, 3)), np.zeros((2, 3, 3))
    W[0, 1] = 0.5
    A[0, 1, 2], A[1, 1, 2], A[0, 2, 2] = 0.2, -0.4, 0.6
    return DBN(W, A)


def history(n: int = 20) -> pd.DataFrame:
    k = np.arange(1, n + 1)
    return pd.DataFrame({"round": k, "h": 0.5**k, "primal": 0.8**k, "dual": 0.9**k, "objective": 2 + 0.7**k})


def drawn_names(ax: Axes) -> set[str]:
    return {t.get_text() for t in ax.texts}


def everything() -> list[Axes]:
    dbn = chain()
    sites = {"a": dbn, "b": DBN(dbn.W * 2, dbn.A)}
    steps = np.linspace(0, 1, 5)
    return [
        plot_process_graph(dbn),
        plot_time_series_graph(dbn),
        plot_weights(dbn),
        plot_truth_and_estimate(dbn, dbn),
        plot_convergence(history()),
        plot_responses(np.ones((4, 3)), dbn.variables, shock="x0"),
        plot_forecast(steps, low=steps - 1, high=steps + 1, history=np.zeros(9), name="x0"),
        plot_site_differences(site_differences(dbn, sites)),
        plot_effects(curved_dbn()),
    ]


def known_to_pyplot():
    """The figures of this process that pyplot knows; other tests may have opened some."""
    return sys.modules["matplotlib.pyplot"].get_fignums() if "matplotlib.pyplot" in sys.modules else []


@pytest.mark.slow
def test_every_plot_returns_an_axes_of_a_figure_that_pyplot_does_not_know():
    before, others = dict(mpl.rcParams), known_to_pyplot()
    for ax in everything():
        assert isinstance(ax, Axes)
        assert isinstance(ax.figure, Figure)
        ax.figure.canvas.draw()
    assert known_to_pyplot() == others
    assert dict(mpl.rcParams) == before


def test_a_given_axes_is_used():
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot_process_graph(chain(), ax=left) is left
    assert plot_convergence(history(), ax=right) is right
    figure.savefig(io.BytesIO(), format="png")


def test_the_process_graph_joins_lags_strongest_first_and_keeps_self_effects_on_nodes():
    graph = process_graph(chain())
    rows = {(r["source"], r["target"]): r for r in graph.arrows.to_dict("records")}
    assert set(rows) == {("x0", "x1"), ("x1", "x2")}
    assert not rows["x0", "x1"]["curved"]
    assert rows["x1", "x2"]["lags"] == "2,1"
    assert rows["x1", "x2"]["weight"] == -0.4
    assert list(graph.nodes["self_effect"]) == [0.0, 0.0, 0.6]
    assert list(graph.nodes["degree"]) == [1, 2, 1]


def test_the_time_series_graph_has_one_row_per_weight_weakest_first():
    edges = time_series_edges(chain())
    assert list(edges["weight"].abs()) == [0.2, 0.4, 0.5, 0.6]
    expected = {"source": "x1", "target": "x2", "lag": 2, "weight": -0.4, "oriented": True}
    assert edges.loc[1].drop("standardised").to_dict() == expected


def test_a_large_unit_hides_no_arrow_and_an_open_link_has_no_head():
    W = np.zeros((3, 3))
    W[0, 1], W[1, 2] = 2000.0, 0.0004
    dbn = DBN(W, np.zeros((1, 3, 3)), noise_variances=np.array([1.0, 1e6, 1.0]), open_edges=[("x0", "x1")])
    for plot in (plot_process_graph, plot_time_series_graph):
        ax = plot(dbn)
        current = [p for p in ax.patches if isinstance(p, FancyArrowPatch) and (p.get_alpha() or 1) > 0.5]
        widths = sorted(p.get_linewidth() for p in current)
        assert widths[0] > 0.5 * widths[-1]
        heads = [type(p.get_arrowstyle()).__name__ for p in current]
        assert sorted(heads) == ["Curve", "CurveFilledB"]
        assert any("without a head" in name for name in drawn_names(ax))
        raw = [p for p in plot(dbn, standardised=False).patches if (p.get_alpha() or 1) > 0.5]
        thin, thick = sorted(p.get_linewidth() for p in raw)
        assert thin < 0.5 * thick
    assert not any("without a head" in name for name in drawn_names(plot_process_graph(chain())))


def test_weights_can_be_drawn_in_standard_deviations():
    dbn = DBN(
        np.array([[0.0, 2000.0], [0.0, 0.0]]), np.zeros((0, 2, 2)), noise_variances=np.array([1.0, 0.0])
    )
    panel = plot_weights(dbn).child_axes[0].images[0].get_array()
    assert panel[0, 1] == pytest.approx(1.0)
    raw = plot_weights(dbn, standardised=False).child_axes[0].images[0].get_array()
    assert raw[0, 1] == 2000.0


@pytest.mark.slow
def test_networks_without_lags_or_edges_can_be_drawn():
    static = DBN(chain().W, np.zeros((0, 3, 3)))
    empty = DBN(np.zeros((3, 3)), np.zeros((1, 3, 3)))
    for dbn in (static, empty):
        for plot in (plot_process_graph, plot_time_series_graph, plot_weights):
            plot(dbn).figure.canvas.draw()


def test_truth_and_estimate_share_one_symmetric_scale():
    truth = chain()
    ax = plot_truth_and_estimate(truth, DBN(truth.W * 1.4, truth.A))
    norms = {panel.images[0].norm for panel in ax.child_axes}
    assert len(ax.child_axes) == 6
    assert len(norms) == 1
    assert (norms.pop().vmin, next(iter(ax.child_axes)).images[0].norm.vmax) == (-0.7, 0.7)
    np.testing.assert_array_equal(ax.child_axes[0].images[0].get_array(), truth.W)


def test_site_differences_tell_shared_from_specific_edges():
    shared = chain()
    own = shared.W.copy()
    own[0, 2] = 0.3
    table = site_differences(shared, {"a": shared, "b": DBN(own, shared.A * [[[1]], [[0]]])})
    rows = {(r["source"], r["target"], r["lag"]): r for r in table.to_dict("records")}
    assert rows["x0", "x1", 0]["n_sites"] == 2
    assert rows["x0", "x2", 0] | {"b": 0.3} == rows["x0", "x2", 0]
    assert rows["x0", "x2", 0]["n_sites"] == 1
    assert rows["x1", "x2", 2]["b"] == pytest.approx(0.4)
    assert table["n_sites"].is_monotonic_decreasing


@pytest.mark.parametrize("d", [1, 2, CIRCLE_LIMIT + 1, 100])
def test_positions_are_in_the_unit_square_and_always_the_same(d):
    dbn = random_dbn(d)
    first, second = graph_positions(dbn), graph_positions(dbn)
    np.testing.assert_array_equal(first, second)
    assert first.shape == (d, 2)
    assert first.min() >= 0
    assert first.max() <= 1


def panels_of(ax: Axes) -> dict[str, Axes]:
    return {panel.get_title(loc="left"): panel for panel in ax.child_axes}


def test_a_panel_shows_the_effect_its_band_and_where_it_was_learned() -> None:
    dbn = curved_dbn()
    drawn = panels_of(plot_effects(dbn))
    assert set(drawn) == {"c → a, lag 1", "a → b", "b → c, lag 1"}
    panel, effect = drawn["a → b"], dbn.effect("a", "b", 0)
    whole, inside = [line for line in panel.lines if line.get_color() == "#0072b2"][:2]
    x = np.asarray(whole.get_xdata(), dtype=float)
    np.testing.assert_array_equal(whole.get_ydata(), effect.at(x)[:, 0])
    solid = x[np.isfinite(np.asarray(inside.get_ydata(), dtype=float))]
    low, high = effect.range_seen
    assert solid.min() >= low > x[0]
    assert solid.max() <= high < x[-1]
    bands = [part for part in panel.collections if isinstance(part, PolyCollection)]
    corners = bands[0].get_paths()[0].vertices
    lower, upper = effect.band(x)
    assert corners[:, 1].max() == pytest.approx(upper.max())
    assert corners[:, 1].min() == pytest.approx(lower.min())
    assert not [p for p in drawn["b → c, lag 1"].collections if isinstance(p, PolyCollection)]


def test_the_truth_is_drawn_from_the_same_zero() -> None:
    dbn = curved_dbn()
    panel = panels_of(plot_effects(dbn, truth=dbn))["c → a, lag 1"]
    ours, true = (next(line for line in panel.lines if line.get_color() == c) for c in ("#0072b2", "#d55e00"))
    np.testing.assert_allclose(ours.get_ydata(), true.get_ydata(), atol=1e-12)


def networks():
    W, A = np.zeros((3, 3)), np.zeros((1, 3, 3))
    W[0, 1], A[0, 1, 2] = 0.5, 0.3
    first = DBN(W, A, ["a", "b", "c"])
    W, A = W.copy(), A.copy()
    W[0, 1], A[0, 2, 2] = -0.5, 0.2
    return [first, DBN(W, A, ["a", "b", "c"])]


SEGMENTS = pd.DataFrame({"start": [0, 64], "stop": [64, 200], "rows": [640, 1360]})


def test_the_picture_has_a_bar_where_an_edge_is_and_says_what_is_not_drawn():
    ax = plot_changes(networks(), SEGMENTS)
    assert len(ax.patches) == 3
    assert {text.get_text() for text in ax.texts} == {"+0.50", "-0.50", "+0.20", "row 64"}
    assert "1 other" in ax.get_xlabel()
    assert "1 more" in plot_changes(networks(), SEGMENTS, at_most=1).get_xlabel()


def test_edges_colours_arrowheads_and_circles():
    marks = np.full((3, 3, 3), "", dtype="<U3")
    marks[0, 1, 0], marks[1, 0, 0] = "<->", "<->"
    marks[1, 2, 0], marks[2, 1, 0] = "o-o", "o-o"
    marks[0, 0, 1], marks[2, 0, 2], marks[1, 1, 2] = "-->", "o->", "-->"
    ax = plot_marks(AncestralGraph(marks, ("a", "b", "a name that is much too long to be shown")))
    lines = [patch for patch in ax.patches if isinstance(patch, PathPatch)]
    assert sorted(to_hex(line.get_edgecolor()) for line in lines) == [
        "#0072b2", "#0072b2", "#777777", "#777777", "#d55e00",
    ]  # fmt: skip
    heads = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    assert len(heads) == 5, "two at <->, one at each --> and at o->"
    circles = [line for line in ax.lines if line.get_markersize() == 6]
    assert len(circles) == 3, "two at o-o, one at o->"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["t−2", "t−1", "t"]
    assert len(ax.get_yticklabels()[2].get_text()) <= 18
