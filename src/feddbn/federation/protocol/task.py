"""What a server may ask of sites, and what it gets back.

A federation has one verb, ``sum``. A `Task` names a site program, the arrays broadcast to every site and small
parameters. The answer is a `Sum`: the elementwise sum of the sites' vectors and the names of those who contributed.
A server program is a generator that yields tasks and receives sums; it has no way to see one site's vector.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np

from feddbn.core.arrays import FloatArray

__all__ = ["Federation", "Observer", "Param", "ServerProgram", "Sum", "Task", "run_program"]

Param = str | int | float | bool | None | tuple[str, ...] | tuple[int, ...] | tuple[float, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """One request for a sum.

    Attributes
    ----------
    name
        Which site program answers.
    arrays
        Broadcast to every site, float64.
    params
        Small plain values.
    participants
        Names of the sites asked, or None for all of them.
    note
        Progress for people (round, h, residuals); no program reads it.
    """

    name: str
    arrays: Mapping[str, FloatArray] = field(default_factory=dict)
    params: Mapping[str, Param] = field(default_factory=dict)
    participants: tuple[str, ...] | None = None
    note: Mapping[str, float] = field(default_factory=dict)


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


def run_program(program: ServerProgram[T], federation: Federation, observer: Observer | None = None) -> T:
    """Drive a server program to its result, one sum at a time."""
    try:
        task = next(program)
        while True:
            answer = federation.sum(task)
            if not np.all(np.isfinite(answer.value)):
                from feddbn.errors import ProtocolError

                raise ProtocolError(
                    f"the sum for task {task.name!r} is not finite; some site sent NaN or infinity."
                )
            if observer is not None:
                observer(task, answer)
            task = program.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
