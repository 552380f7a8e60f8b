"""Every form of data becomes the same sites."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feddbn.core.designs.recordings import Block, SiteData
from feddbn.data import Recording, Site, read_sites, summary
from feddbn.errors import DataError, FileError, ParameterError
from support.saying import refused

pytestmark = pytest.mark.promise


def rows(n: int = 6, d: int = 2, start: float = 0.0) -> np.ndarray:
    return start + np.arange(n * d, dtype=float).reshape(n, d)


def frame(n: int = 6, start: float = 0.0) -> pd.DataFrame:
    return pd.DataFrame(rows(n, 2, start), columns=["a", "b"])


def lengths(site: SiteData) -> list[list[int]]:
    return [[len(block.values) for block in recording.blocks()] for recording in site.recordings()]


def values(site: SiteData) -> np.ndarray:
    return np.concatenate([block.values for recording in site.recordings() for block in recording.blocks()])


def names(site: SiteData) -> list[str]:
    return [recording.name for recording in site.recordings()]


# ---- forms


def test_arrays_get_names_x0_x1() -> None:
    sites = read_sites({"A": rows(), "B": [rows(4), rows(3)]})
    assert sites["A"].variables == ("x0", "x1")
    assert lengths(sites["B"]) == [[4], [3]]
    assert names(sites["B"]) == ["recording-0", "recording-1"]


@pytest.mark.parametrize("data", [rows(), frame(), [rows(3), rows(3, start=6)]])
def test_bare_data_are_one_site(data: object) -> None:
    sites = read_sites(data)
    assert list(sites) == ["site-0"]
    np.testing.assert_array_equal(values(sites["site-0"]), rows())


def test_long_frame_gives_sites_and_recordings_in_order_of_appearance() -> None:
    long = pd.concat(
        [
            frame(3).assign(s="B", r=2, t=range(3)),
            frame(4).assign(s="A", r=1, t=range(4)),
            frame(2).assign(s="B", r=1, t=range(2)),
        ]
    )
    sites = read_sites(long, site="s", series="r", time="t")
    assert list(sites) == ["B", "A"]
    assert names(sites["B"]) == ["2", "1"]
    assert lengths(sites["B"]) == [[3], [2]]
    assert sites["A"].variables == ("a", "b")


def test_interleaved_recordings_in_a_frame_are_told_apart() -> None:
    long = pd.DataFrame({"r": list("uvuvuv"), "t": [0, 0, 1, 1, 2, 2], "a": np.arange(6.0)})
    site = read_sites(long, series="r", time="t")["site-0"]
    assert [b.values[:, 0].tolist() for r in site.recordings() for b in r.blocks()] == [[0, 2, 4], [1, 3, 5]]


def test_site_data_pass_through_and_are_aligned_by_name() -> None:
    block = Block(rows(3), labels=np.array([1, 2, 3]))
    ready = Site(("b", "a"), (Recording("r", (block,)),), 5)
    assert read_sites({"A": ready})["A"] is ready
    sites = read_sites({"A": frame(3), "B": ready})
    np.testing.assert_array_equal(values(sites["B"]), rows(3)[:, ::-1])
    assert names(sites["B"]) == ["r"]
    np.testing.assert_array_equal(values(read_sites({"B": ready}, variables=["a"])["B"]), rows(3)[:, 1:])
    with refused(DataError, "'B'", "'c'", "variables="):
        read_sites({"B": ready}, variables=["a", "c"])
    assert summary(sites).loc["B", "dropped_rows"] == 5


def test_integers_booleans_and_nullable_numbers_become_floats() -> None:
    table = pd.DataFrame(
        {"i": [1, 2, 3], "b": [True, False, True], "n": pd.array([1, None, 3], dtype="Int64")}
    )
    site = read_sites(table, missing="drop")["site-0"]
    assert values(site).tolist() == [[1, 1, 1], [3, 1, 3]]
    assert values(site).dtype == np.float64
    assert lengths(site) == [[1, 1]]


# ---- files


def test_directory_of_files_and_folders(tmp_path: Path) -> None:
    frame(3).to_csv(tmp_path / "A.csv", index=False)
    frame(4).to_csv(tmp_path / "B.tsv", index=False, sep="\t")
    frame(5).to_parquet(tmp_path / "C.parquet")
    (tmp_path / "D").mkdir()
    frame(2).to_csv(tmp_path / "D" / "mon.csv.gz", index=False)
    frame(2).to_parquet(tmp_path / "D" / "tue.parquet")
    (tmp_path / "truth.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    sites = read_sites(tmp_path)
    assert {name: lengths(site) for name, site in sites.items()} == {
        "A": [[3]],
        "B": [[4]],
        "C": [[5]],
        "D": [[2], [2]],
    }
    assert names(sites["D"]) == ["mon", "tue"]
    assert lengths(read_sites({"x": tmp_path / "D", "y": str(tmp_path / "A.csv")})["x"]) == [[2], [2]]
    assert lengths(read_sites({"x": [tmp_path / "A.csv", tmp_path / "B.tsv"]})["x"]) == [[3], [4]]


def test_one_file_is_one_site_or_a_long_table(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    pd.concat([frame(3).assign(s=1), frame(4).assign(s=2)]).to_csv(path, index=False)
    assert list(read_sites(str(path), site="s")) == ["1", "2"]
    assert list(read_sites(path, variables=["a"])) == ["all"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("none.csv", None),
        ("a.xlsx", b"x"),
        ("a.csv", b"a,b\n\xff\xfe,1\n"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path: Path, name: str, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with refused(FileError, name):
        read_sites(tmp_path / name)


def test_folders_without_files_with_two_for_a_site_or_with_a_saved_index_are_refused(tmp_path: Path) -> None:
    with refused(FileError, tmp_path):
        read_sites(tmp_path)
    with refused(DataError, "'E'"):
        read_sites({"E": tmp_path})
    with refused(ParameterError, "site='s'"):
        read_sites(tmp_path, site="s")
    frame().to_csv(tmp_path / "a.csv")
    with refused(DataError, "'a'", "index=False"):
        read_sites(tmp_path)
    frame().to_csv(tmp_path / "a.tsv", sep="\t")
    with refused(FileError, "'a'"):
        read_sites(tmp_path)


# ---- missing values and labels


def test_rows_with_missing_values_split_segments_and_are_counted() -> None:
    table = frame(8)
    table.loc[[0, 3], "a"] = np.nan
    table.loc[[3, 4], "b"] = np.nan
    site = read_sites({"A": table}, missing="drop")["A"]
    assert lengths(site) == [[2, 3]]
    assert site.n_dropped_rows == 3
    assert all(block.starts_segment for recording in site.recordings() for block in recording.blocks())


def test_labels_stay_with_their_rows_and_are_no_variable() -> None:
    table = frame(5).assign(phase=["on", "on", None, "off", "off"])
    site = read_sites({"A": table}, label="phase")["A"]
    blocks = [block for recording in site.recordings() for block in recording.blocks()]
    assert site.variables == ("a", "b")
    assert [block.labels.tolist() for block in blocks] == [["on", "on"], ["off", "off"]]
    assert site.n_dropped_rows == 1


def test_infinite_values_are_always_refused() -> None:
    table = frame(4)
    table.loc[2, "b"] = np.inf
    for missing in ("drop", "keep"):
        with refused(DataError, "site 'A'", "'b' at row 2", code="infinite"):
            read_sites({"A": table}, missing=missing)


def test_a_finite_value_too_large_to_add_up_is_kept() -> None:
    assert len(values(read_sites({"A": np.full((4, 2), 1e308)})["A"])) == 4


# ---- refusals


@pytest.mark.parametrize(
    ("data", "options", "names"),
    [
        ({"A": frame(), "B": frame().rename(columns={"b": "c"})}, {}, ("'B'", "'b'", "'c'", "'A'")),
        (
            {"A": frame(), "B": frame()[["a"]]},
            {"variables": ["a", "b"]},
            ("site 'B'", "'b'", "variables="),
        ),
        ({"A": [frame(), frame()[["a"]]]}, {}, ("'recording-1' of site 'A'", "'b'")),
        ({"A": frame()}, {"time": "when"}, ("'A'", "'when'", "time=", "'a', 'b'")),
        ({"A": pd.DataFrame(rows(), columns=["a", "a"])}, {}, ("'A'", "'a'")),
        (frame(3).assign(s=["u", None, "v"]), {"site": "s"}, ("'s'", "row 1")),
        ({"A": np.zeros(3)}, {}, ("'A'", "reshape(-1, 1)")),
        ({1: rows(), "1": rows()}, {}, ()),
    ],
)
def test_data_that_cannot_be_read_name_site_and_columns(data: object, options: dict, names: tuple) -> None:
    with refused(DataError, *names):
        read_sites(data, **options)
