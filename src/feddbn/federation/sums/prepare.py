"""What is done to the rows before anything is learned from them: the settings that every method shares."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from feddbn.core.designs.cells import CELL_MAPS
from feddbn.core.designs.design import finite_numbers
from feddbn.core.statistics.survey import FEWEST_SITES
from feddbn.federation.protocol.rows import Treatment
from feddbn.federation.sums.survey import Survey
from feddbn.model.definitions import read_definitions, without_defined
from feddbn.settings import (
    MethodSettings,
    Rule,
    Settings,
    group,
    names_of_variables,
    nothing,
    number,
    setting,
    several,
    whole,
    word,
)

AUTO_DEGREES = (0, 1, 3)
"""Polynomials in time that "auto" tries."""
_ROWS_PER_PARAMETER = 8.0
_LOOK_TASKS = frozenset(("survey.first", "agree", "gram.pairs"))


@dataclass(frozen=True, repr=False)
class Prepare(Settings):
    """What is done to the rows first; "auto" leaves it to the evidence, or to what is usual for a method.

    Examples
    --------
    >>> import feddbn
    >>> feddbn.OneShotDBN(prepare=feddbn.Prepare(robust="off", period=24))
    OneShotDBN(prepare=Prepare(period=24, robust='off'))
    """

    center: str = setting(
        "auto",
        word("auto", "none", "recording"),
        '"none": one mean for all rows. "recording": subtract the mean of every recording. "auto": decide by the data.',
    )
    detrend: int | str = setting(
        "auto",
        whole(0) | word("auto"),
        'Degree of the polynomial in time that is subtracted from every recording. 0: none. "auto": decide by the data.',
    )
    period: float | Sequence[float] | str | None = setting(
        "auto",
        number(2.0) | several(number(2.0), "a list of such numbers") | nothing() | word("auto"),
        'Length of one or several cycles that are subtracted from every recording, in rows. None: no cycle. "auto": find '
        "cycles in spectra.",
    )
    gains: str = setting(
        "auto",
        word("auto", "none", "site"),
        '"site": scale the variables of every site to common standard deviations. "none": do not. "auto": decide by the '
        'data (PFDBNL: "none").',
    )
    robust: str = setting(
        "auto",
        word("auto", "off"),
        '"auto": cells more than 5 robust standard deviations from their recording\'s median get less weight, beyond 10 '
        'none. "off": use all cells unchanged.',
    )
    missing: str = setting(
        "auto",
        word("auto", "fill", "drop"),
        '"fill": use the cells that a row with gaps has. "drop": leave out rows with empty cells. "auto": "fill" '
        '(ChangingDBN, MixedDBN: "drop").',
    )
    scale: str = setting(
        "auto",
        word("auto", "none", "federated"),
        '"federated": scale variables to unit variance for learning. "none": do not. "auto": methods with penalties scale '
        "if units clearly differ, others never. Weights are always in the units of the data.",
    )
    on_disagreement: str = setting(
        "auto",
        word("auto", "exclude", "personal", "warn", "ignore"),
        'What happens to a site whose data do not fit the others. "exclude": leave it out. "personal": leave it out and '
        'learn a network for it alone. "warn": only count such sites. "ignore": do not check. "auto": "exclude" (PFDBNL: '
        '"warn").',
    )
    exogenous: Sequence[str] | None = setting(
        None,
        names_of_variables(),
        "Names of known inputs, which only act on others. Their values do not influence the settings above.",
    )
    empty_values: float | Sequence[float] | None = setting(
        None,
        CELL_MAPS["empty_values"][1] | nothing(),
        "One or several values that mean an empty cell, such as -999. None: there are none.",
    )
    made_up: Mapping[str, str] | None = setting(
        None,
        CELL_MAPS["made_up"][1] | nothing(),
        'Variables with filled-in values, which become empty again. ``{"temp": "lines"}`` empties cells on the straight '
        'line between their neighbours; "repeats" empties cells that repeat the one before.',
    )
    definitions: Mapping[str, str] | None = setting(
        None,
        Rule(
            lambda value: value is None or isinstance(value, Mapping),
            ("formulas by names of variables", "None"),
        ),
        'Variables that are computed from others, with their formulas: ``{"map": "(sbp + 2 dbp) / 3"}``. Learning leaves '
        "them out; forecasts show them.",
    )
    noisy: ClassVar[bool] = False
    """Whether sums carry noise: then nothing is looked at."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None and not isinstance(value, (str, int, float, Mapping)):
                object.__setattr__(self, one.name, tuple(np.asarray(value).tolist()))
        if self.definitions is not None:
            read_definitions(self.definitions)
            object.__setattr__(self, "definitions", dict(self.definitions))

    def learned(self, variables: Sequence[str]) -> tuple[str, ...]:
        """The variables without those that are defined by others."""
        return without_defined(self.definitions, variables) if self.definitions else tuple(variables)

    def keys(self) -> list[str]:
        """Names of the fields that are not at their defaults, as in ``{**AS_THEY_ARE}``."""
        return [one.name for one in fields(self) if getattr(self, one.name) != one.default]

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    @property
    def given(self) -> Treatment:
        """What is done to cells by name, whatever they look like: also before the first look."""
        maps = {name: getattr(self, name) for name in CELL_MAPS}
        texts = (f"{name}={json.dumps(value)}" for name, value in maps.items() if value is not None)
        return Treatment(cell_maps=tuple(texts))

    @property
    def periods(self) -> tuple[float, ...] | str:
        """The cycles: none, one, several, or "auto"."""
        if isinstance(self.period, str):
            return self.period
        if self.period is None:
            return ()
        return finite_numbers(
            [self.period] if isinstance(self.period, (int, float)) else list(self.period), "period"
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the variables that only act on others."""
        return tuple(self.exogenous or ())

    def input_places(self, variables: Sequence[str]) -> tuple[int, ...]:
        """Positions of the inputs among the variables."""
        return tuple(j for j, name in enumerate(variables) if name in self.inputs)

    @property
    def fills(self) -> bool:
        """Whether rows with empty cells are used for what they hold."""
        return self.missing != "drop"

    @property
    def needs_survey(self) -> bool:
        """Whether anything is left to the data beyond levels and trends, which one sum tells."""
        if self.noisy:
            return False
        is_open = "auto" in (self.period, self.gains, self.robust) or self.gains == "site"
        return is_open or self.fills or self.on_disagreement != "ignore"

    @property
    def profiles(self) -> str:
        """By what sites have to be compared: by their scales, or also by correlations to find one that does not fit."""
        if self.on_disagreement != "ignore":
            return "whole"
        return "none" if self.gains == "none" else "scales"

    @property
    def leaves_out(self) -> bool:
        """Whether a site that does not fit stays out of the sums."""
        return self.on_disagreement in ("auto", "exclude", "personal")

    @property
    def is_personal(self) -> bool:
        """Whether a site that stays out is to have a network of its own."""
        return self.on_disagreement == "personal"

    def resolved(self, **auto: Any) -> Prepare:
        """The same with what "auto" means for a method, where that does not leave it to the evidence."""
        usual = {"missing": "fill", "on_disagreement": "exclude", **auto}
        found = {name: value for name, value in usual.items() if getattr(self, name) == "auto"}
        return replace(self, **found)

    def among(self, n_sites: int) -> Prepare:
        """The same for a federation of this size: few sites are not compared, as sums and squares would tell them apart."""
        if n_sites >= FEWEST_SITES:
            return self
        gains = "none" if self.gains == "auto" else self.gains
        return replace(self, gains=gains, on_disagreement="ignore")

    def answered_by(self, tasks: frozenset[str] | None, *, is_by_row: bool = False) -> Prepare:
        """The same without what sites that answer only these tasks would have to be asked.

        Under differential privacy noise is fitted to one matrix of products, so all that has to be found out stays open.
        Robust rows have medians of recordings; where single rows are protected (`is_by_row`) there are none.
        """
        if tasks is None or tasks >= _LOOK_TASKS:
            return self
        settled = {
            "center": "none" if self.center == "auto" else self.center,
            "detrend": 0 if self.detrend == "auto" else self.detrend,
            "period": () if isinstance(self.period, str) else self.period,
            "gains": "none",
            "robust": "off" if is_by_row else self.robust,
            "missing": "drop",
            "on_disagreement": "ignore",
        }
        return _UnderNoise(**{one.name: getattr(self, one.name) for one in fields(self)} | settled)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to find out, and nothing but centring to be done."""
        is_plain = self.center != "auto" and self.detrend == 0 and self.periods == ()
        is_plain = is_plain and not (self.noisy and self.robust == "auto") and not self.given.done_to_rows
        return is_plain and not self.needs_survey

    @property
    def is_given(self) -> bool:
        """Whether recordings are to lose a nuisance of their own in any case."""
        return self.center == "recording" or self.has_time

    @property
    def has_time(self) -> bool:
        """Whether a trend or cycle is wished for by name."""
        return self.detrend not in (0, "auto") or (self.period != "auto" and bool(self.periods))

    def tried(self, survey: Survey | None) -> tuple[list[tuple[int, int]], tuple[float, ...]]:
        """(degree, number of cycles) of each nuisance to try, and the cycles; nothing if nothing is open."""
        wanted = self.periods
        given = not isinstance(wanted, str)
        periods = wanted if not isinstance(wanted, str) else (survey.periods if survey else ())
        degrees = AUTO_DEGREES if self.detrend == "auto" else (int(self.detrend),)
        if self.center == "none" and not self.has_time:
            # One mean for all is asked for by name, and trends and cycles are of recordings.
            return [], ()
        counts = [len(periods)] if given else list(range(len(periods) + 1))
        pairs = [(degree, n) for n in counts for degree in degrees]
        if survey is not None:
            length = survey.n_rows / max(survey.n_recordings, 1.0)
            few = [(k, n) for k, n in pairs if (1 + k + 2 * n) * _ROWS_PER_PARAMETER <= length]
            pairs = few or pairs[:1]
        return pairs, periods


@dataclass(frozen=True, repr=False)
class _UnderNoise(Prepare):
    """Preprocessing where every sum carries noise."""

    noisy: ClassVar[bool] = True


AS_THEY_ARE = Prepare(
    center="none",
    detrend=0,
    period=None,
    gains="none",
    robust="off",
    missing="drop",
    on_disagreement="ignore",
)
"""Rows are used as they are: nothing is looked for, and no sum is spent on it."""


@dataclass(frozen=True, repr=False)
class PreparedSettings(MethodSettings):
    """Base of the settings of a method that may do something to the rows first.

    `auto` has what "auto" means for the method, `may_be` what fields of `Prepare` are restricted to.
    """

    prepare: Prepare = setting(
        Prepare(),
        group(Prepare),
        "How rows are prepared first (`feddbn.Prepare`, docs/preparing-data.md).",
    )
    auto: ClassVar[Mapping[str, Any]] = {"scale": "none"}
    may_be: ClassVar[Mapping[str, Rule]] = {
        "center": word("auto", "none", "recording"),
        "scale": word("auto", "none"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for one in fields(self.prepare):
            rule = self.may_be.get(one.name)
            if rule is not None:
                rule.check(f"prepare.{one.name}", getattr(self.prepare, one.name))

    @property
    def rows(self) -> Prepare:
        """What is done to the rows, with what "auto" means here."""
        return self.prepare.resolved(**self.auto)
