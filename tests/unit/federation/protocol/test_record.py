"""Records of sites that are asked together again are not put together anew."""

from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.federation.protocol import site
from feddbn.federation.protocol.site import TOGETHER, Record


@dataclass(frozen=True)
class Notes(Record):
    prefix = "notes"
    version = 1

    C: FloatArray


def test_a_memo_gives_back_what_was_kept_for_the_same_states_only():
    memo, notes = {}, Notes(np.arange(6.0).reshape(2, 3))
    states = notes.kept([{}, {}], None, memo, "a")
    assert Notes.read(states, memo, "a") is notes
    # Another site of the same name, or one that has gone on since, is read from its state.
    changed = [states[0], {**states[1], "notes.C": np.zeros(3)}]
    assert np.array_equal(Notes.read(changed, memo, "a").C, [[0, 1, 2], [0, 0, 0]])
    assert np.array_equal(Notes.read(states[:1], memo, "a").C, [[0, 1, 2]])
    assert np.array_equal(Notes.read(states, {}, "a").C, notes.C)


def test_a_memo_keeps_the_last_record_of_each_part_and_none_beyond_its_room(monkeypatch):
    memo: dict = {}
    for turn in range(5):
        for first in ("a", "b"):
            states = Notes(np.full((1, 3), turn)).kept([{}], None, memo, first)
    assert len(memo[TOGETHER]) == 2
    monkeypatch.setattr(site, "_ROOM", 40)
    states = Notes(np.ones((1, 3))).kept([{}], None, memo, "b")
    assert len(memo[TOGETHER]) == 1
    assert np.array_equal(Notes.read(states, memo, "b").C, np.ones((1, 3)))
