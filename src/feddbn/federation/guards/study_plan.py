"""Which tasks a study asks for, and within which bounds: the one place that knows it from its method and parameters.

The lead's check before a study is sent, an owner's check of a study file and the guard at every task of a deployed site all
read the same answer. A method that the method table does not have is bounded by the site's policy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from math import prod
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.parts import N_PARTS
from feddbn.core.kinds import Kind
from feddbn.core.orders.parents import MANY_NODES
from feddbn.core.statistics.moments import sums_length
from feddbn.core.statistics.survey import MOST_CYCLES
from feddbn.errors import ParameterError, SiteRefused
from feddbn.federation.programs.alone import TASK as ALONE
from feddbn.federation.programs.alone import alone_plan
from feddbn.federation.programs.changing import changing_plan
from feddbn.federation.programs.curved import CurveOptions, curved_plan
from feddbn.federation.programs.fdbnl import fdbnl_plan
from feddbn.federation.programs.held_out import AUTO_GRIDS, default_grid, held_out_plan
from feddbn.federation.programs.mixed import mixed_plan
from feddbn.federation.programs.oneshot import oneshot_plan
from feddbn.federation.programs.pfdbnl.questions import MOST_PULLS
from feddbn.federation.programs.pfdbnl.questions import MOST_ROUNDS as MOST_PERSONAL_ROUNDS
from feddbn.federation.programs.pfdbnl.rounds import personal_plan
from feddbn.federation.programs.residual_checks import checks_plan
from feddbn.federation.protocol.site import Channel, Guard, Here
from feddbn.federation.protocol.study import Compare, Study
from feddbn.federation.protocol.task import (
    Constant,
    Plan,
    Planned,
    Question,
    Scope,
    Task,
    of_task,
    repeated,
    task_digest,
    tasks_in,
)
from feddbn.federation.sums.gram import parts_plan
from feddbn.federation.sums.in_view import LEVEL_ROWS
from feddbn.federation.sums.prepare import AUTO_DEGREES, Prepare
from feddbn.federation.sums.private_moments import MOMENTS, study_costs
from feddbn.federation.sums.survey import N_AGREE, survey_plan
from feddbn.federation.sums.treatment import asked_moments_plan
from feddbn.method_table import STUDY_METHODS, find_method
from feddbn.privacy.gaussian import LONGEST
from feddbn.privacy.noise_plan import norm_edges
from feddbn.privacy.policy import SitePolicy
from feddbn.settings import flat_names

# Parameters of PFDBNL's rounds, and what they are in a study that does not name them; some are chosen on held-out rows.
_ROUNDS = {"mu": 0.5, "lambda_w": 0.05, "lambda_a": 0.05, "w_threshold": 0.2, "a_threshold": 0.2}
_CHOSEN = ("mu", "lambda_w", "lambda_a")
# What "auto" means for some methods.
_AUTO: Mapping[str, Mapping[str, Any]] = {
    "changing": {"detrend": 0, "missing": "drop"},
    "mixed": {"missing": "drop"},
    "pfdbnl": {"gains": "none"},
}
_PLANNED = tuple(method.name for method in STUDY_METHODS)


def plan_of(study: Study) -> Plan:
    """Which questions a study may ask, how often, and how many numbers they tell; nothing of an unknown method."""
    if study.method not in _PLANNED:
        return ()
    has_count = study.privacy.epsilon is None and not study.update_of
    counts = (Planned("counts.variables", 2 * len(study.variables)),) if has_count else ()
    plan = _plan_of_fit(study)
    return *counts, *plan, *(alone_plan() if _compares_alone(study) else ())


def _compares_alone(study: Study) -> bool:
    """Whether sites say if the network is better for them than their own; last of all, so that whoever refuses may."""
    if study.goal not in ("network", "select", "compare") or study.update_of or len(study.sites) < 2:
        return False
    if study.method not in ("oneshot", "fdbnl") or study.privacy.epsilon is not None:
        return False
    # Curves that are asked for by name are more than a network of lagged values.
    planned = _StudyPlan.of(study)
    return planned.checks and planned.given.get("features", "linear") in ("linear", "auto")


def _plan_of_fit(study: Study) -> Plan:
    if study.goal == "compare":
        plain = study.model_copy(update={"goal": "network", "compare": Compare()})
        # Each method learns from earlier rows, the study's own then from all.
        fits = [
            _plan_of_fit(plain.model_copy(update={"method": name})) for name in (study.method, *study.methods)
        ]
        judged = len(study.methods)
        treated = repeated(_StudyPlan.of(plain).treatment, judged)
        losses = held_out_plan(len(study.variables), judged, 1, chooses=False)
        return *(ask for fit in fits for ask in fit), *treated, *losses
    if study.method not in _PLANNED:
        return ()
    planned = _StudyPlan.of(study)
    if study.goal == "check":
        return planned.first_look
    if study.update_of:
        # Rows are treated as those before them, and looked at as if they were the first.
        return planned.update
    if study.privacy.epsilon is not None:
        return planned.noisy
    if study.goal == "confidence":
        return *planned.fit(), *planned.parts
    return *planned.fit(), *planned.selection, *planned.parts


@dataclass(frozen=True)
class _StudyPlan:
    """A study as its plan is made: what it says, and what is done to its rows."""

    study: Study
    given: Mapping[str, Any]
    prepare: Prepare
    n_lags: int

    @classmethod
    def of(cls, study: Study) -> _StudyPlan:
        said = flat_names(study.parameters)
        # Whether sites compare themselves is never left to what is usual: "auto" is as good as nothing said.
        given = {k: v for k, v in said.items() if (k, v) != ("on_disagreement", "auto")}
        # A method of another package may mean something else by these names.
        known = [one.name for one in fields(Prepare) if one.name in given and study.method in _PLANNED]
        said = {name: given[name] for name in known}
        usual = {"on_disagreement": "ignore", **_AUTO.get(study.method, {})}
        prepare = Prepare(**said).resolved(**usual)
        return cls(study, given, prepare.among(len(study.sites)), _most_lags(study))

    @property
    def transformations(self) -> tuple[str, ...]:
        """What may be done to rows: what the study leaves open, or asks for by name; under noise little more than means."""
        rows, has_noise = self.prepare, self.study.privacy.epsilon is not None
        has_time = bool(rows.detrend), bool(rows.period)
        open_to = {
            "means": rows.center in ("auto", "recording") or any(has_time) or self.study.method == "mixed",
            "trends": has_time[0],
            "cycles": has_time[1],
            "robust": rows.robust == "auto" and not (has_noise and self.study.privacy.unit == "row"),
            "scales": rows.gains != "none" and not has_noise,
            "fill": rows.fills and not has_noise,
            "abstain": rows.leaves_out and not has_noise,
        }
        # A check looks at rows as they are, and at most compares the scales of sites.
        is_check = self.study.goal == "check"
        found = (what for what, is_open in open_to.items() if is_open and (what == "scales" or not is_check))
        return *found, *rows.given.done_to_rows

    @property
    def checks(self) -> bool:
        """Whether residuals are looked at after learning."""
        wanted = self.given.get("check_residuals", "auto")
        if wanted != "auto" or self.study.method == "oneshot":
            return bool(wanted)
        return not (self.given.get("schedule") == "paper" or self.prepare.is_settled)

    @property
    def treatment(self) -> Plan:
        """What deciding about rows takes, before they are held out."""
        if self.prepare.is_settled:
            return ()
        return asked_moments_plan(self.study.variables, self.n_lags, self.prepare)

    @property
    def first_look(self) -> Plan:
        """What a check asks."""
        compares = self.prepare.on_disagreement != "ignore"
        inputs = self.prepare.input_places(self.study.variables)
        look = survey_plan(self.study.variables, self.n_lags, inputs, profiles=self.prepare.profiles)
        return (*look, Planned("agree", N_AGREE)) if compares else look

    @property
    def update(self) -> Plan:
        """One sum of the new rows."""
        q = (self.n_lags * self.study.lag_reach + 1) * len(self.study.variables)
        return (Planned("gram.rows", sums_length(q) + 2 + q * (q + 1) // 2),)

    @property
    def noisy(self) -> Plan:
        """What is asked where noise is promised: one matrix of products, and what bounds of it take."""
        study, d = self.study, len(self.study.variables)
        plan: Plan = (Planned(MOMENTS, sums_length((self.n_lags * study.lag_reach + 1) * d)),)
        # A bound that is given need not be looked for.
        return plan if study.privacy.clip is not None else (*plan, Planned("counts.norms", len(norm_edges())))

    def fit(self, checks: bool | None = None) -> Plan:
        """What one fit asks; `checks` says whether residuals are looked at."""
        study, given, prepare, n_lags = self.study, self.given, self.prepare, self.n_lags
        names, d = study.variables, len(study.variables)
        checks = self.checks if checks is None else checks
        after = checks_plan(d, n_lags, is_own=study.method == "pfdbnl") if checks else ()
        if study.method == "oneshot":
            # In studies the shape of the noise is looked at only if they say so.
            options = {
                "use_nongaussian": given.get("use_nongaussian", False),
                "chooses_lags": given.get("n_lags") == "auto",
            }
            features = str(given.get("features", "linear"))
            if features == "linear":
                return oneshot_plan(names, n_lags, prepare, checks=checks, **options)
            curves = CurveOptions(features, bool(given.get("interactions", False)))
            return curved_plan(names, n_lags, prepare, curves, checks=checks, **options)
        if study.method == "changing":
            return changing_plan(names, n_lags, prepare, checks=checks)
        if study.method == "mixed":
            kinds = tuple(study.kinds.get(name, Kind()) for name in names)
            return mixed_plan(names, n_lags, kinds, int(given.get("level_rows", LEVEL_ROWS)))
        if study.method == "fdbnl":
            said = {name: given[name] for name in ("schedule", "weighting", "max_rounds") if name in given}
            return *fdbnl_plan(names, n_lags, prepare, **said), *after
        if study.method == "pfdbnl":
            personal = personal_plan(
                names,
                n_lags,
                prepare,
                max_rounds=int(given.get("max_rounds", MOST_PERSONAL_ROUNDS)),
            )
            return *personal, *after
        return asked_moments_plan(names, n_lags * study.lag_reach, prepare)

    @property
    def n_parts(self) -> int:
        """Into how many parts rows are dealt, so that it shows which edges come again."""
        study = self.study
        if study.update_of or study.privacy.epsilon is not None:
            return 0
        is_learned = study.method == "oneshot" and len(study.variables) <= MANY_NODES
        return N_PARTS if study.goal == "confidence" or (is_learned and study.goal != "check") else 0

    @property
    def parts(self) -> Plan:
        """What that asks about the lagged rows."""
        columns = (self.n_lags * self.study.lag_reach + 1) * len(self.study.variables)
        return parts_plan(columns) if self.n_parts else ()

    @property
    def selection(self) -> Plan:
        """What choosing settings on held-out rows asks: all candidates are fitted for every block."""
        study, plan = self.study, Plan()
        n_blocks, _ = study.held_out or (0, 0)
        for n_candidates in self._candidates:
            fits = repeated(self.fit(checks=False), n_candidates * n_blocks)
            losses = held_out_plan(len(study.variables), n_candidates, n_blocks)
            plan = *plan, *self.treatment, *fits, *losses
        return plan

    @property
    def _candidates(self) -> list[int]:
        """How many candidates each choice is among."""
        method = find_method(self.study.method)
        if method is None or not method.selects:
            return []
        if self.study.goal == "select":
            grid = self.study.select.grid or default_grid(method)
            return [prod(len(values) for values in grid.values())]
        names = [name for name in AUTO_GRIDS if self.given.get(name) == "auto"]
        if {"lambda_w", "lambda_a"} <= {*names}:
            names.remove("lambda_a")
        return [len(AUTO_GRIDS[name]) for name in names]


def tasks_of(study: Study) -> tuple[str, ...]:
    """Names of the kinds of questions in a study's plan."""
    return tasks_in(plan_of(study))


