import json

import pytest

from feddbn.errors import StateError
from feddbn.experiments.runner import ROWS_FILE, RowStore, read_rows
from support.saying import refused

ROWS = [{"cell": "a", "x": 1.5}, {"cell": "b", "x": [1, 2]}, {"cell": "c", "x": "naïve"}]


def test_rows_come_back_as_written(tmp_path):
    with RowStore(tmp_path) as store:
        for row in ROWS:
            store.append(row)
    assert list(read_rows(tmp_path).values()) == ROWS
    with RowStore(tmp_path) as store:
        assert "a" in store
        assert "z" not in store
        assert len(store) == 3


def test_a_file_cut_at_any_byte_keeps_every_whole_row_and_goes_on(tmp_path):
    with RowStore(tmp_path / "whole") as store:
        for row in ROWS:
            store.append(row)
    content = (tmp_path / "whole" / ROWS_FILE).read_bytes()
    for n in range(len(content) + 1):
        folder = tmp_path / str(n)
        folder.mkdir()
        (folder / ROWS_FILE).write_bytes(content[:n])
        n_whole = content[:n].count(b"\n")
        with RowStore(folder) as store:
            assert list(store) == ROWS[:n_whole]
            for row in ROWS[n_whole:]:
                store.append(row)
        assert (folder / ROWS_FILE).read_bytes() == content


def test_a_cell_is_recorded_once(tmp_path):
    with RowStore(tmp_path) as store:
        store.append(ROWS[0])
        with refused(StateError, "cell a", code="two-rows"):
            store.append(ROWS[0])
    assert len(read_rows(tmp_path)) == 1


def test_a_second_writer_is_refused_and_a_reader_is_not(tmp_path):
    with RowStore(tmp_path) as store:
        store.append(ROWS[0])
        with refused(StateError, code="two-writers"), RowStore(tmp_path):
            pass
        assert len(read_rows(tmp_path)) == 1
    with RowStore(tmp_path) as store:
        assert len(store) == 1


def test_a_damaged_line_is_named(tmp_path):
    (tmp_path / ROWS_FILE).write_text(json.dumps(ROWS[0]) + "\n{broken\n")
    with refused(StateError, "line 2", code="no-row"):
        read_rows(tmp_path)


def test_a_closed_store_refuses_rows(tmp_path):
    with refused(StateError, code="not-open"):
        RowStore(tmp_path).append(ROWS[0])


def test_nan_never_enters_a_row(tmp_path):
    with RowStore(tmp_path) as store, pytest.raises(ValueError, match="JSON"):
        store.append({"cell": "n", "x": float("nan")})
