"""What data can tell about causes when some causes are not seen: a graph over lags with a mark at each end of its edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.ancestral.marks import WORDS, Marks
from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.errors import ParameterError
from feddbn.model.dbn import DBN
from feddbn.shown import Shown

__all__ = ["MEANINGS", "AncestralGraph"]

MEANINGS: Mapping[str, str] = {
    "-->": "a cause of it, directly or through what is not seen; a hidden cause of both may add to it",
    "<->": "neither causes the other: a hidden cause of both",
    "o->": "a cause of it, a hidden cause of both, or both",
    "o-o": "one causes the other, or a hidden cause of both",
    "---": "each causes the other, which cannot be within a time step: the data contradict themselves",
    "--o": "a cause of it; whether it is caused by it as well is not known",
}
"""What the mark of an edge says of its source and its target."""
_SAYS = {"": "no edge", "-->": "cause", "<->": "hidden", "<--": "reversed", "<-o": "reversed"}
_BACK = str.maketrans("<>", "><")


@dataclass(frozen=True, eq=False)
class AncestralGraph(Shown):
    """Edges with marks over a window of p + 1 moments.

    Attributes
    ----------
    marks
        (d, d, p+1) strings: ``marks[i, j, l]`` is the edge from i, l time steps ago, to j now, "" for none.
        Within a time step
        ``marks[i, j, 0]`` and ``marks[j, i, 0]`` are the same edge read from its two ends.
    variables
        Names.
    values, p_values
        (d, d, p+1): the weakest partial correlation of each pair over all sets of conditions that were tried, and its
        p-value; None if not known.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> graph = data.ancestral_truth()
    >>> graph.edges()[["source", "target", "lag", "mark"]].head(2)
      source target  lag mark
    0     x1     x0    0  -->
    1     x2     x0    0  -->
    """

    marks: Marks
    variables: tuple[str, ...]
    values: FloatArray | None = None
    p_values: FloatArray | None = None

    def __post_init__(self) -> None:
        marks = np.asarray(self.marks, dtype="<U3")
        names = tuple(str(name) for name in self.variables)
        object.__setattr__(self, "marks", marks)
        object.__setattr__(self, "variables", names)
        d = len(names)
        if marks.ndim != 3 or marks.shape[:2] != (d, d) or not marks.shape[2]:
            raise ParameterError(
                f"marks must have shape ({d}, {d}, n_lags + 1) for {d} variables, got {marks.shape}."
            )
        wrong = sorted(set(marks.ravel().tolist()) - WORDS - {""})
        if wrong:
            raise ParameterError(
                f"marks contains {wrong[0]!r}; an edge is one of {', '.join(sorted(WORDS))}, and '' is none."
            )
        backward = [str(mark) for mark in np.unique(marks[:, :, 1:]) if mark and mark[2] != ">"]
        if backward:
            raise ParameterError(
                f"marks contains {backward[0]!r} across time steps; nothing causes its past, so such an edge ends in '>'."
            )
        now = marks[:, :, 0]
        if any(now[j, i] != _turned(str(now[i, j])) for i in range(d) for j in range(d)):
            raise ParameterError(
                "marks[:, :, 0] must say the same from both ends: '-->' at [i, j] is '<--' at [j, i]."
            )

    @property
    def n_lags(self) -> int:
        """Number of lags p."""
        return int(self.marks.shape[2]) - 1

    def edges(self) -> pd.DataFrame:
        """Frame source, target, lag, mark, value, p; every edge once, with its arrowhead, if it has one, at the target."""
        rows = []
        for lag in range(self.n_lags + 1):
            for i, source in enumerate(self.variables):
                for j, target in enumerate(self.variables):
                    mark = str(self.marks[i, j, lag])
                    if not mark or (lag == 0 and not _reads_forward(mark, i, j)):
                        continue
                    value, p = (None if x is None else x[i, j, lag] for x in (self.values, self.p_values))
                    rows.append((source, target, lag, mark, value, p))
        frame = pd.DataFrame(rows, columns=["source", "target", "lag", "mark", "value", "p"])
        return frame.astype({"lag": int, "value": float, "p": float})

    def definite(self) -> BoolArray:
        """(p+1, d, d) where an edge is a definite cause, [lag, from, to]."""
        return np.asarray(np.moveaxis(self.marks == "-->", 2, 0))

    def possible(self) -> BoolArray:
        """(p+1, d, d) where an edge is or may be a cause and nothing else points back: ``-->`` and ``o->``."""
        return np.asarray(np.moveaxis((self.marks == "-->") | (self.marks == "o->"), 2, 0))

    def agreement(self, dbn: DBN) -> pd.DataFrame:
        """What these marks say of the edges of a network: DataFrame source, target, lag, mark, says.

        `says` is "cause", "open" (it may be one), "hidden" (a hidden cause of both instead), "reversed" or "no edge".
        """
        if set(dbn.variables) != set(self.variables) or dbn.n_lags > self.n_lags:
            raise ParameterError(
                f"the network has {dbn.d} variables, {dbn.n_lags} lags; the marks {len(self.variables)} and {self.n_lags}: "
                "learn both from the same variables, marks with at least as many lags."
            )
        place = {name: k for k, name in enumerate(self.variables)}
        rows = []
        for edge in dbn.edges()[["source", "target", "lag"]].to_dict("records"):
            source, target, lag = str(edge["source"]), str(edge["target"]), int(edge["lag"])
            mark = str(self.marks[place[source], place[target], lag])
            rows.append((source, target, lag, mark, _SAYS.get(mark, "open")))
        return pd.DataFrame(rows, columns=["source", "target", "lag", "mark", "says"])

    def to_dict(self) -> dict[str, Any]:
        """Plain values: names, number of lags, and the table of edges."""
        frame = self.edges().astype(object)
        return {
            "variables": list(self.variables),
            "n_lags": self.n_lags,
            "edges": frame.where(frame.notna(), None).to_dict("records"),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AncestralGraph:
        """Inverse of `to_dict`; values of pairs without an edge are not stored."""
        try:
            names: Sequence[str] = [str(name) for name in data["variables"]]
            place = {name: k for k, name in enumerate(names)}
            shape = (len(names), len(names), int(data["n_lags"]) + 1)
            marks, values, p_values = np.full(shape, "", dtype="<U3"), np.zeros(shape), np.ones(shape)
            for edge in data["edges"]:
                i, j, lag = place[edge["source"]], place[edge["target"]], int(edge["lag"])
                mark = str(edge["mark"])
                for at, word in [((i, j, lag), mark)] + ([] if lag else [((j, i, 0), _turned(mark))]):
                    marks[at], values[at], p_values[at] = word, edge["value"], edge["p"]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ParameterError(f"this ancestral graph is damaged: {error!r}.") from None
        return cls(marks, tuple(names), values, p_values)

    def sentences(self) -> list[str]:
        """Every edge, and what its mark says of its source and its target."""
        table = self.edges()
        return [
            f"{source}{f'(t-{lag})' if lag else ''} {mark} {target}: {MEANINGS[mark]}."
            for source, target, lag, mark in zip(*(table[name] for name in table.columns[:4]), strict=True)
        ]

    def __str__(self) -> str:
        rows = [sentence.split(":")[0] for sentence in self.sentences()]
        return "\n".join([f"AncestralGraph of {len(self.variables)} variables, {len(rows)} edges", *rows])


def _turned(mark: str) -> str:
    """The same edge read from its other end."""
    return mark[::-1].translate(_BACK)


def _reads_forward(mark: str, i: int, j: int) -> bool:
    """Whether a contemporaneous edge is listed from i to j: its arrowhead last, else the smaller number first."""
    turned = _turned(mark)
    if mark == turned:
        return i < j
    return (mark[2] == ">", mark[0] == "-") > (turned[2] == ">", turned[0] == "-")
