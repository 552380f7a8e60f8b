"""A study: what the sites of a federation agree to compute, as a validated file.

A study names method, parameters, variables, privacy, sites and what happens when a site is missing. The same
text is read by the person who submits it, by the server and, in the handshake, by every site, which refuses
what it did not agree to. Unknown keys are errors: a misspelt protection must not be silently absent. Below are the methods
that a study can name, what they may be asked for, and what they give back.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from feddbn.core.arrays import FloatArray
from feddbn.core.kinds import Kind
from feddbn.data.kinds import read_kinds
from feddbn.data.times import clock_of
from feddbn.errors import FeddbnError, ParameterError
from feddbn.federation.protocol.encoding import decode, encode
from feddbn.federation.protocol.rows import MOST_BLOCKS
from feddbn.federation.protocol.site import SiteState
from feddbn.federation.protocol.task import Federation
from feddbn.method_table import METHODS, find_method
from feddbn.privacy.policy import Table, usual_threshold, wrong_entry
from feddbn.words import STEERS

MOST_TEXT, MOST_DEPTH = 256 * 1024, 20
"""A study's text is at most so long, and nests so deep: it is read before anybody has approved it."""

# What a study settles besides its question: what it is for, how sums are protected, and what happens when a site is missing.


def _one_line(text: str) -> str:
    """Return a text of a person as one line; what steers a screen is refused."""
    line = " ".join(text.split())
    if STEERS.search(line):
        raise ValueError("has characters that steer a screen; use plain text")
    return line


Line = Annotated[str, AfterValidator(_one_line)]


class About(Table):
    """What the owners of the data read before they sign: what a study is for, whom to ask, how long its result is kept.

    `purpose`, `contact` and `retention` are required of every study that reaches a site; the others are shown as "not
    stated" where they are empty. Each is one line of plain text.
    """

    purpose: Line = Field(default="", max_length=600)
    contact: Line = Field(default="", max_length=200)
    retention: Line = Field(default="", max_length=200)
    legal_basis: Line = Field(default="", max_length=300)
    ethics: Line = Field(default="", max_length=200)
    recipients: Line = Field(default="", max_length=300)
    publication: Line = Field(default="", max_length=300)

    @property
    def unsaid(self) -> tuple[str, ...]:
        """The required entries that are empty."""
        return tuple(name for name in ("purpose", "contact", "retention") if not getattr(self, name))


HIDING_EPSILON, HIDING_DELTA = 1.0, 1e-4
"""Noise up to these hides rows by itself; with weaker noise the rules about rows apply as without any."""


class Privacy(Table):
    """How the sums are protected; `min_sites` is the smallest number of sites whose sum may be opened.

    With `epsilon`, what leaves is (epsilon, delta)-differentially private for each `unit`. `clip` bounds the
    unit's vector; without it the bound is chosen from a noisy histogram, for a tenth of the budget. The noise is enough
    even if `n_colluding` sites tell their own share of it; each site knows its own, so there is always one.

    In masked sums without `epsilon` rows have secret weights, so that results hardly change (`core.designs.weights`);
    ``protection = "exact"`` asks for sums without them.

    `max_norm` is the largest Euclidean norm of any answer: each site keeps a longer one at home, and a sum that is longer
    than its sites can make it ends the run.
    """

    secure_aggregation: bool = False
    protection: Literal["weights", "exact"] = "weights"
    min_sites: int = Field(default=3, ge=2)
    epsilon: float | None = Field(default=None, gt=0)
    delta: float = Field(default=1e-5, gt=0, lt=1)
    unit: Literal["recording", "row"] = "recording"
    clip: float | None = Field(default=None, gt=0)
    n_colluding: int = Field(default=1, ge=1)
    max_norm: float | None = Field(default=None, gt=0, allow_inf_nan=False)

    @property
    def has_weights(self) -> bool:
        """Whether rows have secret weights in its sums."""
        return self.secure_aggregation and self.epsilon is None and self.protection == "weights"

    @property
    def hides_rows(self) -> bool:
        """Whether the noise is enough to do without rules about rows, whose refusals no noise covers."""
        return self.epsilon is not None and self.epsilon <= HIDING_EPSILON and self.delta <= HIDING_DELTA

    @model_validator(mode="after")
    def _norms_without_noise(self) -> Privacy:
        if self.max_norm is not None and self.epsilon is not None:
            raise ValueError(
                "max_norm cannot be combined with epsilon, because whether a site refuses would tell what no noise covers; "
                "use clip, which bounds every unit, or remove one of them"
            )
        return self


