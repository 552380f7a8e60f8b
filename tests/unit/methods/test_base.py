"""What every estimator of a network offers beside its fit: score, summary, responses with bands."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

import feddbn
from feddbn.errors import DataError
from feddbn.results.result import Result

pytestmark = [
    pytest.mark.filterwarnings("ignore::feddbn.errors.ResultWarning"),
]


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    A = np.zeros((2, 3, 3))
    A[1, 0, 1] = A[1, 1, 2] = 0.7
    dbn = feddbn.DBN(np.zeros((3, 3)), A, ["a", "b", "c"])
    return pd.DataFrame(dbn.simulate(600, random_state=0), columns=list("abc"))


def test_grid_search_of_scikit_learn_finds_the_lags(table: pd.DataFrame) -> None:
    search = GridSearchCV(feddbn.OneShotDBN(), {"n_lags": [1, 2]}, cv=TimeSeriesSplit(3), error_score="raise")
    assert search.fit(table).best_params_ == {"n_lags": 2}


def test_a_score_is_the_mean_log_likelihood_of_a_row(table: pd.DataFrame) -> None:
    model = feddbn.OneShotDBN(n_lags=2, prepare=feddbn.Prepare(center="none")).fit(table[:400])
    rest = table[400:].reset_index(drop=True)
    assert model.score(rest) == pytest.approx(model.dbn_.log_likelihood(rest) / (len(rest) - 2))
    # About means of their own, new recordings may have any level.
    own = feddbn.OneShotDBN(n_lags=2, prepare=feddbn.Prepare(center="recording")).fit(table[:400])
    assert own.score(rest + 50) == pytest.approx(own.score(rest))
    assert model.score(rest + 50) < own.score(rest + 50) - 10
    with pytest.raises(DataError) as caught:
        model.score(rest[:2])
    assert caught.value.code


def test_a_summary_fits_a_terminal_and_has_every_edge(table: pd.DataFrame) -> None:
    model = feddbn.OneShotDBN(n_lags=2).fit(
        {"here": table[:300], "there": table[300:].reset_index(drop=True)}
    )
    lines = model.summary().splitlines()
    assert max(map(len, lines)) <= 79
    assert sum("->" in line or "--" in line.split()[1:2] for line in lines) == len(model.dbn_.edges())
    stored = Result.from_estimator(model)
    assert Result.from_dict(stored.to_dict()).summary() == model.summary()


def test_responses_come_with_bands(table: pd.DataFrame) -> None:
    found = feddbn.OneShotDBN(n_lags=2).fit(table).impulse_responses(4)
    assert list(found) == ["source", "target", "step", "response", "lower", "upper"]
    moved = found.query("source == 'a' and target == 'c' and step == 4").iloc[0]
    assert moved["lower"] < moved["response"] < moved["upper"]
    assert moved["lower"] < 0.49 < moved["upper"]
    still = found.query("source == 'c' and target == 'a'")
    assert (still[["response", "lower", "upper"]] == 0).all(axis=None)


def test_a_network_whose_shocks_grow_has_responses_without_bands() -> None:
    grows = feddbn.DBN(np.zeros((2, 2)), [[[1.1, 0.3], [0.0, 0.5]]], ["a", "b"])
    result = Result(method="OneShotDBN", dbn=grows, diagnostics={"n_samples": 400})
    assert result.response_bands(3) is None
    assert result.impulse_responses(3)[["lower", "upper"]].isna().all(axis=None)
    assert "std err" in result.summary()
