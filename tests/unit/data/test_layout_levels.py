from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feddbn.core.kinds import Kind
from feddbn.data import read_sites
from feddbn.data.cells import positions
from feddbn.errors import DataError
from support.files import in_files, in_memory
from support.saying import refused

WARD = Kind("categorical", ("north", "south", "west"))
KINDS = {"ward": ["north", "south"], "pain": {"ordinal": ["None", "some", "bad"]}, "calls": "count"}


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "ward": ["north", "south", None, "north"],
            "pain": ["None", "some", "bad", "None"],
            "calls": [0, 1, 2, 3],
            "pulse": [0.5, np.nan, 1.0, 2.0],
        }
    )


EXPECTED = [[0, 0, 0, 0.5], [1, 1, 1, np.nan], [np.nan, 2, 2, 1], [0, 0, 3, 2]]


def values(data: object, **options: object) -> np.ndarray:
    (site,) = read_sites(data, missing="keep", kinds=KINDS, **options).values()
    (recording,) = site.recordings()
    return np.concatenate([block.values for block in recording.blocks()])


@pytest.mark.parametrize("dtype", [object, "category", "string"])
def test_frames_of_every_type_of_text_are_read_alike(dtype):
    given = frame().astype({"ward": dtype, "pain": dtype})
    np.testing.assert_array_equal(values({"a": given}), EXPECTED)


@pytest.mark.parametrize("kept", [in_memory, in_files])
def test_a_csv_file_has_its_words_also_those_that_stand_for_empty_cells_elsewhere(tmp_path, kept):
    frame().assign(note="NA").to_csv(tmp_path / "a.csv", index=False)
    names = ["ward", "pain", "calls", "pulse"]
    with kept():
        np.testing.assert_array_equal(values(tmp_path, variables=names), EXPECTED)
        # A column that does not declare such a word keeps it empty.
        read = read_sites(tmp_path, kinds={**KINDS, "note": ["yes", "no"]})
        (block,) = next(iter(read["a"].recordings())).blocks()
    assert np.isnan(block.values[:, 4]).all()


@pytest.mark.parametrize("kept", [in_memory, in_files])
def test_a_parquet_file_is_read_as_its_frame(tmp_path, kept):
    pytest.importorskip("pyarrow")
    frame().astype({"ward": "category"}).to_parquet(tmp_path / "a.parquet")
    with kept():
        np.testing.assert_array_equal(values(tmp_path), EXPECTED)


@pytest.mark.parametrize(
    ("cells", "kind", "expected"),
    [
        ([True, False, None], Kind("binary"), [1, 0, np.nan]),
        (["TRUE", "false", " "], Kind("binary", ("no", "yes")), [1, 0, np.nan]),
        (["True", "False"], Kind("binary", ("True", "False")), [0, 1]),
        ([0, 2, 1], WARD, [0, 2, 1]),
        (["2", " north ", "1.0"], WARD, [2, 0, 1]),
        ([7.0, 1.0, np.nan], Kind("categorical", ("1", "2", "7")), [2, 0, np.nan]),
        (["01", "2"], Kind("ordinal", ("1", "2")), [0, 1]),
    ],
)
def test_names_come_first_then_truth_values_and_positions(cells, kind, expected):
    found, strange = positions(pd.Series(cells, name="x"), kind)
    np.testing.assert_array_equal(found, expected)
    assert strange is None


@pytest.mark.parametrize(
    ("cells", "kind", "strange"),
    [
        (["north", "east", "up"], WARD, "east"),
        ([0, 3], WARD, "3"),
        ([0.5], WARD, "0.5"),
        (["yes"], Kind("binary"), "yes"),
        # A position is no name where names are numbers.
        ([0, 1], Kind("categorical", ("1", "2", "7")), "0"),
    ],
)
def test_a_cell_that_is_no_level_is_named_with_the_levels(cells, kind, strange):
    column = pd.Series(cells, name="x")
    with refused(DataError, "'here'", f"'{strange}'", "'x'", *map(repr, kind.levels)):
        read_sites({"here": column.to_frame()}, kinds={"x": kind})
    found, first = positions(column, kind)
    assert first == strange
    assert np.isnan(found[cells.index(type(cells[0])(strange))])


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [("count", -1.0), ("count", 1.5), ("positive", 0.0), ("binary", 2.0)],
)
def test_a_number_that_a_kind_cannot_have_is_refused_with_site_and_column(kind, wrong):
    data = {"a": pd.DataFrame({"x": [1.0, wrong, 1.0], "y": [0.1, 0.2, 0.3]})}
    with refused(DataError, "'a'", f"{wrong:g}", "'x'"):
        read_sites(data, kinds={"x": kind})


def test_declared_numbers_are_the_numbers_that_are_read_without(tmp_path: Path):
    data = {"a": pd.DataFrame({"x": [0, 1, 1, 0], "n": [0, 3, 1, 2], "y": [0.1, 0.2, np.nan, 0.3]})}
    declared = read_sites(data, missing="keep", kinds={"x": "binary", "n": "count", "y": "positive"})["a"]
    plain = read_sites(data, missing="keep")["a"]
    for one, other in zip(declared.recordings(), plain.recordings(), strict=True):
        for a, b in zip(one.blocks(), other.blocks(), strict=True):
            np.testing.assert_array_equal(a.values, b.values)
