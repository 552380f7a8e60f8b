"""One matrix of second moments for everything that reads a covariance: `summary`, and the method behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.data import SiteData
from feddbn.data.layout import Layout
from feddbn.federation.protocol.task import Federation, Observer
from feddbn.federation.sums.prepare import Prepare, PreparedSettings
from feddbn.federation.sums.tally import Tally
from feddbn.federation.sums.treatment import AskedMoments, asked_moments_program
from feddbn.findings import Finding
from feddbn.interop.summary import Summary
from feddbn.methods.updating import UpdatedEstimator
from feddbn.model.dbn import DBN
from feddbn.settings import Rule, is_federation, setting, takes, whole, word

__all__ = ["MomentSettings", "MomentSummary", "SummaryEstimator", "SummarySettings", "summary"]

_NOISY = "Every site added noise: the sum is differentially private, as its federation's plan says."


@dataclass(frozen=True, repr=False)
class SummarySettings(PreparedSettings):
    """What methods share that learn from a released summary alone: no site has a network of its own."""

    may_be: ClassVar[Mapping[str, Rule]] = {
        **PreparedSettings.may_be,
        "on_disagreement": word("auto", "exclude", "warn", "ignore"),
    }


S = TypeVar("S", bound=SummarySettings)


class SummaryEstimator(UpdatedEstimator[S]):
    """Base of estimators whose sites release one summary; `_learn` makes a network of it."""

    def _learn(self, summary: Summary) -> None:
        raise NotImplementedError

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        program = asked_moments_program(self._variables, self._largest_lag, self._rows_on(federation))
        asked, _ = self._run(program, federation, observer)
        tasks = federation.answered_tasks
        stayed_out = asked.n_disagreeing if asked.treatment.abstain else 0
        is_noisy = tasks is not None and "survey.first" not in tasks
        self._release(asked, len(federation.sites) - stayed_out, _NOISY if is_noisy else "")
        self._keep_sums(asked, self._largest_lag)

    def _fit_tally(self, tally: Tally) -> None:
        asked = AskedMoments(
            tally.whole, tally.treatment, evidence=0.0, n_rows=tally.moments.n, rank=tally.rank
        )
        self._release(asked, len(self.sites_))

    def _release(self, asked: AskedMoments, n_sites: int, noise: str = "") -> None:
        """Say what was done to the rows, and learn from the summary."""
        self._say_moments(asked)
        rank = float(max(asked.rank - 1.0, 0.0))
        lags = self._largest_lag
        found = Summary(asked.moments, self._variables, lags, self.treatment_, rank, n_sites, noise)
        self._learn(found)
        self._set_sums(found.moments)


@dataclass(frozen=True, repr=False)
class MomentSettings(SummarySettings):
    """What a person may choose of `MomentSummary`."""

    n_lags: int = setting(
        1,
        whole(0),
        "Number of lags. Some tests condition on the past of causes; they need twice the largest lag of an edge.",
        kw_only=False,
    )


class MomentSummary(SummaryEstimator[MomentSettings]):
    """The summed second moments themselves (`summary_`), to be read by any algorithm that takes a covariance matrix.

    As a network it is the plain vector autoregression: every variable on all lags of all, without contemporaneous edges.

    Attributes
    ----------
    summary_
        The moments, as a `Summary`.
    dbn_, W_, A_
        The vector autoregression: W_ is 0.
    center_, treatment_, site_notes_
        As in `OneShotDBN`.
    n_rounds_, n_samples_
        Number of sums; usable rows over all sites.
    feature_names_in_, n_features_in_
        Variables.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> feddbn.MomentSummary(n_lags=1).fit(data.sites).summary_.columns
    ['x0', 'x1', 'x2', 'x0(t-1)', 'x1(t-1)', 'x2(t-1)']
    """

    summary_: Summary

    @takes(MomentSettings)
    def __init__(self) -> None: ...

    def _learn(self, summary: Summary) -> None:
        self.summary_, d, S = summary, summary.d, summary.moments.scatter
        weights: FloatArray = np.asarray(
            np.linalg.lstsq(S[d:, d:], S[d:, :d], rcond=None)[0], dtype=np.float64
        )
        A = weights.reshape(-1, d, d)
        A[:, :, list(self._inputs)] = 0.0
        dbn = DBN.from_moments(np.zeros((d, d)), A, summary.moments, summary.variables)
        self._set_network(dbn, dbn)
        self._tell(Finding("plain-autoregression", "note"))


def summary(
    data: Any,
    n_lags: int = 1,
    *,
    prepare: Prepare | None = None,
    layout: Layout | None = None,
    observer: Observer | None = None,
    **columns: Any,
) -> Summary | str:
    """Return a result as text; of data, what a federation releases of its rows: second moments at lags 0 to `n_lags`.

    Parameters
    ----------
    data
        A fitted estimator or a result, which is then told as text (its `summary()`); or a federation, or anything
        `feddbn.data.read_sites` takes.
    n_lags
        Number of lags.
    observer
        Called after every sum; for progress bars.
    prepare
        What is done to the rows first.
    layout, columns
        Which columns are what: a `feddbn.Layout`, or its fields by name.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> feddbn.summary(data.sites, n_lags=1).columns
    ['x0', 'x1', 'x2', 'x0(t-1)', 'x1(t-1)', 'x2(t-1)']
    """
    as_text = getattr(data, "summary", None)
    if callable(as_text):
        return str(as_text())
    read = {
        name: columns.pop(name)
        for name in list(columns)
        if name in Layout.given_names() and name != "missing"
    }
    if is_federation(data):
        data, columns["federation"] = None, data
    made = MomentSummary(n_lags, prepare=prepare or Prepare()).set_params(**columns)
    found: Summary = made.fit(data, layout=layout, observer=observer, **read).summary_
    return found
