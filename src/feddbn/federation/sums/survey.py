"""A first look at the data of all sites, and at how they compare.

Site tasks
----------
``survey``     numbers of far cells (`core.designs.cells`), spectra and profiles of single sites, added up
               (`core.statistics.survey`), and how many sites have cells that are no counts or no yes/no
``agreement``  the sums of profiles come back; every site compares itself and only the number of those that do not fit is
               added up, and of those whose rows are only farther apart in time. What does not fit stays in the site's state,
               in words for its owner
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from feddbn.core.arrays import FloatArray, may_lack_cells, root_weighted, total_weight, weighted
from feddbn.core.designs.cells import CELL_MAPS, BoundedSite, mapped, site_profile
from feddbn.core.designs.recordings import pieces
from feddbn.core.statistics.diagnostics import outputs_of
from feddbn.core.statistics.survey import (
    FEWEST_SITES,
    N_FREQUENCIES,
    SLOWER,
    compared,
    cycles_in,
    objections,
    periodogram,
    profile_length,
    without_slow_part,
)
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Here, SiteState, answers, with_notes
from feddbn.federation.protocol.task import (
    Constant,
    Plan,
    Planned,
    Scope,
    ServerProgram,
    Task,
    array,
    choice,
    flag,
    number,
)
from feddbn.findings import Finding

N_AGREE = 2
"""Numbers in an answer to `AgreementQuestion`."""
_HEAD = 7
_CLEAR_SHOCKS = 3.0
_MOST_COLUMNS = 160
"""Beyond this many columns of a row, sites are compared by contemporaneous correlations only."""


@dataclass(frozen=True, kw_only=True)
class LookQuestion(RowsQuestion):
    """A question of the first look: about rows as they are, of sites that do not abstain."""

    def check_scope(self, scope: Scope) -> None:
        """Nothing has been decided yet but who abstains."""
        super().check_scope(scope)
        is_plain = set(self.transformations) <= {"abstain", *CELL_MAPS}
        scope.require(is_plain, self.name, "the first look is at rows as they are", code="not-plain")

    @property
    def is_look(self) -> bool:
        """It is."""
        return True


@dataclass(frozen=True, kw_only=True)
class SurveyQuestion(LookQuestion):
    """Numbers of far cells, spectra, and sums and squares of profiles.

    `profiles` are log standard deviations of sites ("scales"), or these and correlations ("whole"), by which sites are
    compared.
    """

    name = "survey.first"
    purpose = (
        "how many cells are empty or far from the median of their recording, whether other variables are far then, spectra, "
        "whether all cells of a variable are counts or 0 and 1, and if asked sums of log standard deviations and "
        "correlations of single sites"
    )

    profiles: str = choice("none", "scales", "whole", default="none")

    def check_scope(self, scope: Scope) -> None:
        """Few sites are not compared, as sums and squares would tell them apart."""
        super().check_scope(scope)
        n = len(scope.sites)
        is_hidden = self.profiles == "none" or n >= FEWEST_SITES
        why = f"profiles of {n} sites can be told apart; {FEWEST_SITES} are needed"
        scope.require(is_hidden, self.name, why, code="few-sites")
        by_scales = "scales" in scope.transformations
        compares = scope.parameters.get("on_disagreement", "ignore") != "ignore"
        needs = {"none": True, "scales": by_scales, "whole": compares}[self.profiles]
        scope.require(needs, self.name, "the study does not compare sites", code="sites-not-compared")


@dataclass(frozen=True, kw_only=True)
class AgreementQuestion(LookQuestion):
    """Sums and squares of all sites' profiles, so that each can compare itself.

    `personal` says that sites which stay out are to have networks of their own, so that their owners are told how.
    """

    name = "agree"
    purpose = (
        "whether this site looks like the others, and if not whether its rows are farther apart: 0 or 1 each"
    )

    n_sites: float = number(FEWEST_SITES, 1e9)
    total: FloatArray = array("profile")
    squares: FloatArray = array("profile")
    personal: bool = flag(default=False)

    def check_scope(self, scope: Scope) -> None:
        """The sums are of one profile of each site of the study."""
        super().check_scope(scope)
        is_hidden = FEWEST_SITES <= self.n_sites <= len(scope.sites)
        scope.require(is_hidden, self.name, f"it compares {self.n_sites:g} sites", code="few-sites")
        outputs = len(outputs_of(self.d, self.inputs))
        length = profile_length(outputs, _profile_lags(outputs, self.n_lags))
        scope.require(len(self.total) == length, self.name, f"a profile has {length} numbers")

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Who is compared with made-up sums again and again shows what it has."""
        what = f"what sites are compared with (n_lags = {self.n_lags})"
        return (Constant(what, (self.n_sites, self.total, self.squares, self.inputs)),)


