"""Sums of counts, totals and cross-products of the columns of rows: one question for most of what methods need.

Which columns, which rows and what is done to cells a `RowsQuestion` says. Forms of the answer:

    rows        count, totals and products of lagged values; if asked the same off nuisances of recordings (`tried`), with
                ``shape`` skewness and kurtosis of every variable, and with ``known`` what rows with empty cells are worth
    functions   the same of functions of the variables, and products of them
    kinds       the same of columns that stand for values of kinds
    diagonal    count, totals, squares and lag-1 products: nothing about pairs of variables
    pairs       how often two columns are present together, and their totals and products there
    blocks      the first form for each block of time
    parts       the first or the second form for each part of the rows (`core.designs.parts`)

A site reads its rows once per design; the moments of lagged values stay in its state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray, IntArray, total_weight
from feddbn.core.designs.design import ONE_MEAN, Design, Nuisance, TimeBasis, design_rows
from feddbn.core.designs.gram import WholeRows, nuisance_basis, recording_gram, tried_grams, whole_rows
from feddbn.core.designs.parts import N_PARTS, dealt
from feddbn.core.designs.recordings import (
    Recording,
    SiteData,
    complete_rows,
    training_site,
    usable_runs,
)
from feddbn.core.orders.nongaussian import shape_sums
from feddbn.core.statistics.missing import (
    expected_moments,
    expected_parts,
    known_n,
    known_pairs,
    pair_totals,
    pairwise_sums,
)
from feddbn.core.statistics.moments import (
    Moments,
    as_of_rows,
    sums_length,
    upper_triangle,
)
from feddbn.core.statistics.parts import PartMoments
from feddbn.errors import DataError, Given, ParameterError
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Here, SiteState, answers
from feddbn.federation.protocol.task import (
    Constant,
    Plan,
    Planned,
    Scope,
    ServerProgram,
    Task,
    View,
    array,
    flag,
    number,
    numbers,
    whole,
    wholes,
)

MOST_ORIGINS = 8
"""Origins about which a run asks for the moments of the same rows: none, the means, and those of each model of rows."""


@dataclass(frozen=True, kw_only=True)
class GramQuestion(RowsQuestion):
    """Counts, totals and cross-products about an origin.

    Attributes
    ----------
    try_degrees, try_cycles, try_periods
        Also the products off nuisances of every recording's own: for each the degree of its polynomial in time (0: a mean),
        and how many of the `try_periods` it has. The number of nuisance parameters comes before the products.
    shape, known
        Also skewness and kurtosis of every variable, and how many complete rows those with empty cells are worth for each
        pair of columns (`core.statistics.missing.known_pairs`).
    pairs, diagonal
        Products over pairs of present cells; or squares and lag-1 products alone.
    n_parts
        Into how many parts rows are dealt; 0: they are summed together.
    clip_bound
        The bound to which sites clip where they add noise.
    """

    name = "gram"
    purpose = "means and cross-products of variables"
    forms = MappingProxyType(
        {
            "rows": "lagged means and cross-products of all variables, and if asked the same without means, trends and "
            "cycles of recordings, skewness and kurtosis, and how much rows with empty cells are worth",
            "functions": "means and cross-products of all variables and of fixed smooth functions and products of them",
            "kinds": "means and cross-products of all variables as columns of their kinds: logs, positions and indicators of "
            "levels, also about the means of recordings",
            "diagonal": "counts, means and variances of single variables",
            "pairs": "how often two values of a lagged row are present together, and their cross-products there, if asked "
            "without means, trends and cycles of recordings",
            "blocks": "lagged means and cross-products of all variables in each of a few blocks of rows",
            "parts": "lagged means and cross-products of all variables in each of a few parts of the rows",
        }
    )
    takes = ("functions", "kinds", "blocks")

    origin: FloatArray | None = array("columns", default=None)
    try_degrees: tuple[int, ...] = wholes(0, 12, default=())
    try_cycles: tuple[int, ...] = wholes(0, 12, default=())
    try_periods: tuple[float, ...] = numbers(2.0, 1e9, default=())
    shape: bool = flag(default=False)
    known: bool = flag(default=False)
    pairs: bool = flag(default=False)
    diagonal: bool = flag(default=False)
    n_parts: int = whole(0, N_PARTS, default=0)
    clip_bound: float | None = number(0.0, default=None)

    @property
    def form(self) -> str:
        """What is answered."""
        asked = {
            "parts": self.n_parts > 0,
            "blocks": self.n_blocks > 0,
            "pairs": self.pairs,
            "diagonal": self.diagonal,
            "kinds": bool(self.kinds),
            "functions": bool(self.functions),
        }
        return next((form for form, is_asked in asked.items() if is_asked), "rows")

    def sizes(self) -> Mapping[str, int]:
        """Also the columns of its design."""
        return {**super().sizes(), "columns": self.n_columns}

    def check(self) -> None:
        """What is asked beside products fits what they are of."""
        super().check()
        if len(self.try_degrees) != len(self.try_cycles) or max(self.try_cycles, default=0) > len(
            self.try_periods
        ):
            raise self.wrong(
                "'try_degrees' and 'try_cycles' must be of one length, and of cycles that are named"
            )
        # What is asked of one form has no meaning in others: it would make two questions of one.
        more = {
            "try_degrees": (self.try_degrees, ("rows", "pairs", "kinds")),
            "shape": (self.shape, ("rows",)),
            "known": (self.known, ("rows",)),
            "pairs": (self.pairs, ("pairs",)),
            "diagonal": (self.diagonal, ("diagonal",)),
            "clip_bound": (self.clip_bound is not None, ("rows",)),
            "origin": (self.origin is not None, ("rows", "pairs", "diagonal", "blocks", "parts")),
        }
        for name, (is_given, forms) in more.items():
            if is_given and self.form not in forms:
                raise self.wrong(f"{name!r} has no meaning in this form")
        if (self.pairs or self.diagonal) and (self.functions or self.kinds):
            raise self.wrong("pairs and squares are those of lagged values")
        if self.n_parts and (self.kinds or self.n_blocks or self.fold):
            raise self.wrong("parts are of lagged values, or of functions of them, and of all rows")

    def check_scope(self, scope: Scope) -> None:
        """What is tried is what the study leaves open, pairs and bounds are for studies that need them, and so on."""
        super().check_scope(scope)
        n, most = len(self.try_degrees), len(scope.degrees) * (scope.most_cycles + 1)
        scope.require(n <= most, self.name, f"it tries {n} nuisances")
        scope.require(
            set(self.try_degrees) <= {*scope.degrees}, self.name, f"'try_degrees' is {self.try_degrees}"
        )
        n = len(self.try_periods)
        scope.require(n <= scope.most_cycles, self.name, f"it tries {n} cycles")
        has_meaning = self.clip_bound is None or scope.unit is not None
        scope.require(has_meaning, self.name, "'clip_bound' has no meaning without noise")
        fills = not self.pairs or "fill" in scope.transformations
        scope.require(fills, self.name, "the study leaves out rows with empty cells")
        scope.require(self.n_parts in (0, scope.n_parts), self.name, f"'n_parts' is {self.n_parts}")

    @property
    def transformations(self) -> tuple[str, ...]:
        """Also what is tried; in pairs rows with empty cells count."""
        more = {
            "means": bool(self.try_degrees),
            "trends": max(self.try_degrees, default=0) > 0,
            "cycles": max(self.try_cycles, default=0) > 0,
            "fill": self.pairs,
        }
        found = (*super().transformations, *(what for what, is_asked in more.items() if is_asked))
        return tuple(dict.fromkeys(found))

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Also what is tried, and few origins: which of many is too far for a site to answer would tell its rows."""
        found = super().constants
        if self.try_degrees:
            tried = (self.try_degrees, self.try_cycles, self.try_periods)
            found += (Constant("nuisances to try" + self.place, tried),)
        if self.n_blocks:
            return *found, Constant("blocks of rows about an origin", (self.n_lags, self.origin))
        if self.n_parts:
            found += (Constant("parts of rows", (self.n_parts,)),)
        return *found, Constant("origins of moments" + self.place, (self.origin,), MOST_ORIGINS)

    def dealt(self, data: SiteData) -> SiteData:
        """Parts are of the rows as they are, whatever is done to cells."""
        return dealt(data, self.n_parts) if self.n_parts else data

    def block_of(self, times: IntArray, labels: NDArray[np.generic] | None) -> IntArray:
        """Or in which part."""
        if not self.n_parts or labels is None:
            return super().block_of(times, labels)
        return np.asarray(labels, dtype=np.int64)

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """Also each part by itself."""
        views = super().in_view(data, site)
        if not self.n_parts:
            return views
        return tuple(
            replace(view, key=(*view.key, "parts", self.n_parts), part_of=self.block_of) for view in views
        )

    @property
    def reads_incomplete_rows(self) -> bool:
        """In pairs they count, for what they hold."""
        return self.pairs or super().reads_incomplete_rows

    @property
    def is_trying(self) -> bool:
        """Whether something is to be decided by the answer: nuisances of recordings, or gains of sites.

        Functions are asked about once both are settled.
        """
        return bool(self.try_degrees) or (self.log_scales is not None and not self.functions)

    @property
    def tried(self) -> tuple[Nuisance, ...]:
        """The nuisances to try."""
        given = zip(self.try_degrees, self.try_cycles, strict=True)
        return tuple(Nuisance("recording", degree, self.try_periods[:n]) for degree, n in given)


