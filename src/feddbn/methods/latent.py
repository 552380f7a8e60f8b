"""LatentDBN: what one sum of second moments tells about causes when some causes are not measured."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.sparse.csgraph import connected_components

from feddbn.core.ancestral.marks import Marks
from feddbn.core.ancestral.search import MarkLearner
from feddbn.core.arrays import BoolArray
from feddbn.core.orders.learn import refit
from feddbn.core.statistics.enough import check_variances
from feddbn.core.statistics.moments import Moments
from feddbn.core.threads import one_thread
from feddbn.errors import DataError, ParameterError
from feddbn.findings import Finding
from feddbn.interop.summary import Summary
from feddbn.methods.summary import SummaryEstimator, SummarySettings
from feddbn.model.dbn import DBN
from feddbn.model.graph import AncestralGraph
from feddbn.settings import nothing, number, setting, takes, whole

__all__ = ["LatentDBN", "LatentSettings"]


@dataclass(frozen=True, repr=False)
class LatentSettings(SummarySettings):
    """What a person may choose of `LatentDBN`."""

    n_lags: int = setting(
        1, whole(0), "Largest lag p of an edge. Sums use twice as many lags.", kw_only=False
    )
    alpha: float = setting(
        0.01,
        number(above=0, below=0.5),
        "Significance level: pairs whose partial correlation has a larger p-value are treated as independent.",
        kw_only=False,
    )
    n_passes: int = setting(
        3,
        whole(1),
        "How often all edges are tested. Each pass uses the causes found before.",
    )
    max_conditions: int | None = setting(
        None,
        whole(0) | nothing(),
        "Most variables to condition on, in addition to known causes. None: no limit.",
    )


class LatentDBN(SummaryEstimator[LatentSettings]):
    """An ancestral graph over lags: which edges are causes, which are due to hidden common causes, and which may be either.

    For stationary series with linear effects, from one sum. Pairs that are independent given others have no edge; time
    order and which others make them independent tell the marks (docs/causal.md). Edges of a
    variable in ``prepare.exogenous`` are taken as its effects. The search is of the kind of LPCMCI
    (Gerhardus and Runge 2020), with the rules of Zhang (2008).

    Attributes
    ----------
    graph_
        (d, d, p+1) strings: ``graph_[i, j, l]`` is the edge from i, l time steps ago, to j now.
    ancestral_graph_
        The same with names, partial correlations and p-values, as an `AncestralGraph`.
    edges_
        Frame source, target, lag, mark, value, p.
    dbn_, W_, A_
        The edges ``-->`` with weights by least squares on each other. A weight is an effect only if no hidden cause adds
        to it. W_raw_ and A_raw_ have edges ``o->``, too.
    n_tests_
        How many partial correlations were looked at.
    center_, treatment_, site_notes_
        As in `OneShotDBN`.
    n_rounds_, n_samples_
        Number of sums; rows over all sites, or what they are worth.
    feature_names_in_, n_features_in_
        Variables.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=400, random_state=0)
    >>> model = feddbn.LatentDBN().fit(data.sites)
    >>> model.edges_[["source", "target", "lag", "mark"]].values.tolist()[:2]
    [['x0', 'x2', 0, 'o->'], ['x1', 'x2', 0, 'o->']]
    """

    graph_: Marks
    ancestral_graph_: AncestralGraph
    edges_: pd.DataFrame

    @takes(LatentSettings)
    def __init__(self) -> None: ...

    def fit_summary(self, summary: Summary) -> LatentDBN:
        """Learn from what a federation released (`feddbn.summary`); it needs twice `n_lags` lags. Returns self."""
        self._begin()
        p = self._settings.n_lags
        if summary.n_lags < 2 * p:
            raise ParameterError(
                f"summary has n_lags={summary.n_lags}, but edges of n_lags={p} need twice as many; make it with "
                f"feddbn.summary(..., n_lags={2 * p}), or use LatentDBN(n_lags={summary.n_lags // 2})."
            )
        self._set_variables(summary.variables)
        self.treatment_ = None if summary.treatment is None else dict(summary.treatment)
        with one_thread():
            released = summary.with_lags(2 * p)
            self._learn(released)
        self._set_sums(released.moments)
        self.n_rounds_ = 0
        return self

    @property
    def _largest_lag(self) -> int:
        return 2 * self._settings.n_lags

    def _learn(self, summary: Summary) -> None:
        settings, d, names = self._settings, summary.d, summary.variables
        p = settings.n_lags
        n, q = summary.n_effective, summary.moments.q
        if n < d * (p + 1) + 2:
            raise DataError(
                f"n_lags={p} and {d} variables need at least {d * (p + 1) + 2} rows, but they count as {n:,.0f}; "
                "use fewer lags or variables."
            )
        spread = np.diag(summary.moments.scatter)[:d] / summary.moments.n
        check_variances(names, spread, summary.moments.mean[:d], rtol=1e-28)
        if n < 2 * q:
            self._tell(Finding("few-rows-for-marks", "warning", {"n": n, "q": q}))
        learner = MarkLearner(float(settings.alpha), settings.n_passes, settings.max_conditions)
        gram = replace(summary.moments, n=n)
        found = learner.learn(gram, self._constraints().up_to(p), np.random.default_rng(0))
        self.ancestral_graph_ = AncestralGraph(found.marks, names, found.values, found.p_values)
        self.graph_, self.edges_ = self.ancestral_graph_.marks, self.ancestral_graph_.edges()
        self.n_tests_ = found.n_tests
        moments = summary.moments.select(np.arange(d * (p + 1)))
        definite, possible = self.ancestral_graph_.definite(), self.ancestral_graph_.possible()
        kept = _without_cycles(definite)
        self._set_network(
            _least_squares(kept, moments, names), _least_squares(_without_cycles(possible), moments, names)
        )
        self._say_marks(int((definite & ~kept).sum()))

    def _say_marks(self, n_cycled: int) -> None:
        marks = self.edges_["mark"]
        hidden, is_open = int((marks == "<->").sum()), int(marks.isin(["o->", "o-o"]).sum())
        if hidden or is_open:
            self._tell(
                Finding("marks", "note", {"n_edges": len(marks), "n_hidden": hidden, "n_open": is_open})
            )
        if n_cycled:
            self._tell(Finding("cyclic-marks", "warning", {"n": n_cycled}))


def _without_cycles(is_edge: BoolArray) -> BoolArray:
    """The same without contemporaneous edges that lie on a cycle."""
    part = connected_components(is_edge[0], directed=True, connection="strong")[1]
    kept = is_edge.copy()
    kept[0] &= part[:, None] != part[None, :]
    return kept


def _least_squares(is_edge: BoolArray, moments: Moments, names: tuple[str, ...]) -> DBN:
    """Each variable on its causes."""
    d = is_edge.shape[1]
    C = refit(moments, is_edge.reshape(-1, d))[0]
    return DBN.from_moments(C[:d], C[d:].reshape(-1, d, d), moments, names)
