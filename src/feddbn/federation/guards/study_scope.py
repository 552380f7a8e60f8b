"""Which tasks a study asks for, and within which bounds: the one place that knows it from its method and parameters.

The lead's check before a study is sent, an owner's check of a study file and the guard at every task of a deployed site all
read the same answer. A method that the method table does not have is bounded by the site's policy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from feddbn.core.designs.features import N_CURVES, N_SMOOTH
from feddbn.core.orders.search import MOST_WITHOUT_SCREENING
from feddbn.core.statistics.moments import sums_length
from feddbn.core.statistics.survey import FEWEST_SITES, MOST_CYCLES
from feddbn.errors import ParameterError, SiteRefused
from feddbn.federation.programs.bootstrap import FLOATS_PER_TASK
from feddbn.federation.programs.pfdbnl.questions import MOST_PULLS
from feddbn.federation.programs.prepare import AUTO_DEGREES
from feddbn.federation.programs.private_moments import study_costs
from feddbn.federation.programs.survey import SurveyQuestion, survey_length
from feddbn.federation.protocol.site import Channel, Guard, Here
from feddbn.federation.protocol.study import Compare, Study
from feddbn.federation.protocol.task import Scope, Task, task_digest
from feddbn.method_table import find_method
from feddbn.privacy.gaussian import LONGEST
from feddbn.privacy.policy import TRANSFORMATIONS, SitePolicy
from feddbn.settings import flat_names

# What a method asks for only if the data or its other settings call for it.
_PERHAPS = ("agreement", "pairs", "residual-features", "spikes", "summary")
MOST_CLUSTERS = 4
"""As many clusters are tried where their number is left to the data."""
# Methods that act on what residuals say, and so look at them whatever is done to the rows.
_ACT_ON_RESIDUALS = ("oneshot",)
# The first look at the data, and what a study says if it wants none of it; every method looks by default.
_LOOK = ("survey", "spikes", "pairs")
_NO_LOOK = {"gains": "none", "spikes": "keep", "missing": "drop"}
# Parameters of PFDBNL's rounds, and what they are in a study that does not name them; some are chosen on held-out rows.
_ROUNDS = {"mu": 0.5, "lambda_w": 0.05, "lambda_a": 0.05, "w_threshold": 0.2, "a_threshold": 0.2}
_CHOSEN = ("mu", "lambda_w", "lambda_a")
# All that is asked for where noise is promised.
_WITH_NOISE = ("moments", "unit-norms")


def said_by(study: Study) -> dict[str, Any]:
    """What a study says, by the names of settings alone.

    Whether sites compare themselves is never left to what is usual: "auto" is as good as nothing said.
    """
    given = flat_names(study.parameters)
    return {k: v for k, v in given.items() if (k, v) != ("on_disagreement", "auto")}


def tasks_of(study: Study) -> tuple[str, ...]:
    """Return the tasks that a study may ask for, as far as its method and parameters tell; none of an unknown method."""
    if study.goal == "compare":
        plain = study.model_copy(update={"goal": "network", "compare": Compare()})
        own = [tasks_of(plain.model_copy(update={"method": name})) for name in study.methods]
        return tuple(dict.fromkeys([*(task for tasks in own for task in tasks), "held-out-loss"]))
    method = find_method(study.method)
    if method is None:
        return ()
    given = said_by(study)
    compares = given.get("on_disagreement", "ignore") != "ignore"
    if study.goal == "check":
        return ("survey", "agreement") if compares else ("survey",)
    if study.update_of:
        # One sum, of rows that are treated as those before them.
        return ("moments",)
    if study.privacy.epsilon is not None:
        # A bound that is given need not be looked for; one for curved rows is never given.
        left_out = set() if study.privacy.clip is None or study.has_curves else {"unit-norms"}
        scales = ("deviation-shares",) if given.get("spikes") == "remove" else ()
        curved = ("curved-moments",) if study.has_curves else ()
        return (
            *(task for task in method.tasks if task in _WITH_NOISE and task not in left_out),
            *scales,
            *curved,
        )
    further = method.further_tasks
    left_out = {"unit-norms"} | (set() if compares or _looks(given) else {*_LOOK})
    blocks = [task for task in further if task.startswith("block")]
    if blocks:
        # How many blocks there are follows from what the first look tells.
        left_out.discard("survey")
    if not _checks_residuals(method.name, given):
        left_out.add("residual-checks")
        blocks = [task for task in blocks if task != "block-checks"]
    if given.get("schedule", "gram") == "gram" and method.name == "fdbnl":
        # The server makes the steps; it asks for one sum more where sites weigh the same.
        left_out |= {"summary", "fdbnl-step"} if given.get("weighting", "samples") == "samples" else set()
    wanted = [task for task in method.tasks if task not in left_out]
    wanted += ["agreement"] if compares and "agreement" in further else []
    if given.get("features", "linear") != "linear":
        wanted += [task for task in further if task.startswith("curved")]
    wanted += blocks
    if "mixed-moments" in further:
        # Levels are counted where a variable has more than two of them.
        has_more = any(kind.n_levels > 2 for kind in study.kinds.values())
        wanted += [task for task in further if task != "level-counts" or has_more]
    if study.goal == "confidence":
        return *wanted, "bootstrap-moments"
    # In studies the shape of the noise is looked at only if they say so.
    if given.get("use_nongaussian", False) is not False:
        wanted += [task for task in further if task == "residual-features"]
    if method.selects and study.held_out:
        wanted += [task for task in further if task.startswith("held-out")]
    if given.get("n_clusters", 1) != 1 or "n_clusters" in study.select.grid:
        wanted += [task for task in further if task.startswith("cluster")]
    if given.get("different_variables"):
        wanted += [task for task in further if task.startswith("entry")]
    return tuple(dict.fromkeys(wanted))


def check_tasks(policy: SitePolicy, study: Study) -> None:
    """Refuse a study that is sure to ask for what a policy does not list, so that it does not begin in vain."""
    lacking = [task for task in lacking_tasks(policy, study) if task not in _PERHAPS]
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
    policy.check_schedule(
        str(study.parameters.get("schedule", "rounds" if study.method == "pfdbnl" else "gram"))
    )
    feature = study.parameters.get("features", "linear")
    if isinstance(feature, str) and feature not in ("auto", *policy.features):
        raise SiteRefused(
            f"the study sums {feature!r} features; this site's policy lists {', '.join(policy.features)}.",
            code="features-not-allowed",
        )


def lacking_tasks(policy: SitePolicy, study: Study) -> list[str]:
    """Tasks of the study that a policy does not list."""
    return [task for task in tasks_of(study) if task not in policy.tasks]


def scope_of(study: Study, max_lags: int) -> Scope:
    """Return what the questions of a study may be about at a site that allows `max_lags` lags."""
    method, given = find_method(study.method), said_by(study)
    n_blocks, thousandths = study.held_out or (0, 0)
    return Scope(
        tasks=None if method is None else tasks_of(study),
        variables=study.variables,
        sites=tuple(sorted(study.sites)),
        lags=_lags(study, max_lags),
        folds=tuple((block, n_blocks, thousandths) for block in range(n_blocks)),
        transformations=_transformations(study),
        degrees=_degrees(given.get("detrend", "auto")),
        most_cycles=_cycles(given.get("period", "auto")),
        inputs=_inputs(study),
        most_clusters=max(map(_clusters, _values(study, "n_clusters", 1))),
        numbers={name: values for name in _ROUNDS if (values := _numbers(study, name))},
        unit=None if study.privacy.epsilon is None else study.privacy.unit,
        resampling=_resampling(study) if study.goal == "confidence" else {},
        parameters=given,
    )


def _looks(parameters: Mapping[str, Any]) -> bool:
    """Whether a study of these parameters begins with a first look at the data."""
    is_given = parameters.get("period", "auto") != "auto"
    return not is_given or any(parameters.get(name) != value for name, value in _NO_LOOK.items())


def _checks_residuals(method: str, parameters: Mapping[str, Any]) -> bool:
    """Whether a study of these parameters looks at residuals after learning."""
    wanted = parameters.get("check_residuals", "auto")
    if wanted != "auto" or method in _ACT_ON_RESIDUALS:
        return bool(wanted)
    is_partial = parameters.get("different_variables") or parameters.get("site_lags")
    is_paper = parameters.get("schedule") == "paper"
    is_plain = parameters.get("detrend", "auto") == 0 and not parameters.get("period", "auto")
    is_settled = is_plain and parameters.get("center", "auto") != "auto" and not _looks(parameters)
    return not (is_partial or is_paper or is_settled)


def _values(study: Study, name: str, usual: Any) -> list[Any]:
    """What a study gives a parameter: one value, or those it chooses among."""
    tried = study.select.grid.get(name, ()) if study.goal == "select" else ()
    return list(tried) or [study.parameters.get(name, usual)]


def _lags(study: Study, max_lags: int) -> range:
    """Numbers of lags that questions may have; where residuals are checked, one more than the study has."""
    given = _values(study, "n_lags", None)
    is_fixed = all(isinstance(n, int) and not isinstance(n, bool) for n in given)
    first, last = (min(given), max(given) * study.lag_reach) if is_fixed else (0, max_lags)
    tasks = tasks_of(study)
    # Networks without lags are looked at with one, others also with one lag more.
    looks_further = "residual-checks" in tasks or (last == 0 and "block-checks" in tasks)
    return range(first, last + 1 + looks_further)


def _transformations(study: Study) -> tuple[str, ...]:
    """What a study leaves open, or asks for by name; under noise rows stay as they are but for their means."""
    given = said_by(study)
    has_noise = study.privacy.epsilon is not None
    centre = given.get("center", "auto") in ("auto", "recording")
    has_time = bool(given.get("detrend", "auto")), bool(given.get("period", "auto"))
    open_to = {
        "means": centre or any(has_time),
        "trends": has_time[0],
        "cycles": has_time[1],
        "spikes": given.get("spikes", "auto") != "keep"
        and (not has_noise or given.get("spikes") == "remove"),
        "scales": given.get("gains", "auto") != "none" and not has_noise,
        "fill": given.get("missing", "fill") != "drop" and not has_noise,
        "abstain": given.get("on_disagreement", "ignore") in ("exclude", "personal") and not has_noise,
    }
    # A check looks at rows as they are, and at most compares the scales of sites.
    possible = ("scales",) if study.goal == "check" else TRANSFORMATIONS
    return tuple(what for what in possible if open_to[what])


def _degrees(detrend: Any) -> tuple[int, ...]:
    is_number = isinstance(detrend, int) and not isinstance(detrend, bool)
    return (0, detrend) if is_number else AUTO_DEGREES


def _cycles(period: Any) -> int:
    if period is None:
        return 0
    return len(period) if isinstance(period, list) else MOST_CYCLES if isinstance(period, str) else 1


def _clusters(n_clusters: Any) -> int:
    return n_clusters if isinstance(n_clusters, int) else MOST_CLUSTERS


def _numbers(study: Study, name: str) -> tuple[float, ...]:
    """Values that a study comes to; none are known where the method chooses them on held-out rows."""
    if name in _CHOSEN and study.goal == "select" and not study.select.grid:
        return ()
    given = _values(study, name, _ROUNDS[name])
    are_numbers = all(isinstance(value, int | float) for value in given)
    return tuple(float(value) for value in given) if are_numbers else ()


def _inputs(study: Study) -> tuple[int, ...]:
    inputs = said_by(study).get("exogenous")
    named = inputs if isinstance(inputs, list) else []
    return tuple(place for place, name in enumerate(study.variables) if name in named)


def _resampling(study: Study) -> dict[str, Any]:
    how = study.confidence
    is_length = isinstance(how.block_length, int)
    return {
        "replicates": how.replicates,
        "resampling": how.resampling,
        "block_rule": "given" if is_length else how.block_length,
        "block_length": how.block_length if is_length else 0,
        "unit": how.unit,
        "seed": how.seed,
    }


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

    def check(self, task: Task) -> None:
        """Refuse a question that takes something else for granted than those before it."""
        constants = [(one, one.digest) for one in task.question.constants]
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

    def reads(self, here: Here, task: Task) -> tuple[Here, Task]:
        """Everything about the question alone has been checked: a refusal from here on depends on data."""
        self._read_for = task
        return here, task

    def refused(self, task: Task, error: Exception, channel: Channel) -> None:
        """Count it."""
        self._asked.refused(task, self._read_for is task)


# How large the largest answer of a study is and what its noise costs, told before it runs.

_FUNCTIONS = {"spline": N_CURVES, "auto": N_CURVES, "quadratic": 1}


def largest_columns(study: Study) -> int:
    """Columns of a row in the largest sum of products that a study may ask for; functions of a user's own count as one."""
    given, d = said_by(study), len(study.variables)
    n_lags = _most_lags(study)
    lines = d * (n_lags * study.lag_reach + 1)
    if "mixed-moments" in tasks_of(study):
        return lines + (n_lags + 1) * sum(kind.width - 1 for kind in study.kinds.values())
    if "curved-moments" not in tasks_of(study):
        return lines
    features = str(given.get("features"))
    n_functions = N_SMOOTH if features == "spline" and study.privacy.epsilon else _FUNCTIONS.get(features, 1)
    columns = lines * (1 + n_functions)
    if given.get("interactions") and d <= MOST_WITHOUT_SCREENING:
        columns += n_lags * d * (d - 1) // 2
    return columns