def _answer(here: Here, question: GramQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    if question.form in _FORMS:
        return _FORMS[question.form](here, question)
    state, tried, moments = _tried(here, question)
    if moments is None:
        state, moments = local_moments(replace(here, state=state), question)
    parts = [moments.to_sums(question.origin)]
    if question.is_trying:
        parts += [tried, np.array([moments.n * question.log_gain(here.data)])]
    if question.shape:
        seen = training_site(question.treated(here.data), question.fold)
        parts.append(_shapes(seen) if moments.n else np.zeros(2 * question.d + 1))
    if question.known:
        parts.append(upper_triangle(_known(here, question, moments)))
    return state, np.concatenate(parts)


# Moments of the rows that any question about rows is about.


def moments_key(question: RowsQuestion, design: Design) -> FloatArray:
    """A digest of what the moments of a question depend on."""
    digest = hashlib.sha256(bytes.fromhex(design.digest) + np.array(question.fold, dtype=np.int64).tobytes())
    digest.update("".join((question.robust, *question.cell_maps)).encode())
    if question.inputs and (question.log_scales is not None or question.robust != "none"):
        digest.update(str(question.inputs).encode())
    for given in (question.log_scales, question.row_model):
        digest.update(b"none" if given is None else np.ascontiguousarray(given).tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)


def design_moments(here: Here, question: RowsQuestion) -> Moments:
    """The moments of a site's rows in the columns of the question's design; none if it abstains."""
    if not (question.functions or question.kinds):
        return local_moments(here, question)[1]
    total = Moments.empty(question.design.q)
    if not question.abstains(here.state):
        for recording in question.complete_rows(here.data):
            total = total.merge(recording_gram(question.design, recording).moments)
    return total


def local_moments(
    here: Here, question: RowsQuestion, design: Design | None = None
) -> tuple[SiteState, Moments]:
    """Return the site's moments of the lagged values a question is about, from its state if it has read them before.

    `design` replaces the question's where other lags are needed. A site that abstains has none.
    """
    state, design = here.state, design or question.lagged
    if question.abstains(state):
        return state, Moments.empty(design.q)
    key = moments_key(question, design)
    if "moments.key" in state and np.array_equal(state["moments.key"], key):
        return state, Moments(float(state["moments.n"]), state["moments.mean"], state["moments.scatter"])
    total = recordings_moments(design, training_parts(here.data, question), question.row_model)
    if total.n == 0:
        if any(len(whole_rows(design, one).values) for one in training_parts(here.data, question)):
            raise DataError(
                f"every row of this site, or one of the n_lags={design.n_lags} rows before it, has an empty cell; use "
                f"missing='fill', leave out columns that are mostly empty with {Given('variables')}, or leave the site out."
            )
        raise DataError(
            f"no row of this site has n_lags={design.n_lags} rows before it; lower n_lags or leave the site out."
        )
    return _remembered(state, question, design, total), total


def _remembered(state: SiteState, question: RowsQuestion, design: Design, total: Moments) -> SiteState:
    """A state with these moments in it; without any rows there is nothing to remember."""
    if total.n == 0:
        return state
    return {
        **state,
        "moments.key": moments_key(question, design),
        "moments.n": np.array(total.n),
        "moments.mean": total.mean,
        "moments.scatter": total.scatter,
    }


def recordings_moments(
    design: Design, recordings: Iterable[Recording], row_model: FloatArray | None
) -> Moments:
    """The moments of recordings: of complete rows, or of all of them with empty cells filled in as expected."""
    total = Moments.empty(design.q)
    if row_model is None or len(row_model) != design.q + 1:
        for recording in recordings:
            total = total.merge(recording_gram(design, complete_rows(recording)).moments)
        return total
    for rows, bases in _together(design, recordings):
        total = total.merge(expected_moments(rows.values, row_model[1:], row_model[0], bases, rows.weights))
    return total


_VALUES_TOGETHER = 1 << 20


def _together(
    design: Design, recordings: Iterable[Recording], are_dealt: bool = False
) -> Iterator[tuple[WholeRows, list[FloatArray] | None]]:
    """Yield the rows of some recordings at a time, with parts as labels if dealt, and own nuisance columns."""
    waiting = list[WholeRows]()

    def together() -> tuple[WholeRows, list[FloatArray] | None]:
        bases = [nuisance_basis(design.nuisance, one.times) for one in waiting]
        own = [one for one in bases if one is not None]
        found = WholeRows.of(waiting)
        waiting.clear()
        return found, own or None

    for recording in recordings:
        rows = whole_rows(design, recording, are_dealt)
        if len(rows.values):
            waiting.append(rows)
        if sum(one.values.size for one in waiting) >= _VALUES_TOGETHER:
            yield together()
    if waiting:
        yield together()


def training_parts(data: SiteData, question: RowsQuestion) -> Iterator[Recording]:
    """The recordings a question is about, as it wants their cells."""
    return training_site(question.treated(data), question.fold).recordings()


def asked_moments(here: Here, question: RowsQuestion) -> tuple[SiteState, Moments]:
    """Return the moments a question is about, of a site that holds all of its variables."""
    question.require_variables(here.data)
    return local_moments(here, question)


def _known(here: Here, question: GramQuestion, moments: Moments) -> FloatArray:
    """(q, q) how many complete rows a site's rows are worth for each pair of columns."""
    q, row_model = question.q, question.row_model
    if row_model is None or moments.n == 0:
        return np.full((q, q), moments.n)
    return _pairs_known(here.data, question, row_model)


def _pairs_known(data: SiteData, question: RowsQuestion, row_model: FloatArray) -> FloatArray:
    total = np.zeros((question.q, question.q))
    for rows, _ in _together(question.design, training_parts(data, question)):
        total += known_pairs(rows.values, row_model[1:], rows.weights)
    return total


def _tried(here: Here, question: GramQuestion) -> tuple[SiteState, FloatArray, Moments | None]:
    """Number of parameters and products off each of the nuisances tried, and the moments where they are known by then.

    The state has the plain moments where the same reading told them.
    """
    tried, q, state = question.tried, question.design.q, here.state
    products = np.zeros(len(tried) * (1 + q * (q + 1) // 2))
    is_linear = question.design is question.lagged
    if not tried or question.abstains(state):
        return state, products, None if is_linear else design_moments(here, question)
    total = Moments.empty(q)
    for recording in training_parts(here.data, question):
        moments, grams = tried_grams(question.design, complete_rows(recording), tried)
        parts = [
            part for gram in grams for part in (np.array([gram.n_removed]), upper_triangle(gram.scatter))
        ]
        products = products + np.concatenate(parts)
        total = total.merge(moments)
    if not is_linear:
        return state, products, total
    are_plain = question.row_model is None and question.nuisance == ONE_MEAN
    return (_remembered(state, question, question.design, total) if are_plain else state), products, None


def _shapes(data: SiteData) -> FloatArray:
    """The shapes of the recordings' first blocks, summed; a long file need not be read again for a hint."""
    total = np.zeros(2 * len(data.variables) + 1)
    for recording in data.recordings():
        block = next(iter(complete_rows(recording).blocks()), None)
        if block is not None:
            total = total + shape_sums(block.values, block.weights)
    return total


def _diagonal(here: Here, question: GramQuestion) -> tuple[SiteState, FloatArray]:
    state, moments = local_moments(here, question)
    d = question.d
    centre = np.zeros(moments.q) if question.origin is None else question.origin
    cross = moments.about(centre)
    lagged = np.diag(cross, k=d)[:d] if moments.q > d else np.zeros(d)
    return state, np.concatenate([[moments.n], moments.n * (moments.mean - centre), np.diag(cross), lagged])


def _pairs(here: Here, question: GramQuestion) -> tuple[SiteState, FloatArray]:
    q, tried = question.q, question.tried
    size = q * (q + 1) // 2
    total = np.zeros(2 + q * q + (1 + len(tried)) * (1 + 2 * size))
    if question.abstains(here.state):
        return here.state, total
    origin = np.zeros(q) if question.origin is None else question.origin
    log_gain = question.log_gain(here.data)
    for recording in training_parts(here.data, question):
        whole = whole_rows(question.design, recording)
        some = ~np.isnan(whole.values).all(axis=1)
        rows, times = whole.values[some] - origin, whole.times[some]
        if not len(rows):
            continue
        weights = None if whole.weights is None else whole.weights[some]
        n = total_weight(len(rows), weights)
        parts = [n * np.array([1.0, log_gain]), pair_totals(rows, weights).ravel()]
        bases = (None, *(nuisance_basis(nuisance, times) for nuisance in tried))
        total += np.concatenate([*parts, *(_pair_sums(rows, basis, weights) for basis in bases)])
    return here.state, total


def _pair_sums(rows: FloatArray, basis: FloatArray | None, weights: FloatArray | None) -> FloatArray:
    counts, products = pairwise_sums(rows, basis, weights)
    rank = 0.0 if basis is None else float(min(basis.shape[1], len(rows)))
    return np.concatenate([[rank], upper_triangle(counts), upper_triangle(products)])


# Rows in blocks of time. Lags may reach back over the beginning of a block. What is a recording's own (mean, trend, cycles)
# is taken off over the whole recording. Rows with empty cells are left out.

Piece = tuple[int, FloatArray, FloatArray | None]


def own_nuisances(
    design: Design, read: Callable[[], Iterator[Piece]], runs: tuple[tuple[int, int], ...]
) -> Iterator[Piece]:
    """Yield rows of a recording without what is its own: the one place that knows every nuisance of a design.

    `read` yields the rows, residuals of them or any other columns, as (time of the first row, rows, weights or None); `runs`
    are (time, number) of consecutive rows.
    """
    nuisance = design.nuisance
    if nuisance.scope == "all":
        yield from read()
        return
    basis = TimeBasis.over(nuisance, runs) if nuisance.has_time else None

    def columns(time: int, m: int) -> FloatArray:
        return np.zeros((m, 0)) if basis is None else basis.at(time + np.arange(m, dtype=np.float64))

    joint, d = Moments.empty(0), 0
    for time, u, weights in read():
        part = Moments.of_rows(np.concatenate([u, columns(time, len(u))], axis=1), weights)
        joint, d = (joint.merge(part), d) if joint.n else (part, u.shape[1])
    cross = joint.scatter[d:, :d]
    slopes = np.linalg.lstsq(joint.scatter[d:, d:], cross, rcond=None)[0] if len(cross) else cross
    for time, u, weights in read():
        yield time, u - joint.mean[:d] - (columns(time, len(u)) - joint.mean[d:]) @ slopes, weights


@dataclass(frozen=True)
class BlockPiece:
    """Consecutive rows of a recording: time of the first, (m, q) values off what is its own, (m,) blocks and weights."""

    time: int
    values: FloatArray
    blocks: IntArray
    weights: FloatArray | None

    def of(self, wanted: NDArray[np.bool_]) -> Iterator[Piece]:
        """Yield the runs of wanted rows, (m,), as (time of the first, values, weights)."""
        edges = np.flatnonzero(np.diff(np.concatenate([[False], wanted, [False]]).astype(np.int8)))
        for start, stop in edges.reshape(-1, 2).tolist():
            weights = None if self.weights is None else self.weights[start:stop]
            yield self.time + start, self.values[start:stop], weights

    def moments(self) -> Iterator[tuple[int, Moments]]:
        """Yield the moments of the rows in each block."""
        for b in np.unique(self.blocks).tolist():
            here = self.blocks == b
            yield b, Moments.of_rows(self.values[here], None if self.weights is None else self.weights[here])


def block_pieces(question: RowsQuestion, recording: Recording) -> Iterator[BlockPiece]:
    """Yield the complete rows of a recording in pieces of bounded size."""
    design, complete = question.design, complete_rows(recording)
    plain = replace(design, nuisance=ONE_MEAN)

    def read() -> Iterator[Piece]:
        return ((rows.time, rows.values, rows.weights) for rows in design_rows(plain, complete.blocks()))

    runs = usable_runs(complete, design.n_lags)
    if not runs:
        return
    pieces = own_nuisances(design, read, runs)
    labels = None if question.block_rows else (rows.labels for rows in design_rows(plain, complete.blocks()))
    for time, values, weights in pieces:
        blocks = question.block_of(time + np.arange(len(values)), None if labels is None else next(labels))
        yield BlockPiece(time, values, blocks, weights)


def local_block_moments(data: SiteData, question: RowsQuestion) -> list[Moments]:
    """The moments of each block of one site."""
    total = [Moments.empty(question.q)] * question.n_blocks
    for recording in training_parts(data, question):
        for piece in block_pieces(question, recording):
            for b, moments in piece.moments():
                total[b] = total[b].merge(moments)
    return total


def _blocks(here: Here, question: GramQuestion) -> tuple[SiteState, FloatArray]:
    if question.abstains(here.state):
        return here.state, np.zeros(question.n_blocks * sums_length(question.q))
    found = local_block_moments(here.data, question)
    return here.state, np.concatenate([one.to_sums(question.origin) for one in found])


# Parts of all rows.


def _parts(here: Here, question: GramQuestion) -> tuple[SiteState, FloatArray]:
    total = [Moments.empty(question.n_columns)] * question.n_parts
    if not question.abstains(here.state):
        for k, moments in _dealt_moments(here.data, question, question.n_parts):
            total[k] = total[k].merge(moments)
    return here.state, np.concatenate([one.to_sums(question.origin) for one in total])


def moments_of_parts(data: SiteData, question: RowsQuestion, n_parts: int) -> tuple[list[Moments], float]:
    """The moments of a site's lagged rows in each part, and how many complete rows one of them is worth."""
    total, row_model = [Moments.empty(question.q)] * n_parts, question.row_model
    for k, moments in _dealt_moments(data, question, n_parts):
        total[k] = total[k].merge(moments)
    n = sum(one.n for one in total)
    if row_model is None or not n:
        return total, 1.0
    return total, known_n(_pairs_known(data, question, row_model)) / n


def _dealt_moments(data: SiteData, question: RowsQuestion, n_parts: int) -> Iterator[tuple[int, Moments]]:
    """Yield the moments of the rows of recordings in each part, off what is the recordings' own."""
    row_model, site = question.row_model, question.rows_of(dealt(data, n_parts))
    if row_model is not None and not question.functions and len(row_model) == question.q + 1:
        for rows, bases in _together(question.design, site.recordings(), are_dealt=True):
            yield from expected_parts(
                rows.values, rows.labels, row_model[1:], row_model[0], bases, rows.weights
            )
        return
    for recording in site.recordings():
        for piece in block_pieces(question, recording):
            yield from piece.moments()


# Moments by unit of privacy.


def require_separate_units(question: RowsQuestion, unit: str) -> None:
    """Refuse, by what is asked and never by what is there, all that would let one unit change another's vector."""
    if unit not in ("recording", "row"):
        raise ParameterError(f"unit={unit!r} is not known; choose 'recording' or 'row'.", code="unknown-unit")
    if question.log_scales is not None or question.robust in ("site", "shocks"):
        raise ParameterError(
            "scales of a site's own: one recording would change the rows of others, and noise is fitted to one alone; use "
            "gains='none', and robust='recording' or 'none'.",
            code="own-scales",
        )
    is_mixing = {
        "row_model": question.row_model is not None,
        "abstain": question.abstain,
        # A site without rows in a block would refuse, which tells something about them.
        "fold": bool(question.fold),
    }
    if any(is_mixing.values()):
        mixing = next(name for name, is_given in is_mixing.items() if is_given)
        raise ParameterError(
            f"{mixing}: noise protects units of rows as they are; leave it out.", code=f"{mixing}-mixes"
        )
    if unit == "recording":
        return
    if question.robust != "none":
        raise ParameterError(
            "robust: what is far is told by the other rows of a recording; protect unit='recording'.",
            code="robust-mixes",
        )
    if "made_up" in question.transformations:
        raise ParameterError(
            "made_up: which cells were made up is told by the rows around them; protect unit='recording'.",
            code="made-up-mixes",
        )
    if question.nuisance.scope != "all":
        raise ParameterError(
            "center='recording' mixes the rows of a recording; protect unit='recording'.", code="center-mixes"
        )


def _units(here: Here, question: GramQuestion, unit: str) -> Iterator[FloatArray]:
    question.require_variables(here.data)
    require_separate_units(question, unit)
    if question.form != "rows":
        raise ParameterError(
            f"task {question.name!r}: noise is fitted to one matrix of products of rows as they are."
        )
    if question.is_trying:
        raise ParameterError(
            f"try_degrees={question.try_degrees}: noise is fitted to one matrix of products, not more."
        )
    if question.known:
        raise ParameterError("known=True: noise is fitted to moments alone, not to what rows are worth.")
    if question.shape:
        raise ParameterError("shape=True: the shape of the data has no bound to which noise could be fitted.")
    for recording in question.treated(here.data).recordings():
        # Nothing is drawn here: that one recording's cells are drawn would change those of the next.
        rows_of = complete_rows(recording)
        if unit == "row":
            for rows in design_rows(question.design, rows_of.blocks()):
                yield from (Moments.of_rows(row[None]).to_sums(question.origin) for row in rows.values)
        else:
            yield recording_gram(question.design, rows_of).moments.to_sums(question.origin)


_FORMS = {"diagonal": _diagonal, "pairs": _pairs, "blocks": _blocks, "parts": _parts}
answers(GramQuestion, _units, lambda question: sums_length(question.n_columns))(_answer)


def parts_plan(columns: int, n_parts: int = N_PARTS) -> Plan:
    """What `parts_program` asks about rows of so many columns."""
    return (Planned("gram.parts", n_parts * sums_length(columns)),)


def parts_program(question: GramQuestion, n_parts: int = N_PARTS) -> ServerProgram[PartMoments]:
    """Ask a question about all rows of each of their parts."""
    asked = replace(question, n_parts=n_parts)
    answer, q = (yield Task(asked)), asked.n_columns
    sums = answer.value.reshape(n_parts, sums_length(q))
    found = (Moments.from_sums(one, q, asked.origin) for one in sums)
    # With noise in it a part may have fewer rows than none.
    return PartMoments.of(tuple(as_of_rows(one) if one.n > 0 else Moments.empty(q) for one in found))
