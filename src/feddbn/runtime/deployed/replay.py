"""The sums of a run on record: a resumed program is answered from the journal until the journal ends."""

from __future__ import annotations

from feddbn._version import __version__
from feddbn.errors import StateError
from feddbn.federation.protocol.messages import Header, Journal
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Sum
from feddbn.runtime.deployed.store import JournalFile

__all__ = ["Replay"]


class Replay:
    """The journal of a run and how far its program has come.

    Attributes
    ----------
    seq
        Number of the next sum.
    counted
        Site -> number of the last task whose answer by this site is in a sum so far.
    """

    def __init__(self, log: JournalFile, study: Study, run_id: str) -> None:
        self._log = log
        header = Header(run_id, study.to_json(), study.digest, __version__, tuple(sorted(study.sites)))
        stored = log.read()
        if stored is None:
            stored = Journal(header)
            log.write(stored.header_bytes())
        self._journal = stored
        self._check(header)
        self.seq = 0
        self.counted: dict[str, int] = {}

    @property
    def n_recorded(self) -> int:
        """How many sums the journal holds."""
        return len(self._journal.entries)

    def recall(self, digest: str) -> Sum | None:
        """Return the recorded answer to the next task, None where the journal ends."""
        if self.seq >= self.n_recorded:
            return None
        entry = self._journal.entries[self.seq]
        if entry.digest != digest:
            raise StateError(
                f"run {self._journal.header.run_id!r} cannot be resumed: sum {self.seq} in its journal answers another "
                "task than the program asked now; use the version, machine type and study it began with."
            )
        return self._count(entry.answer)

    def record(self, digest: str, answer: Sum) -> Sum:
        """Write the answer to the next task down and return it."""
        self._log.write(self._journal.add(digest, answer))
        return self._count(answer)

    def _count(self, answer: Sum) -> Sum:
        self.counted.update(dict.fromkeys(answer.contributors, self.seq))
        self.seq += 1
        return answer

    def _check(self, now: Header) -> None:
        then = self._journal.header
        if (then.run_id, then.study_digest) != (now.run_id, now.study_digest):
            raise StateError(f"the journal found for run {now.run_id!r} belongs to another run or study.")
        if then.version != now.version:
            raise StateError(
                f"run {now.run_id!r} was begun with feddbn {then.version} "
                f"and cannot be resumed with {now.version}."
            )
