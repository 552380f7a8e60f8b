"""Several modules: every plot under the same rules."""

from __future__ import annotations

import io
import itertools
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
from feddbn.errors import ParameterError
from feddbn.report import (
    curve_panels,
    edge_steps,
    plot_changes,
    plot_convergence,
    plot_curves,
    plot_evidence,
    plot_forecast,
    plot_marks,
    plot_path,
    plot_process_graph,
    plot_responses,
    plot_site_differences,
    plot_time_series_graph,
    plot_truth_and_estimate,
    plot_weights,
    process_graph,
    site_differences,
    strongest_responses,
    time_series_edges,
)
from feddbn.report.canvas import symmetric_scale
from feddbn.report.graph_layout import CIRCLE_LIMIT, cluster_order, graph_positions, link_strengths
from support.report_results import curved_dbn, random_dbn

pytestmark = pytest.mark.usefixtures("light")


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
        plot_path(pd.DataFrame({"mu": [0.1, 1.0, 10.0], "shd": [3, 1, 2]}), x="mu", chosen=1.0),
        plot_responses(np.ones((4, 3)), dbn.variables, shock="x0"),
        plot_forecast(steps, low=steps - 1, high=steps + 1, history=np.zeros(9), name="x0"),
        plot_site_differences(site_differences(dbn, sites)),
        plot_curves(curved_dbn()),
    ]


def test_every_plot_returns_an_axes_of_a_figure_that_pyplot_does_not_know():
    before = dict(mpl.rcParams)
    for ax in everything():
        assert isinstance(ax, Axes)
        assert isinstance(ax.figure, Figure)
        ax.figure.canvas.draw()
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
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


def test_a_graph_of_a_hundred_names_only_connected_variables_and_not_too_many():
    dbn = random_dbn(100)
    ax = plot_process_graph(dbn, max_labels=30)
    named = drawn_names(ax) & set(dbn.variables)
    nodes = process_graph(dbn).nodes.set_index("variable")
    assert 10 <= len(named) <= 30
    assert nodes.loc[sorted(named), "degree"].min() >= nodes["degree"].median()


@pytest.mark.parametrize(
    "d", [5, pytest.param(20, marks=pytest.mark.slow), pytest.param(100, marks=pytest.mark.slow)]
)
def test_no_label_leaves_the_page(d):
    long = [f"arterial pressure {i}" for i in range(d)]
    dbn = random_dbn(d, names=long)
    for ax in (plot_process_graph(dbn), plot_time_series_graph(dbn), plot_weights(dbn)):
        figure = ax.figure
        figure.canvas.draw()
        page = figure.bbox
        texts = list(ax.texts)
        for panel in [ax, *ax.child_axes]:
            if panel.axison:
                texts += [*panel.texts, *panel.get_xticklabels(), *panel.get_yticklabels()]
        for text in (t for t in texts if t.get_text()):
            box = text.get_window_extent()
            assert box.x0 >= page.x0 - 1, text.get_text()
            assert box.x1 <= page.x1 + 1, text.get_text()
            assert box.y0 >= page.y0 - 1, text.get_text()
            assert box.y1 <= page.y1 + 1, text.get_text()


@pytest.mark.parametrize("d", [5, 100])
def test_row_names_of_the_time_series_graph_do_not_overlap(d):
    ax = plot_time_series_graph(random_dbn(d))
    ax.figure.canvas.draw()
    boxes = sorted((t.get_window_extent() for t in ax.get_yticklabels()), key=lambda b: b.y0)
    assert all(upper.y0 >= lower.y1 - 1 for lower, upper in itertools.pairwise(boxes))


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


def test_convergence_draws_zero_residuals_at_the_lower_edge():
    frame = history()
    frame.loc[10:, "h"] = 0.0
    ax = plot_convergence(frame, tol=1e-3)
    upper = ax.child_axes[0]
    h = next(line for line in upper.lines if line.get_label() == "acyclicity h")
    assert np.all(np.asarray(h.get_ydata()) > 0)
    assert upper.get_yscale() == "log"


