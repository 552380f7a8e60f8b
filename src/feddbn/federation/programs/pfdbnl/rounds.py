"""PFDBNL over sums: [fdbnl] Algorithm 2 as a server program.

What leaves a site in a round is said in `site`; the state machine that this program drives is
`core.penalised.personal_rounds.PersonalRun`.

A site may be away for some rounds, or for good, or join late. If an answer of it got lost, its part is in the next change.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.constraints import EdgeConstraints, break_cycles, threshold
from feddbn.core.penalised.personal_rounds import PersonalOptions, PersonalRun
from feddbn.core.penalised.personal_site import PersonalRound
from feddbn.core.penalised.pooled import OPTIMA
from feddbn.core.statistics.diagnostics import ScaleChoice
from feddbn.errors import ParameterError
from feddbn.federation.programs.fdbnl import (
    WEIGHTINGS,
    PenalisedSettings,
    Rounds,
    learner_of,
    prepared_plan,
    prepared_program,
)
from feddbn.federation.programs.pfdbnl.questions import (
    AVERAGES,
    MOST_ROUNDS,
    FinishQuestion,
    StepQuestion,
)
from feddbn.federation.protocol.rows import treated
from feddbn.federation.protocol.task import Plan, Planned, ServerProgram, Task
from feddbn.federation.sums.prepare import Prepare, PreparedSettings
from feddbn.federation.sums.statistics import Preparation
from feddbn.federation.sums.treatment import AskedMoments
from feddbn.settings import (
    Rule,
    Settings,
    flag,
    group,
    nothing,
    number,
    setting,
    share_or_count,
    whole,
    word,
)

_PROBLEM = ("n_lags", "mu", "lambda_w", "lambda_a", "w_threshold", "a_threshold")
_HOW = ("weighting", "acyclicity", "average")
_RULES = tuple(item.name for item in fields(PersonalRound) if item.name != "mu")


def _as_in(kind: type[Settings], name: str) -> Any:
    """A field that another settings class has, too."""
    one = kind.__dataclass_fields__[name]
    return field(default=one.default, kw_only=one.kw_only, metadata=one.metadata)


@dataclass(frozen=True, repr=False)
class PersonalRounds(Rounds):
    """How the rounds of PFDBNL go, and when they end.

    PFDBNL has only rounds, so what decides how they go is here, also where `FDBNL` has it beside them: how sites weigh, in
    which order each ends, whether edges are refitted, and the seed of who takes part. What is about the network of a site
    stays where `FDBNL` has it.

    Examples
    --------
    >>> import feddbn
    >>> feddbn.PFDBNL(rounds=feddbn.PersonalRounds(max_rounds=50)).rounds.max_rounds
    50
    """

    max_rounds: int = setting(MOST_ROUNDS, whole(1), "Largest number of rounds.")
    tol: float = setting(
        1e-4,
        number(above=0),
        "Tolerance for the residuals of the rounds. Personal weights are then solved exactly.",
    )
    alpha: str = setting(
        "site",
        word("site", "shared"),
        '"site": each site has its own multiplier of the acyclicity constraint. "shared": one for all, as in the paper.',
    )
    average: str = setting(
        "running",
        word(*AVERAGES),
        '"running": the common weights average all sites that ever took part. "participants": they average only the sites '
        "of this round, as in the paper.",
    )
    weighting: str = setting(
        "samples",
        word(*WEIGHTINGS),
        'Weight of a site. "samples": w_k = n_k / mean n. "sites": 1, as in the paper. Both are equal if all sites have '
        "the same number of rows.",
    )
    refit: bool = setting(
        True,
        flag(),
        "True: each site refits its edges without the L1 penalty, keeping the pull to the common weights, then removes "
        "small weights. False: no refit, as in the paper.",
    )
    optimum: str = setting(
        "order",
        word(*OPTIMA),
        "As in `FDBNL`, but every site searches on its own objective, including the pull to the common weights. The search "
        "sends nothing.",
    )
    random_state: int | None = setting(0, whole(0) | nothing(), "Random seed for the choice of participants.")


@dataclass(frozen=True, repr=False)
class PFDBNLSettings(PreparedSettings):
    """What a person may choose of `PFDBNL`."""

    mu: float | str = setting(
        0.5,
        replace(number(above=0, finite=False), passing=("positive (infinity gives one graph for all)",))
        | word("auto"),
        'Pull of every site towards the common weights. `numpy.inf`: one graph for all. "auto": chosen by held-out loss.',
        kw_only=False,
    )
    n_lags: int | str = _as_in(PenalisedSettings, "n_lags")
    lambda_w: float | str = _as_in(PenalisedSettings, "lambda_w")
    lambda_a: float | str = _as_in(PenalisedSettings, "lambda_a")
    participation: float | int = setting(
        1.0,
        share_or_count(),
        "Share or number of sites drawn for each round; the others keep their state.",
    )
    schedule: str = setting(
        "rounds",
        word("rounds", "paper"),
        '"rounds": the improved algorithm. "paper": the published penalties and steps.',
    )
    rounds: PersonalRounds = setting(
        PersonalRounds(),
        group(PersonalRounds),
        "Settings of the rounds: penalties, number, tolerances (`feddbn.PersonalRounds`).",
    )
    w_threshold: float = _as_in(PenalisedSettings, "w_threshold")
    a_threshold: float = _as_in(PenalisedSettings, "a_threshold")
    forbidden_edges: Any = _as_in(PenalisedSettings, "forbidden_edges")
    required_edges: Any = _as_in(PenalisedSettings, "required_edges")
    check_residuals: bool | str = setting(
        "auto",
        flag() | word("auto"),
        "As in `FDBNL`, but each site checks its own network, which stays at the site. Sites with few rows do not take "
        "part.",
    )
    # Sites with networks of their own have scales of their own, and none is left out.
    auto: ClassVar[Mapping[str, Any]] = {"gains": "none", "on_disagreement": "warn"}
    may_be: ClassVar[Mapping[str, Rule]] = {"on_disagreement": word("auto", "personal", "warn", "ignore")}

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rounds.check_use(self.schedule)
        is_paper = self.schedule == "paper"
        if self.rounds.optimum == "exact" and is_paper:
            raise ParameterError(
                "rounds.optimum='exact' needs schedule='rounds'; the paper's schedule has its own path."
            )
        if self.mu == math.inf and is_paper:
            raise ParameterError("mu=inf needs schedule='rounds'; the paper's alternation cannot move then.")

    @property
    def rows(self) -> Prepare:
        """What is done to the rows; a network for each site is what the method learns anyway."""
        found = super().rows
        return replace(found, on_disagreement="warn") if found.is_personal else found


def n_participants(participation: float | int, n_sites: int) -> int:
    """Return how many of `n_sites` take part in a round: a share in (0, 1], or a whole number."""
    if isinstance(participation, int):
        return min(participation, n_sites)
    return max(1, round(participation * n_sites))


@dataclass(frozen=True)
class PersonalFit:
    """A finished run: the shared weights, how it went, and which sites never took part."""

    run: PersonalRun
    preparation: Preparation
    shared: FloatArray
    objective: float
    target_loss: FloatArray
    never_joined: tuple[str, ...]
    asked: AskedMoments | None = None
    scale: ScaleChoice | None = None


def personal_options(
    settings: PFDBNLSettings, preparation: Preparation, constraints: EdgeConstraints
) -> PersonalOptions:
    """Return the options of the core solver."""
    rounds = settings.rounds
    schedule = rounds.schedule(settings.schedule, 1, 1.0)
    if schedule.is_adaptive:
        # A site's loss has a curvature of about 2 D, its pull one of 2 mu.
        schedule = replace(schedule, rho2=2.0)
    learner = learner_of(settings, schedule, optimum=rounds.optimum, refit=rounds.refit)
    return PersonalOptions(
        **vars(learner.options(preparation, constraints)),
        mu=float(settings.mu),
        is_alpha_shared=rounds.alpha == "shared",
        is_running=rounds.average == "running",
    )


def personal_program(
    settings: PFDBNLSettings,
    variables: tuple[str, ...],
    constraints: EdgeConstraints,
    sites: tuple[str, ...],
    *,
    run_number: int = 0,
    is_proven: bool = True,
) -> ServerProgram[PersonalFit]:
    """Yield the tasks of one PFDBNL run; the result is a `PersonalFit`.

    Sites try to prove that there is no better order only if `is_proven`.
    """
    rounds = settings.rounds
    common: dict[str, Any] = {
        **{name: getattr(settings, name) for name in _PROBLEM},
        **{name: getattr(rounds, name) for name in _HOW},
        "is_proven": is_proven,
        # The paper's schedule has its own path.
        "optimum": rounds.optimum if settings.schedule != "paper" else "path",
        "variables": variables,
        "n_sites": len(sites),
    }
    prepared = yield from prepared_program(settings, variables, len(sites), one_network=False)
    common |= {"center": prepared.center}
    setup = _Setup(settings, constraints, sites, prepared.preparation, common)
    rng = np.random.default_rng(rounds.random_state)
    fit = yield from treated(_fit_program(setup, rng, run_number), prepared.preparation.treatment)
    return replace(fit, preparation=prepared.reported, asked=prepared.asked, scale=prepared.scale)


_NUMBERS_OF_A_ROUND = 6
"""What an answer of a round has beside weights: norms, acyclicity, an objective and a gain."""


def personal_plan(
    variables: tuple[str, ...],
    n_lags: int,
    prepare: Prepare,
    *,
    max_rounds: int = MOST_ROUNDS,
) -> Plan:
    """What `personal_program` may ask."""
    d, q = len(variables), (n_lags + 1) * len(variables)
    return (
        *prepared_plan(variables, n_lags, prepare),
        Planned("step.personal", q * d + 1 + _NUMBERS_OF_A_ROUND, max_rounds, min(max_rounds, 200)),
        Planned("step.finish", 2 + d),
    )


@dataclass(frozen=True)
class _Setup:
    """What one run needs: the problem, and what every question of it carries."""

    settings: PFDBNLSettings
    constraints: EdgeConstraints
    sites: tuple[str, ...]
    preparation: Preparation
    common: Mapping[str, Any]


def _fit_program(setup: _Setup, rng: np.random.Generator, run_number: int) -> ServerProgram[PersonalFit]:
    """Yield the rounds of one run and its end."""
    settings, constraints, preparation = setup.settings, setup.constraints, setup.preparation
    options = personal_options(settings, preparation, constraints)
    sites = setup.sites
    run = PersonalRun(options, len(sites))
    joined: set[str] = set()
    n = n_participants(settings.participation, len(sites))
    common: dict[str, Any] = {
        **setup.common,
        "run": run_number,
        "mean_rows": preparation.summary.n / len(sites),
        "origin": preparation.center,
        "scale": preparation.scale,
        "metric": options.metric,
    }
    if not constraints.is_free:
        common |= {"allowed": constraints.allowed, "required": constraints.required}
    while not run.is_done:
        # Sites that the runtime cannot reach are missing from the answer, and simply have not taken part.
        asked = sites
        if n < len(sites):
            asked = tuple(sorted(sites[i] for i in rng.choice(len(sites), size=n, replace=False)))
        rules = run.rules()
        question = StepQuestion(
            **common,
            **{name: getattr(rules, name) for name in _RULES},
            round=run.round,
            stage=run.stage.value,
            serial=run.serial,
            C=run.C,
        )
        answer = yield Task(question, asked, run.note)
        joined.update(answer.contributors)
        run.advance(answer.value, len(answer.contributors))
    return (yield from _finish(setup, run, common, joined))


def _finish(
    setup: _Setup, run: PersonalRun, common: Mapping[str, Any], joined: Collection[str]
) -> ServerProgram[PersonalFit]:
    settings, constraints = setup.settings, setup.constraints
    d = constraints.d
    shared = threshold(run.shared, constraints.required, settings.w_threshold, settings.a_threshold)
    shared[:d], _ = break_cycles(shared[:d], constraints.required[:d])
    answer = yield Task(FinishQuestion(**common, refit=settings.rounds.refit, C=run.C, shared=shared))
    target_loss = answer.value[2:] / answer.value[1]
    never = tuple(name for name in setup.sites if name not in joined)
    return PersonalFit(run, setup.preparation, shared, float(answer.value[0]), target_loss, never)
