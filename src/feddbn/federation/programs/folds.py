"""Later time blocks of every recording, held out one after the other.

Fold b of B trains on the rows before block b of the last `share` of a recording and tests on block b: the future
is never used to predict the past. A question with ``fold = (b, B, share in thousandths)`` is answered from training rows
only, so every server program that asks about rows can be run on a fold without knowing about it.

Two folds differ by the rows of a block. Where a site has no row in it the difference is about the other sites alone, and with
many small blocks about one: so there are few blocks, and a site that has none of the rows does not answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from feddbn.core.designs.lagged import Block
from feddbn.errors import DataError, ParameterError
from feddbn.federation.protocol.question import Question
from feddbn.federation.protocol.rows import MOST_BLOCKS, Fold, RowsQuestion
from feddbn.federation.protocol.site import Recording, SiteData
from feddbn.federation.protocol.task import Federation, ServerProgram, Sum, Task, asking

__all__ = ["EarlierRows", "held_out_part", "make_fold", "on_fold", "training_part", "training_site"]

T = TypeVar("T")


def make_fold(block: int, n_blocks: int, share: float) -> Fold:
    """Return the fold of a question; `share` of each recording is tested on in `n_blocks` blocks."""
    if not 0.0 < share < 1.0:
        raise ParameterError(f"share={share!r} of the rows to test on must lie between 0 and 1.")
    if not 1 <= n_blocks <= MOST_BLOCKS or not 0 <= block < n_blocks:
        raise ParameterError(f"n_blocks={n_blocks!r} must be between 1 and {MOST_BLOCKS}.")
    return block, n_blocks, min(max(round(1000 * share), 1), 999)


def on_fold(program: ServerProgram[T], fold: Fold) -> ServerProgram[T]:
    """Run a server program on the training rows of a fold."""
    return asking(program, lambda question: _folded(question, fold))


def _folded(question: Question, fold: Fold) -> Question:
    if not isinstance(question, RowsQuestion):
        if question.reads_rows:
            raise ParameterError(
                f"the task {question.name!r} cannot be asked about earlier rows only, so what needs it (features, smoothing, "
                "center_by, noise) cannot be judged on held-out rows; leave that out."
            )
        return question
    if question.fold:
        raise ParameterError(
            "a parameter is 'auto', which is chosen on held-out rows itself; give a number, `feddbn select` finds one."
        )
    return replace(question, fold=fold)


@dataclass(frozen=True)
class EarlierRows:
    """A federation whose sites answer from the training rows of a fold: what is fitted on it does not learn from the others.

    What is looked for first (cycles, far cells, scales of sites) is looked for in all rows, alike for all that is fitted.
    """

    federation: Federation
    fold: Fold

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return self.federation.sites

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of what they measure."""
        return self.federation.variables

    @property
    def answered_tasks(self) -> frozenset[str] | None:
        """Names of the tasks they answer."""
        return self.federation.answered_tasks

    def state_of(self, site: str) -> Mapping[str, np.ndarray] | None:
        """Return the state of a site of this process."""
        return self.federation.state_of(site)

    def sum(self, task: Task) -> Sum:
        """Return the sum over the training rows."""
        return self.federation.sum(replace(task, question=_folded(task.question, self.fold)))


@dataclass(frozen=True)
class _EarlierSite:
    """A site with the training rows of a fold."""

    data: SiteData
    fold: tuple[int, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        return self.data.variables

    def recordings(self) -> Iterator[Recording]:
        return (training_part(recording, self.fold) for recording in self.data.recordings())


def training_site(data: SiteData, fold: tuple[int, ...]) -> SiteData:
    """Return a site with its rows before the held-out block; as it is without a fold. A site without a row in it refuses."""
    if not fold:
        return data
    _require_rows(data, fold)
    return _EarlierSite(data, fold)


def _require_rows(data: SiteData, fold: tuple[int, ...]) -> None:
    """Refuse where this site has no row of some block: sums with and without that block would leave the site out."""
    edges = [_edges(recording, fold) for recording in data.recordings()]
    if not all(any(own[b] < own[b + 1] for own in edges) for b in range(fold[1])):
        raise DataError(
            f"this site has too few rows to hold out {fold[2] / 10:g} % of them in n_blocks={fold[1]} blocks; test on a "
            "larger share, in fewer blocks, or leave the site out."
        )


@dataclass(frozen=True)
class _Part:
    """Rows start <= t < stop of a recording."""

    recording: Recording
    start: int
    stop: int

    @property
    def name(self) -> str:
        return self.recording.name

    def blocks(self) -> Iterator[Block]:
        offset, is_first = 0, True
        for block in self.recording.blocks():
            low, high = max(self.start - offset, 0), min(self.stop - offset, len(block.values))
            offset += len(block.values)
            if low < high:
                labels = None if block.labels is None else block.labels[low:high]
                time = None if block.time is None else block.time + low
                yield Block(block.values[low:high], is_first or block.starts_segment or low > 0, labels, time)
                is_first = False


def _edges(recording: Recording, fold: tuple[int, ...]) -> list[int]:
    """Where the blocks begin, and where the last one ends."""
    _, n_blocks, thousandths = fold
    n = sum(len(b.values) for b in recording.blocks())
    first = n - round(n * thousandths / 1000)
    return [first + round((n - first) * i / n_blocks) for i in range(n_blocks + 1)]


def _bounds(recording: Recording, fold: tuple[int, ...]) -> tuple[int, int]:
    edges = _edges(recording, fold)
    return edges[fold[0]], edges[fold[0] + 1]


def training_part(recording: Recording, fold: tuple[int, ...]) -> Recording:
    """Return the rows before the held-out block; all of them without a fold."""
    return _Part(recording, 0, _bounds(recording, fold)[0]) if fold else recording


def held_out_part(recording: Recording, fold: tuple[int, ...], n_lags: int) -> Recording:
    """Return the held-out block, with the `n_lags` rows before it that only serve as lags."""
    start, stop = _bounds(recording, fold)
    return _Part(recording, max(start - n_lags, 0), stop)
