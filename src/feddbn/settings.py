"""Settings: what a person may choose, said once, and read by whoever needs it.

A settings class is a frozen dataclass. Each field has a default, a rule and a line of explanation, and from these come the
signature of the estimator, its checks, ``-p`` at the command line, the keys of a study and the table in the docs::

    @dataclass(frozen=True)
    class LatentSettings(MethodSettings):
        n_lags: int = setting(1, whole(0), "Largest lag of an edge.")
        prepare: Prepare = setting(Prepare(), group(Prepare), "What is done to the rows first.")

    class LatentDBN(DBNEstimator):
        @takes(LatentSettings)
        def __init__(self) -> None: ...

A rule is a test and the words that complete "n_lags='two' must be ...". Rules combine by ``|``. What concerns several
settings together is said in the class's `__post_init__`, after ``super().__post_init__()``.

Settings may hold settings (`Prepare`). Their fields are named with a dot (``prepare.center``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from inspect import Parameter, Signature
from textwrap import wrap
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import numpy as np

from feddbn.errors import Given, ParameterError

__all__ = [
    "GROUPS",
    "MethodSettings",
    "Rule",
    "Settings",
    "a_federation",
    "by_variable",
    "edges",
    "flag",
    "flat_names",
    "function",
    "group",
    "in_order",
    "is_federation",
    "is_number",
    "names_of_variables",
    "nothing",
    "number",
    "setting",
    "several",
    "share_or_count",
    "shown",
    "takes",
    "text",
    "whole",
    "with_parameters",
    "word",
]

GROUPS = ("prepare", "rounds")
"""Settings that hold settings, of all methods."""
_LONGEST = 60
_LAST = {"prepare": 1, "federation": 2}
P = ParamSpec("P")
S = TypeVar("S", bound="Settings")


@dataclass(frozen=True)
class Rule:
    """A test of a value, and in words what passes it; `is_choice` if only some words pass."""

    holds: Callable[[Any], bool]
    passing: tuple[str, ...]
    is_choice: bool = False

    def __or__(self, other: Rule) -> Rule:
        return Rule(
            lambda value: self.holds(value) or other.holds(value),
            self.passing + other.passing,
            self.is_choice and other.is_choice,
        )

    def check(self, name: str, value: Any) -> Any:
        """Return a value that passes, a number of numpy's as Python's own; refuse another."""
        if self.holds(value):
            return value.item() if isinstance(value, np.generic) else value
        *others, last = self.passing
        words = f"{', '.join(others)} or {last}" if others else last
        verb = "is not known; choose" if self.is_choice else "must be"
        given = Given(name, value) if isinstance(value, (str, int, float)) else f"{name}={shown(value)}"
        raise ParameterError(f"{given} {verb} {words}.", argument=name)


def shown(value: object) -> str:
    """Return a value as code on one line, cut if it is long."""
    line = " ".join(repr(value).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def whole(least: int, most: int | None = None) -> Rule:
    """Whole numbers from `least`, and up to `most` if that is given."""
    words = (
        f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"
    )
    return Rule(
        lambda value: _is_whole(value) and least <= value and (most is None or value <= most), (words,)
    )


def number(
    least: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
    most: float | None = None,
    finite: bool = True,
) -> Rule:
    """Numbers between bounds; infinity only with ``finite=False``."""

    def holds(value: Any) -> bool:
        return is_number(value, finite) and bool(
            (least is None or value >= least)
            and (above is None or value > above)
            and (below is None or value < below)
            and (most is None or value <= most)
        )

    return Rule(holds, (_bounds(least, above, below, most),))


def _bounds(least: float | None, above: float | None, below: float | None, most: float | None) -> str:
    if below is not None or most is not None:
        low, high = (least if above is None else above), (most if below is None else below)
        return f"a number in {'[' if above is None else '('}{low:g}, {high:g}{']' if below is None else ')'}"
    if above == 0:
        return "a positive number"
    if above is None and least is None:
        return "a number"
    return f"a number above {above:g}" if above is not None else f"a number of at least {least:g}"


def word(*choices: str) -> Rule:
    """One of some words."""
    passing = tuple(repr(choice) for choice in choices)
    return Rule(lambda value: isinstance(value, str) and value in choices, passing, is_choice=True)


def text(*what: str) -> Rule:
    """Any text, said to be one of `what`."""
    return Rule(lambda value: isinstance(value, str) and bool(value), what)


def flag() -> Rule:
    """True or False."""
    return Rule(lambda value: isinstance(value, (bool, np.bool_)), ("True", "False"))


def nothing() -> Rule:
    """None."""
    return Rule(lambda value: value is None, ("None",))


def function(what: str) -> Rule:
    """Something that can be called."""
    return Rule(callable, (what,))


def several(one: Rule, what: str) -> Rule:
    """Lists of values that pass a rule."""

    def holds(value: Any) -> bool:
        is_list = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))
        return is_list and all(one.holds(item) for item in value)

    return Rule(holds, (what,))


def by_variable(one: Rule, what: str) -> Rule:
    """Values that pass a rule, by names of variables."""

    def holds(value: Any) -> bool:
        return isinstance(value, Mapping) and all(
            isinstance(k, str) and one.holds(v) for k, v in value.items()
        )

    return Rule(holds, (what,))


def share_or_count() -> Rule:
    """A share of the sites, or how many of them."""
    share = number(above=0, most=1)
    return Rule(
        lambda value: value >= 1 if _is_whole(value) else share.holds(value),
        ("a share in (0, 1] (as 0.5)", "a whole number of sites (as 3)"),
    )


def edges() -> Rule:
    """Lists of edges, or None; what is in them is checked when the variables are known."""

    def holds(value: Any) -> bool:
        return value is None or (isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)))

    return Rule(holds, ("a list of edges (from, to, lag)", "None"))


def names_of_variables() -> Rule:
    """Lists of different names, or None; whether variables have them is checked when these are known."""

    def holds(value: Any) -> bool:
        if value is None:
            return True
        if not isinstance(value, (Sequence, np.ndarray)) or isinstance(value, (str, bytes)):
            return False
        return all(isinstance(name, str) for name in value) and len(set(value)) == len(value)

    return Rule(holds, ("a list of different names of variables", "None"))


def a_federation() -> Rule:
    """Where sums are made, or None."""
    return Rule(
        lambda value: value is None or is_federation(value), ("a federation (see feddbn.runtime)", "None")
    )


def is_federation(value: object) -> bool:
    """Whether a value offers all that a federation has to (`feddbn.federation.protocol.task.Federation`)."""
    return all(hasattr(value, part) for part in ("sites", "variables", "answered_tasks", "state_of", "sum"))


def is_number(value: Any, finite: bool = True) -> bool:
    """Whether a value is one real number, no bool and not NaN; infinity only if it need not be finite."""
    is_real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return is_real and bool(value == value and (not finite or abs(value) < math.inf))


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def group(kind: type[Settings]) -> Rule:
    """Settings that belong together, such as `Prepare`."""
    return Rule(lambda value: isinstance(value, kind), (f"settings {kind.__name__}(...)",))


def setting(default: Any, rule: Rule, about: str, *, kw_only: bool = True) -> Any:
    """A field of a settings class: its default, what it may be, and what it is for."""
    return field(default=default, kw_only=kw_only, metadata={"rule": rule, "about": about})


@dataclass(frozen=True, repr=False)
class Settings:
    """Base of all settings: whatever is made is checked."""

    def __post_init__(self) -> None:
        for one in fields(self):
            # Numpy's numbers do not travel in tasks.
            value = one.metadata["rule"].check(one.name, getattr(self, one.name))
            object.__setattr__(self, one.name, value)

    @classmethod
    def groups(cls) -> dict[str, Settings]:
        """Fields that hold settings themselves, with their defaults."""
        return {one.name: one.default for one in fields(cls) if isinstance(one.default, Settings)}

    @classmethod
    def given_names(cls) -> tuple[str, ...]:
        """Every name a person may give, those of groups with a dot: of ``-p``, of a study, of the docs."""
        return tuple(name for name, _ in cls._explained())

    @classmethod
    def _explained(cls) -> Iterator[tuple[str, str]]:
        """Names with what they are for, in the order of the signature."""
        for one in in_order(cls):
            if isinstance(one.default, Settings):
                yield from ((f"{one.name}.{inner}", about) for inner, about in one.default._explained())
            elif one.name != "federation":
                yield one.name, one.metadata["about"]

    def to_dict(self) -> dict[str, Any]:
        """Every value by its name in `names`."""
        return {name: _deep(self, name) for name in self.given_names()}

    @classmethod
    def explained(cls) -> str:
        """The parameters as a docstring explains them."""
        lines = ["    Parameters", "    ----------"]
        for one in in_order(cls):
            lines += [
                f"    {one.name}",
                *wrap(one.metadata["about"], 116, initial_indent=8 * " ", subsequent_indent=8 * " "),
            ]
        return "\n".join(lines)

    @classmethod
    def named(cls, given: Mapping[str, Any], owner: str) -> dict[str, Any]:
        """Return the values by their names in `given_names`: those of groups may be given with a dot or nested.

        Values are not checked here. A name that is not known raises ParameterError with the nearest one.
        """
        groups = cls.groups()
        found: dict[str, Any] = {}
        flat_names(given, tuple(groups))
        for name, value in given.items():
            room, _, inner = name.rpartition(".")
            if name in groups and isinstance(value, Mapping):
                kind = type(groups[name])
                found |= {f"{name}.{one}": each for one, each in kind.named(value, kind.__name__).items()}
            elif name in _field_names(cls) or (room in groups and inner in _field_names(groups[room])):
                found[name] = value
            else:
                raise ParameterError(
                    f"{owner} has no setting {name!r}; {cls._nearest(name)}", code="no-such-setting"
                )
        return found

    @classmethod
    def completed(
        cls, given: Mapping[str, Any], owner: str, now: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return a value for every field from names as `named` takes them; others are as `now`, or have their defaults."""
        values: dict[str, Any] = dict(now or {one.name: one.default for one in fields(cls)})
        named = cls.named(given, owner)
        values |= {name: value for name, value in named.items() if "." not in name}
        inner: dict[str, dict[str, Any]] = {}
        for name, value in named.items():
            if "." in name:
                room, _, field_name = name.rpartition(".")
                inner.setdefault(room, {})[field_name] = value
        for room, changed in inner.items():
            cls._rule(room).check(room, values[room])
            values[room] = replace(values[room], **changed)
        return values

    def but(self, given: Mapping[str, Any], owner: str = "") -> Self:
        """The same with other values for some names."""
        now = {one.name: getattr(self, one.name) for one in fields(self)}
        return type(self)(**self.completed(given, owner or type(self).__name__, now=now))

    @classmethod
    def _rule(cls, name: str) -> Rule:
        found: Rule = next(one.metadata["rule"] for one in fields(cls) if one.name == name)
        return found

    @classmethod
    def check_value(cls, name: str, value: object) -> None:
        """Refuse a value that a field, or one of a group by its dotted name, cannot have."""
        room, _, inner = name.rpartition(".")
        kind = type(cls.groups()[room]) if room else cls
        kind._rule(inner or name).check(name, value)

    def __repr__(self) -> str:
        """What differs from the defaults."""
        changed = [
            f"{one.name}={getattr(self, one.name)!r}"
            for one in in_order(type(self))
            if getattr(self, one.name) != one.default
            and not (one.default is None and getattr(self, one.name) == {})
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    @classmethod
    def _nearest(cls, name: str) -> str:
        known = cls.given_names()
        near = [one for one in known if one.rpartition(".")[2] == name] or get_close_matches(name, known, n=1)
        return f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}."


