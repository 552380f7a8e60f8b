"""Sums by blocks of time: a server cannot cut rows so that few are alone, in one way or by two ways, or label them itself."""

import numpy as np
import pandas as pd
import pytest

from feddbn.core.designs.design import public_units
from feddbn.errors import SiteRefused
from support.consortium import Consortium, Liar, by_rule, plain, raw
from support.saying import refused

pytestmark = pytest.mark.promise

D, Q = 2, 4
LISTED = by_rule("gram.blocks", "residuals.blocks")


def in_order(place, n_last=400, policy=LISTED):
    """Sites whose rows are cut by their place."""
    data = plain(rows=400)
    data["s0"] = [data["s0"][0][:n_last]]
    return Consortium(place, data, policy)


def changing(sites, run="run", **more):
    return Liar(sites, sites.study("changing", more), run)


def blocks(sites, block_rows=32, n_blocks=12, arrays=None, **more):
    about = {"n_lags": 1, "variables": sites.variables, "block_rows": block_rows, "n_blocks": n_blocks}
    return raw("gram.blocks", {**about, **more}, arrays)


def counts(answer, n_blocks=12):
    """How many rows each block has."""
    return answer.value.reshape(n_blocks, -1)[:, 0]


def test_an_honest_question_is_answered_and_no_other_blocks_after_it(tmp_path):
    sites = in_order(tmp_path)
    liar = changing(sites)
    assert liar.sum(blocks(sites)).value.size == 12 * (1 + Q + Q * (Q + 1) // 2)
    # Cut, treated or shifted in another way they are not told again.
    shifted = {"arrays": {"origin": np.ones(Q)}}
    for other in ({"block_rows": 64}, {"n_blocks": 11}, {"center": "recording"}, shifted):
        liar.refused(blocks(sites, **other), "changed-in-run", "blocks")
    liar.sum(blocks(sites))
    # Lengths that differ from another study's by a row are none, and the length is the study's.
    changing(sites, "odd").malformed(blocks(sites, block_rows=33), "'block_rows' is 33")
    changing(sites, "longer", blocks=64).refused(blocks(sites), "not-in-study", "'block_rows' is 32")


@pytest.mark.parametrize(
    ("asked", "n_last", "code", "numbers"),
    [
        ({"block_rows": 8, "n_blocks": 50}, 400, "few-rows", ("7 rows",)),
        # Three rows for each of four columns; the first row has none before it.
        ({"block_rows": 16, "n_blocks": 24, "n_lags": 5}, 400, "few-rows-per-parameter", ("11 rows", 12)),
        # The first rows alone, and all others.
        ({"block_rows": 4, "n_blocks": 2}, 400, "few-rows", ("3 rows",)),
        # All but the last rows, and these alone.
        ({"block_rows": 256, "n_blocks": 2}, 260, "few-rows", ("4 rows",)),
        ({}, 325, "few-rows", ("5 rows",)),
    ],
)
def test_a_block_of_few_rows_is_not_told(tmp_path, asked, n_last, code, numbers):
    sites = in_order(tmp_path, n_last)
    changing(sites, n_lags=asked.get("n_lags", 1)).refused(blocks(sites, **asked), code, *numbers)


def test_a_site_without_rows_in_late_blocks_answers(tmp_path):
    sites = in_order(tmp_path, 320)
    found = counts(changing(sites).sum(blocks(sites)))
    np.testing.assert_allclose(found, [93, *[96] * 9, 64, 96], atol=1e-3)


def test_only_a_study_of_changes_asks_for_blocks_and_only_where_an_owner_lists_them(tmp_path):
    sites = in_order(tmp_path / "a")
    Liar(sites, sites.study()).refused(blocks(sites), "task-not-in-study", "gram.blocks")
    with refused(SiteRefused, code="tasks-not-allowed"):
        changing(in_order(tmp_path / "b", policy=by_rule()))


# Cuts by the calendar and by labels ---------------------------------------------------------------------------------------
MONTHS = {"blocks": "month from 2024-01"}
N = 270


def calendar(place, label="@time", begins="2024-01-01", empty=()):
    """Three rows a day from a Monday on: weeks of 21 rows, and three days at the end of January."""
    data = plain(rows=N)
    data["s0"][0][list(empty), 1] = np.nan
    sites = Consortium(place, data, LISTED)
    for name in sites.names:
        path = place / name / "data" / "r000.csv"
        frame = pd.read_csv(path)
        frame["day"] = pd.date_range(begins, periods=N, freq="8h").astype(str)
        frame["phase"] = np.arange(N) // 90
        frame.to_csv(path, index=False, float_format="%.17g")
        settings = place / name / "feddbn_site.toml"
        ours = ("time", "label", "variables")
        lines = [line for line in settings.read_text().splitlines() if not line.startswith(ours)]
        # Keys before the first table.
        settings.write_text("\n".join([f'time = "day"\nlabel = "{label}"\nvariables = ["x0", "x1"]', *lines]))
    return sites


def months(sites, unit="M", first=648, n_blocks=12, **more):
    return blocks(sites, 0, n_blocks, calendar=unit, first_block=first, **more)


def test_months_are_told_and_weeks_or_rows_by_their_place_beside_them_are_not(tmp_path):
    sites = calendar(tmp_path / "a")
    found = counts(changing(sites, **MONTHS).sum(months(sites)))
    np.testing.assert_allclose(found[:4], [3 * 92, 3 * 87, 3 * 90, 0], atol=1e-3)
    # The last three days of January are nine rows.
    weeks = changing(sites, "weeks", blocks="week from 2024-01-01")
    weeks.refused(months(sites, "W", 2818, 60), "blocks-show-rows")
    # The same months are told again; with another first one, what differs is whole months.
    changing(sites, "again", **MONTHS).sum(months(sites))
    changing(sites, "later", blocks="month from 2024-02").sum(months(sites, first=649))
    sites = calendar(tmp_path / "b")
    changing(sites, blocks=32).sum(blocks(sites, n_blocks=8))
    changing(sites, "months", **MONTHS).refused(months(sites), "blocks-show-rows")


def test_a_month_of_few_rows_is_not_told_wherever_the_first_block_begins(tmp_path):
    sites = calendar(tmp_path, begins="2024-01-30")
    changing(sites, blocks="month from 2024-02").refused(months(sites, first=649), "few-rows", "5 rows")


def test_blocks_are_those_of_the_study(tmp_path):
    sites = calendar(tmp_path)
    liar = changing(sites, **MONTHS)
    liar.refused(months(sites, first=649), "not-in-study", "'first_block' is 649")
    for other in (months(sites, "D"), blocks(sites)):
        liar.refused(other, "other-blocks")


def test_labels_are_those_that_the_study_names(tmp_path):
    sites = calendar(tmp_path / "a", "phase")
    found = counts(changing(sites, blocks="column:phase").sum(months(sites, "", 0, 60)), 60)
    np.testing.assert_allclose(found[:4], [267, 270, 270, 0], atol=1e-3)
    unlabelled = calendar(tmp_path / "b")
    for place, given, name in (
        (sites, MONTHS["blocks"], "label = '"),
        (sites, "column:ward", "ward"),
        (unlabelled, "month", "month"),
    ):
        with refused(SiteRefused, name):
            changing(place, "other", blocks=given)


def test_two_studies_of_other_variables_do_not_show_one_row_of_a_block(tmp_path):
    # One empty cell in each of ten blocks: all rows of both studies differ by ten rows, those of a block by one.
    sites = calendar(tmp_path, empty=range(5, 250, 25))
    changing(sites, blocks=32).sum(blocks(sites, n_blocks=8))
    one = Liar(sites, sites.study("changing", {"blocks": 32}, variables=("x0",)), "one")
    one.refused(blocks(sites, n_blocks=8, variables=("x0",)), "blocks-show-rows")


def test_residuals_of_blocks_are_asked_for_once_and_have_no_row_in_view(tmp_path):
    sites = calendar(tmp_path)

    def checks(cuts=(2,), slope=1.0, offset=0.0):
        coefficients = np.zeros((2, Q, D))
        coefficients[0, :D], coefficients[1, :D] = np.eye(D), slope * np.eye(D)
        arrays = {
            "coefficients": np.concatenate(coefficients),
            "offset": [0.0, 0.0, offset, 0.0],
            "units": np.stack(public_units(np.zeros(D), np.ones(D))),
        }
        asked = months(sites, cuts=cuts)
        return raw("residuals.blocks", asked.question.params, arrays)

    liar = changing(sites, **MONTHS)
    liar.sum(checks())
    liar.refused(checks((1,)), "changed-in-run", "residuals")
    changing(sites, "steep", **MONTHS).refused(checks(slope=11.0), "steep-residuals")
    changing(sites, "far", **MONTHS).refused(checks(offset=6.0), "far-residuals")
