"""What a server may ask of sites, within what a study says, and what it gets back.

A federation has one verb, ``sum``. A `Task` is a question with the sites it goes to. The answer is a `Sum`: the
elementwise sum of the sites' vectors and the names of those who contributed. A server program is a generator that
yields tasks and receives sums; it has no way to see one site's vector.

A `Plan` says which questions a study may ask, how often, and how many numbers leave a site by each. Every program has
its plan beside it, written by whoever writes the program. Owners read the plan before they approve, a site holds every
question against it, and what a study costs is the sum over it. A test runs all programs and holds them against their
plans.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from feddbn import settings as rules
from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.designs.design import Design
from feddbn.core.designs.recordings import SiteData
from feddbn.errors import NotEnoughSites, ParameterError, ProtocolError, SiteRefused, StillCollecting
from feddbn.privacy.policy import TRANSFORMATIONS
from feddbn.settings import Rule

# What the questions of one study may be about.
#
# A scope is made from the study that a site agreed to, so what may be asked is settled at the greeting. Every kind of
# question says for itself whether it lies within a scope (`Question.check_scope`); a site asks it before it reads a row.


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What a study may ask.

    Attributes
    ----------
    plan
        What it asks, how often; None: the method is not in the method table, and the site's policy alone decides.
    variables
        In the study's order.
    sites
        All sites of the study, sorted.
    lags
        Numbers of lags that its questions may have.
    folds
        Which rows may be held out: (block, number of blocks, thousandths).
    transformations
        What may be done to rows, out of `privacy.policy.TRANSFORMATIONS`.
    cell_maps
        What is made of each cell by itself (`federation.protocol.rows.Treatment`).
    degrees, most_cycles
        Polynomials in time that may be taken off, and how many cycles.
    inputs
        Positions of variables that only act on others.
    numbers
        Values that the study gives to parameters of rounds, by name; where it leaves them open, the method chooses.
    unit
        What its noise protects; None: its sums carry no noise.
    n_parts
        Into how many parts rows may be dealt; 0: they are not.
    parameters
        The study's own, for what only one kind of question needs to know.
    """

    plan: Plan | None = None
    variables: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    lags: Collection[int] = ()
    folds: tuple[tuple[int, ...], ...] = ()
    transformations: tuple[str, ...] = TRANSFORMATIONS
    cell_maps: tuple[str, ...] = ()
    degrees: tuple[int, ...] = (0,)
    most_cycles: int = 0
    inputs: tuple[int, ...] = ()
    numbers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    unit: str | None = None
    n_parts: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def check_task(self, task: str) -> None:
        """Refuse a task that is not one of the study's."""
        if self.plan is not None and task not in tasks_in(self.plan):
            asked = ", ".join(tasks_in(self.plan))
            raise SiteRefused(
                f"the study does not ask for the task {task!r}; its method and parameters ask for {asked}.",
                code="task-not-in-study",
            )

    def inputs_among(self, variables: Sequence[str]) -> list[int]:
        """Positions among some of the variables of those that only act on others."""
        names = [self.variables[place] for place in self.inputs]
        return [k for k, name in enumerate(variables) if name in names]

    def check_participants(self, task: str, participants: Collection[str] | None) -> None:
        """Refuse a sum over some of the sites, but for rounds of a study that has sites take part in turns."""
        if participants is None or set(participants) == set(self.sites):
            return
        in_turns = task.startswith("step.") and self.parameters.get("participation", 1.0) != 1.0
        if not set(participants) <= set(self.sites) or not in_turns:
            raise SiteRefused(
                f"the study does not ask for the task {task!r} from some of its sites only.",
                code="some-sites-only",
            )

    def require(self, is_within: bool, task: str, sentence: str, code: str = "not-in-study") -> None:
        """Refuse a question that is not within the study."""
        if not is_within:
            raise SiteRefused(f"task {task!r} is not within the study: {sentence}.", code=code)


# What a site can be asked: questions that check themselves.
#
# Rules of this file
# ------------------
# - A question is a frozen dataclass whose fields say what they may hold: `whole`, `number`, `flag`, `choice`, `text`,
#   `names`, `wholes`, `numbers`, `array`. They are checked when the object is made, so that a server cannot
#   send and a site cannot read a question that is out of bounds.
# - `params` and `arrays` are what travels; `read` is the one way back. An unknown, a missing or a doubtful value
#   is refused with a sentence before any row of data is read.
# - A default of None makes a field optional.
# - `array` names its axes by letters. A letter means one length throughout a question; `sizes` says which lengths
#   other fields fix.

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
_INFINITY = Rule(lambda value: isinstance(value, float) and value == math.inf, ("infinity",))
_SHORT_TEXT = Rule(
    lambda value: isinstance(value, str) and len(value) <= 1_000, ("a text of at most 1,000 characters",)
)