@dataclass(frozen=True, repr=False)
class MethodSettings(Settings):
    """Base of the settings of a method; the place where sums are made is no choice about the model and does not travel."""

    federation: Any = setting(
        None, a_federation(), "Where the sums are made; None simulates the sites in this process."
    )


def takes(
    settings: Callable[P, Settings],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Return a decorator of an empty ``__init__``: it takes the fields of `settings` and stores them, unchecked, on itself.

    A fit checks them (scikit-learn's convention), as ``settings(**values)``.
    """
    kind: Any = settings
    parameters = [Parameter("self", Parameter.POSITIONAL_ONLY)]
    for one in in_order(kind):
        how = Parameter.KEYWORD_ONLY if one.kw_only else Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(Parameter(one.name, how, default=one.default, annotation=one.type))
    positional = [one.name for one in parameters[1:] if one.kind is Parameter.POSITIONAL_OR_KEYWORD]

    def decorate(_: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        def __init__(self: Any, /, *args: P.args, **given: P.kwargs) -> None:  # noqa: N807
            owner = type(self).__name__
            if len(args) > len(positional):
                raise TypeError(
                    f"{owner} takes {len(positional)} arguments by position but {len(args)} were given."
                )
            for name, value in kind.completed(
                {**dict(zip(positional, args, strict=False)), **given}, owner
            ).items():
                setattr(self, name, value)

        made: Any = __init__
        made.__signature__, made.settings = Signature(parameters), kind
        return __init__

    return decorate


def flat_names(given: Mapping[str, Any], groups: Sequence[str] = GROUPS) -> dict[str, Any]:
    """Return values by their own names alone, without those of groups; two values for one name raise ParameterError.

    Who does not know the settings of a method (a site that reads a study) looks names up in this.
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        inner = value if name in groups and isinstance(value, Mapping) else {name: value}
        for one, each in inner.items():
            room, _, last = str(one).rpartition(".")
            short = last if room in groups else str(one)
            if short in found:
                raise ParameterError(f"{one} is given twice; leave one out.")
            found[short] = each
    return found


def with_parameters(doc: str, settings: type[Settings]) -> str:
    """Return the docstring of a class with its parameters explained, before whatever section comes first in it."""
    if "    Parameters\n    ----------" in doc:
        return doc
    places = [doc.find(f"    {name}\n    ---") for name in ("Attributes", "Examples")]
    at = min((place for place in places if place >= 0), default=len(doc))
    return f"{doc[:at].rstrip()}\n\n{settings.explained()}\n\n{doc[at:]}"


def in_order(kind: type[Settings]) -> list[Any]:
    """Fields in the order of the signature: by position first, then by name, what is done to rows and where last."""
    return sorted(fields(kind), key=lambda one: (one.kw_only, _LAST.get(one.name, 0)))


def _deep(one: Any, name: str) -> Any:
    for part in name.split("."):
        one = getattr(one, part)
    return one


def _field_names(one: Settings | type[Settings]) -> frozenset[str]:
    return frozenset(each.name for each in fields(one))
