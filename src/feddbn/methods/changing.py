"""A network that changes over time: segments, one network for each, and what differs between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from feddbn.core.changes.fits import ChangeOptions
from feddbn.core.graphs.constraints import Edge
from feddbn.core.orders.learn import LearnOptions
from feddbn.core.orders.search import Criterion
from feddbn.data import ROW_TIMES, SiteData
from feddbn.errors import ParameterError
from feddbn.federation.programs.changing import changing_program, site_clocks_program
from feddbn.federation.programs.oneshot import OneShotOptions
from feddbn.federation.protocol.rows import BlockWish
from feddbn.federation.protocol.task import Federation, Observer
from feddbn.methods.base import DBNEstimator
from feddbn.methods.changing_blocks import first_block
from feddbn.methods.changing_report import report_changes
from feddbn.methods.residuals import ResidualSummary, are_looked_at, say_residuals
from feddbn.methods.treated import TREATMENT_RULES
from feddbn.model.dbn import DBN
from feddbn.settings import Rule, a_federation, edges, flag, nothing, number, whole, word

__all__ = ["ChangingDBN"]


class ChangingDBN(DBNEstimator[Any]):
    """Dynamic Bayesian networks, one after the other in time, from one sum of the moments of blocks of rows.

    minimise over cuts, orders and differences    sum_j sum_r n_r log(RSS_r / n_r) + prices

    Every weight is the same in all segments unless the evidence is for a difference; r are runs of segments with one
    noise variance of node j. A row's time is its place in its recording, its date or a label: all sites change at the
    same time. See docs/changing.md.

    Parameters
    ----------
    n_lags
        Number of lags.
    blocks
        How time is cut into blocks; changes are found to within one. A number of rows of a recording, a power of two (so
        that no two studies differ by a few rows); "auto": about 24 blocks of rows, fewer where sites of a given
        `federation` would have too few rows in a block to tell them; "year", "month", "week", "day", "hour" or "minute" of
        the rows' times (UTC where these have a time zone), with a `federation` with the first one, such as
        "month from 2024-01"; or "column:NAME", a column of whole numbers 0, 1, ... that is no variable.
    clock
        "common": all sites change at the same time. "site": every site goes through the same networks, and changes at times
        of its own (`site_changes_`); only where all sites are in this process, without drift and a look at residuals.
    max_changes
        Most changes that are looked for.
    drift
        "auto": weights and levels may drift slowly instead, where that explains the blocks better than changes do (BIC);
        True: they may drift, and nothing changes at once; False: slow drift is cut into steps.
    noise_variance
        By which noise variances the order of the variables is found: "equal", "free" or "auto" (see `OneShotDBN`).
    penalty
        Price in log(n) of an edge, and of each weight, level or variance that differs between segments; weights and levels
        that differ cost ``2 log(d runs)`` more, since there are many that could.
    change_penalty
        Price in log(n) of a change besides what differs there.
    forbidden_edges, required_edges
        ``(from, to, lag)``; names or positions; ``"*"`` stands for every variable.
    center, detrend, period, gains, spikes
        What is done to the rows first (docs/preparing-data.md). By default no trend is taken off: a level that changes at a
        row would look like one. With ``detrend=1`` or more, trends of recordings are no change.
    missing
        "drop": rows with an empty cell are left out.
    on_disagreement
        "exclude", "warn" or "ignore": what is done about a site that does not fit the others; with ``clock="site"`` sites
        differ, and none is left out.
    check_residuals
        Ask for one more sum, which tells whether residuals contradict the model (`residuals_`, `warnings_`); the networks
        stay as they are. "auto": yes, unless rows are used as they are or sites do not answer such questions.
    random_state
        Seed of the search.
    federation
        Where the sums are carried out; by default in this process.

    Attributes
    ----------
    segments_
        DataFrame start, stop, rows: first row and the row after the last, in a recording, or the labels or dates of these
        blocks; rows over all sites.
    dbns_by_segment_
        One network per segment, in time order.
    dbn_, W_, A_
        That of the last segment, which forecasts use; of weights that drift the last values.
    changes_
        DataFrame source, target, lag, row, before, after, probability: the edges that appear (before is 0), vanish
        (after is 0) or change their weight at a row. The probability is that by BIC, given the other changes.
    drift_
        DataFrame what, source, target, lag, start, middle, end, probability: weights ("edge") and levels (intercepts) that
        drift, in the first block, in the middle and in the last one.
    drift_courses_
        DataFrame what, source, target, lag, start, weight: the same in every block.
    site_changes_
        With ``clock="site"`` a DataFrame site, row, before, after: where each site goes from which regime to which, counted
        from 1 as in ``segments_``; None with a common clock.
    segment_edges_
        DataFrame segment, source, target, lag, weight, probability: the edges of every segment, and the probability by BIC
        that each is there, given the order and the changes.
    edge_probabilities_
        The same of the last segment; without changes that of `OneShotDBN`.
    variance_changes_
        DataFrame target, what, row, before, after, probability: noise variances and levels (intercepts) that change.
    change_scores_
        Total score for 0, 1, 2, ... changes, less that for none; the lowest is taken unless drift explains more. Empty with
        ``clock="site"``.
    block_rows_, n_blocks_
        Rows of a recording in a block (0 with a calendar or a column), and number of the blocks.
    residuals_
        What residuals say about the model (`methods.residuals.ResidualSummary`); None if they were not looked at.
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

    segments_: pd.DataFrame
    changes_: pd.DataFrame
    variance_changes_: pd.DataFrame
    drift_: pd.DataFrame
    dbns_by_segment_: list[DBN]
    residuals_: ResidualSummary | None

    rules: ClassVar[Mapping[str, Rule]] = {
        "n_lags": whole(0),
        # Reading it is the check.
        "blocks": Rule(lambda value: True, ("a way to cut time into blocks",)),
        "clock": word("common", "site"),
        "max_changes": whole(0),
        "drift": flag() | word("auto"),
        "noise_variance": word("auto", "equal", "free"),
        "penalty": number(above=0),
        "change_penalty": number(0),
        "forbidden_edges": edges(),
        "required_edges": edges(),
        "center": word("auto", "none", "recording"),
        "detrend": TREATMENT_RULES["detrend"],
        "period": TREATMENT_RULES["period"],
        "gains": TREATMENT_RULES["gains"],
        "spikes": TREATMENT_RULES["spikes"],
        "missing": word("drop"),
        "on_disagreement": word("exclude", "warn", "ignore"),
        "check_residuals": flag() | word("auto"),
        "random_state": whole(0) | nothing(),
        "federation": a_federation(),
    }

    def __init__(
        self,
        n_lags: int = 1,
        *,
        blocks: int | str | Mapping[str, str] = "auto",
        clock: str = "common",
        max_changes: int = 5,
        drift: bool | str = "auto",
        noise_variance: str = "auto",
        penalty: float = 2.0,
        change_penalty: float = 2.0,
        forbidden_edges: Sequence[Edge] | None = None,
        required_edges: Sequence[Edge] | None = None,
        center: str = "auto",
        detrend: int | str = 0,
        period: float | Sequence[float] | str | None = "auto",
        gains: str = "auto",
        spikes: str = "auto",
        missing: str = "drop",
        on_disagreement: str = "exclude",
        check_residuals: bool | str = "auto",
        random_state: int | None = 0,
        federation: Federation | None = None,
    ) -> None:
        self.n_lags = n_lags
        self.blocks = blocks
        self.clock = clock
        self.max_changes = max_changes
        self.drift = drift
        self.noise_variance = noise_variance
        self.penalty = penalty
        self.change_penalty = change_penalty
        self.forbidden_edges = forbidden_edges
        self.required_edges = required_edges
        self.center = center
        self.detrend = detrend
        self.period = period
        self.gains = gains
        self.spikes = spikes
        self.missing = missing
        self.on_disagreement = on_disagreement
        self.check_residuals = check_residuals
        self.random_state = random_state
        self.federation = federation

    def check_parameters(self) -> None:
        """Refuse arguments that cannot be."""
        super().check_parameters()
        BlockWish.of(self.blocks)
        if self.clock == "site":
            for name, value in (("drift", self.drift), ("check_residuals", self.check_residuals)):
                if value is True:
                    raise ParameterError(f"{name}=True needs clock='common'; leave one of the two out.")

    def _label_column(self, label: str | None) -> str | None:
        wish = BlockWish.of(self.blocks)
        needed = {"calendar": ROW_TIMES, "column": wish.column}.get(wish.kind, label)
        if label not in (None, needed):
            raise ParameterError(
                f"label={label!r} must be left out, or be the column of blocks={self.blocks!r}."
            )
        return needed

    def _fit(
        self, federation: Federation, sites: Mapping[str, SiteData] | None, observer: Observer | None
    ) -> None:
        tasks = federation.answered_tasks
        if tasks is not None and "block-moments" not in tasks:
            raise ParameterError(
                "ChangingDBN needs the task 'block-moments', which this federation does not answer (noise is fitted to one "
                "matrix of products); use OneShotDBN."
            )
        criterion, constraints = Criterion(float(self.penalty)), self._constraints()
        # The choices have been checked, which the type checker cannot see.
        kind: Any = self.noise_variance
        learn = LearnOptions(kind, criterion, average="auto" if self.penalty == Criterion().c else False)
        options = OneShotOptions(int(self.n_lags), prepare=self._rows_on(federation), learn=learn)
        changes = ChangeOptions(
            0 if self.drift is True else int(self.max_changes),
            criterion,
            kind,
            change_price=float(self.change_penalty),
            drift=bool(self.drift),
        )
        if self.clock == "site" and sites is None:
            raise ParameterError(
                "clock='site' needs data in this process: sums over sites in which sites cut their own rows would show the "
                "rows of single sites; use clock='common' with a federation."
            )
        wish = first_block(BlockWish.of(self.blocks), sites)
        rng = np.random.default_rng(self.random_state)
        # In one process nobody has to be asked whether a block of few rows may be told.
        n_sites = None if sites is not None else len(federation.sites)
        checks = are_looked_at(self, federation, by_default=not self._rows.is_settled)
        if sites is not None and self.clock == "site":
            # Sites that change at different times differ.
            options = replace(options, prepare=replace(options.prepare, on_disagreement="ignore"))
            program = site_clocks_program(
                self._variables, constraints, options, changes, wish, tuple(sites), rng
            )
        else:
            program = changing_program(
                self._variables, constraints, options, changes, wish, n_sites, rng, checks=checks
            )
        outcome, _ = self._run(program, federation, observer)
        report_changes(self, outcome, constraints, criterion)
        say_residuals(self, outcome.report)