def _spec(
    read: Callable[[str, Any], Any], default: Any, is_array: bool = False, axes: tuple[str, ...] = ()
) -> Any:
    metadata = {"read": read, "is_array": is_array, "axes": axes}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def _by(rule: Rule, into: Callable[[Any], Any], default: Any) -> Any:
    """A field for what a rule lets pass, as one type."""
    return _spec(lambda name, value: into(rule.check(name, value)), default)


def _several(
    holds: Callable[[Any], bool], what: str, into: Callable[[Any], Any], default: Any, twice: bool = True
) -> Any:
    """A field for a list of values that pass a test, also with equal ones where they may come `twice`."""

    def all_hold(value: Any) -> bool:
        is_list = isinstance(value, (tuple, list)) and len(value) <= _MOST_NAMES and all(map(holds, value))
        return is_list and (twice or len(set(value)) == len(value))

    return _by(Rule(all_hold, (f"a list of {what}",)), lambda value: tuple(map(into, value)), default)


def whole(least: int = 0, most: int = 2**53, default: Any = MISSING) -> Any:
    """A field for a whole number from `least` to `most`."""
    return _by(rules.whole(least, most), int, default)


def number(
    least: float = -LARGEST, most: float = LARGEST, infinite: bool = False, default: Any = MISSING
) -> Any:
    """A field for a number from `least` to `most`; `infinite`: infinity will do, too."""
    rule = rules.number(least, most=most)
    return _by(rule | _INFINITY if infinite else rule, float, default)


def flag(default: Any = MISSING) -> Any:
    """A field for True or False."""
    return _by(rules.flag(), bool, default)


def choice(*options: str, default: Any = MISSING) -> Any:
    """A field for one of some words."""
    return _by(rules.word(*options), lambda value: options[options.index(value)], default)


def text(default: Any = MISSING) -> Any:
    """A field for a short text."""
    return _by(_SHORT_TEXT, str, default)


def names(default: Any = MISSING) -> Any:
    """A field for different texts, in order."""
    return _several(lambda one: isinstance(one, str), "different names", str, default, twice=False)


def texts(default: Any = MISSING) -> Any:
    """A field for texts, in order, of which some may be equal."""
    return _several(_SHORT_TEXT.holds, "texts", str, default)


def wholes(least: int = 0, most: int = 2**53, default: Any = MISSING) -> Any:
    """A field for whole numbers, each from `least` to `most`."""
    return _several(rules.whole(least, most).holds, f"whole numbers from {least} to {most}", int, default)


def numbers(least: float = -LARGEST, most: float = LARGEST, default: Any = MISSING) -> Any:
    """A field for numbers, each from `least` to `most`."""
    return _several(
        rules.number(least, most=most).holds, f"numbers from {least:g} to {most:g}", float, default
    )


def array(*axes: str, default: Any = MISSING) -> Any:
    """A field for a float64 array with these axes, every entry finite."""

    def read(name: str, value: Any) -> FloatArray:
        found = np.asarray(value)
        if found.dtype.kind not in "fiub" or found.ndim != len(axes) or found.size > MOST_NUMBERS:
            raise ParameterError(
                f"{name!r} must be an array of numbers with {len(axes)} axes ({', '.join(axes)})."
            )
        found = np.asarray(found, dtype=np.float64)
        if not (np.abs(found) <= LARGEST).all():
            raise ParameterError(f"{name!r} must have finite entries only, of at most {LARGEST:g}.")
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
class View:
    """Which rows numbers of an answer rest on: what a site has to know to keep few of them from being seen.

    Attributes
    ----------
    design
        The columns of a row that are added up, multiplied or put into functions.
    seen
        Returns the site with its cells as they are read.
    key
        All that `seen` and `part_of` depend on.
    is_whole
        Whether rows with empty cells count for what they hold.
    are_pairs
        Whether sums over the rows that have one cell, or two, are told, so that these can be compared.
    fold
        Which rows are held out: both parts have to be enough.
    part_of
        ``(times, labels) -> numbers``: rows with other numbers are in other sums.
    n_parameters
        Columns that rows are counted against.
    is_rounded
        Whether numbers are told so that few rows do not show in them.
    """

    design: Design
    seen: Callable[[SiteData], SiteData]
    key: tuple[object, ...] = ()
    is_whole: bool = False
    are_pairs: bool = False
    fold: tuple[int, ...] = ()
    part_of: Callable[[IntArray, NDArray[np.generic] | None], IntArray] | None = None
    n_parameters: int = 0
    is_rounded: bool = False