class Attendance(Table):
    """What happens when a site does not answer in time.

    `when_missing`: "wait" asks again until `max_wait_s` has passed, also a site whose owner has not decided yet or whose
    disk is full, but a site that says no for good ends the run; "continue" goes on with at least `min_sites`; "abort" stops
    at once. A stopped run can be resumed.

    "collect" is for sites that are never there together: each message waits `window_h` hours for every site to come
    and answer it. If then not all have, the run stops, unless `enough` have: it goes on without the others.
    """

    timeout_s: float = Field(default=60.0, gt=0)
    when_missing: Literal["wait", "continue", "abort", "collect"] = "wait"
    min_sites: int = Field(default=1, ge=1)
    max_wait_s: float = Field(default=600.0, ge=0)
    window_h: float = Field(default=168.0, gt=0, le=8784, allow_inf_nan=False)
    enough: int | None = Field(default=None, ge=1)

    @property
    def collects(self) -> bool:
        """Whether messages wait for sites that come when they can."""
        return self.when_missing == "collect"

    @model_validator(mode="after")
    def _windows_of_collections(self) -> Attendance:
        for name in ("window_h", "enough"):
            if not self.collects and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f'{name} is read only with when_missing = "collect"; set that, or remove {name}'
                )
        return self


# What a study may want beside, or instead of, a network: one table of its file for each goal.

CHOSEN_BY_ROWS = ("n_lags", "lambda_w", "lambda_a", "mu")
"""Parameters that are chosen on held-out rows where they are "auto"."""
Goal = Literal["network", "confidence", "select", "compare", "check"]
# In steps of five per cent: by studies of different shares, recordings of twenty rows differ by a row, too.
Share = Annotated[float, Field(ge=0.05, le=0.5, multiple_of=0.05)]
Number = int | Annotated[float, Field(allow_inf_nan=False)]


class Confidence(Table):
    """How edges are tried out where a study's goal is "confidence": as the arguments of ``feddbn.confidence``."""

    replicates: int = Field(default=100, ge=2, le=10_000)
    level: float = Field(default=0.9, gt=0, lt=1)
    seed: int = Field(default=0, ge=0)


class Select(Table):
    """How parameters are chosen where a study's goal is "select": as the arguments of ``feddbn.select``.

    Without a `grid`, what the method chooses by default is tried.
    """

    grid: dict[str, tuple[Number, ...]] = Field(default_factory=dict)
    n_blocks: int = Field(default=2, ge=1, le=MOST_BLOCKS)
    share: Share = 0.3
    rule: Literal["one-standard-error", "best"] = "one-standard-error"


class Compare(Table):
    """What the study's method is compared with where the goal is "compare", on the last `share` of every recording."""

    against: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = ()
    share: Share = 0.2


GOALS: tuple[tuple[str, type[Table]], ...] = (
    ("confidence", Confidence),
    ("select", Select),
    ("compare", Compare),
)
"""Goals that have a table of their own, and its type."""

Value = bool | int | float | str | list[Any] | dict[str, Any] | None


