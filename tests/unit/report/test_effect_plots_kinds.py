"""Pictures and tables of variables of other kinds show the numbers of the network."""

from __future__ import annotations

import numpy as np
import pytest

from feddbn import DBN
from feddbn.core.kinds import Kind
from feddbn.errors import ParameterError
from feddbn.report import (
    effect_panels,
    plot_outlook,
    render_report,
)
from feddbn.report.page import page_data
from feddbn.report.record import read_record
from support.mixed_networks import VARIABLES, effect, mixed_network
from support.networks import make_node


@pytest.fixture(scope="module")
def dbn() -> DBN:
    return mixed_network(covariance=True)


@pytest.fixture(scope="module")
def small() -> DBN:
    nodes = [
        make_node(Kind("count"), ((1, 1),), 0.5, (effect((0.4,)),), 0.2),
        make_node(Kind("ordinal", ("no", "some", "bad")), ((1, 1),), (0.0, 1.0), (effect((0.6,)),)),
    ]
    return DBN.from_nodes(nodes, ["visits", "pain"])


def test_panels_are_the_effects_of_the_network(dbn):
    panels = effect_panels(dbn, at_most=4)
    assert len(panels) == 4
    place = [VARIABLES.index(panel.effect.target) for panel in panels]
    assert place == sorted(place)
    two = effect_panels(dbn, at_most=2)
    assert {(p.effect.source, p.effect.target) for p in two} == {("temp", "alarm"), ("temp", "temp")}
    panel = next(p for p in panels if (p.effect.source, p.effect.target) == ("temp", "alarm"))
    np.testing.assert_allclose(
        panel.table["effect"], dbn.effect("temp", "alarm", 1).at(panel.table["value"].to_numpy())[:, 0]
    )
    with pytest.raises(ParameterError, match="at_most"):
        effect_panels(dbn, at_most=0)


def test_forecasts_of_every_kind(dbn):
    rows = dbn.simulate(30, 1, burn_in=20)
    ahead = dbn.forecast(rows, 3, 0.9, random_state=0, n_paths=200)
    for name in VARIABLES:
        ax = plot_outlook(ahead, name, history=rows[name].tail(10))
        assert name in ax.get_ylabel()
    bars = plot_outlook(ahead, "visits").patches
    low, high = ahead.lower["visits"].to_numpy(), ahead.upper["visits"].to_numpy()
    np.testing.assert_allclose([bar.get_y() + 0.5 for bar in bars], low)
    np.testing.assert_allclose([bar.get_y() + bar.get_height() - 0.5 for bar in bars], high)
    shares = plot_outlook(ahead, "ward").patches
    np.testing.assert_allclose([bar.get_height() for bar in shares[:3]], ahead.mean["ward=north"])
    line = plot_outlook(ahead, "alarm").lines[-1]
    np.testing.assert_allclose(line.get_ydata(), ahead.mean["alarm"])
    with pytest.raises(ParameterError, match=r"variable='nobody'.*temp, dose"):
        plot_outlook(ahead, "nobody")


def test_a_network_without_a_usual_level_has_a_report():
    node = make_node(Kind("binary"), ((0, 1),), -8.0, (effect((16.0,)),))
    dbn = DBN.from_nodes([node, make_node(Kind(), (), 0.0, ())], ["sex", "x"])
    text = render_report(dbn)
    assert 'id="kinds"' in text


def test_what_moves_after_a_step_is_in_the_page(small):
    data = page_data(read_record(small, {}))
    effects = data["networks"][0]["effects"]
    assert [j for j, *_ in effects["1"]] == [0]
    assert data["kinds"] == ["count", "ordinal"]
