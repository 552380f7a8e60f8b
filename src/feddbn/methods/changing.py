"""A network that changes over time: segments, one network for each, and what differs between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from feddbn.core.arrays import FloatArray
from feddbn.core.changes import Changing, CutLearner, Limits
from feddbn.core.constraints import Edge, EdgeConstraints
from feddbn.core.orders.learn import (
    OrderLearner,
    agreed,
    compelled_edges,
    explained_shares,
    refit,
)
from feddbn.core.orders.parents import Criterion
from feddbn.core.statistics.diagnostics import outputs_of
from feddbn.core.statistics.parts import UNKNOWN_DISPERSION
from feddbn.data import ROW_TIMES, SiteData
from feddbn.errors import DataError, Given, ParameterError
from feddbn.federation.programs.changing import ChangingOutcome, changing_program
from feddbn.federation.programs.oneshot import OneShotOptions
from feddbn.federation.protocol.rows import CALENDAR, MOST_TIME_BLOCKS, BlockWish, period_numbers
from feddbn.federation.protocol.task import Federation, Observer, fewest_sites
from feddbn.federation.sums.prepare import PreparedSettings
from feddbn.findings import Finding
from feddbn.methods.base import DBNEstimator
from feddbn.model.dbn import DBN
from feddbn.model.nodes import known
from feddbn.results.edge_table import learned_network, learned_table
from feddbn.results.remarks import ResidualSummary, are_looked_at
from feddbn.settings import Rule, edges, flag, nothing, number, setting, takes, whole, word

__all__ = [
    "CHANGES",
    "SEGMENT_EDGES",
    "VARIANCE_CHANGES",
    "ChangingDBN",
    "ChangingSettings",
    "first_block",
]


def first_block(wish: BlockWish, sites: Mapping[str, SiteData] | None) -> BlockWish:
    """Return the wish with the first period of the calendar, if it is about one."""
    if wish.kind != "calendar" or wish.first is not None:
        return wish
    if sites is None:
        raise ParameterError(
            f"blocks={wish.period!r} does not say which {wish.period} is the first, which sites keep to themselves; use "
            f"for example blocks='{wish.period} from 2024-01-01'."
        )
    first, last = _range(wish, sites)
    if last - first >= MOST_TIME_BLOCKS:
        periods = list(CALENDAR)
        longer = periods[max(periods.index(wish.period) - 1, 0)]
        raise ParameterError(
            f"blocks={wish.period!r} makes {last - first + 1} blocks, and at most {MOST_TIME_BLOCKS} are possible; use "
            f"blocks={longer!r}, or fewer rows."
        )
    return replace(wish, first=first)


def _range(wish: BlockWish, sites: Mapping[str, SiteData]) -> tuple[int, int]:
    found: list[int] = []
    for name, site in sites.items():
        for recording in site.recordings():
            for block in recording.blocks():
                if block.labels is None or block.labels.dtype.kind != "M":
                    raise DataError(
                        f"blocks={wish.period!r} needs the dates of rows, which site {name!r} does not have; give a "
                        f"DataFrame or file and name the column of dates with {Given('time')}."
                    )
                numbers = period_numbers(block.labels, wish.unit)
                found += [int(numbers.min()), int(numbers.max())] if len(numbers) else []
    if not found:
        raise DataError("data has no rows.")
    return min(found), max(found)


SEGMENT_EDGES = ("segment", "source", "target", "lag", "weight", "probability")
CHANGES = ("source", "target", "lag", "row", "before", "after", "probability")
VARIANCE_CHANGES = ("target", "what", "row", "before", "after", "probability")
_LONG_LAST = 2.0


def _network(
    numbers: tuple[FloatArray, FloatArray, FloatArray], mean: FloatArray, names: tuple[str, ...]
) -> DBN:
    """The network in the units of the data; `mean` was taken off recordings."""
    C, intercept, variances = numbers
    d = len(names)
    intercept = intercept + mean - np.tile(mean, len(C) // d) @ C
    support = C != 0
    loose = support[:d] & ~compelled_edges(support)
    is_open = [(names[i], names[j]) for i, j in np.argwhere(loose)]
    return DBN(C[:d], C[d:].reshape(-1, d, d), names, intercept, variances, is_open)


def _segments(outcome: ChangingOutcome) -> pd.DataFrame:
    starts = [outcome.blocks.start(block) for block in (0, *outcome.changing.cuts)]
    return pd.DataFrame(
        {
            "start": starts,
            "stop": [*starts[1:], outcome.blocks.stop],
            "rows": [round(float(n)) for n in outcome.changing.grams.n],
        }
    )


def _probability(difference: float) -> float:
    """Of a change whose absence costs so much of the score."""
    return float(1.0 / (1.0 + np.exp(-np.clip(difference, -700.0, 700.0) / 2)))


def _changes(
    outcome: ChangingOutcome, names: Sequence[str], constraints: EdgeConstraints, criterion: Criterion
) -> pd.DataFrame:
    found, d, rows = outcome.changing, len(names), []
    for s, cut in enumerate(found.cuts, start=1):
        for j, node in enumerate(found.nodes):
            steps = node.weights[:, :-1]
            for m in np.flatnonzero(steps[s] != steps[s - 1]).tolist():
                before, after = (float(found.network(k)[0][m, j]) for k in (s - 1, s))
                loss = found.loss_under(j, Limits(unchanged=(m, s)), constraints, criterion)
                start = outcome.blocks.start(cut)
                rows.append((names[m % d], names[j], m // d, start, before, after, _probability(loss)))
    return pd.DataFrame(rows, columns=list(CHANGES))


def _segment_edges(
    outcome: ChangingOutcome,
    networks: Sequence[DBN],
    names: Sequence[str],
    constraints: EdgeConstraints,
    criterion: Criterion,
) -> pd.DataFrame:
    """The edges of every segment, with the probability by BIC that they are there, given the order and the cuts."""
    found, d, rows = outcome.changing, len(names), []
    posterior = None if outcome.constant is None else outcome.constant.learned.probability
    for s, network in enumerate(networks):
        C = network.adjacency_matrices.reshape(-1, d)
        for m, j in np.argwhere(C != 0).tolist():
            if posterior is not None:
                probability = float(posterior[m, j])
            elif constraints.required[m, j]:
                probability = 1.0
            else:
                loss = found.loss_under(j, Limits(absent=(m, s)), constraints, criterion)
                probability = _probability(loss)
            rows.append((s, names[m % d], names[j], m // d, float(C[m, j]), probability))
    return pd.DataFrame(rows, columns=list(SEGMENT_EDGES))


def _edge_probabilities(outcome: ChangingOutcome, dbn: DBN, by_segment: pd.DataFrame) -> pd.DataFrame:
    """Those of the last segment; without changes of all edges that could be, as `OneShotDBN` has them."""
    if outcome.constant is None:
        known = by_segment[by_segment["segment"] == len(outcome.changing.cuts)]
        now = dbn.edges()[["source", "target", "lag"]]
        return now.merge(known.drop(columns="segment"), on=["source", "target", "lag"])
    learned, names = outcome.constant.learned, tuple(dbn.variables)
    C = refit(outcome.constant.moments, learned.support)[0]
    return learned_table(learned, C, explained_shares(outcome.constant.moments.scatter, C), names)


def _variance_changes(
    outcome: ChangingOutcome,
    networks: Sequence[DBN],
    names: Sequence[str],
    constraints: EdgeConstraints,
    criterion: Criterion,
) -> pd.DataFrame:
    found, rows = outcome.changing, []
    price = criterion.c * float(np.log(found.grams.n.sum()))
    noise = [known(one.noise_variances, "noise_variances") for one in networks]
    levels = [known(one.intercept, "intercept") for one in networks]
    for s, cut in enumerate(found.cuts, start=1):
        start = outcome.blocks.start(cut)
        for j, node in enumerate(found.nodes):
            if s in node.variance_cuts:
                before, after = (float(one[j]) for one in noise[s - 1 : s + 1])
                rows.append(
                    (
                        names[j],
                        "noise variance",
                        start,
                        before,
                        after,
                        _probability(_one_variance(found, j, s) - price),
                    )
                )
            if node.weights[s, -1] != node.weights[s - 1, -1]:
                before, after = (float(one[j]) for one in levels[s - 1 : s + 1])
                loss = found.loss_under(
                    j, Limits(unchanged=(len(found.grams.scale), s)), constraints, criterion
                )
                rows.append((names[j], "level", start, before, after, _probability(loss)))
    return pd.DataFrame(rows, columns=list(VARIANCE_CHANGES))


def _one_variance(found: Changing, j: int, s: int) -> float:
    """By how much the fit is worse if a node has one variance before and after the beginning of a segment."""
    node, n = found.nodes[j], found.grams.n
    edges = [0, *node.variance_cuts, len(n)]
    place = edges.index(s)
    here = slice(edges[place - 1], edges[place + 1])
    one = node.rss[here].sum() / n[here].sum()
    return float(n[here] @ np.log(one / node.variances[here]))


def _findings(outcome: ChangingOutcome, changes: pd.DataFrame) -> Iterator[Finding]:
    """What has to be said about a fit."""
    blocks, cuts = outcome.blocks, outcome.changing.cuts
    if cuts:
        wish = blocks.wish
        kind = "rows" if blocks.rows else wish.kind
        places = {"places": [str(blocks.start(cut)) for cut in cuts], "by": kind, "rows": blocks.rows}
        unit = {"period": wish.period, "column": wish.column}
        yield Finding("changes", "note", {**places, **unit, "n_edges": len(changes)})
    if not outcome.could_change:
        yield Finding("few-rows-for-changes", "warning")
    counts = np.array([block.n for block in outcome.moments_by_block])
    if blocks.rows and len(counts) > 1:
        usual = float(np.median(counts[:-1]))
        if counts[-1] > _LONG_LAST * usual:
            yield Finding("long-last-block", "warning", {"n": float(counts[-1]), "usual": usual})


@dataclass(frozen=True, repr=False)
class ChangingSettings(PreparedSettings):
    """What a person may choose of `ChangingDBN`."""

    n_lags: int = setting(1, whole(0), "Number of lags.", kw_only=False)
    blocks: int | str | Mapping[str, str] = setting(
        "auto",
        # Reading it is the check.
        Rule(lambda value: True, ("a way to cut time into blocks",)),
        "How time is divided into blocks; changes are located to within one block. A number: rows per block, a power of "
        'two, so that two studies never differ by a few rows. "auto": about 24 blocks, fewer if sites of a given '
        '`federation` would have too few rows per block. "year", "month", "week", "day", "hour" or "minute": by the rows\' '
        'times (UTC if they have a time zone); a `federation` also needs the first block, such as "month from 2024-01". '
        '"column:NAME": a column with block numbers 0, 1, ... that is not a variable.',
    )
    max_changes: int = setting(5, whole(0), "Largest number of changes.")
    noise_variance: str = setting(
        "auto",
        word("auto", "equal", "free"),
        'Noise variances assumed in the search for the order: "equal", "free" or "auto" (see `OneShotDBN`).',
    )
    penalty: float = setting(
        2.0,
        number(above=0),
        "Penalty, times log(n), for each edge, and for each weight, intercept or variance that differs between segments. "
        "Different weights and intercepts cost ``2 log(d runs)`` more, because many could differ.",
    )
    change_penalty: float = setting(2.0, number(0), "Additional penalty, times log(n), for each change.")
    forbidden_edges: Sequence[Edge] | None = setting(
        None,
        edges(),
        'Edges ``(from, to, lag)`` that must not exist, by name or position; ``"*"`` means every variable.',
    )
    required_edges: Sequence[Edge] | None = setting(None, edges(), "Edges that must exist, in the same form.")
    check_residuals: bool | str = setting(
        "auto",
        flag() | word("auto"),
        "Check by one more sum whether residuals contradict the model (`residuals_`, `findings_`). The networks do not "
        'change. "auto": yes, except for unprepared rows (`feddbn.AS_THEY_ARE`), or if sites do not answer such questions.',
    )
    random_state: int | None = setting(0, whole(0) | nothing(), "Random seed of the search.")
    # A level that changes at a row would look like a trend.
    auto: ClassVar[Mapping[str, Any]] = {**PreparedSettings.auto, "detrend": 0, "missing": "drop"}
    may_be: ClassVar[Mapping[str, Rule]] = {
        **PreparedSettings.may_be,
        "missing": word("auto", "drop"),
        "on_disagreement": word("auto", "exclude", "warn", "ignore"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        BlockWish.of(self.blocks)


class ChangingDBN(DBNEstimator[ChangingSettings]):
    """Dynamic Bayesian networks, one after the other in time, from one sum of the moments of blocks of rows.

    minimise over cuts, orders and differences    sum_j sum_r n_r log(RSS_r / n_r) + prices

    Every weight is the same in all segments unless the evidence is for a difference; r are runs of segments with one
    noise variance of node j. A row's time is its place in its recording, its date or a label: all sites change at the
    same time. See docs/changing.md.

    Attributes
    ----------
    segments_
        DataFrame start, stop, rows: first row and the row after the last, in a recording, or the labels or dates of these
        blocks; rows over all sites.
    dbns_by_segment_
        One network per segment, in time order.
    dbn_, W_, A_
        That of the last segment, which forecasts use.
    changes_
        DataFrame source, target, lag, row, before, after, probability: the edges that appear (before is 0), vanish
        (after is 0) or change their weight at a row. The probability is that by BIC, given the other changes.
    segment_edges_
        DataFrame segment, source, target, lag, weight, probability: the edges of every segment, and the probability by BIC
        that each is there, given the order and the changes.
    edge_probabilities_
        The same of the last segment; without changes that of `OneShotDBN`.
    variance_changes_
        DataFrame target, what, row, before, after, probability: noise variances and levels (intercepts) that change.
    change_scores_
        Total score for 0, 1, 2, ... changes, less that for none; the lowest is taken.
    block_rows_, n_blocks_
        Rows of a recording in a block (0 with a calendar or a column), and number of the blocks.
    residuals_
        What residuals say about the model (`results.remarks.ResidualSummary`); None if they were not looked at.
    order_
        The variables, causes first, in all segments.
    noise_variance_
        "equal" or "free"; with changes always "free".
    center_, treatment_, site_notes_
        As in `OneShotDBN`.
    n_rounds_, n_samples_
        Number of sums; usable rows over all sites.
    feature_names_in_, n_features_in_
        Variables.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=600, random_state=0)
    >>> model = feddbn.ChangingDBN().fit(data.sites)
    >>> len(model.segments_), len(model.changes_)
    (1, 0)
    """

    needed_tasks = frozenset(("gram.blocks",))
    segments_: pd.DataFrame
    changes_: pd.DataFrame
    variance_changes_: pd.DataFrame
    dbns_by_segment_: list[DBN]
    residuals_: ResidualSummary | None

    @takes(ChangingSettings)
    def __init__(self) -> None: ...

    def _label_column(self, label: str | None) -> str | None:
        wish = BlockWish.of(self.blocks)
        needed = {"calendar": ROW_TIMES, "column": wish.column}.get(wish.kind, label)
        if label not in (None, needed):
            raise ParameterError(
                f"{Given('label', label)} must be left out, or be the column of blocks={self.blocks!r}."
            )
        return needed

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        settings, constraints = self._settings, self._constraints()
        criterion = Criterion(float(settings.penalty))
        # The choices have been checked, which the type checker cannot see.
        kind: Any = settings.noise_variance
        learn = OrderLearner(kind, criterion)
        options = OneShotOptions(int(settings.n_lags), prepare=self._rows_on(federation), learn=learn)
        changes = CutLearner(
            int(settings.max_changes),
            criterion,
            kind,
            change_price=float(settings.change_penalty),
        )
        wish = first_block(BlockWish.of(settings.blocks), sites)
        rng = np.random.default_rng(settings.random_state)
        # In one process nobody has to be asked whether a block of few rows may be told.
        n_sites = None if sites is not None else len(federation.sites)
        checks = are_looked_at(
            self._settings.check_residuals, federation, by_default=not self._rows.is_settled
        )
        program = changing_program(
            self._variables,
            constraints,
            options,
            changes,
            wish,
            n_sites,
            rng,
            checks=checks,
            fewest_sites=fewest_sites(federation),
        )
        outcome, _ = self._run(program, federation, observer)
        self._set_outcome(outcome, constraints, criterion)
        self._say_residuals(outcome.report)

    def _set_outcome(
        self, outcome: ChangingOutcome, constraints: EdgeConstraints, criterion: Criterion
    ) -> None:
        names, d, found = self._variables, len(self._variables), outcome.changing
        # Where recordings lost their own means, those of all rows are put back.
        mean = outcome.moments.mean[:d] if outcome.asked.center == "recording" else np.zeros(d)
        constant = outcome.constant
        if constant is not None:
            learned = constant.learned
            learn = OrderLearner(learned.noise.kind, criterion)
            n, rng = constant.moments.n / UNKNOWN_DISPERSION, np.random.default_rng(0)
            learned = agreed(learn.replicated(learned, n, constraints, rng), constraints)
            outcome = replace(outcome, constant=replace(constant, learned=learned))
            numbers = refit(constant.moments, learned.support)
            networks = [learned_network(learned, numbers, names, outputs_of(d, self._inputs))]
            order, self.noise_variance_ = learned.order, learned.noise.kind
        else:
            networks = [_network(found.network(s), mean, names) for s in range(len(found.cuts) + 1)]
            order = found.order
            self.noise_variance_ = "free"
        self.dbns_by_segment_ = [self._defining(one) for one in networks]
        last = networks[-1]
        self._set_network(last, last)
        self.block_rows_, self.n_blocks_ = outcome.blocks.rows, outcome.blocks.n
        self.segments_ = _segments(outcome)
        self.changes_ = _changes(outcome, names, constraints, criterion)
        self.variance_changes_ = _variance_changes(outcome, networks, names, constraints, criterion)
        self.segment_edges_ = _segment_edges(outcome, networks, names, constraints, criterion)
        self.edge_probabilities_ = _edge_probabilities(outcome, last, self.segment_edges_)
        self.change_scores_ = [score - found.scores[0] for score in found.scores]
        self.order_ = [names[j] for j in order]
        self._set_sums(outcome.moments)
        self._say_moments(outcome.asked)
        self._tell(*_findings(outcome, self.changes_))