@dataclass(frozen=True)
class Survey:
    """What the first look showed.

    Attributes
    ----------
    n_sites, n_rows, n_recordings
        How many there are; `n_sites` with a profile.
    n_empty
        Number of empty cells.
    n_far, n_cells
        (d,) how many cells are far from their recording's median (`core.designs.cells.FAR`), and how many there are.
    company
        (2,) how many cells are far, and how much farther than usual other variables are then, summed.
    n_still
        (d,) at how many sites half of the cells or more are their recording's median.
    periods
        Cycles that stand out, the strongest first, in rows.
    objections
        (2, d) how many sites have a cell that is no whole number from 0 on, and one that is neither 0 nor 1.
    total, squares
        Sums of profiles, which are those of all variables but inputs.
    inputs
        Positions of variables that only act on others.
    """

    n_sites: float
    n_rows: float
    n_recordings: float
    n_empty: float
    n_far: FloatArray
    n_cells: FloatArray
    company: FloatArray
    n_still: FloatArray
    periods: tuple[float, ...]
    objections: FloatArray
    total: FloatArray
    squares: FloatArray
    inputs: tuple[int, ...] = ()

    @property
    def outputs(self) -> list[int]:
        """Positions of the other variables, which sites are compared by."""
        return outputs_of(len(self.n_far), self.inputs)

    @property
    def far(self) -> tuple[int, ...]:
        """Positions of variables with far cells, for which rows are made robust."""
        return tuple(np.flatnonzero(self.n_far > 0).tolist())

    @property
    def has_shocks(self) -> bool:
        """Whether other variables go along with far cells, as with shocks; errors of measurement come alone."""
        n, more = self.company
        return bool(n > 0 and more / np.sqrt(n) > _CLEAR_SHOCKS)

    @property
    def log_scales(self) -> FloatArray:
        """(d,) means over sites of the logs of their standard deviations; 0 for inputs, which keep their scale."""
        found = np.zeros(len(self.n_far))
        found[self.outputs] = self.total[: len(self.outputs)] / max(self.n_sites, 1.0)
        return found

    @property
    def scale_spreads(self) -> FloatArray:
        """(d,) variances over sites of the logs of their standard deviations; 0 for inputs, and where sites are few."""
        found = np.zeros(len(self.n_far))
        if self.n_sites >= FEWEST_SITES:
            n = len(self.outputs)
            found[self.outputs] = self.squares[:n] / self.n_sites - self.log_scales[self.outputs] ** 2
        return found

    @property
    def may_have_gains(self) -> bool:
        """Whether the scales of sites differ more than chance allows."""
        # The log of a standard deviation of n rows varies by 1/(2n); neighbouring rows tell less.
        return bool(np.any(self.scale_spreads > 4.0 * self.n_sites / self.n_rows))


def _profile_lags(d: int, n_lags: int) -> int:
    return n_lags if (n_lags + 1) * d <= _MOST_COLUMNS else 0


def survey_program(
    variables: tuple[str, ...], n_lags: int, inputs: tuple[int, ...] = (), *, profiles: str = "whole"
) -> ServerProgram[Survey]:
    """Ask for a first look; `profiles` are what sites are compared by, of what is no input."""
    d = len(variables)
    question = SurveyQuestion(n_lags=n_lags, variables=variables, inputs=inputs, profiles=profiles)
    total = (yield Task(question)).value
    sizes = (_HEAD, d, d, d, N_FREQUENCIES, 2 * d)
    head, far, cells, still, spectrum, objecting, rest = np.split(total, np.cumsum(sizes))
    rows, recordings, empty, n_spectra, n_sites, *company = head.tolist()
    sums, squares = np.split(rest, 2)
    length = rows / max(recordings, 1.0)
    periods = cycles_in(spectrum / n_spectra, n_spectra, length, clear=True) if n_spectra else ()
    return Survey(
        n_sites,
        rows,
        recordings,
        empty,
        far,
        cells,
        np.array(company),
        still,
        periods,
        objecting.reshape(2, d),
        sums,
        squares,
        inputs,
    )


