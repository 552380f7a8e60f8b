"""Programs that answer for many small sites as if they were one, along a leading axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.backend.device import HOST
from feddbn.core.designs.stacked import stacks
from feddbn.federation.protocol.site import Answers, Here, Memo, SiteState, stacked_vectors

__all__ = ["stacked"]


def stacked(
    answer: Callable[[Here, Any], tuple[SiteState, FloatArray]],
    may_be: Callable[[Any], bool],
    own: Sequence[str] = (),
) -> Callable[[Sequence[Here], Any, Memo], Answers]:
    """Return the program for many sites from one for a single site that also reads a `StackedSite`.

    Sites that are alike are answered for together, all others one by one; every site has its own vector and state.

    Parameters
    ----------
    may_be
        Whether a question may be answered so; the answer must then depend on data and question only.
    own
        Names of the arrays that it adds to a state and that have the leading axis; others are the same for all.
    """

    def answers(sites: Sequence[Here], question: Any, memo: Memo) -> Answers:
        found: list[tuple[SiteState, FloatArray] | None] = [None] * len(sites)
        if may_be(question) and all(here.device is HOST for here in sites):
            for places, data in stacks([here.data for here in sites], question.q):
                state, vectors = answer(Here("many sites", data, {}), question)
                for k, place in enumerate(places):
                    # Copies: a view would keep the arrays of all sites alive as long as one site keeps its own.
                    added = {key: np.array(value[k]) if key in own else value for key, value in state.items()}
                    found[place] = ({**sites[place].state, **added}, vectors[k])
        each = [
            answer(here, question) if known is None else known
            for here, known in zip(sites, found, strict=True)
        ]
        return [state for state, _ in each], stacked_vectors([vector for _, vector in each], question.name)

    return answers
