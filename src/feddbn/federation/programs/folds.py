"""Later time blocks of every recording, held out one after the other.

Fold b of B trains on the rows before block b of the last `share` of a recording and tests on block b: the future
is never used to predict the past. A question with ``fold = (b, B, share in thousandths)`` is answered from training rows
only, so every server program that asks about rows can be run on a fold without knowing about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from feddbn.core.designs.lagged import Block
from feddbn.errors import ParameterError
from feddbn.federation.protocol.question import Question
from feddbn.federation.protocol.rows import Fold, RowsQuestion
from feddbn.federation.protocol.site import Recording
from feddbn.federation.protocol.task import ServerProgram, asking

__all__ = [
    "USUAL_BLOCKS",
    "USUAL_SHARE",
    "held_out_part",
    "make_fold",
    "on_fold",
    "training_part",
    "usual_folds",
]

USUAL_BLOCKS = 2
USUAL_SHARE = 0.3
"""What is held out unless something else is asked for: the last 30 % of every recording, in two blocks."""

T = TypeVar("T")


def make_fold(block: int, n_blocks: int, share: float) -> Fold:
    """Return the fold of a question; `share` of each recording is tested on in `n_blocks` blocks."""
    if not 0.0 < share < 1.0:
        raise ParameterError(f"share={share!r} of the rows to test on must lie between 0 and 1.")
    if n_blocks < 1 or not 0 <= block < n_blocks:
        raise ParameterError(f"n_blocks={n_blocks!r} must be at least 1.")
    return block, n_blocks, round(1000 * share)


def usual_folds() -> tuple[Fold, ...]:
    """Return the folds by which studies choose parameters."""
    return tuple(make_fold(block, USUAL_BLOCKS, USUAL_SHARE) for block in range(USUAL_BLOCKS))


def on_fold(program: ServerProgram[T], fold: Fold) -> ServerProgram[T]:
    """Run a server program on the training rows of a fold."""

    def folded(question: Question) -> Question:
        return replace(question, fold=fold) if isinstance(question, RowsQuestion) else question

    return asking(program, folded)


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


def _bounds(recording: Recording, fold: tuple[int, ...]) -> tuple[int, int]:
    block, n_blocks, thousandths = fold
    n = sum(len(b.values) for b in recording.blocks())
    first = n - round(n * thousandths / 1000)
    edges = [first + round((n - first) * i / n_blocks) for i in range(n_blocks + 1)]
    return edges[block], edges[block + 1]


def training_part(recording: Recording, fold: tuple[int, ...]) -> Recording:
    """Return the rows before the held-out block; all of them without a fold."""
    return _Part(recording, 0, _bounds(recording, fold)[0]) if fold else recording


def held_out_part(recording: Recording, fold: tuple[int, ...], n_lags: int) -> Recording:
    """Return the held-out block, with the `n_lags` rows before it that only serve as lags."""
    start, stop = _bounds(recording, fold)
    return _Part(recording, max(start - n_lags, 0), stop)
