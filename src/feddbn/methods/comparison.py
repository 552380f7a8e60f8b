"""Several methods on the same sites: scores against the truth or, without one, on rows that were held out."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.complete import complete_blocks
from feddbn.core.designs.lagged import Block
from feddbn.data import ArrayRecording, MemorySite, SiteData
from feddbn.errors import DataError, ParameterError
from feddbn.federation.protocol.task import Observer
from feddbn.method_table import Method, available_methods
from feddbn.methods.registry import make_estimator
from feddbn.methods.scoring import score, score_sites
from feddbn.methods.truth import Truth, truth_of_sites
from feddbn.model.dbn import DBN

__all__ = ["Compared", "compare", "default_methods", "fit_method", "held_out_score", "split_rows"]

Start = Callable[[str], None]


@dataclass(frozen=True)
class Compared:
    """One method's line of a comparison, with its fitted estimator.

    Attributes
    ----------
    scores
        Part ("W", "A") -> shd, shd_paper, tpr, fdr, precision, f1, averaged over sites if they have different
        truths or networks; None without a truth.
    held_out
        Mean log-likelihood of a held-out row, or None; only methods whose weights are effects have one.
    """

    method: Method
    estimator: Any
    seconds: float
    scores: dict[str, dict[str, float]] | None
    held_out: float | None

    @property
    def networks(self) -> DBN | dict[str, DBN]:
        """The shared network, or each site's own."""
        found: DBN | dict[str, DBN] = self.estimator.dbns_ if self.method.is_personal else self.estimator.dbn_
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON; edges are means over sites where each has its own network."""
        found = self.networks
        networks = [found] if isinstance(found, DBN) else list(found.values())
        status = getattr(self.estimator, "status_", None)
        return {
            "method": self.method.name,
            "label": self.method.label,
            "scores": self.scores,
            "held_out_log_likelihood": self.held_out,
            "edges_w": _mean_count([dbn.W for dbn in networks]),
            "edges_a": _mean_count([dbn.A for dbn in networks]),
            "rounds": getattr(self.estimator, "n_rounds_", None),
            "seconds": self.seconds,
            "converged": None if status is None else bool(status.is_converged),
        }


def default_methods(truth: Truth | None, personal: bool) -> list[Method]:
    """Return the methods that make sense: the best site needs one truth; personal ones if asked for."""
    return [
        method
        for method in available_methods()
        if (not method.needs_truth or isinstance(truth, DBN)) and (personal or not method.is_personal)
    ]


def fit_method(
    method: Method,
    sites: Any,
    parameters: Mapping[str, Any],
    truth: Truth | None = None,
    observer: Observer | None = None,
    **columns: Any,
) -> Any:
    """Return the fitted estimator of one method; `columns` are the names `feddbn.data.read_sites` takes."""
    estimator = make_estimator(method.name, parameters)
    extra: dict[str, Any] = {key: value for key, value in columns.items() if value is not None}
    if method.needs_truth:
        if not isinstance(truth, DBN):
            raise ParameterError(f"method {method.name!r} chooses by the truth; give one true network.")
        extra["truth"] = truth
    if _takes(estimator.fit, "observer"):
        extra["observer"] = observer
    return estimator.fit(sites, **extra)


def compare(
    sites: Mapping[str, SiteData],
    methods: Sequence[Method],
    parameters: Mapping[str, Any],
    truth: Truth | None = None,
    held_out: float = 0.0,
    observer: Observer | None = None,
    start: Start | None = None,
) -> Iterator[Compared]:
    """Yield one line per method; each takes those of `parameters` that it has.

    With ``held_out=0.2`` every method learns from the first 80 % of each recording and is scored on the rest.
    """
    for key in parameters:
        if not any(key in method.parameters() for method in methods):
            raise ParameterError(f"none of the compared methods has the parameter {key!r}; leave it out.")
    learn, test = (sites, None) if not held_out else split_rows(sites, held_out)
    for method in methods:
        if start is not None:
            start(method.label)
        mine = {key: value for key, value in parameters.items() if key in method.parameters()}
        before = time.perf_counter()
        estimator = fit_method(method, learn, mine, truth, observer)
        seconds = time.perf_counter() - before
        line = Compared(method, estimator, seconds, None, None)
        scores = None if truth is None else _scores(truth, line.networks)
        tested = (
            None
            if test is None or not method.predicts
            else held_out_score(
                line.networks,
                test,
                _levels(learn) if getattr(estimator, "center_", None) == "recording" else None,
            )
        )
        yield Compared(method, estimator, seconds, scores, tested)


def _takes(function: Callable[..., Any], name: str) -> bool:
    known = inspect.signature(function).parameters
    return name in known or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())


def _scores(truth: Truth, found: DBN | dict[str, DBN]) -> dict[str, dict[str, float]]:
    if isinstance(truth, DBN) and isinstance(found, DBN):
        return {part: dict(values) for part, values in score(truth, found).items()}
    means = score_sites(truth_of_sites(truth, found), found)
    return {part: {key.removeprefix("m"): value for key, value in means[part].items()} for part in means}


def split_rows(
    sites: Mapping[str, SiteData], share: float
) -> tuple[dict[str, SiteData], dict[str, list[FloatArray]]]:
    """Return the sites without the last `share` of the rows of each segment, and those of them that are complete."""
    if not 0 < share < 1:
        raise ParameterError(f"held_out={share!r} must lie between 0 and 1, for example 0.2.")
    learn: dict[str, SiteData] = {}
    test: dict[str, list[FloatArray]] = {}
    for name, site in sites.items():
        kept, test[name] = [], []
        for recording in site.recordings():
            first = []
            for rows in _segments(recording.blocks()):
                cut = len(rows) - round(share * len(rows))
                first.append(Block(rows[:cut]))
                test[name] += _segments(complete_blocks([Block(rows[cut:])]))
            kept.append(ArrayRecording(recording.name, tuple(first)))
        learn[name] = MemorySite(tuple(site.variables), tuple(kept))
    return learn, test


def _segments(blocks: Iterable[Block]) -> Iterator[FloatArray]:
    pending: list[FloatArray] = []
    for block in blocks:
        if block.starts_segment and pending:
            yield np.concatenate(pending)
            pending = []
        pending.append(block.values)
    if pending:
        yield np.concatenate(pending)


def _levels(learn: Mapping[str, SiteData]) -> dict[str, list[FloatArray | None]]:
    """Return for every segment the mean of the rows that its recording was learned from; None if there are none."""
    found: dict[str, list[FloatArray | None]] = {}
    for name, site in learn.items():
        found[name] = []
        for recording in site.recordings():
            segments = [block.values for block in recording.blocks()]
            n_rows = sum(map(len, segments))
            mean = sum(rows.sum(axis=0) for rows in segments) / n_rows if n_rows else None
            found[name] += [mean] * len(segments)
    return found


def held_out_score(
    found: DBN | Mapping[str, DBN],
    test: Mapping[str, Sequence[FloatArray]],
    levels: Mapping[str, Sequence[FloatArray | None]] | None = None,
) -> float:
    """Return the mean Gaussian log-likelihood of a row, with the noise variances of these very rows.

        log |det(I - W)| - 1/2 sum_j (log(2 pi v_j) + 1),     v_j the mean squared residual of variable j

    The variances are taken from the rows because not every method estimates them; that favours none. The
    determinant is 1 for an acyclic W and charges those that keep cycles. Where every recording was centred on
    its own mean, `levels` has that mean for every segment.
    """
    squares: FloatArray | float = 0.0
    n_rows, log_det = 0, 0.0
    for site, segments in test.items():
        dbn = found if isinstance(found, DBN) else found[site]
        means = [None] * len(segments) if levels is None else levels[site]
        residuals = [
            _residuals(dbn if mean is None else dbn.at_level(mean), rows)
            for rows, mean in zip(segments, means, strict=True)
            if len(rows) > dbn.n_lags
        ]
        count = sum(map(len, residuals))
        squares = squares + sum((r * r).sum(axis=0) for r in residuals)
        log_det += count * float(np.linalg.slogdet(np.eye(dbn.d) - dbn.W)[1])
        n_rows += count
    if not n_rows:
        raise DataError("no held-out segment is longer than n_lags; hold out more rows or lower n_lags.")
    variances = np.asarray(squares) / n_rows
    return log_det / n_rows - 0.5 * float(np.sum(np.log(2 * np.pi * variances) + 1.0))


def _residuals(dbn: DBN, rows: FloatArray) -> FloatArray:
    p, n = dbn.n_lags, len(rows)
    residuals = rows[p:] - dbn.intercept - rows[p:] @ dbn.W
    for lag in range(1, p + 1):
        residuals = residuals - rows[p - lag : n - lag] @ dbn.A[lag - 1]
    return residuals


def _mean_count(arrays: Sequence[FloatArray]) -> float | int:
    counts = [int(np.count_nonzero(array)) for array in arrays]
    return counts[0] if len(counts) == 1 else sum(counts) / len(counts)
