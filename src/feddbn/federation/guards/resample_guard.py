"""How many resamples a site answers, over all runs, before they tell its recordings or blocks apart.

A resample is a sum of the site's units (recordings, or blocks of rows) with small whole numbers for weights. The weights are
the site's secret, but E sums of N units with E >= N span what the units span, and whole numbers can be found by lattice
methods. So sums are counted as if the weights were known. E equations in the N unknown units of s sites can be combined so
that E - 1 units vanish, and with them up to s - 1 more, because the weights of a site always have the same sum. What is left
must hold at least `min_rows` rows. Every site of a masked sum keeps to

    E <= s (n - m) + 1,

with its n units, any m of which hold `min_rows` rows, and s = `min_sites` (s = 1 in the clear). If s sites do not work
together with the server, they have N >= E - 1 + s m units in all, and s (m - 1) + 1 >= m of them are left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from feddbn.errors import SiteRefused
from feddbn.federation.programs.bootstrap import BootstrapQuestion, unit_sizes
from feddbn.federation.protocol.site import Channel, Guard, Here
from feddbn.federation.protocol.task import Task
from feddbn.privacy.policy import SitePolicy

__all__ = ["ResampleBook", "ResampleGuard", "most_resamples"]


class ResampleBook(Protocol):
    """How many resamples were answered from the present version of the data; `add` has happened when it returns."""

    def hold(self) -> AbstractContextManager[None]:
        """Keep others from reading and writing meanwhile."""
        ...

    def answered(self) -> Mapping[str, int]:
        """Return how many of each kind."""
        ...

    def add(self, kind: str, stop: int) -> None:
        """Write down how many of a kind are answered now."""
        ...


def most_resamples(sizes: np.ndarray, min_rows: int, n_sites: int) -> int:
    """Return how many sums of units of these sizes (in rows) may be answered, if `n_sites` sites keep to the rule."""
    held = np.cumsum(np.sort(sizes))
    n_few = int(np.searchsorted(held, min_rows)) + 1
    return n_sites * (len(sizes) - n_few) + 1 if len(sizes) >= n_few else 0


class ResampleGuard(Guard):
    """Refuses resamples that would tell units apart.

    Parameters
    ----------
    policy
        The owner's rules.
    book
        How many resamples were answered before.
    """

    def __init__(self, policy: SitePolicy, book: ResampleBook) -> None:
        self._policy = policy
        self._book = book
        self._n_sites = 1

    def before(self, task: Task, state: Mapping[str, np.ndarray], channel: Channel) -> None:
        """Remember whether only a sum over sites can be read."""
        self._n_sites = self._policy.min_sites if channel.masked else 1

    def reads(self, here: Here, task: Task) -> tuple[Here, Task]:
        """Count the resamples, and refuse too many."""
        question = task.question
        if not isinstance(question, BootstrapQuestion) or question.abstains(here.state):
            return here, task
        most = most_resamples(unit_sizes(here.data, question), self._policy.min_rows, self._n_sites)
        kind = _kind(question)
        with self._book.hold():
            answered = {**self._book.answered()}
            before = answered.get(kind, 0)
            # The data themselves are one more sum.
            answered[kind] = max(before, question.stop + 1)
            if sum(answered.values()) > most:
                raise SiteRefused(
                    f"with these, {sum(answered.values())} sums of resamples would have been made of this site's data, and "
                    f"it answers {most}: more would tell its recordings or blocks apart. Ask for fewer replicates, or "
                    "shorter blocks."
                )
            if answered[kind] > before:
                self._book.add(kind, answered[kind])
        return here, task


def _kind(question: BootstrapQuestion) -> str:
    """A digest of everything but which replicates are asked for and about which origin: sums about another tell the same."""
    params = {name: value for name, value in question.params.items() if name not in ("first", "stop")}
    digest = hashlib.sha256(repr(sorted(params.items())).encode())
    for name, values in sorted(question.arrays.items()):
        if name != "origin":
            digest.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
