"""How far cells lie from their neighbours in time, one recording one vote: robust scales that noise can protect.

The task "deviation-shares" sums, over recordings, the shares of a variable's cells in fixed bins of half an octave. One
recording moves the sum by at most 1 whatever is in it, so it is released like any other sum, with noise and an entry in the
ledger. Cells beyond the limits that follow are empty in later sums: what is too far is decided by the noisy scales and by
the recording itself, never by another recording.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.cells import block_deviations
from feddbn.core.designs.recordings import Recording
from feddbn.core.statistics.survey import N_BINS, bin_counts, robust_scale
from feddbn.errors import ParameterError
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Here, SiteState, SiteTask, one_by_one, register_site_task
from feddbn.federation.protocol.task import ServerProgram, Task

__all__ = ["DeviationSharesQuestion", "above_noise", "scales_program"]

_CLEAR = 4.0
"""Bins within this many standard deviations of the noise are read as empty; of 30 000 empty ones one is not."""
_FEWEST_BINS = 3
"""Gaussian cells fill about seven bins with more than a twentieth each; with fewer side by side there is no scale."""


@dataclass(frozen=True, kw_only=True)
class DeviationSharesQuestion(RowsQuestion):
    """Which shares of a recording's cells are how far from their neighbours in time."""

    name = "deviation-shares"
    purpose = (
        "which shares of the cells of a recording are how far from their neighbours in time, in coarse bins"
    )


def _recording_shares(recording: Recording, d: int) -> FloatArray:
    """(d * N_BINS,) shares over sqrt(d): d distributions, so the norm is at most 1."""
    counts = np.zeros((d, N_BINS))
    for _, deviation in block_deviations(recording.blocks()):
        counts += bin_counts(deviation)
    total = np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return np.asarray((counts / total).ravel() / np.sqrt(d))


def above_noise(total: FloatArray, sigma: float) -> FloatArray:
    """The sum with bins that noise alone could have filled set to zero."""
    return np.where(total > _CLEAR * sigma, total, 0.0)


def scales_program(variables: tuple[str, ...], n_lags: int) -> ServerProgram[FloatArray]:
    """(d,) robust standard deviations about running medians; 0 where too little is above the noise.

    They are of the cells that deviate: those that are their own running median lie in a bin apart. Small bins vanish in the
    noise, and more of them lie below the median than above it, so most scales come out too large.
    """
    total = (yield Task(DeviationSharesQuestion(n_lags=n_lags, variables=variables))).value
    return robust_scale(np.array([_bulk(shares) for shares in total.reshape(len(variables), N_BINS)]))


def _bulk(shares: FloatArray) -> FloatArray:
    """The heaviest run of bins side by side, or nothing if it is short: a bin that noise has filled stands alone."""
    runs = np.split(np.arange(N_BINS), np.flatnonzero(np.diff(shares > 0)) + 1)
    run = max(runs, key=lambda bins: float(shares[bins].sum()))
    kept = np.zeros(N_BINS)
    if len(run) >= _FEWEST_BINS and shares[run[0]] > 0:
        kept[run] = shares[run]
    return kept


def _units(here: Here, question: DeviationSharesQuestion, unit: str) -> Iterator[FloatArray]:
    question.require_variables(here.data)
    if unit != "recording":
        raise ParameterError(
            f"unit={unit!r}: what is far is told by the rows around it; protect unit='recording', or use spikes='keep'."
        )
    for recording in here.data.recordings():
        yield _recording_shares(recording, question.d)


def _answer(here: Here, question: DeviationSharesQuestion) -> tuple[SiteState, FloatArray]:
    total = np.zeros(question.d * N_BINS)
    for shares in _units(here, question, "recording"):
        total += shares
    return here.state, total


register_site_task(SiteTask(DeviationSharesQuestion, one_by_one(_answer), _units))