def survey_plan(
    variables: tuple[str, ...], n_lags: int, inputs: tuple[int, ...] = (), *, profiles: str = "whole"
) -> Plan:
    """What `survey_program` may ask."""
    question = SurveyQuestion(n_lags=n_lags, variables=variables, inputs=inputs, profiles=profiles)
    return (Planned("survey.first", survey_length(question)),)


def survey_length(question: SurveyQuestion) -> int:
    """How many numbers an answer to the survey has."""
    return _HEAD + 5 * question.d + N_FREQUENCIES + 2 * _profile_size(question)


def _profile_size(question: SurveyQuestion) -> int:
    outputs = len(outputs_of(question.d, question.inputs))
    whole = profile_length(outputs, _profile_lags(outputs, question.n_lags))
    return {"none": 0, "scales": outputs, "whole": whole}[question.profiles]


@answers(SurveyQuestion, length=survey_length)
def _survey(here: Here, question: SurveyQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    d = question.d
    rows = empty = spectra = 0.0
    cells, spectrum, with_rows = np.zeros(d), np.zeros(N_FREQUENCIES), set[int]()
    objecting = np.zeros((2, d), dtype=bool)
    data = mapped(here.data, question.cell_maps)
    bounded = BoundedSite(data, inputs=question.inputs)
    for recording, read in itertools.groupby(bounded.read(), itemgetter(0)):
        for values, weights in pieces(block for _, block in read):
            n = total_weight(len(values), weights)
            with_rows.add(recording)
            rows, cells = rows + n, cells + n
            if may_lack_cells(values):
                absent = weighted(np.isnan(values), weights).sum(axis=0)
                cells, empty = cells - absent, empty + float(absent.sum())
            objecting |= objections(values)
            power, number_of = periodogram(root_weighted(without_slow_part(values), weights))
            spectrum, spectra = spectrum + power, spectra + number_of
    outputs, size = outputs_of(d, question.inputs), _profile_size(question)
    found = site_profile(data, _profile_lags(len(outputs), question.n_lags), outputs) if size else None
    state = {key: value for key, value in here.state.items() if not key.startswith("agreement.")}
    profile = np.zeros(size)
    if found is not None:
        profile = found[0][:size]
        if question.profiles == "whole":
            state |= {"agreement.profile": profile, "agreement.rows": np.array(found[1])}
    head = np.array([rows, float(len(with_rows)), empty, spectra, float(found is not None)])
    far = [bounded.known.company, bounded.n_far(), cells, bounded.is_still & (cells > 0)]
    parts = [head, *far, spectrum, objecting.ravel(), profile, profile**2]
    return state, np.concatenate(parts)


def agreement_program(
    variables: tuple[str, ...], n_lags: int, survey: Survey, personal: bool = False
) -> ServerProgram[tuple[int, int]]:
    """Have every site compare itself; returns how many do not fit, and of these how many only have rows farther apart."""
    question = AgreementQuestion(
        n_lags=n_lags,
        variables=variables,
        n_sites=survey.n_sites,
        total=survey.total,
        squares=survey.squares,
        inputs=survey.inputs,
        personal=personal,
    )
    odd, slower = (yield Task(question)).value.tolist()
    return round(odd), round(slower)


@answers(AgreementQuestion)
def _agreement(here: Here, question: AgreementQuestion) -> tuple[SiteState, FloatArray]:
    state = {key: value for key, value in here.state.items() if key != "agreement.abstains"}
    own, found = state.get("agreement.profile"), tuple[Finding, ...]()
    if own is not None and len(own) == len(question.total):
        n = float(state["agreement.rows"])
        names = [question.variables[j] for j in outputs_of(question.d, question.inputs)]
        found = compared(own, n, question.total, question.squares, question.n_sites, names)
    if not found:
        return with_notes(state, ()), np.zeros(N_AGREE)
    notes = (*found, Finding("site-own-network", "note")) if question.personal else found
    is_slower = all(one.code == SLOWER for one in found)
    return {**with_notes(state, notes), "agreement.abstains": np.ones(1)}, np.array([1.0, float(is_slower)])
