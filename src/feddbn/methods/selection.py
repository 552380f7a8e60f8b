"""Choosing mu, the penalties and the number of lags without the truth and without pooling.

Every candidate is fitted to the earlier rows of all sites and judged by its loss on their later rows; only sums of
these losses, and of their squared differences, reach the server. The simplest candidate whose loss is within one
standard error of the best is taken. All candidates are judged on the same rows, treated in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.moments import choose
from feddbn.core.statistics.survey import FEWEST_SITES
from feddbn.data.layout import Layout
from feddbn.errors import ParameterError
from feddbn.federation.programs.held_out import (
    AUTO_GRIDS,
    Judge,
    Weights,
    comparison_program,
    default_grid,
    judge_program,
)
from feddbn.federation.protocol.task import Federation, Observer
from feddbn.federation.sums.statistics import make_fold, on_fold
from feddbn.findings import Finding, Findings
from feddbn.method_table import METHODS
from feddbn.settings import is_number, whole
from feddbn.shown import Shown
from feddbn.words import say

__all__ = [
    "AUTO_GRIDS",
    "AUTO_START",
    "HeldOut",
    "Selection",
    "auto_selection",
    "check_grid",
    "default_grid",
    "select",
]

_SIMPLE_IS_LARGE = ("lambda_w", "lambda_a")
AUTO_START = {"n_lags": 1, "lambda_w": 0.05, "lambda_a": 0.05, "mu": 0.5}


@dataclass(frozen=True)
class HeldOut:
    """How rows are held out: the last `share` of every recording, in `n_blocks` blocks one after the other."""

    n_blocks: int = 2
    share: float = 0.3


@dataclass(frozen=True)
class Selection(Shown):
    """The outcome of a selection.

    Attributes
    ----------
    table
        One row per candidate, simplest first: its value, held-out loss per row, standard error of the difference to
        the best (NaN where it was not asked for), and whether it was chosen.
    chosen
        Parameter name -> chosen value.
    findings
        What whoever reads the table should know.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> found = feddbn.select(feddbn.Dynotears(), data.sites, {"lambda_w": [0.2, 0.05]})
    >>> found.chosen, found.to_frame()["chosen"].tolist()
    ({'lambda_w': 0.05}, [False, True])
    """

    table: pd.DataFrame
    chosen: dict[str, Any] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The findings as text."""
        return tuple(say(one) for one in self.findings)

    def to_frame(self) -> pd.DataFrame:
        """The table."""
        return self.table

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        rows = self.table.astype(object).where(self.table.notna(), None).to_dict(orient="records")
        return {"chosen": dict(self.chosen), "candidates": rows, "remarks": list(self.remarks)}


def auto_selection(
    estimator: Any, federation: Federation, observer: Observer | None
) -> tuple[dict[str, Any], pd.DataFrame | None]:
    """Return what is chosen for every parameter that is "auto", and a table of what was tried (None if nothing).

    One parameter after the other: n_lags, then the penalties (together if both are "auto"), then mu.
    """
    given = estimator.get_params()
    names = [name for name in AUTO_GRIDS if isinstance(given.get(name), str)]
    tables = []
    # Parameters that are still to be chosen start at ordinary values.
    settled: dict[str, Any] = {name: AUTO_START[name] for name in names}
    while names:
        group = [names.pop(0)]
        if group == ["lambda_w"] and "lambda_a" in names:
            group.append(names.pop(0))
        candidates = [dict.fromkeys(group, value) for value in AUTO_GRIDS[group[0]]]
        selection = _select(
            estimator, federation, candidates, settled, HeldOut(), "one-standard-error", observer
        )
        settled |= selection.chosen
        tables.append(
            selection.table.melt(
                id_vars=["loss", "standard_error", "chosen"], value_vars=group, var_name="parameter"
            )
        )
    columns = ["parameter", "value", "loss", "standard_error", "chosen"]
    return settled, pd.concat(tables, ignore_index=True)[columns] if tables else None


def _simplest_first(name: str, values: Sequence[Any]) -> list[Any]:
    wrong = [value for value in values if not is_number(value, finite=False)]
    if wrong:
        raise ParameterError(f"grid[{name!r}] contains {wrong[0]!r}; give numbers.")
    return sorted(values, reverse=name in _SIMPLE_IS_LARGE)


def _may_square(federation: Federation) -> bool:
    """Whether squares of sites' losses may be asked for: those of few sites, with their sum, tell them apart.

    In one process there is nobody to hide them from.
    """
    is_here = any(federation.state_of(site) is not None for site in federation.sites)
    return is_here or len(federation.sites) >= FEWEST_SITES


def _judges(estimator: Any, federation: Federation, n_lags: int, held_out: HeldOut) -> list[Judge]:
    """Decide how held-out rows are treated, for all candidates and blocks."""
    folds = [make_fold(block, held_out.n_blocks, held_out.share) for block in range(held_out.n_blocks)]
    rows = estimator._rows_on(federation)
    first = estimator._run(judge_program(estimator._variables, n_lags, rows, folds[0]), federation, None)[0]
    return [replace(first, fold=fold) for fold in folds]


