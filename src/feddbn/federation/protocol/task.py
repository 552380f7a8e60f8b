"""What a server may ask of sites, and what it gets back.

A federation has one verb, ``sum``. A `Task` is a question with the sites it goes to. The answer is a `Sum`: the
elementwise sum of the sites' vectors and the names of those who contributed. A server program is a generator that
yields tasks and receives sums; it has no way to see one site's vector.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import ProtocolError
from feddbn.federation.protocol.question import Param, Question

__all__ = [
    "Federation",
    "Observer",
    "ServerProgram",
    "Sum",
    "Task",
    "asked_of",
    "asking",
    "run_program",
    "task_digest",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """One request for a sum.

    Attributes
    ----------
    question
        What is asked.
    participants
        Names of the sites asked, or None for all of them.
    note
        Progress for people (round, h, residuals); no program reads it and it does not travel.
    """

    question: Question
    participants: tuple[str, ...] | None = None
    note: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Which site program answers."""
        return self.question.name

    @property
    def params(self) -> dict[str, Param]:
        """Small plain values of the question."""
        return self.question.params

    @property
    def arrays(self) -> dict[str, FloatArray]:
        """Arrays of the question, broadcast to every site."""
        return self.question.arrays

    def fields(self) -> dict[str, Any]:
        """Return what travels beside the arrays, as JSON values; `site.task_from_fields` is the way back."""
        params = {key: list(v) if isinstance(v, tuple) else v for key, v in sorted(self.params.items())}
        return {"name": self.name, "params": params}


def task_digest(
    fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray], participants: Sequence[str] | None = None
) -> str:
    """Return a SHA-256 of everything a site program reads, from what travels of a task."""
    table = [[name, arrays[name].dtype.str, list(arrays[name].shape)] for name in sorted(arrays)]
    whom = None if participants is None else sorted(participants)
    head = json.dumps([fields, table, whom], sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(head.encode())
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Sum:
    """The answer to a task: `value` is the sum over `contributors` (sorted by name)."""

    value: FloatArray
    contributors: tuple[str, ...]

    def __post_init__(self) -> None:
        self.value.setflags(write=False)


class Federation(Protocol):
    """What every runtime provides, and all that methods and server programs may use."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        ...

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of what the sites measure: all of them where sites hold different ones."""
        ...

    @property
    def answered_tasks(self) -> frozenset[str] | None:
        """Names of the tasks its sites answer, None for every task they know."""
        ...

    def state_of(self, site: str) -> Mapping[str, np.ndarray] | None:
        """Return the state of a site that lives in this process; None where it is the site's own business."""
        ...

    def sum(self, task: Task) -> Sum:
        """Ask the participating sites and return the sum of their vectors, added in sorted site order."""
        ...


ServerProgram = Generator[Task, Sum, T]
Observer = Callable[[Task, Sum], None]


def asking(program: ServerProgram[T], change: Callable[[Question], Question]) -> ServerProgram[T]:
    """Run a server program with every question changed."""
    return _changed(program, lambda task: replace(task, question=change(task.question)))


def asked_of(program: ServerProgram[T], sites: tuple[str, ...]) -> ServerProgram[T]:
    """Run a server program as if there were no other sites than these."""
    return _changed(program, lambda task: replace(task, participants=sites))


def _changed(program: ServerProgram[T], change: Callable[[Task], Task]) -> ServerProgram[T]:
    try:
        task = next(program)
        while True:
            task = program.send((yield change(task)))
    except StopIteration as end:
        result: T = end.value
        return result


def run_program(program: ServerProgram[T], federation: Federation, observer: Observer | None = None) -> T:
    """Drive a server program to its result, one sum at a time."""
    try:
        task = next(program)
        while True:
            answer = federation.sum(task)
            if not np.all(np.isfinite(answer.value)):
                raise ProtocolError(
                    f"the sum for task {task.name!r} is not finite; some site sent NaN or infinity."
                )
            if observer is not None:
                observer(task, answer)
            task = program.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
