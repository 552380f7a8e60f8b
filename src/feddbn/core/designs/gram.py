"""The Gram matrix of a design, streamed over recordings, nuisances taken off: what sites add up.

Theory of operation: rows whose mean is common to all sites are kept as moments (their mean is only known when
all sites have been added up); rows whose nuisance is their recording's own are projected off it first. Both
parts add up over recordings and over sites.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.backend.device import HOST, Device
from feddbn.core.designs.design import Design
from feddbn.core.designs.joint import joint_moments
from feddbn.core.designs.nuisance import SHARED, Nuisance, TimeBasis, project_off
from feddbn.core.designs.recordings import Recording, over_parts, usable_runs
from feddbn.core.designs.rows import design_rows, public_blocks
from feddbn.core.statistics.moments import Moments, sums_length, symmetric, upper_triangle

__all__ = [
    "Gram",
    "gram_of",
    "gram_sums_length",
    "nuisance_basis",
    "nuisance_grams",
    "recording_gram",
    "tried_grams",
    "whole_rows",
]


def gram_sums_length(q: int) -> int:
    """Return the length of `Gram.to_sums` for q columns."""
    return 2 + sums_length(q)


@dataclass(frozen=True)
class Gram:
    """Sums over design rows.

    Attributes
    ----------
    shared
        Moments of the rows whose mean is common to all sites.
    own
        Moments, with mean 0, of the rows whose nuisance was their own and has been taken off.
    n_removed
        Number of nuisance parameters that took.
    """

    shared: Moments
    own: Moments
    n_removed: float

    @classmethod
    def empty(cls, q: int) -> Gram:
        """Sums over no rows; the neutral element of `merge`."""
        return cls(Moments.empty(q), Moments.empty(q), 0.0)

    @property
    def n(self) -> float:
        """Number of rows."""
        return self.shared.n + self.own.n

    @property
    def n_nuisance(self) -> float:
        """Number of nuisance parameters: those taken off, and the common mean if any rows share one."""
        return self.n_removed + float(self.shared.n > 0)

    @property
    def scatter(self) -> FloatArray:
        """(q, q) sums of squares and products after all nuisances."""
        return self.moments.scatter

    @property
    def moments(self) -> Moments:
        """All rows as moments after their nuisances; the mean is that of the shared rows, if there are any."""
        if self.own.n == 0:
            return self.shared
        if self.shared.n == 0:
            return self.own
        return Moments(self.n, self.shared.mean, self.shared.scatter + self.own.scatter)

    def merge(self, other: Gram) -> Gram:
        """Sums over both groups of recordings."""
        return Gram(
            self.shared.merge(other.shared), self.own.merge(other.own), self.n_removed + other.n_removed
        )

    def to_sums(self) -> FloatArray:
        """One vector that adds up: own rows, parameters taken off, then count, totals and products."""
        vector = self.shared.to_sums()
        q = self.shared.q
        vector[1 + q :] += upper_triangle(self.own.scatter)
        return np.concatenate([[self.own.n, self.n_removed], vector])

    @classmethod
    def from_sums(cls, vector: FloatArray, q: int) -> Gram:
        """Inverse of `to_sums`, also for a sum of such vectors.

        Which products are of shared and which of own rows is not told apart by then: they are put together.
        """
        n_own, n_removed, n_shared = (float(value) for value in vector[:3])
        totals, scatter = vector[3 : 3 + q], symmetric(vector[3 + q :], q)
        if n_shared <= 0:
            return cls(Moments.empty(q), Moments(n_own, np.zeros(q), scatter), n_removed)
        scatter -= np.outer(totals, totals) / n_shared
        own = Moments(n_own, np.zeros(q), np.zeros((q, q)))
        return cls(Moments(n_shared, totals / n_shared, scatter), own, n_removed)


def gram_of(design: Design, recordings: Iterable[Recording]) -> Gram:
    """Return the sums over all recordings."""
    total: Gram | None = None
    for recording in recordings:
        part = recording_gram(design, recording)
        total = part if total is None else total.merge(part)
    return Gram.empty(design.q) if total is None else total


def recording_gram(design: Design, recording: Recording, device: Device = HOST) -> Gram:
    """Return the sums of one recording: the unit of privacy; `device` multiplies for linear designs."""
    if design.nuisance.has_time:
        return nuisance_grams(design, recording, [design.nuisance], device)[0]
    q, scope = design.q, design.nuisance.scope
    if design.is_linear and scope != "label":
        parts = over_parts(recording, design.n_lags, partial(_linear_moments, design, device))
        moments = reduce(Moments.merge, parts)
        if scope == "all":
            return Gram(moments, Moments.empty(q), 0.0)
        return Gram(Moments.empty(q), _about_its_mean(moments), float(moments.n > 0))
    groups: dict[Hashable, Moments] = {}
    for chunk in design_rows(design, recording.blocks()):
        for key, rows in design.nuisance.groups(chunk.values, chunk.labels, recording.name):
            groups[key] = groups.get(key, Moments.empty(q)).merge(Moments.of_rows(rows))
    shared, own = groups.pop(SHARED, Moments.empty(q)), Moments.empty(q)
    for moments in groups.values():
        own = own.merge(_about_its_mean(moments))
    return Gram(shared, own, float(len(groups)))


def _linear_moments(design: Design, device: Device, part: Recording) -> Moments:
    blocks = public_blocks(design, part.blocks())
    return Moments.of_blocks(blocks, design.n_lags, sum(design.widths), device=device)


def _about_its_mean(moments: Moments) -> Moments:
    return Moments(moments.n, np.zeros_like(moments.mean), moments.scatter)


def whole_rows(design: Design, recording: Recording) -> tuple[FloatArray, FloatArray]:
    """All design rows of a recording at once, with their times; for what cannot be done piece by piece."""
    chunks = list(design_rows(design, recording.blocks()))
    if not chunks:
        return np.empty((0, design.q)), np.empty(0)
    times = [chunk.time + np.arange(len(chunk.values), dtype=np.float64) for chunk in chunks]
    return np.concatenate([chunk.values for chunk in chunks]), np.concatenate(times)


def nuisance_basis(nuisance: Nuisance, times: FloatArray) -> FloatArray | None:
    """(n, k) columns, the constant among them, that rows at these times are taken off; None if all sites share one mean."""
    if nuisance.scope != "recording":
        return None
    constant = np.ones((len(times), 1))
    if not nuisance.has_time or not len(times):
        return constant
    return np.concatenate([constant, nuisance.columns(times, (float(times[0]), float(times[-1])))], axis=1)


def nuisance_grams(
    design: Design, recording: Recording, tried: Sequence[Nuisance], device: Device = HOST
) -> list[Gram]:
    """The sums of one recording off each of these nuisances of its own; it is read twice at most, however many there are."""
    return tried_grams(design, recording, tried, device)[1]


def tried_grams(
    design: Design, recording: Recording, tried: Sequence[Nuisance], device: Device = HOST
) -> tuple[Moments, list[Gram]]:
    """The moments of one recording's rows as they are, and the sums off each of these nuisances, from the same reading.

    A recording that does not know its times is read for these first, if they matter.
    """
    q, nothing = design.q, (Moments.empty(design.q), [Gram.empty(design.q) for _ in tried])
    runs: list[tuple[int, int]] = []
    if any(nuisance.has_time for nuisance in tried):
        runs = usable_runs(recording, design.n_lags)
        if not runs:
            return nothing
    bases = [TimeBasis.over(nuisance, runs) if nuisance.has_time else None for nuisance in tried]
    joint = joint_moments(design, recording, [basis for basis in bases if basis is not None], device)
    if joint.n == 0:
        return nothing
    found, start = [], q
    for basis in bases:
        width = 0 if basis is None else basis.mix.shape[1]
        own = joint.select(np.r_[np.arange(q), np.arange(start, start + width)])
        scatter, rank = project_off(own, q)
        found.append(
            Gram(Moments.empty(q), Moments(joint.n, np.zeros(scatter.shape[:-1]), scatter), float(rank))
        )
        start += width
    return joint.select(np.arange(q)), found
