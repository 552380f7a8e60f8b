"""The site's half: programs that answer questions, and the site that guards them.

Rules of this file
------------------
- A site program is a pure function of what it finds `Here` and the question. A simulated site and a deployed one run it
  alike.
- State is a flat dict of numpy arrays, so that it can be stored without pickle and restored bit for bit.
- A memo keeps what can be computed again: it is never stored, may be empty at any time, and no answer depends on it.
- Wrappers (audit, policy, clipping and noise) see tasks and vectors, never algorithms: each is a `Guard`.
- A task that fails changes nothing: the new state is kept only after every guard has passed the vector.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import SiteData
from feddbn.data.site import with_columns
from feddbn.errors import ProtocolError, StateError
from feddbn.federation.protocol.task import Question, Task
from feddbn.findings import Finding

SiteState = dict[str, np.ndarray]
Memo = dict[str, Any]
_NOTES = "notes"


def with_notes(state: SiteState, notes: Sequence[Finding]) -> SiteState:
    """A state that tells the site's owner these findings, and no others; they never leave the site."""
    rest = {key: value for key, value in state.items() if key != _NOTES}
    text = "\n".join(json.dumps(note.to_dict()) for note in notes).encode()
    return {**rest, _NOTES: np.frombuffer(text, dtype=np.uint8)} if notes else rest


def notes_of(state: Mapping[str, np.ndarray]) -> tuple[Finding, ...]:
    """What a site's programs have to tell its owner."""
    stored = state.get(_NOTES)
    lines = [] if stored is None else bytes(stored).decode().split("\n")
    return tuple(Finding.from_dict(json.loads(line)) for line in lines)


@dataclass(frozen=True)
class Here:
    """What a program may read of a site; `data` and `state` are not to be written to, only `memo` is."""

    name: str
    data: SiteData
    state: SiteState
    memo: Memo = field(default_factory=dict)


_Program = Callable[[Here, Any], tuple[SiteState, FloatArray]]
_Units = Callable[[Here, Any, str], Iterator[FloatArray]]


@dataclass(frozen=True)
class SiteTask:
    """How a site answers one kind of question.

    Attributes
    ----------
    question
        The kind; its name is the task's.
    answer
        ``(here, question) -> (new state, vector)``.
    units
        Yields the vector split by unit of privacy, where that is possible.
    length
        How long an answer is, where the question alone tells; split by unit, an answer may have no unit at all.
    """

    question: type[Question]
    answer: _Program
    units: _Units | None = None
    length: Callable[[Any], int] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What such questions are called: one name for each form."""
        kind = self.question
        return tuple(f"{kind.name}.{form}" for form in kind.forms) or (kind.name,)

    def purpose(self, name: str) -> str:
        """What a site gives away by answering a question of this name."""
        return self.question.forms.get(name.rpartition(".")[2], self.question.purpose)


_REGISTRY: dict[str, SiteTask] = {}


def register_site_task(task: SiteTask) -> None:
    """Make a site program answer questions of its kind."""
    _REGISTRY.update(dict.fromkeys(task.names, task))


def site_task(name: str) -> SiteTask:
    """Look up the program for a task name."""
    try:
        return _REGISTRY[name]
    except KeyError:
        known = ", ".join(site_tasks())
        raise ProtocolError(
            f"no site program answers task {name!r}; this version knows: {known}.", code="unknown-task"
        ) from None


def site_tasks() -> list[str]:
    """Names of all tasks that sites of this version answer."""
    return sorted(_REGISTRY)


def task_from_fields(
    fields: Any, arrays: Mapping[str, np.ndarray], participants: Sequence[str] | None
) -> Task:
    """Return the task that travelled as `Task.fields` and arrays; the question checks itself."""
    try:
        name, params = str(fields["name"]), dict(fields["params"])
        whom = None if participants is None else tuple(str(site) for site in participants)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"this task is malformed ({type(error).__name__}).", code="bad-task") from None
    question = site_task(name).question.read(params, arrays)
    if question.name != name:
        raise ProtocolError(
            f"this task is called {name!r}, but it is of the form {question.name!r}.", code="bad-task"
        )
    return Task(question, whom)


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

    def ended(self, task: Task, leaves: bool) -> None:
        """The question has been dealt with; `leaves` tells whether what `after` has seen leaves now."""


class Site:
    """One site: its data, its state and the guards around its answers."""

    def __init__(self, name: str, data: SiteData, guards: Sequence[Guard] = ()) -> None:
        self.name = name
        self.data = data
        self.guards = tuple(guards)
        self.state: SiteState = {}
        self._memo: Memo = {}

    def with_data(self, data: SiteData) -> Site:
        """Return the same site, guards and state with other data and nothing remembered."""
        site = Site(self.name, data, self.guards)
        site.state = self.state
        return site

    @property
    def here(self) -> Here:
        """What a program may read."""
        return Here(self.name, self.data, self.state, self._memo)

    def here_for(self, question: Question) -> Here:
        """The same without variables that a question is not about."""
        own, here = tuple(self.data.variables), replace(self.here, data=question.dealt(self.data))
        asked = getattr(question, "variables", own)
        held = own if asked == own else tuple(name for name in own if name in asked)
        return here if held == own else replace(here, data=with_columns(here.data, held))

    def answer(self, task: Task, channel: Channel = PLAIN) -> FloatArray:
        """Return the vector for `task` and keep the new state."""
        leaves = False
        try:
            program = site_task(task.name)
            for guard in self.guards:
                guard.before(task, self.state, channel)
            state, vector = self._make(program, task, channel)
            for guard in self.guards:
                vector = guard.after(task, vector, channel)
            self.state, leaves = state, True
        except OSError:
            # A full disk is no refusal: it tells nothing about data, and the same question may be asked again.
            raise
        except Exception as error:
            # Also what nobody foresaw is a refusal for whoever asked, and may depend on data.
            for guard in self.guards:
                guard.refused(task, error, channel)
            raise
        finally:
            for guard in self.guards:
                guard.ended(task, leaves)
        return vector

    def _make(self, program: SiteTask, task: Task, channel: Channel) -> tuple[SiteState, FloatArray]:
        here = self.here_for(task.question)
        for guard in self.guards:
            here, task = guard.reads(here, task)
        for guard in self.guards:
            made = guard.make(program, here, task, channel)
            if made is not None:
                return made
        return program.answer(here, task.question)


def answers(
    kind: type[Question], units: _Units | None = None, length: Callable[[Any], int] | None = None
) -> Callable[[_Program], _Program]:
    """Make a program answer questions of a kind; see `SiteTask`."""

    def register(program: _Program) -> _Program:
        register_site_task(SiteTask(kind, program, units, length))
        return program

    return register


@dataclass(frozen=True)
class Record:
    """Part of a site's state as a named record: a subclass is a frozen dataclass of arrays.

    Attributes
    ----------
    prefix
        Name of the record.
    """

    prefix: ClassVar[str]

    @classmethod
    def read(cls, state: Mapping[str, np.ndarray]) -> Self:
        """Return the record in a state."""
        try:
            values: dict[str, Any] = {item.name: state[f"{cls.prefix}.{item.name}"] for item in fields(cls)}
        except KeyError:
            raise StateError(
                f"this site has no {cls.prefix} state of this run; it must begin with its first round.",
                code="no-state",
            ) from None
        return cls(**values)

    def kept(self, state: Mapping[str, np.ndarray]) -> SiteState:
        """Return the state with this record in it."""
        own = {f"{self.prefix}.{item.name}": np.asarray(getattr(self, item.name)) for item in fields(self)}
        return {**state, **own}