def test_the_strongest_responses_come_first_with_their_bands():
    values = np.array([[0.0, 1.0, 0.1], [0.5, 0.0, -0.2]])
    best = strongest_responses(values, ["a", "b", "c"], low=values - 1, high=values + 1, at_most=2)
    assert best.names == ("b", "a")
    np.testing.assert_array_equal(best.low, values[:, [1, 0]] - 1)
    with pytest.raises(ParameterError, match=r"responses.*\(2, 3\)"):
        strongest_responses(values, ["a", "b"])


def test_wider_bands_of_a_forecast_lie_behind_narrower_ones():
    mean = np.zeros(4)
    ax = plot_forecast(mean, low=[mean - 1, mean - 2], high=[mean + 1, mean + 2], levels=(0.5, 0.9))
    assert [c.get_label() for c in ax.collections] == ["90% interval", "50% interval"]
    with pytest.raises(ParameterError, match="with 1 levels"):
        plot_forecast(mean, low=[mean, mean], high=[mean, mean])


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


def test_residuals_of_rounding_do_not_press_the_convergence_flat():
    history = pd.DataFrame({"round": [0, 1, 2], "primal": [1.0, 1e-3, 1e-16], "h": [0.0, 0.1, 0.0]})
    (line, other) = plot_convergence(history).lines
    np.testing.assert_allclose(line.get_ydata(), [1.0, 1e-3, 1e-9])
    np.testing.assert_allclose(other.get_ydata(), [1e-9, 0.1, 1e-9])


def test_clustering_puts_two_separate_groups_side_by_side():
    W = np.zeros((6, 6))
    for i, j in ((0, 2), (2, 4), (1, 3), (3, 5)):
        W[i, j] = 0.5
    order = cluster_order(link_strengths(DBN(W, np.zeros((1, 6, 6)))))
    assert sorted(order) == list(range(6))
    assert {frozenset(order[:3]), frozenset(order[3:])} == {frozenset({0, 2, 4}), frozenset({1, 3, 5})}


@pytest.mark.parametrize("d", [1, 2, CIRCLE_LIMIT + 1, 100])
def test_positions_are_in_the_unit_square_and_always_the_same(d):
    dbn = random_dbn(d)
    first, second = graph_positions(dbn), graph_positions(dbn)
    np.testing.assert_array_equal(first, second)
    assert first.shape == (d, 2)
    assert first.min() >= 0
    assert first.max() <= 1


def test_no_two_of_a_hundred_nodes_overlap():
    x = graph_positions(random_dbn(100))
    gap = np.hypot(*(x[:, None] - x[None, :]).transpose(2, 0, 1))
    assert gap[np.triu_indices(100, 1)].min() > 0.03


def test_the_scale_is_symmetric_and_ignores_what_is_not_finite():
    norm = symmetric_scale(np.array([-0.2, np.nan]), [0.7, -0.9])
    assert (norm.vmin, norm.vmax) == (-0.9, 0.9)
    assert symmetric_scale(np.zeros(3)).vmax == 1.0


def panels_of(ax: Axes) -> dict[str, Axes]:
    return {panel.get_title(loc="left"): panel for panel in ax.child_axes}


def test_a_panel_shows_the_effect_its_band_and_where_it_was_learned() -> None:
    dbn = curved_dbn()
    drawn = panels_of(plot_curves(dbn))
    assert set(drawn) == {"c → a, lag 1", "a → b", "b → c, lag 1"}
    panel, effect = drawn["a → b"], dbn.effect("a", "b", 0)
    whole, inside = (line for line in panel.lines if line.get_color() == "#0072b2")
    x = np.asarray(whole.get_xdata(), dtype=float)
    np.testing.assert_array_equal(whole.get_ydata(), effect.at(x))
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


