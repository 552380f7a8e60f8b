"""Several modules: a site that does not record a variable takes part with an empty column."""

import numpy as np
import pandas as pd
import pytest

import feddbn
from feddbn.errors import DataError

NAMES = list("abcd")


def sites():
    rng = np.random.default_rng(41)
    found = {}
    for k in range(4):
        x = np.zeros((500, 4))
        noise = rng.normal(size=x.shape)
        for t in range(1, 500):
            x[t] = 0.4 * x[t - 1] + noise[t]
            x[t, 1] += 0.8 * x[t, 0]
            x[t, 2] -= 0.7 * x[t, 1]
            x[t, 3] += 0.6 * x[t - 1, 2]
        found[f"site-{k}"] = [pd.DataFrame(x, columns=NAMES)]
    return found


def edges(model):
    return {(e.source, e.target, e.lag) for e in model.dbn_.edges().itertuples()}


@pytest.mark.parametrize("method", [feddbn.OneShotDBN, feddbn.FDBNL])
def test_an_empty_column_takes_part_with_what_else_the_site_has(method):
    data, less = sites(), sites()
    less["site-1"] = [one.assign(c=np.nan) for one in less["site-1"]]
    whole, found = method(n_lags=1).fit(data), method(n_lags=1).fit(less)
    assert edges(found) == edges(whole) >= {("a", "b", 0), ("b", "c", 0), ("c", "d", 1)}
    (told,) = found.findings_.of("empty-column")
    assert told.about == ("c",)
    np.testing.assert_allclose(found.W_, whole.W_, atol=0.1)


def test_a_column_that_is_not_there_is_refused_with_both_ways_out():
    data = sites()
    data["site-1"] = [one.drop(columns="c") for one in data["site-1"]]
    with pytest.raises(DataError) as refused:
        feddbn.OneShotDBN().fit(data)
    assert all(word in str(refused.value) for word in ("'site-1'", "'c'", "variables=", "empty column"))
