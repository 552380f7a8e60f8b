"""The methods that a study can name, what they may be asked for, and what they give back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.encoding import decode, encode
from feddbn.errors import ParameterError
from feddbn.federation.protocol.site import SiteState
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Federation
from feddbn.method_table import METHODS, find_method
from feddbn.settings import flat_names


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
    "confidence": ("learn from resampled sums", "resampled sums"),
    "select": ("choose its parameters on held-out rows", "held-out sums"),
    "compare": ("be judged on held-out rows", "held-out sums"),
    "check": ("begin with a first look at the data", "sums of the first look"),
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
    if study.privacy.unit == "row" and flat_names(study.parameters).get("spikes") == "remove":
        raise ParameterError(
            "privacy.unit: it is 'row', but spikes = 'remove' tells what is far by the rows around it; use unit = "
            "'recording', or spikes = 'keep'."
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
