"""The register of sums on disk: what a crash leaves, what damage does, and what names a version of data."""

import multiprocessing

import numpy as np
import pytest

pytest.importorskip("cryptography")
from feddbn.core.designs.recordings import Block
from feddbn.data import Recording, Site
from feddbn.errors import AggregationError, FileError, StateError
from feddbn.federation.guards.row_set_guard import UsedRows
from feddbn.federation.protocol.messages import SiteRecord
from feddbn.federation.protocol.study import StudyResult
from feddbn.privacy.keys import Identity
from feddbn.privacy.register import Entry, Register
from feddbn.runtime.site.registers import FileRowBook, FileShelf, SameData, data_version
from feddbn.runtime.store import STORE, FileStore, prune_runs
from support.faults import looked_before
from support.saying import refused
from support.states import ledger_lines
from support.together import admit

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
    (line,) = ledger_lines(tmp_path / "r", "sum")
    assert line == {"sum": FOUR.listed(), "run": "run-1", "study": "study"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "r").iterdir())
    with refused(AggregationError, code="shows-few-sites"):
        register_on(FileShelf(tmp_path / "r", "run-2", "other")).admit(THREE, (), 3)
    register_on(FileShelf(tmp_path / "r", "run-2", "other")).admit(FOUR, (), 3)
    assert len(ledger_lines(tmp_path / "r", "sum")) == 1


def test_a_lost_ledger_and_an_older_copy_are_noticed(tmp_path):
    FileShelf(tmp_path, "run", "study").add([FOUR])
    older = (tmp_path / STORE).read_bytes()
    FileShelf(tmp_path, "run", "study").add([THREE])
    (tmp_path / STORE).unlink()
    with refused(FileError, code="damaged-register"):
        FileShelf(tmp_path, "run", "study").entries()
    (tmp_path / STORE).write_bytes(older)
    with refused(FileError, code="damaged-register"):
        FileShelf(tmp_path, "run", "study").add([THREE])


def test_two_runs_at_the_same_time_do_not_both_get_their_sets(tmp_path):
    context = multiprocessing.get_context("spawn")
    sets = [Entry(frozenset({A, B, C, D}) - {name}) for name in (A, B, C, D)]
    together, results = context.Barrier(len(sets)), context.Queue()
    runs = [context.Process(target=admit, args=(tmp_path, one, together, results)) for one in sets]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert sum(results.get() for _ in runs) == 1
    assert len(FileShelf(tmp_path, "x", "s").entries()) == 1


def test_pruning_old_runs_keeps_the_register(tmp_path):
    register_on(FileShelf(tmp_path, "run", "study")).admit(FOUR, (), 3)
    FileStore(tmp_path, "a").save(SiteRecord("run", "a", "{}", "1"))
    FileStore(tmp_path, "a").keep("run", StudyResult({}, {}), {})
    looked_before(tmp_path, 4e9)
    assert prune_runs(tmp_path, 1.0, now=4e9) == ["run"]
    assert FileShelf(tmp_path, "run", "study").entries() == (FOUR,)


def _site(*recordings):
    return Site(("u", "v"), [Recording(str(k), blocks) for k, blocks in enumerate(recordings)])


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
    return Site(("u", "v"), [Recording(name, (Block(x),)) for name, x in recordings])


def test_rows_are_remembered_over_versions_of_the_data(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 9, 2))
    book = FileRowBook(tmp_path / "r", site_of(("a", x), ("b", y)), "run-1", "study")
    cells = rng.integers(0, 2, (18, 2)).astype(np.uint64)
    # Of cells that were bounded the digests of their values are kept, whole.
    cells[[4, 4, 17], [0, 1, 1]] = 2**64 - 1, 2, 2**63 + 5
    none = np.zeros(0, dtype=np.int64)
    with book.hold():
        book.add([UsedRows("rows k 1 all - all", 1, book.table(), np.array([1, 2, 11]), none)])
        book.add([UsedRows("rows c 1 all - all", 1, book.table(), np.arange(18), none, ("u", "v"), cells)])
    # Recordings are numbered by what is in them, not by their names or places.
    again = FileRowBook(tmp_path / "r", site_of(("other", y), ("names", x)))
    assert (again.order()["names"], again.order()["other"]) == (book.order()["a"], book.order()["b"])
    first, second = again.used()
    assert (first.rows.tolist(), first.key) == ([1, 2, 11], "rows k 1 all - all")
    np.testing.assert_array_equal(second.cells, cells)
    np.testing.assert_array_equal(first.table.digests, again.table().digests)
    # A later version has the digests of the rows that stayed, wherever these stand now.
    later = FileRowBook(tmp_path / "r", site_of(("a", np.vstack([x, x[:1] + 1])), ("b", y)))
    with later.hold():
        later.add([UsedRows("rows k 1 all - all", 1, later.table(), np.array([3]), none)])
    third = FileRowBook(tmp_path / "r", site_of(("a", x)))
    old, _, new = (one.table for one in third.used())
    np.testing.assert_array_equal(new.digests, later.table().digests)
    assert len(np.setdiff1d(new.digests, old.digests)) == 1
    assert not len(np.setdiff1d(old.digests, new.digests))
    # Digests are of the site's key.
    other = FileRowBook(tmp_path / "other", site_of(("a", x)))
    assert not np.isin(other.table().digests, old.digests).any()


def test_a_run_goes_on_with_the_data_it_began_with(tmp_path):
    first, second = (site_of(("a", np.full((3, 2), value))) for value in (0.0, 1.0))
    SameData(tmp_path, first).check("run", leaves=True)
    SameData(tmp_path, first).check("run", leaves=False)
    SameData(tmp_path, second).check("another", leaves=False)
    with refused(StateError, code="other-data"):
        SameData(tmp_path, second).check("run", leaves=False)
