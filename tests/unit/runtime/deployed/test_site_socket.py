import socket
import threading
import time

import pytest

from feddbn.errors import FileError
from feddbn.runtime.deployed.site_socket import ask, serve


@pytest.fixture
def served(tmp_path):
    path = tmp_path / "state" / "site.sock"
    started = threading.Event()
    thread = threading.Thread(
        target=serve, args=(lambda m: m[::-1], path, 1000, started.set), daemon=True, name="served"
    )
    thread.start()
    assert started.wait(5)
    return path


def test_a_question_gets_its_answer_and_only_the_owner_may_ask(served):
    assert ask(served, b"abc") == b"cba"
    assert ask(served, b"") == b""
    assert served.stat().st_mode & 0o077 == 0


def test_nobody_there_is_told_apart_from_an_answer(tmp_path):
    assert ask(tmp_path / "nothing.sock", b"abc") is None


def test_broken_and_oversized_questions_do_not_end_the_service(served):
    for rubbish in (b"", b"\x05", b"\xff" * 8, (10).to_bytes(8, "little") + b"abc"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(served))
            connection.sendall(rubbish)
    time.sleep(0.05)
    assert ask(served, b"still here") == b"ereh llits"


def test_a_site_is_served_once_and_a_left_over_socket_is_replaced(served, tmp_path):
    with pytest.raises(FileError, match="this site is already being served"):
        serve(lambda m: m, served, 1000)
    with pytest.raises(FileError, match="its path may be too long"):
        serve(lambda m: m, tmp_path / ("x" * 120), 1000)