def check_tasks(policy: SitePolicy, study: Study) -> None:
    """Refuse a study that is sure to ask for what a policy does not list, so that it does not begin in vain."""
    # Without parts rows count as less than they are, and what is told says so.
    sure = {ask.task for ask in plan_of(study) if ask.usual and ask.task not in (ALONE, "gram.parts")}
    lacking = [task for task in lacking_tasks(policy, study) if task in sure]
    if lacking:
        raise SiteRefused(
            f"the study will ask for the task{'s' if len(lacking) > 1 else ''} {', '.join(lacking)}, which this site's "
            "policy does not list; add to `tasks` there, or choose other parameters.",
            code="tasks-not-allowed",
        )
    n_pulls = len(set(_numbers(study, "mu"))) if "pfdbnl" in study.methods else 0
    if n_pulls > MOST_PULLS:
        raise SiteRefused(
            f"the study tries {n_pulls} values of mu, and sites answer for {MOST_PULLS} in a run; shorten `mu` in its "
            "[select.grid].",
            code="too-many-pulls",
        )
    feature = study.parameters.get("features", "linear")
    if isinstance(feature, str) and feature not in ("auto", *policy.features):
        raise SiteRefused(
            f"the study sums {feature!r} features; this site's policy lists {', '.join(policy.features)}.",
            code="features-not-allowed",
        )


