"""A network of variables of any kind, as a short program of sums.

    counts of levels   if a variable has more than two levels: which of them are too rare to stand alone
    gram of kinds      the structure, by Gaussian scores of the columns that stand for values
    newton             4 to 6 times: every variable given its causes, by maximum likelihood

Rows with empty cells are left out, and values are used as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import starmap

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.designs.design import RECORDING_MEANS, Design, design_rows
from feddbn.core.designs.gram import restored
from feddbn.core.designs.recordings import SiteData
from feddbn.core.glm import (
    Climb,
    ModelSums,
    NodeEstimate,
    NodeModel,
    RowTerms,
    column_units,
    family_of,
    in_code_units,
    least_squares,
    model_rows,
    slopes_of,
    starting_theta,
)
from feddbn.core.kinds import Coding, Kind, coding_of, merged_kind, merged_levels
from feddbn.core.orders.groups import Groups
from feddbn.core.orders.learn import (
    MOST_OPEN_OF_A_NODE,
    Learned,
    OrderLearner,
    Review,
    Reviewed,
    agreed,
    with_shapes,
)
from feddbn.core.orders.parents import Criterion
from feddbn.core.statistics.diagnostics import evidence_for_nuisances
from feddbn.core.statistics.moments import Moments, sums_length, symmetric
from feddbn.core.statistics.parts import UNKNOWN_DISPERSION
from feddbn.errors import DataError
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Here, SiteState, answers
from feddbn.federation.protocol.task import (
    Constant,
    Plan,
    Planned,
    ServerProgram,
    Task,
    array,
    counted,
    texts,
    wholes,
)
from feddbn.federation.sums.gram import GramQuestion
from feddbn.federation.sums.in_view import LEVEL_ROWS, MOST_LEVEL_COUNTS, CountsQuestion

_STILL = 1e-10
"""Share of a column's variance within recordings below which it is constant there."""


@dataclass(frozen=True)
class LevelCounts:
    """What a sum of counts told: for each variable its (rounded) counts, and how levels count from now on."""

    counts: tuple[tuple[float, ...], ...]
    codings: tuple[Coding, ...]


@dataclass(frozen=True)
class MixedMoments:
    """What a sum over coded rows told.

    Attributes
    ----------
    design
        Which columns there are.
    moments
        Of all rows.
    own
        (q, q) products about the means of recordings.
    n_recordings
        How many recordings have rows.
    """

    design: Design
    moments: Moments
    own: FloatArray
    n_recordings: float

    @property
    def evidence(self) -> float:
        """For levels of recordings' own (`core.statistics.diagnostics`)."""
        n_now = sum(self.design.widths)
        n, scatter, whole = self.moments.n, self.moments.scatter, self.within
        kept = np.tile(np.diag(self.own)[:n_now] > _STILL * np.diag(scatter)[:n_now], self.design.n_lags + 1)
        index = np.flatnonzero(kept & (np.diag(scatter) > 0))
        part = np.ix_(index, index)
        m = int((index < n_now).sum())
        known = whole.scatter[part] * n / whole.n
        ranks = self.n_recordings, m, 1.0
        return evidence_for_nuisances(scatter[part], self.own[part], n, *ranks, known) if m else 0.0

    @property
    def within(self) -> Moments:
        """The moments within recordings, of as many rows as are left without their means; what is constant there is 0.

        What the means took along of the series is put back (`core.designs.gram.restored`).
        """
        n = self.moments.n
        still = np.diag(self.own) <= _STILL * np.diag(self.moments.scatter)
        scatter = self.own.copy()
        scatter[still] = 0.0
        scatter[:, still] = 0.0
        n_left, length = n - self.n_recordings + 1, n / max(self.n_recordings, 1.0)
        whole = restored(scatter / n, sum(self.design.widths), RECORDING_MEANS, length)
        return Moments(n_left, self.moments.mean, n_left * whole)


