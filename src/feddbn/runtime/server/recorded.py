"""The sums of a run, as its program comes to ask for them again."""

from __future__ import annotations

from collections.abc import Sequence

from feddbn.errors import StateError
from feddbn.federation.protocol.messages import Entry
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Sum
from feddbn.privacy.policy import DEFAULT_MIN_SITES


def sites_in_a_number(study: Study) -> int | None:
    """How many sites every number of a study's sums must rest on; None where noise hides them."""
    if study.privacy.epsilon is not None:
        return None
    return min(max(study.privacy.min_sites, DEFAULT_MIN_SITES), len(study.sites))


class Recorded:
    """The sums of a run and how far its program has come: `seq` is the number of the next sum, and `counted` has, for each
    site, the number of the last task whose answer by it is in a sum so far.
    """

    def __init__(self, run_id: str, entries: Sequence[Entry]) -> None:
        self._run_id = run_id
        self.entries = entries
        self.seq = 0
        self.counted: dict[str, int] = {}

    @property
    def n_recorded(self) -> int:
        """How many sums there are."""
        return len(self.entries)

    def recall(self, digest: str) -> Sum | None:
        """Return the recorded answer to the next task, None where the record ends.

        Sums that were asked ahead and that the program does not ask for now are passed over.
        """
        while self.seq < self.n_recorded:
            entry = self.entries[self.seq]
            if entry.digest == digest and entry.answer.contributors:
                return self._count(entry)
            if not entry.is_ahead:
                raise StateError(
                    f"run {self._run_id!r} cannot be resumed: sum {self.seq} in its journal answers another "
                    "task than the program asked now; use the version, machine type and study it began with.",
                    code="other-task",
                )
            self._count(entry)
        return None

    def _count(self, entry: Entry) -> Sum:
        # A site answers what is asked together once.
        sites = self.entries[entry.first].answer.contributors
        self.counted.update(dict.fromkeys(sites, self.seq))
        self.seq += 1
        return entry.answer
