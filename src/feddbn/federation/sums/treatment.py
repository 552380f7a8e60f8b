"""What has to be done to the rows before anything is learned from them, decided from sums.

    survey       empty cells, far cells, cycles, profiles of sites
    agreement    sites compare themselves; those that do not fit stay out
    moments      one Gram matrix for each nuisance that recordings may have; or pairs, if cells are empty
    moments      only if scales of sites differ: the same with every site brought to one scale
    moments      only if cells are empty: expected products given what is there, a few times (EM)

On clean data that is three sums, of which the last is the one that a network is learned from. Where everything is given
and nothing is to be found out, it is that one alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.design import Nuisance
from feddbn.core.designs.gram import restored
from feddbn.core.statistics.diagnostics import evidence_for_nuisances, log_det_of_residuals, output_columns
from feddbn.core.statistics.missing import (
    known_n,
    pairwise_scatter,
    products_about,
    seldom_together,
)
from feddbn.core.statistics.moments import Moments, correlations, sums_length, symmetric
from feddbn.core.statistics.survey import FEWEST_SITES, MOST_CYCLES, N_FREQUENCIES
from feddbn.errors import DataError, Given
from feddbn.federation.protocol.rows import Treatment, treated
from feddbn.federation.protocol.task import Plan, Planned, ServerProgram, Task
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.prepare import Prepare
from feddbn.federation.sums.statistics import FAR_FROM_ZERO
from feddbn.federation.sums.survey import N_AGREE, Survey, agreement_program, survey_plan, survey_program

# Products over pairs of cells that are both there: where rows with empty cells begin.


@dataclass(frozen=True)
class Pairs:
    """What pairs of cells told: one covariance about the common mean, and one off each of the nuisances tried.

    Attributes
    ----------
    n_rows
        How many rows have any cell.
    ns
        What the pairs of each covariance are worth in complete rows.
    mean
        (q,) of the cells that are there.
    covariances
        (q, q) each; the first is about the common mean.
    ranks
        Number of nuisance parameters of each.
    log_gains
        Sum of the logs of sites' gains over variables and rows.
    unseen
        For each covariance (i, j, lag) of the pairs that were hardly ever seen together (`seldom_together`).
    """

    n_rows: float
    mean: FloatArray
    covariances: tuple[FloatArray, ...]
    ns: tuple[float, ...]
    ranks: tuple[float, ...]
    log_gains: float
    unseen: tuple[tuple[tuple[int, int, int], ...], ...] = ()


def pairs_program(question: GramQuestion) -> ServerProgram[Pairs]:
    """Ask for pairs; a second time about the means if these are far from zero."""
    total = (yield Task(question)).value
    found = _read(total, question)
    if np.any(np.abs(found.mean) > FAR_FROM_ZERO * np.sqrt(np.diag(found.covariances[0]))):
        question = replace(question, origin=found.mean)
        found = _read((yield Task(question)).value, question)
    return found


def _read(total: FloatArray, question: GramQuestion) -> Pairs:
    q = question.q
    size = q * (q + 1) // 2
    start = 2 + q * q
    (n_rows, log_gains), totals, rest = total[:2].tolist(), total[2:start].reshape(q, q), total[start:]
    parts = rest.reshape(-1, 1 + 2 * size)
    counts, products = symmetric(parts[0, 1 : 1 + size], q), symmetric(parts[0, 1 + size :], q)
    delta = np.diag(totals) / np.maximum(np.diag(counts), 1.0)
    common = pairwise_scatter(counts, products_about(delta, counts, totals, products))
    others = [pairwise_scatter(symmetric(p[1 : 1 + size], q), symmetric(p[1 + size :], q)) for p in parts[1:]]
    mean = delta if question.origin is None else delta + question.origin
    covariances, ns = zip(common, *others, strict=True)
    unseen = tuple(seldom_together(symmetric(p[1 : 1 + size], q), question.d) for p in parts)
    return Pairs(n_rows, mean, covariances, ns, (1.0, *parts[1:, 0].tolist()), log_gains, unseen)


# The first look at the data of all sites: how they are, and how many sites do not fit the others.


@dataclass(frozen=True)
class FirstLook:
    """What the first look told.

    Attributes
    ----------
    survey
        How the data are.
    n_disagreeing
        How many sites do not fit the others; None if sites were not compared.
    n_slower
        How many of these only have rows that are farther apart.
    """

    survey: Survey
    n_disagreeing: int | None = None
    n_slower: int = 0

    @property
    def has_few_odd(self) -> bool:
        """Whether some sites do not fit, and few: where many do not there are several kinds of sites, and no odd one.

        Rows that are farther apart tell nothing of a single step, however many sites have such, as long as others are left.
        """
        n, n_sites = self.n_disagreeing or 0, self.survey.n_sites
        return n > 0 and n - self.n_slower <= n_sites / 3 and n_sites - n >= _FEWEST_LEFT


def first_look_program(variables: tuple[str, ...], n_lags: int, prepare: Prepare) -> ServerProgram[FirstLook]:
    """Ask for the survey and, if that is wished for and sites are enough, have every site compare itself."""
    return treated(_first_look(variables, n_lags, prepare), prepare.given)


def _first_look(variables: tuple[str, ...], n_lags: int, prepare: Prepare) -> ServerProgram[FirstLook]:
    inputs = prepare.input_places(variables)
    survey = yield from survey_program(variables, n_lags, inputs, profiles=prepare.profiles)
    if prepare.on_disagreement == "ignore" or survey.n_sites < FEWEST_SITES:
        return FirstLook(survey)
    return FirstLook(survey, *(yield from agreement_program(variables, n_lags, survey, prepare.is_personal)))


_FEWEST_LEFT = 3
"""Sites that must be left in the sums where others stay out."""
_SAME_CORRELATIONS = 0.01
_NOTHING_LEFT = 1e-12
_MOST_EM_SUMS = 6


@dataclass(frozen=True)
class AskedMoments:
    """What the sums told.

    Attributes
    ----------
    moments
        Of all rows, as treated; where recordings lost their own mean, the mean is that of all rows.
    treatment
        What was done to them; further questions must do the same (`federation.protocol.rows.treated`).
    evidence
        For the nuisances of recordings (`core.statistics.diagnostics`); None if it was not looked at.
    gains_evidence
        For scales of sites' own, the same way; None if it was not looked at.
    survey
        The first look, or None.
    n_disagreeing, n_slower
        Number of sites that do not fit, and of those among them whose rows are only farther apart.
    shape
        Sums of `core.orders.nongaussian.shape_sums`, or None.
    n_rows
        How many rows sites count in sums after these: where cells are empty more than `moments.n`, which is what they
        are worth.
    rank
        Number of nuisance parameters of one variable over all recordings, as far as it is known.
    inputs
        Names of the variables that only act on others.
    unseen
        (i, j, lag) of variables i at t - lag and j at t of which hardly any row has both.
    personal
        Whether sites that stay out are to have networks of their own.
    own_shares
        (d,) how much of the variance of each variable is levels, trends and cycles of recordings, beyond what the slow part
        of the series themselves has; None if nothing was tried or taken off.
    summed
        The moments before what nuisances took along was put back (`whole`): these add up with those of other rows.
    unscaled
        Where sites were brought to one scale, the moments before that; None otherwise.
    """

    moments: Moments
    treatment: Treatment = field(default_factory=Treatment)
    evidence: float | None = None
    gains_evidence: float | None = None
    survey: Survey | None = None
    n_disagreeing: int = 0
    n_slower: int = 0
    shape: FloatArray | None = None
    n_rows: float = 0.0
    rank: float = 0.0
    inputs: tuple[str, ...] = ()
    unseen: tuple[tuple[int, int, int], ...] = ()
    personal: bool = False
    own_shares: FloatArray | None = None
    summed: Moments | None = None
    unscaled: Moments | None = None

    @property
    def in_units(self) -> Moments:
        """Moments in the units of the data, in which columns are computed from others."""
        return self.moments if self.unscaled is None else self.unscaled

    @property
    def center(self) -> str:
        """Whose mean was taken off: "none" or "recording"."""
        return self.treatment.center

    def whole(self, moments: Moments, d: int) -> Moments:
        """Moments of rows that were treated as these, with what nuisances took along (`core.designs.gram.restored`)."""
        return whole_moments(self.treatment, moments, d, self.rank)

    @property
    def bounded(self) -> tuple[int, ...]:
        """Positions of variables of which far cells count for less, as far as that is known."""
        return () if self.survey is None or self.treatment.robust == "none" else self.survey.far


def asked_moments_plan(
    variables: tuple[str, ...], n_lags: int, prepare: Prepare, shape: bool = False
) -> Plan:
    """What `asked_moments_program` may ask."""
    d, q = len(variables), (n_lags + 1) * len(variables)
    triangle, plain = q * (q + 1) // 2, sums_length(q)
    pairs, _ = prepare.tried(None)
    fewest = most = len(pairs)
    if len(pairs) == 1 and prepare.is_given and (prepare.noisy or pairs[0] != (0, 0)):
        fewest = most = 0
    if prepare.period == "auto" and pairs:
        # As many cycles as spectra may show, each with what is tried without any.
        most = len(pairs) * (MOST_CYCLES + 1)
    asks: list[Planned] = []
    if prepare.noisy:
        return (Planned("gram.rows", plain),)
    looks = prepare.needs_survey
    if looks:
        inputs = prepare.input_places(variables)
        asks += survey_plan(variables, n_lags, inputs, profiles=prepare.profiles)
        if prepare.on_disagreement != "ignore":
            asks.append(Planned("agree", N_AGREE))
    # Once more about the means where these are far from zero, and all of it again where scales of sites may differ.
    again = 2 * (1 + (looks and prepare.gains != "none"))
    further = int(prepare.gains != "none" or most > 0) + (2 * d + 1 if shape else 0)
    moments = Planned(
        "gram.rows",
        plain + most * (1 + triangle) + further,
        again,
        least=plain + fewest * (1 + triangle) + int(fewest > 0) + (2 * d + 1 if shape else 0),
    )
    if not (looks and prepare.fills):
        return *asks, moments
    filled = Planned("gram.pairs", 2 + q * q + (1 + most) * (1 + 2 * triangle), again, usual=0)
    expected = Planned("gram.rows", plain + 1 + triangle, _MOST_EM_SUMS, usual=0)
    # With empty cells pairs take the place of the first moments, and expected moments come after them.
    return *asks, moments, filled, expected


def moments_program(
    variables: tuple[str, ...], n_lags: int, asked: AskedMoments | None = None
) -> ServerProgram[Moments]:
    """Ask for the whole lagged Gram matrix; a second time about the means if these are far from zero.

    `asked` told how rows are treated; whoever runs this sees that they are (`federation.protocol.rows.treated`).
    """
    question = GramQuestion(n_lags=n_lags, variables=variables)
    moments, *_ = yield from _moments_tried(question)
    return moments if asked is None else asked.whole(moments, len(variables))


def asked_moments_program(
    variables: tuple[str, ...], n_lags: int, prepare: Prepare, shape: bool = False
) -> ServerProgram[AskedMoments]:
    """Decide what has to be done to the rows, and ask for their moments."""
    survey, n_disagreeing, n_slower, treatment = None, 0, 0, prepare.given
    if prepare.needs_survey:
        look = yield from first_look_program(variables, n_lags, prepare)
        survey, n_disagreeing, n_slower = look.survey, look.n_disagreeing or 0, look.n_slower
        _require_cells(survey, variables)
        treatment = replace(treatment, abstain=look.has_few_odd and prepare.leaves_out)
        if prepare.robust == "auto" and survey.far:
            robust = "shocks" if survey.has_shocks else "site"
            treatment = replace(treatment, robust=robust, inputs=survey.inputs)
    elif prepare.noisy and prepare.robust == "auto":
        treatment = replace(treatment, robust="recording", inputs=prepare.input_places(variables))
    told, cost = yield from _told(variables, n_lags, prepare, survey, treatment, shape)
    gains_evidence = None
    if survey is not None and (
        prepare.gains == "site" or (prepare.gains == "auto" and survey.may_have_gains)
    ):
        stayed_out = n_disagreeing if treatment.abstain else 0
        log_scales = _log_scales(told.moments, survey) if stayed_out else survey.log_scales
        scales = replace(treatment, log_scales=log_scales, inputs=survey.inputs)
        scaled, new_cost = yield from _told(variables, n_lags, prepare, survey, scales, False)
        # How much better rows are explained, at one parameter for each scale.
        n, n_gains = told.moments.n, len(survey.outputs) * (survey.n_sites - stayed_out - 1)
        gains_evidence = n * (cost - new_cost) - n_gains * float(np.log(n))
        if prepare.gains == "site" or gains_evidence > 0:
            told = replace(scaled, shape=told.shape, unscaled=told.moments)
    if told.treatment.row_model is not None:
        moments, treatment, n_rows = yield from _expected(variables, n_lags, told)
        told = replace(told, moments=moments, treatment=treatment, n_rows=n_rows)
    return replace(
        told,
        gains_evidence=gains_evidence,
        survey=survey,
        n_disagreeing=n_disagreeing,
        n_slower=n_slower,
        inputs=prepare.inputs,
        personal=prepare.is_personal,
    )


def _told(
    variables: tuple[str, ...],
    n_lags: int,
    prepare: Prepare,
    survey: Survey | None,
    treatment: Treatment,
    shape: bool,
) -> ServerProgram[tuple[AskedMoments, float]]:
    """Ask for moments, or for pairs where cells are empty, and choose the nuisances of recordings.

    Returns what was told, and minus twice the log-likelihood of the lagged regression for each row.
    """
    pairs, periods = prepare.tried(survey)
    # One sum tells the means that all have and what is left off those of recordings; under noise there is one matrix.
    if len(pairs) == 1 and prepare.is_given and (prepare.noisy or pairs[0] != (0, 0)):
        degree, n_cycles = pairs[0]
        treatment = replace(treatment, center="recording", degree=degree, periods=periods[:n_cycles])
        pairs = []
    has_gaps = survey is not None and survey.n_empty > 0 and prepare.fills
    d, q, shapes = len(variables), (n_lags + 1) * len(variables), None
    question = GramQuestion(
        n_lags=n_lags,
        variables=variables,
        center=treatment.center,
        try_degrees=tuple(degree for degree, _ in pairs),
        try_cycles=tuple(n for _, n in pairs),
        try_periods=periods,
        pairs=has_gaps,
        shape=shape and not has_gaps,
    )
    n_rows = None
    if has_gaps:
        found = yield from treated(pairs_program(question), treatment)
        # Offsets and trends make pairs look worth little; off them they are worth what they are.
        ns, n, mean, n_rows = found.ns, max(found.ns), found.mean, found.n_rows
        ranks, log_gains = found.ranks, found.log_gains / n_rows
        scatters = tuple(n * covariance for covariance in found.covariances)
    else:
        common, tried, log_gains, shapes = yield from treated(_moments_tried(question), treatment)
        n, mean = common.n, common.mean
        ns = (n,) * (1 + len(tried))
        ranks = (1.0, *(rank for rank, _ in tried))
        scatters = (common.scatter, *(scatter for _, scatter in tried))
    places = prepare.input_places(variables)
    _require_noise(scatters, variables, places)
    # Where rows are worth less than they are many, so are levels.
    worth = np.maximum(np.array(ranks) * n / (n_rows or n), 1.0).tolist()
    best, evidence = _chosen(scatters, worth, question.tried, n, d, prepare, places, not has_gaps)
    is_own = best > 0 or treatment.center == "recording"
    if best:
        degree, n_cycles = pairs[best - 1]
        treatment = replace(treatment, center="recording", degree=degree, periods=periods[:n_cycles])
    rank = ranks[best] if best else 0.0
    if is_own and not best and survey is not None:
        rank = survey.n_recordings * treatment.nuisance.n_columns
    # Off their own means recordings have no level; what noise adds to that is none.
    level = np.zeros(q) if is_own and not best and not has_gaps else mean
    summed = Moments(ns[best], level, scatters[best] * (ns[best] / n))
    moments = whole_moments(treatment, summed, d, rank, n_rows)
    if has_gaps:
        centre = np.zeros(q) if is_own else mean
        treatment = replace(treatment, row_model=np.vstack([centre, moments.scatter / moments.n]))
    asked = AskedMoments(
        moments,
        treatment,
        evidence,
        shape=shapes,
        n_rows=moments.n,
        rank=rank,
        unseen=found.unseen[best] if has_gaps else (),
        own_shares=_own_shares(scatters[0] / n, moments, d) if best else None,
        summed=summed,
    )
    # The density of scaled rows is that of the rows over their gains.
    cost = log_det_of_residuals(*output_columns(moments.scatter / moments.n, d, places)) - 2.0 * log_gains
    return asked, cost


def _moments_tried(
    question: GramQuestion,
) -> ServerProgram[tuple[Moments, list[tuple[float, FloatArray]], float, FloatArray | None]]:
    """Moments about the common mean, rank and scatter off each nuisance tried, mean of log gains, and shapes."""
    total, q = (yield Task(question)).value, question.q
    size, step = sums_length(q), 1 + q * (q + 1) // 2
    moments, rest = Moments.from_sums(total[:size], q), total[size:]
    deviation = np.sqrt(np.maximum(np.diag(moments.scatter), 0.0) / max(moments.n, 1.0))
    if np.any(np.abs(moments.mean) > FAR_FROM_ZERO * deviation):
        origin = moments.mean
        plain = replace(question, origin=origin, try_degrees=(), try_cycles=(), try_periods=(), shape=False)
        moments = Moments.from_sums((yield Task(plain)).value[:size], q, origin)
    n_tried = len(question.tried)
    parts = rest[: n_tried * step].reshape(n_tried, step)
    tried = [(float(part[0]), symmetric(part[1:], q)) for part in parts]
    rest = rest[n_tried * step :]
    shapes = rest[len(rest) - 2 * question.d - 1 :] if question.shape else None
    # Where something was tried, nuisances or gains, the sum of log gains comes between.
    log_gains = float(rest[0]) if len(rest) > (0 if shapes is None else len(shapes)) else 0.0
    return moments, tried, log_gains / max(moments.n, 1.0), shapes


def whole_moments(
    treatment: Treatment, moments: Moments, d: int, rank: float, n_rows: float | None = None
) -> Moments:
    """Moments of treated rows with what nuisances took along of the series themselves (`core.designs.gram.restored`).

    `rank` is the number of nuisance parameters of a variable over all recordings, 0 where it is not known; `n_rows` how
    many rows these are of, if not `moments.n`.
    """
    nuisance, n = treatment.nuisance, moments.n
    if nuisance.scope == "all" or not (rank and n):
        return moments
    length = (n_rows or n) * nuisance.n_columns / rank
    return Moments(n, moments.mean, n * restored(moments.scatter / n, d, nuisance, length))


def _own_shares(common: FloatArray, whole: Moments, d: int) -> FloatArray:
    """(d,) share of the variance about a common mean that is not among the moments."""
    variance = np.diag(common)[:d]
    left = np.diag(whole.scatter)[:d] / whole.n
    return np.clip(1.0 - left / np.where(variance > 0, variance, 1.0), 0.0, 1.0) * (variance > 0)


def _vanished(common: FloatArray, own: FloatArray, d: int) -> set[int]:
    """Positions of variables of which nuisances leave nothing."""
    total = np.diag(common)[:d]
    return set(np.flatnonzero((np.diag(own)[:d] < _NOTHING_LEFT * total) & (total > 0)).tolist())


def _require_cells(survey: Survey, variables: tuple[str, ...]) -> None:
    """Refuse variables of which no site has a cell."""
    empty = tuple(name for name, n in zip(variables, survey.n_cells.tolist(), strict=True) if n < 0.5)
    if empty:
        columns = f"column{'' if len(empty) == 1 else 's'} {', '.join(map(repr, empty))}"
        raise DataError(
            f"no row has a value in {columns}; leave such columns out with {Given('variables')}.",
            code="empty-column",
            columns=empty,
        )


def _require_noise(
    scatters: tuple[FloatArray, ...], variables: tuple[str, ...], inputs: tuple[int, ...]
) -> None:
    """Refuse a variable that is nothing but a line or a cycle of every recording, unless it is an input."""
    for scatter in scatters[2:]:
        for i in sorted(_vanished(scatters[0], scatter, len(variables)) - set(inputs)):
            raise DataError(
                f"variable {variables[int(i)]!r} only follows time, as a clock, a counter or an index does; name it "
                f"with {Given('time')}, or leave it out with {Given('variables')}.",
                columns=(variables[int(i)],),
            )


def _chosen(
    scatters: tuple[FloatArray, ...],
    ranks: Sequence[float],
    tried: Sequence[Nuisance],
    n: float,
    d: int,
    prepare: Prepare,
    inputs: tuple[int, ...],
    refit: bool,
) -> tuple[int, float | None]:
    """Which of the scatters to take, and the evidence against a common mean (None if nothing was open).

    All but the first are off one of the nuisances `tried`. The evidence is that of the outputs given the inputs. A nuisance
    that takes an input off altogether is left to the input.
    """
    if len(scatters) == 1:
        return 0, None
    found: list[float] = []
    for k, (scatter, rank) in enumerate(zip(scatters[1:], ranks[1:], strict=True)):
        if _vanished(scatters[0], scatter, d) & set(inputs):
            found.append(-np.inf)
            continue
        # What it has more than the largest of those within it, which come before it.
        within = [
            i
            for i, one in enumerate(tried[:k])
            if one.degree <= tried[k].degree and len(one.periods) <= len(tried[k].periods)
        ]
        last = max(within, key=lambda i: ranks[i + 1], default=-1)
        common, _ = output_columns(scatters[last + 1], d, inputs)
        own, m = output_columns(scatter, d, inputs)
        gain = evidence_for_nuisances(common, own, n, rank, m, ranks[last + 1], refit=refit)
        if gain > 0:
            whole = n * restored(scatter / n, d, tried[k], n * tried[k].n_columns / rank)
            whole, _ = output_columns(whole, d, inputs)
            gain = evidence_for_nuisances(common, own, n, rank, m, ranks[last + 1], whole, refit=refit)
        # Cycles are the highest of many frequencies.
        n_cycles = len(tried[k].periods) - (len(tried[last].periods) if last >= 0 else 0)
        gain -= 2.0 * n_cycles * float(np.log(N_FREQUENCIES))
        found.append(gain + (found[last] if last >= 0 else 0.0))
    best = int(np.argmax(found)) + 1
    if not np.isfinite(found[best - 1]):
        if prepare.is_given:
            raise DataError(
                "an input in exogenous= is constant in every recording, so nothing is left of it without the recordings' "
                f"own means; use center='none', or leave the input out with {Given('variables')}."
            )
        return 0, None
    if prepare.is_given:
        return best, found[best - 1]
    return (best if found[best - 1] > 0 else 0), found[best - 1]


def _log_scales(moments: Moments, survey: Survey) -> FloatArray:
    """(d,) the logs of scales that sites are brought to where some stayed out, whose numbers are in the survey.

    These are of all rows of those who stayed: their moments are known already. A second sum of logs, without those who
    stayed out, would tell exactly what theirs are.
    """
    found = survey.log_scales.copy()
    places = [j for j in survey.outputs if moments.scatter[j, j] > 0]
    found[places] = np.log(np.diag(moments.scatter)[places] / moments.n) / 2
    return found


def _expected(
    variables: tuple[str, ...], n_lags: int, told: AskedMoments
) -> ServerProgram[tuple[Moments, Treatment, float]]:
    """Expected moments given the cells that are there, until they hardly change; how they were asked for; their rows."""
    treatment, q = told.treatment, told.moments.q
    size = sums_length(q)
    assert treatment.row_model is not None
    mean = told.moments.mean
    origin = mean if treatment.center == "none" else None
    question = GramQuestion(n_lags=n_lags, variables=variables, origin=origin, known=True)
    for k in range(_MOST_EM_SUMS):
        answer = (yield Task(treatment.on(question))).value
        found = Moments.from_sums(answer[:size], q, question.origin)
        found = whole_moments(treatment, found, len(variables), told.rank)
        assert treatment.row_model is not None
        before = correlations(treatment.row_model[1:])[0]
        mean = found.mean if treatment.center == "none" else mean
        is_same = np.abs(correlations(found.scatter)[0] - before).max() < _SAME_CORRELATIONS
        if is_same or k == _MOST_EM_SUMS - 1:
            # The treatment stays the one that gave these moments, so that sites give the same in later sums.
            break
        centre = found.mean if treatment.center == "none" else np.zeros(q)
        treatment = replace(treatment, row_model=np.vstack([centre, found.scatter / found.n]))
    # Expected sums lose less than pairs do, so they are worth more rows than those.
    n = known_n(symmetric(answer[len(answer) - q * (q + 1) // 2 :], q))
    return Moments(n, mean, found.scatter / found.n * n), treatment, found.n
