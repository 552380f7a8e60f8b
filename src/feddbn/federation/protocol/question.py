"""What a site can be asked: questions that check themselves.

Rules of this file
------------------
- A question is a frozen dataclass whose fields say what they may hold: `whole`, `number`, `flag`, `choice`, `text`,
  `names`, `wholes`, `numbers`, `designs`, `array`. They are checked when the object is made, so that a server cannot
  send and a site cannot read a question that is out of bounds.
- `params` and `arrays` are what travels; `read` is the one way back. An unknown, a missing or a doubtful value
  is refused with a sentence before any row of data is read.
- A default of None makes a field optional.
- `array` names its axes by letters. A letter means one length throughout a question; `sizes` says which lengths
  other fields fix.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.design import Design
from feddbn.errors import ParameterError, ProtocolError
from feddbn.federation.protocol.scope import Scope

__all__ = [
    "LARGEST",
    "MOST_LAGS",
    "MOST_NUMBERS",
    "Constant",
    "Param",
    "Question",
    "array",
    "choice",
    "designs",
    "flag",
    "names",
    "number",
    "numbers",
    "scalar",
    "text",
    "texts",
    "whole",
    "wholes",
]

Param = (
    str
    | int
    | float
    | bool
    | None
    | tuple[str, ...]
    | tuple[int, ...]
    | tuple[float, ...]
    | tuple[dict[str, Any], ...]
)

MOST_LAGS = 1_000
"""No question reaches further back: the statistics of a site grow with the square of it."""
MOST_NUMBERS = 1 << 23
"""Numbers in one array of a question: as many as a message has room for."""
LARGEST = 1e100
"""No number of a question is larger: squares and products of it are still numbers."""
_MOST_NAMES = 100_000


class _Wrong(ValueError):
    """What a value must be, to be put behind its name."""


def _spec(
    read: Callable[[Any], Any], default: Any, is_array: bool = False, axes: tuple[str, ...] = ()
) -> Any:
    metadata = {"read": read, "is_array": is_array, "axes": axes}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def whole(least: int = 0, most: int = 2**53, default: Any = MISSING) -> Any:
    """A field for a whole number from `least` to `most`."""

    def read(value: Any) -> int:
        is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if not is_whole or not least <= value <= most:
            raise _Wrong(f"must be a whole number from {least} to {most}")
        return int(value)

    return _spec(read, default)


def number(
    least: float = -LARGEST, most: float = LARGEST, infinite: bool = False, default: Any = MISSING
) -> Any:
    """A field for a number from `least` to `most`; `infinite`: infinity will do, too."""

    def read(value: Any) -> float:
        is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        if not is_number or not (least <= value <= most or (infinite and value == math.inf)):
            raise _Wrong(f"must be a number from {least:g} to {most:g}{' or infinity' if infinite else ''}")
        return float(value)

    return _spec(read, default)


def flag(default: Any = MISSING) -> Any:
    """A field for True or False."""

    def read(value: Any) -> bool:
        if not isinstance(value, (bool, np.bool_)):
            raise _Wrong("must be true or false")
        return bool(value)

    return _spec(read, default)


def choice(*options: str | int, default: Any = MISSING) -> Any:
    """A field for one of some values."""

    def read(value: Any) -> str | int:
        for option in options:
            if type(value) is type(option) and value == option:
                return option
        raise _Wrong(f"must be one of {', '.join(map(repr, options))}")

    return _spec(read, default)


def text(default: Any = MISSING) -> Any:
    """A field for a short text."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or len(value) > 1_000:
            raise _Wrong("must be a text of at most 1,000 characters")
        return value

    return _spec(read, default)


def scalar(default: Any = MISSING) -> Any:
    """A field for one plain value: text, a number, true or false."""

    def read(value: Any) -> str | int | float | bool:
        if not isinstance(value, (str, int, float, bool)):
            raise _Wrong("must be a text, a number, true or false")
        return value

    return _spec(read, default)


