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

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from operator import is_
from typing import Any, ClassVar, Self

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.backend.device import HOST, Device
from feddbn.core.designs.recordings import SiteData, stacks
from feddbn.data.memory import AlignedSite
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
    """What a site's programs have to tell its owner; states of earlier versions have sentences."""
    stored = state.get(_NOTES)
    lines = [] if stored is None else bytes(stored).decode().split("\n")
    return tuple(
        Finding.from_dict(json.loads(line))
        if line.startswith("{")
        else Finding("text", "note", {"text": line})
        for line in lines
    )


@dataclass(frozen=True)
class Here:
    """What a program may read of one site; `data` and `state` are not to be written to. `device` is where it multiplies."""

    name: str
    data: SiteData
    state: SiteState
    device: Device = HOST


Answers = tuple[Sequence[SiteState], FloatArray]
_Program = Callable[[Here, Any], tuple[SiteState, FloatArray]]


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
    def names(self) -> tuple[str, ...]:
        """What such questions are called: one name for each form."""
        kind = self.question
        return tuple(f"{kind.name}.{form}" for form in kind.forms) or (kind.name,)

    def purpose(self, name: str) -> str:
        """What a site gives away by answering a question of this name."""
        return self.question.forms.get(name.rpartition(".")[2], self.question.purpose)


def one_by_one(
    answer: Callable[[Here, Any], tuple[SiteState, FloatArray]],
) -> Callable[[Sequence[Here], Any, Memo], Answers]:
    """Return the program for many sites from one for a single site."""
    return stacked(answer, lambda question: False)


def sum_of_units(
    question: type[Question], units: Callable[[Here, Any, str], Iterator[FloatArray]]
) -> SiteTask:
    """Return the task whose answer is the sum of its units of privacy; a site has at least one recording."""

    def answer(here: Here, question: Any) -> tuple[SiteState, FloatArray]:
        total: FloatArray | None = None
        for vector in units(here, question, "recording"):
            total = vector if total is None else total + vector
        if total is None:
            raise ProtocolError(
                f"this site has no recording to answer task {question.name!r} with.", code="no-recording"
            )
        return here.state, total

    return SiteTask(question, one_by_one(answer), units)


