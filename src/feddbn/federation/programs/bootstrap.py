"""Resampled moments as a program: sums of resamples that sites draw of their own rows (`programs.gram`).

B resamples cost one stacked sum, or a few where that grows too long. Units of privacy are not split, so differential privacy
cannot be put around it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.moments import Moments, as_of_rows, sums_length
from feddbn.errors import ProtocolError
from feddbn.federation.programs.gram import FLOATS_PER_TASK, GramQuestion
from feddbn.federation.protocol.plan import Plan, Planned
from feddbn.federation.protocol.task import ServerProgram, Task


@dataclass(frozen=True)
class ResampledMoments:
    """Moments of the data of all sites, and of every replicate."""

    full: Moments
    replicates: tuple[Moments, ...]

    def worth(self, share: float) -> ResampledMoments:
        """The same where a row is worth a share of a complete one."""
        full, *others = (
            Moments(m.n * share, m.mean, m.scatter * share) for m in (self.full, *self.replicates)
        )
        return ResampledMoments(full, tuple(others))


def bootstrap_plan(columns: int, n_replicates: int, *, is_curved: bool = False) -> Plan:
    """What `bootstrap_program` may ask about rows of so many columns."""
    length = sums_length(columns)
    per_task = max(1, FLOATS_PER_TASK // length)
    times = -(-(n_replicates + 1) // per_task)
    numbers = min(per_task, n_replicates + 1) * length
    first = () if is_curved else (Planned("gram.resamples", length),)
    return *first, Planned("gram.resamples", numbers, times, times)


def bootstrap_program(
    variables: tuple[str, ...],
    n_lags: int,
    n_replicates: int,
    *,
    resampling: str = "bootstrap",
    block_length: int | str = "auto",
    unit: str = "auto",
    seed: int = 0,
    center: str = "none",
    curved: GramQuestion | None = None,
) -> ServerProgram[ResampledMoments]:
    """Ask for the mean, then for stacked sums of resamples about it; `curved` asks for rows of its design instead."""
    d = len(variables)
    q = (n_lags + 1) * d if curved is None else curved.design.q
    length = sums_length(q)
    per_task = max(1, FLOATS_PER_TASK // length)

    rows = GramQuestion(n_lags=n_lags, variables=variables, center=center) if curved is None else curved

    def task(origin: FloatArray, first: int, stop: int) -> Task:
        question = replace(
            rows,
            center=center,
            resampling=resampling,
            first=first,
            stop=stop,
            block_length=block_length if isinstance(block_length, int) else 0,
            block_rule="given" if isinstance(block_length, int) else block_length,
            resampled=unit,
            seed=seed,
            origin=origin,
        )
        return Task(question, note={"replicates": float(max(stop, 0))})

    # A first sum about 0 only finds the mean; sums about the mean lose no digits to large levels. Curved rows are in public
    # units, about their level.
    origin = np.zeros(q)
    if curved is None:
        answer = yield task(origin, -1, 0)
        origin = Moments.from_sums(answer.value, q).mean
    found: list[Moments] = []
    for first in range(-1, n_replicates, per_task):
        stop = min(first + per_task, n_replicates)
        answer = yield task(origin, first, stop)
        if answer.value.shape != ((stop - first) * length,):
            raise ProtocolError(
                f"the sum of {stop - first} replicates has shape {answer.value.shape}; "
                f"{q} columns give {(stop - first) * length} numbers.",
                code="bad-sum",
            )
        found += [
            as_of_rows(Moments.from_sums(row, q, origin))
            for row in answer.value.reshape(stop - first, length)
        ]
    return ResampledMoments(found[0], tuple(found[1:]))
