"""Which questions can be asked together: those that do not wait for a sum, or wait for one that nearly all studies have.

Theory of operation
-------------------
A server program is deterministic, so it can be run as often as one likes. Here it is run on the sums that are known. Where
they end, a question whose sum can be guessed (`Question.usual_sum`: every variable is in view, no site differs from others,
residuals show nothing) is answered with the guess, and the program goes on. The first question without a guess is the last,
but for those that the program says come next in any case (`Task.along`). All of these are sent in one message. The real sums
are then fed to the program in their order: where it asks for something else than was asked ahead, what was asked ahead is
passed over (`recorded.Recorded`), and the run goes on from there.

*Sites that do not fit.* Whether the next sums are without them depends on how many there are. But a site knows by itself
whether it fits, so the question can say "who does not fit stays out" before anybody has counted (`Compared`). Where nobody
differs, or few do, that is the right question. Where many do, none should stay out. In a sum that hides sites the same
question without abstention would then show those who stayed out, by subtraction; the run stops. In the clear no sum hides
anything, and it is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from feddbn.errors import FederationError
from feddbn.federation.guards.study_plan import plan_of, scope_of
from feddbn.federation.protocol.messages import MOST_TASKS, Entry, digest_of
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.study import Study, StudyResult, study_method
from feddbn.federation.protocol.task import Federation, Sum, Task, fewest_sites, of_task
from feddbn.federation.sums.gram import FLOATS_PER_TASK
from feddbn.federation.sums.in_view import FewerVariables, with_what_is_in_view
from feddbn.federation.sums.survey import AgreementQuestion
from feddbn.method_table import find_method
from feddbn.runtime.server.recorded import Recorded, sites_in_a_number


def asks_together(study: Study) -> bool:
    """Whether questions of a study are asked together: not under masks, which hide one sum each, or where noise is booked."""
    privacy = study.privacy
    return (
        not privacy.secure_aggregation and privacy.epsilon is None and find_method(study.method) is not None
    )


def next_questions(
    study: Study, recorded: Sequence[Entry] = (), kept: Mapping[str, Any] | None = None
) -> list[Task]:
    """Return the questions that can be asked now, in order; none if the program has come to its end.

    `recorded` are the sums so far, `kept` is what the run that the study updates has kept.
    """
    federation = _Foreseen(study, recorded)
    with np.errstate(all="ignore"):
        try:
            run_method(study, federation, kept)
        except _Enough:
            pass
        except Exception:
            # A guess may lead to where nothing can be learned; what was asked before that is asked.
            if not federation.tasks:
                raise
    return federation.tasks


def run_method(study: Study, federation: Federation, kept: Mapping[str, Any] | None) -> StudyResult:
    """Return the result of a study: what is in view first, then its method's program."""
    if asks_together(study):
        federation = Compared(federation, study)
    federation, study = _in_view(federation, study, kept)
    return study_method(study.method).run_study(study, federation, kept)


def _in_view(
    federation: Federation, study: Study, kept: Mapping[str, Any] | None
) -> tuple[Federation, Study]:
    """Leave out of a study what few sites, or few rows of a site, would be seen by; an update has the variables it had."""
    if find_method(study.method) is None:
        return federation, study
    if kept is None:
        # Where rows have times of their own there are no lags.
        n_lags = min(1, study.lag_reach) if study.n_lags is None else study.n_lags
        federation = with_what_is_in_view(federation, n_lags)
    else:
        names = tuple(kept["sums"]["variables"])
        federation = FewerVariables(federation, names, ()) if names != study.variables else federation
    names = federation.variables
    if names == study.variables:
        return federation, study
    parameters = dict(study.parameters)
    kinds = parameters.get("kinds")
    if isinstance(kinds, dict):
        parameters["kinds"] = {name: kind for name, kind in kinds.items() if name in names}
    prepare = parameters.get("prepare")
    if isinstance(prepare, dict):
        parameters["prepare"] = prepare = dict(prepare)
    for given in (parameters, prepare if isinstance(prepare, dict) else {}):
        for key in ("exogenous", "prepare.exogenous"):
            inputs = given.get(key)
            if isinstance(inputs, list):
                given[key] = [name for name in inputs if name in names]
    return federation, study.model_copy(update={"variables": names, "parameters": parameters})


