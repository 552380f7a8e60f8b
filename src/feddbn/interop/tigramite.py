"""A conditional independence test for tigramite that answers from a `feddbn.Summary`: no rows are needed.

    summary = feddbn.summary(sites, n_lags=2 * tau_max)
    test = SummaryParCorr(summary)
    PCMCI(dataframe=test.dataframe_like(), cond_ind_test=test).run_pcmciplus(tau_max=tau_max, pc_alpha=0.01)

tigramite conditions on the past of causes, so a summary needs twice as many lags as edges may have. Then values and
p-values are those of tigramite's own ``ParCorr`` on the pooled rows. tigramite is GPL: it is imported here and nowhere
else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import stdtr
from tigramite.data_processing import DataFrame
from tigramite.independence_tests.independence_tests_base import CondIndTest

from feddbn.errors import ParameterError
from feddbn.interop.summary import Summary

__all__ = ["SummaryParCorr"]

Nodes = Sequence[tuple[int, int]]


class SummaryParCorr(CondIndTest):  # type: ignore[misc]
    """Partial correlation from summed second moments, with Student's t test.

    Parameters
    ----------
    summary
        What a federation released, with at least ``2 * tau_max`` lags.
    verbosity
        As in tigramite.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.interop.tigramite import SummaryParCorr
    >>> data = feddbn.simulate(d=2, n_sites=2, n_samples=200, random_state=0)
    >>> test = SummaryParCorr(feddbn.summary(data.sites))
    >>> test.measure
    'par_corr'
    """

    def __init__(self, summary: Summary, verbosity: int = 0) -> None:
        self.summary = summary
        self.n_rows = summary.n_effective
        super().__init__(significance="analytic", verbosity=verbosity)

    @property
    def measure(self) -> str:
        """Name of the measure."""
        return "par_corr"

    def dataframe_like(self) -> DataFrame:
        """Return what tigramite asks for as data: names and sizes only. The values are 0 and are never read."""
        n_rows = round(self.n_rows) + self.summary.n_lags
        return DataFrame(np.zeros((n_rows, self.summary.d)), var_names=list(self.summary.variables))

    def set_dataframe(self, dataframe: DataFrame) -> None:
        """Take what `dataframe_like` made."""
        if int(dataframe.N) != self.summary.d:
            raise ParameterError(
                f"dataframe has {dataframe.N} variables, the summary {self.summary.d}; use test.dataframe_like()."
            )
        self.dataframe = dataframe

    def run_test(
        self,
        X: Nodes,
        Y: Nodes,
        Z: Nodes | None = None,
        tau_max: int = 0,
        cut_off: str = "2xtau_max",
        alpha_or_thres: float | None = None,
    ) -> tuple[Any, ...]:
        """Return the partial correlation and its p-value, and whether it is below `alpha_or_thres` if that is given."""
        value, dim = self._value(X, Y, Z)
        p = self.get_analytic_significance(value, self.n_rows, dim)
        return (value, p) if alpha_or_thres is None else (value, p, bool(p <= alpha_or_thres))

    def get_measure(
        self, X: Nodes, Y: Nodes, Z: Nodes | None = None, tau_max: int = 0, data_type: Any = None
    ) -> float:
        """Return the partial correlation."""
        return self._value(X, Y, Z)[0]

    def get_analytic_significance(self, value: float, T: float, dim: int, xyz: Any = None) -> float:
        """Two-sided p-value of Student's t; NaN without degrees of freedom."""
        left = T - dim
        if left < 1:
            return float("nan")
        if abs(value) >= 1.0:
            return 0.0
        return float(2.0 * stdtr(left, -abs(value) * np.sqrt(left / (1.0 - value * value))))

    def get_dependence_measure(self, array: Any, xyz: Any, data_type: Any = None) -> float:
        """Refuse: there are no rows here."""
        raise ParameterError(
            "SummaryParCorr has no rows; it answers about partial correlations of the summary's columns only."
        )

    def _value(self, X: Nodes, Y: Nodes, Z: Nodes | None) -> tuple[float, int]:
        """The partial correlation, and how many columns it is of."""
        if len(X) != 1 or len(Y) != 1:
            raise ParameterError("X and Y must be one variable at one lag each.")
        rest = [node for node in dict.fromkeys(Z or ()) if node not in (*X, *Y)]
        lags = [-lag for _, lag in (*X, *Y, *rest)]
        if max(lags) > self.summary.n_lags:
            raise ParameterError(
                f"this search looks {max(lags)} rows back, but the summary has n_lags={self.summary.n_lags}; make one with "
                f"feddbn.summary(..., n_lags={max(lags)}), twice tau_max."
            )
        index = [
            self.summary.position(int(j), lag) for (j, _), lag in zip((*X, *Y, *rest), lags, strict=True)
        ]
        return self.summary.independence.one(index[0], index[1], index[2:])[0], len(index)
