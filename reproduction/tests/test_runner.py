import dataclasses
import json
from types import MappingProxyType

import pytest

from feddbn.errors import DataError, StateError
from reproduction import runner
from reproduction.cells import METHODS, expand
from reproduction.runner import ROWS_FILE, RowStore, plan, read_rows, run_cell, run_cells
from support.saying import refused


def without_time(rows):
    return {cell: {k: v for k, v in row.items() if k != "seconds"} for cell, row in rows.items()}


def test_a_row_says_what_was_run_by_which_version(tiny):
    cell = expand(tiny, quick=True)[0]
    row = run_cell(cell)
    assert row["cell"] == cell.id
    assert row["version"]
    assert row["settings"]["lambdas"] == [[0.05, 0.05]]
    assert set(row["results"][0]["W"]) == {"shd", "shd_paper", "tpr", "fdr", "f1"}


def test_a_second_run_runs_nothing_and_a_longer_one_only_what_is_new(tiny, tmp_path):
    with RowStore(tmp_path) as store:
        cells = expand(tiny, seeds=1)
        assert run_cells(cells[:2], store) == 2
        assert run_cells(cells[:2], store) == 0
        assert run_cells(cells[:4], store) == 2
    assert len(read_rows(tmp_path)) == 4


@pytest.mark.slow
def test_two_processes_record_the_same_rows_as_one(tiny, tmp_path):
    cells = expand(tiny, seeds=1)
    with RowStore(tmp_path / "one") as store:
        run_cells(cells, store)
    with RowStore(tmp_path / "two") as store:
        run_cells(cells, store, jobs=2)
    assert without_time(read_rows(tmp_path / "one")) == without_time(read_rows(tmp_path / "two"))


def test_a_method_that_is_missing_waits_with_a_sentence_and_runs_later(tiny, tmp_path, monkeypatch):
    cells = expand(tiny, seeds=1)
    absent = dataclasses.replace(METHODS["local"], where="feddbn.methods.tomorrow:Later")
    table = MappingProxyType({**METHODS, "local": absent})
    with RowStore(tmp_path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(runner, "METHODS", table)
            ((reason, n),) = plan(cells, store).waiting.items()
            assert absent.where in reason
            assert n == len(cells) // 2
            assert run_cells(cells, store) == len(cells) // 2
        assert run_cells(cells, store) == len(cells) // 2


def test_a_refusal_is_recorded_and_a_bug_is_raised(tiny, monkeypatch):
    cell = expand(tiny, quick=True)[0]

    def refuse(_):
        raise DataError("no-rows")

    def crash(_):
        raise ZeroDivisionError

    monkeypatch.setattr(runner, "_results", refuse)
    row = run_cell(cell)
    assert (row["results"], row["error"]) == ([], "no-rows")
    monkeypatch.setattr(runner, "_results", crash)
    with pytest.raises(ZeroDivisionError):
        run_cell(cell)


def test_real_data_that_are_absent_make_their_cells_wait(tmp_path, monkeypatch):
    from reproduction.config import load_experiment

    monkeypatch.setenv("FEDDBN_DATA", str(tmp_path / "empty"))
    runner._data_obstacle.cache_clear()
    try:
        with RowStore(tmp_path) as store:
            todo = plan(expand(load_experiment("fmri")), store)
        assert todo.todo == []
        assert any("FEDDBN_DATA" in reason for reason in todo.waiting)
    finally:
        runner._data_obstacle.cache_clear()


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
