"""One sum about residuals of a network: do they remember, does their variance change, have they heavy tails?

    checks      sums of products and squares of standardised residuals and of their predecessors, by thirds of the recordings,
                and of the logarithms of their variances
    functions   the same of a network with curves
    blocks      the same of a network that changes from one segment of time to the next
    shapes      sums of nonlinear functions of residuals

The network is one that the question carries, or the site's own, which stays at the site: residuals are then standardised
by the site itself, so the sum tells neither weights nor the sizes of any site's noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray, IntArray, by_row, rows_in_cache, total_weight
from feddbn.core.constraints import EdgeConstraints, topological_order
from feddbn.core.designs.design import (
    ONE_MEAN,
    Design,
    are_public_units,
    design_rows,
    public_blocks,
    public_units,
)
from feddbn.core.designs.gram import OwnLevel
from feddbn.core.designs.recordings import Recording, stretches, usable_runs
from feddbn.core.orders.hidden import HiddenDoubts, doubtful_edges, may_be_looked_for, noises_differ
from feddbn.core.orders.learn import refit
from feddbn.core.orders.nongaussian import N_FEATURES, node_residuals, residual_features
from feddbn.core.orders.parents import Criterion
from feddbn.core.orders.search import evident_support
from feddbn.core.statistics.diagnostics import outputs_of
from feddbn.core.statistics.moments import Moments, dependences, safe_roots
from feddbn.core.statistics.residual_checks import (
    LEVEL,
    CurvatureSums,
    ResidualChecks,
    ResidualSums,
    changing_weights,
    check_residuals,
    curvature_p,
    echo_weights,
    residual_sums,
    row_places,
    sums_length,
    violations,
)
from feddbn.errors import ParameterError
from feddbn.federation.programs.pfdbnl.site import personal_arrays
from feddbn.federation.protocol.rows import RowsQuestion, Treatment, treated
from feddbn.federation.protocol.site import Here, SiteState, answers
from feddbn.federation.protocol.task import Constant, Plan, Planned, ServerProgram, Task, array, flag, wholes
from feddbn.federation.sums.gram import Piece, block_pieces, local_moments, own_nuisances
from feddbn.federation.sums.treatment import AskedMoments, moments_program

MOST_QUESTIONS = 16
"""Questions about shapes: a run asks up to eight times, and again if it tries one lag more."""
SHAPES_ASKED = "residuals whose shape is asked for"
MOST_NETWORKS = 12
"""Networks of one run whose residuals are looked at, on the same rows: three a fit, and up to four methods are compared."""
ROWS_A_COLUMN = 10
"""A site with fewer rows than this for each of their columns cannot tell its own residuals from what it fitted."""

_Residuals = tuple[FloatArray, FloatArray]
_Watch = Callable[[FloatArray, FloatArray, FloatArray | None, FloatArray | None], None]


@dataclass(frozen=True, kw_only=True)
class ResidualsQuestion(RowsQuestion):
    """Sums over ``z @ coefficients - offset``, z a row of the design: one residual per variable.

    Attributes
    ----------
    coefficients, offset
        A network, or those of all segments, one below the other. None: each site takes the network near its personal one
        that its own moments prefer (`core.orders.search`), among the edges that are `allowed`, and standardises by itself.
    silent
        Variables that then have no residuals.
    units
        (2, d), origin and scale: also products of the residuals with squares and cubes of the standardised variables; and,
        without blocks, with these variables times the place of the row in its recording.
    cuts
        First blocks of the second, third, ... segment: every row has the residuals of its own segment's network.
    shapes
        Sums of nonlinear functions of any number of residuals instead.
    """

    name = "residuals"
    purpose = "products of standardised residuals of a network"
    forms = MappingProxyType(
        {
            "checks": "products and fourth-order products of standardised residuals and of their predecessors, their "
            "variances by thirds of the recordings, the logarithms of these variances, and if asked products with squares "
            "and cubes of the variables, and with the variables times the place in the recording",
            "functions": "products and fourth-order products of standardised residuals of a network with curves, and of "
            "their predecessors",
            "blocks": "products and fourth-order products of standardised residuals, and of their predecessors, of a network "
            "that changes from one of a few blocks of rows to another, and products with squares and cubes of the variables",
            "shapes": "sums of nonlinear functions of standardised residuals",
        }
    )
    takes = ("functions", "blocks")

    coefficients: FloatArray | None = array("coefficients", "residuals", default=None)
    offset: FloatArray | None = array("offsets", default=None)
    allowed: FloatArray | None = array("q", "d", default=None)
    silent: tuple[int, ...] = wholes(0, 1_000_000, default=())
    units: FloatArray | None = array("origin and scale", "d", default=None)
    cuts: tuple[int, ...] = wholes(1, 1_000_000, default=())
    shapes: bool = flag(default=False)

    @property
    def form(self) -> str:
        """What is answered, and about which rows."""
        if self.shapes:
            return "shapes"
        return "blocks" if self.n_blocks else "functions" if self.functions else "checks"

    @property
    def n_segments(self) -> int:
        """Of how many networks residuals are."""
        return len(self.cuts) + 1

    @property
    def n_residuals(self) -> int:
        """How many residuals a row has."""
        return self.d if self.coefficients is None else self.coefficients.shape[1]

    def sizes(self) -> Mapping[str, int]:
        """Also the columns of all segments' networks; of checks a row has d residuals."""
        n, m = self.n_segments, self.n_residuals if self.shapes else self.d
        own = {"coefficients": n * self.n_columns, "residuals": m, "offsets": n * m, "origin and scale": 2}
        return {**super().sizes(), **own}

    def check(self) -> None:
        """A lag of at least 1 keeps segments apart in time."""
        super().check()
        if self.n_lags < 1 and not self.shapes:
            raise self.wrong(f"'n_lags' is {self.n_lags}, but it must be at least 1")
        if (self.coefficients is None) != (self.offset is None):
            raise self.wrong("'coefficients' and 'offset' go together")
        if (self.coefficients is None) == (self.allowed is None):
            raise self.wrong(
                "it needs 'coefficients', or for networks of sites' own what is 'allowed', and not both"
            )
        if self.units is not None and (self.coefficients is None or not are_public_units(*self.units)):
            raise self.wrong("'units' need 'coefficients', and must be on the public grid")
        if max(self.silent, default=0) >= self.d:
            raise self.wrong(f"'silent' is {self.silent}, but there are {self.d} variables")
        if self.allowed is not None and self.form != "checks":
            raise self.wrong("networks of sites' own are those of lagged values")
        if self.units is not None and self.form not in ("checks", "blocks"):
            raise self.wrong("'units' are for residuals of lagged values")
        if self.shapes and (self.functions or self.n_blocks):
            raise self.wrong("'shapes' are those of residuals of lagged values")
        if self.cuts and any(a >= b for a, b in pairwise((*self.cuts, self.n_blocks))):
            raise self.wrong(f"'cuts' is {self.cuts}, but they must grow and be fewer than {self.n_blocks}")

    @property
    def function_units(self) -> tuple[FloatArray, FloatArray] | None:
        """Those of squares and cubes, or of the functions of its design."""
        return super().function_units if self.units is None else (self.units[0], self.units[1])

    @property
    def constants(self) -> tuple[Constant, ...]:
        """A fit looks at its network, and where residuals remember at two others; a network that changes is one."""
        given = (self.coefficients, self.offset, self.allowed, self.units, self.cuts)
        if self.shapes:
            # A steep projection has single rows in view, and many of them read the rows one by one.
            asked = Constant(SHAPES_ASKED, given, MOST_QUESTIONS, self.n_residuals)
        else:
            most = 1 if self.n_blocks else MOST_NETWORKS
            asked = Constant(f"{self.name} (fold = {self.fold})", given, most)
        return *super().constants, asked

    @property
    def n_back(self) -> int:
        """How many rows back residuals are compared: one more than a row reaches."""
        return self.n_lags + 1

    def segment_of(self, blocks: IntArray) -> IntArray:
        """In which segment blocks are."""
        return np.searchsorted(np.array(self.cuts, dtype=np.int64), blocks, side="right")

    @property
    def networks(self) -> list[tuple[FloatArray, FloatArray]]:
        """Coefficients and offset of each segment; none where networks are sites' own."""
        if self.coefficients is None or self.offset is None:
            return []
        n = self.n_segments
        return list(zip(np.split(self.coefficients, n), np.split(self.offset, n), strict=True))


