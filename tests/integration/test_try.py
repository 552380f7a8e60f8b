"""The README's way to a masked study, typed in a fresh clone at a terminal; and what is left after Ctrl-C: nothing."""

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

ROOT = Path(__file__).parents[2]
ADDRESS = "https://github.com/feddbn/feddbn.git"
MOST_COMMANDS = 6


def commands_of_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"<!-- guide: try -->\n```sh\n(.*?)```", text, re.S)
    return block.splitlines()


def environment(place, **more):
    temporary = place / "tmp"
    temporary.mkdir()
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**os.environ, **threads, "TMPDIR": str(temporary), "MPLCONFIGDIR": str(place / "mpl"), **more}


def left_of(place):
    """Command lines of processes that know the directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            said = [(process / name).read_bytes() for name in ("cmdline", "environ")]
            if any(str(place).encode() in one for one in said):
                found.append(said[0].replace(b"\0", b" ").decode())
    return found


def as_it_is_here(clone):
    """A clone has what was committed; put what was changed since over it, so that this tree is what is tested."""
    listed = ["git", "-C", str(ROOT), "ls-files", "--modified", "--others", "--exclude-standard", "-z"]
    for name in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0"):
        source = ROOT / name
        if name and source.is_file() and not source.is_symlink():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, clone / name)


def stand_in(place, clone):
    """A virtual environment in which the clone is installed: this one, with the clone's sources."""
    bins = place / "venv" / "bin"
    bins.mkdir(parents=True)
    (bins / "python").symlink_to(sys.executable)
    start = f"#!/bin/sh\nPYTHONPATH='{clone / 'src'}' exec '{sys.executable}' -m feddbn \"$@\"\n"
    (bins / "feddbn").write_text(start)
    (bins / "feddbn").chmod(0o755)
    for stamp in (".try-installed", ".demo-installed"):
        (place / "venv" / stamp).touch()


def typed(line, cwd, env, until_enter):
    """Type a line at a terminal, and Enter when it is asked for; return what the terminal shows."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-c", line],
        cwd=cwd,
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    try:
        # Linux ends a terminal that nobody else holds with an error.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65536):
                shown += piece
                if until_enter and until_enter in shown:
                    os.write(ours, b"\n")
                    until_enter = b""
        assert process.wait(60) == 0, shown.decode()[-3000:]
    finally:
        process.kill()
        os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode(errors="replace")).replace("\r\n", "\n")


def test_from_a_fresh_clone_to_an_open_report_of_an_approved_masked_study(tmp_path):
    commands = commands_of_the_readme()
    assert len(commands) <= MOST_COMMANDS
    assert commands[:2] == [f"git clone {ADDRESS}", "cd feddbn"]
    clone = tmp_path / "feddbn"
    cloned = subprocess.run(
        ["git", "clone", "--quiet", str(ROOT), str(clone)], capture_output=True, text=True, check=False
    )
    if cloned.returncode != 0:
        pytest.skip(f"this tree cannot be cloned: {cloned.stderr.strip()}")
    as_it_is_here(clone)
    stand_in(tmp_path, clone)
    seen = tmp_path / "seen.html"
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\ncp \"${{1#file://}}\" '{seen}'\n")
    browser.chmod(0o755)
    env = environment(tmp_path, VENV=str(tmp_path / "venv"), BROWSER=f"{browser} %s")
    shown = ""
    for line in commands[2:]:
        line = line.replace("make ", "make VENV=$VENV ")
        shown += typed(line, clone, env, b"Press Enter")
    told = [shown.index(f"[{k}/6]") for k in range(1, 7)]
    assert told == sorted(told)
    assert "north, south, west" in shown
    assert "first-run" in shown
    page = seen.read_text(encoding="utf-8")
    assert "OneShotDBN" in page
    assert "at least 3 sites" in page
    assert list((tmp_path / "tmp").iterdir()) == []
    assert left_of(tmp_path) == []
    assert not any(path.name.startswith("feddbn-try") for path in clone.iterdir())


def test_ctrl_c_leaves_no_process_and_no_file(tmp_path):
    env = environment(tmp_path, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))
    process = subprocess.Popen(
        [sys.executable, "-m", "feddbn", "federation", "try", "--no-open"],
        cwd=tmp_path,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("[3/6]"):
            break
    # The sites' processes are being started now; somebody impatient presses until it ends.
    while len(left_of(tmp_path)) < 2:
        assert process.poll() is None, "".join(said)
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
    with process.stderr:
        said += process.stderr.readlines()
    # The second one may find an interpreter that has nothing left to do.
    assert process.wait(60) in (130, -signal.SIGINT), "".join(said)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert left_of(tmp_path) == []
