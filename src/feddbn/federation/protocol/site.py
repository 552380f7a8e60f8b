"""The site's half: programs that answer questions, and the site that guards them.

Rules of this file
------------------
- A site program is a pure function of what it finds `Here` and the question. It answers for many sites at once; a
  real site is one of one. So a simulation and a deployed site run the same lines.
- State is a flat dict of numpy arrays, so that it can be stored without pickle and restored bit for bit.
- A memo keeps what can be computed again: it is never stored, may be empty at any time, and no answer depends on it.
- Wrappers (audit, policy, clipping and noise) see tasks and vectors, never algorithms: each is a `Guard`.
- A task that fails changes nothing: the new state is kept only after every guard has passed the vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.backend.device import HOST, Device
from feddbn.core.designs.recordings import Recording, SiteData
from feddbn.errors import ProtocolError
from feddbn.federation.protocol.question import Question
from feddbn.federation.protocol.task import Task

__all__ = [
    "PLAIN",
    "Answers",
    "Channel",
    "Guard",
    "Here",
    "Memo",
    "Recording",
    "Site",
    "SiteData",
    "SiteState",
    "SiteTask",
    "answer_together",
    "notes_of",
    "one_by_one",
    "register_site_task",
    "site_task",
    "stacked_vectors",
    "sum_of_units",
    "task_from_fields",
    "with_notes",
]

SiteState = dict[str, np.ndarray]
Memo = dict[str, Any]
_NOTES = "notes"


def with_notes(state: SiteState, notes: Sequence[str]) -> SiteState:
    """A state that tells the site's owner these sentences, and no others; they never leave the site."""
    rest = {key: value for key, value in state.items() if key != _NOTES}
    text = "\n".join(notes).encode()
    return {**rest, _NOTES: np.frombuffer(text, dtype=np.uint8)} if notes else rest


