"""A first look at the data of all sites, at how they compare, and under noise at scales alone.

Site tasks
----------
``survey``     numbers of outliers, spectra and profiles of single sites, added up (`core.statistics.survey`), and how many
               sites have cells that are no counts or no yes/no; and only if that looks odd, counts of deviations
``agreement``  the sums of profiles come back; every site compares itself and only the number of those that do not fit is
               added up. What does not fit stays in the site's state, in words for its owner
``spikes``     how much other cells deviate around outliers: do these act as shocks do, or are they errors?
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, may_lack_cells
from feddbn.core.designs.cells import CELL_MAPS, block_deviations, limits_of, site_profile
from feddbn.core.designs.recordings import Recording
from feddbn.core.statistics.diagnostics import outputs_of
from feddbn.core.statistics.survey import (
    FEWEST_SITES,
    N_BINS,
    N_FREQUENCIES,
    OWN_SCALE_CELLS,
    TAIL,
    Outliers,
    bin_counts,
    compared,
    cycles_in,
    judge_outliers,
    objections,
    outlier_sums,
    outlier_sums_length,
    periodogram,
    profile_length,
    robust_scale,
    tail_counts,
    without_slow_part,
)
from feddbn.errors import ParameterError
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

FAR_SHARE = 2e-4
"""From this share of its cells on, outliers of a variable are looked at."""
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
    """Numbers of outliers, spectra, and sums and squares of profiles; or, with `counts`, counts of deviations alone.

    `profiles` are log standard deviations of sites ("scales"), or these and correlations ("whole"), by which sites are
    compared.
    """

    name = "survey.first"
    purpose = (
        "how many cells are empty or far from their neighbours in time, spectra, whether all cells of a variable are counts "
        "or 0 and 1, and if asked sums of log standard deviations and correlations of single sites; where that looks odd "
        "how many cells are how far"
    )

    profiles: str = choice("none", "scales", "whole", default="none")
    counts: bool = flag(default=False)

    def check(self) -> None:
        """Counts come alone."""
        super().check()
        if self.counts and self.profiles != "none":
            raise self.wrong("'counts' are asked for without 'profiles'")

    def check_scope(self, scope: Scope) -> None:
        """Few sites are not compared, as sums and squares would tell them apart."""
        super().check_scope(scope)
        n = len(scope.sites)
        is_hidden = self.profiles == "none" or n >= FEWEST_SITES
        scope.require(
            is_hidden,
            self.name,
            f"profiles of {n} sites can be told apart; {FEWEST_SITES} are needed",
            code="few-sites",
        )
        by_scales = "scales" in scope.transformations
        needs = {"none": True, "scales": by_scales, "whole": _compares(scope)}[self.profiles]
        scope.require(needs, self.name, "the study does not compare sites", code="sites-not-compared")


@dataclass(frozen=True, kw_only=True)
class AgreementQuestion(LookQuestion):
    """Sums and squares of all sites' profiles, so that each can compare itself.

    `personal` says that sites which stay out are to have networks of their own, so that their owners are told how.
    """

    name = "agree"
    purpose = "whether this site looks like the others: 0 or 1"

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


@dataclass(frozen=True, kw_only=True)
class SpikesQuestion(LookQuestion):
    """How much other cells deviate around far ones; `scales` are robust standard deviations."""

    name = "survey.outliers"
    purpose = (
        "how much cells deviate from their neighbours in time, around cells that are far from theirs, and how many far "
        "cells are neighbours"
    )

    scales: FloatArray = array("d")

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Two scales differ by few outliers."""
        return (Constant("scales of outliers", (self.scales, self.abstain)),)