@dataclass(frozen=True)
class Question:
    """Base of all questions.

    Attributes
    ----------
    name
        What it is called in messages, policies and logs: its kind, and behind a dot its form.
    purpose
        What a site gives away by answering, in words.
    forms
        The forms of a kind that has several, and their purposes; `form` then says which one a question has.
    reads_rows
        Whether a site looks at its rows to answer; else only at what it remembers.
    """

    name: ClassVar[str]
    purpose: ClassVar[str]
    forms: ClassVar[Mapping[str, str]] = {}
    reads_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        values = self.__dict__
        for spec in _specs(type(self)):
            value = values[spec.name]
            if value is spec.default:
                continue
            try:
                values[spec.name] = spec.read(spec.name, value)
            except ParameterError as error:
                raise self.wrong(str(error).rstrip(".")) from None
        if self.forms:
            values["name"] = f"{self.name}.{self.form}"
        self._check_sizes()
        self.check()

    @property
    def form(self) -> str:
        """Which of the `forms` it has."""
        return ""

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

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """Say which rows of a site the numbers of its answer rest on; who reads rows and does not say is refused."""
        if not self.reads_rows:
            return ()
        raise SiteRefused(
            f"task {self.name!r} reads rows and does not say which of them its numbers rest on.",
            code="view-not-said",
        )

    @property
    def transformations(self) -> tuple[str, ...]:
        """What it has done to rows before they are summed, out of `privacy.policy.TRANSFORMATIONS`."""
        return ()

    @property
    def feature_maps(self) -> tuple[str, ...]:
        """Names of the maps it has rows sent through; a site's policy lists those it allows."""
        return tuple(getattr(self, "features", ()))

    def dealt(self, data: SiteData) -> SiteData:
        """Return the site with its rows dealt to parts, for a question about parts; else as it is."""
        return data

    @property
    def reach(self) -> int:
        """How many earlier rows the answer for one row depends on; noise for single rows pays for them."""
        return int(getattr(self, "n_lags", 0))

    def wrong(self, sentence: str, code: str = "bad-question") -> ProtocolError:
        """Return the refusal of this question."""
        return ProtocolError(f"task {self.name!r}: {sentence}.", code=code)

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
                    f"task {cls.name!r} has no {'array' if name in arrays else 'parameter'} {rules.shown(name)}; "
                    f"it takes {', '.join(known) or 'none'}.",
                    code="bad-question",
                )
        missing = [spec.name for spec in _specs(cls) if spec.default is MISSING and spec.name not in given]
        if missing:
            raise ProtocolError(f"task {cls.name!r} lacks {missing[0]!r}.", code="bad-question")
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
    read: Callable[[str, Any], Any]
    is_array: bool
    axes: tuple[str, ...]


_KNOWN: dict[type[Question], tuple[_Spec, ...]] = {}


def _specs(kind: type[Question]) -> tuple[_Spec, ...]:
    """Return what the fields of a kind of question may hold; looked up once, since questions are asked every round."""
    if kind not in _KNOWN:
        _KNOWN[kind] = tuple(_Spec(item.name, item.default, **item.metadata) for item in fields(kind))
    return _KNOWN[kind]


T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """One request for a sum.

    Attributes
    ----------
    question
        What is asked.
    participants
        Names of the sites asked, or None for all of them.
    note
        Progress for people (round, h, residuals); no program reads it and it does not travel.
    """

    question: Question
    participants: tuple[str, ...] | None = None
    note: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Which site program answers."""
        return self.question.name

    @property
    def params(self) -> dict[str, Param]:
        """Small plain values of the question."""
        return self.question.params

    @property
    def arrays(self) -> dict[str, FloatArray]:
        """Arrays of the question, broadcast to every site."""
        return self.question.arrays

    def fields(self) -> dict[str, Any]:
        """Return what travels beside the arrays, as JSON values; `site.task_from_fields` is the way back."""
        params = {key: list(v) if isinstance(v, tuple) else v for key, v in sorted(self.params.items())}
        return {"name": self.name, "params": params}


def task_digest(
    fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray], participants: Sequence[str] | None = None
) -> str:
    """Return a SHA-256 of everything a site program reads, from what travels of a task."""
    table = [[name, arrays[name].dtype.str, list(arrays[name].shape)] for name in sorted(arrays)]
    whom = None if participants is None else sorted(participants)
    head = json.dumps([fields, table, whom], sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(head.encode())
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Sum:
    """The answer to a task: `value` is the sum over `contributors` (sorted by name)."""

    value: FloatArray
    contributors: tuple[str, ...]

    def __post_init__(self) -> None:
        self.value.setflags(write=False)


class Federation(Protocol):
    """What every runtime provides, and all that methods and server programs may use."""

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        ...

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of what the sites measure: all of them where sites hold different ones."""
        ...

    @property
    def answered_tasks(self) -> frozenset[str] | None:
        """Names of the tasks its sites answer, None for every task they know."""
        ...

    def state_of(self, site: str) -> Mapping[str, np.ndarray] | None:
        """Return the state of a site that lives in this process; None where it is the site's own business."""
        ...

    def sum(self, task: Task) -> Sum:
        """Ask the participating sites and return the sum of their vectors, added in sorted site order."""
        ...


