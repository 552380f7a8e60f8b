"""Questions about lagged rows: what nearly every question has in common.

Names, lags and centring are the short form of a linear design, by which sites read their rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from feddbn.core.designs.design import Design
from feddbn.core.designs.nuisance import ONE_MEAN, RECORDING_MEANS
from feddbn.core.designs.recordings import SiteData
from feddbn.federation.protocol.question import MOST_LAGS, Question, choice, names, whole, wholes

__all__ = ["Fold", "RowsQuestion"]

Fold = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class RowsQuestion(Question):
    """A question about rows ``[x_t, ..., x_{t-p}]`` of named variables.

    Attributes
    ----------
    center
        "recording": every recording is centred on its own mean.
    fold
        (block, number of blocks, share in thousandths): only the rows before a held-out block count; see
        `federation.programs.folds`. Empty: all rows.
    """

    n_lags: int = whole(0, MOST_LAGS)
    variables: tuple[str, ...] = names()
    center: str = choice("none", "recording", default="none")
    fold: tuple[int, ...] = wholes(0, 1_000_000, default=())

    def check(self) -> None:
        """The fold must be one of its blocks, on a share between 0 and 1."""
        if self.fold and (len(self.fold) != 3 or self.fold[0] >= self.fold[1] or not 0 < self.fold[2] < 1000):
            raise self.wrong(f"'fold' is {self.fold}, but it must be (block, number of blocks, thousandths)")

    @cached_property
    def design(self) -> Design:
        """Which columns are asked for, and what is taken off them."""
        return self.design_of(self.variables, self.n_lags)

    def design_of(self, variables: Sequence[str], n_lags: int) -> Design:
        """Return the same for a site that holds other variables or lags."""
        return Design.linear(variables, n_lags, RECORDING_MEANS if self.center == "recording" else ONE_MEAN)

    @property
    def d(self) -> int:
        """Number of variables."""
        return len(self.variables)

    @property
    def q(self) -> int:
        """Number of columns of a row."""
        return (self.n_lags + 1) * self.d

    def sizes(self) -> Mapping[str, int]:
        """D variables, q columns."""
        return {"d": self.d, "q": self.q}

    def require_variables(self, data: SiteData) -> None:
        """Refuse a site that measures something else."""
        if tuple(data.variables) != self.variables:
            raise self.wrong(
                f"it is about the variables {self.variables}, but this site has {tuple(data.variables)}; "
                "agree on the same variables in the same order"
            )