@dataclass(frozen=True)
class Survey:
    """What the first look showed.

    Attributes
    ----------
    n_sites, n_rows, n_recordings
        How many there are; `n_sites` with a profile.
    n_empty
        Number of empty cells.
    scales
        (d,) robust standard deviations about running medians; 0 if most cells do not move, NaN if nothing looked odd and
        nobody asked.
    far
        (d,) share of cells beyond `core.statistics.survey.TAIL` of them.
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
    scales: FloatArray
    far: FloatArray
    periods: tuple[float, ...]
    objections: FloatArray
    total: FloatArray
    squares: FloatArray
    inputs: tuple[int, ...] = ()

    @property
    def outputs(self) -> list[int]:
        """Positions of the other variables, which sites are compared by."""
        return outputs_of(len(self.scales), self.inputs)

    @property
    def has_far(self) -> BoolArray:
        """(d,) whether enough cells are far out to be looked at."""
        return np.asarray((self.far > FAR_SHARE) & (self.scales > 0))

    @property
    def may_have_pulses(self) -> bool:
        """Whether some input has outliers, or rests most of the time, so that there is no telling what is far."""
        return any(self.scales[j] == 0 or self.far[j] > FAR_SHARE for j in self.inputs)

    @property
    def far_by_pulses(self) -> tuple[int, ...]:
        """Positions of variables whose outliers may be what pulses of inputs do."""
        return tuple(j for j in self.outputs if self.may_have_pulses and self.has_far[j])

    @property
    def log_scales(self) -> FloatArray:
        """(d,) means over sites of the logs of their standard deviations; 0 for inputs, which keep their scale."""
        found = np.zeros(len(self.scales))
        found[self.outputs] = self.total[: len(self.outputs)] / max(self.n_sites, 1.0)
        return found

    @property
    def may_have_gains(self) -> bool:
        """Whether the scales of sites differ more than chance allows."""
        if self.n_sites < FEWEST_SITES:
            return False
        mean = self.log_scales[self.outputs]
        spread = self.squares[: len(mean)] / self.n_sites - mean**2
        # The log of a standard deviation of n rows varies by 1/(2n); neighbouring rows tell less.
        return bool(np.any(spread > 4.0 * self.n_sites / self.n_rows))


def _compares(scope: Scope) -> bool:
    """Whether a study has sites compare themselves."""
    return bool(scope.parameters.get("on_disagreement", "ignore") != "ignore")


def _profile_lags(d: int, n_lags: int) -> int:
    return n_lags if (n_lags + 1) * d <= _MOST_COLUMNS else 0


def survey_program(
    variables: tuple[str, ...],
    n_lags: int,
    inputs: tuple[int, ...] = (),
    *,
    profiles: str = "whole",
    counts: bool = False,
) -> ServerProgram[Survey]:
    """Ask for a first look; `profiles` are what sites are compared by, of what is no input.

    Counts of deviations are asked for where a variable looks odd, or in any case with `counts`.
    """
    d = len(variables)
    question = SurveyQuestion(n_lags=n_lags, variables=variables, inputs=inputs, profiles=profiles)
    total = (yield Task(question)).value
    rows, recordings, empty, n_spectra, n_sites = total[:5].tolist()
    sizes = (d, d, d, N_FREQUENCIES, 2 * d)
    far, cells, still, spectrum, objecting = np.split(total[5 : 5 + sum(sizes)], np.cumsum(sizes)[:-1])
    sums, squares = np.split(total[5 + sum(sizes) :], 2)
    shares = far / np.maximum(cells, 1.0)
    are_small = rows < OWN_SCALE_CELLS * max(n_sites, recordings, 1.0)
    scales = np.full(d, np.nan)
    if counts or are_small or still.any() or (shares > FAR_SHARE).any():
        found = (yield Task(replace(question, profiles="none", counts=True))).value.reshape(d, N_BINS)
        scales = robust_scale(found)
        if are_small:
            # Most sites are too small to judge their cells; together they have a scale, if that is no small site, too.
            far = np.maximum(far, np.where(cells >= OWN_SCALE_CELLS, tail_counts(found), 0.0))
            shares = far / np.maximum(cells, 1.0)
    length = rows / max(recordings, 1.0)
    periods = cycles_in(spectrum / n_spectra, n_spectra, length) if n_spectra else ()
    return Survey(
        n_sites,
        rows,
        recordings,
        empty,
        scales,
        shares,
        periods,
        objecting.reshape(2, d),
        sums,
        squares,
        inputs,
    )


def survey_plan(
    variables: tuple[str, ...],
    n_lags: int,
    inputs: tuple[int, ...] = (),
    *,
    profiles: str = "whole",
    counts: bool = False,
) -> Plan:
    """What `survey_program` may ask."""
    question = SurveyQuestion(n_lags=n_lags, variables=variables, inputs=inputs, profiles=profiles)
    return (
        Planned("survey.first", survey_length(question)),
        Planned("survey.first", question.d * N_BINS, usual=int(counts)),
    )


def survey_length(question: SurveyQuestion) -> int:
    """How many numbers an answer to the survey has."""
    if question.counts:
        return question.d * N_BINS
    return 5 + 5 * question.d + N_FREQUENCIES + 2 * _profile_size(question)


def _profile_size(question: SurveyQuestion) -> int:
    outputs = len(outputs_of(question.d, question.inputs))
    whole = profile_length(outputs, _profile_lags(outputs, question.n_lags))
    return {"none": 0, "scales": outputs, "whole": whole}[question.profiles]


@answers(SurveyQuestion, length=survey_length)
def _survey(here: Here, question: SurveyQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    d = question.d
    rows = recordings = empty = spectra = 0.0
    counts, spectrum = np.zeros((d, N_BINS)), np.zeros(N_FREQUENCIES)
    objecting = np.zeros((2, d), dtype=bool)
    data = question.mapped(here.data)
    for recording in data.recordings():
        n_before = rows
        for block, deviation in block_deviations(recording.blocks()):
            rows += len(block.values)
            counts += bin_counts(deviation)
            if question.counts:
                continue
            empty += float(np.isnan(block.values).sum()) if may_lack_cells(block.values) else 0.0
            objecting |= objections(block.values)
            power, number_of = periodogram(without_slow_part(block.values))
            spectrum, spectra = spectrum + power, spectra + number_of
        recordings += rows > n_before
    if question.counts:
        return here.state, counts.ravel()
    outputs, size = outputs_of(d, question.inputs), _profile_size(question)
    found = None
    if size:
        found = site_profile(data, _profile_lags(len(outputs), question.n_lags), outputs)
    state = {key: value for key, value in here.state.items() if not key.startswith("agreement.")}
    profile = np.zeros(size)
    if found is not None:
        profile = found[0][:size]
        if question.profiles == "whole":
            state |= {"agreement.profile": profile, "agreement.rows": np.array(found[1])}
    head = np.array([rows, recordings, empty, spectra, float(found is not None)])
    # A site with few cells has no scale of its own to judge them by.
    cells = counts.sum(axis=1)
    judged = cells >= OWN_SCALE_CELLS
    far = np.where(judged, tail_counts(counts), 0.0) if judged.any() else np.zeros(d)
    still = (robust_scale(counts) == 0) & (cells > 0)
    parts = [head, far, cells, still, spectrum, objecting.ravel(), profile, profile**2]
    return state, np.concatenate(parts)


def agreement_program(
    variables: tuple[str, ...], n_lags: int, survey: Survey, personal: bool = False
) -> ServerProgram[int]:
    """Have every site compare itself; returns how many do not fit."""
    question = AgreementQuestion(
        n_lags=n_lags,
        variables=variables,
        n_sites=survey.n_sites,
        total=survey.total,
        squares=survey.squares,
        inputs=survey.inputs,
        personal=personal,
    )
    return round(float((yield Task(question)).value[0]))


@answers(AgreementQuestion)
def _agreement(here: Here, question: AgreementQuestion) -> tuple[SiteState, FloatArray]:
    state = {key: value for key, value in here.state.items() if key != "agreement.abstains"}
    own, found = state.get("agreement.profile"), tuple[Finding, ...]()
    if own is not None and len(own) == len(question.total):
        n = float(state["agreement.rows"])
        names = [question.variables[j] for j in outputs_of(question.d, question.inputs)]
        found = compared(own, n, question.total, question.squares, question.n_sites, names)
    if not found:
        return with_notes(state, ()), np.zeros(1)
    notes = (*found, Finding("site-own-network", "note")) if question.personal else found
    return {**with_notes(state, notes), "agreement.abstains": np.ones(1)}, np.ones(1)


def spikes_program(
    variables: tuple[str, ...], n_lags: int, survey: Survey, suspects: BoolArray
) -> ServerProgram[Outliers]:
    """What the outliers of the suspects are."""
    question = SpikesQuestion(n_lags=n_lags, variables=variables, scales=survey.scales)
    return judge_outliers((yield Task(question)).value, suspects)


@answers(SpikesQuestion)
def _spikes(here: Here, question: SpikesQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    total = np.zeros(outlier_sums_length(question.d))
    if question.abstains(here.state):
        return here.state, total
    data = question.mapped(here.data)
    limits = limits_of(data, question.scales)
    for recording in data.recordings():
        for block, deviation in block_deviations(recording.blocks()):
            # Without a limit there is no scale either: such a variable has no outliers and is not looked at.
            sizes = np.where(np.isfinite(limits), TAIL * deviation / limits, np.nan)
            total += outlier_sums(sizes, deviation > limits, block.values)
    return here.state, total


# How outliers lie from their neighbours in time, one recording one vote: robust scales that noise can protect.
#
# The task "survey.shares" sums, over recordings, the shares of a variable's cells in fixed bins of half an octave. One
# recording moves the sum by at most 1 whatever is in it, so it is released like any other sum, with noise and an entry in the
# ledger. Cells beyond the limits that follow are empty in later sums: what is too far is decided by the noisy scales and by
# the recording itself, never by another recording.

_CLEAR = 4.0
"""Bins within this many standard deviations of the noise are read as empty; of 30 000 empty ones one is not."""
_FEWEST_BINS = 3
"""Gaussian cells fill about seven bins with more than a twentieth each; with fewer side by side there is no scale."""


@dataclass(frozen=True, kw_only=True)
class DeviationSharesQuestion(RowsQuestion):
    """Which shares of a recording's cells are how far from their neighbours in time."""

    name = "survey.shares"
    purpose = (
        "which shares of the cells of a recording are how far from their neighbours in time, in coarse bins"
    )