def residual_checks_program(
    variables: tuple[str, ...],
    n_lags: int,
    coefficients: FloatArray,
    offset: FloatArray,
    center: str = "none",
    units: FloatArray | None = None,
) -> ServerProgram[tuple[ResidualSums, bool, CurvatureSums | None]]:
    """Ask for the sums; return them, whether every site has rows enough for a lag more, and sums about curvature.

    Parameters
    ----------
    coefficients, offset
        ((p+1) d, d) and (d,): residuals are ``z @ coefficients - offset`` with mean square 1.
    center
        "recording": residuals of a recording are centred on their own mean, and the offset is not used.
    units
        (2, d) origin and scale of the variables, to ask about curvature, too.
    """
    d = len(variables)
    if n_lags == 0:
        n_lags, coefficients = 1, np.concatenate([coefficients, np.zeros((d, d))])
    question = ResidualsQuestion(
        n_lags=n_lags,
        variables=variables,
        center=center,
        coefficients=coefficients,
        offset=offset,
        units=units,
    )
    answer = yield Task(question)
    stop = 1 + sums_length(d, question.n_back)
    curvature = None if units is None else CurvatureSums.from_vector(answer.value[stop:], question.q, d)
    sums = ResidualSums.from_vector(answer.value[1:stop], d, question.n_back)
    return sums, float(answer.value[0]) == 0.0, curvature


