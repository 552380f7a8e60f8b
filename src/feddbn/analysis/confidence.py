"""How far each edge, or each mark of an edge, can be trusted: refit on resamples of parts of the rows, count, tabulate.

The sites send moments of a few parts of their rows once (`feddbn.core.designs.parts`). Resamples are drawn, and fitted, at
the server, from sums only.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from os import PathLike
from typing import Any, Protocol, TypeVar

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.base import clone

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.parts import redrawn
from feddbn.core.threads import one_thread
from feddbn.data.layout import Layout
from feddbn.data.read import read_sites
from feddbn.errors import ParameterError, ResidualsWarning
from feddbn.federation.programs.curved import dispersion_program
from feddbn.federation.programs.functions import CurvedMoments
from feddbn.federation.programs.residual_checks import ResidualReport, network_checks_program
from feddbn.federation.protocol.task import Federation, run_program
from feddbn.federation.sums.prepare import AS_THEY_ARE
from feddbn.federation.sums.treatment import AskedMoments, asked_moments_program
from feddbn.interop.summary import Summary
from feddbn.method_table import METHODS
from feddbn.methods.base import DBNEstimator, in_process, learned_from, unwarned
from feddbn.methods.fdbnl import PooledEstimator
from feddbn.methods.latent import LatentDBN
from feddbn.model.dbn import DBN
from feddbn.model.graph import AncestralGraph
from feddbn.results.remarks import (
    are_looked_at,
    fitted_network,
    hidden_findings,
    hidden_table,
    not_looked_at,
    residual_findings,
    summarise,
)
from feddbn.results.result import plain
from feddbn.settings import is_federation, number, shown, whole
from feddbn.shown import Shown
from feddbn.words import say

__all__ = [
    "ConfidenceTable",
    "MomentsEstimator",
    "confidence",
    "confidence_table",
    "curved_edges",
    "mark_table",
]

COLUMNS = (
    "source", "target", "lag", "weight", "ci_low", "ci_high", "probability", "presence", "direction", "oriented",
)  # fmt: skip
MARK_COLUMNS = ("source", "target", "lag", "mark", "edge", "same", "cause", "hidden", "reverse")
T = TypeVar("T")


class ConfidenceTable(Shown, pd.DataFrame):
    """The frame of edges that `confidence` returns; what is made of it by pandas is a plain frame."""


class MomentsEstimator(Protocol):
    """An estimator that can learn from summed moments alone."""

    @property
    def n_lags(self) -> int:
        """Number of lags."""
        ...

    def fit_moments(self, moments: Any, variables: Sequence[str]) -> DBN:
        """Return the network of the moments of ``z = [x_t, ..., x_{t-p}]``.

        One with ``curves_on(federation)``, as `OneShotDBN` has, also takes moments of curved rows (`CurvedMoments`).
        """
        ...


def confidence(
    estimator: MomentsEstimator | LatentDBN,
    data: Any = None,
    n_replicates: int = 100,
    *,
    level: float = 0.9,
    threshold: float = 0.0,
    random_state: int = 0,
    federation: Federation | None = None,
    layout: Layout | None = None,
    n_jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
    **columns: Any,
) -> pd.DataFrame:
    """Return a frame of edges and how often they come again in resamples; a `LatentDBN` gives their marks.

    Parameters
    ----------
    estimator
        A `LatentDBN`, or one with `n_lags` and ``fit_moments(moments, variables) -> DBN``; clones of it are fitted, it stays
        as it is.
    data
        Site -> frame, array or list of them (one recording each), or whatever else `read_sites` takes; or a federation.
    n_replicates
        Number of resamples B.
    level
        Of edges: coverage of the percentile interval of a weight over the replicates (an absent edge counts as 0).
    threshold
        Of edges: one is present in a replicate if its absolute weight is larger.
    random_state
        Seed; the same seed and the same data give the same table.
    federation
        A running federation, instead of `data`.
    layout, columns
        With `data`, which columns are what: a `feddbn.Layout`, or its fields by name (``site="ward"``).
    n_jobs
        Processes for the refits (joblib); None is one.
    progress
        Called with the number of replicates that have been fitted.

    Returns
    -------
    Frame source, target, lag, weight, ci_low, ci_high, probability, presence, direction, oriented, most probable first: every
    edge that is present in the fit on all data or in some replicate. `weight` is that of the fit on all data, `probability`
    the share of replicates in which the edge is present. Where the fit has curves (``OneShotDBN(features="spline")``, or
    "auto" if it takes them), rows of the same functions are resampled, weights are average slopes, and `curved` is the share
    of replicates in which the edge has a curve or is part of a product.

    Of a `LatentDBN`, frame source, target, lag, mark, edge, same, cause, hidden, reverse: `mark` is that of all data, "" if
    it has no such edge; the rest are shares of replicates: with an `edge`, with the `same` mark, with ``-->`` (`cause`),
    ``<->`` (`hidden`) and ``<--`` (`reverse`, contemporaneous).

    Resampling cannot see a wrong assumption: what the memory of noise or a hidden cause feigns comes again in every
    replicate. So residuals near the fit on all data are looked at in one more sum (not those of marks, nor if the estimator
    has ``check_residuals=False`` or sites do not answer that): ``table.attrs["residuals"]`` has the numbers of
    `results.remarks.ResidualSummary`, ``table.attrs["findings"]`` what contradicts the model.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> table = feddbn.confidence(feddbn.OneShotDBN(), data.sites, n_replicates=4)
    >>> table[["source", "target", "lag", "probability"]].head(2).values.tolist()
    [['x2', 'x1', 0, 1.0], ['x0', 'x0', 1, 1.0]]
    >>> feddbn.confidence(feddbn.LatentDBN(), data.sites, n_replicates=4)[["source", "target", "mark"]].values.tolist()[0]
    ['x0', 'x2', 'o->']
    """
    _check_estimator(estimator)
    whole(2).check("n_replicates", n_replicates)
    number(above=0, below=1).check("level", level)
    number(0).check("threshold", threshold)
    whole(0).check("random_state", random_state)
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0):
        raise ParameterError(f"n_jobs={n_jobs!r} must be a whole number other than 0, or None.")
    running = _federation(data, federation, Layout.of(layout, columns, "confidence"), estimator)
    running = learned_from(running, getattr(estimator, "_rows", AS_THEY_ARE))
    names = running.variables
    n_lags = int(estimator.n_lags) * (2 if isinstance(estimator, LatentDBN) else 1)
    rows = _rows_to_resample(estimator, running, n_lags)
    dispersion, _ = run_program(
        dispersion_program(names, n_lags, rows.asked, rows.asked.moments, running), running
    )
    replicates = rows.drawn(dispersion, int(n_replicates), np.random.default_rng(random_state))
    table: pd.DataFrame
    if isinstance(estimator, LatentDBN):
        learn = partial(_marks, estimator, rows, names, n_lags)
        table = mark_table(learn(rows.whole), _refits(learn, replicates, n_jobs, progress))
        table.attrs.update(n_replicates=int(n_replicates), random_state=int(random_state))
        return table
    # Small solves are faster on one BLAS thread; joblib's own workers limit theirs.
    with one_thread():
        fitted = clone(estimator, safe=False)
        full = fitted.fit_moments(rows.given(rows.whole), names)
    found = _refits(partial(_weights, estimator, rows, names), replicates, n_jobs, progress)
    curved = None if rows.told is None else np.stack([one[1] for one in found])
    stacks = np.stack([one[0] for one in found])
    table = ConfidenceTable(confidence_table(full, stacks, level=level, threshold=threshold, curved=curved))
    table.attrs.update(n_replicates=int(n_replicates), level=level, random_state=int(random_state))
    report = rows.report
    if rows.told is None and are_looked_at(getattr(estimator, "check_residuals", "auto"), running):
        limits = EdgeConstraints.none(full.d, len(full.A))
        inputs: tuple[int, ...] = ()
        if isinstance(fitted, DBNEstimator):
            limits, inputs = fitted._constraints(), fitted._inputs
        network = fitted_network(full, limits, inputs, rows.asked.center, rows.asked.treatment, rows.asked)
        report = run_program(network_checks_program(network), running)
    table.attrs.update(_said(report, full, getattr(estimator, "_warns", True)))
    return table


def _check_estimator(estimator: object) -> None:
    if isinstance(estimator, type):
        raise ParameterError(f"estimator is the class {estimator.__name__}; write {estimator.__name__}().")
    if isinstance(estimator, LatentDBN):
        estimator.check_parameters()
        return
    if isinstance(estimator, (Mapping, pd.DataFrame, str, PathLike)):
        raise ParameterError(
            "estimator must be a method that says how to learn, not data; write confidence(OneShotDBN(), data).",
            code="no-estimator",
        )
    if not hasattr(estimator, "fit_moments"):
        able = " or ".join(known.cls for known in METHODS.values() if known.resamples)
        raise ParameterError(
            f"estimator={shown(estimator)} cannot learn from sums: it has no fit_moments(moments, variables); use {able}."
        )
    why_not = estimator._why_not_moments() if isinstance(estimator, PooledEstimator) else None
    if why_not is not None:
        raise why_not
    n_lags = getattr(estimator, "n_lags", None)
    if not whole(0).holds(n_lags):
        raise ParameterError(
            f"confidence needs a fixed number of lags, but the estimator has n_lags={n_lags!r}; set it to the number that "
            "was chosen."
        )


def _said(report: ResidualReport | None, full: DBN, warns: bool) -> dict[str, Any]:
    """What residuals say, as numbers and sentences; warn of what resampling repeats in every replicate."""
    if report is None:
        return {"residuals": None, "findings": []}
    summary = summarise(report, full.variables)
    found = not_looked_at(report) if summary is None else residual_findings(summary, len(full.A))
    found += hidden_findings(hidden_table(full, None, report.doubts), report.doubts, full.variables)
    for one in found:
        if one.level == "warning" and warns:
            warnings.warn(say(one), ResidualsWarning, stacklevel=3)
    told = {"findings": [plain(one.to_dict()) for one in found]}
    return {"residuals": None if summary is None else plain(asdict(summary)), **told}


def confidence_table(
    full: DBN,
    replicates: FloatArray,
    *,
    level: float = 0.9,
    threshold: float = 0.0,
    curved: BoolArray | None = None,
) -> pd.DataFrame:
    """Tidy table of a fit on all data and of (B, p+1, d, d) weights of replicates, ``[from, to]``.

    Of contemporaneous edges `presence` is the share of replicates with a link either way and `direction` the share of these
    with this direction; `oriented` says whether the fit on all data has the link and knows its direction.

    `curved`, of the same shape, says where the networks have a curve or a product: these are edges whatever their average
    slope, and the column `curved` is the share of replicates that have one.
    """
    present, weights = np.abs(replicates) > threshold, full.adjacency_matrices
    is_edge = np.abs(weights) > threshold
    if curved is not None:
        present, is_edge = present | curved, is_edge | curved_edges(full)
    probability = present.mean(axis=0)
    lag, i, j = np.nonzero((probability > 0) | is_edge)
    low, high = np.quantile(replicates[:, lag, i, j], [0.5 - level / 2, 0.5 + level / 2], axis=0)
    names = np.asarray(full.variables, dtype=object)
    # A replicate has at most one direction of a contemporaneous link.
    presence = probability.copy()
    presence[0] += probability[0].T
    chance = presence[lag, i, j]
    direction = np.divide(probability[lag, i, j], chance, out=np.full(len(lag), np.nan), where=chance > 0)
    oriented = (lag > 0) | full.is_oriented[lag, i, j] | full.is_oriented[lag, j, i]
    columns = (names[i], names[j], lag, weights[lag, i, j], low, high, probability[lag, i, j])
    link = (chance, np.where(lag > 0, 1.0, direction), oriented)
    table = pd.DataFrame(dict(zip(COLUMNS, (*columns, *link), strict=True)))
    if curved is not None:
        table["curved"] = curved.mean(axis=0)[lag, i, j]
    strength = table["weight"].abs()
    order = np.lexsort([-strength.to_numpy(), -table["probability"].to_numpy()])
    return table.iloc[order].reset_index(drop=True)


def curved_edges(dbn: DBN) -> BoolArray:
    """(p+1, d, d) where a network has a curve or a product, [lag, from, to]."""
    return np.isin(dbn.shapes(), ("curved", "product"))


def mark_table(full: AncestralGraph, replicates: Sequence[AncestralGraph]) -> pd.DataFrame:
    """Tidy table of the marks of a fit on all data, and how often replicates agree; most frequent edges first."""
    marks = np.stack([graph.marks for graph in (full, *replicates)])
    rows = []
    for i, j, lag in np.argwhere((marks != "").any(axis=0)):
        own = str(marks[0, i, j, lag])
        # A contemporaneous pair is listed once, as the fit on all data reads it.
        if lag == 0 and (_is_backward(own) or (own == marks[0, j, i, 0] and i > j)):
            continue
        counted = Counter(marks[1:, i, j, lag].tolist())
        shares = (
            len(replicates) - counted[""],
            counted[own] if own else 0,
            *(counted[m] for m in ("-->", "<->", "<--")),
        )
        shown_as = (full.variables[i], full.variables[j], int(lag), own)
        rows.append((*shown_as, *(share / len(replicates) for share in shares)))
    table = pd.DataFrame(rows, columns=list(MARK_COLUMNS))
    return table.sort_values(["edge", "same"], ascending=False, kind="stable").reset_index(drop=True)


def _is_backward(mark: str) -> bool:
    """Whether a contemporaneous edge is read from its head to its tail or circle."""
    return mark in ("<--", "<-o", "--o")


def _refits(
    learn: Callable[[Moments], T],
    replicates: Sequence[Moments],
    n_jobs: int | None,
    progress: Callable[[int], None] | None,
) -> list[T]:
    """What is learned from each replicate."""
    found: list[T] = []
    with one_thread():
        refits = (delayed(learn)(moments) for moments in replicates)
        for one in Parallel(n_jobs=n_jobs, return_as="generator")(refits):
            found.append(one)
            if progress is not None:
                progress(len(found))
    return found


def _weights(
    estimator: MomentsEstimator, rows: _RowsToResample, names: tuple[str, ...], moments: Moments
) -> tuple[FloatArray, BoolArray]:
    """Weights of the network of a replicate, and where it has curves or products."""
    _refuse_empty(moments)
    # The fit on all rows has already given this advice; once is enough.
    learner = unwarned(clone(estimator, safe=False))
    # How sure each resample is does not matter here.
    learn = getattr(learner, "network_of", learner.fit_moments)
    fitted: DBN = learn(rows.given(moments), names)
    return fitted.adjacency_matrices, curved_edges(fitted)


def _marks(
    estimator: LatentDBN, rows: _RowsToResample, names: tuple[str, ...], n_lags: int, moments: Moments
) -> AncestralGraph:
    """Marks of the graph of a replicate."""
    _refuse_empty(moments)
    removed = float(max(rows.asked.rank - 1.0, 0.0))
    found: LatentDBN = clone(estimator).set_params(federation=None)
    return found.fit_summary(Summary(moments, names, n_lags, n_nuisances=removed)).ancestral_graph_


def _refuse_empty(moments: Moments) -> None:
    if moments.n <= 0:
        raise ParameterError(
            "a replicate has no rows: there are too few blocks; choose a smaller block_length."
        )


def _federation(data: Any, federation: Federation | None, layout: Layout, estimator: object) -> Federation:
    if is_federation(data) and federation is None:
        data, federation = None, data
    if federation is None:
        if data is None:
            raise ParameterError("give the data of the sites, or a federation.")
        kinds = getattr(estimator, "kinds", None)
        known = layout if kinds is None else replace(layout, kinds=kinds)
        return in_process(read_sites(data, layout=known))
    if data is not None:
        raise ParameterError("give data or a federation, not both.")
    if layout not in (Layout(), Layout(variables=federation.variables)):
        raise ParameterError(
            f"{layout} says how a table is read, but the sites of a federation hold the data; leave it out."
        )
    return federation


@dataclass(frozen=True)
class _RowsToResample:
    """What is resampled, and what its moments mean to an estimator.

    Attributes
    ----------
    asked
        The sums that decided what is done to rows, and their moments.
    told
        What the fit on all rows learned its curves from; None: rows are lagged values.
    report
        What that fit says about its residuals.
    """

    asked: AskedMoments
    told: CurvedMoments | None = None
    report: ResidualReport | None = None

    @property
    def whole(self) -> Moments:
        """Moments of all rows."""
        return self.asked.moments if self.told is None else self.told.moments

    def drawn(self, dispersion: float, n: int, rng: np.random.Generator) -> tuple[Moments, ...]:
        """Resamples of all rows, which are worth fewer rows where parts differ."""
        whole = self.whole
        fewer = Moments(whole.n / dispersion, whole.mean, whole.scatter / dispersion)
        return tuple(redrawn(fewer, rng) for _ in range(n))

    def given(self, moments: Moments) -> Moments | CurvedMoments:
        """Moments of a resample as ``fit_moments`` takes them."""
        return moments if self.told is None else self.told.of(moments)


def _rows_to_resample(estimator: object, federation: Federation, n_lags: int) -> _RowsToResample:
    """Ask what a fit would ask first; rows of curves are resampled if it finds some.

    Resamples of rows with different levels would be confident about them, so rows are treated as in a fit.
    """
    curves_on = getattr(estimator, "curves_on", None)
    fit = None if curves_on is None else curves_on(federation)
    if fit is not None:
        outcome, report, curved = fit
        assert outcome.asked is not None
        return _RowsToResample(outcome.asked, *((curved.told, report) if curved is not None else ()))
    rows = estimator._rows_on(federation) if isinstance(estimator, DBNEstimator) else AS_THEY_ARE
    return _RowsToResample(run_program(asked_moments_program(federation.variables, n_lags, rows), federation))
