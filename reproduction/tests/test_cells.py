import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feddbn.errors import FileError
from feddbn.metrics import edge_scores
from reproduction.cells import METHODS, expand, hashed_seed
from reproduction.config import (
    Point,
    Quoted,
    experiment_names,
    load_experiment,
    load_experiments,
    parse_experiment,
)
from reproduction.fits import draw, made
from reproduction.tables import implied_edges, implied_of, position, stated_edges
from reproduction.tests.tiny import TINY
from support.saying import refused


def test_every_shipped_experiment_is_valid_and_names_itself_as_its_file():
    assert [one.name for one in load_experiments("all")] == list(experiment_names())
    assert len(experiment_names()) == 15


def test_every_figure_and_table_of_the_paper_has_an_experiment():
    labels = "".join(figure for one in load_experiments() for figure in one.figures)
    names = """example vary_d vary_d_a 10d_512client 20d_512client 10d_256client
    20d_256client 10d_512client_a 20d_512client_a 10d_256client_a 20d_256client_a compare_two
    all_sp all_de partial VC_10 VC_20 dream4_comp
    dream4_re perf:d15 fMRI_re"""
    for label in re.findall(r"\S+", names):
        assert f"'{label}'" in labels, label


def test_every_method_of_an_experiment_is_registered_and_every_simulated_one_has_both_protocols():
    for one in load_experiments():
        assert set(one.methods) <= set(METHODS)
        if one.kind not in ("dream4", "netsim"):
            assert one.protocols == ("paper-text", "strong")


def test_the_methods_of_every_experiment_take_its_settings():
    for cell in (cell for one in load_experiments() for cell in expand(one, seeds=1)):
        settings = {
            name: value
            for name, value in cell.config["settings"].items()
            if name not in ("cuts", "lambdas", "select")
        }
        if cell.settings.run != "context":
            made(cell.settings.make, settings)


def test_quoted_positions_exist_on_the_axis():
    for one in load_experiments():
        if one.kind in ("dream4", "netsim"):
            continue
        axis = {position(one, point) for point in one.points}
        for quoted in one.quoted:
            assert set(quoted.at) <= axis, (one.name, quoted.at)
        for claim in one.claims:
            assert set(claim.at) <= axis, (one.name, claim.at)


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("name =", "sedes = 3\nname =", ("sedes:",)),
        ("n_sites = 2,", "n_cites = 2,", ("points.0.n_cites:",)),
        ("points = [0]", "points = [7]", ("quick.points", 7)),
        ('ours = "Alldata"', 'ours = "Nobody"', ("'Nobody'",)),
        ("values = [0.7, 0.6]", "values = [0.7]", ("W.tpr", 1, 2)),
    ],
)
def test_what_is_wrong_is_one_sentence_that_names_file_and_key(old, new, names):
    with refused(FileError, "'my.toml'", *names):
        parse_experiment(TINY.replace(old, new, 1), "my.toml")


def test_quick_grids_have_every_experiment_and_few_cells():
    sizes = {one.name: len(expand(one, quick=True)) for one in load_experiments()}
    assert min(sizes.values()) >= 1
    assert sum(sizes.values()) < 120


def test_a_grid_is_the_product_of_its_axes(tiny):
    cells = expand(tiny)
    assert len(cells) == 2 * 2 * 3 * 2
    assert len({cell.id for cell in cells}) == len(cells)
    assert len(expand(tiny, seeds=1)) == 2 * 2 * 1 * 2
    assert len(expand(tiny, quick=True)) == 2


def test_all_methods_see_the_same_data_and_different_axes_see_different_data(tiny):
    by_axes: dict[str, set[float]] = {}
    for cell in expand(tiny):
        first = next(iter(draw(cell).sites.values()))[0]
        by_axes.setdefault(str(cell.data_axes()), set()).add(float(np.asarray(first)[0, 0]))
    assert all(len(values) == 1 for values in by_axes.values())
    assert len(set.union(*by_axes.values())) == len(by_axes)


