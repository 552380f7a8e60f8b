"""One matrix of second moments for everything that reads a covariance: `summary`, and the method behind it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.graphs.constraints import Edge
from feddbn.core.graphs.status import Status
from feddbn.core.statistics.moments import safe_roots
from feddbn.data import SiteData
from feddbn.errors import ParameterError
from feddbn.federation.programs.treatment import asked_moments_program
from feddbn.federation.protocol.task import Federation, Observer, counted
from feddbn.methods.base import DBNEstimator
from feddbn.methods.treated import TREATMENT_RULES
from feddbn.model.dbn import DBN
from feddbn.model.summary import Summary
from feddbn.settings import Rule, a_federation, is_federation, whole, word

__all__ = ["MomentSummary", "asked_summary", "summary"]

_NOISY = "Every site added noise: the sum is differentially private, as its federation's plan says."


class MomentSummary(DBNEstimator[Any]):
    """The summed second moments themselves (`summary_`), to be read by any algorithm that takes a covariance matrix.

    As a network it is the plain vector autoregression: every variable on all lags of all, nothing within a moment.

    Parameters
    ----------
    n_lags
        Number of lags. Tests that condition on the past of causes need twice the largest lag of an edge.
    center, detrend, period, gains, spikes, missing, on_disagreement, exogenous
        What is done to the rows first (docs/preparing-data.md).
    federation
        Where the sums are carried out; by default in this process.

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
    forbidden_edges: Sequence[Edge] | None = None
    required_edges: Sequence[Edge] | None = None

    rules: ClassVar[Mapping[str, Rule]] = {
        "n_lags": whole(0),
        "center": word("auto", "none", "recording"),
        **TREATMENT_RULES,
        "on_disagreement": word("exclude", "warn", "ignore"),
        "federation": a_federation(),
    }

    def __init__(
        self,
        n_lags: int = 1,
        *,
        center: str = "auto",
        detrend: int | str = "auto",
        period: float | Sequence[float] | str | None = "auto",
        gains: str = "auto",
        spikes: str = "auto",
        missing: str = "fill",
        on_disagreement: str = "exclude",
        exogenous: Sequence[str] | None = None,
        federation: Federation | None = None,
    ) -> None:
        self.n_lags = n_lags
        self.center = center
        self.detrend = detrend
        self.period = period
        self.gains = gains
        self.spikes = spikes
        self.missing = missing
        self.on_disagreement = on_disagreement
        self.exogenous = exogenous
        self.federation = federation

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        names, n_lags, d = self._variables, int(self.n_lags), len(self._variables)
        self.summary_, n_sums = asked_summary(self, n_lags, federation, observer)
        moments = self.summary_.moments
        S = moments.scatter
        weights: FloatArray = np.asarray(
            np.linalg.lstsq(S[d:, d:], S[d:, :d], rcond=None)[0], dtype=np.float64
        )
        A = weights.reshape(n_lags, d, d)
        A[:, :, list(self._inputs)] = 0.0
        dbn = DBN.from_moments(np.zeros((d, d)), A, moments, names)
        self._set_network(dbn, dbn)
        self.standard_deviations_ = safe_roots(np.diag(S)[:d] / moments.n)
        self._tell(
            "this network is the plain vector autoregression: every lagged weight is in it, and none was selected or tested. "
            "`summary_` is for the algorithms of feddbn.interop."
        )
        self.status_, self.n_rounds_, self.n_samples_ = Status.EXACT, n_sums, int(moments.n)


def asked_summary(
    estimator: DBNEstimator[Any], n_lags: int, federation: Federation, observer: Observer | None
) -> tuple[Summary, int]:
    """Ask for what an estimator with arguments of `feddbn.methods.treated` wants summed; also the number of sums.

    The estimator then says what was done to the rows (`center_`, `treatment_`, `warnings_`).
    """
    names = estimator._variables
    rows = estimator._rows_on(federation)
    (asked, n_sums), _ = estimator._run(
        counted(asked_moments_program(names, n_lags, rows)), federation, observer
    )
    estimator._say_moments(asked)
    tasks = federation.answered_tasks
    stayed_out = asked.n_disagreeing if asked.treatment.abstain else 0
    found = Summary(
        asked.moments,
        names,
        n_lags,
        estimator.treatment_,
        float(max(asked.rank - 1.0, 0.0)),
        len(federation.sites) - stayed_out,
        _NOISY if tasks is not None and "survey" not in tasks else "",
    )
    return found, n_sums


def summary(data: Any, n_lags: int = 1, *, observer: Observer | None = None, **options: Any) -> Summary:
    """Return what a federation releases of its rows: one matrix of second moments at lags 0 to `n_lags`.

    Parameters
    ----------
    data
        A federation, or anything `feddbn.data.read_sites` takes.
    n_lags
        Number of lags.
    observer
        Called after every sum; for progress bars.
    options
        What is done to the rows first (``center=``, ``detrend=``, ``missing=``, ...: arguments of `MomentSummary`), and
        which columns are what (``site=``, ``time=``, ...: arguments of `feddbn.data.read_sites`).

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> feddbn.summary(data.sites, n_lags=1).columns
    ['x0', 'x1', 'x2', 'x0(t-1)', 'x1(t-1)', 'x2(t-1)']
    """
    given = {name: options.pop(name) for name in list(options) if name in MomentSummary.rules}
    known = inspect.signature(MomentSummary.fit).parameters
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ParameterError(
            f"summary has no argument {unknown[0]!r}; it takes n_lags and arguments of MomentSummary and read_sites."
        )
    if is_federation(data):
        data, given["federation"] = None, data
    found: Summary = MomentSummary(n_lags, **given).fit(data, observer=observer, **options).summary_
    return found
