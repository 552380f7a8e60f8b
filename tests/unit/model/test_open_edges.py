"""Several modules: edges whose direction is open in every form of a network, and weights in standard deviations."""

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from feddbn.errors import DataError, ParameterError
from feddbn.model.dbn import DBN


@pytest.fixture
def partly() -> DBN:
    """a -- b -> c with a -> a one step later; the direction between a and b is open."""
    W = np.zeros((3, 3))
    W[0, 1], W[1, 2] = 0.5, -0.8
    A = np.zeros((1, 3, 3))
    A[0, 0, 0] = 0.6
    return DBN(W, A, ["a", "b", "c"], np.ones(3), np.array([1.0, 4.0, 0.25]), [("a", "b")])


def test_what_is_open_is_part_of_the_network(partly: DBN) -> None:
    assert partly.open_edges == (("a", "b"),)
    assert partly.is_oriented.sum() == 2
    assert not partly.is_oriented[0, 0, 1]
    assert partly.edges()["oriented"].tolist() == [False, True, True]
    assert partly.at_level([1.0, 2.0, 3.0]).open_edges == partly.open_edges
    assert not partly.equals(DBN(partly.W, partly.A, partly.variables, np.ones(3), partly.noise_variances))


def test_pairs_are_sorted_and_kept_once() -> None:
    W = np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    dbn = DBN(W, np.zeros((0, 3, 3)), open_edges=[("x1", "x2"), ("x0", "x1"), ("x1", "x2")])
    assert dbn.open_edges == (("x0", "x1"), ("x1", "x2"))


@pytest.mark.parametrize("pair", [("b", "a"), ("a", "z"), ("a", "c")])
def test_only_an_edge_within_a_moment_can_be_open(partly: DBN, pair: tuple[str, str]) -> None:
    with pytest.raises(ParameterError, match=f"open_edges.*{pair[0]} -> {pair[1]}"):
        DBN(partly.W, partly.A, partly.variables, open_edges=[pair])


@pytest.mark.parametrize(
    "there_and_back",
    [
        lambda dbn: DBN.from_dict(dbn.to_dict()),
        lambda dbn: DBN.from_json(dbn.to_json()),
        lambda dbn: DBN.from_networkx(dbn.to_networkx()),
        lambda dbn: DBN.from_graphml(dbn.to_graphml()),
    ],
)
def test_it_survives_every_form_that_keeps_everything(
    partly: DBN, there_and_back: Callable[[DBN], DBN]
) -> None:
    assert there_and_back(partly).equals(partly)


def test_it_survives_an_archive_and_an_edge_list(partly: DBN, tmp_path) -> None:
    partly.to_npz(tmp_path / "n.npz")
    assert DBN.from_npz(tmp_path / "n.npz").equals(partly)
    assert DBN.from_csv(partly.to_csv(), partly.variables).open_edges == partly.open_edges
    assert DBN.from_edges(partly.edges(), partly.variables).open_edges == partly.open_edges


def test_a_file_of_version_1_opens_and_is_still_written_where_nothing_is_open(partly: DBN) -> None:
    assert partly.to_dict()["version"] == 2
    plain = DBN(partly.W, partly.A, partly.variables)
    stored = plain.to_dict()
    assert stored["version"] == 1
    assert "open_edges" not in stored
    assert DBN.from_json(json.dumps(stored)).open_edges == ()


def test_drawings_and_neighbours_mark_it(partly: DBN) -> None:
    lines = partly.to_dot().splitlines()
    assert [line for line in lines if "dir=none" in line] == [
        '  "a_lag0" -> "b_lag0" [weight_value="0.5", label="0.5", dir=none];'
    ]
    graph, values = partly.to_tigramite()
    assert graph[0, 1, 0] == graph[1, 0, 0] == "o-o"
    assert (graph[1, 2, 0], graph[2, 1, 0]) == ("-->", "<--")
    assert values[0, 1, 0] == values[1, 0, 0] == 0.5
    with pytest.raises(ParameterError, match=r"graph\[0, 1\] .*'o-o'.*'-->'.*'<--'"):
        DBN.from_tigramite(graph, values)
    assert partly.to_networkx("summary").edges["a", "b"]["oriented"] is False
    assert "false" in partly.to_csv().splitlines()[1]


def test_a_word_that_is_neither_true_nor_false_is_refused() -> None:
    frame = pd.DataFrame(
        {"source": ["a"], "target": ["b"], "lag": [0], "weight": [1.0], "oriented": ["maybe"]}
    )
    with pytest.raises(DataError, match=r"oriented.*'maybe'"):
        DBN.from_edges(frame)


def test_a_weight_of_zero_is_no_edge_and_cannot_be_open() -> None:
    frame = pd.DataFrame({"source": ["a"], "target": ["b"], "lag": [0], "weight": [0.0], "oriented": [False]})
    assert DBN.from_edges(frame).open_edges == ()


# Standardised weights.


def test_standardised_weights_are_those_of_standardised_rows(partly: DBN) -> None:
    rows = partly.simulate(200_000, random_state=0).to_numpy()
    sd = rows.std(axis=0)
    scaled = (rows - rows.mean(axis=0)) / sd
    x, past = scaled[1:], scaled[:-1]
    by_regression = np.linalg.lstsq(np.column_stack([x[:, 1], past]), x[:, 2], rcond=None)[0][0]
    assert partly.standardised_weights()[0, 1, 2] == pytest.approx(by_regression, abs=0.01)
    np.testing.assert_allclose(partly.standardised_weights(), partly.standardised_weights(sd), atol=0.01)


def test_standardised_weights_do_not_depend_on_units(partly: DBN) -> None:
    units = np.array([100.0, 0.01, 7.0])
    other = DBN(
        partly.W * units / units[:, None],
        partly.A * units / units[:, None],
        partly.variables,
        noise_variances=partly.noise_variances * units**2,
    )
    np.testing.assert_allclose(other.standardised_weights(), partly.standardised_weights())


def test_without_a_stationary_process_one_moment_given_the_past_is_the_unit() -> None:
    W = np.array([[0.0, 2.0], [0.0, 0.0]])
    grows = DBN(W, 1.1 * np.eye(2)[None], noise_variances=np.array([4.0, 9.0]))
    assert grows.standardised_weights()[0, 0, 1] == pytest.approx(2.0 * 2.0 / np.sqrt(4 * 4 + 9))


def test_a_cycle_without_a_solution_falls_back_on_the_noise() -> None:
    cyclic = DBN(
        np.array([[0.0, 1.0], [1.0, 0.0]]), np.zeros((0, 2, 2)), noise_variances=np.array([4.0, 1.0])
    )
    assert cyclic.standardised_weights()[0, 0, 1] == 2.0


def test_a_variable_without_variance_has_unit_one() -> None:
    W = np.array([[0.0, 3.0], [0.0, 0.0]])
    assert DBN(W, np.zeros((0, 2, 2)), noise_variances=np.zeros(2)).standardised_weights()[0, 0, 1] == 3.0


@pytest.mark.parametrize("sd", [[1.0, 1.0], [1.0, 0.0, 1.0], [1.0, np.nan, 1.0]])
def test_bad_standard_deviations_are_refused(partly: DBN, sd: list[float]) -> None:
    with pytest.raises(ParameterError, match=r"sd.*3"):
        partly.standardised_weights(sd)