def level_counts_program(
    variables: tuple[str, ...],
    n_lags: int,
    kinds: tuple[Kind, ...],
    fewest: int = LEVEL_ROWS,
    *,
    is_hidden: bool = False,
) -> ServerProgram[LevelCounts]:
    """Ask how frequent levels are, unless no variable has more than two, and put rare ones together.

    Where sites have to be hidden (`is_hidden`), also those that some site has in few rows, until there are none.
    """
    codings = tuple(map(coding_of, kinds))
    if all(kind.n_levels <= 2 for kind in kinds):
        return LevelCounts(((),) * len(kinds), codings)
    counts: tuple[tuple[float, ...], ...] = ()
    for _ in range(MOST_LEVEL_COUNTS):
        texts_ = tuple(coding.text for coding in codings)
        question = CountsQuestion(
            n_lags=n_lags, variables=variables, kinds=texts_, least=fewest, tells_few=is_hidden
        )
        total = (yield Task(question)).value
        sizes = [len(coding.groups) for coding in codings]
        own = np.split(total[: sum(sizes)], np.cumsum(sizes)[:-1])
        if not is_hidden:
            merged = [merged_levels(kind, one.tolist(), fewest) for kind, one in zip(kinds, own, strict=True)]
            return LevelCounts(tuple(tuple(one.tolist()) for one in own), tuple(merged))
        few = np.split(total[sum(sizes) :], np.cumsum(sizes)[:-1])
        # What a merged level has is told at its own place; the declared levels in it share it.
        shared = [
            np.where(f[list(c.groups)] > 0.5, 0.0, n[list(c.groups)]) if c.groups else n
            for n, f, c in zip(own, few, codings, strict=True)
        ]
        counts = counts or tuple(tuple(one.tolist()) for one in own)
        before, codings = (
            codings,
            tuple(
                _coarser(kind, coding, one.tolist(), fewest)
                for kind, coding, one in zip(kinds, codings, shared, strict=True)
            ),
        )
        if codings == before:
            return LevelCounts(counts, codings)
    raise DataError(
        "some site has rows of a level that are too few to be told, however levels are put together; declare fewer levels.",
        code="rare-levels",
    )


def _coarser(kind: Kind, coding: Coding, counts: list[float], fewest: int) -> Coding:
    """The coding with rare groups of levels put together with others; `counts` are of the groups of declared levels."""
    groups = coding.groups
    if not groups or all(n >= fewest for n in counts):
        return coding
    merged = Kind(kind.name, tuple(map(str, range(len(set(groups))))))
    of_group = [counts[groups.index(k)] for k in range(len(set(groups)))]
    found = merged_levels(merged, of_group, fewest)
    return Coding(coding.name, tuple(found.groups[k] for k in groups))


def mixed_moments_program(
    variables: tuple[str, ...], n_lags: int, codings: tuple[Coding, ...]
) -> ServerProgram[MixedMoments]:
    """Ask for the moments of coded rows."""
    kinds = tuple(coding.text for coding in codings)
    question = _coded_gram(variables, n_lags, kinds)
    value, q = (yield Task(question)).value, question.design.q
    first = sums_length(q)
    own = symmetric(value[first + 1 : -1], q)
    return MixedMoments(question.design, Moments.from_sums(value[:first], q), own, float(value[first]))


def _coded_gram(variables: tuple[str, ...], n_lags: int, kinds: tuple[str, ...]) -> GramQuestion:
    """The question about coded rows, which are also taken off the means of their recordings."""
    return GramQuestion(n_lags=n_lags, variables=variables, kinds=kinds, try_degrees=(0,), try_cycles=(0,))


# One sum for generalised linear models of nodes: gradient, information and likelihood at given coefficients.
#
# ``newton``   of each of a list of models: log likelihood, gradient and information at theta
#
# Columns of parents are standardised by public numbers, so that coefficients have a natural size. A server climbs by Newton's
# steps (`core.glm`), 4 to 6 sums of all models together.

MOST_STEPS = 16
"""How many different coefficients a site answers for in a run."""
MOST_OF_A_NODE = 2**MOST_OPEN_OF_A_NODE
"""Models of one variable: one for each set of its neighbours whose direction is reviewed."""
MOST_MODEL_LISTS = 2
"""Lists of models in a run: those of the network, and the same with wider counts where the first fit shows them."""


