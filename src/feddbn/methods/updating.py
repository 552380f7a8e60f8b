"""New rows for a fit: their sums are added to what was summed before, and the network is learned again from the whole."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from feddbn.core.threads import one_thread
from feddbn.data import SiteData
from feddbn.data.checks import summary
from feddbn.data.layout import Layout
from feddbn.errors import ParameterError
from feddbn.federation.protocol.task import Federation, Observer, run_program
from feddbn.federation.sums.tally import Tally, changes_of_treatment, new_moments_program, tally_of
from feddbn.federation.sums.treatment import AskedMoments, asked_moments_program
from feddbn.findings import Finding
from feddbn.methods.base import DBNEstimator, S, in_process

__all__ = ["UpdatedEstimator"]

_NO_SUMS = ParameterError("this fit has kept no sums; fit all rows again.", code="no-sums")


class UpdatedEstimator(DBNEstimator[S]):
    """An estimator to whose fit new rows can be added; a subclass learns from a tally in `_fit_tally`."""

    # What was summed so far; None, and why, where new rows cannot be added.
    _tally: Tally | None = None
    _why_not: ParameterError = _NO_SUMS

    def update(
        self,
        data: Any,
        *,
        layout: Layout | None = None,
        observer: Observer | None = None,
        **columns: Any,
    ) -> Any:
        """Add the rows of `data` to those that were fitted before, learn again, and return self.

        The old rows are not needed: their sums are kept. Without trends, cycles and own means of recordings the result is
        that of a fit of all rows at once from second moments. What was done to the old rows is done to the new ones;
        `findings_` says if these alone would have been treated otherwise.

        A lag does not reach from new rows to old ones. Where a recording goes on, give its last `n_lags` rows again in
        front of the new ones: they then serve as their past, and are not counted twice.

        Parameters
        ----------
        data
            New rows, as `fit` takes them: of the same variables, of sites old and new. None with ``federation=``.
        layout, columns
            As in `fit`.
        observer
            Called after every sum with the task and the answer.
        """
        names = [str(name) for name in self.feature_names_in_]
        tally = self._tally
        if tally is None:
            raise ParameterError(f"update: {self._why_not}", code=self._why_not.code)
        read = replace(Layout.of(layout, columns, "update"), variables=tuple(names))
        federation, sites = self._new_rows(data, read)
        changes: dict[str, Any] = {}
        # A copy learns: an update that fails leaves the fit as it was.
        learner = copy.copy(self)
        with one_thread():
            new, seconds = self._run(new_moments_program(tally), federation, observer)
            if sites is not None:
                changes = self._changes(tally, sites)
            learner._tally = tally.plus(new)
            learner._set_variables(tally.variables)
            if sites is not None:
                counts = summary(sites, tally.n_lags)
                used = self._used_rows(counts)
                learner.sites_ = _together(self.sites_, counts.assign(used_rows=used))
            learner._fit_tally(learner._tally)
        learner.n_rounds_ = self.n_rounds_ + len(seconds)
        learner._say_update(int(new.moments.n), changes)
        self.__dict__.update(vars(learner))
        return self

    def _new_rows(self, data: Any, read: Layout) -> tuple[Federation, Mapping[str, SiteData] | None]:
        if self.federation is not None:
            if data is not None:
                raise ParameterError(
                    "data must be None when federation= is given: the federation's sites hold the new rows."
                )
            return self.federation, None
        sites = self._read(data, read)
        self._check(sites, self._largest_lag)
        return in_process(sites), sites

    def _changes(self, tally: Tally, sites: Mapping[str, SiteData]) -> dict[str, Any]:
        """What the new rows alone would have had done to them, beyond what was decided for the old ones."""
        federation = in_process(sites)
        rows = self._rows_on(federation)
        if rows.is_settled:
            return {}
        alone = run_program(asked_moments_program(tally.variables, tally.n_lags, rows), federation)
        return changes_of_treatment(tally.treatment, alone, tally.variables)

    def _say_update(self, n_new: int, changes: Mapping[str, Any]) -> None:
        self._tell(Finding("rows-added", "note", {"n_new": n_new, "n_before": self.n_samples_ - n_new}))
        if changes:
            self._tell(Finding("treated-as-before", "warning", changes))

    def _forget(self) -> None:
        super()._forget()
        self._tally = None

    def _keep_sums(
        self, asked: AskedMoments | None, n_lags: int, why_not: ParameterError | None = None
    ) -> None:
        """Keep what was summed for a later `update`, or why that cannot be."""
        self._tally, self._why_not = None, why_not or _NO_SUMS
        if asked is None or why_not is not None:
            return
        try:
            self._tally = tally_of(asked, self._variables, n_lags)
        except ParameterError as error:
            self._why_not = error.with_traceback(None)

    def _fit_tally(self, tally: Tally) -> None:
        """Learn from all that was summed and set the attributes of a fit."""
        raise NotImplementedError

    def sums_to_dict(self) -> dict[str, Any]:
        """Return what was summed so far as plain values, for `Result.from_estimator(..., keep_sums=True)`."""
        if self._tally is None:
            raise ParameterError(f"keep_sums: {self._why_not}", code=self._why_not.code)
        return {**self._tally.to_dict(), "selected": dict(self._selected)}

    def take_up(self, sums: Mapping[str, Any], sites: pd.DataFrame, n_rounds: int, where: str) -> Any:
        """Go on from sums that were stored, as if this estimator had been fitted to their rows; return self."""
        self.check_parameters()
        tally = Tally.from_dict(sums, where)
        self._set_variables(tally.variables)
        self.selected_ = dict(sums.get("selected") or {})
        self.sites_, self.n_rounds_ = sites, n_rounds
        self._tally = tally
        with one_thread():
            self._fit_tally(tally)
        self.n_rounds_ = n_rounds
        return self


def _together(known: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Counts of sites, those of old and new rows added up."""
    both = pd.concat([known, new])
    counts = [name for name in known.columns if name != "missing_percent"]
    if not set(counts) <= set(new.columns) or not counts:
        return known
    total = both.groupby(level=0, sort=False)[counts].sum()
    if "missing_percent" in both.columns:
        cells = (both["missing_percent"] * both["rows"]).groupby(level=0, sort=False).sum()
        total["missing_percent"] = cells / total["rows"]
    total.index.name = known.index.name
    return total[list(known.columns)]
