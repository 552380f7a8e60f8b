"""What the questions of one study may be about.

A scope is made from the study that a site agreed to, so what may be asked is settled at the greeting. Every kind of
question says for itself whether it lies within a scope (`Question.check_scope`); a site asks it before it reads a row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from feddbn.errors import SiteRefused
from feddbn.privacy.policy import TRANSFORMATIONS

__all__ = ["Scope"]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What a study may ask.

    Attributes
    ----------
    tasks
        Names of its tasks; None: the method is not in the method table, and the site's policy alone decides.
    variables
        In the study's order.
    sites
        All sites of the study, sorted.
    lags
        Numbers of lags that its questions may have.
    folds
        Which rows may be held out: (block, number of blocks, thousandths).
    transformations
        What may be done to rows, out of `privacy.policy.TRANSFORMATIONS`.
    degrees, most_cycles
        Polynomials in time that may be taken off, and how many cycles.
    inputs
        Positions of variables that only act on others.
    most_clusters
        Into how many clusters sites may be sorted.
    numbers
        Values that the study gives to parameters of rounds, by name; where it leaves them open, the method chooses.
    unit
        What its noise protects; None: its sums carry no noise.
    resampling
        What a question about resamples must say, by parameter; empty: none is asked.
    parameters
        The study's own, for what only one kind of question needs to know.
    """

    tasks: tuple[str, ...] | None = None
    variables: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    lags: Collection[int] = ()
    folds: tuple[tuple[int, ...], ...] = ()
    transformations: tuple[str, ...] = TRANSFORMATIONS
    degrees: tuple[int, ...] = (0,)
    most_cycles: int = 0
    inputs: tuple[int, ...] = ()
    most_clusters: int = 1
    numbers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    unit: str | None = None
    resampling: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def check_task(self, task: str) -> None:
        """Refuse a task that is not one of the study's."""
        if self.tasks is not None and task not in self.tasks:
            raise SiteRefused(
                f"the study does not ask for the task {task!r}; its method and parameters ask for {', '.join(self.tasks)}."
            )

    def check_participants(self, task: str, participants: Collection[str] | None) -> None:
        """Refuse a sum over some of the sites, unless the study has sites take part in turns."""
        if participants is None or set(participants) == set(self.sites):
            return
        in_turns = self.parameters.get("participation", 1.0) != 1.0
        if not set(participants) <= set(self.sites) or not in_turns:
            raise SiteRefused(f"the study does not ask for the task {task!r} from some of its sites only.")

    def require(self, is_within: bool, task: str, sentence: str) -> None:
        """Refuse a question that is not within the study."""
        if not is_within:
            raise SiteRefused(f"task {task!r} is not within the study: {sentence}.")
