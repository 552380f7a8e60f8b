"""Several methods on the same data, as one table to look at."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from feddbn.data import read_sites
from feddbn.errors import ParameterError, ResultWarning
from feddbn.federation.protocol.task import Observer
from feddbn.method_table import get_method
from feddbn.methods.comparison import Compared, compare, default_methods
from feddbn.methods.truth import Truth
from feddbn.model.network import check_network
from feddbn.shown import Shown

__all__ = ["Comparison", "compare_methods"]


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
    def sentence(self) -> str:
        """Which method does best, by what."""
        judged = [line for line in self if line.held_out is not None]
        if judged:
            best = max(judged, key=lambda line: float(line.held_out or 0.0))
            return f"{best.method.cls} predicts held-out rows best, of {len(judged)} methods that predict."
        scored = [line for line in self if line.scores is not None]
        if scored:
            best = min(scored, key=lambda line: sum(part["shd"] for part in (line.scores or {}).values()))
            return f"{best.method.cls} has the fewest wrong edges, of {len(scored)} methods."
        return f"{len(self)} methods; without a truth or held-out rows nothing says which is better."


def compare_methods(
    data: Any,
    methods: Sequence[str] | None = None,
    *,
    truth: Truth | None = None,
    held_out: float | None = None,
    observer: Observer | None = None,
    parameters: dict[str, Any] | None = None,
    **read: Any,
) -> Comparison:
    """Fit several methods to the same sites and return a table of how well they do.

    Parameters
    ----------
    data
        Anything `feddbn.data.read_sites` takes; `read` are its other arguments.
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

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
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
    chosen: Iterable[Any] = default_methods(truth, False) if methods is None else map(get_method, methods)
    share = (0.2 if truth is None else 0.0) if held_out is None else held_out
    sites = read_sites(data, missing="keep", **read)
    with warnings.catch_warnings():
        # Every estimator keeps its own advice in warnings_.
        warnings.simplefilter("ignore", ResultWarning)
        return Comparison(compare(sites, list(chosen), dict(parameters or {}), truth, share, observer))