def test_a_seed_is_a_hash_of_named_axes_whatever_their_order():
    assert hashed_seed({"d": 5, "seed": 0}) == hashed_seed({"seed": 0, "d": 5})
    assert hashed_seed({"d": 5, "seed": 0}) != hashed_seed({"d": 0, "seed": 5})
    # Fixed for all times: recorded rows rest on it.
    assert hashed_seed({"d": 5, "seed": 0}) == 634371294515837468


def test_the_number_of_participants_does_not_change_the_data():
    cells = expand(load_experiment("partial-participation"), seeds=1)
    assert len({hashed_seed(cell.data_axes()) for cell in cells}) == 2  # one per protocol
    assert len({cell.id for cell in cells}) == len(cells)


def test_identity_depends_on_settings_not_on_titles(tiny):
    retold = tiny.model_copy(update={"title": "Other", "commentary": "Other"})
    assert [a.id for a in expand(tiny)] == [b.id for b in expand(retold)]
    other = tiny.model_copy(update={"protocols": ("strong",)})
    assert {c.id for c in expand(other)} < {c.id for c in expand(tiny)}


@given(seed=st.integers(0, 10_000), share=st.floats(0.1, 0.9))
def test_scores_of_a_network_imply_its_number_of_edges(seed, share):
    rng = np.random.default_rng(seed)
    truth = np.tril(rng.random((7, 7)) < share, -1)
    estimate = np.where(rng.random((7, 7)) < 0.5, truth, truth.T)
    estimate = np.where(rng.random((7, 7)) < 0.7, estimate, np.triu(rng.random((7, 7)) < 0.3, 1))
    scores = edge_scores(truth, estimate)
    n = truth.sum()
    if not (scores.tpr > 0 and scores.shd > 0):
        return
    # With reversals counted twice the number is exact, with reversals counted once it is within the interval.
    assert implied_edges(scores.shd_paper, scores.tpr, scores.fdr)[0] == pytest.approx(n)
    low, high = implied_edges(scores.shd, scores.tpr, scores.fdr)
    assert low - 1e-9 <= n <= high + 1e-9


def test_a_perfect_score_implies_nothing():
    assert implied_edges(0.0, 1.0, 0.0) == (math.inf, math.inf)
    assert implied_edges(4.0, 0.5, 1.0) == (0.0, 0.0)


@pytest.mark.parametrize("changes", [{}, {"connectivity": "low"}, {"connectivity": "high"}, {"n_lags": 2}])
def test_stated_edges_are_those_the_simulator_draws(tiny, changes):
    point = Point(d=10, n_sites=20, n_samples=200, heterogeneity="independent", **changes)
    cell = expand(tiny.model_copy(update={"points": (point,)}))[0]
    truths = draw(cell).truths.values()
    for part in ("W", "A"):
        counts = [np.count_nonzero(getattr(truth, part)) for truth in truths]
        error = np.std(counts) / np.sqrt(len(counts))
        assert abs(np.mean(counts) - stated_edges(point, part)) < 4 * error + 0.2


def test_an_experiment_implies_edges_where_all_three_numbers_are_quoted(tiny):
    def quoted(measure, values):
        return Quoted(
            measure=measure, at=(2, 4), values=values, column="Ave", ours="Alldata", source="Table 0"
        )

    both = (quoted("W.shd_paper", (5.0, 6.0)), quoted("W.fdr", (0.5, 0.5)))
    assert list(implied_of(tiny.model_copy(update={"quoted": both}))) == []
    three = (*both, quoted("W.tpr", (0.5, 0.6)))
    found = list(implied_of(tiny.model_copy(update={"quoted": three})))
    assert [(one.column, one.part, one.at) for one in found] == [("Ave", "W", 2.0), ("Ave", "W", 4.0)]
    # Half of E missed and as many false: between half of E and E.
    assert (found[0].low, found[0].high) == pytest.approx((5.0, 10.0))
    assert found[0].stated == stated_edges(tiny.points[0], "W")
