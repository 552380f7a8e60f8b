"""Who is asked, who rests, and when enough sites are present: a study's rule on missing sites, applied.

A site that was silent twice in a row is asked only in the 2nd, 4th, 8th, ... round after, so that a dead one does not
cost a full timeout each round; if the sites left are too few, everybody is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from feddbn.errors import NotEnoughSites
from feddbn.federation.protocol.study import Attendance

__all__ = ["Roll"]

MAX_BACKOFF = 16


class Roll:
    """The attendance of a run so far and the rule it is held against."""

    def __init__(self, rules: Attendance) -> None:
        self._rules = rules
        self._misses: Counter[str] = Counter()
        self._resting: dict[str, int] = {}

    @property
    def insists(self) -> bool:
        """Whether every site must be there."""
        return self._rules.when_missing != "continue" and self._rules.enough is None

    @property
    def patience_s(self) -> float:
        """How long a sum in the clear is asked for again."""
        return self._rules.max_wait_s if self._rules.when_missing == "wait" else 0.0

    def awake(self, participants: Sequence[str], seq: int) -> list[str]:
        """Return who is asked in round `seq`."""
        awake = [site for site in participants if self._resting.get(site, -1) <= seq]
        return awake if len(awake) >= self._needed(participants) else list(participants)

    def note(self, present: Iterable[str], silent: Iterable[str], seq: int) -> None:
        """Take down who answered in round `seq` and who did not."""
        for site in present:
            self._misses.pop(site, None)
            self._resting.pop(site, None)
        for site in silent:
            self._misses[site] += 1
            if self._misses[site] > 1:
                self._resting[site] = seq + 1 + min(2 ** (self._misses[site] - 1), MAX_BACKOFF)

    def require(
        self, present: Sequence[str], asked: Sequence[str], what: str, reasons: Mapping[str, str]
    ) -> None:
        """Raise `NotEnoughSites` with the missing sites' own reasons if the rule is not met."""
        needed = self._needed(asked)
        if len(present) >= max(needed, 1):
            return
        missing = [site for site in asked if site not in present]
        said = " ".join(reasons[site] for site in missing if site in reasons)
        sentence = f"{what} has {len(present)} of the {needed} sites it needs; missing: {', '.join(missing)}."
        raise NotEnoughSites(f"{sentence} {said}".rstrip())

    def _needed(self, asked: Sequence[str]) -> int:
        fewest = self._rules.min_sites if self._rules.enough is None else self._rules.enough
        return len(asked) if self.insists else min(fewest, len(asked))
