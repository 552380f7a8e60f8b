"""Kill trials on a masked study by files: kill -9 at random moments of steps and answers, type the command again, compare.

    python benchmarks/files_kill.py --kills 50 --seed 700

A study of three sites is run once undisturbed, by the commands that people type; then again and again, with kills, until so
many have hit. A kill comes at a random moment of the time that such a command took undisturbed, in its own process. Every
result must have the same bits; no question and no answer may ever change once it is in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from feddbn.cli.main import app  # noqa: E402
from feddbn.federation.protocol.study import StudyResult  # noqa: E402
from support.file_kits import FileKits  # noqa: E402
from support.owned_sites import NAMES  # noqa: E402
from support.study_files import study_text  # noqa: E402

RUN = "killed"
PRIVACY = '[privacy]\nsecure_aggregation = true\nprotection = "exact"\n'
STUDY = study_text(f"[parameters]\nn_lags = 1\nresamples = 0\n{PRIVACY}", name="killed")


def command(words, kill_after=None):
    """Run a command in a process of its own; return its seconds, or None if it was killed before it had ended."""
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            app([str(word) for word in words], prog_name="feddbn")
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            os._exit(code)
    if kill_after is not None:
        while time.monotonic() - start < kill_after:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return _ended(words, status, start)
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return None if os.WIFSIGNALED(status) else _ended(words, status, start)


def _ended(words, status, start):
    if os.WEXITSTATUS(status) != 0:
        raise RuntimeError(f"feddbn {' '.join(map(str, words))} ended with {os.WEXITSTATUS(status)}")
    return time.monotonic() - start


class Trial:
    """One run of the study; `killer` says of a command after how many seconds it is killed, None if it is not."""

    def __init__(self, place, killer=lambda kind, n_hit: None):
        self.kits = FileKits(place)
        self.folder = Path(place) / RUN
        self.folder.mkdir()
        (self.folder / "study.toml").write_text(STUDY)
        self._killer = killer
        self.kills = Counter()
        self.seconds = {"step": [], "answer": []}
        self._seen = {}

    def run(self):
        """Return the result's arrays."""
        while not (self.folder / "result" / "result.json").exists():
            self._do("step", "study", "step", self.folder, "--kit", self.kits.lead)
            for name in NAMES:
                question = max((self.folder / name).glob("*question.feddbn"))
                self._do("answer", "site", "answer", question, "--kit", self.kits.kits[name])
        return StudyResult.from_bytes(self.kits.result(RUN)).arrays

    def _do(self, kind, *words):
        """Type a command until it has ended."""
        while True:
            seconds = command(words, self._killer(kind, self.kills.total()))
            self._look()
            if seconds is not None:
                self.seconds[kind].append(seconds)
                return
            self.kills[kind] += 1

    def _look(self):
        for path in self.folder.glob("*/*.feddbn"):
            content = path.read_bytes()
            if self._seen.setdefault(path, content) != content:
                raise RuntimeError(f"{path.name} has changed")


class Killer:
    """Says when a command is killed: half of them are, at a random moment of what they usually take, but not too many."""

    def __init__(self, random_, usual, most):
        self._random, self._usual, self._most = random_, usual, most

    def __call__(self, kind, n_hit):
        """Return after how many seconds, None if it is not."""
        if n_hit >= self._most or self._random.random() < 0.5:
            return None
        return self._random.uniform(0.0, self._usual[kind])


def same_bits(one, other):
    """Whether two results have the same arrays."""
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


def trials(place, n_kills, seed):
    """Kill until so many kills have hit; return how many hit whom, and how many runs that took."""
    random_ = random.Random(seed)
    plain = Trial(place / "plain")
    expected = plain.run()
    usual = {kind: sum(times) / len(times) for kind, times in plain.seconds.items()}
    kills, n_runs = Counter(), 0
    while kills.total() < n_kills:
        trial = Trial(place / f"run-{n_runs}", Killer(random_, usual, n_kills - kills.total()))
        if not same_bits(trial.run(), expected):
            raise RuntimeError(f"run {n_runs} has other bits after {trial.kills}")
        kills, n_runs = kills + trial.kills, n_runs + 1
    return {"kills": dict(kills), "runs": n_runs, "seed": seed, "seconds": usual}


def main():
    """Run the trials and print one line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=700)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(trials(Path(place), given.kills, given.seed)))


if __name__ == "__main__":
    main()