def _most_lags(study: Study) -> int:
    """Most lags that edges may have: those given, the most among which one is chosen, or as far as "auto" looks."""
    tried = study.select.grid.get("n_lags", ()) if study.goal == "select" else ()
    if tried:
        return max(int(n) for n in tried)
    for given in (study.parameters.get("n_lags", 1), study.parameters.get("max_lags", 3)):
        if isinstance(given, int):
            return given
    return 3


def size_in_words(study: Study, policy: SitePolicy | None = None) -> str:
    """One sentence: numbers, megabytes, and how many rows a site needs by its policy; under noise rows are not counted."""
    if study.goal == "check":
        return _check_size(study)
    columns = largest_columns(study)
    numbers = sums_length(columns)
    of = "the products"
    if "bootstrap-moments" in tasks_of(study):
        n_resamples = max(1, min(study.confidence.replicates + 1, FLOATS_PER_TASK // numbers))
        numbers, of = numbers * n_resamples, f"for each of {n_resamples} resamples the products"
    size = f"its largest answer has {numbers:,} numbers ({8 * numbers / 1e6:.1f} MB), {of} of {columns} columns of a row"
    if study.privacy.epsilon is not None:
        return size
    rows = round((policy or SitePolicy()).min_rows_per_parameter * columns)
    return f"{size}; a site needs {max(rows, 1):,} rows for it (min_rows_per_parameter)"


def _check_size(study: Study) -> str:
    n_lags = study.parameters.get("n_lags", 1)
    compares = len(study.sites) >= FEWEST_SITES
    question = SurveyQuestion(
        n_lags=n_lags if isinstance(n_lags, int) else 1, variables=study.variables, profiles=compares
    )
    numbers = survey_length(question)
    return f"its largest answer has {numbers:,} numbers ({8 * numbers / 1e6:.1f} MB): counts of cells, spectra, profiles"


def costs_in_words(study: Study) -> str:
    """One sentence: what each task of a study with noise costs by itself, and what all of them cost together."""
    costs, privacy = study_costs(study), study.privacy
    each = ", ".join(f"{epsilon:.2g} for {task}" for task, epsilon in costs.items())
    return f"epsilon for each {privacy.unit}: {each}; together {privacy.epsilon:g}, less than their sum"


def check_noise_size(study: Study) -> None:
    """Refuse a study with noise whose largest answer is longer than what noise is added to."""
    columns = largest_columns(study)
    if study.privacy.epsilon is not None and sums_length(columns) > LONGEST:
        raise ParameterError(
            f"privacy.epsilon: noise is added to at most {LONGEST:,} numbers, but the products of {columns} columns of a row "
            f"are {sums_length(columns):,}; name fewer variables or lags, use features = 'linear', or remove epsilon."
        )