class Study(Table):
    """One study, as written in its TOML file.

    `rows` says about how many rows all sites have together: owners of data may limit their share.
    `units` may say in which unit a variable is meant, and `step` how far rows are apart; a site that says another one for its
    data does not take part.
    The `goal` is a network; how far each of its edges can be trusted; a network whose parameters are chosen on held-out rows;
    one with a table of how well this and other methods predict such rows; or a check of the data, from which nothing is
    learned. `lead` says who answers for the study, `about` what it is for; both are
    part of what the owners of the data approve. `update_of` names an earlier run of the same question: sites hold new rows
    now, and their sums are added to those of that run.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")
    method: str
    variables: tuple[str, ...] = Field(min_length=1)
    sites: tuple[str, ...] = Field(min_length=1, max_length=1000)
    parameters: dict[str, Value] = Field(default_factory=dict)
    privacy: Privacy = Field(default_factory=Privacy)
    attendance: Attendance = Field(default_factory=Attendance)
    rows: int | None = Field(default=None, ge=1)
    units: dict[str, str] = Field(default_factory=dict)
    step: str = Field(default="", max_length=40)
    goal: Goal = "network"
    confidence: Confidence = Field(default_factory=Confidence)
    select: Select = Field(default_factory=Select)
    compare: Compare = Field(default_factory=Compare)
    lead: str = Field(default="", max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
    about: About = Field(default_factory=About)
    update_of: str = Field(default="", pattern=r"^([a-z0-9][a-z0-9._-]{0,63})?$")

    @field_validator("variables", "sites")
    @classmethod
    def _all_different(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) != len(names):
            raise ValueError("a name appears twice")
        return names

    @model_validator(mode="after")
    def _units_of_variables(self) -> Study:
        odd = self.units.keys() - set(self.variables)
        if odd:
            raise ValueError(f"units names {min(odd)!r}, which is not one of the variables")
        return self

    @model_validator(mode="after")
    def _known_step(self) -> Study:
        if self.step:
            clock_of(self.step, "step")
        return self

    @model_validator(mode="after")
    def _kinds_of_variables(self) -> Study:
        read_kinds(self.parameters.get("kinds"), self.variables)  # type: ignore[arg-type]
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
    def kinds(self) -> dict[str, Kind]:
        """Variable -> its kind, of those for which its parameters declare one."""
        said: Any = self.parameters.get("kinds") or {}
        return dict(zip(said, read_kinds(said, tuple(said)), strict=True))

    def to_json(self) -> str:
        """Return the canonical text: equal studies give equal text."""
        # What a study does not use is not in its text, which people read.
        unused: dict[str, Any] = {goal: True for goal, _ in GOALS if goal != self.goal}
        unused |= dict.fromkeys(
            _unused(self, "units", "step", "rows", "goal", "lead", "about", "update_of"),
            True,
        )
        if self.about != About():
            unused["about"] = _unused(self.about, *About.model_fields)
        unused["privacy"] = _unused(self.privacy, "max_norm", "n_colluding", "protection")
        unused["attendance"] = set() if self.attendance.collects else {"window_h", "enough"}
        values = self.model_dump(mode="json", exclude=unused)
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical text of what owners approve."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def _unused(table: Table, *names: str) -> set[str]:
    """Those of some entries that have their defaults."""
    known = type(table).model_fields
    return {one for one in names if getattr(table, one) == known[one].get_default(call_default_factory=True)}


def parse_study(text: str, source: str = "the study file") -> Study:
    """Return the study written in TOML text; one that does not say what it is for is refused."""
    try:
        study = _read(tomllib.loads, text, source)
    except tomllib.TOMLDecodeError as error:
        raise ParameterError(f"{source} is not valid TOML: {error}.") from None
    check_about(study, source)
    return study


def check_about(study: Study, source: str, refusal: type[FeddbnError] = ParameterError) -> None:
    """Refuse a study that does not say what it is for, whom to ask and how long its result is kept."""
    unsaid = study.about.unsaid
    if unsaid:
        lines = ", ".join(f'{name} = "..."' for name in unsaid)
        raise refusal(
            f"{source} does not say {' and '.join(unsaid)}, which the owners of the data read before they sign; add a table "
            f"[about] with {lines}.",
            code="no-purpose",
        )


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
    fewest = usual_threshold(n, privacy.min_sites) if privacy.secure_aggregation else 1
    if attendance.enough is not None and not fewest <= attendance.enough <= n:
        raise ParameterError(
            f"attendance.enough = {attendance.enough}, but sums of this study need {fewest} to {n} sites; choose one of "
            "these, or remove enough to wait for all."
        )


def study_from_json(text: str) -> Study:
    """Inverse of `Study.to_json`."""
    try:
        return _read(json.loads, text, "the study")
    except json.JSONDecodeError:
        raise ParameterError("the study that was sent is not valid JSON.", code="bad-study") from None


def _read(loads: Callable[[str], object], text: str, source: str) -> Study:
    """Return the study in a text from anybody: one that is too long or too deep costs neither time nor memory."""
    if len(text) > MOST_TEXT:
        raise ParameterError(
            f"{source} has {len(text):,} characters; a study has at most {MOST_TEXT:,}.",
            code="study-too-long",
        )
    try:
        values = loads(text)
        level: list[object] = [values]
        for _ in range(MOST_DEPTH):
            odd = next((one for one in level if isinstance(one, str) and STEERS.search(one)), None)
            if odd is not None:
                raise ParameterError(
                    f"{source}: {odd[:40]!r} has characters that steer a screen; use names that can be read.",
                    code="study-unreadable",
                )
            level = [part for one in level for part in _parts(one)]
        if level:
            raise RecursionError
        return Study.model_validate(values)
    except RecursionError:
        raise ParameterError(
            f"{source} has more than {MOST_DEPTH} lists or tables in each other; a study needs five.",
            code="study-too-deep",
        ) from None
    except ValidationError as error:
        raise ParameterError(f"{source}: {wrong_entry(error)}.") from None


def _parts(value: object) -> Collection[object]:
    return [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()


@dataclass(frozen=True)
class StudyResult:
    """What a study ends with: named arrays (W, A, ...) and plain values for people and files.

    `kept` stays at the server, for an update: it tells more than a result, and is in neither bytes nor messages.
    """

    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the result as one self-checking message."""
        return encode({"type": "study-result", "summary": dict(self.summary)}, self.arrays)

    @classmethod
    def from_bytes(cls, message: bytes) -> StudyResult:
        """Inverse of `to_bytes`."""
        meta, arrays = decode(message)
        return cls(arrays, meta.get("summary", {}))