def _recording_shares(recording: Recording, d: int) -> FloatArray:
    """(d * N_BINS,) shares over sqrt(d): d distributions, so the norm is at most 1."""
    counts = np.zeros((d, N_BINS))
    for _, deviation in block_deviations(recording.blocks()):
        counts += bin_counts(deviation)
    total = np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    return np.asarray((counts / total).ravel() / np.sqrt(d))


def above_noise(total: FloatArray, sigma: float) -> FloatArray:
    """The sum with bins that noise alone could have filled set to zero."""
    return np.where(total > _CLEAR * sigma, total, 0.0)


def scales_program(variables: tuple[str, ...], n_lags: int) -> ServerProgram[FloatArray]:
    """(d,) robust standard deviations about running medians; 0 where too little is above the noise.

    They are of the cells that deviate: those that are their own running median lie in a bin apart. Small bins vanish in the
    noise, and more of them lie below the median than above it, so most scales come out too large.
    """
    total = (yield Task(DeviationSharesQuestion(n_lags=n_lags, variables=variables))).value
    return robust_scale(np.array([_bulk(shares) for shares in total.reshape(len(variables), N_BINS)]))


def _bulk(shares: FloatArray) -> FloatArray:
    """The heaviest run of bins side by side, or nothing if it is short: a bin that noise has filled stands alone."""
    runs = np.split(np.arange(N_BINS), np.flatnonzero(np.diff(shares > 0)) + 1)
    run = max(runs, key=lambda bins: float(shares[bins].sum()))
    kept = np.zeros(N_BINS)
    if len(run) >= _FEWEST_BINS and shares[run[0]] > 0:
        kept[run] = shares[run]
    return kept


def _units(here: Here, question: DeviationSharesQuestion, unit: str) -> Iterator[FloatArray]:
    question.require_variables(here.data)
    if unit != "recording":
        raise ParameterError(
            f"unit={unit!r}: what is far is told by the rows around it; protect unit='recording', or use spikes='keep'."
        )
    for recording in question.mapped(here.data).recordings():
        yield _recording_shares(recording, question.d)


@answers(DeviationSharesQuestion, _units, lambda question: question.d * N_BINS)
def _answer(here: Here, question: DeviationSharesQuestion) -> tuple[SiteState, FloatArray]:
    total = np.zeros(question.d * N_BINS)
    for shares in _units(here, question, "recording"):
        total += shares
    return here.state, total