def _select(
    estimator: Any,
    federation: Federation,
    candidates: Sequence[Mapping[str, Any]],
    fixed: Mapping[str, Any],
    held_out: HeldOut,
    rule: str,
    observer: Observer | None,
) -> Selection:
    if not candidates:
        raise ParameterError("grid must have at least one candidate, got none.")
    number, d = 0, len(estimator._variables)
    longest = max(int({**fixed, **candidate}.get("n_lags", estimator.n_lags)) for candidate in candidates)
    judges = _judges(estimator, federation, longest, held_out)
    units: dict[int, FloatArray] = {}
    # Candidates in order: the sites' memory of losses starts anew with the first block of the first.
    for c, candidate in enumerate(candidates):
        for block, judge in enumerate(judges):
            number += 1
            learner = estimator._choosing({**fixed, **candidate})
            program = on_fold(learner._candidate(federation, number), judge.fold)
            C, preparation = estimator._run(program, federation, observer)[0]
            if estimator._rows.scale == "auto":
                # Losses of all candidates are compared in the units that the first block decided about.
                fixed = {
                    **fixed,
                    "prepare.scale": "none" if np.all(preparation.scale == 1.0) else "federated",
                }
            weights = Weights(
                preparation.center, preparation.scale, C, log_scales=preparation.treatment.log_scales
            )
            program_of_loss = judge.judged(
                weights, units.setdefault(block, preparation.scale[:d]), c, len(candidates)
            )
            estimator._run(program_of_loss, federation, observer)
    findings = Findings()
    spread = _may_square(federation)
    if not spread and rule != "best":
        rule = "best"
        findings = Findings([Finding("not-selected-by-spread", "note", {"fewest": FEWEST_SITES})])
    comparison = estimator._run(comparison_program(len(candidates), spread), federation, observer)[0]
    index = choose(comparison.loss, comparison.standard_error, rule)
    table = pd.DataFrame([dict(candidate) for candidate in candidates])
    table["loss"] = comparison.loss
    table["standard_error"] = comparison.standard_error
    table["chosen"] = np.arange(len(candidates)) == index
    return Selection(table, dict(candidates[index]), findings)


def select(
    estimator: Any,
    data: Any,
    grid: Mapping[str, Sequence[Any]],
    *,
    n_blocks: int = 2,
    share: float = 0.3,
    rule: str = "one-standard-error",
    observer: Observer | None = None,
    layout: Layout | None = None,
    **columns: Any,
) -> Selection:
    """Return the held-out losses of every combination in `grid`, and the one to take.

    Parameters
    ----------
    estimator
        `FDBNL`, `PFDBNL` or `Dynotears`; what the grid does not name is taken from it.
    data
        As for ``fit``.
    layout, columns
        Which columns are what: a `feddbn.Layout`, or its fields by name.
    grid
        Parameter name -> values. They are tried simplest first, whatever their order: few lags, large penalties,
        small mu.
    n_blocks, share
        The last `share` of every recording is tested on, in `n_blocks` blocks one after the other.
    rule
        "one-standard-error": the first candidate not clearly worse than the best; "best": the lowest loss.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> feddbn.select(feddbn.Dynotears(), data.sites, {"lambda_w": [0.2, 0.05]}).chosen
    {'lambda_w': 0.05}
    """
    candidates = check_grid(estimator, grid, n_blocks)
    estimator.check_parameters()
    # A copy: the estimator that was given has learned nothing by this.
    estimator = estimator._choosing({})
    longest = max((int(p) for p in grid.get("n_lags", ())), default=None)
    result: list[Selection] = []

    def run(federation: Federation, _: object) -> None:
        result.append(
            _select(estimator, federation, candidates, {}, HeldOut(n_blocks, share), rule, observer)
        )

    estimator._on_federation(data, run, Layout.of(layout, columns, "select"), longest)
    return result[0]


def check_grid(estimator: Any, grid: Mapping[str, Sequence[Any]], n_blocks: int = 2) -> list[dict[str, Any]]:
    """Return the candidates of a grid, simplest first; refuse what held-out rows cannot choose."""
    if not getattr(estimator, "is_selectable", False):
        able = ", ".join(method.cls for method in METHODS.values() if method.selects)
        raise ParameterError(
            f"{type(estimator).__name__} cannot be selected by held-out loss; choose one of {able}."
        )
    if isinstance(estimator, type):
        raise ParameterError(f"estimator is the class {estimator.__name__}; write {estimator.__name__}().")
    if not isinstance(grid, Mapping):
        raise ParameterError(f"grid must be a dict from parameter to values, got {grid!r}.")
    for name, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise ParameterError(f"grid[{name!r}]={values!r} must be a list; write [{values!r}].")
    unknown = [name for name in grid if name not in AUTO_GRIDS]
    if "center" in unknown:
        raise ParameterError(
            "grid names 'center', which held-out rows cannot choose: a recording's own mean is not known before it is "
            "seen; leave it out, center='auto' chooses it from the first sum."
        )
    if unknown or not grid:
        raise ParameterError(
            f"grid names {', '.join(unknown) or 'nothing'}; it may name {', '.join(AUTO_GRIDS)}."
        )
    missing = [name for name in grid if name not in estimator.get_params()]
    if missing:
        raise ParameterError(
            f"{type(estimator).__name__} has no parameter {missing[0]!r}; leave it out of grid."
        )
    given = estimator.get_params()
    still_open = [name for name in AUTO_GRIDS if isinstance(given.get(name), str) and name not in grid]
    if still_open:
        raise ParameterError(
            f"{still_open[0]}={given[still_open[0]]!r} is to be chosen, too; put its values into grid, or give a number."
        )
    whole(1).check("n_blocks", n_blocks)
    simplest_first = {name: _simplest_first(name, values) for name, values in grid.items()}
    for name, values in simplest_first.items():
        for value in values:
            estimator.settings.check_value(name, value)
    return [dict(zip(simplest_first, values, strict=True)) for values in product(*simplest_first.values())]
