"""The register of sums on disk: what a crash leaves, what damage does, and what names a version of data."""

import json
import multiprocessing

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.core.designs.recordings import Block
from feddbn.data.memory import ArrayRecording, MemorySite
from feddbn.errors import AggregationError, FileError
from feddbn.federation.guards.row_set_guard import UsedRows
from feddbn.privacy.keys import Identity
from feddbn.privacy.register import Entry, Register
from feddbn.runtime.deployed.registers import FileResampleBook, FileRowBook, FileShelf, data_version
from feddbn.runtime.deployed.store import prune_runs
from support.faults import looked_before
from support.saying import refused

A, B, C, D = (f"{k:016x}:1" for k in range(4))
FOUR, THREE = Entry(frozenset({A, B, C, D}), "0" * 16, "ab"), Entry(frozenset({A, B, C}))
ALICE, BOB = Identity.from_seed(b"a" * 32), Identity.from_seed(b"b" * 32)


def register_on(shelf):
    """A site that has just told the others what it knows."""
    register = Register("1", shelf)
    register.tell()
    return register


def test_a_set_is_on_disk_for_the_next_process_and_for_its_owner_only(tmp_path):
    register_on(FileShelf(tmp_path / "r", "run-1", "study")).admit(FOUR, (), 3)
    path = tmp_path / "r" / "sums.jsonl"
    assert json.loads(path.read_text()) == {"sum": FOUR.listed(), "run": "run-1", "study": "study"}
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(AggregationError, match="fewer than 3 sites"):
        register_on(FileShelf(tmp_path / "r", "run-2", "other")).admit(THREE, (), 3)
    register_on(FileShelf(tmp_path / "r", "run-2", "other")).admit(FOUR, (), 3)
    assert len(path.read_text().splitlines()) == 1


def test_a_crash_at_any_byte_of_a_line_leaves_the_lines_before_it(tmp_path):
    shelf = FileShelf(tmp_path, "run", "study")
    shelf.add([FOUR])
    whole = (tmp_path / "sums.jsonl").read_bytes()
    shelf.add([THREE])
    both = (tmp_path / "sums.jsonl").read_bytes()
    for n in range(len(whole), len(both)):
        (tmp_path / "sums.jsonl").write_bytes(both[:n])
        assert shelf.entries() == (FOUR,)
    # The cut line was of a sum that nobody opened; the next one takes its place.
    (tmp_path / "sums.jsonl").write_bytes(both[:-5])
    shelf.add([THREE])
    assert (tmp_path / "sums.jsonl").read_bytes() == both


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"sum": "a:1"}', b'{"run": "x"}', b'{"sum": [[], "", ""]}'])
def test_a_damaged_register_refuses_instead_of_forgetting(tmp_path, line):
    shelf = FileShelf(tmp_path, "run", "study")
    shelf.add([FOUR])
    with open(tmp_path / "sums.jsonl", "ab") as file:
        file.write(line + b"\n")
    for use in (shelf.entries, lambda: shelf.add([THREE]), lambda: register_on(shelf).admit(THREE, (), 3)):
        with refused(FileError, "line 2", code="damaged-register"):
            use()


def _admit(path, name, results):
    others = Entry(frozenset({A, B, C, D}) - {name})
    try:
        register_on(FileShelf(path, "run", "s")).admit(others, (), 3)
        results.put(True)
    except AggregationError:
        results.put(False)


def test_two_runs_at_the_same_time_do_not_both_get_their_sets(tmp_path):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    runs = [context.Process(target=_admit, args=(tmp_path, name, results)) for name in (A, B, C, D)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert sum(results.get() for _ in runs) == 1
    assert len(FileShelf(tmp_path, "x", "s").entries()) == 1


def test_pruning_old_runs_keeps_the_register(tmp_path):
    register_on(FileShelf(tmp_path / "_register", "run", "study")).admit(FOUR, (), 3)
    (tmp_path / "run").mkdir()
    looked_before(tmp_path, 4e9)
    assert prune_runs(tmp_path, 1.0, now=4e9) == ["run"]
    assert FileShelf(tmp_path / "_register", "run", "study").entries() == (FOUR,)


def _site(*recordings):
    return MemorySite(("u", "v"), [ArrayRecording(str(k), blocks) for k, blocks in enumerate(recordings)])


def test_the_version_of_data_is_their_content_and_hides_it():
    rows = np.arange(12.0).reshape(6, 2)
    one, two = (Block(rows),), (Block(rows[::-1]),)
    version = data_version(_site(one, two), ALICE)
    assert version == data_version(_site(two, one), ALICE)
    in_blocks = (Block(rows[:4]), Block(rows[4:], starts_segment=False))
    assert version == data_version(_site(in_blocks, two), ALICE)
    changed = rows.copy()
    changed[3, 1] = np.nextafter(changed[3, 1], 100.0)
    gap = (Block(rows[:4]), Block(rows[4:]))
    others = [_site(one), _site((Block(changed),), two), _site(gap, two), _site((Block(rows[:5]),), two)]
    assert len({version, *(data_version(other, ALICE) for other in others)}) == 5
    # Whoever guesses the data cannot check the guess without the site's secret key.
    assert version != data_version(_site(one, two), BOB)


def site_of(*recordings):
    return MemorySite(("u", "v"), [ArrayRecording(name, (Block(x),)) for name, x in recordings])


def used(*rows, cells="c", n_lags=1):
    return UsedRows(cells, n_lags, np.array(rows, dtype=np.int64), np.zeros(0, dtype=np.int64))


def test_rows_are_remembered_for_one_version_of_the_data(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 9, 2))
    book = FileRowBook(tmp_path, site_of(("a", x), ("b", y)), "run-1", "study")
    with book.hold():
        book.add([used(0, 1, 2, 2**40, 2**40 + 5), used()])
    # Recordings are numbered by what is in them, not by their names or places.
    again = FileRowBook(tmp_path, site_of(("other", y), ("names", x)))
    assert [one.run for one in again.used()] == ["run-1"] * len(again.used()) != []
    assert [one.rows.tolist() for one in again.used()] == [[0, 1, 2, 2**40, 2**40 + 5], []]
    assert again.order()["names"] == book.order()["a"]
    assert again.order()["other"] == book.order()["b"]
    assert FileRowBook(tmp_path, site_of(("a", x), ("b", y + 1))).used() == ()


def test_half_a_line_of_rows_is_dropped_and_a_damaged_one_named(tmp_path):
    book = FileRowBook(tmp_path, site_of(("a", np.ones((3, 2)))))
    for n in (1, 2):
        book.add([used(*range(n))])
    path = tmp_path / "rows.jsonl"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole), 9):
        path.write_bytes(whole[:end])
        assert len(book.used()) == 1
    path.write_bytes(whole.replace(b'"rows": "', b'"rows": "x', 1))
    with refused(FileError, "line 1", code="damaged-register"):
        book.used()


def test_resamples_are_counted_by_kind(tmp_path):
    data = site_of(("a", np.ones((3, 2))))
    book = FileResampleBook(tmp_path, data)
    for kind, stop in (("one", 5), ("one", 3), ("two", 2)):
        book.add(kind, stop)
    assert FileResampleBook(tmp_path, data).answered() == {"one": 5, "two": 2}
    assert FileResampleBook(tmp_path, site_of(("a", np.zeros((3, 2))))).answered() == {}
