"""What a deployed site lets itself be asked: within the study, within its policy, and the same throughout a run.

A server may make up every number of a question. What it can gain by that comes from questions that differ a little: two
treatments whose sums differ by the few rows that only one of them has. So what a run takes for granted
(`Question.constants`) is written down with the first question and may not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from feddbn.errors import SiteRefused
from feddbn.federation.protocol.scope import Scope
from feddbn.federation.protocol.site import Channel, Guard, Here
from feddbn.federation.protocol.task import Task, task_digest
from feddbn.privacy.policy import SitePolicy

__all__ = ["MOST_REFUSED", "Asked", "ScopeGuard"]

MOST_REFUSED = 10
"""After so many different questions of a run that were refused a site answers no more: refusals tell something, too."""
_REFUSED = "questions that were refused"
_ENDED = "questions that were refused after data were read"


class Asked:
    """What the questions of a run have taken for granted so far.

    Parameters
    ----------
    known
        (what, digest of its value, its size) that were written down before.
    write
        Writes one of these down; durable when it returns.
    """

    def __init__(
        self,
        known: Iterable[tuple[str, str, int]] = (),
        write: Callable[[str, str, int], None] = lambda what, digest, size: None,
    ) -> None:
        self._sizes: dict[str, dict[str, int]] = {}
        for what, digest, size in known:
            self._sizes.setdefault(what, {})[digest] = size
        self._write = write

    def check_refusals(self) -> None:
        """Refuse everything after many refusals, or after one that depended on data."""
        if self.size_of(_ENDED):
            raise SiteRefused(
                "a question of this run was refused after data were read; this site answers no more of it."
            )
        if self.size_of(_REFUSED) >= MOST_REFUSED:
            raise SiteRefused(
                f"{MOST_REFUSED} questions of this run were refused; this site answers no more of it."
            )

    def refused(self, task: Task, has_read: bool) -> None:
        """Take down that a question was refused; the same question again is no other.

        `has_read`: data were read first, so that the refusal tells something about them. It is the last that a run hears:
        a second one would halve what is left to guess.
        """
        digest = task_digest(task.fields(), task.arrays, task.participants)
        self._keep(_REFUSED, digest, 1)
        if has_read:
            self._keep(_ENDED, digest, 1)

    def size_of(self, what: str) -> int:
        """Sizes of all values of something, added up."""
        return sum(self._sizes.get(what, {}).values())

    def check(self, task: Task) -> None:
        """Refuse a question that takes something else for granted than those before it."""
        constants = [(one, one.digest) for one in task.question.constants]
        for one, digest in constants:
            known = self._sizes.get(one.what, {})
            if digest not in known and len(known) >= one.most:
                raise SiteRefused(
                    f"task {task.name!r} changes {one.what} within a run; sums that differ by it would show few rows."
                )
        # Also what is refused later on counts, so that refusals cannot be used to try values out.
        for one, digest in constants:
            self._keep(one.what, digest, one.size)

    def _keep(self, what: str, digest: str, size: int) -> None:
        known = self._sizes.setdefault(what, {})
        if digest not in known:
            self._write(what, digest, size)
            known[digest] = size


class ScopeGuard(Guard):
    """Refuses every question that the study or the site's policy does not allow; reads no data.

    Parameters
    ----------
    scope
        What the study may ask.
    policy
        The owner's rules.
    asked
        What this run has taken for granted so far.
    """

    def __init__(self, scope: Scope, policy: SitePolicy, asked: Asked | None = None) -> None:
        self._scope = scope
        self._policy = policy
        self._asked = asked or Asked()
        self._read_for: Task | None = None

    def before(self, task: Task, state: Mapping[str, np.ndarray], channel: Channel) -> None:
        """Check task, participants, parameters and what must not change."""
        self._read_for = None
        self._asked.check_refusals()
        self._scope.check_task(task.name)
        self._scope.check_participants(task.name, task.participants)
        task.question.check_scope(self._scope)
        self._policy.check_transformations(task.question.transformations)
        self._asked.check(task)

    def reads(self, here: Here, task: Task) -> tuple[Here, Task]:
        """Everything about the question alone has been checked: a refusal from here on depends on data."""
        self._read_for = task
        return here, task

    def refused(self, task: Task, error: Exception, channel: Channel) -> None:
        """Count it."""
        self._asked.refused(task, self._read_for is task)