def stacked_vectors(vectors: Sequence[FloatArray], task: str) -> FloatArray:
    """(K, n) the vectors of K sites, which must be of one length."""
    if len({vector.shape for vector in vectors}) != 1:
        raise ProtocolError(
            f"the sites answered task {task!r} with vectors of different lengths.", code="different-lengths"
        )
    return np.stack(vectors)


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
    among
        Digest of the sites that are added up and of the versions of their data, if that is known.
    """

    asked_by: str = "server"
    masked: bool = False
    n_guaranteed: int = 1
    digest: str = ""
    among: str = ""


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

    def leaves(self) -> None:
        """All that `after` has seen since the last time leaves now."""

    def refused(self, task: Task, error: Exception, channel: Channel) -> None:
        """Take note that the task was refused; the error goes on to whoever asked."""

    def stays(self) -> None:
        """Nothing that `after` has seen since the last time leaves."""


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

    def here_for(self, question: Question) -> Here:
        """The same without variables that a question is not about."""
        own, here = tuple(self.data.variables), self.here
        asked = getattr(question, "variables", own)
        held = own if asked == own else tuple(name for name in own if name in asked)
        return here if held == own else replace(here, data=AlignedSite(held, here.data))

    def answer(self, task: Task, channel: Channel = PLAIN) -> FloatArray:
        """Return the vector for `task` and keep the new state."""
        return self.answer_all([task], [channel])[0]

    def answer_all(
        self,
        tasks: Sequence[Task],
        channels: Sequence[Channel],
        ended: Callable[[Task, Exception], None] = lambda task, error: None,
    ) -> list[FloatArray]:
        """Return the vectors for some tasks, one after the other, and keep the new state.

        If one of them may not be asked, none is answered. One that cannot be answered from the data ends the list, unless it
        is the first: what comes before it is answered as if each had been asked alone. `ended` hears of it. An answer after
        which nothing else may be answered ends the list, too (`Question.lets_go_on`).
        """
        before = self.state
        try:
            for task, channel in zip(tasks, channels, strict=True):
                with self._refusing(task, channel):
                    site_task(task.name)
                    for guard in self.guards:
                        guard.before(task, self.state, channel)
            vectors: list[FloatArray] = []
            for task, channel in zip(tasks, channels, strict=True):
                try:
                    vectors.append(self._answer(task, channel, is_new=len(tasks) > 1))
                except OSError:
                    raise
                except Exception as error:
                    if not vectors:
                        raise
                    ended(task, error)
                    break
                if not task.question.lets_go_on(vectors[-1]):
                    break
            for guard in self.guards:
                guard.leaves()
            return vectors
        except BaseException:
            self.state = before
            for guard in self.guards:
                guard.stays()
            raise

    def _answer(self, task: Task, channel: Channel, is_new: bool) -> FloatArray:
        with self._refusing(task, channel):
            if is_new:
                # What was answered since it was looked at counts, too.
                for guard in self.guards:
                    guard.before(task, self.state, channel)
            state, vector = self._make(site_task(task.name), task, channel)
            for guard in self.guards:
                vector = guard.after(task, vector, channel)
        self.state = state
        return vector

    @contextmanager
    def _refusing(self, task: Task, channel: Channel) -> Iterator[None]:
        """Tell guards of a refusal."""
        try:
            yield
        except OSError:
            # A full disk is no refusal: it tells nothing about data, and the same question may be asked again.
            raise
        except Exception as error:
            # Also what nobody foresaw is a refusal for whoever asked, and may depend on data.
            for guard in self.guards:
                guard.refused(task, error, channel)
            raise

    def _make(self, program: SiteTask, task: Task, channel: Channel) -> tuple[SiteState, FloatArray]:
        here = self.here_for(task.question)
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
    here = [site.here_for(task.question) for site in sites]
    states, vectors = site_task(task.name).answer(here, task.question, memo)
    for site, state in zip(sites, states, strict=True):
        site.state = state
    return vectors


# Programs that answer for many small sites as if they were one, along a leading axis.


def stacked(
    answer: Callable[[Here, Any], tuple[SiteState, FloatArray]],
    may_be: Callable[[Any], bool],
    own: Sequence[str] = (),
) -> Callable[[Sequence[Here], Any, Memo], Answers]:
    """Return the program for many sites from one for a single site that also reads a `StackedSite`.

    Sites that are alike are answered for together, all others one by one; every site has its own vector and state.

    Parameters
    ----------
    may_be
        Whether a question may be answered so; the answer must then depend on data and question only.
    own
        Names of the arrays that it adds to a state and that have the leading axis; others are the same for all.
    """

    def answers(sites: Sequence[Here], question: Any, memo: Memo) -> Answers:
        found: list[tuple[SiteState, FloatArray] | None] = [None] * len(sites)
        if may_be(question) and all(here.device is HOST for here in sites):
            for places, data in stacks([here.data for here in sites], question.q):
                state, vectors = answer(Here("many sites", data, {}), question)
                for k, place in enumerate(places):
                    # Copies: a view would keep the arrays of all sites alive as long as one site keeps its own.
                    added = {key: np.array(value[k]) if key in own else value for key, value in state.items()}
                    found[place] = ({**sites[place].state, **added}, vectors[k])
        each = [
            answer(here, question) if known is None else known
            for here, known in zip(sites, found, strict=True)
        ]
        return [state for state, _ in each], stacked_vectors([vector for _, vector in each], question.name)

    return answers


def answers(
    kind: type[Question],
    units: Callable[[Here, Any, str], Iterator[FloatArray]] | None = None,
    length: Callable[[Any], int] | None = None,
    *,
    together: Callable[[Any], bool] | None = None,
    own: Sequence[str] = (),
) -> Callable[[_Program], _Program]:
    """Make a program of a single site answer questions of a kind; see `SiteTask`.

    `together` and `own` are what `stacked` asks for, where it can also answer for many small sites at once.
    """

    def register(program: _Program) -> _Program:
        every = one_by_one(program) if together is None else stacked(program, together, own)
        register_site_task(SiteTask(kind, every, units, length))
        return program

    return register


# A site's state as a named, versioned record: every field is an array with a leading axis for the sites.
#
# A program reads the record of the sites it answers for, computes with it, and keeps it; each site stores its own part under
# the record's name. A record of another version is refused: a run goes on with the version it began with.

TOGETHER = "together"
"""Where a memo keeps the records of sites that were asked together, as arrays of all of them."""
# Bytes of them that are worth keeping a second time; beyond, they are put together anew in every round.
_ROOM = 1 << 28


@dataclass(frozen=True)
class Record:
    """Base of the records; a subclass is a frozen dataclass of arrays (K, ...).

    Attributes
    ----------
    prefix, version
        Name of the record and version of its fields.
    """

    prefix: ClassVar[str]
    version: ClassVar[int]

    @classmethod
    def is_in(cls, state: Mapping[str, np.ndarray]) -> bool:
        """Whether a state holds such a record of this version."""
        found = state.get(f"{cls.prefix}.version")
        if found is not None and int(found) != cls.version:
            raise StateError(
                f"this site's {cls.prefix} state has version {int(found)}, but this feddbn reads {cls.version}; "
                "finish the run with the version it began with.",
                code="other-version",
            )
        return found is not None

    @classmethod
    def read(
        cls, states: Sequence[Mapping[str, np.ndarray]], memo: Memo | None = None, first: str = ""
    ) -> Self:
        """Return the record of these sites together; a memo may know it from what was kept last.

        `first` is the name of the first of them, under which the memo has it.
        """
        known = {} if memo is None else memo.get(TOGETHER, {})
        kept, record = known.get((cls, first), ((), None))
        if len(kept) == len(states) and all(map(is_, kept, states)) and isinstance(record, cls):
            return record
        if not all(cls.is_in(state) for state in states):
            raise StateError(
                f"this site has no {cls.prefix} state of this run; it must begin with its first round.",
                code="no-state",
            )
        values: dict[str, Any] = {
            item.name: np.stack([state[f"{cls.prefix}.{item.name}"] for state in states])
            for item in fields(cls)
        }
        return cls(**values)

    def kept(
        self,
        states: Sequence[Mapping[str, np.ndarray]],
        only: Iterable[str] | None = None,
        memo: Memo | None = None,
        first: str = "",
    ) -> list[SiteState]:
        """Return the sites' states with this record in them; `only` names the fields that have changed.

        A memo keeps it for the next `read` of the same states.
        """
        names = [item.name for item in fields(self)] if only is None else list(only)
        columns = [(f"{self.prefix}.{name}", getattr(self, name)) for name in names]
        version = np.array(self.version)
        # Copies: a view would keep the arrays of all sites alive as long as one site keeps its own.
        new = [
            {
                **state,
                f"{self.prefix}.version": version,
                **{key: np.array(array[k]) for key, array in columns},
            }
            for k, state in enumerate(states)
        ]
        if memo is not None:
            known = memo.setdefault(TOGETHER, {})
            known.pop((type(self), first), None)
            if self._n_bytes + sum(record._n_bytes for _, record in known.values()) <= _ROOM:
                known[type(self), first] = (tuple(new), self)
        return new

    @property
    def _n_bytes(self) -> int:
        return sum(getattr(self, item.name).nbytes for item in fields(self))
