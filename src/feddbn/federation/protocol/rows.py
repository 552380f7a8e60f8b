"""Questions about lagged rows: what nearly every question has in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
