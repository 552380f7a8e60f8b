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
from feddbn.data.preflight import Finding
from feddbn.data.preflight.finding import SEVERITIES, named
from feddbn.errors import ParameterError
from feddbn.federation.programs.survey import Survey
from feddbn.federation.programs.treatment import FirstLook, first_look_program
from feddbn.federation.protocol.task import Federation, Observer, run_program

__all__ = ["check_data", "look_findings"]

ROWS_PER_COLUMN = 10.0
"""With fewer rows for each column of a lagged row than this, a check warns."""
MANY_EMPTY = 0.3
"""From this share of empty cells on a check warns instead of noting it."""


def check_data(estimator: Any, federation: Federation, observer: Observer | None = None) -> list[Finding]:
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
    if tasks is not None and "survey" not in tasks:
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


def look_findings(look: FirstLook, variables: Sequence[str], n_lags: int, n_sites: int) -> list[Finding]:
    """Return what a first look shows, in words, errors first."""
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
    return sorted(found, key=lambda finding: -SEVERITIES.index(finding.severity))


def _rows(survey: Survey, d: int, n_lags: int, n_sites: int) -> list[Finding]:
    rows, recordings = int(survey.n_rows), int(survey.n_recordings)
    what = f"{rows} rows in {recordings} recordings of {n_sites} sites"
    usable, columns = rows - n_lags * recordings, (n_lags + 1) * d
    cure = "ask more sites, or use fewer variables or lags"
    if usable <= columns:
        text = f"{what}: at most {max(usable, 0)} can be used with n_lags={n_lags}, and a network has {columns} columns."
        return [Finding("rows", "error", text, cure)]
    if usable < ROWS_PER_COLUMN * columns:
        text = f"{what}: at most {usable} can be used with n_lags={n_lags}, fewer than {ROWS_PER_COLUMN:g} for each column."
        return [Finding("rows", "warning", text, cure)]
    return [Finding("rows", "note", f"{what}.", "nothing has to be done")]


def _empty(survey: Survey, d: int) -> list[Finding]:
    share = survey.n_empty / max(survey.n_rows * d, 1.0)
    if not share:
        return []
    text = f"{f'{share:.1%}' if share >= 0.001 else 'less than 0.1%'} of the cells are empty."
    severity = "warning" if share >= MANY_EMPTY else "note"
    return [
        Finding("missing", severity, text, "missing='fill', which is usual, uses the cells that are there")
    ]


def _columns(survey: Survey, variables: Sequence[str]) -> list[Finding]:
    """Variables that hardly move, and variables with cells far from their neighbours in time."""
    found = []
    still = _picked(variables, (survey.scales == 0) & ~_whole(survey))
    if still:
        text = f"in {named(still)} most cells equal their neighbours in time, as those of a stuck sensor do."
        cure = "look for it at each site with `feddbn site check`, or leave it out with variables="
        found.append(Finding("still", "warning", text, cure, columns=still))
    far = _picked(variables, survey.has_far)
    if far:
        text = f"in {named(far)} cells lie far from their neighbours in time: errors of measurement, codes, or bursts."
        cure = "spikes='auto', which is usual, finds out whether they are errors; spikes='remove' leaves them out"
        found.append(Finding("far", "warning", text, cure, columns=far))
    return found


def _cycles(survey: Survey) -> list[Finding]:
    if not survey.periods:
        return []
    text = f"cycles of {', '.join(f'{period:.4g}' for period in survey.periods)} rows stand out."
    return [
        Finding("cycles", "note", text, "period='auto', which is usual, takes them off where that is better")
    ]


def _kinds(survey: Survey, variables: Sequence[str]) -> list[Finding]:
    binary = _picked(variables, survey.objections[1] == 0)
    whole = _picked(variables, _whole(survey) & (survey.objections[1] > 0))
    kinds = {**dict.fromkeys(binary, "binary"), **dict.fromkeys(whole, "count")}
    if not kinds:
        return []
    told = [f"{named(binary)} with 0 and 1 only"] * bool(binary)
    told += [f"{named(whole)} with whole numbers from 0 only"] * bool(whole)
    cure = f"if so, use MixedDBN(kinds={kinds!r}); other methods take them as lines"
    return [Finding("kinds", "note", f"{' and '.join(told)}.", cure, columns=tuple(kinds))]


def _scales(survey: Survey, n_sites: int) -> list[Finding]:
    if not survey.may_have_gains:
        return []
    text = f"the {n_sites} sites measure on different scales, or in different units."
    cure = "compare units; gains='auto', which is usual, brings sites to one scale where that is better"
    return [Finding("scales", "warning", text, cure)]


def _agreement(look: FirstLook, n_sites: int) -> list[Finding]:
    """Whether sites fit each other, or why that is not known."""
    if look.n_disagreeing is None:
        text = "whether one site has other units, exchanged columns or other relations than the rest was not looked at."
        few = f"sites are compared where there are {FEWEST_SITES} or more of them with enough rows"
        if n_sites >= FEWEST_SITES:
            few = f"on_disagreement='warn' has sites compare themselves, if their owners allow the task 'agreement'; {few}"
        return [Finding("not-compared", "note", text, few)]
    n, of = look.n_disagreeing, int(look.survey.n_sites)
    if n == 0:
        return []
    does = "one of {} sites does" if n == 1 else f"{n} of {{}} sites do"
    text = f"{does.format(of)} not fit the others; the owner is told why."
    cure = (
        "on_disagreement='exclude' leaves it out"
        if look.has_few_odd
        else "PFDBNL learns a network for each site"
    )
    return [Finding("disagreement", "warning", text, cure)]


def _whole(survey: Survey) -> BoolArray:
    """(d,) whether no site has a cell that is no whole number from 0 on: such columns rest often, and no sensor is stuck."""
    return np.asarray(survey.objections[0] == 0)


def _picked(variables: Sequence[str], which: BoolArray) -> tuple[str, ...]:
    return tuple(name for name, is_one in zip(variables, which, strict=True) if is_one)