def _several(read_one: Callable[[Any], Any], what: str) -> Callable[[Any], tuple[Any, ...]]:
    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (tuple, list)) or len(value) > _MOST_NAMES:
            raise _Wrong(f"must be a list of {what}")
        return tuple(read_one(item) for item in value)

    return read


def names(default: Any = MISSING) -> Any:
    """A field for different texts, in order."""

    def one(value: Any) -> str:
        if not isinstance(value, str):
            raise _Wrong("must be a list of names")
        return value

    def read(value: Any) -> tuple[str, ...]:
        found = _several(one, "names")(value)
        if len(set(found)) != len(found):
            raise _Wrong("must not have a name twice")
        return found

    return _spec(read, default)


def texts(default: Any = MISSING) -> Any:
    """A field for texts, in order, of which some may be equal."""
    return _spec(_several(_read_of(text()), "texts"), default)


def wholes(least: int = 0, most: int = 2**53, default: Any = MISSING) -> Any:
    """A field for whole numbers, each from `least` to `most`."""
    return _spec(_several(_read_of(whole(least, most)), "whole numbers"), default)


def numbers(least: float = -LARGEST, most: float = LARGEST, default: Any = MISSING) -> Any:
    """A field for numbers, each from `least` to `most`."""
    return _spec(_several(_read_of(number(least, most)), "numbers"), default)


def designs(default: Any = MISSING) -> Any:
    """A field for designs, at least one, or their descriptions."""

    def read(value: Any) -> tuple[Design, ...]:
        if not isinstance(value, (tuple, list)) or not value:
            raise _Wrong("must be a list of designs")
        try:
            return tuple(item if isinstance(item, Design) else Design.from_dict(item) for item in value)
        except ParameterError as error:
            raise _Wrong(f"must be a list of designs: {str(error).rstrip('.')}") from None

    return _spec(read, default)


def _read_of(spec: Any) -> Callable[[Any], Any]:
    read: Callable[[Any], Any] = spec.metadata["read"]
    return read


def array(*axes: str, default: Any = MISSING) -> Any:
    """A field for a float64 array with these axes, every entry finite."""

    def read(value: Any) -> FloatArray:
        found = np.asarray(value)
        if found.dtype.kind not in "fiub" or found.ndim != len(axes) or found.size > MOST_NUMBERS:
            raise _Wrong(f"must be an array of numbers with {len(axes)} axes ({', '.join(axes)})")
        found = np.asarray(found, dtype=np.float64)
        if not (np.abs(found) <= LARGEST).all():
            raise _Wrong(f"must have finite entries only, of at most {LARGEST:g}")
        return found

    return _spec(read, default, True, axes)


@dataclass(frozen=True)
class Constant:
    """What a question takes for granted and must not change between the questions of a run.

    Attributes
    ----------
    what
        What it is, in words; also its key.
    value
        All that it consists of.
    most
        How many different values an honest run may come to.
    size
        How much one value asks for, where that is added up over a run.
    """

    what: str
    value: tuple[object, ...]
    most: int = 1
    size: int = 1

    @property
    def digest(self) -> str:
        """SHA-256 of the value."""
        found = hashlib.sha256()
        for part in self.value:
            if isinstance(part, np.ndarray):
                found.update(f"array {part.shape} ".encode())
                found.update(np.ascontiguousarray(part, dtype=np.float64).tobytes())
            else:
                found.update(f"{part!r} ".encode())
        return found.hexdigest()


