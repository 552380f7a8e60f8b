"""A plan: which questions a study may ask, how often, and how many numbers leave a site by each.

Every program has its plan beside it, written by whoever writes the program. Owners read the plan before they approve, a
site holds every question against it, and what a study costs is the sum over it. A test runs all programs and holds them
against their plans.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = ["Plan", "Planned", "most_numbers", "of_task", "repeated", "tasks_in", "usual_numbers"]


@dataclass(frozen=True)
class Planned:
    """One kind of question in a plan.

    Attributes
    ----------
    task
        Name of the kind.
    numbers
        Most numbers in one answer.
    times
        Most times that it is asked.
    usual
        How many times it is asked of clean data.
    least
        Numbers in an answer about clean data; None: as many as `numbers`.
    """

    task: str
    numbers: int
    times: int = 1
    usual: int = 1
    least: int | None = None


Plan = tuple[Planned, ...]


def most_numbers(plan: Iterable[Planned]) -> int:
    """How many numbers leave a site at most."""
    return sum(ask.times * ask.numbers for ask in plan)


def usual_numbers(plan: Iterable[Planned]) -> int:
    """How many leave it where data are clean."""
    return sum(ask.usual * (ask.numbers if ask.least is None else ask.least) for ask in plan)


def tasks_in(plan: Iterable[Planned]) -> tuple[str, ...]:
    """Names of the kinds, each once, in the order in which they are asked first."""
    return tuple(dict.fromkeys(ask.task for ask in plan))


def of_task(plan: Iterable[Planned], task: str) -> tuple[int, int]:
    """How often a kind may be asked in all, and how many numbers one answer may have."""
    found = [ask for ask in plan if ask.task == task]
    return sum(ask.times for ask in found), max((ask.numbers for ask in found), default=0)


def repeated(plan: Iterable[Planned], times: int) -> Plan:
    """The same for a program that runs so many times."""
    return tuple(replace(ask, times=ask.times * times, usual=ask.usual * times) for ask in plan)