@dataclass(frozen=True, kw_only=True)
class NewtonQuestion(RowsQuestion):
    """Terms of some models of nodes at `theta`, which holds the coefficients of one after the other.

    `models` are all that a run fits, `asked` the places of those that have not arrived yet; `origin` and `scale` (columns
    of a time step) standardise the columns of parents, at every lag.
    """

    name = "newton"
    takes = ("kinds",)
    purpose = "likelihood, gradient and information of models of variables given others, at coefficients of the server's"

    models: tuple[str, ...] = texts()
    asked: tuple[int, ...] = wholes(0, 1_000_000)
    theta: FloatArray = array("m")
    origin: FloatArray = array("c")
    scale: FloatArray = array("c")

    def check(self) -> None:
        """Models are of variables that have a family, on parents that come from elsewhere; theta has their length."""
        super().check()
        if not self.kinds:
            raise self.wrong("it needs 'kinds'")
        if len(self.origin) != sum(self.design.widths) or not (self.scale > 0).all():
            raise self.wrong(
                "'origin' and 'scale' must be numbers for each column of a time step, scales above 0"
            )
        if not self.models:
            raise self.wrong("'models' must name at least one model")
        is_rising = list(self.asked) == sorted(set(self.asked))
        if not self.asked or not is_rising or self.asked[-1] >= len(self.models):
            raise self.wrong("'asked' must be places of models, ascending")
        nodes = [self._model(text).node for text in self.models]
        if len(set(self.models)) < len(nodes) or max(map(nodes.count, nodes)) > MOST_OF_A_NODE:
            raise self.wrong(f"'models' must be different, at most {MOST_OF_A_NODE} of a variable")
        if len(self.theta) != sum(self.lengths):
            raise self.wrong(
                f"'theta' has {len(self.theta)} numbers, but the models have {sum(self.lengths)}"
            )

    @cached_property
    def node_models(self) -> tuple[NodeModel, ...]:
        """The models that are asked about; anything that is none is refused."""
        return tuple(self._model(self.models[k]) for k in self.asked)

    def _model(self, text: str) -> NodeModel:
        parts = text.split(":")
        try:
            node, family = int(parts[0]), parts[1]
            parents = tuple(int(m) for m in parts[2].split(",") if m)
            if not 0 <= node < self.d or len(parts) != 3:
                raise ValueError(text)
        except (ValueError, IndexError):
            raise self.wrong(f"model {text[:60]!r} must be written 'node:family:parents'") from None
        usual = family_of(self.design.codings[node].kind)
        if family != usual and (usual, family) != ("poisson", "negative-binomial"):
            raise self.wrong(f"model {text[:60]!r} has a family that does not suit {self.variables[node]!r}")
        groups = range(len(self.design.groups))
        if list(parents) != sorted(set(parents)) or any(m not in groups or m == node for m in parents):
            raise self.wrong(f"model {text[:60]!r} must have other variables as parents, ascending")
        return NodeModel(node, parents, family)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """How many coefficients each model has."""
        return tuple(model.n_parameters(self.design) for model in self.node_models)

    @property
    def n_told(self) -> int:
        """How many numbers an answer has."""
        return sum(starmap(ModelSums.length, self.layouts))

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Units are settled once, models nearly so, and there are few steps."""
        return (
            *super().constants,
            Constant("units of columns of models" + self.place, (self.origin, self.scale)),
            Constant("models of variables" + self.place, self.models, MOST_MODEL_LISTS),
            Constant("steps of models" + self.place, (self.asked, self.theta), MOST_STEPS, self.n_told),
        )

    def from_sums(self, vector: FloatArray) -> list[ModelSums]:
        """The sums of each model that an answer holds, one after the other."""
        parts = np.split(vector, np.cumsum(list(starmap(ModelSums.length, self.layouts)))[:-1])
        return [ModelSums.from_sums(part, *form) for part, form in zip(parts, self.layouts, strict=True)]

    @property
    def layouts(self) -> list[tuple[int, bool]]:
        """How many coefficients each model has, and whether it is asked how wide counts are."""
        return [(m, one.family == "poisson") for m, one in zip(self.lengths, self.node_models, strict=True)]


def model_terms(data: SiteData, question: NewtonQuestion) -> Iterator[list[RowTerms]]:
    """The terms of a site's rows, piece by piece, of each model."""
    design, n_each = question.design, question.n_lags + 1
    origin, scale = np.tile(question.origin, n_each), np.tile(question.scale, n_each)
    thetas = np.split(question.theta, np.cumsum(question.lengths)[:-1])
    for recording in question.complete_rows(data):
        for chunk in design_rows(design, recording.blocks()):
            columns = (chunk.values - origin) / scale
            yield [
                model_rows(model, design, chunk.values, columns, theta, chunk.weights)
                for model, theta in zip(question.node_models, thetas, strict=True)
            ]