Parameters = Mapping[str, Any]
RunStudy = Callable[[Parameters, Federation], StudyResult]
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
        Whether it asks only for sums that sites can protect by noise (see `federation.sums.private_moments`).
    goals
        Goal of a study -> how this method reaches it; "network" is `run` itself.
    update
        ``(parameters, federation, kept)``: as `run`, from new rows and what an earlier run kept; None if it cannot.
    """

    name: str
    run: RunStudy
    check: Callable[[Parameters], None] = lambda parameters: None
    takes_noise: bool = False
    goals: Mapping[str, Way] = field(default_factory=dict)
    update: Callable[[Parameters, Federation, Mapping[str, Any]], StudyResult] | None = None

    def run_study(
        self, study: Study, federation: Federation, kept: Mapping[str, Any] | None = None
    ) -> StudyResult:
        """Return what the study asks for; `kept` is what the run that it updates has kept."""
        check_goal(study)
        if study.update_of and self.update is not None:
            return self.update(study.parameters, federation, kept or {})
        if study.goal == "network":
            return self.run(study.parameters, federation)
        return self.goals[study.goal].run(study, federation)


# What a method must be able to do for a goal, and which sums it takes.
_WORDS = {
    "confidence": ("learn from resamples of parts of the rows", "sums of parts of the rows"),
    "select": ("choose its parameters on held-out rows", "held-out sums"),
    "compare": ("be judged on held-out rows", "held-out sums"),
    "check": ("begin with a survey of the data", "sums of the survey"),
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
    if name not in _METHODS:
        raise _unknown(name, study_methods())
    return _METHODS[name]


def check_name(name: str) -> None:
    """Refuse a method that no study can name; read from the method table, before any estimator is imported.

    Studies write `Method.name` and no other: a study has one text, by which the owners of data approve it.
    """
    find_method(name, offered=True)
    known = {*_METHODS, *(row.name for row in METHODS.values() if row.in_studies)}
    if name not in known:
        raise _unknown(name, sorted(known))


def _unknown(name: str, known: Sequence[str]) -> ParameterError:
    row = find_method(name)
    near = [row.name] if row is not None and row.name in known else get_close_matches(name.lower(), known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"this version has: {', '.join(known)}."
    return ParameterError(f"method {name!r} is not known; {hint}")


def check_goal(study: Study) -> None:
    """Refuse a study whose method cannot reach its goal, with these parameters and this noise."""
    method = study_method(study.method)
    if study.update_of:
        check_update(study, [name for name in study_methods() if _METHODS[name].update is not None])
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
    features = study.parameters.get("features", "linear")
    if features not in ("linear", "auto"):
        raise ParameterError(
            f"privacy.epsilon: features = {features!r} asks for sums of curves, which carry no noise; use features = "
            "'linear', or remove epsilon."
        )


# Which studies can be updates of earlier runs.


def check_update(study: Study, able: Sequence[str]) -> None:
    """Refuse an update that is not of sums without noise over all sites of a run; `able` are the methods that can."""
    what = f"update_of = {study.update_of!r}"
    if study.goal != "network" or study.method not in able:
        raise ParameterError(
            f"{what}: new rows are added to networks that were learned from summed moments; use goal = 'network' and "
            f"method = {' or '.join(repr(name) for name in able)}."
        )
    if study.privacy.epsilon is not None:
        raise ParameterError(
            f"{what}: sums with noise are not added up over runs; remove epsilon, or ask about all rows in a study of its "
            "own."
        )
    if study.attendance.when_missing == "continue" or study.attendance.enough is not None:
        raise ParameterError(
            f"{what} needs all sites of that run; use when_missing = 'wait', 'abort' or 'collect', without enough."
        )