def test_panels_are_the_strongest_ordered_by_target() -> None:
    dbn = curved_dbn()
    assert [panel.effect.target for panel in curve_panels(dbn)] == ["a", "b", "c"]
    strongest = max(curve_panels(dbn), key=lambda panel: panel.strength)
    assert [panel.effect for panel in curve_panels(dbn, at_most=1)] == [strongest.effect]
    legend = plot_curves(dbn, at_most=1).get_legend()
    assert legend is not None
    assert legend.get_title().get_text().startswith("2 weaker")


def test_the_truth_is_drawn_from_the_same_zero() -> None:
    dbn = curved_dbn()
    panel = panels_of(plot_curves(dbn, truth=dbn))["c → a, lag 1"]
    ours, true = (next(line for line in panel.lines if line.get_color() == c) for c in ("#0072b2", "#d55e00"))
    np.testing.assert_allclose(ours.get_ydata(), true.get_ydata(), atol=1e-12)


def test_effects_that_go_both_ways_are_grey_and_effects_without_a_slope_are_arrows() -> None:
    dbn = curved_dbn()
    ax = plot_process_graph(dbn)
    assert any("grey" in text.get_text() for text in ax.texts)
    edges = time_series_edges(dbn)
    hill = edges[(edges["source"] == "b") & (edges["target"] == "c")]
    assert hill["weight"].tolist() == [0.0]
    assert hill["standardised"].item() > 0
    straight = plot_process_graph(random_dbn(4))
    assert not any("grey" in text.get_text() for text in straight.texts)


def networks():
    W, A = np.zeros((3, 3)), np.zeros((1, 3, 3))
    W[0, 1], A[0, 1, 2] = 0.5, 0.3
    first = DBN(W, A, ["a", "b", "c"])
    W, A = W.copy(), A.copy()
    W[0, 1], A[0, 2, 2] = -0.5, 0.2
    return [first, DBN(W, A, ["a", "b", "c"])]


SEGMENTS = pd.DataFrame({"start": [0, 64], "stop": [64, 200], "rows": [640, 1360]})


def test_edges_that_change_most_come_first_and_the_others_are_counted():
    steps = edge_steps(networks(), SEGMENTS)
    assert steps.names == ("a → b", "c → c, lag 1")
    np.testing.assert_array_equal(steps.weights, [[0.5, -0.5], [0.0, 0.2]])
    assert steps.edges == (0, 64, 200)
    assert steps.n_constant == 1


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


def test_evidence_names_the_strongest_alarms_and_leaves_the_rest_grey():
    looks = [{"number": k, "n_rows": 100, "alarms": []} for k in (1, 2, 3)]
    evidence = []
    for j in range(12):
        # The first nine rise beyond the bar, two do not reach it, and one never speaks for a change.
        steps = 10.0 + j if j < 9 else 2.0 if j < 11 else 0.5
        evidence += [{"look": k, "target": f"x{j}", "e_value": steps**k} for k in (1, 2, 3)]
        if j < 9:
            values = {"source": "y", "target": f"x{j}", "lag": 1}
            looks[1]["alarms"].append({"code": "edge-gone" if j else "noise-changed", "values": values})
    ax = plot_evidence({"bar": 100.0, "looks": looks, "evidence": evidence})
    written = [text.get_text() for text in ax.texts]
    assert written[0] == "alarm at 100"
    assert written[1:] == [*(f"y -> x{j}, lag 1 is gone" for j in range(8, 1, -1)), "and 2 more"]
    heights = [text.xy[1] for text in ax.texts[1:]]
    assert heights == sorted(heights, reverse=True)
    assert min(np.diff(heights[::-1])) > 0.05
    assert "2 variables" in ax.get_title(loc="left")
    # Eleven lines, a dot for each of seven names, and the bar.
    assert len(ax.lines) == 11 + 7 + 1
    assert plot_evidence({"bar": 100.0, "looks": [], "evidence": []}).get_ylim()[1] == 400.0