@dataclass(frozen=True)
class Question:
    """Base of all questions.

    Attributes
    ----------
    name
        What it is called in messages, policies and logs.
    purpose
        What a site gives away by answering, in words.
    reads_rows
        Whether a site looks at its rows to answer; else only at what it remembers.
    """

    name: ClassVar[str]
    purpose: ClassVar[str]
    reads_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        values = self.__dict__
        for spec in _specs(type(self)):
            value = values[spec.name]
            if value is None and spec.default is None:
                continue
            try:
                values[spec.name] = spec.read(value)
            except _Wrong as wrong:
                shown = "" if spec.is_array else f" is {_shown(value)}, but it"
                raise self.wrong(f"{spec.name!r}{shown} {wrong}") from None
        self._check_sizes()
        self.check()

    def check(self) -> None:
        """Raise `wrong` if the values do not fit each other."""

    def sizes(self) -> Mapping[str, int]:
        """Return the lengths of axes that other fields fix."""
        return {}

    def check_scope(self, scope: Scope) -> None:
        """Refuse if the question is not within what a study asks; reads no data."""

    @property
    def constants(self) -> tuple[Constant, ...]:
        """What must stay the same over a run: sums that differ by few rows would show these rows."""
        return ()

    @property
    def transformations(self) -> tuple[str, ...]:
        """What it has done to rows before they are summed, out of `privacy.policy.TRANSFORMATIONS`."""
        return ()

    @property
    def feature_maps(self) -> tuple[str, ...]:
        """Names of the maps it has rows sent through; a site's policy lists those it allows."""
        return tuple(getattr(self, "features", ()))

    @property
    def reach(self) -> int:
        """How many earlier rows the answer for one row depends on; noise for single rows pays for them."""
        return int(getattr(self, "n_lags", 0))

    def wrong(self, sentence: str) -> ProtocolError:
        """Return the refusal of this question."""
        return ProtocolError(f"task {self.name!r}: {sentence}.")

    def _check_sizes(self) -> None:
        known = dict(self.sizes())
        for spec in _specs(type(self)):
            value = self.__dict__[spec.name]
            if not spec.is_array or value is None:
                continue
            for axis, length in zip(spec.axes, value.shape, strict=True):
                if known.setdefault(axis, length) != length:
                    must = f"but its axis {axis} must have length {known[axis]}"
                    raise self.wrong(f"{spec.name!r} has shape {value.shape}, {must}")

    @classmethod
    def read(cls, params: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """Return the question that travelled as `params` and `arrays`; anything else is refused."""
        known = {spec.name: spec.is_array for spec in _specs(cls)}
        given = {**params, **arrays}
        for name in given:
            if known.get(name) is not (name in arrays):
                raise ProtocolError(
                    f"task {cls.name!r} has no {'array' if name in arrays else 'parameter'} {_shown(name)}; "
                    f"it takes {', '.join(known) or 'none'}."
                )
        missing = [spec.name for spec in _specs(cls) if spec.default is MISSING and spec.name not in given]
        if missing:
            raise ProtocolError(f"task {cls.name!r} lacks {missing[0]!r}.")
        return cls(**given)

    @property
    def params(self) -> dict[str, Param]:
        """What travels beside the arrays; values at their default stay at home."""
        values, specs = self.__dict__, _specs(type(self))
        return {s.name: values[s.name] for s in specs if not s.is_array and values[s.name] != s.default}

    @property
    def arrays(self) -> dict[str, FloatArray]:
        """The arrays that are given."""
        values, specs = self.__dict__, _specs(type(self))
        return {s.name: values[s.name] for s in specs if s.is_array and values[s.name] is not None}


@dataclass(frozen=True)
class _Spec:
    """What a field may hold."""

    name: str
    default: Any
    read: Callable[[Any], Any]
    is_array: bool
    axes: tuple[str, ...]


_KNOWN: dict[type[Question], tuple[_Spec, ...]] = {}


def _specs(kind: type[Question]) -> tuple[_Spec, ...]:
    """Return what the fields of a kind of question may hold; looked up once, since questions are asked every round."""
    if kind not in _KNOWN:
        _KNOWN[kind] = tuple(_Spec(item.name, item.default, **item.metadata) for item in fields(kind))
    return _KNOWN[kind]


def _shown(value: object) -> str:
    return repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
