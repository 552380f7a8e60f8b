"""A method that gives probabilities shows the network that agrees with them, and claims nothing from hardly any rows."""

import warnings

import numpy as np
import pandas as pd
import pytest

import feddbn

pytestmark = pytest.mark.promise

macrodata = pytest.importorskip("statsmodels.datasets.macrodata")


def growth():
    """Growth rates of the United States, by decades."""
    table = macrodata.load_pandas().data
    levels = ["realgdp", "realcons", "realinv", "realgovt", "realdpi", "cpi", "m1"]
    rates = 100 * np.log(table[levels]).diff().assign(unemp=table["unemp"].diff() / 100)
    decade = (table["year"] // 10 * 10).astype(int)
    return {f"{k}s": part for k, part in rates.iloc[1:].groupby(decade.iloc[1:])}


def simulated(seed, n=120, d=5):
    return feddbn.simulate(d=d, n_lags=1, n_sites=2, n_samples=n, random_state=seed).sites


def curved(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(150, 4))
    x[:, 1] += 0.8 * x[:, 0] ** 2
    x[1:, 2] += 0.4 * x[:-1, 1] + 0.2 * np.sin(2 * x[1:, 3])
    return {"a": x}


def codes(seed):
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(rng.normal(size=(160, 3)), columns=["a", "b", "c"])
    x["d"] = (x["a"] + rng.normal(size=160) > 0).astype(float)
    x["b"] += 0.25 * x["d"] + 0.2 * x["c"].shift(fill_value=0.0)
    return {"a": x}


CASES = {
    "equal or free": (feddbn.OneShotDBN, {}, simulated),
    "free": (feddbn.OneShotDBN, {"noise_variance": "free"}, simulated),
    "free, many rows": (feddbn.OneShotDBN, {"noise_variance": "free"}, lambda seed: simulated(seed, 500, 6)),
    "decades": (feddbn.OneShotDBN, {}, lambda seed: growth()),
    "curves": (feddbn.OneShotDBN, {"features": "spline", "n_lags": 1}, curved),
    "codes": (feddbn.MixedDBN, {"kinds": {"d": "binary"}}, codes),
    "no change": (feddbn.ChangingDBN, {"max_changes": 0}, simulated),
}


@pytest.mark.parametrize(
    ("case", "seed"), [(case, seed) for case in CASES for seed in (0, 1) if seed == 0 or case != "decades"]
)
def test_an_edge_is_shown_if_and_only_if_it_has_one_half(case, seed):
    method, settings, data = CASES[case]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = method(random_state=seed, **settings).fit(data(seed))
    table = model.edge_probabilities_
    own = table["probability"]
    ends = list(zip(table["source"], table["target"], table["lag"], strict=True))
    sure = dict(zip(ends, own, strict=True))
    shown = {tuple(row) for row in model.dbn_.edges()[["source", "target", "lag"]].to_numpy().tolist()}
    oriented = dict(zip(ends, table["oriented"], strict=True))
    for source, target, lag in shown:
        back = sure[target, source, 0] if lag == 0 else 0.0
        p = sure[source, target, lag] + (0.0 if oriented[source, target, lag] else back)
        assert p > 0.5 - 1e-6
        assert sure[source, target, lag] > back - 1e-6
    assert {edge for edge, p in sure.items() if p > 0.5 + 1e-6} <= shown
    # Weights are those of the network shown.
    assert (
        set(table.loc[table["weight"] != 0, ["source", "target", "lag"]].itertuples(index=False, name=None))
        == shown
    )


def test_an_edge_that_has_to_be_is_shown_whatever_its_probability():
    required = [("x0", "x1", 1), ("x3", "x2", 0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = feddbn.OneShotDBN(required_edges=required).fit(simulated(3))
    shown = {tuple(row) for row in model.dbn_.edges()[["source", "target", "lag"]].to_numpy().tolist()}
    assert set(required) <= shown


@pytest.mark.parametrize("n", [3, 4, 5])
def test_of_a_few_rows_of_noise_nothing_is_claimed_and_that_is_said_first(n):
    """Three sites, four variables: two or three times as many cells as a network has weights."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            warnings.simplefilter("ignore", UserWarning)
            model = feddbn.OneShotDBN().fit({name: rng.normal(size=(n, 4)) for name in "abc"})
        first = model.findings_[0]
        assert (first.code, first.values["q"]) == ("too-few-rows", 8)
        assert first.values["n"] <= 3 * (n - 1)
        assert model.edge_probabilities_[["probability", "presence"]].to_numpy().max() <= 0.6


def test_four_rows_of_weather_at_three_sites_end_with_a_sentence_and_no_numerical_warning():
    """Rows of which some repeat exactly, as sensors with few digits have them."""
    temp, wind = [39.02, 39.02, 39.02, 39.92], [10.36, 8.06, 11.51, 12.66]
    first = pd.DataFrame({"temp": temp, "humid": [59.37, 61.63, 64.43, 62.21], "wind": wind})
    second = first.assign(temp=[39.02, 39.02, 39.92, 39.92], humid=[59.37, 59.37, 59.5, 62.21])
    third = first.assign(temp=[39.92, 41.0, 41.0, 41.0], humid=[57.33, 54.97, 54.97, 54.97])
    tables = {
        "EWR": first.assign(pressure=[1012.0, 1012.3, 1012.5, 1012.2]),
        "JFK": second.assign(wind=[12.66, 11.51, 14.96, 17.26], pressure=[1012.6, 1012.4, 1012.7, 1012.6]),
        "LGA": third.assign(wind=[13.81, 17.26, 16.11, 17.26], pressure=[1011.9, 1011.5, 1012.0, 1011.8]),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)
        model = feddbn.OneShotDBN().fit(tables)
    assert model.findings_[0].code == "too-few-rows"
    assert "data-do-not-tell" in model.findings_.codes


@pytest.mark.slow
def test_a_year_and_its_quarter_follow_exactly_and_are_named():
    """In resamples of these rows what trends took along has no positive solution."""
    table = macrodata.load_pandas().data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = feddbn.OneShotDBN().fit(table)
    named = {name for one in model.findings_.of("dependent-column") for name in one.about}
    assert {"year", "quarter"} <= named
    assert np.isfinite(model.edge_probabilities_["probability"]).all()
    assert np.isfinite(model.dbn_.noise_variances).all()
