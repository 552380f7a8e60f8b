"""A study tried out without sites, up to its first question: what cannot be is refused before anything is sent.

Some arguments make sense only beside the study's variables and sites: an input that is not among the variables, a forbidden
edge with an unknown name, more clusters than sites. A method looks at these when it begins. So it is begun here, on a
federation that has the names of the study's own and no sites behind them.
"""

from __future__ import annotations

import warnings

from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.study_methods import check_goal, study_method
from feddbn.federation.protocol.task import Federation, Sum, Task
from feddbn.runtime.noisy import noise_aware

__all__ = ["rehearse"]


class _FirstQuestion(BaseException):
    """The method has begun, and would now ask the sites."""


class _NoSites:
    """A federation of the study's names; whoever asks it has passed the rehearsal."""

    answered_tasks: frozenset[str] | None = None

    def __init__(self, study: Study) -> None:
        self.sites = tuple(sorted(study.sites))
        self.variables = study.variables

    def state_of(self, site: str) -> None:
        """Return None: there is no site."""

    def sum(self, task: Task) -> Sum:
        """End the rehearsal."""
        raise _FirstQuestion


def rehearse(study: Study) -> None:
    """Refuse a study whose method would refuse it, with the sentence of the method; nothing is sent.

    An update begins with what an earlier run has kept, which only the server has: of it only the arguments are checked.

    Raises
    ------
    ParameterError
        If the method cannot begin with these parameters, variables and sites.
    """
    check_goal(study)
    if study.update_of:
        return
    federation: Federation = _NoSites(study)
    with warnings.catch_warnings():
        # The run itself will say these again.
        warnings.simplefilter("ignore")
        try:
            if study.privacy.epsilon is not None:
                federation = noise_aware(federation, study)
            study_method(study.method).run_study(study, federation)
        except _FirstQuestion:
            return
