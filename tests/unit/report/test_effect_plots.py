"""Panels of curved effects: what they show, in which order, on which scale."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from feddbn.errors import ParameterError
from feddbn.methods.simulation import simulate
from feddbn.model.curves import Curve
from feddbn.model.dbn import DBN
from feddbn.report import curve_panels, plot_curves, plot_process_graph, time_series_edges
from support.report_results import curved_dbn, random_dbn


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


def test_functions_of_simulated_networks_are_drawn_as_the_truth() -> None:
    truth = simulate(d=3, n_sites=1, n_samples=50, random_state=1, effects="sigmoid").truth
    assert truth.W.any()
    i, j = (int(k) for k in np.argwhere(truth.W)[0])
    true = truth.effect(i, j)
    curve = Curve(i, j, 0, true.centre, true.scale, (0.1,))
    dbn = DBN(truth.W, truth.A, truth.variables, curves=[curve])
    (panel,) = plot_curves(dbn, truth=truth).child_axes
    line = next(line for line in panel.lines if line.get_color() == "#d55e00")
    x = np.asarray(line.get_xdata(), dtype=float)
    np.testing.assert_allclose(line.get_ydata(), true(x) - true(true.centre), atol=1e-12)


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(ParameterError, match="plot_weights"):
        plot_curves(random_dbn(4))
    with pytest.raises(ParameterError, match="at_most"):
        plot_curves(curved_dbn(), at_most=0)


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
