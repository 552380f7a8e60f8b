"""Sums of one run that differ by few rows: with and without far cells, with one model of rows and another."""

import numpy as np
import pytest

from support.rig import Rig, Server, raw

pytestmark = pytest.mark.usefixtures("light")


def make_rig(place, n_empty=0, n_far=0, k=3):
    rng = np.random.default_rng(3)
    data = {f"s{i}": [rng.normal(size=(150, 2))] for i in range(k)}
    victim = data["s1"][0]
    victim[20 : 20 + 4 * n_far : 4, 0] += 100.0
    victim[21 : 21 + 3 * n_empty : 3, 0] = np.nan
    return Rig(place, data)


def moments(rig, arrays=None, n_lags=0, **more):
    return raw("gram.rows", {"n_lags": n_lags, "variables": rig.variables, **more}, arrays)


def server_of(rig, **more):
    return Server(rig, rig.study(parameters={"n_lags": 0, **more}))


def test_far_cells_are_not_switched_on_and_off(tmp_path):
    rig = make_rig(tmp_path, n_far=1)
    server = server_of(rig)
    # Without bounds one far cell would be refused for itself (`dominance`).
    without_them = server.sum(moments(rig, robust="site")).value
    server.refused(moments(rig), "changed-in-run", "cells")
    # Neither a second greeting nor a restart makes a site forget, and one lag more is the same run.
    server.again()
    server.refused(moments(rig), "changed-in-run", "cells")
    for name in rig.names:
        rig.restart(name)
    server.again()
    server.refused(moments(rig, n_lags=1), "changed-in-run", "cells")
    # The same question gets the same answer.
    np.testing.assert_array_equal(server.sum(moments(rig, robust="site")).value, without_them)


def model(scale):
    """Means 0, and variances and covariances by which empty cells are filled in."""
    return {"row_model": np.vstack([np.zeros(2), np.array([[scale**2, 0.9 * scale], [0.9 * scale, 1.0]])])}


def test_few_rows_with_empty_cells_are_left_out_whatever_the_model(tmp_path):
    """Two models differ by what they make of rows with empty cells: of one row that is its other cell, squared."""
    rig = make_rig(tmp_path, n_empty=1)
    server = server_of(rig)
    small, large = (server.sum(moments(rig, model(scale))).value for scale in (1.0, 1e6))
    np.testing.assert_array_equal(small, large)
    complete = [rows[~np.isnan(rows).any(axis=1)] for (rows,) in rig.data.values()]
    assert small[0] == sum(map(len, complete)) == 449
    np.testing.assert_allclose(small[1:3], np.concatenate(complete).sum(axis=0), rtol=1e-9)


def test_many_rows_with_empty_cells_are_filled_in(tmp_path):
    rig = make_rig(tmp_path, n_empty=12)
    server = server_of(rig)
    assert server.sum(moments(rig, model(1.0))).value[0] == 450


def test_the_model_of_rows_changes_a_few_times_only(tmp_path):
    rig = make_rig(tmp_path, n_empty=12)
    server = server_of(rig)
    for k in range(8):
        server.sum(moments(rig, model(1.0 + k)))
    server.refused(moments(rig, model(20.0)), "changed-in-run", "model")


def test_sums_of_few_rows_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    rows = np.cumsum(rng.standard_cauchy(size=(40, 2)), axis=0)
    rig = Rig(tmp_path, {f"s{i}": [rows[: 9 + 20 * (i > 0)]] for i in range(3)})
    server_of(rig).refused(moments(rig), "few-rows", "9 rows", 10)


def test_sites_are_compared_with_one_pair_of_sums_only(tmp_path):
    rig = make_rig(tmp_path, k=5)
    for name in rig.names:
        path = rig.place / name / "policy.toml"
        path.write_text(path.read_text().replace('"gram.pairs"', '"gram.pairs", "agree"'))
        rig.restart(name)
    server = server_of(rig, **{"prepare.on_disagreement": "exclude"})
    survey = {"n_lags": 0, "variables": rig.variables, "profiles": "whole"}
    answer = server.sum(raw("survey.first", survey)).value
    length = 3
    asked = {"n_lags": 0, "variables": rig.variables, "n_sites": 5.0}
    sums = {"total": answer[-2 * length : -length], "squares": answer[-length:]}
    assert server.sum(raw("agree", asked, sums)).contributors == rig.names
    made_up = {**sums, "total": sums["total"] + 100.0}
    server.refused(raw("agree", asked, made_up), "changed-in-run", "compared")
