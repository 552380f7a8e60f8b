"""What to know of data before a fit: of files (`check`), and of all sites from the sums of the first look alone.

`check` reads files as a fit does and asks the questions with which a fit begins, of a federation in this process: what it
says is done to the rows is what the fit does. To that it adds what the tables show by themselves, and where things are.

`check_data` is for a study: it asks for the first look alone, and nothing is learned. Sums over sites say that something is
somewhere; each owner finds it at home with `feddbn site check`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from feddbn.core.arrays import BoolArray
from feddbn.core.designs.cells import BoundedSite, mapped
from feddbn.core.statistics.diagnostics import slow_findings
from feddbn.core.statistics.enough import ROWS_PER_COLUMN, rows_level
from feddbn.core.statistics.moments import Moments, correlations
from feddbn.core.statistics.survey import FEWEST_SITES
from feddbn.data import SiteData, check_sites
from feddbn.data.described import layouts
from feddbn.data.doubts import doubts
from feddbn.data.layout import Layout
from feddbn.data.read import aligned, read_all
from feddbn.errors import DataError, ParameterError
from feddbn.federation.programs.oneshot import dependent_findings, first_look
from feddbn.federation.protocol.task import Federation, Observer, run_program
from feddbn.federation.sums.prepare import AS_THEY_ARE, Prepare
from feddbn.federation.sums.survey import Survey
from feddbn.federation.sums.treatment import (
    AskedMoments,
    FirstLook,
    asked_moments_program,
    first_look_program,
)
from feddbn.findings import Finding, Findings, Level
from feddbn.methods.base import DBNEstimator, learned_from, unwarned
from feddbn.methods.oneshot import OneShotDBN
from feddbn.results.identities import near_identities
from feddbn.results.remarks import loses_rows

__all__ = ["Look", "check", "check_data", "look_findings"]

MANY_EMPTY = 0.3
"""From this share of empty cells on a check warns instead of noting it."""
_EXPLAINS = ("undeclared-time", "shuffled-time", "glued", "constant", "empty-column")
"""What tables show because of which a fit may refuse them."""
_OTHER_UNITS = 0.5
"""Standard deviation over sites of the log of their scales; one site of four in kPa instead of mmHg makes .87, of ten .6."""
_ALMOST = 1e-3
_PART = 0.02


def check(data: Any, n_lags: int | str = 1, *, layout: Layout | None = None, **columns: Any) -> Findings:
    """Return what to know of `data` before a fit, errors first: what `OneShotDBN` would do to the rows, and what files show.

    Parameters
    ----------
    data
        Anything `feddbn.data.read_sites` takes.
    n_lags
        Number of lags of the fit to come.
    layout, columns
        Which columns are what: a `feddbn.Layout`, or its fields by name. Where kinds are declared, `MixedDBN` is to come,
        which uses rows as they are: nothing is said about what is done to them.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=400, corruptions="offsets", random_state=0)
    >>> [(one.code, one.level) for one in feddbn.check(data.sites)]
    [('own-courses', 'note')]
    """
    layout = Layout.of(layout, columns, "check")
    kinds = {name: kind for one in layouts(data, layout) for name, kind in one.kinds.items()}
    # What a fit warns of is among its findings.
    is_kind = any(kind.name != "continuous" for kind in kinds.values())
    look = unwarned(Look(n_lags, prepare=AS_THEY_ARE if is_kind else Prepare()))
    shown: list[Finding] = []
    try:
        read = read_all(data, layout)
        sites = read.sites
        shown = list(doubts(sites, kinds))
        errors = {
            name: one for name, site in sites.items() if (one := _why_not(name, site, look._largest_lag))
        }
        for name, why in errors.items():
            shown = _explained(shown, _refusal(why, site=name))
        kept = {name: site for name, site in sites.items() if name not in errors}
        if kept and errors:
            shown.append(Finding("others-looked-at", "note", {"kept": list(kept)}))
        if read.refused is not None:
            raise read.refused
        kept = aligned(kept, read.layout) if kept else kept
        found = _joined(shown, look.fit(kept), kept) if kept else shown
    except DataError as error:
        found = _explained(shown, _refusal(error))
    return Findings(found)


def _why_not(name: str, site: SiteData, n_lags: int) -> DataError | None:
    """Why a fit refuses a site."""
    try:
        if getattr(site, "refused", None) is None:
            check_sites({name: site}, n_lags)
    except DataError as error:
        return error
    return getattr(site, "refused", None)


class Look(OneShotDBN):
    """`OneShotDBN` up to where it begins to learn; `asked_` is what the first sums told, None if it uses rows as they are."""

    asked_: AskedMoments | None

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        self.asked_, rows = None, self._rows_on(federation)
        if rows.is_settled:
            return
        names, options = self._variables, self._settings.options
        program = asked_moments_program(names, options.n_lags, rows)
        self.asked_ = asked = self._run(program, federation, observer)[0]
        first_look(asked.moments, names, replace(options, prepare=rows))
        self._say_treatment(asked)
        self._say_dependent(dependent_findings(asked.in_units, names, self._inputs))
        self._say_identities(near_identities(asked.in_units, len(names), self._inputs))


def _joined(shown: list[Finding], look: Look, sites: Mapping[str, SiteData]) -> Iterator[Finding]:
    """What tables show and what a fit says, each once; and where sums do not say it, where it is."""
    yield from shown
    told = {one.code for one in shown}
    yield from (one for one in look.findings_.single if one.code not in told)
    rows, usable, recordings = (
        int(look.sites_[name].sum()) for name in ("rows", "usable_rows", "recordings")
    )
    n_lags = look.n_lags if isinstance(look.n_lags, int) else 1
    size = _enough(rows, usable, recordings, len(sites), n_lags, (n_lags + 1) * len(look._variables))
    yield from [size] if size.level != "note" else []
    if look.asked_ is not None:
        moments, names = look.asked_.moments, look._variables
        # A fit may find that it is noise with a memory, and take that off.
        slow = (one.about for one in slow_findings(moments, names))
        yield from (Finding("wandering", "note", about=about) for about in slow)
        computed = {name for one in look.findings_.of("near-identity") for name in one.about}
        yield from (one for one in _almost_dependent(moments, names) if not {*one.about} <= computed)
        yield from _far_cells(look.asked_, sites)


def _far_cells(asked: AskedMoments, sites: Mapping[str, SiteData]) -> Iterator[Finding]:
    """How many cells of each site lie far from their recording's median, as robust rows have it."""
    survey, done = asked.survey, asked.treatment
    if survey is None or not survey.far:
        return
    counts = {
        name: BoundedSite(mapped(data, done.cell_maps), inputs=survey.inputs).n_far()
        for name, data in sites.items()
    }
    cells = {name: int(far.sum()) for name, far in counts.items() if far.any()}
    if cells:
        names = next(iter(sites.values())).variables
        about = _picked(names, np.any([counts[name] > 0 for name in cells], axis=0))
        yield Finding("outliers", "note", {"cells": cells}, about)