def notes_of(state: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """What a site's programs have to tell its owner."""
    notes = state.get(_NOTES)
    return () if notes is None else tuple(bytes(notes).decode().split("\n"))


@dataclass(frozen=True)
class Here:
    """What a program may read of one site; `data` and `state` are not to be written to. `device` is where it multiplies."""

    name: str
    data: SiteData
    state: SiteState
    device: Device = HOST


Answers = tuple[Sequence[SiteState], FloatArray]


@dataclass(frozen=True)
class SiteTask:
    """How sites answer one kind of question.

    Attributes
    ----------
    question
        The kind; its name is the task's.
    answer
        ``(sites, question, memo) -> (their new states, (K, n) their vectors)``.
    units
        Yields one site's vector split by unit of privacy, where that is possible.
    length
        How long an answer is, where the question alone tells; split by unit, an answer may have no unit at all.
    adds_up
        Names of state arrays, for questions whose answer is linear in these and depends on nothing else: the answers of
        many sites then add up to the answer of one site with the sum of their arrays.
    """

    question: type[Question]
    answer: Callable[[Sequence[Here], Any, Memo], Answers]
    units: Callable[[Here, Any, str], Iterator[FloatArray]] | None = None
    length: Callable[[Any], int] | None = None
    adds_up: Callable[[Any], tuple[str, ...]] = lambda question: ()

    @property
    def name(self) -> str:
        """Name of the task."""
        return self.question.name


def one_by_one(
    answer: Callable[[Here, Any], tuple[SiteState, FloatArray]],
) -> Callable[[Sequence[Here], Any, Memo], Answers]:
    """Return the program for many sites from one for a single site."""

    def answers(sites: Sequence[Here], question: Any, memo: Memo) -> Answers:
        found = [answer(here, question) for here in sites]
        return [state for state, _ in found], stacked_vectors([vector for _, vector in found], question.name)

    return answers


def sum_of_units(
    question: type[Question], units: Callable[[Here, Any, str], Iterator[FloatArray]]
) -> SiteTask:
    """Return the task whose answer is the sum of its units of privacy; a site has at least one recording."""

    def answer(here: Here, question: Any) -> tuple[SiteState, FloatArray]:
        total: FloatArray | None = None
        for vector in units(here, question, "recording"):
            total = vector if total is None else total + vector
        if total is None:
            raise ProtocolError(f"this site has no recording to answer task {question.name!r} with.")
        return here.state, total

    return SiteTask(question, one_by_one(answer), units)


def stacked_vectors(vectors: Sequence[FloatArray], task: str) -> FloatArray:
    """(K, n) the vectors of K sites, which must be of one length."""
    if len({vector.shape for vector in vectors}) != 1:
        raise ProtocolError(f"the sites answered task {task!r} with vectors of different lengths.")
    return np.stack(vectors)


_REGISTRY: dict[str, SiteTask] = {}


def register_site_task(task: SiteTask) -> None:
    """Make a site program answer questions of its kind."""
    _REGISTRY[task.name] = task


def site_task(name: str) -> SiteTask:
    """Look up the program for a task name."""
    try:
        return _REGISTRY[name]
    except KeyError:
        known = ", ".join(sorted(_REGISTRY))
        raise ProtocolError(f"no site program answers task {name!r}; this version knows: {known}.") from None


def task_from_fields(
    fields: Any, arrays: Mapping[str, np.ndarray], participants: Sequence[str] | None
) -> Task:
    """Return the task that travelled as `Task.fields` and arrays; the question checks itself."""
    try:
        name, params = str(fields["name"]), dict(fields["params"])
        whom = None if participants is None else tuple(str(site) for site in participants)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"this task is malformed ({type(error).__name__}).") from None
    return Task(site_task(name).question.read(params, arrays), whom)


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
    digest
        Digest of the task, if it is known already.
    """

    asked_by: str = "server"
    masked: bool = False
    n_guaranteed: int = 1
    digest: str = ""


PLAIN = Channel()


class Guard:
    """A wrapper around one site's answers: policy, audit, clipping and noise. Each hook does nothing by
    default.
    """

    def before(self, task: Task, state: Mapping[str, np.ndarray], channel: Channel) -> None:
        """Raise to refuse the task; nothing has been computed yet."""

    def reads(self, here: Here, task: Task) -> tuple[Here, Task]:
        """Return what the program may read and is asked, or raise to refuse; nothing has been computed yet."""
        return here, task

    def make(
        self, program: SiteTask, here: Here, task: Task, channel: Channel
    ) -> tuple[SiteState, FloatArray] | None:
        """Return (state, vector) in place of the program's own run, or None; the first guard that does so is
        taken.
        """
        return None

    def after(self, task: Task, vector: FloatArray, channel: Channel) -> FloatArray:
        """Return what may leave the site."""
        return vector

    def refused(self, task: Task, error: Exception, channel: Channel) -> None:
        """Take note that the task was refused; the error goes on to whoever asked."""


class Site:
    """One site: its data, its state and the guards around its answers."""

    def __init__(
        self, name: str, data: SiteData, guards: Sequence[Guard] = (), device: Device = HOST
    ) -> None:
        self.name = name
        self.data = data
        self.device = device
        self.guards = tuple(guards)
        self.state: SiteState = {}
        self._memo: Memo = {}

    def with_data(self, data: SiteData) -> Site:
        """Return the same site, guards and state with other data and nothing remembered."""
        site = Site(self.name, data, self.guards, self.device)
        site.state = self.state
        return site

    @property
    def here(self) -> Here:
        """What a program may read."""
        return Here(self.name, self.data, self.state, self.device)

    def answer(self, task: Task, channel: Channel = PLAIN) -> FloatArray:
        """Return the vector for `task` and keep the new state."""
        try:
            program = site_task(task.name)
            for guard in self.guards:
                guard.before(task, self.state, channel)
            state, vector = self._make(program, task, channel)
            for guard in self.guards:
                vector = guard.after(task, vector, channel)
        except OSError:
            # A full disk is no refusal: it tells nothing about data, and the same question may be asked again.
            raise
        except Exception as error:
            # Also what nobody foresaw is a refusal for whoever asked, and may depend on data.
            for guard in self.guards:
                guard.refused(task, error, channel)
            raise
        self.state = state
        return vector

    def _make(self, program: SiteTask, task: Task, channel: Channel) -> tuple[SiteState, FloatArray]:
        here = self.here
        for guard in self.guards:
            here, task = guard.reads(here, task)
        for guard in self.guards:
            made = guard.make(program, here, task, channel)
            if made is not None:
                return made
        return answer_of_one(program, here, task.question, self._memo)


def answer_of_one(
    program: SiteTask, here: Here, question: Question, memo: Memo | None = None
) -> tuple[SiteState, FloatArray]:
    """Return the new state and the vector of a single site."""
    states, vectors = program.answer([here], question, {} if memo is None else memo)
    return states[0], vectors[0]


def answer_together(sites: Sequence[Site], task: Task, memo: Memo) -> FloatArray:
    """Return (K, n) the vectors of simulated sites, computed together unless one of them has guards."""
    if any(site.guards for site in sites):
        return stacked_vectors([site.answer(task) for site in sites], task.name)
    states, vectors = site_task(task.name).answer([site.here for site in sites], task.question, memo)
    for site, state in zip(sites, states, strict=True):
        site.state = state
    return vectors
