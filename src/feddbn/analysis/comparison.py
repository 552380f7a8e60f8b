"""Several methods on the same data, as one table to look at."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from feddbn.analysis.truth import Truth, truth_of_sites
from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.threads import one_thread
from feddbn.data import SiteData, check_sites, read_sites
from feddbn.data.layout import Layout
from feddbn.errors import DataError, ParameterError
from feddbn.federation.programs.held_out import Judge, Squares, Weights, judge_program
from feddbn.federation.protocol.rows import Fold
from feddbn.federation.protocol.task import Federation, Observer, Task, run_program
from feddbn.federation.sums.prepare import AS_THEY_ARE
from feddbn.federation.sums.statistics import EarlierRows, make_fold
from feddbn.findings import Finding
from feddbn.method_table import Method, available_methods, get_method, make_estimator
from feddbn.methods.base import in_process, learned_from, unwarned
from feddbn.model.dbn import DBN
from feddbn.model.network import check_network
from feddbn.model.nodes import known
from feddbn.results.scoring import score, score_sites
from feddbn.shown import Shown

__all__ = [
    "Compared",
    "Comparison",
    "check_compared",
    "compare",
    "compare_methods",
    "compare_on",
    "default_methods",
    "fit_method",
]

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
        """The shared network, or each site's own; no site's where sites keep theirs."""
        found: DBN | dict[str, DBN] = self.estimator.dbns_ if self.method.is_personal else self.estimator.dbn_
        return found

    @property
    def all_networks(self) -> list[DBN]:
        """Whatever networks there are to look at: that of all sites, each one's, or the shared one if they keep theirs."""
        found = self.networks
        return [found] if isinstance(found, DBN) else list(found.values()) or [self.estimator.dbn_]

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON; edges are means over sites where each has its own network to look at."""
        networks = self.all_networks
        status = getattr(self.estimator, "status_", None)
        return {
            "method": self.method.name,
            "label": self.method.label,
            "scores": self.scores,
            "held_out_log_likelihood": self.held_out,
            "edges_w": _mean_count([dbn.is_edge[0] for dbn in networks]),
            "edges_a": _mean_count([dbn.is_edge[1:] for dbn in networks]),
            "rounds": getattr(self.estimator, "n_rounds_", None),
            "seconds": self.seconds,
            "converged": None if status is None else bool(status.is_converged),
        }


def default_methods(personal: bool) -> list[Method]:
    """Return the usual methods; personal ones if asked for."""
    return [
        method for method in available_methods() if method.is_usual and (personal or not method.is_personal)
    ]


def fit_method(
    method: Method,
    sites: Any,
    parameters: Mapping[str, Any],
    observer: Observer | None = None,
    *,
    federation: Federation | None = None,
    warns: bool = True,
    **columns: Any,
) -> Any:
    """Return the fitted estimator of one method; `columns` are the names `feddbn.data.read_sites` takes.

    With a `federation`, `sites` are None.
    """
    estimator = make_estimator(method.name, parameters)
    if not warns:
        unwarned(estimator)
    if federation is not None:
        estimator.set_params(federation=federation)
    extra: dict[str, Any] = {key: value for key, value in columns.items() if value is not None}
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
    check_compared(methods, parameters, held_out)
    if held_out:
        check_sites(sites, 0)
        with one_thread():
            yield from compare_on(in_process(sites), methods, parameters, held_out, truth, observer, start)
        return
    for method in methods:
        yield _fitted(method, sites, parameters, truth, observer, start)


def compare_on(
    federation: Federation,
    methods: Sequence[Method],
    parameters: Mapping[str, Any],
    held_out: float,
    truth: Truth | None = None,
    observer: Observer | None = None,
    start: Start | None = None,
) -> list[Compared]:
    """Return one line per method, from sums alone: fitted on the earlier rows of every site, judged on the later ones.

    All methods are judged on the same rows, treated in one way (`federation.programs.held_out`).
    """
    check_compared(methods, parameters, held_out)
    fold = make_fold(0, 1, held_out)
    earlier = EarlierRows(federation, fold)
    lines = [_fitted(method, None, parameters, truth, observer, start, earlier) for method in methods]
    scores = _judged(lines, federation, fold, observer)
    for line in lines:
        # What was learned stays; the rows stay where they are.
        line.estimator.set_params(federation=None)
    return [replace(line, held_out=score) for line, score in zip(lines, scores, strict=True)]


def check_compared(methods: Sequence[Method], parameters: Mapping[str, Any], held_out: float) -> None:
    """Refuse what cannot be compared."""
    if held_out and not 0 < held_out < 1:
        raise ParameterError(f"held_out={held_out!r} must lie between 0 and 1, for example 0.2.")
    if held_out and parameters.get("features", "linear") != "linear":
        raise ParameterError(
            f"features = {parameters['features']!r} cannot be judged on held-out rows; leave it out."
        )
    for key in parameters:
        if not any(method.has(key) for method in methods):
            raise ParameterError(f"none of the compared methods has the parameter {key!r}; leave it out.")


def _fitted(
    method: Method,
    sites: Any,
    parameters: Mapping[str, Any],
    truth: Truth | None,
    observer: Observer | None,
    start: Start | None,
    federation: Federation | None = None,
) -> Compared:
    if start is not None:
        start(method.label)
    mine = method.own(parameters)
    if federation is not None and method.has("features"):
        # Sites judge straight lines on held-out rows.
        mine["features"] = "linear"
    before = time.perf_counter()
    # Every estimator keeps its own advice in findings_.
    estimator = fit_method(method, sites, mine, observer, federation=federation, warns=False)
    seconds = time.perf_counter() - before
    line = Compared(method, estimator, seconds, None, None)
    return replace(line, scores=None if truth is None else _scores(truth, line.networks))


def _takes(function: Callable[..., Any], name: str) -> bool:
    known = inspect.signature(function).parameters
    return name in known or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values())


def _scores(truth: Truth, found: DBN | dict[str, DBN]) -> dict[str, dict[str, float]]:
    if isinstance(truth, DBN) and isinstance(found, DBN):
        return {part: dict(values) for part, values in score(truth, found).items()}
    means = score_sites(truth_of_sites(truth, found), found)
    return {part: {key.removeprefix("m"): value for key, value in means[part].items()} for part in means}


def _judged(
    lines: Sequence[Compared], federation: Federation, fold: Fold, observer: Observer | None
) -> list[float | None]:
    """Mean log-likelihoods of held-out rows; all networks are judged on the same rows, treated in one way."""
    fitted = [line.estimator for line in lines if line.method.predicts]
    if not fitted:
        return [None] * len(lines)
    shared = [line.estimator for line in lines if not line.method.is_personal and line.method.predicts]
    # Methods with one network for all look at everything; personal ones leave scales to the sites.
    decides = next((one for one in (*shared, *fitted) if hasattr(one, "_rows_on")), None)
    rows = AS_THEY_ARE if decides is None else decides._rows_on(federation)
    federation = learned_from(federation, rows)
    longest = max(dbn.n_lags for line in lines for dbn in line.all_networks)
    judge = run_program(judge_program(federation.variables, longest, rows, fold), federation, observer)
    return [
        _log_likelihood(line, judge, federation, observer) if line.method.predicts else None for line in lines
    ]


def _log_likelihood(line: Compared, judge: Judge, federation: Federation, observer: Observer | None) -> float:
    """Return the mean Gaussian log-likelihood of a row, with the noise variances of these very rows.

        log |det(I - W)| - 1/2 sum_j (log(2 pi v_j) + 1),     v_j the mean squared residual of variable j

    The variances are taken from the rows because not every method estimates them; that favours none. The
    determinant is 1 for an acyclic W and charges those that keep cycles.
    """
    estimator, found = line.estimator, line.networks
    scales = getattr(estimator, "_log_scales", None)
    if isinstance(found, DBN):
        total = run_program(judge.judged(_weights(found, scales, judge)), federation, observer)
        log_det = float(np.linalg.slogdet(np.eye(found.d) - found.W)[1])
    elif hasattr(estimator, "center_values_"):
        # Every site judges the network that it keeps, which is acyclic.
        own = Weights(estimator.center_values_, estimator.scale_values_, None, log_scales=scales)
        total, log_det = run_program(judge.judged(own), federation, observer), 0.0
    else:
        total, log_det = _each_judged(found, judge, federation, scales)
    if not np.all(total.squares > 0):
        raise DataError(
            "nothing is left of the held-out rows of some variable without means, trends and cycles; hold out more rows."
        )
    variances = total.squares / total.n_rows
    return log_det - 0.5 * float(np.sum(np.log(2 * np.pi * variances) + 1.0))


def _each_judged(
    networks: Mapping[str, DBN], judge: Judge, federation: Federation, scales: FloatArray | None
) -> tuple[Squares, float]:
    """Judge the networks of sites of this process, each on its own rows."""
    total, log_dets = np.zeros(len(judge.variables) + 1), 0.0
    for site, dbn in networks.items():
        part = federation.sum(Task(judge.asks(_weights(dbn, scales, judge)), (site,))).value
        total = total + part
        log_dets += float(part[-1] * np.linalg.slogdet(np.eye(dbn.d) - dbn.W)[1])
    return Squares(total[:-1], float(total[-1])), log_dets / float(total[-1])


def _weights(dbn: DBN, log_scales: FloatArray | None, judge: Judge) -> Weights:
    C = np.concatenate([dbn.W, *dbn.A])
    # Off the means of recordings there is no level.
    intercept = dbn.intercept if judge.treatment.center == "recording" else known(dbn.intercept, "intercept")
    return Weights(np.zeros(len(C)), np.ones(len(C)), C, intercept, log_scales)


def _mean_count(arrays: Sequence[BoolArray]) -> float | int:
    counts = [int(np.count_nonzero(array)) for array in arrays]
    return counts[0] if len(counts) == 1 else sum(counts) / len(counts)


class Comparison(list[Compared], Shown):
    """The lines of a comparison, in the order in which methods were named; each has its fitted `estimator`.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> lines = feddbn.compare_methods(data.sites, ["summary"], held_out=0.3)
    >>> lines[0].estimator.dbn_.d, lines.to_frame().index.tolist()
    (3, ['MomentSummary'])
    """

    def to_frame(self) -> pd.DataFrame:
        """One row per method: scores against the truth or on held-out rows, edges, rounds, seconds."""
        rows = []
        for line in self:
            told = line.to_dict()
            scores = told.pop("scores") or {}
            parts = {f"{part} {key}": values[key] for part, values in scores.items() for key in ("shd", "f1")}
            held_out = told.pop("held_out_log_likelihood")
            seen = {} if held_out is None else {"held_out_log_likelihood": held_out}
            kept = ("edges_w", "edges_a", "rounds", "seconds", "converged")
            rows.append({"method": line.method.cls, **parts, **seen, **{key: told[key] for key in kept}})
        return pd.DataFrame(rows).set_index("method") if rows else pd.DataFrame()

    @property
    def finding(self) -> Finding:
        """Which method does best, by what."""
        judged = [line for line in self if line.held_out is not None]
        if judged:
            best = max(judged, key=lambda line: float(line.held_out or 0.0))
            return Finding("predicts-best", "note", {"n": len(judged)}, (best.method.cls,))
        scored = [line for line in self if line.scores is not None]
        if scored:
            best = min(scored, key=lambda line: sum(part["shd"] for part in (line.scores or {}).values()))
            return Finding("fewest-wrong-edges", "note", {"n": len(scored)}, (best.method.cls,))
        return Finding("nothing-compares", "unknown", {"n": len(self)})


def compare_methods(
    data: Any,
    methods: Sequence[str] | None = None,
    *,
    truth: Truth | None = None,
    held_out: float | None = None,
    observer: Observer | None = None,
    parameters: dict[str, Any] | None = None,
    layout: Layout | None = None,
    **columns: Any,
) -> Comparison:
    """Fit several methods to the same sites and return a table of how well they do.

    Parameters
    ----------
    data
        Anything `feddbn.data.read_sites` takes.
    methods
        Names of the method table, such as ``["oneshot", "fdbnl"]``; None for the usual ones.
    truth
        The network behind simulated data, or one for each site: methods are scored against it.
    held_out
        Share of the rows at the end of every recording that methods are judged on; by default 0.2 without a truth and 0 with
        one.
    observer
        Called after every sum with the task and the answer; `feddbn.Progress` is one.
    parameters
        Arguments of the methods; each takes those that it has.
    layout, columns
        Which columns are what: a `feddbn.Layout`, or its fields by name.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=2000, random_state=0)
    >>> table = feddbn.compare_methods(data.sites, ["oneshot", "summary"], truth=data.truth)
    >>> table.to_frame()["W shd"].tolist()
    [0, 3]
    """
    if isinstance(methods, str):
        raise ParameterError(f"methods={methods!r} must be a list of names; write [{methods!r}].")
    if methods is not None and not len(methods):
        raise ParameterError("methods is empty; name at least one, or None for the usual ones.")
    if truth is not None and not isinstance(truth, Mapping):
        check_network(truth, "truth")
    chosen: Iterable[Any] = default_methods(False) if methods is None else map(get_method, methods)
    share = (0.2 if truth is None else 0.0) if held_out is None else held_out
    sites = read_sites(data, layout=Layout.of(layout, columns, "compare_methods"))
    return Comparison(compare(sites, list(chosen), dict(parameters or {}), truth, share, observer))
