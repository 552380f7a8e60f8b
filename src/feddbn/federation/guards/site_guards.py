"""Guards around a site's answers: its policy, bounds of numbers, and its audit log.

Order matters: policy and study first (refuse before anything is computed), noise second, audit last (it writes what
leaves).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import SiteRefused
from feddbn.federation.guards.noise import DpGuard
from feddbn.federation.protocol.messages import code_of, digest_of, sentence_of
from feddbn.federation.protocol.site import Channel, Guard
from feddbn.federation.protocol.task import Task
from feddbn.privacy.audit import AuditChain
from feddbn.privacy.integers import largest_summand
from feddbn.privacy.policy import SitePolicy

MOST_WORDS = 240


class PolicyGuard(Guard):
    """Refuses every task its site's policy does not allow.

    Parameters
    ----------
    policy
        The rules.
    n_sites
        Sites of the federation, for tasks that ask all of them.
    answered
        Answers given so far in this run, by task name (after a restart, from the audit log).
    """

    def __init__(self, policy: SitePolicy, n_sites: int, answered: Mapping[str, int] | None = None) -> None:
        self._policy = policy
        self._n_sites = n_sites
        self._answered: Counter[str] = Counter(answered or {})

    def before(self, task: Task, state: Mapping[str, np.ndarray], channel: Channel) -> None:
        """Check name, feature maps, number of sites, rounds and masking."""
        self._policy.check_sites(self._n_sites if task.participants is None else len(set(task.participants)))
        self._policy.check_task(
            task.name,
            task.question.feature_maps,
            self._answered[task.name] + 1,
            channel.masked,
        )

    def ended(self, task: Task, leaves: bool) -> None:
        """Count the answer."""
        self._answered[task.name] += leaves


@dataclass(frozen=True)
class About:
    """What every entry of a run's log says about it: the run, its study with its lead and variables, the owner's budget."""

    run: str = ""
    study: str = ""
    study_digest: str = ""
    lead: str = ""
    variables: tuple[str, ...] = ()
    budget: float | None = None


def in_short(task: Task, variables: tuple[str, ...] = ()) -> str:
    """Return a question's parameters for people: small values as they are, of arrays their shapes.

    `variables` are the study's: where the question names just these, they are not repeated.
    """
    words = []
    for name, value in task.params.items():
        if name == "variables" and tuple(value) == variables:  # type: ignore[arg-type]
            continue
        words.append(f"{name}={_shown(value)}")
    words += [f"{name} ({'x'.join(map(str, array.shape))})" for name, array in task.arrays.items()]
    if task.participants is not None:
        words.append(f"{len(set(task.participants))} sites")
    text = ", ".join(words)
    return text if len(text) <= MOST_WORDS else f"{text[: MOST_WORDS - 3]}..."


def _shown(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"({len(value)} values)" if len(value) > 4 else f"({' '.join(_shown(part) for part in value)})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class AuditGuard(Guard):
    """Writes one audit entry for every answer and every refusal.

    Parameters
    ----------
    site
        Name of the site.
    write
        Appends one line to the log; durable when it returns.
    clock
        Returns the time as ISO text.
    chain
        Where the log stands.
    spending
        The guard that adds noise, if there is one.
    about
        Run, study and budget.
    weighted
        Whether rows have secret weights.
    """

    def __init__(
        self,
        site: str,
        write: Callable[[str], None],
        clock: Callable[[], str],
        chain: AuditChain | None = None,
        spending: DpGuard | None = None,
        about: About | None = None,
        weighted: bool = False,
    ) -> None:
        self._site = site
        self._write = write
        self._clock = clock
        self._chain = chain or AuditChain()
        self._spending = spending
        self._about = about or About()
        self._weighted = weighted

    def after(self, task: Task, vector: FloatArray, channel: Channel) -> FloatArray:
        """Write what leaves, before it leaves."""
        spending = self._spending
        noise = None if spending is None else spending.last_noise(task)
        parts = [*["masked"] * channel.masked, *["weighted"] * self._weighted]
        parts += [spending.label] if spending is not None and noise is not None else []
        self._add(
            task,
            channel,
            event="sent",
            length=len(vector),
            norm=float(np.linalg.norm(vector)),
            protection=" and ".join(parts) or "none",
            unit=None if spending is None else spending.unit,
            noise_multiplier=noise,
            epsilon=None if spending is None else spending.epsilon(),
            delta=None if spending is None else spending.delta,
        )
        return vector

    def refused(self, task: Task, error: Exception, channel: Channel) -> None:
        """Write that it was."""
        self._add(task, channel, event="refused", note=sentence_of(error), code=code_of(error))

    def _add(self, task: Task, channel: Channel, **said: Any) -> None:
        """Write an entry, with who asked what, for which study."""
        about = self._about
        self._chain.add(
            write=self._write,
            time=self._clock(),
            site=self._site,
            task=task.name,
            asked_by=f"{about.lead} through the {channel.asked_by}" if about.lead else channel.asked_by,
            run=about.run,
            study=about.study,
            study_digest=about.study_digest,
            task_digest=channel.digest or digest_of(task),
            asked=in_short(task, about.variables),
            budget=about.budget,
            **said,
        )


# The guard that keeps numbers at home with which one site would spoil a sum: not finite, too large to mask, too long.


class BoundsGuard(Guard):
    """Refuses an answer that no sum should have; no sentence says a number of the data.

    Parameters
    ----------
    n_sites
        Sites of the study: so many numbers are added up.
    max_norm
        Largest Euclidean norm of an answer that the study declares, or None.
    """

    def __init__(self, n_sites: int, max_norm: float | None = None) -> None:
        self._n_sites = n_sites
        self._max_norm = max_norm

    def after(self, task: Task, vector: FloatArray, channel: Channel) -> FloatArray:
        """Return the vector, or say what keeps it here."""
        if not np.all(np.isfinite(vector)):
            raise SiteRefused(
                f"the answer to task {task.name!r} holds NaN or infinity and stays here; look for infinite or enormous "
                "values in the data of this site (`feddbn site check`).",
                code="not-finite",
            )
        limit = largest_summand(self._n_sites)
        if channel.masked and not np.abs(vector).max(initial=0.0) < limit:
            raise SiteRefused(
                f"the answer to task {task.name!r} holds a number of magnitude {limit:.3g} or more, which could overflow a "
                f"sum over {self._n_sites} sites, and stays here; give the variables of this site smaller units.",
                code="too-large",
            )
        if self._max_norm is not None and not np.linalg.norm(vector) <= self._max_norm:
            raise SiteRefused(
                f"the answer to task {task.name!r} is longer than the study allows (max_norm = {self._max_norm:g}) and stays "
                "here; check the units and outliers of this site, or ask the lead for a larger max_norm.",
                code="too-long",
            )
        return vector
