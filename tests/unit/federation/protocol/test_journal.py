import numpy as np

from feddbn.errors import StateError
from feddbn.federation.protocol.messages import Header, Journal, read_journal
from feddbn.federation.protocol.task import Sum
from support.saying import refused


def written(n=3):
    journal = Journal(Header("run", "{}", "digest", "1", ("a", "b")))
    frames = [journal.header_bytes()]
    for k in range(n):
        frames.append(journal.add(f"d{k}", Sum(np.full(4, k / 3), ("a", "b") if k != 1 else ("b",))))
    return frames


def test_a_journal_is_read_back_bit_for_bit():
    frames = written()
    journal, length = read_journal(b"".join(frames))
    assert length == sum(map(len, frames))
    assert journal.header == Header("run", "{}", "digest", "1", ("a", "b"))
    assert [e.digest for e in journal.entries] == ["d0", "d1", "d2"]
    np.testing.assert_array_equal(journal.entries[2].answer.value, np.full(4, 2 / 3))
    assert [e.answer.contributors for e in journal.entries] == [("a", "b"), ("b",), ("a", "b")]
    more = journal.add("d3", Sum(np.zeros(4), ("a",)))
    again, _ = read_journal(b"".join(frames) + more)
    assert len(again.entries) == 4


def test_a_torn_end_is_cut_off_wherever_the_machine_died():
    frames = written()
    whole = b"".join(frames)
    ends = np.cumsum([len(f) for f in frames])
    for cut in range(len(whole)):
        journal, length = read_journal(whole[:cut])
        n_whole = int(np.sum(ends <= cut))
        assert length == (ends[n_whole - 1] if n_whole else 0)
        assert (journal is None) == (n_whole == 0)
        if journal is not None:
            assert len(journal.entries) == n_whole - 1


def test_damage_before_the_end_is_an_error():
    frames = written()
    whole = bytearray(b"".join(frames))
    whole[len(frames[0]) + 60] ^= 1
    with refused(StateError, code="damaged-journal"):
        read_journal(bytes(whole))
    with refused(StateError, code="damaged-journal"):
        read_journal(frames[0] + frames[2] + frames[3])
    with refused(StateError, code="damaged-journal"):
        read_journal(Journal(Header("r", "", "", "", ())).add("d", Sum(np.zeros(1), ("a",))))