def lacking_tasks(policy: SitePolicy, study: Study) -> list[str]:
    """Tasks of the study that a policy does not list."""
    return [task for task in tasks_of(study) if not policy.allows(task)]


def scope_of(study: Study, max_lags: int) -> Scope:
    """Return what the questions of a study may be about at a site that allows `max_lags` lags."""
    planned = _StudyPlan.of(study)
    rows, periods = planned.prepare, planned.prepare.periods
    n_blocks, thousandths = study.held_out or (0, 0)
    plan = plan_of(study)
    return Scope(
        plan=plan if study.method in _PLANNED else None,
        variables=study.variables,
        sites=tuple(sorted(study.sites)),
        lags=_lags(study, max_lags, tasks_in(plan)),
        folds=tuple((block, n_blocks, thousandths) for block in range(n_blocks)),
        transformations=planned.transformations,
        cell_maps=rows.given.cell_maps,
        degrees=AUTO_DEGREES if isinstance(rows.detrend, str) else (0, rows.detrend),
        most_cycles=MOST_CYCLES if isinstance(periods, str) else len(periods),
        inputs=rows.input_places(study.variables),
        numbers={name: values for name in _ROUNDS if (values := _numbers(study, name))},
        unit=None if study.privacy.epsilon is None else study.privacy.unit,
        n_parts=planned.n_parts,
        parameters=planned.given,
    )


