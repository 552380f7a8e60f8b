"""Two ways to cut time do not show a few rows, labels are those of the study, residuals of blocks have no row in view."""

import numpy as np
import pandas as pd
import pytest

from feddbn.core.designs.design import public_units
from feddbn.errors import SiteRefused
from support.rig import Rig, Server, listing, raw
from support.saying import refused

pytestmark = pytest.mark.usefixtures("light")

D, N, Q = 2, 270, 4
MONTHS = {"blocks": "month from 2024-01"}


def make_rig(place, label="@time", begins="2024-01-01", empty=()):
    """Three rows a day from a Monday on: weeks of 21 rows, and three days at the end of January."""
    rng = np.random.default_rng(0)
    data = {f"s{k}": [rng.normal(size=(N, D))] for k in range(3)}
    for row in empty:
        data["s0"][0][row, 1] = np.nan
    rig = Rig(place, data, listing("gram.blocks", "residuals.blocks"))
    for name in rig.names:
        path = place / name / "data" / "r000.csv"
        frame = pd.read_csv(path)
        frame["day"] = pd.date_range(begins, periods=N, freq="8h").astype(str)
        frame["phase"] = np.arange(N) // 90
        frame.to_csv(path, index=False, float_format="%.17g")
        settings = place / name / "feddbn_site.toml"
        lines = [
            line
            for line in settings.read_text().splitlines()
            if not line.startswith(("time", "label", "variables"))
        ]
        # Keys before the first table.
        settings.write_text("\n".join([f'time = "day"\nlabel = "{label}"\nvariables = ["x0", "x1"]', *lines]))
        rig.restart(name)
    return rig


def blocks(rig, unit="M", first=648, n_blocks=12, block_rows=0, name="gram.blocks", arrays=None, **more):
    params = {"n_lags": 1, "variables": rig.variables, "block_rows": block_rows, "n_blocks": n_blocks, **more}
    return raw(name, {**params, "calendar": unit, "first_block": first}, arrays)


def test_months_are_told_and_weeks_after_them_are_not(tmp_path):
    rig = make_rig(tmp_path)
    counts = Server(rig, rig.study("changing", MONTHS)).sum(blocks(rig)).value.reshape(12, -1)[:, 0]
    np.testing.assert_allclose(counts[:4], [3 * 92, 3 * 87, 3 * 90, 0], atol=1e-3)
    # The last three days of January are nine rows.
    weeks = rig.study("changing", {"blocks": "week from 2024-01-01"})
    task = blocks(rig, "W", 2818, 60)
    Server(rig, weeks, "weeks").refused(task, "blocks-show-rows")
    # The same months are told again; with another first one, what differs is whole months.
    Server(rig, rig.study("changing", MONTHS), "again").sum(blocks(rig))
    later = rig.study("changing", {"blocks": "month from 2024-02"})
    Server(rig, later, "later").sum(blocks(rig, first=649))


def test_rows_by_their_place_do_not_fit_into_months(tmp_path):
    rig = make_rig(tmp_path)
    Server(rig, rig.study("changing", {"blocks": 32})).sum(blocks(rig, "", 0, 8, 32))
    Server(rig, rig.study("changing", MONTHS), "months").refused(blocks(rig), "blocks-show-rows")


def test_a_month_of_few_rows_is_not_told_wherever_the_first_block_begins(tmp_path):
    rig = make_rig(tmp_path, begins="2024-01-30")
    server = Server(rig, rig.study("changing", {"blocks": "month from 2024-02"}))
    server.refused(blocks(rig, first=649), "few-rows", "5 rows")


def test_blocks_are_those_of_the_study(tmp_path):
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("changing", MONTHS))
    server.refused(blocks(rig, first=649), "not-in-study", "'first_block' is 649")
    for asked in ({"unit": "D"}, {"unit": "", "first": 0, "block_rows": 32}):
        server.refused(blocks(rig, **asked), "other-blocks")


def test_labels_are_those_that_the_study_names(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    rig = make_rig(tmp_path / "a", "phase")
    by_phase = rig.study("changing", {"blocks": "column:phase"})
    counts = Server(rig, by_phase).sum(blocks(rig, "", 0, 60)).value.reshape(60, -1)[:, 0]
    np.testing.assert_allclose(counts[:4], [267, 270, 270, 0], atol=1e-3)
    with refused(SiteRefused, "label = '"):
        Server(rig, rig.study("changing", MONTHS), "months")
    with refused(SiteRefused, "ward"):
        Server(rig, rig.study("changing", {"blocks": "column:ward"}), "ward")
    rig = make_rig(tmp_path / "b")
    with refused(SiteRefused, "month"):
        Server(rig, rig.study("changing", {"blocks": "month"}))


def test_two_studies_of_other_variables_do_not_show_one_row_of_a_block(tmp_path):
    # One empty cell in each of ten blocks: all rows of both studies differ by ten rows, those of a block by one.
    rig = make_rig(tmp_path, empty=range(5, 250, 25))
    Server(rig, rig.study("changing", {"blocks": 32})).sum(blocks(rig, "", 0, 8, 32))
    one = rig.study("changing", {"blocks": 32}, variables=("x0",))
    task = raw("gram.blocks", {"n_lags": 1, "variables": ("x0",), "block_rows": 32, "n_blocks": 8}, {})
    Server(rig, one, "one").refused(task, "blocks-show-rows")


def checks(rig, cuts=(2,), coefficients=None, offsets=None):
    units = np.stack(public_units(np.zeros(D), np.ones(D)))
    full = np.zeros((len(cuts) + 1, Q, D))
    full[:, :D] = np.eye(D)
    arrays = {
        "coefficients": np.concatenate(full if coefficients is None else coefficients),
        "offset": np.ravel(np.zeros((len(cuts) + 1, D)) if offsets is None else offsets),
        "units": units,
    }
    return blocks(rig, name="residuals.blocks", arrays=arrays, cuts=cuts)


def test_residuals_of_blocks_are_asked_for_once_and_have_no_row_in_view(tmp_path):
    rig = make_rig(tmp_path)
    server = Server(rig, rig.study("changing", MONTHS))
    server.sum(checks(rig))
    server.refused(checks(rig, (1,)), "changed-in-run", "residuals")
    steep = np.zeros((2, Q, D))
    steep[1, :D] = 11.0 * np.eye(D)
    far = np.array([[0.0, 0.0], [6.0, 0.0]])
    for run, given in {"steep": {"coefficients": steep}, "far": {"offsets": far}}.items():
        server = Server(rig, rig.study("changing", MONTHS), run)
        server.refused(checks(rig, **given), f"{run}-residuals")
