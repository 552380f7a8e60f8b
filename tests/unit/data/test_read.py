"""Every form of data becomes the same sites."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feddbn.core.designs.recordings import Block, SiteData
from feddbn.data import ArrayRecording, MemorySite, read_sites, summary
from feddbn.errors import DataError, FileError, ParameterError


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


def test_variables_name_the_columns_of_an_array() -> None:
    assert read_sites({"A": rows()}, variables=["u", "v"])["A"].variables == ("u", "v")


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


def test_dict_values_may_be_long_frames_and_lists_of_them() -> None:
    table = frame(4).assign(r=["u", "u", "v", "v"], t=[0, 1, 0, 1])
    sites = read_sites({"A": table, "B": [table, table]}, series="r", time="t")
    assert names(sites["A"]) == ["u", "v"]
    assert names(sites["B"]) == ["recording-0/u", "recording-0/v", "recording-1/u", "recording-1/v"]


def test_site_data_pass_through_and_are_aligned_by_name() -> None:
    block = Block(rows(3), labels=np.array([1, 2, 3]))
    ready = MemorySite(("b", "a"), (ArrayRecording("r", (block,)),), 5)
    assert read_sites({"A": ready})["A"] is ready
    sites = read_sites({"A": frame(3), "B": ready})
    np.testing.assert_array_equal(values(sites["B"]), rows(3)[:, ::-1])
    assert names(sites["B"]) == ["r"]
    np.testing.assert_array_equal(values(read_sites({"B": ready}, variables=["a"])["B"]), rows(3)[:, 1:])
    with pytest.raises(DataError, match="site 'B' lacks column 'c', which variables= asks for"):
        read_sites({"B": ready}, variables=["a", "c"])
    assert summary(sites).loc["B", "dropped_rows"] == 5


def test_a_site_with_columns_in_another_order_is_aligned() -> None:
    sites = read_sites({"A": frame(), "B": frame()[["b", "a"]]})
    assert sites["B"].variables == ("a", "b")
    np.testing.assert_array_equal(values(sites["B"]), rows())


def test_chosen_variables_leave_the_rest_out() -> None:
    sites = read_sites({"A": frame().assign(c=1.0, note="x"), "B": frame()}, variables=["b", "a"])
    assert sites["A"].variables == ("b", "a")
    np.testing.assert_array_equal(values(sites["A"]), rows()[:, ::-1])


def test_integers_booleans_and_nullable_numbers_become_floats() -> None:
    table = pd.DataFrame(
        {"i": [1, 2, 3], "b": [True, False, True], "n": pd.array([1, None, 3], dtype="Int64")}
    )
    site = read_sites(table)["site-0"]
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


def test_file_errors_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"file '.*none\.csv' does not exist; check the path\."):
        read_sites(tmp_path / "none.csv")
    with pytest.raises(FileError, match=r"directory '.*' has no \.csv, \.tsv or \.parquet file"):
        read_sites(tmp_path)
    (tmp_path / "a.xlsx").write_text("x")
    with pytest.raises(FileError, match=r"a\.xlsx' is not of a kind this package reads; use \.csv"):
        read_sites(tmp_path / "a.xlsx")
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(FileError, match=r"a\.csv' cannot be read as CSV"):
        read_sites(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(FileError, match=r"a\.csv' cannot be read as CSV"):
        read_sites(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("a,b\n1,2\n1,2,3,4\n")
    with pytest.raises(FileError, match=r"a\.csv' cannot be read as CSV"):
        read_sites(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("a;b\n1;2\n")
    with pytest.raises(FileError, match=r"a\.csv' seems to separate columns by ';'; save it with commas"):
        read_sites(tmp_path / "a.csv")
    (tmp_path / "a.tsv").write_text("a\tb\n1\t2\n")
    with pytest.raises(FileError, match="more than one file or folder for site 'a'; rename one"):
        read_sites(tmp_path)
    (tmp_path / "void").mkdir()
    with pytest.raises(FileError, match=r"site 'E' has no .csv, .tsv or .parquet file in its directory"):
        read_sites({"E": tmp_path / "void"})
    with pytest.raises(
        ParameterError, match=r"site='s' goes with one table of all sites, but '.*' is a directory"
    ):
        read_sites(tmp_path, site="s")
    frame().to_csv(tmp_path / "b.csv")
    with pytest.raises(DataError, match="site 'b' has a column without a name, perhaps a saved row index"):
        read_sites(tmp_path / "b.csv")


# ---- missing values and labels


def test_rows_with_missing_values_split_segments_and_are_counted() -> None:
    table = frame(8)
    table.loc[[0, 3], "a"] = np.nan
    table.loc[[3, 4], "b"] = np.nan
    site = read_sites({"A": table})["A"]
    assert lengths(site) == [[2, 3]]
    assert site.n_dropped_rows == 3
    assert all(block.starts_segment for recording in site.recordings() for block in recording.blocks())
    with pytest.raises(
        DataError, match=r"recording 'recording-0' of site 'A' has a missing value in column 'a' at row 0 "
    ):
        read_sites({"A": table}, missing="error")


def test_labels_stay_with_their_rows_and_are_no_variable() -> None:
    table = frame(5).assign(phase=["on", "on", None, "off", "off"])
    site = read_sites({"A": table}, label="phase")["A"]
    blocks = [block for recording in site.recordings() for block in recording.blocks()]
    assert site.variables == ("a", "b")
    assert [block.labels.tolist() for block in blocks] == [["on", "on"], ["off", "off"]]
    assert site.n_dropped_rows == 1
    with pytest.raises(DataError, match="recording 'recording-0' of site 'A' has a missing label at row 2"):
        read_sites({"A": table}, label="phase", missing="error")


def test_infinite_values_are_always_refused() -> None:
    table = frame(4)
    table.loc[2, "b"] = np.inf
    with pytest.raises(
        DataError,
        match=r"recording 'recording-0' of site 'A' has an infinite value in column 'b' at row 2 \(counted "
        r"from 0\)",
    ):
        read_sites({"A": table})


def test_a_finite_value_too_large_to_add_up_is_kept() -> None:
    assert len(values(read_sites({"A": np.full((4, 2), 1e308)})["A"])) == 4


# ---- sentences about columns and arguments


def test_wrong_columns_are_named() -> None:
    with pytest.raises(
        DataError, match="site 'B' lacks column 'b' and has the extra column 'c' compared with site 'A'"
    ):
        read_sites({"A": frame(), "B": frame().rename(columns={"b": "c"})})
    with pytest.raises(
        DataError, match="site 'B' lacks column 'b', which variables= asks for; its columns are 'a'"
    ):
        read_sites({"A": frame(), "B": frame()[["a"]]}, variables=["a", "b"])
    with pytest.raises(
        DataError,
        match="recording 'recording-1' of site 'A' lacks column 'b' compared with recording 'recording-0'",
    ):
        read_sites({"A": [frame(), frame()[["a"]]]})
    with pytest.raises(DataError, match="site 'B' has the extra column 'x2' compared with site 'A'"):
        read_sites({"A": rows(), "B": rows(4, 3)})
    with pytest.raises(
        DataError, match="site 'A' has no column 'when', which time= asks for; its columns are 'a', 'b'"
    ):
        read_sites({"A": frame()}, time="when")
    with pytest.raises(DataError, match="data has no column 'place', which site= asks for"):
        read_sites(frame(), site="place")
    with pytest.raises(
        DataError, match="site 'A' has more than one column 'a'; give every column its own name"
    ):
        read_sites({"A": pd.DataFrame(rows(), columns=["a", "a"])})
    with pytest.raises(
        DataError, match=r"has column 'b', which is not numeric; convert it with pandas.to_numeric"
    ):
        read_sites({"A": frame().astype({"b": str})})
    with pytest.raises(DataError, match="has column 'b', which is not numeric"):
        read_sites({"A": frame().astype({"b": complex})})
    with pytest.raises(DataError, match="site 'A' has no column left for variables; its columns are 't'"):
        read_sites({"A": pd.DataFrame({"t": [0, 1]})}, time="t")
    with pytest.raises(DataError, match=r"data has no value in column 's' \(site=\) at row 1"):
        read_sites(frame(3).assign(s=["u", None, "v"]), site="s")


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(DataError, match="data has no sites; give at least one"):
        read_sites({})
    with pytest.raises(DataError, match="site 'A' is an empty list; give at least one recording"):
        read_sites({"A": []})
    with pytest.raises(DataError, match="site 'A' is of type int; give a DataFrame"):
        read_sites({"A": 3})
    with pytest.raises(
        DataError, match=r"site 'A' is an array with 1 dimensions instead of 2.*reshape\(-1, 1\)"
    ):
        read_sites({"A": np.zeros(3)})
    with pytest.raises(
        DataError, match=r"site 'A' is an array with 3 dimensions instead of 2.*list\(array\)"
    ):
        read_sites({"A": np.zeros((2, 3, 4))})
    with pytest.raises(
        DataError, match="site 'A' is an array without column names, so time='t' cannot be found"
    ):
        read_sites({"A": rows()}, time="t")
    with pytest.raises(DataError, match="data has two sites of the same name"):
        read_sites({1: rows(), "1": rows()})
    with pytest.raises(ParameterError, match="missing='fill'"):
        read_sites({"A": rows()}, missing="fill")
    with pytest.raises(ParameterError, match="variables='a' must be a list of column names"):
        read_sites({"A": frame()}, variables="a")
    with pytest.raises(ParameterError, match="must list at least one column, each of them once"):
        read_sites({"A": frame()}, variables=["a", "a"])
    with pytest.raises(
        ParameterError, match="variables= contains 't', which site=, series=, time= or label= uses already"
    ):
        read_sites({"A": frame()}, time="t", variables=["a", "t"])
    with pytest.raises(ParameterError, match="must name different columns, not 't', 't'"):
        read_sites({"A": frame()}, time="t", series="t")
    with pytest.raises(ParameterError, match="site='s' goes with one table of all sites, but data is a dict"):
        read_sites({"A": frame()}, site="s")
    with pytest.raises(ParameterError, match="site='s' needs one DataFrame or file, not ndarray"):
        read_sites(rows(), site="s")
    with pytest.raises(DataError, match="site 'site-0' is of type NoneType"):
        read_sites(None)