def _values(study: Study, name: str, usual: Any) -> list[Any]:
    """What a study gives a parameter: one value, or those it chooses among."""
    tried = study.select.grid.get(name, ()) if study.goal == "select" else ()
    return list(tried) or [study.parameters.get(name, usual)]


def _lags(study: Study, max_lags: int, tasks: tuple[str, ...]) -> range:
    """Numbers of lags that questions may have; where residuals are checked, one more than the study has."""
    given = _values(study, "n_lags", None)
    is_fixed = all(isinstance(n, int) and not isinstance(n, bool) for n in given)
    first, last = (min(given), max(given) * study.lag_reach) if is_fixed else (0, max_lags)
    # Networks without lags are looked at with one, others also with one lag more.
    looks_further = "residuals.checks" in tasks or (last == 0 and "residuals.blocks" in tasks)
    return range(first, last + 1 + looks_further)


def _numbers(study: Study, name: str) -> tuple[float, ...]:
    """Values that a study comes to; none are known where the method chooses them on held-out rows."""
    if name in _CHOSEN and study.goal == "select" and not study.select.grid:
        return ()
    given = _values(study, name, _ROUNDS[name])
    are_numbers = all(isinstance(value, int | float) for value in given)
    return tuple(float(value) for value in given) if are_numbers else ()


# What a deployed site lets itself be asked: within the study, within its policy, and the same throughout a run.
#
# A server may make up every number of a question. What it can gain by that comes from questions that differ a little: two
# treatments whose sums differ by the few rows that only one of them has. So what a run takes for granted
# (`Question.constants`) is written down with the first question and may not change.

MOST_REFUSED = 10
"""After so many different questions of a run that were refused a site answers no more: refusals tell something, too."""
_REFUSED = "questions that were refused"
_ENDED = "questions that were refused after data were read"


class Asked:
    """What the questions of a run have taken for granted so far.

    Parameters
    ----------
    known
        (what, digest of its value, its size) that were written down before.
    write
        Writes one of these down; durable when it returns.
    """

    def __init__(
        self,
        known: Iterable[tuple[str, str, int]] = (),
        write: Callable[[str, str, int], None] = lambda what, digest, size: None,
    ) -> None:
        self._sizes: dict[str, dict[str, int]] = {}
        for what, digest, size in known:
            self._sizes.setdefault(what, {})[digest] = size
        self._write = write

    def check_refusals(self) -> None:
        """Refuse everything after many refusals, or after one that depended on data."""
        if self.size_of(_ENDED):
            raise SiteRefused(
                "a question of this run was refused after data were read; this site answers no more of it.",
                code="refused-after-reading",
            )
        if self.size_of(_REFUSED) >= MOST_REFUSED:
            raise SiteRefused(
                f"{MOST_REFUSED} questions of this run were refused; this site answers no more of it.",
                code="too-many-refusals",
            )

    def refused(self, task: Task, has_read: bool) -> None:
        """Take down that a question was refused; the same question again is no other.

        `has_read`: data were read first, so that the refusal tells something about them. It is the last that a run hears:
        a second one would halve what is left to guess.
        """
        digest = task_digest(task.fields(), task.arrays, task.participants)
        self._keep(_REFUSED, digest, 1)
        if has_read:
            self._keep(_ENDED, digest, 1)

    def size_of(self, what: str) -> int:
        """Sizes of all values of something, added up."""
        return sum(self._sizes.get(what, {}).values())

    def check_plan(self, task: Task, plan: Plan | None) -> None:
        """Refuse more questions of a kind than the plan has; the same question again is no other."""
        if plan is None:
            return
        times, what = of_task(plan, task.name)[0], f"questions of task {task.name!r}"
        digest = task_digest(task.fields(), task.arrays, task.participants)
        if digest not in self._sizes.get(what, {}) and self.size_of(what) >= times:
            raise SiteRefused(
                f"the study has asked for the task {task.name!r} {times} times; by its plan it asks no more often.",
                code="beyond-plan",
            )
        self._keep(what, digest, 1)

    def check(self, task: Task) -> None:
        """Refuse a question that takes something else for granted than those before it."""
        granted = (*task.question.constants, *_chosen(task.question))
        constants = [(one, one.digest) for one in granted]
        for one, digest in constants:
            known = self._sizes.get(one.what, {})
            if digest not in known and len(known) >= one.most:
                raise SiteRefused(
                    f"task {task.name!r} changes {one.what} within a run; sums that differ by it would show few rows.",
                    code="changed-in-run",
                )
        # Also what is refused later on counts, so that refusals cannot be used to try values out.
        for one, digest in constants:
            self._keep(one.what, digest, one.size)

    def _keep(self, what: str, digest: str, size: int) -> None:
        known = self._sizes.setdefault(what, {})
        if digest not in known:
            self._write(what, digest, size)
            known[digest] = size


