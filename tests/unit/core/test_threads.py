import sys

import numpy as np
from threadpoolctl import threadpool_info

from feddbn.core import threads
from feddbn.core.threads import one_thread


def _threads():
    return [library["num_threads"] for library in threadpool_info()]


def test_every_library_is_held_to_one_thread_and_set_back():
    np.ones((2, 2)) @ np.ones((2, 2))
    before = _threads()
    assert before
    with one_thread():
        assert set(_threads()) == {1}
        with one_thread():
            assert set(_threads()) == {1}
        assert set(_threads()) == {1}
    assert _threads() == before


def test_a_library_loaded_later_is_found(monkeypatch):
    with one_thread():
        pass
    monkeypatch.setitem(sys.modules, "a_module_added_later", np)
    found = threads._libraries.cache_info().misses
    with one_thread():
        pass
    assert threads._libraries.cache_info().misses == found + 1