def _almost_dependent(moments: Moments, variables: Sequence[str]) -> Iterator[Finding]:
    """Variables of which others of their time step leave hardly anything; of those that follow from others a fit tells."""
    R = correlations(moments.scatter)[0]
    kept: list[int] = []
    for j, name in enumerate(variables):
        weights = np.linalg.lstsq(R[np.ix_(kept, kept)], R[kept, j], rcond=None)[0]
        left = float(R[j, j] - R[kept, j] @ weights)
        if 1e-6 < left < _ALMOST:
            others = [variables[kept[k]] for k in np.flatnonzero(np.abs(weights) > _PART)]
            yield Finding("dependent", "note", about=(name, *others))
        if left > 1e-6:
            kept.append(j)


def _refusal(error: DataError, **where: str) -> Finding:
    """A refusal, about the columns that it is because of."""
    parts = [part if isinstance(part, str) else part.plain for part in error.parts]
    values: dict[str, Any] = {"text": str(error), "parts": parts, "why": error.code, **where}
    about: Any = error.values.get("columns", ())
    cure: Any = error.values.get("cure", {})
    return Finding("refused", "error", values, tuple(about), cure)


def _explained(shown: list[Finding], refusal: Finding) -> list[Finding]:
    """What tables show and the refusal, unless something that they show explains it; that is the error then."""
    site = refusal.values.get("site")
    because = [
        one
        for one in shown
        if one.code in _EXPLAINS and {*one.about} & {*refusal.about} and site in (None, one.values["site"])
    ]
    if refusal.values["why"] == "not-numeric":
        # What its columns look like is a part of it.
        return [*(one for one in shown if one not in because), refusal]
    found = [replace(one, level="error") if one in because else one for one in shown]
    return found if because else [*found, refusal]


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
    federation = learned_from(federation, estimator._rows)
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
        *_kinds(survey, variables, n_lags),
        *_scales(survey, variables, n_sites),
        *_agreement(look, n_sites),
    ]
    return Findings(found)