@answers(NewtonQuestion, length=lambda question: question.n_told)
def _answer(here: Here, question: NewtonQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    total = [ModelSums.empty(*form) for form in question.layouts]
    for terms in model_terms(here.data, question):
        for one, more in zip(total, terms, strict=True):
            one.add(more)
    return here.state, np.concatenate([one.to_sums() for one in total])


# The refit of chosen parents: models of all nodes together, by a few sums of ``newton``.
#
# Nodes that are normal given their parents follow from the moments. Counts are Poisson; where the first fit shows that
# they are wider than that (score test against BIC's price of one parameter), a negative binomial is fitted from there.

NORMAL = "normal"
"""Family of nodes that least squares fits."""
_LEAST_WIDTH = 1e-3


@dataclass(frozen=True)
class Refit:
    """What a refit ends with.

    Attributes
    ----------
    estimates
        One for each model that was chosen.
    n_sums
        Number of sums.
    is_exact
        Whether every one of them arrived.
    """

    estimates: tuple[NodeEstimate, ...]
    n_sums: int
    is_exact: bool


def refit_program(
    moments: Moments,
    design: Design,
    models: Sequence[NodeModel],
    counts: Sequence[Sequence[float]],
    constant: BoolArray,
    choose: Callable[[Sequence[NodeEstimate]], Sequence[int]] | None = None,
) -> ServerProgram[Refit]:
    """Fit models.

    Parameters
    ----------
    counts
        The known numbers of rows with each level of each variable.
    constant
        (d,) which variables do not vary: their largest likelihood lies at infinity, so they keep what moments say.
    choose
        Which models to keep, once all are near their largest likelihood; the others are not asked about any further.
    """
    climber = _Climber(moments, design, models, counts, constant)
    yield from climber.ask(lambda climb: climb.is_near)
    climber.widen()
    yield from climber.ask(lambda climb: climb.is_near)
    kept = range(len(models)) if choose is None else choose([climber.estimate(k) for k in range(len(models))])
    # What a run fits stays listed.
    climber.climbs = {k: climb for k, climb in climber.climbs.items() if k in kept}
    yield from climber.ask(lambda climb: climb.is_done)
    estimates = tuple(climber.estimate(k) for k in kept)
    return Refit(estimates, climber.n_sums, all(climb.is_done for climb in climber.climbs.values()))


class _Climber:
    """All models on their way together."""

    def __init__(
        self,
        moments: Moments,
        design: Design,
        models: Sequence[NodeModel],
        counts: Sequence[Sequence[float]],
        constant: BoolArray,
    ) -> None:
        self._moments, self._design = moments, design
        self._origin, self._scale = column_units(moments, design)
        self._settled: dict[int, NodeEstimate] = {}
        self._models: dict[int, NodeModel] = {}
        self.climbs: dict[int, Climb] = {}
        self.n_sums = 0
        for k, model in enumerate(models):
            if model.family == NORMAL:
                self._settled[k] = least_squares(model, design, moments)
                continue
            theta = starting_theta(model, design, moments, self._scale, counts[model.node])
            if constant[model.node]:
                unknown = np.zeros((len(theta), len(theta)))
                dispersion = 0.0 if model.family == "poisson" else 1.0
                self._settled[k] = NodeEstimate(model, theta, unknown, dispersion, 0.0, len(theta))
                continue
            self._models[k] = model
            self.climbs[k] = self._climb(model, theta)

    def _climb(self, model: NodeModel, theta: FloatArray) -> Climb:
        kind = self._design.codings[model.node].kind
        n_thresholds = kind.n_levels - 1 if kind.name == "ordinal" else 0
        return Climb(theta, slopes_of(model, self._design), n_thresholds)

    def ask(self, has_arrived: Callable[[Climb], bool]) -> ServerProgram[None]:
        """Take steps until every model has arrived, or there are no more steps."""
        places = {k: place for place, k in enumerate(self._models)}
        while self.n_sums < MOST_STEPS:
            on_the_way = [k for k, climb in self.climbs.items() if not has_arrived(climb)]
            if not on_the_way:
                return
            question = NewtonQuestion(
                n_lags=self._design.n_lags,
                variables=self._design.variables,
                kinds=self._design.kinds,
                models=tuple(
                    f"{one.node}:{one.family}:{','.join(map(str, one.parents))}"
                    for one in self._models.values()
                ),
                asked=tuple(places[k] for k in on_the_way),
                theta=np.concatenate([self.climbs[k].theta for k in on_the_way]),
                origin=self._origin,
                scale=self._scale,
            )
            answer = yield Task(question, note={"step": float(self.n_sums)})
            self.n_sums += 1
            for k, sums in zip(on_the_way, question.from_sums(answer.value), strict=True):
                self.climbs[k].take(sums)

    def widen(self) -> None:
        """Let counts be negative binomial where they are wider than Poisson ones."""
        for k, model in self._models.items():
            width = _width(self.climbs[k], self._moments.n) if model.family == "poisson" else 0.0
            if width > 0:
                self._models[k] = replace(model, family="negative-binomial")
                self.climbs[k] = self._climb(self._models[k], np.append(self.climbs[k].theta, np.log(width)))

    def estimate(self, k: int) -> NodeEstimate:
        """What a model has come to."""
        if k in self._settled:
            return self._settled[k]
        model, climb = self._models[k], self.climbs[k]
        theta, covariance = in_code_units(
            model, self._design, climb.theta, climb.covariance, self._origin, self._scale
        )
        dispersion = {"poisson": 0.0, "negative-binomial": float(np.exp(climb.theta[-1]))}.get(
            model.family, 1.0
        )
        value, m = climb.log_likelihood, len(climb.theta)
        return NodeEstimate(model, theta, covariance, dispersion, value, m, climb.has_ridge)


def _width(climb: Climb, n: float) -> float:
    """How much wider than Poisson counts are; 0 unless the evidence is for it."""
    excess, squares = climb.dispersion
    if excess <= 0 or excess**2 / (2 * squares) < np.log(n):
        return 0.0
    return max(float(excess / squares), _LEAST_WIDTH)


_FEWEST_ROWS = 5


@dataclass(frozen=True)
class MixedOptions:
    """How to learn; see `feddbn.methods.mixed.MixedDBN`."""

    n_lags: int = 1
    penalty: float = 1.0
    level_rows: int = 10
    review: bool = True


@dataclass(frozen=True)
class MixedOutcome:
    """What the server ends with.

    Attributes
    ----------
    kinds
        Of the variables, with levels that count as one put together.
    levels
        What the counts of levels told.
    moments, design
        Of the coded columns.
    learned
        The structure by Gaussian scores, reviewed.
    refit
        Every variable given its causes.
    constant
        (d,) which variables do not vary.
    level_evidence
        For levels of recordings' own; above 0 the structure is that within recordings.
    still
        (d,) which variables then do not vary within recordings.
    n_sums
        Number of sums.
    """

    kinds: tuple[Kind, ...]
    levels: LevelCounts
    moments: Moments
    design: Design
    learned: Learned
    refit: Refit
    constant: BoolArray
    level_evidence: float
    still: BoolArray
    n_sums: int


def mixed_plan(
    variables: tuple[str, ...], n_lags: int, kinds: tuple[Kind, ...], fewest: int = LEVEL_ROWS
) -> Plan:
    """What `mixed_program` may ask."""
    texts_ = tuple(coding_of(kind).text for kind in kinds)
    counts = CountsQuestion(n_lags=n_lags, variables=variables, kinds=texts_, least=fewest)
    coded = _coded_gram(variables, n_lags, texts_).design
    plan: Plan = (Planned("gram.kinds", sums_length(coded.q) + 2 + coded.q * (coded.q + 1) // 2),)
    if any(kind.n_levels > 2 for kind in kinds):
        plan = Planned("counts.levels", 2 * counts.n_counts, MOST_LEVEL_COUNTS), *plan
    families = [(j, family_of(kind)) for j, kind in enumerate(kinds)]
    every = tuple(range(len(coded.groups)))
    few, many = 0, 0
    for j, family in families:
        if family is None or family == NORMAL:
            continue
        # A model has at most all other groups as parents; counts may turn out wider, by one parameter.
        most = NodeModel(j, tuple(m for m in every if m != j), family).n_parameters(coded) + 1
        least = NodeModel(j, (), family).n_parameters(coded)
        few += ModelSums.length(least, family == "poisson")
        many += MOST_OF_A_NODE * ModelSums.length(most, family == "poisson")
    steps = (Planned("newton", many, MOST_STEPS, 6, few),) if many else ()
    return *plan, *steps


def mixed_program(
    variables: tuple[str, ...],
    kinds: tuple[Kind, ...],
    constraints: EdgeConstraints,
    options: MixedOptions,
    rng: np.random.Generator,
    *,
    is_hidden: bool = False,
) -> ServerProgram[MixedOutcome]:
    """Ask, find the structure, and fit it; `is_hidden`: no level is told that a site has in few rows."""
    d, n_lags = len(variables), options.n_lags
    counting = level_counts_program(variables, n_lags, kinds, options.level_rows, is_hidden=is_hidden)
    levels, n_counts = yield from counted(counting)
    told = yield from mixed_moments_program(variables, n_lags, levels.codings)
    moments, design = told.moments, told.design
    if moments.n < _FEWEST_ROWS:
        raise DataError(
            f"learning needs at least {_FEWEST_ROWS} usable rows over all sites, got {int(moments.n)}; a row is usable if it "
            f"has no empty cell and its n_lags={n_lags} predecessors are in the same segment."
        )
    columns = [group.columns for group in design.groups]
    # Edges must not stand for levels that recordings differ in.
    within = told.evidence > 0
    seen = told.within if within else moments
    price = Criterion(options.penalty, order_c=options.penalty)
    learner = OrderLearner("free", price, groups=Groups(d, tuple(columns)))
    learned = learner.learn(seen, constraints, rng)
    learned = learner.replicated(learned, seen.n / UNKNOWN_DISPERSION, constraints, rng)
    learned = agreed(learned, constraints)
    spread = np.diag(moments.scatter)
    constant = np.array([not (spread[list(group)] > 0).all() for group in columns[:d]])
    spread = np.diag(seen.scatter)
    still = ~constant & np.array([not (spread[list(group)] > 0).all() for group in columns[:d]])
    review = Review(learned.network.support, learned.orientation if options.review else ())
    models = [NodeModel(j, parents, family_of(kinds[j]) or NORMAL) for j, parents in review.models]
    places = {(model.node, model.parents): k for k, model in enumerate(models)}

    def choose(estimates: Sequence[NodeEstimate]) -> list[int]:
        nonlocal learned
        if review.edges:
            found = review.decide(lambda j, parents: estimates[places[j, parents]].bic(moments.n))
            learned = _reviewed(learned, found)
        return [places[j, parents] for j, parents in enumerate(learned.network.parents)]

    counts = _known_counts(levels)
    refit = yield from refit_program(moments, design, models, counts, constant, choose)
    merged = tuple(merged_kind(kind, coding) for kind, coding in zip(kinds, levels.codings, strict=True))
    n_sums = 1 + refit.n_sums + n_counts
    return MixedOutcome(
        merged,
        levels,
        moments,
        design,
        learned,
        refit,
        constant,
        told.evidence,
        still,
        n_sums,
    )


def _reviewed(learned: Learned, found: Reviewed) -> Learned:
    """The structure with directions as they were decided, and their probabilities."""
    search = learned.search
    network = search.adopt(search.regressions.support_of(found.parents))
    found_now = replace(
        learned,
        support=network.support,
        order=network.order,
        score=network.score,
        network=network,
        orientation=found.orientation,
    )
    return with_shapes(found_now)


def _known_counts(levels: LevelCounts) -> list[list[float]]:
    """For each variable the counts of its levels as they count now."""
    found = []
    for counts, coding in zip(levels.counts, levels.codings, strict=True):
        total = [0.0] * coding.kind.n_levels
        for count, group in zip(counts, coding.groups, strict=False):
            total[group] += count
        found.append(total)
    return found
