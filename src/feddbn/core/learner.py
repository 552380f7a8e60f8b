"""What a learner is: it makes a network of summed moments, and knows neither sites nor sums.

`OrderLearner` (`core.orders.learn`), `PenalisedLearner` (`core.penalised.consensus`), `CutLearner` (`core.changes`) and
`MarkLearner` (`core.ancestral.search`) are learners: a server has them learn from the sum over sites, a site from its part.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np

from feddbn.core.constraints import EdgeConstraints

Gram = TypeVar("Gram", contravariant=True)
Found = TypeVar("Found", covariant=True)


class Learner(Protocol[Gram, Found]):
    """Frozen: how to learn. `Gram` are moments of lagged rows, or a sequence of them by blocks of time."""

    def learn(self, gram: Gram, limits: EdgeConstraints, rng: np.random.Generator) -> Found:
        """Return what is found within the limits; `rng` is all that may be drawn from."""
        ...