def recording_residuals(
    design: Design,
    recording: Recording,
    of: _Residuals,
    n_back: int,
    watch: _Watch | None = None,
) -> FloatArray:
    """The sums of one recording's residuals ``z @ of[0] - of[1]`` off what is its own.

    `watch` sees values (p + m, d), their m residuals, and the places and weights of these rows pass by, values and residuals
    off what is the recording's own; the design is linear then.
    """
    runs = usable_runs(recording, design.n_lags)
    if not runs:
        return np.zeros(sums_length(design.d, n_back))
    span = (runs[0][0], runs[-1][0] + runs[-1][1] - 1)
    seen: list[FloatArray] = [np.empty((0, 0))]
    pieces = own_nuisances(design, partial(_read, design, recording, of, seen), runs)
    if watch is not None:
        own = None
        if design.nuisance.scope == "recording":
            own = OwnLevel.of(design.nuisance, recording, design.variables)
        pieces = _watched(pieces, seen, own, watch, sum(m for _, m in runs))
    return residual_sums(pieces, span, design.d, n_back).to_vector()


def _read(design: Design, recording: Recording, of: _Residuals, seen: list[FloatArray]) -> Iterator[Piece]:
    """Yield the residuals of a recording; if the design is linear, `seen` has the (p + m, d) values they are of."""
    if not design.is_linear:
        for rows in design_rows(replace(design, nuisance=ONE_MEAN), recording.blocks()):
            yield rows.time, rows.values @ of[0] - of[1], rows.weights
        return
    p, at_once = design.n_lags, rows_in_cache(sum(design.widths))
    weights = of[0].reshape(p + 1, -1, of[0].shape[1])
    for stretch in stretches(public_blocks(design, recording.blocks()), p, at_once):
        x, n = stretch.values, len(stretch.values)
        u = x[p:] @ weights[0]
        for lag in range(1, p + 1):
            u += x[p - lag : n - lag] @ weights[lag]
        u -= of[1]
        seen[0] = x
        yield stretch.time, u, stretch.weights


def _watched(
    pieces: Iterator[Piece], seen: list[FloatArray], own: OwnLevel | None, watch: _Watch, n: int
) -> Iterator[Piece]:
    """Yield the n residuals; `watch` sees them and the values they are of, without what is the recording's own."""
    done = 0
    for time, u, weights in pieces:
        x, m = seen[0], len(u)
        first = time - (len(x) - m)
        watch(x if own is None else own.off(first, x), u, row_places(done, m, n), weights)
        done += m
        yield time, u, weights