def _rows(survey: Survey, d: int, n_lags: int, n_sites: int) -> list[Finding]:
    rows, recordings = int(survey.n_rows), int(survey.n_recordings)
    usable = max(rows - n_lags * recordings, 0)
    return [_enough(rows, usable, recordings, n_sites, n_lags, (n_lags + 1) * d)]


def _enough(rows: int, usable: int, recordings: int, sites: int, n_lags: int, columns: int) -> Finding:
    """How many rows there are for the columns of a lagged row; an error with no more rows than columns."""
    level = rows_level(usable, columns)
    counts = {"rows": rows, "recordings": recordings, "sites": sites, "usable": usable}
    return Finding(
        "all-rows", level, {**counts, "n_lags": n_lags, "columns": columns, "fewest": ROWS_PER_COLUMN}
    )


def _empty(survey: Survey, d: int) -> list[Finding]:
    share = float(survey.n_empty / max(survey.n_rows * d, 1.0))
    level: Level = "warning" if share >= MANY_EMPTY else "note"
    return (
        [Finding("empty-share", level, {"share": share}, cure={"prepare.missing": "fill"})] if share else []
    )


def _columns(survey: Survey, variables: Sequence[str]) -> list[Finding]:
    """Variables that hardly move, and variables with cells far from their recording's median."""
    still = _picked(variables, (survey.n_still > 0.5) & ~_whole(survey))
    far = tuple(variables[j] for j in survey.far)
    found = [Finding("still", "warning", about=still)] if still else []
    cure = {"prepare.robust": "auto"}
    return found + ([Finding("outliers-somewhere", "warning", about=far, cure=cure)] if far else [])


def _cycles(survey: Survey) -> list[Finding]:
    periods = [float(period) for period in survey.periods]
    return (
        [Finding("cycles", "note", {"periods": periods}, cure={"prepare.period": "auto"})] if periods else []
    )


def _kinds(survey: Survey, variables: Sequence[str], n_lags: int) -> list[Finding]:
    binary = _picked(variables, survey.objections[1] == 0)
    whole = _picked(variables, _whole(survey) & (survey.objections[1] > 0))
    kinds = {**dict.fromkeys(binary, "binary"), **dict.fromkeys(whole, "count")}
    if not kinds:
        return []
    is_cured = not (survey.periods or loses_rows(survey, n_lags))
    cure = {"kinds": kinds} if is_cured else {}
    return [Finding("kinds-somewhere", "note", {"kinds": kinds}, tuple(kinds), cure)]


def _scales(survey: Survey, variables: Sequence[str], n_sites: int) -> list[Finding]:
    """That scales differ, and of which variables by so much as other units do."""
    if not survey.may_have_gains:
        return []
    far = _picked(variables, survey.scale_spreads > _OTHER_UNITS**2)
    return [Finding("scales", "warning", {"sites": n_sites}, far, {"prepare.gains": "auto"})]


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
