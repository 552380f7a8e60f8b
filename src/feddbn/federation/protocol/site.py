"""The site's half: programs that answer tasks, and the endpoint that guards them.

Rules of this file
------------------
- A site program is a pure function ``(site, state, task) -> (state, vector)``. `site` is read-only data.
- State is a flat dict of numpy arrays, so that it can be stored without pickle and restored bit for bit.
- Wrappers (audit, policy, clipping and noise) see tasks and vectors, never algorithms: each is a `Guard`.
- A task that fails changes nothing: the new state is kept only after every guard has passed the vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import Recording, SiteData
from feddbn.errors import FeddbnError, ProtocolError
from feddbn.federation.protocol.task import Task

__all__ = [
    "MASKED",
    "PLAIN",
    "Channel",
    "Guard",
    "Recording",
    "Site",
    "SiteData",
    "SiteProgram",
    "SiteState",
    "SiteTask",
    "register_site_task",
    "site_task",
]

SiteState = dict[str, np.ndarray]
SiteProgram = Callable[[SiteData, SiteState, Task], tuple[SiteState, FloatArray]]
UnitProgram = Callable[[SiteData, SiteState, Task, str], Iterator[FloatArray]]


@dataclass(frozen=True)
class SiteTask:
    """A named site program; `units` yields its vector split by unit of privacy, where that is possible.

    With `needs_name` the program finds the site's own name as the task's parameter ``site``.
    """

    name: str
    run: SiteProgram
    purpose: str
    units: UnitProgram | None = None
    needs_name: bool = False


_REGISTRY: dict[str, SiteTask] = {}


def register_site_task(task: SiteTask) -> None:
    """Make a site program answer tasks of its name."""
    _REGISTRY[task.name] = task


def site_task(name: str) -> SiteTask:
    """Look up the program for a task name."""
    try:
        return _REGISTRY[name]
    except KeyError:
        known = ", ".join(sorted(_REGISTRY))
        raise ProtocolError(f"no site program answers task {name!r}; this version knows: {known}.") from None


@dataclass(frozen=True)
class Channel:
    """How an answer leaves.

    Attributes
    ----------
    asked_by
        Who asked.
    masked
        Whether only a sum with other sites can be opened.
    n_guaranteed
        Fewest sites whose numbers are in any sum that can be opened.
    """

    asked_by: str = "server"
    masked: bool = False
    n_guaranteed: int = 1


PLAIN = Channel()
MASKED = Channel(masked=True)


class Guard:
    """A wrapper around one site's answers: policy, audit, clipping and noise. Each hook does nothing by
    default.
    """

    def before(self, task: Task, state: Mapping[str, np.ndarray], channel: Channel) -> None:
        """Raise to refuse the task; nothing has been computed yet."""

    def make(
        self, program: SiteTask, data: SiteData, state: SiteState, task: Task, channel: Channel
    ) -> tuple[SiteState, FloatArray] | None:
        """Return (state, vector) in place of the program's own run, or None; the first guard that does so is
        taken.
        """
        return None

    def after(self, task: Task, vector: FloatArray, channel: Channel) -> FloatArray:
        """Return what may leave the site."""
        return vector

    def refused(self, task: Task, error: FeddbnError, channel: Channel) -> None:
        """Take note that the task was refused; the error goes on to whoever asked."""


class Site:
    """One site: its data, its state and the guards around its answers."""

    def __init__(self, name: str, data: SiteData, guards: Sequence[Guard] = ()) -> None:
        self.name = name
        self.data = data
        self.guards = tuple(guards)
        self.state: SiteState = {}

    def answer(self, task: Task, channel: Channel = PLAIN) -> FloatArray:
        """Return the vector for `task` and keep the new state."""
        try:
            program = site_task(task.name)
            if program.needs_name:
                task = replace(task, params={**task.params, "site": self.name})
            for guard in self.guards:
                guard.before(task, self.state, channel)
            state, vector = self._make(program, task, channel)
            for guard in self.guards:
                vector = guard.after(task, vector, channel)
        except FeddbnError as error:
            for guard in self.guards:
                guard.refused(task, error, channel)
            raise
        self.state = state
        return vector

    def _make(self, program: SiteTask, task: Task, channel: Channel) -> tuple[SiteState, FloatArray]:
        for guard in self.guards:
            made = guard.make(program, self.data, self.state, task, channel)
            if made is not None:
                return made
        return program.run(self.data, self.state, task)