def _curvature(question: ResidualsQuestion, total: FloatArray) -> _Watch | None:
    """Adds what residuals say about curvature and change to `total`, if that is asked for.

    Curves bend about a recording's own level, where it has one. Of blocks whole rows pass by, else values.
    """
    if question.units is None:
        return None
    origin, scale = question.units
    origin = np.zeros(question.d) if question.center == "recording" else origin

    def watch(x: FloatArray, u: FloatArray, places: FloatArray | None, weights: FloatArray | None) -> None:
        z = by_row(np.subtract, np.ascontiguousarray(x).reshape(-1, question.d), origin)
        by_row(np.divide, z, scale, z)
        seen = z.reshape(x.shape)
        if question.n_blocks:
            total[:] += CurvatureSums.of_rows(seen, u, None, weights).to_vector()
        else:
            total[:] += CurvatureSums.of_lagged(seen, u, question.n_lags, places, weights).to_vector()

    return watch


def _own_residuals(here: Here, question: ResidualsQuestion) -> tuple[SiteState, _Residuals | None]:
    """Coefficients and offset of the site's own network; None if it has none, or too few rows to judge it."""
    own = personal_arrays(here.state).get("C")
    if own is None:
        return here.state, None
    if own.shape[1] != question.d or len(own) > question.q:
        raise question.wrong("this site's own network has other variables or lags", code="other-variables")
    q, d = own.shape
    state, moments = local_moments(here, question, question.design_of(q // d - 1))
    if moments.n < ROWS_A_COLUMN * q:
        return state, None
    assert question.allowed is not None
    allowed = question.allowed[:q] != 0
    limits = EdgeConstraints(allowed, np.zeros_like(allowed))
    support = evident_support(moments, (own != 0) & allowed, limits)
    jobs = [(j, tuple(np.flatnonzero(support[:, j]).tolist())) for j in range(d)]
    found = node_residuals(moments, jobs)
    coefficients, offset = np.zeros((question.q, d)), found.offset
    coefficients[:q] = found.coefficients
    coefficients[:, list(question.silent)], offset[list(question.silent)] = 0.0, 0.0
    return state, (coefficients, offset)


def residuals_length(question: ResidualsQuestion) -> int:
    """How many numbers an answer has."""
    d = question.d
    if question.shapes:
        return 1 + N_FEATURES * question.n_residuals
    is_whole = not question.n_blocks
    n_more = 0 if question.units is None else CurvatureSums.length(question.q, d, changes=is_whole)
    return 1 + sums_length(d, question.n_back) + n_more


def _answer(here: Here, question: ResidualsQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    state, total = here.state, np.zeros(residuals_length(question))
    if question.abstains(state):
        total[0] = float(question.coefficients is None)
        return state, total
    if question.shapes:
        return state, sum(_shape_units(here, question, "recording"), total)
    stop = 1 + sums_length(question.d, question.n_back)
    watch = _curvature(question, total[stop:])
    networks = question.networks
    if not networks:
        state, own = _own_residuals(here, question)
        networks = [] if own is None else [own]
    if not networks:
        # Zeros, and a one that says so.
        total[0] = 1.0
        return state, total
    for recording in question.complete_rows(here.data):
        if question.n_blocks:
            total[1:stop] += _segment_residuals(question, recording, watch)
        else:
            total[1:stop] += recording_residuals(
                question.design, recording, networks[0], question.n_back, watch
            )
    sums = ResidualSums.from_vector(total[1:stop], question.d, question.n_back)
    # A site whose rows do not reach one lag further back says so by a one.
    total[0] = sums.counts[1] == 0
    return state, total


# A network that changes. No product reaches from one segment into the next: by networks that are zero in one of two segments,
# such a product would be that of the one row at their border.


def _segment_residuals(question: ResidualsQuestion, recording: Recording, watch: _Watch | None) -> FloatArray:
    """The sums of one recording's residuals, added up over segments."""
    total = np.zeros(sums_length(question.d, question.n_back))
    for s, span in _spans(question, recording).items():
        pieces = _residuals_of_segment(question, recording, s, watch)
        total += residual_sums(pieces, span, question.d, question.n_back).to_vector()
    return total


def _residuals_of_segment(
    question: ResidualsQuestion, recording: Recording, s: int, watch: _Watch | None
) -> Iterator[Piece]:
    """Yield (time of the first row, residuals) of a segment, run by run."""
    coefficients, offset = question.networks[s]
    for piece in block_pieces(question, recording):
        for time, rows, weights in piece.of(question.segment_of(piece.blocks) == s):
            u = rows @ coefficients - offset
            if watch is not None:
                watch(rows, u, None, weights)
            yield time, u, weights


def _spans(question: ResidualsQuestion, recording: Recording) -> dict[int, tuple[int, int]]:
    """First and last time of each segment of which a recording has rows."""
    spans: dict[int, tuple[int, int]] = {}
    for piece in block_pieces(question, recording):
        segments = question.segment_of(piece.blocks)
        for s in np.unique(segments).tolist():
            here = piece.time + np.flatnonzero(segments == s)
            spans[s] = (spans.get(s, (int(here[0]), 0))[0], int(here[-1]))
    return spans


# Sums of nonlinear functions of residuals (`core.orders.nongaussian`): a nonlinear map of rows, which owners allow by name.
#
# A steep projection has single rows in view, and many of them read the rows one by one. So a run asks a few times, of
# residuals that are about as large as those of a network, and of no more than the site's rows stand for.


def _shape_units(here: Here, question: ResidualsQuestion, unit: str) -> Iterator[FloatArray]:
    if unit != "recording" or not question.shapes:
        raise ParameterError(f"unit={unit!r}: this statistic can be split by recording only.")
    plain = replace(question.design, nuisance=ONE_MEAN)
    for recording in question.complete_rows(here.data):
        total, n = np.zeros((N_FEATURES, question.n_residuals)), 0.0
        runs = usable_runs(recording, plain.n_lags)
        read = partial(_read, plain, recording, question.networks[0], [np.empty((0, 0))])
        for _, residuals, weights in own_nuisances(question.design, read, runs) if runs else ():
            total += residual_features(residuals, weights)
            n += total_weight(len(residuals), weights)
        yield np.concatenate([[n], total.ravel()])


answers(ResidualsQuestion, _shape_units)(_answer)


# After a fit: what sites say about the residuals of a network.
#
# checks_program          of the network that a sum of moments was explained by
# network_checks_program  of the network nearest to a penalised one that these moments prefer (`core.orders.search`)
# own_checks_program      of every site's own network, in one sum
#
# A method that only looks changes nothing: its report says what was found.

FEWEST_COMPLETE = 200
"""Where cells are empty residuals are those of complete rows; of fewer, they tell too little."""


@dataclass(frozen=True)
class ResidualReport:
    """What residuals said and what followed from it.

    Attributes
    ----------
    checks
        The numbers, of the network that is reported; None if too few rows are complete, so that nobody knows.
    found, left
        Violations of the first network, and those of the network that is reported.
    noise_memory
        The memory of the noise that was taken off, None if none was.
    n_lags_added
        Lags added because residuals remembered.
    lag_gain
        By how much the score falls with one lag more; None if that was not looked at.
    n_effective
        Number of rows that the evidence is worth.
    looked_only
        Whether the network stays as it is, whatever was found.
    hidden, hidden_gain
        For each hidden cause that explains more than edges the names of its effects, and by how much the score is better.
    doubts
        The edges that hidden causes could stand for; None if that was not looked at.
    n_complete
        Without checks: how many rows are complete.
    """

    checks: ResidualChecks | None
    found: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    noise_memory: float | None = None
    n_lags_added: int = 0
    lag_gain: float | None = None
    n_effective: float = 0.0
    looked_only: bool = False
    hidden: tuple[tuple[str, ...], ...] = ()
    hidden_gain: float = 0.0
    doubts: HiddenDoubts | None = None
    n_complete: int = 0


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """A network as a method reports it, and how the rows it was learned from were treated.

    Attributes
    ----------
    variables, weights, variances
        Names, the stack ``[W; A_1; ...]``, ((p+1) d, d), and noise variances (d,), in the units of the data.
    constraints
        Edges that may, and must, be there.
    inputs
        Positions of variables that only act on others.
    center, treatment
        What sites do to their rows.
    asked
        The sum that decided about that, if there was one.
    """

    variables: tuple[str, ...]
    weights: FloatArray
    variances: FloatArray
    constraints: EdgeConstraints
    inputs: tuple[int, ...]
    center: str
    treatment: Treatment
    asked: AskedMoments | None = None

    @property
    def n_lags(self) -> int:
        """Number of lags."""
        return len(self.weights) // len(self.variables) - 1

    @property
    def own_share(self) -> float | None:
        """Number of nuisance parameters of recordings per row; None if only their means can have been taken off."""
        known = self.asked
        return known.rank / known.n_rows if known is not None and known.rank and known.n_rows else None

    @property
    def support(self) -> BoolArray:
        """Where there is an edge."""
        return np.asarray(self.weights != 0)


def checks_plan(d: int, n_lags: int, times: int = 1, *, is_own: bool = False, adds_lag: bool = False) -> Plan:
    """One question about residuals; where they remember, about those of two other networks, too.

    Networks without lags are looked at with one. Of networks of sites' own, and of noise with a memory, curvature is not
    asked about.
    """
    p = max(n_lags, 1)
    numbers = (
        1 + sums_length(d, p + 1) + (0 if is_own else CurvatureSums.length((p + 1) * d, d, changes=True))
    )
    first = Planned("residuals.checks", numbers)
    if times == 1:
        return (first,)
    longer = (
        1 + sums_length(d, p + 2) + (CurvatureSums.length((p + 2) * d, d, changes=True) if adds_lag else 0)
    )
    return first, Planned("residuals.checks", max(longer, numbers), times - 1, usual=0)


def checks_program(
    moments: Moments,
    support: BoolArray,
    variables: tuple[str, ...],
    center: str,
    inputs: Sequence[int] = (),
    own_share: float | None = None,
    to_moments: FloatArray | None = None,
    order: Sequence[int] = (),
) -> ServerProgram[tuple[ResidualChecks, bool]]:
    """Ask about the residuals of a network; also whether every site has rows enough for a lag more.

    Parameters
    ----------
    order
        The variables, causes first; curvature is looked for in what comes before. Empty: none is looked for.
    own_share
        Number of nuisance parameters of recordings per row; None: that of their means, if these were taken off.
    to_moments
        How the columns of `moments` come from those of lagged rows, if they are not the same.
    """
    q, d = support.shape
    p = q // d - 1
    jobs = [(j, tuple(np.flatnonzero(support[:, j]).tolist())) for j in range(d)]
    residuals = node_residuals(moments, jobs)
    coefficients, offset, n_lags = residuals.coefficients, residuals.offset, p
    if to_moments is not None:
        coefficients, n_lags = to_moments @ coefficients, p + 1
    # Of inputs there are no residuals.
    outputs, known = outputs_of(d, inputs), list(inputs)
    coefficients[:, known], offset[known] = 0.0, 0.0
    units = None
    if len(order) and to_moments is None:
        sd = safe_roots(np.diag(moments.scatter)[:d] / moments.n)
        units = np.stack(public_units(moments.mean[:d], sd))
    sums, may_add, curvature = yield from residual_checks_program(
        variables, n_lags, coefficients, offset, center, units
    )
    C, _, variances = refit(moments, support)
    weights = echo_weights(C[:d], C[d:].reshape(p, d, d), variances, p + 1)[:, outputs][:, :, outputs]
    share = share_of_means(sums, center) if own_share is None else own_share
    checks = check_residuals(sums.of(outputs), weights, share)
    if curvature is not None and units is not None:
        changes = changing_weights(
            curvature,
            float(sums.counts[0]),
            moments.scatter / moments.n,
            np.tile(units[1], p + 1),
            support,
            may_act(support, order, outputs),
        )
        checks = replace(
            checks, curvature_p=curvature_of(curvature, support, order, outputs), changes=changes
        )
    return checks, may_add


def may_act(support: BoolArray, order: Sequence[int], outputs: Sequence[int]) -> BoolArray:
    """(q, d) which columns come before which output, given the variables in order, causes first."""
    d = support.shape[1]
    rank = np.empty(d, dtype=int)
    rank[list(order)] = np.arange(d)
    before = np.ones_like(support)
    before[:d] = rank[:, None] < rank[None, :]
    before[:, [j for j in range(d) if j not in set(outputs)]] = False
    return before


def curvature_of(
    sums: CurvatureSums, support: BoolArray, order: Sequence[int], outputs: Sequence[int]
) -> float:
    """P-value that no effect on the outputs is curved, given the variables in order, causes first."""
    # A network without lags is looked at with one.
    edges = np.zeros(sums.products.shape[1:], dtype=bool)
    edges[: len(support)] = support
    return curvature_p(sums, edges, may_act(edges, order, outputs))


def share_of_means(sums: ResidualSums, center: str) -> float:
    """Number of recordings' own means per row."""
    return float(sums.recordings[0] / max(sums.counts[0], 1.0)) if center == "recording" else 0.0


def network_checks_program(network: FittedNetwork) -> ServerProgram[ResidualReport]:
    """Look at the residuals near a fitted network; without checks if too few rows are complete.

    The moments of its rows are those that were asked for before, or are asked for now.
    """
    return (yield from treated(_looked_at(network), network.treatment))


def _looked_at(network: FittedNetwork) -> ServerProgram[ResidualReport]:
    if network.asked is not None:
        moments = network.asked.moments
    else:
        moments = yield from moments_program(network.variables, network.n_lags)
    support = evident_support(moments, network.support, network.constraints)
    checks, _ = yield from checks_program(
        moments,
        support,
        network.variables,
        network.center,
        network.inputs,
        network.own_share,
        order=topological_order(support[: len(network.variables)]),
    )
    return replace(_report(checks, network), doubts=_doubts(moments, support, network))


def _doubts(moments: Moments, evident: BoolArray, network: FittedNetwork) -> HiddenDoubts | None:
    """The edges of a network that hidden causes could stand for; None if that cannot be told."""
    d = len(network.variables)
    if network.inputs or not may_be_looked_for(d) or dependences(moments.scatter, moments.n, d):
        return None
    if not noises_differ(moments, evident):
        return HiddenDoubts(np.zeros_like(network.support))
    return doubtful_edges(
        moments, network.support, network.constraints, Criterion(), np.random.default_rng(0)
    )


def own_checks_program(network: FittedNetwork) -> ServerProgram[ResidualReport | None]:
    """Look at the residuals near every site's own network; `network` is the one they share.

    Sites with too few rows stay out; None if none is left.
    """
    return (yield from treated(_looked_at_own(network), network.treatment))


def _looked_at_own(network: FittedNetwork) -> ServerProgram[ResidualReport | None]:
    d, p = len(network.variables), network.n_lags
    allowed = network.constraints.allowed.astype(np.float64)
    question = ResidualsQuestion(
        # Without lags a row has one before it all the same, and nothing of it is allowed.
        n_lags=max(p, 1),
        variables=network.variables,
        center=network.center,
        allowed=allowed if p else np.concatenate([allowed, np.zeros((d, d))]),
        silent=network.inputs,
    )
    answer = yield Task(question)
    n_sites = len(answer.contributors) - round(float(answer.value[0]))
    sums = ResidualSums.from_vector(answer.value[1:], d, question.n_back)
    n = float(sums.counts[0])
    if n == 0:
        return None
    outputs = outputs_of(d, network.inputs)
    W, A = network.weights[:d], network.weights[d:].reshape(p, d, d)
    weights = echo_weights(W, A, network.variances, p + 1)[:, outputs][:, :, outputs]
    # Every site takes off a mean of its own at least.
    own_share = max(network.own_share or share_of_means(sums, network.center), n_sites / n)
    return _report(check_residuals(sums.of(outputs), weights, own_share), network, is_own=True)


def _report(checks: ResidualChecks, network: FittedNetwork, *, is_own: bool = False) -> ResidualReport:
    if network.treatment.row_model is not None and checks.n < FEWEST_COMPLETE:
        return ResidualReport(None, looked_only=True, n_complete=round(checks.n))
    found = violations(checks)
    if is_own:
        # Effects that no site can tell by itself add up over sites. They look like dependence, and a little like memory.
        is_memory = checks.memory_p < LEVEL
        found = tuple(name for name in found if name != "dependence" and (name != "memory" or is_memory))
    return only_looked_at(checks, found)


def only_looked_at(checks: ResidualChecks, found: tuple[str, ...] | None = None) -> ResidualReport:
    """What the residuals of a network say that stays as it is, whatever they say."""
    found = violations(checks) if found is None else found
    factor = checks.inflation if "volatility" in found else 1.0
    return ResidualReport(checks, found, found, n_effective=checks.n / factor, looked_only=True)
