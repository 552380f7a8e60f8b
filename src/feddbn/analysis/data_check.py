"""What is wrong with the data of all sites, from the sums of the first look alone; nothing is learned.

`feddbn check` reads files and can say in which row and column something is. Sums over sites cannot: they say that it is
somewhere, and each owner finds it at home with `feddbn site check`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from feddbn.core.arrays import BoolArray
from feddbn.core.statistics.survey import FEWEST_SITES
from feddbn.errors import ParameterError
from feddbn.federation.protocol.task import Federation, Observer, run_program
from feddbn.federation.sums.survey import Survey
from feddbn.federation.sums.treatment import FirstLook, first_look_program
from feddbn.findings import Finding, Findings, Level
from feddbn.methods.base import DBNEstimator

__all__ = ["check_data", "look_findings"]

ROWS_PER_COLUMN = 10.0
"""With fewer rows for each column of a lagged row than this, a check warns."""
MANY_EMPTY = 0.3
"""From this share of empty cells on a check warns instead of noting it."""


def check_data(
    estimator: DBNEstimator[Any], federation: Federation, observer: Observer | None = None
) -> Findings:
    """Return what a fit of `estimator` should know of the data of a federation, errors first.

    Asks for the ``survey`` and, unless the estimator has ``on_disagreement="ignore"`` or sites are few, for the
    ``agreement``: two sums, from which nothing is learned.

    Parameters
    ----------
    estimator
        Says the number of lags, which variables are inputs, and whether sites are compared.
    federation
        Whose data are looked at.
    observer
        Called after every sum.
    """
    tasks = federation.answered_tasks
    if tasks is not None and "survey.first" not in tasks:
        raise ParameterError("data cannot be checked by sums that carry noise; check them without epsilon.")
    n_sites, names = len(federation.sites), tuple(federation.variables)
    unknown = [name for name in estimator._rows.inputs if name not in names]
    if unknown:
        raise ParameterError(
            f"exogenous contains {unknown[0]!r}, which is not a variable; the variables are {', '.join(names)}."
        )
    n_lags = int(estimator.n_lags) if isinstance(estimator.n_lags, int) else 1
    rows = estimator._rows.among(n_sites)
    look = run_program(first_look_program(names, n_lags, rows), federation, observer)
    return look_findings(look, names, n_lags, n_sites)


def look_findings(look: FirstLook, variables: Sequence[str], n_lags: int, n_sites: int) -> Findings:
    """Return what a first look shows, errors first."""
    survey = look.survey
    found = [
        *_rows(survey, len(variables), n_lags, n_sites),
        *_empty(survey, len(variables)),
        *_columns(survey, variables),
        *_cycles(survey),
        *_kinds(survey, variables),
        *_scales(survey, n_sites),
        *_agreement(look, n_sites),
    ]
    return Findings(found)


def _rows(survey: Survey, d: int, n_lags: int, n_sites: int) -> list[Finding]:
    rows, recordings = int(survey.n_rows), int(survey.n_recordings)
    usable, columns = rows - n_lags * recordings, (n_lags + 1) * d
    level: Level = (
        "error" if usable <= columns else "warning" if usable < ROWS_PER_COLUMN * columns else "note"
    )
    counts = {"rows": rows, "recordings": recordings, "sites": n_sites, "usable": max(usable, 0)}
    values = {**counts, "n_lags": n_lags, "columns": columns, "fewest": ROWS_PER_COLUMN}
    return [Finding("all-rows", level, values)]


def _empty(survey: Survey, d: int) -> list[Finding]:
    share = float(survey.n_empty / max(survey.n_rows * d, 1.0))
    level: Level = "warning" if share >= MANY_EMPTY else "note"
    return (
        [Finding("empty-share", level, {"share": share}, cure={"prepare.missing": "fill"})] if share else []
    )


def _columns(survey: Survey, variables: Sequence[str]) -> list[Finding]:
    """Variables that hardly move, and variables with cells far from their neighbours in time."""
    still = _picked(variables, (survey.scales == 0) & ~_whole(survey))
    far = _picked(variables, survey.has_far)
    found = [Finding("still", "warning", about=still)] if still else []
    cure = {"prepare.spikes": "auto"}
    return found + ([Finding("outliers-somewhere", "warning", about=far, cure=cure)] if far else [])


def _cycles(survey: Survey) -> list[Finding]:
    periods = [float(period) for period in survey.periods]
    return (
        [Finding("cycles", "note", {"periods": periods}, cure={"prepare.period": "auto"})] if periods else []
    )


def _kinds(survey: Survey, variables: Sequence[str]) -> list[Finding]:
    binary = _picked(variables, survey.objections[1] == 0)
    whole = _picked(variables, _whole(survey) & (survey.objections[1] > 0))
    kinds = {**dict.fromkeys(binary, "binary"), **dict.fromkeys(whole, "count")}
    if not kinds:
        return []
    return [Finding("kinds-somewhere", "note", {"kinds": kinds}, tuple(kinds), {"kinds": kinds})]


def _scales(survey: Survey, n_sites: int) -> list[Finding]:
    if not survey.may_have_gains:
        return []
    return [Finding("scales", "warning", {"sites": n_sites}, cure={"prepare.gains": "auto"})]


def _agreement(look: FirstLook, n_sites: int) -> list[Finding]:
    """Whether sites fit each other, or that it is not known."""
    if look.n_disagreeing is None:
        cure = {"prepare.on_disagreement": "warn"} if n_sites >= FEWEST_SITES else {}
        return [Finding("not-compared", "note", {"fewest": FEWEST_SITES}, cure=cure)]
    if look.n_disagreeing == 0:
        return []
    values = {"n": int(look.n_disagreeing), "of": int(look.survey.n_sites)}
    cure = {"prepare.on_disagreement": "exclude"} if look.has_few_odd else {}
    return [Finding("disagreement", "warning", values, cure=cure)]


def _whole(survey: Survey) -> BoolArray:
    """(d,) whether no site has a cell that is no whole number from 0 on: such columns rest often, and no sensor is stuck."""
    return np.asarray(survey.objections[0] == 0)


def _picked(variables: Sequence[str], which: BoolArray) -> tuple[str, ...]:
    return tuple(name for name, is_one in zip(variables, which, strict=True) if is_one)