def fewest_sites(federation: Federation) -> int | None:
    """How many sites every number of a sum must rest on; None where nobody has to be hidden, as in one process."""
    found: int | None = getattr(federation, "fewest_sites", None)
    return found


@dataclass(frozen=True)
class FederationView:
    """A federation seen through something: a subclass says what is different, all else is the federation's."""

    federation: Federation

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return self.federation.sites

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of what they measure."""
        return self.federation.variables

    @property
    def answered_tasks(self) -> frozenset[str] | None:
        """Names of the tasks they answer."""
        return self.federation.answered_tasks

    @property
    def fewest_sites(self) -> int | None:
        """How many sites every number must rest on."""
        return fewest_sites(self.federation)

    def state_of(self, site: str) -> Mapping[str, np.ndarray] | None:
        """Return the state of a site of this process."""
        return self.federation.state_of(site)

    def sum(self, task: Task) -> Sum:
        """Return the sum."""
        return self.federation.sum(task)


ServerProgram = Generator[Task, Sum, T]
Observer = Callable[[Task, Sum], None]


def asking(program: ServerProgram[T], change: Callable[[Question], Question]) -> ServerProgram[T]:
    """Run a server program with every question changed."""
    return _changed(program, lambda task: replace(task, question=change(task.question)))


def asked_of(program: ServerProgram[T], sites: tuple[str, ...]) -> ServerProgram[T]:
    """Run a server program as if there were no other sites than these."""
    return _changed(program, lambda task: replace(task, participants=sites))


def _changed(program: ServerProgram[T], change: Callable[[Task], Task]) -> ServerProgram[T]:
    try:
        task = next(program)
        while True:
            task = program.send((yield change(task)))
    except StopIteration as end:
        result: T = end.value
        return result


def counted(program: ServerProgram[T]) -> ServerProgram[tuple[T, int]]:
    """The same program, which also says how many sums it asked for."""
    n_sums = 0
    try:
        task = next(program)
        while True:
            n_sums += 1
            task = program.send((yield task))
    except StopIteration as end:
        result: T = end.value
        return result, n_sums


def run_program(program: ServerProgram[T], federation: Federation, observer: Observer | None = None) -> T:
    """Drive a server program to its result, one sum at a time; it may go on where a site refuses to answer.

    Not so where sites may still come: the run ends here and is taken up again.
    """
    try:
        task = next(program)
        while True:
            try:
                answer = federation.sum(task)
            except StillCollecting:
                raise
            except (SiteRefused, NotEnoughSites) as refused:
                task = program.throw(refused)
                continue
            if not np.all(np.isfinite(answer.value)):
                raise ProtocolError(
                    f"the sum for task {task.name!r} is not finite; some site sent NaN or infinity.",
                    code="not-finite",
                )
            if observer is not None:
                observer(task, answer)
            task = program.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


@dataclass(frozen=True)
class Planned:
    """One kind of question in a plan.

    Attributes
    ----------
    task
        Name of the kind.
    numbers
        Most numbers in one answer.
    times
        Most times that it is asked.
    usual
        How many times it is asked of clean data.
    least
        Numbers in an answer about clean data; None: as many as `numbers`.
    """

    task: str
    numbers: int
    times: int = 1
    usual: int = 1
    least: int | None = None


Plan = tuple[Planned, ...]


def most_numbers(plan: Iterable[Planned]) -> int:
    """How many numbers leave a site at most."""
    return sum(ask.times * ask.numbers for ask in plan)


def usual_numbers(plan: Iterable[Planned]) -> int:
    """How many leave it where data are clean."""
    return sum(ask.usual * (ask.numbers if ask.least is None else ask.least) for ask in plan)


def tasks_in(plan: Iterable[Planned]) -> tuple[str, ...]:
    """Names of the kinds, each once, in the order in which they are asked first."""
    return tuple(dict.fromkeys(ask.task for ask in plan))


def of_task(plan: Iterable[Planned], task: str) -> tuple[int, int]:
    """How often a kind may be asked in all, and how many numbers one answer may have."""
    found = [ask for ask in plan if ask.task == task]
    return sum(ask.times for ask in found), max((ask.numbers for ask in found), default=0)


def repeated(plan: Iterable[Planned], times: int) -> Plan:
    """The same for a program that runs so many times."""
    return tuple(replace(ask, times=ask.times * times, usual=ask.usual * times) for ask in plan)
