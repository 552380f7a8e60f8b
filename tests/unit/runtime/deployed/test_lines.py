"""Lines on disk: what a crash leaves of the last one, whom they are for, and that several are one write."""

import pytest

from feddbn.runtime.deployed.lines import append_lines, whole_length, whole_part


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
