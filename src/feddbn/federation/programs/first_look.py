"""The first look at the data of all sites: how they are, and how many sites do not fit the others."""

from __future__ import annotations

from dataclasses import dataclass

from feddbn.core.statistics.agreement import FEWEST_SITES
from feddbn.federation.programs.survey import Survey, agreement_program, survey_program
from feddbn.federation.programs.wishes import Wishes
from feddbn.federation.protocol.task import ServerProgram

__all__ = ["FirstLook", "first_look_program"]


@dataclass(frozen=True)
class FirstLook:
    """What the first look told.

    Attributes
    ----------
    survey
        How the data are.
    n_disagreeing
        How many sites do not fit the others; None if sites were not compared.
    """

    survey: Survey
    n_disagreeing: int | None = None

    @property
    def has_few_odd(self) -> bool:
        """Whether some sites do not fit, and few: where many do not there are several kinds of sites, and no odd one."""
        return 0 < (self.n_disagreeing or 0) <= self.survey.n_sites / 3


def first_look_program(variables: tuple[str, ...], n_lags: int, wishes: Wishes) -> ServerProgram[FirstLook]:
    """Ask for the survey and, if that is wished for and sites are enough, have every site compare itself."""
    inputs = wishes.input_places(variables)
    survey = yield from survey_program(variables, n_lags, inputs, profiles=wishes.needs_profiles)
    if wishes.on_disagreement == "ignore" or survey.n_sites < FEWEST_SITES:
        return FirstLook(survey)
    return FirstLook(survey, (yield from agreement_program(variables, n_lags, survey, wishes.is_personal)))