class Compared:
    """A federation in which sites that have compared themselves stay out if they do not fit, counted or not.

    So what comes after the comparison can be asked along with it.
    """

    def __init__(self, federation: Federation, study: Study) -> None:
        self._federation = federation
        self._leaves_out = "abstain" in scope_of(study, 0).transformations
        self._hides_sites = study.privacy.is_protected
        self._n_odd: int | None = None

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return self._federation.sites

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of what they measure."""
        return self._federation.variables

    @property
    def answered_tasks(self) -> frozenset[str] | None:
        """Names of the tasks they answer."""
        return self._federation.answered_tasks

    @property
    def fewest_sites(self) -> int | None:
        """How many sites every number must rest on."""
        return fewest_sites(self._federation)

    def state_of(self, site: str) -> Mapping[str, np.ndarray] | None:
        """Return the state of a site of this process."""
        return self._federation.state_of(site)

    def sum(self, task: Task) -> Sum:
        """Return the sum; of rows without those sites that do not fit, if sites were compared."""
        answer = self._federation.sum(replace(self._told(task), along=tuple(map(self._told, task.along))))
        if self._leaves_out and isinstance(task.question, AgreementQuestion):
            self._n_odd = round(float(answer.value[0]))
        return answer

    def _told(self, task: Task) -> Task:
        """The task with what sites that do not fit are told."""
        question = task.question
        if self._n_odd is not None and isinstance(question, RowsQuestion) and _is_without_odd_sites(question):
            if self._n_odd == 0:
                return replace(task, question=replace(question, abstain=True))
            if self._hides_sites and not question.abstain:
                raise FederationError(
                    f"{self._n_odd} of {len(self.sites)} sites do not fit the others, and have stayed out of a sum that was "
                    "asked for before they were counted. They are too many to be left out, and a second sum with them would "
                    "show them. Begin a new study with prepare.on_disagreement = 'warn' or 'ignore', or one for each kind of "
                    "sites.",
                    code="many-disagree",
                )
        return task


def _is_without_odd_sites(question: RowsQuestion) -> bool:
    """Whether a question is one of those that sites which do not fit stay out of."""
    return not question.is_look and not question.kinds


class _Enough(BaseException):
    """The next question cannot be known yet."""


class _Foreseen:
    """A federation of the study's names that has the sums so far, and guesses."""

    answered_tasks: frozenset[str] | None = None

    def __init__(self, study: Study, recorded: Sequence[Entry]) -> None:
        self.sites = tuple(sorted(study.sites))
        self.variables = study.variables
        self.fewest_sites = sites_in_a_number(study)
        self.tasks: list[Task] = []
        self._plan = plan_of(study)
        self._recorded = Recorded(study.name, recorded)
        self._room = FLOATS_PER_TASK

    def state_of(self, site: str) -> None:
        """Return None: there is no site."""

    def sum(self, task: Task) -> Sum:
        """Return a sum that is known, or the usual one; else end."""
        if not self.tasks:
            known = self._recorded.recall(digest_of(task))
            if known is not None:
                return known
        self._add(task)
        usual = task.question.usual_sum(len(self.sites))
        if usual is not None and task.participants is None:
            return Sum(usual, self.sites)
        for one in task.along if task.participants is None else ():
            self._add(one)
        raise _Enough

    def _add(self, task: Task) -> None:
        """Ask for one more, if there is room for its answer and it asks all sites."""
        self._room -= of_task(self._plan, task.name)[1]
        is_too_much = self._room < 0 or len(self.tasks) >= MOST_TASKS
        if self.tasks and (is_too_much or task.participants is not None):
            raise _Enough
        self.tasks.append(task)
