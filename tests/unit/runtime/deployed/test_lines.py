"""Lines on disk: what a crash leaves of the last one, whom they are for, and that several are one write."""

import os

import pytest

from feddbn.runtime.deployed import store as lines
from feddbn.runtime.deployed.store import append_lines, whole_length, whole_part


@pytest.mark.parametrize("torn", [b"", b"h", b"half a line"])
def test_half_a_line_is_not_read_and_the_next_takes_its_place(tmp_path, torn):
    path = tmp_path / "log"
    append_lines(path, "one", "two\n")
    assert path.stat().st_mode & 0o077 == 0
    with open(path, "ab") as file:
        file.write(torn)
    assert whole_part(path.read_bytes()) == b"one\ntwo\n"
    with open(path, "rb") as file:
        assert whole_length(file) == 8
    append_lines(path, "three")
    assert path.read_bytes() == b"one\ntwo\nthree\n"


def test_a_file_that_is_one_torn_line_holds_nothing(tmp_path):
    (tmp_path / "log").write_bytes(b"half")
    append_lines(tmp_path / "log", "one")
    assert (tmp_path / "log").read_bytes() == b"one\n"


@pytest.mark.parametrize("where", ["write", "fsync"])
def test_what_could_not_be_written_leaves_the_file_as_it_was(tmp_path, monkeypatch, where):
    path = tmp_path / "log"
    append_lines(path, "one")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(*((os, "fsync", full) if where == "fsync" else (lines, "_write_all", full)))
        with pytest.raises(OSError, match="No space left"):
            append_lines(path, "two")
    assert path.read_bytes() == b"one\n"
    append_lines(path, "three")
    assert path.read_bytes() == b"one\nthree\n"


def test_a_write_that_takes_a_part_goes_on_with_the_rest(tmp_path):
    class Slow:
        def __init__(self):
            self.written = b""

        def write(self, content):
            self.written += bytes(content[:3])
            return min(3, len(content))

    file = Slow()
    lines._write_all(file, b"twenty bytes of text")
    assert file.written == b"twenty bytes of text"