def _chosen(question: Question) -> tuple[Constant, ...]:
    """The variables of a run: all of the study's, or those that are left once it is known which are seldom seen."""
    names = getattr(question, "variables", None)
    if names is None or question.name == "counts.variables":
        return ()
    return (Constant("the variables of the run", tuple(names)),)


class ScopeGuard(Guard):
    """Refuses every question that the study or the site's policy does not allow; reads no data.

    Parameters
    ----------
    scope
        What the study may ask.
    policy
        The owner's rules.
    asked
        What this run has taken for granted so far.
    """

    def __init__(self, scope: Scope, policy: SitePolicy, asked: Asked | None = None) -> None:
        self._scope = scope
        self._policy = policy
        self._asked = asked or Asked()
        self._read_for: Task | None = None

    def before(self, task: Task, state: Mapping[str, np.ndarray], channel: Channel) -> None:
        """Check task, participants, parameters and what must not change."""
        self._read_for = None
        self._asked.check_refusals()
        self._scope.check_task(task.name)
        self._scope.check_participants(task.name, task.participants)
        task.question.check_scope(self._scope)
        self._policy.check_transformations(task.question.transformations)
        self._asked.check(task)
        self._asked.check_plan(task, self._scope.plan)

    def reads(self, here: Here, task: Task) -> tuple[Here, Task]:
        """Everything about the question alone has been checked: a refusal from here on depends on data."""
        self._read_for = task
        return here, task

    def after(self, task: Task, vector: FloatArray, channel: Channel) -> FloatArray:
        """An answer has no more numbers than the plan says."""
        most = None if self._scope.plan is None else of_task(self._scope.plan, task.name)[1]
        if most is not None and vector.size > most:
            raise SiteRefused(
                f"an answer to the task {task.name!r} would have {vector.size} numbers; by its plan the study asks for at "
                f"most {most}.",
                code="beyond-plan",
            )
        return vector

    def refused(self, task: Task, error: Exception, channel: Channel) -> None:
        """Count it."""
        self._asked.refused(task, self._read_for is task)


# What a study comes to, told before it runs.


def _most_lags(study: Study) -> int:
    """Most lags that edges may have: those given, the most among which one is chosen, or as far as "auto" looks."""
    tried = study.select.grid.get("n_lags", ()) if study.goal == "select" else ()
    if tried:
        return max(int(n) for n in tried)
    for given in (study.parameters.get("n_lags", 1), study.parameters.get("max_lags", 3)):
        if isinstance(given, int):
            return given
    return 3


def costs_in_words(study: Study) -> str:
    """One sentence: what each task of a study with noise costs by itself, and what all of them cost together."""
    costs, privacy = study_costs(study), study.privacy
    each = ", ".join(f"{epsilon:.2g} for {task}" for task, epsilon in costs.items())
    return f"epsilon for each {privacy.unit}: {each}; together {privacy.epsilon:g}, less than their sum"


def check_noise_size(study: Study) -> None:
    """Refuse a study with noise whose largest answer is longer than what noise is added to."""
    if study.privacy.epsilon is None:
        return
    largest = max((ask.numbers for ask in plan_of(study)), default=0)
    if largest > LONGEST:
        raise ParameterError(
            f"privacy.epsilon: noise is added to at most {LONGEST:,} numbers, but one answer of this study has {largest:,}; "
            "name fewer variables or lags, or remove epsilon."
        )
