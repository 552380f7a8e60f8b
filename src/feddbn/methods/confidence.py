"""How far each edge can be trusted: refit on resamples of every site's own rows, count, tabulate.

The sites send sums of resampled moments (`feddbn.federation.programs.bootstrap`), so whatever protects sums
protects this too. The fits happen at the server, from sums only.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.base import clone

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.backend.device import one_thread
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.resampling import RESAMPLINGS
from feddbn.data.read import read_sites
from feddbn.errors import ParameterError, ResidualsWarning, ResultWarning
from feddbn.federation.programs.bootstrap import BLOCK_LENGTHS, UNITS, ResampledMoments
from feddbn.federation.programs.residual_checks import ResidualReport, network_checks_program
from feddbn.federation.protocol.task import Federation, run_program
from feddbn.method_table import METHODS
from feddbn.methods.base import DBNEstimator, in_process
from feddbn.methods.resampled_rows import ResampledRows, rows_to_resample
from feddbn.methods.residuals import are_looked_at, fitted_network, residual_findings, summarise
from feddbn.methods.result import plain
from feddbn.model.dbn import DBN
from feddbn.model.inputs import interval_level
from feddbn.shown import Shown
from feddbn.words import say

__all__ = ["ConfidenceTable", "MomentsEstimator", "confidence_table", "curved_edges", "edge_confidence"]

COLUMNS = (
    "source", "target", "lag", "weight", "ci_low", "ci_high", "probability", "presence", "direction", "oriented",
)  # fmt: skip


class ConfidenceTable(Shown, pd.DataFrame):
    """The frame that `edge_confidence` returns; what is made of it by pandas is a plain frame."""


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


def edge_confidence(
    estimator: MomentsEstimator,
    sites: Any = None,
    n_replicates: int = 100,
    block_length: int | str = "auto",
    method: str = "bootstrap",
    random_state: int = 0,
    federation: Federation | None = None,
    *,
    variables: Sequence[str] | None = None,
    unit: str = "auto",
    level: float = 0.9,
    threshold: float = 0.0,
    n_jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ConfidenceTable:
    """Frame source, target, lag, weight, ci_low, ci_high, probability; most probable first.

    Parameters
    ----------
    estimator
        Has `n_lags` and ``fit_moments(moments, variables) -> DBN``; clones of it are fitted, it stays as
        it is.
    sites
        Site -> frame, array or list of them (one recording each), or whatever else `read_sites` takes.
    n_replicates
        Number of resamples B.
    block_length
        Rows per block: a number, ``"auto"`` (cube root of the site's rows) or ``"politis-white"``
        (estimated at each site; needs the extra `bootstrap`).
    method
        ``"bootstrap"``: blocks are drawn with replacement. ``"stability"``: half of the blocks, in
        complementary pairs.
    random_state
        Seed; the same seed and the same data give the same table.
    federation
        A running federation, instead of `sites`.
    variables
        With `sites`, the columns to use.
    unit
        ``"recordings"``, ``"blocks"``, or ``"auto"``: recordings at a site that has at least 20 of them.
    level
        Coverage of the percentile interval of a weight over the replicates (an absent edge counts as 0).
    threshold
        An edge is present in a replicate if its absolute weight is larger.
    n_jobs
        Processes for the refits (joblib); None is one.
    progress
        Called with the number of replicates that have been fitted.

    Returns
    -------
    Every edge that is present in the fit on all data or in some replicate. `weight` is that of the fit on
    all data, `probability` the share of replicates in which the edge is present. Where the fit has curves
    (``OneShotDBN(features="spline")``, or "auto" if it takes them), rows of the same functions are resampled,
    weights are average slopes, and `curved` is the share of replicates in which the edge has a curve or
    is part of a product.

    Resampling cannot see a wrong assumption: what the memory of noise or a hidden cause feigns comes again in every
    replicate. So residuals near the fit on all data are looked at in one more sum (unless the estimator has
    ``check_residuals=False``, or sites do not answer that): ``table.attrs["residuals"]`` has the numbers of
    `methods.residuals.ResidualSummary`, ``table.attrs["warnings"]`` one sentence for each violation.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> table = feddbn.edge_confidence(feddbn.OneShotDBN(average=False), data.sites, n_replicates=4)
    >>> table[["source", "target", "lag", "probability"]].head(2).values.tolist()
    [['x2', 'x1', 0, 1.0], ['x0', 'x2', 1, 1.0]]
    """
    if method not in RESAMPLINGS:
        raise ParameterError(f"method must be one of {', '.join(RESAMPLINGS)}, got {method!r}.")
    if unit not in UNITS:
        raise ParameterError(f"unit must be one of {', '.join(UNITS)}, got {unit!r}.")
    is_length = isinstance(block_length, (int, np.integer)) and not isinstance(block_length, bool)
    if (is_length and int(block_length) < 1) or (not is_length and block_length not in BLOCK_LENGTHS):
        raise ParameterError(
            "block_length must be a whole number of at least 1, 'auto' or 'politis-white', "
            f"got {block_length!r}."
        )
    for name, value, least in (("n_replicates", n_replicates, 2), ("random_state", random_state, 0)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise ParameterError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0):
        raise ParameterError(f"n_jobs must be a whole number other than 0 or None, got {n_jobs!r}.")
    interval_level(level, "level")
    if isinstance(estimator, type):
        raise ParameterError(f"estimator is the class {estimator.__name__}; write {estimator.__name__}().")
    if not hasattr(estimator, "fit_moments"):
        able = " or ".join(known.cls for known in METHODS.values() if known.resamples)
        raise ParameterError(
            f"estimator {type(estimator).__name__} cannot learn from sums: "
            f"it has no fit_moments(moments, variables); use {able}."
        )
    if isinstance(estimator.n_lags, bool) or not isinstance(estimator.n_lags, (int, np.integer)):
        raise ParameterError(
            "edge confidence needs a fixed number of lags, "
            f"but the estimator has n_lags={estimator.n_lags!r}; set it to the number that was chosen."
        )
    running = _federation(sites, federation, variables, getattr(estimator, "kinds", None))
    names = running.variables
    rows = rows_to_resample(estimator, running, int(estimator.n_lags))
    program = rows.program(
        names,
        int(estimator.n_lags),
        int(n_replicates),
        resampling=method,
        block_length=int(block_length) if is_length else str(block_length),
        unit=unit,
        seed=int(random_state),
    )
    resampled = rows.worth(run_program(program, running))
    fitted, full, stacks, curved = _refit(estimator, rows, resampled, names, n_jobs, progress)
    shapes = None if rows.told is None else curved
    table = ConfidenceTable(confidence_table(full, stacks, level=level, threshold=threshold, curved=shapes))
    table.attrs.update(
        method=method, n_replicates=int(n_replicates), level=level, random_state=int(random_state)
    )
    report = rows.report
    if rows.told is None and are_looked_at(getattr(estimator, "check_residuals", "auto"), running):
        limits = EdgeConstraints.none(full.d, len(full.A))
        inputs: tuple[int, ...] = ()
        if isinstance(fitted, DBNEstimator):
            limits, inputs = fitted._constraints(), fitted._inputs
        network = fitted_network(full, limits, inputs, rows.treatment.center, rows.treatment, rows.asked)
        moments = resampled.full if rows.asked is None else None
        report = run_program(network_checks_program(network, moments), running)
    table.attrs.update(_said(report, full))
    return table


def _said(report: ResidualReport | None, full: DBN) -> dict[str, Any]:
    """What residuals say, as numbers and sentences; warn of what resampling repeats in every replicate."""
    if report is None:
        return {"residuals": None, "warnings": []}
    summary = summarise(report)
    found = residual_findings(summary, len(full.A))
    for one in found:
        if one.level == "warning":
            warnings.warn(say(one), ResidualsWarning, stacklevel=3)
    return {"residuals": plain(asdict(summary)), "warnings": [say(one) for one in found]}


def confidence_table(
    full: DBN,
    replicates: FloatArray,
    *,
    level: float = 0.9,
    threshold: float = 0.0,
    curved: BoolArray | None = None,
) -> pd.DataFrame:
    """Tidy table of a fit on all data and of (B, p+1, d, d) weights of replicates, ``[from, to]``.

    Within a moment `presence` is the share of replicates with a link either way and `direction` the share of these with
    this direction; `oriented` says whether the fit on all data has the link and knows its direction.

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
    # A replicate has at most one direction of a link within a moment.
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
    found = np.zeros(dbn.adjacency_matrices.shape, dtype=bool)
    for curve in dbn.curves:
        found[curve.lag, curve.source, curve.target] = True
    for product in dbn.products:
        found[product.lag, [product.first, product.second], product.target] = True
    return found


def _refit(
    estimator: MomentsEstimator,
    rows: ResampledRows,
    resampled: ResampledMoments,
    names: tuple[str, ...],
    n_jobs: int | None,
    progress: Callable[[int], None] | None,
) -> tuple[MomentsEstimator, DBN, FloatArray, BoolArray]:
    # Small solves are faster on one BLAS thread; joblib's own workers limit theirs.
    with one_thread():
        fitted = clone(estimator, safe=False)
        full = fitted.fit_moments(rows.given(resampled.full), names)
        stacks = []
        refits = (delayed(_stack)(estimator, rows, m, names) for m in resampled.replicates)
        for stack in Parallel(n_jobs=n_jobs, return_as="generator")(refits):
            stacks.append(stack)
            if progress is not None:
                progress(len(stacks))
    return fitted, full, np.stack([one[0] for one in stacks]), np.stack([one[1] for one in stacks])


def _stack(
    estimator: MomentsEstimator, rows: ResampledRows, moments: Moments, names: tuple[str, ...]
) -> tuple[FloatArray, BoolArray]:
    if moments.n <= 0:
        raise ParameterError(
            "a replicate has no rows: there are too few blocks; choose a smaller block_length."
        )
    with warnings.catch_warnings():
        # The fit on all rows has already given this advice; once is enough.
        warnings.simplefilter("ignore", ResultWarning)
        fitted: DBN = clone(estimator, safe=False).fit_moments(rows.given(moments), names)
    return fitted.adjacency_matrices, curved_edges(fitted)


def _federation(
    sites: Any, federation: Federation | None, variables: Sequence[str] | None, kinds: Any = None
) -> Federation:
    if federation is None:
        if sites is None:
            raise ParameterError("give the data of the sites, or a federation.")
        return in_process(read_sites(sites, variables=variables, missing="keep", kinds=kinds))
    if sites is not None:
        raise ParameterError("give sites or a federation, not both.")
    if variables is not None and tuple(variables) != federation.variables:
        raise ParameterError(
            f"variables={list(variables)!r} must be None when a federation is given: it names its own, "
            f"{', '.join(federation.variables[:10])}."
        )
    return federation
