"""What a lead's session prints, and what it must not take away from others."""

import sys
from threading import Event, Thread

from feddbn.runtime.engines.nvflare.engine import _silence


def test_only_the_session_is_silent(capsys):
    """A console prints its address while its other thread opens the session."""
    is_silent, may_end = Event(), Event()

    def session():
        with _silence():
            sys.stdout.write("of the engine\n")
            is_silent.set()
            assert may_end.wait(10)
        sys.stdout.write("session\n")

    thread = Thread(target=session)
    thread.start()
    assert is_silent.wait(10)
    sys.stdout.write("Open http://127.0.0.1\n")
    may_end.set()
    thread.join()
    sys.stdout.write("after\n")
    assert capsys.readouterr().out == "Open http://127.0.0.1\nsession\nafter\n"
