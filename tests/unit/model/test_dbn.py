import numpy as np
import pandas as pd
import pytest

from feddbn.errors import DataError, FileError, ParameterError
from feddbn.model.dbn import DBN

W = np.array([[0.0, 0.5], [0.0, 0.0]])
A = np.zeros((1, 2, 2))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"W": np.zeros((2, 3)), "A": A}, "2.*3"),
        ({"W": W, "A": np.zeros((2, 2))}, "n_lags.*2.*2.*2.*2"),
        (
            {"W": W, "A": A, "variables": ["a", "a"]},
            "variables.*2.*2.*1",
        ),
        ({"W": W, "A": A, "intercept": np.zeros(3)}, "intercept.*noise_variances.*2,"),
        ({"W": W * np.nan, "A": A}, "DBN"),
        (
            {"W": W, "A": A, "noise_variances": np.array([1.0, -2.0])},
            "noise_variances.*-2",
        ),
    ],
)
def test_impossible_networks_are_refused(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        DBN(**arguments)  # type: ignore[arg-type]


def test_a_network_is_read_only_and_says_its_size() -> None:
    dbn = DBN(W, A)
    with pytest.raises(ValueError, match="read-only"):
        dbn.W[0, 0] = 1.0
    assert repr(dbn) == "<DBN: 2 variables, 1 lags, 1 contemporaneous and 0 lagged edges>"


def test_equality_is_exact_unless_a_tolerance_is_given() -> None:
    dbn, near = DBN(W, A), DBN(W + 1e-9 * (W != 0), A)
    assert dbn.equals(DBN(W, A))
    assert not dbn.equals(near)
    assert dbn.equals(near, atol=1e-8)
    assert not dbn.equals(DBN(W, A, ["a", "b"]))
    assert not dbn.equals(DBN(W, np.zeros((2, 2, 2))))


def test_a_static_network_has_the_covariance_of_its_shocks() -> None:
    static = DBN(W, np.zeros((0, 2, 2)), noise_variances=np.array([2.0, 1.0]))
    np.testing.assert_allclose(static.stationary_covariance(), [[2.0, 1.0], [1.0, 1.5]])
    assert static.spectral_radius == 0.0


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (pd.DataFrame([[1.0, 2.0, 3.0]] * 3, columns=["x0", "x0", "x1"]), "columns"),
        (pd.DataFrame({"x0": ["a", "b"], "x1": [1.0, 2.0]}), "numeric"),
        ([np.array([["a", "b"]])], "data"),
    ],
)
def test_unusable_rows_are_refused_with_a_sentence(data: object, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        DBN(W, A).residuals(data)  # type: ignore[arg-type]


def test_missing_values_of_nullable_columns_are_refused_as_missing() -> None:
    frame = pd.DataFrame({"x0": pd.array([1, None, 3], dtype="Int64"), "x1": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match="data contains NaN or infinity"):
        DBN(W, A).residuals(frame)


def test_a_noiseless_network_has_no_likelihood_and_constant_residuals_no_normality() -> None:
    silent = DBN(np.zeros((2, 2)), A, noise_variances=np.array([0.0, 1.0]))
    data = np.column_stack([np.zeros(50), np.random.default_rng(0).normal(size=50)])
    with pytest.raises(ParameterError, match="log_likelihood needs positive noise_variances"):
        silent.log_likelihood(data)
    table = silent.residual_diagnostics(data)
    assert np.isnan(table["normality_p"].iloc[0])
    assert table["normality_p"].iloc[1] > 0.001
    assert table["autocorrelation"].iloc[0] == 0.0
    assert np.isnan(silent.residual_diagnostics(data[:10])["normality_p"]).all()


def test_bad_noise_interventions_and_names_are_refused() -> None:
    dbn = DBN(W, A)
    with pytest.raises(ParameterError, match=r"noise.*2"):
        dbn.simulate(3, noise=np.zeros((4, 3)))
    with pytest.raises(ParameterError, match="interventions"):
        dbn.do(["x0"], None, 3)  # type: ignore[arg-type]
    irregular = pd.DataFrame(
        np.zeros((3, 2)),
        columns=["x0", "x1"],
        index=pd.to_datetime(["2024-01-01", "2024-01-02", "2024-02-05"]),
    )
    assert list(dbn.forecast(irregular, 2).mean.index) == [1, 2]
    assert "lower" not in dbn.forecast(irregular, 2).to_frame()


def test_a_graph_with_a_weight_that_is_no_number_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    graph = DBN(W, A).to_networkx()
    graph.edges["x0_lag0", "x1_lag0"]["weight"] = "strong"
    with pytest.raises(ParameterError, match="'strong'"):
        DBN.from_networkx(graph)
    graph.nodes["x0_lag0"]["lag"] = "zero"
    with pytest.raises(DataError, match=r"0.*'zero'"):
        DBN.from_networkx(graph)
    with pytest.raises(FileError, match="'n0'"):
        DBN.from_graphml(
            '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed">'
            '<node id="n0"/></graph></graphml>'
        )
    stored = dict(np.load(_npz(tmp_path)))
    np.savez(tmp_path / "bad.npz", **{**stored, "variables": np.frombuffer(b"[1", dtype=np.uint8)})
    with pytest.raises(FileError, match="'variables'"):
        DBN.from_npz(tmp_path / "bad.npz")


def _npz(folder):  # type: ignore[no-untyped-def]
    DBN(W, A).to_npz(folder / "good.npz")
    return folder / "good.npz"
