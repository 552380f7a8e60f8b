"""What can be asked of a network because its variables have kinds: `feddbn.model.dbn.DBN` offers all of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
from feddbn.model import calibration, coefficients, export, natural_effects, residuals
from feddbn.model.conditional_weights import checked_conditionals, weights_of
from feddbn.model.conditionals import Conditional
from feddbn.model.csv_cells import guarded_frame
from feddbn.model.inputs import RandomState, Rows, random_generator
from feddbn.model.network import Network

__all__ = ["KindQuestions"]


class KindQuestions(Network):
    """A network, and what its distributions tell."""

    @classmethod
    def from_conditionals(
        cls,
        conditionals: Iterable[Conditional],
        variables: Sequence[str] | None = None,
        n_lags: int | None = None,
        open_edges: Iterable[tuple[str, str]] = (),
    ) -> Self:
        """Network of one distribution per variable; W and A hold a weight for every effect (`Network`).

        Without `n_lags` the largest lag of a cause is taken.
        """
        nodes = tuple(conditionals)
        largest = max((lag for node in nodes for _, lag in getattr(node, "parents", ())), default=0)
        p = largest if n_lags is None else int(n_lags)
        checked = checked_conditionals(nodes, len(nodes), p)
        weights = weights_of(checked, p)
        return cls(weights.W, weights.A, variables, open_edges=open_edges, conditionals=checked)

    def coefficients(self, level: float = 0.95) -> pd.DataFrame:
        """Frame of every coefficient on the scale of its link, with its interval, `ratio` and `meaning` in words."""
        self._require_conditionals("coefficients", "dbn.edges()")
        return coefficients.coefficient_table(self, level)

    def to_coefficients_csv(self, path: str | Path | None = None, level: float = 0.95) -> str:
        """`coefficients` as CSV text, also written to `path` if given; safe in spreadsheets."""
        text = guarded_frame(self.coefficients(level)).to_csv(index=False, lineterminator="\n")
        return export.write_text(str(text), path)

    def average_effects(
        self, over: Rows | None = None, *, by: str = "unit", level: float = 0.95
    ) -> pd.DataFrame:
        """Frame source, target, lag, from, to, outcome, change, lower, upper: what each edge does to the mean of its
        target, or to the probabilities of its levels; see `feddbn.model.natural_effects.average_effects`.
        """
        self._require_conditionals("average_effects", "dbn.edges(), whose weights are such changes")
        return natural_effects.average_effects(self, over, by=by, level=level)

    def quantile_residuals(self, data: Rows | Sequence[Rows], random_state: RandomState = None) -> FloatArray:
        """(n, d) residuals that are standard normal if the network holds, whatever the kinds; see
        `feddbn.model.residuals.normal_segments`. Those of counts and levels are partly drawn (`random_state`).
        """
        return np.concatenate(residuals.normal_segments(self, data, random_generator(random_state)))

    def calibration(self, data: Rows | Sequence[Rows], n_bins: int = 10) -> pd.DataFrame:
        """Frame variable, level, low, high, predicted, seen, error, n: do predicted probabilities happen as often as they
        say? Give rows that were not used for learning; see `feddbn.model.calibration.calibration_table`.
        """
        return calibration.calibration_table(self, data, n_bins)

    def scores(self, data: Rows | Sequence[Rows]) -> pd.DataFrame:
        """One row per variable: kind, n, log_score, brier, error; see `feddbn.model.calibration.prediction_scores`."""
        return calibration.prediction_scores(self, data)

    def _require_conditionals(self, what: str, instead: str) -> None:
        if not self.conditionals:
            raise ParameterError(
                f"{what} is for variables of other kinds, and all of this network's are plain numbers; use {instead}."
            )
