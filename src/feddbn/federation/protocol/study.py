"""A study: what the sites of a federation agree to compute, as a validated file, and the methods that can run
it.

A study names method, parameters, variables, privacy, sites and what happens when a site is missing. The same
text is read by the person who submits it, by the server and, in the handshake, by every site, which refuses
what it did not agree to. Unknown keys are errors: a misspelt protection must not be silently absent.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import Field, ValidationError, field_validator, model_validator

from feddbn.core.arrays import FloatArray
from feddbn.core.encoding import decode, encode
from feddbn.errors import ParameterError
from feddbn.federation.protocol.goals import CHOSEN_BY_ROWS, GOALS, Compare, Confidence, Goal, Select
from feddbn.federation.protocol.site import SiteState
from feddbn.federation.protocol.task import Federation
from feddbn.federation.protocol.terms import Attendance, Privacy, Strict
from feddbn.method_table import find_method

__all__ = [
    "Attendance",
    "Privacy",
    "Study",
    "StudyMethod",
    "StudyResult",
    "Way",
    "check_goal",
    "check_noise",
    "check_sites",
    "parse_study",
    "personal_result",
    "register_personal_result",
    "register_study_method",
    "study_from_json",
    "study_method",
    "study_methods",
    "wrong_entry",
]

Value = bool | int | float | str | list[Any] | None


class Study(Strict):
    """One study, as written in its TOML file.

    `held_by` says which sites hold a variable, where not all do; `rows` about how many rows all sites have together. Owners
    of data may ask for both: sites check them against what they hold.
    `units` may say in which unit a variable is meant; a site that says another one for its data does not take part.
    The `goal` is a network; how far each of its edges can be trusted; a network whose parameters are chosen on held-out rows;
    or one with a table of how well this and other methods predict such rows. `lead` says who answers for the study; it is
    part of what the owners of the data approve.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")
    method: str
    variables: tuple[str, ...] = Field(min_length=1)
    sites: tuple[str, ...] = Field(min_length=1)
    parameters: dict[str, Value] = Field(default_factory=dict)
    privacy: Privacy = Field(default_factory=Privacy)
    attendance: Attendance = Field(default_factory=Attendance)
    some_variables_may_be_missing: bool = False
    held_by: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    rows: int | None = Field(default=None, ge=1)
    units: dict[str, str] = Field(default_factory=dict)
    goal: Goal = "network"
    confidence: Confidence = Field(default_factory=Confidence)
    select: Select = Field(default_factory=Select)
    compare: Compare = Field(default_factory=Compare)
    lead: str = Field(default="", max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")

    @field_validator("variables", "sites")
    @classmethod
    def _all_different(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) != len(names):
            raise ValueError("a name appears twice")
        return names

    @model_validator(mode="after")
    def _units_of_variables(self) -> Study:
        odd = [name for name in self.units if name not in self.variables]
        if odd:
            raise ValueError(f"units names {odd[0]!r}, which is not one of the variables")
        return self

    @model_validator(mode="after")
    def _tables_of_its_goal(self) -> Study:
        for goal, table in GOALS:
            if goal != self.goal and getattr(self, goal) != table():
                raise ValueError(
                    f"the table [{goal}] is read only with goal = {goal!r}; set that, or remove it"
                )
        return self

    @property
    def methods(self) -> tuple[str, ...]:
        """All methods that it runs."""
        return (self.method, *self.compare.against)

    @property
    def held_out(self) -> tuple[int, int] | None:
        """(blocks, thousandths of the rows) that it holds out, at the end of every recording; None if it does not."""
        if self.goal == "compare":
            return 1, round(1000 * self.compare.share)
        is_open = any(self.parameters.get(name) == "auto" for name in CHOSEN_BY_ROWS)
        if self.goal == "select" or (self.goal == "network" and is_open):
            return self.select.n_blocks, round(1000 * self.select.share)
        return None

    @model_validator(mode="after")
    def _holders(self) -> Study:
        for name, sites in self.held_by.items():
            if name not in self.variables:
                raise ValueError(f"held_by names {name!r}, which is not one of the variables")
            odd = [site for site in sites if site not in self.sites]
            if odd or not sites or len(set(sites)) != len(sites):
                raise ValueError(f"held_by.{name} must name sites of the study, each once")
        if self.held_by and not self.some_variables_may_be_missing:
            raise ValueError("held_by is for studies with some_variables_may_be_missing = true")
        return self

    def variables_of(self, site: str) -> tuple[str, ...]:
        """Return the variables that a site holds by `held_by`, in the study's order."""
        return tuple(name for name in self.variables if site in self.held_by.get(name, self.sites))

    @property
    def sites_per_entry(self) -> int | None:
        """Fewest sites that hold two variables together; None if some may lack one and nobody says which."""
        if self.some_variables_may_be_missing and not self.held_by:
            return None
        held = [set(self.held_by.get(name, self.sites)) for name in self.variables]
        return min(len(first & second) for first in held for second in held)

    @property
    def n_lags(self) -> int | None:
        """Number of lags of its rows, if the parameters fix one; for some methods more than edges have."""
        value = self.parameters.get("n_lags")
        return value * self.lag_reach if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def lag_reach(self) -> int:
        """How many times as far as its edges its rows reach back: what the one of its methods needs that needs most."""
        known = [find_method(name) for name in self.methods]
        return max((method.lag_reach for method in known if method is not None), default=1)

    @property
    def has_curves(self) -> bool:
        """Whether its parameters name functions that effects may have beside straight lines."""
        return self.parameters.get("features", "linear") not in ("linear", "auto")

    def to_json(self) -> str:
        """Return the canonical text: equal studies give equal text."""
        values = self.model_dump(mode="json")
        # A study that uses none of these has the text that it had before there were any.
        for name in ("units", "held_by", "rows"):
            if not values[name]:
                del values[name]
        if self.privacy.max_norm is None:
            del values["privacy"]["max_norm"]
        if self.goal == "network":
            del values["goal"]
        for goal, _ in GOALS:
            if goal != self.goal:
                del values[goal]
        if self.privacy.n_colluding == 1:
            del values["privacy"]["n_colluding"]
        if not self.lead:
            del values["lead"]
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical text."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def parse_study(text: str, source: str = "the study file") -> Study:
    """Return the study written in TOML text."""
    try:
        return _validated(tomllib.loads(text), source)
    except tomllib.TOMLDecodeError as error:
        raise ParameterError(f"{source} is not valid TOML: {error}.") from None


def check_sites(study: Study) -> None:
    """Refuse a study that cannot be run with the number of sites it names, before anything is sent."""
    n, privacy, attendance = len(study.sites), study.privacy, study.attendance
    if privacy.secure_aggregation and n < privacy.min_sites:
        raise ParameterError(
            f"privacy.min_sites = {privacy.min_sites}, but the study names {n} sites; name more sites or lower it."
        )
    if attendance.when_missing == "continue" and n < attendance.min_sites:
        raise ParameterError(
            f"attendance.min_sites = {attendance.min_sites}, but the study names {n} sites; "
            "name more sites or lower it."
        )


def study_from_json(text: str) -> Study:
    """Inverse of `Study.to_json`."""
    try:
        return _validated(json.loads(text), "the study")
    except json.JSONDecodeError:
        raise ParameterError("the study that was sent is not valid JSON.") from None


def _validated(values: object, source: str) -> Study:
    try:
        return Study.model_validate(values)
    except ValidationError as error:
        raise ParameterError(f"{source}: {wrong_entry(error)}.") from None


def wrong_entry(error: ValidationError) -> str:
    """Return the first wrong entry of a file and what is wrong with it, as the end of a sentence."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the whole file"
    known = {
        "extra_forbidden": "is not a known key; remove it or correct its name",
        "string_pattern_mismatch": "use 1 to 40 lower-case letters, digits and '-', a letter or digit first",
    }
    what = known.get(first["type"], first["msg"])
    return f"{where}: {what[0].lower()}{what[1:]}"


@dataclass(frozen=True)
class StudyResult:
    """What a study ends with: named arrays (W, A, ...) and plain values for people and files."""

    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the result as one self-checking message."""
        return encode({"type": "study-result", "summary": dict(self.summary)}, self.arrays)

    @classmethod
    def from_bytes(cls, message: bytes) -> StudyResult:
        """Inverse of `to_bytes`."""
        meta, arrays = decode(message)
        return cls(arrays, meta.get("summary", {}))


Parameters = Mapping[str, Any]
Run = Callable[[Parameters, Federation], StudyResult]
Personal = Callable[[SiteState, StudyResult], Mapping[str, FloatArray]]


@dataclass(frozen=True)
class Way:
    """How a method reaches a goal: ``run(study, federation)``, after ``check(study)`` has refused what cannot be."""

    run: Callable[[Study, Federation], StudyResult]
    check: Callable[[Study], None]


@dataclass(frozen=True)
class StudyMethod:
    """A method that a study can name.

    Attributes
    ----------
    run
        ``(parameters, federation) -> result``; asks for sums only and is deterministic: asked again with the
        same sums it asks the same questions.
    check
        Raises `ParameterError` for impossible parameters; run before anything is sent.
    takes_noise
        Whether it asks only for sums that sites can protect by noise (see `federation.programs.private_moments`).
    goals
        Goal of a study -> how this method reaches it; "network" is `run` itself.
    """

    name: str
    run: Run
    check: Callable[[Parameters], None] = lambda parameters: None
    takes_noise: bool = False
    goals: Mapping[str, Way] = field(default_factory=dict)

    def run_study(self, study: Study, federation: Federation) -> StudyResult:
        """Return what the study asks for."""
        check_goal(study)
        if study.goal == "network":
            return self.run(study.parameters, federation)
        return self.goals[study.goal].run(study, federation)


# What a method must be able to do for a goal, and which sums it takes.
_WORDS = {
    "confidence": ("learn from resampled sums", "resampled sums"),
    "select": ("choose its parameters on held-out rows", "held-out sums"),
    "compare": ("be judged on held-out rows", "held-out sums"),
}
_METHODS: dict[str, StudyMethod] = {}
_PERSONAL: dict[str, Personal] = {}


def register_study_method(method: StudyMethod) -> None:
    """Make a method available to studies under its name."""
    _METHODS[method.name] = method


def register_personal_result(method: str, personal: Personal) -> None:
    """Let sites keep ``personal(state, result)``, named arrays, on their own disk at the end of such a study.

    Apart from `StudyMethod`, because a site needs this and not the method: it never imports the estimators.
    """
    _PERSONAL[method] = personal


def personal_result(method: str) -> Personal | None:
    """Return what a site keeps of a study of this method, or None."""
    return _PERSONAL.get(method)


def study_methods() -> tuple[str, ...]:
    """Return the names of all known methods."""
    return tuple(sorted(_METHODS))


def study_method(name: str) -> StudyMethod:
    """Look up a method by the name a study gives it."""
    try:
        return _METHODS[name]
    except KeyError:
        raise ParameterError(
            f"method {name!r} is not known; this version has: {', '.join(study_methods())}."
        ) from None


def check_goal(study: Study) -> None:
    """Refuse a study whose method cannot reach its goal, with these parameters and this noise."""
    method = study_method(study.method)
    if study.goal == "network":
        method.check(study.parameters)
        return
    way = method.goals.get(study.goal)
    if way is None:
        able = (
            ", ".join(name for name in study_methods() if study.goal in _METHODS[name].goals) or "no method"
        )
        raise ParameterError(
            f"goal = {study.goal!r}: method {study.method!r} cannot {_WORDS[study.goal][0]}; use {able}."
        )
    if study.privacy.epsilon is not None:
        raise ParameterError(
            f"goal = {study.goal!r}: {_WORDS[study.goal][1]} carry no noise; remove epsilon, or leave the study."
        )
    way.check(study)


def check_noise(study: Study) -> None:
    """Refuse a study that promises noise and asks for sums that sites do not protect by noise."""
    if study.privacy.epsilon is None:
        return
    if not study_method(study.method).takes_noise:
        able = ", ".join(name for name in study_methods() if _METHODS[name].takes_noise) or "no method"
        raise ParameterError(
            f"privacy.epsilon: method {study.method!r} asks for sums that carry no noise; use {able}, or "
            "remove epsilon."
        )
    for name in ("smoothing", "center_by"):
        if study.parameters.get(name) is not None:
            raise ParameterError(
                f"privacy.epsilon: {name} = {study.parameters[name]!r} asks for sums that carry no noise; remove {name}, or "
                "remove epsilon."
            )
    if study.privacy.unit == "row" and study.parameters.get("spikes") == "remove":
        raise ParameterError(
            "privacy.unit: it is 'row', but spikes = 'remove' tells what is far by the rows around it; use unit = "
            "'recording', or spikes = 'keep'."
        )
