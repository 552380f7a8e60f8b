"""Several modules: variables that somebody sets at random are named, and nothing acts on them."""

import numpy as np
import pandas as pd
import pytest

from feddbn import OneShotDBN
from feddbn.core.orders.knobs import knobs_among
from feddbn.core.statistics.moments import Moments

KNOBS = ["k0", "k1", "k2", "k3", "k4"]
SHARED = ["s0", "s1", "s2", "s3"]
"""Each depends on two neighbouring knobs; `alone` on k4 only, so that the two could be exchanged; `slow` has memory."""
NAMES = [*KNOBS, *SHARED, "alone", "slow"]
UNITS = np.random.default_rng(77).uniform(0.5, 20.0, len(NAMES))
TRUE = {(f"k{k}", f"s{j}") for j in range(4) for k in (j, j + 1)} | {("k4", "alone")}


def rows(n, rng):
    x = np.zeros((n, len(NAMES)))
    x[:, :5] = rng.uniform(-1, 1, (n, 5)) * np.sqrt(3)
    for j in range(4):
        x[:, 5 + j] = x[:, j] + x[:, j + 1] + 0.5 * rng.normal(size=n)
    x[:, 9] = x[:, 4] + 0.5 * rng.normal(size=n)
    noise = rng.normal(size=n)
    for t in range(1, n):
        x[t, 10] = 0.8 * x[t - 1, 10] + noise[t]
    return pd.DataFrame(x * UNITS, columns=NAMES)


@pytest.mark.parametrize("seed", range(3))
def test_knobs_are_named_and_get_no_arrow(seed):
    rng = np.random.default_rng(seed)
    sites = {f"site-{k}": [rows(500, rng)] for k in range(3)}
    model = OneShotDBN(n_lags=1).fit(sites)
    (told,) = model.findings_.of("knobs")
    assert {"k0", "k1", "k2", "k3"} <= set(told.about) <= set(KNOBS)
    assert told.cure["prepare.exogenous"] == list(told.about)
    edges = model.dbn_.edges()
    drawn = {(e.source, e.target) for e in edges.itertuples() if e.source != e.target and e.lag == 0}
    assert {edge for edge in drawn if edge[1] in KNOBS} <= {("alone", "k4")}
    assert {frozenset(edge) for edge in drawn} == {frozenset(edge) for edge in TRUE}


def told_by(frame):
    values = frame.to_numpy()[:, :10]
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    now = Moments.of_rows(np.hstack([values, values**2]))
    return knobs_among(range(10), Moments.of_rows(np.hstack([values[1:], values[:-1]])), now, 10)


def test_what_could_be_exchanged_is_not_named_but_what_shares_an_effect_does_not_act_on_it():
    found = told_by(rows(2000, np.random.default_rng(5)))
    place = {name: j for j, name in enumerate(NAMES)}
    assert {place["k0"], place["k1"], place["k2"], place["k3"]} <= set(found.named)
    assert place["k4"] not in found.named
    assert found.ruled_out[place["s3"], place["k4"]]
    # What acts is never ruled out.
    assert not any(found.ruled_out[place[a], place[b]] for a, b in TRUE)


def test_few_rows_or_few_knobs_tell_nothing():
    frame = rows(2000, np.random.default_rng(6))
    pairs = frame[["k0", "s0", "k1", "k0", "s0", "k1", "k0", "s0", "k1", "s0"]]
    assert told_by(pairs) is None
    short = OneShotDBN(n_lags=1).fit({"a": [frame[:60]], "b": [frame[60:120]]})
    assert not short.findings_.of("knobs")
