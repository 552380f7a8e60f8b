"""Secret weights of rows: every sum over rows of a site counts each of its rows a little more or a little less.

Theory of operation
-------------------
A weight is drawn once for each row, from the site's secret, the recording and the row's time, and is the same in every
answer: in other runs, at other lags, for other variables, after rows have come. So there is nothing to average out (the
multiplicative noise of Evans, Zayatz and Slanta, which the US Census uses). Positive weights keep sums of squares and
products those of rows: matrices stay positive, x and x^2 and whatever follows exactly from others stay so.

*Which weights.* ``1 + s``, the size of s on a ramp that falls from .1 to nothing at .62, its sign either way: no weight is
within 10 % of 1, their mean is 1 and their standard deviation .3. They are divided by 1.09, so that they add up to the
number of rows that weighted rows are worth, ``(sum w)^2 / sum w^2``: whoever reads a count of rows in a sum has what
standard errors, criteria and tests need, and standard errors grow by 4.4 per cent.

*What they hide.* A server that knows all rows but one, or reads the ends of recordings off sums at two lags, is left with
an error of several standard deviations, as long as it is told fewer numbers than there are rows.

*What they do not hide.* A combination of sums that is about few rows: in the ratio of two numbers a weight cancels. That
columns do not differ in few rows, and sums not by few rows, are rules of their own. They are no differential privacy.

The draws are an extendable-output function of a key (SHAKE256), in pieces, so that a row's weight depends neither on how
blocks are cut nor on the rows after it, and weights that somebody has found out do not tell the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.recordings import Block, Recording, RecordingView, SiteView

SPREAD = 0.3
"""Standard deviation of weights over their mean."""
WORTH = 1.0 / (1.0 + SPREAD**2)
"""What a weighted row is worth of one that is not: also the mean of the weights."""
NEAREST = 0.1
"""No weight is nearer to its mean, relatively."""
_RAMP = float(np.sqrt(6 * SPREAD**2 - 2 * NEAREST**2)) - 2 * NEAREST
"""How long the ramp is: ``E s^2 = NEAREST^2 + 2/3 NEAREST _RAMP + _RAMP^2 / 6`` is SPREAD^2."""
_PIECE = 256


def row_weights(seed: bytes, first: int, n: int) -> FloatArray:
    """(n,) the weights of the rows of a recording from time `first` on."""
    pieces = range(first // _PIECE, -(-(first + n) // _PIECE))
    stream = b"".join(hashlib.shake_256(seed + k.to_bytes(8)).digest(8 * _PIECE) for k in pieces)
    drawn = np.frombuffer(stream, "<u8")[first % _PIECE :][:n]
    size = NEAREST + _RAMP * (1.0 - np.sqrt((drawn >> np.uint64(1)) / 2.0**63))
    return np.asarray(WORTH * np.where(drawn & np.uint64(1), 1.0 + size, 1.0 - size))


@dataclass(frozen=True)
class WeightedSite(SiteView):
    """A site whose rows have the weights that follow from a secret `key`."""

    key: bytes = field(repr=False)
    views: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def recordings(self) -> Iterator[Recording]:
        """Yield the recordings with weights."""
        return (RecordingView(one, self._weighted, has_same_rows=True) for one in self.data.recordings())

    def _weighted(self, recording: Recording) -> Iterator[Block]:
        seed, clock = hashlib.sha256(self.key + recording.name.encode()).digest(), 0
        for block in recording.blocks():
            clock = clock if block.time is None else block.time
            yield replace(block, weights=row_weights(seed, clock, len(block.values)))
            clock += len(block.values)
