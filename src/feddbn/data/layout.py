"""Which columns of a table are what.

Error messages name sites, recordings, columns and row positions. The only values among them are one that does not fit its
declared kind, one that is too large, and text among numbers: their owner has to know which. Who asks from elsewhere is told
that something was refused, and no more.
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feddbn.core.arrays import FloatArray
from feddbn.data.kinds import read_kinds
from feddbn.data.sources import Change, changed, read_limits, read_units, read_variables
from feddbn.data.times import Clock, Freq, clock_of
from feddbn.errors import DataError, Given, ParameterError
from feddbn.settings import Rule, Settings, flag, nothing, number, setting, text, word

__all__ = [
    "ROW_TIMES",
    "Layout",
    "quoted",
    "unnamed",
]


ROW_TIMES = "@time"
"""As a label: the times of rows, from whichever column or index they come; they have to be dates."""


def _column() -> Rule:
    return text("the name of a column") | nothing()


def _is_encoding(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(codecs.lookup(value))
    except LookupError:
        return False


def _anything(what: str) -> Rule:
    """A value that is checked when it is read."""
    return Rule(lambda value: True, (what,))


@dataclass(frozen=True, repr=False)
class Layout(Settings):
    """How a table is read: the columns that are not variables, the chosen variables, and the rules for time.

    Whatever reads data takes one as ``layout=``, or its fields by name: ``fit(rows, site="ward", time="t")``.

    Examples
    --------
    >>> import feddbn
    >>> feddbn.Layout(site="ward", time="t", freq="1h")
    Layout(site='ward', time='t', freq='1h')
    """

    site: str | None = setting(
        None, _column(), "Column with the name of the site, if one table has all sites."
    )
    series: str | None = setting(None, _column(), "Column with the name of the recording within its site.")
    time: str | None = setting(
        None,
        _column(),
        "Column with the time. Without it, dates in the index of a DataFrame are used. Any other index is ignored, and "
        "rows count as consecutive.",
    )
    label: str | None = setting(
        None,
        _column(),
        'Column with a label for each row, which is kept but is not a variable. "@time": the rows\' times are the labels, '
        "if they are dates.",
    )
    variables: tuple[str, ...] | None = setting(
        None,
        _anything("a list of columns"),
        "Columns to use, in this order; by default every column without another role. Sites are matched by column names. "
        "Columns of arrays are called x0, x1, ... unless `variables` names all of them. Or a mapping with the column name, "
        'units and plausible limits of each variable: ``{"sbp": {"name": "SYS", "unit": "kPa", "to": "mmHg", "limits": '
        "(20, 300)}}``.",
    )
    sources: Any = setting(
        None,
        _anything("a mapping from variables to names in the table"),
        "Column name of each variable, if it differs from the variable's name. A mapping in `variables` sets this too.",
    )
    freq: Freq = setting(
        None,
        _anything("a step"),
        'Expected time step between rows: a number, or text such as "1h", "D", "MS". By default each site\'s most common '
        "step, which must be the same for all sites. A larger step starts a new segment; a smaller one is an error. If "
        "readings are averaged, the step in which they are.",
    )
    names: str | None = setting(
        None,
        _column(),
        "Column with the variable's name, in a table with one reading per row. `variables` then selects names; other rows "
        "are left out.",
    )
    values: str | None = setting(None, _column(), "Column with the reading's value, used with `names`.")
    irregular: str | None = setting(
        None,
        word("refuse", "average") | nothing(),
        'What to do if rows are not equally spaced in time. "refuse": stop. "average": average the readings within each '
        'time step `freq`; steps without readings stay empty. By default "average" with `names`, otherwise '
        '"refuse".',
    )
    limits: Any = setting(
        None,
        _anything("a mapping from variables to (low, high)"),
        'Lowest and highest plausible value of variables, such as ``{"pulse": (10, 300)}``. Cells outside become empty and '
        'are counted. "adult-icu" sets limits for vital signs and common laboratory values (`feddbn.data.PLAUSIBLE`).',
    )
    units: Any = setting(
        None,
        _anything("a mapping from variables to (unit, wanted unit)"),
        'Unit of each column, or its unit and the wanted one, such as ``{"temp": ("F", "C")}``. Or a factor, or a factor '
        "and an offset, to convert its numbers. `limits` are in the wanted unit.",
    )
    missing: str | None = setting(
        None,
        word("drop", "keep") | nothing(),
        'Rows with empty cells. "keep", the default: keep them, with NaN in empty cells; `Prepare` says what a fit then '
        "does. Rows without any value are removed at the ends of a segment, and more than ten in a row end the segment. "
        '"drop": leave out rows with an empty cell and start a new segment.',
    )
    sort: bool | None = setting(
        None,
        flag() | nothing(),
        "True: sort the rows of every recording by time. False, the default: refuse unsorted rows.",
    )
    jitter: float | None = setting(
        None,
        number(0, below=0.5) | nothing(),
        "Allowed deviation of the distance between neighbouring rows, as a share of the time step, below 0.5. By default "
        "0.05. 0 allows no deviation.",
    )
    day_first: bool | None = setting(
        None,
        flag() | nothing(),
        "How to read dates such as 01/02/2024. True: day first. False: month first. By default they are refused. "
        "2024-02-01 is always read.",
    )
    kinds: Any = setting(
        None,
        _anything("a mapping from variables to kinds"),
        'Kinds of variables by name, as in `feddbn.data.kinds.read_kinds`, such as ``{"visits": "count", "ward": ["north", '
        '"south"]}``. A category is stored as its position 0, 1, 2, ... Undeclared categories and values that do not fit '
        "the kind are refused. A `SiteData` already has numbers and is not changed.",
    )
    separator: str | None = setting(
        None,
        Rule(lambda value: isinstance(value, str) and len(value) == 1, ("one character",)) | nothing(),
        "Character between the columns of a text file. By default a comma, or a tab in .tsv files.",
    )
    decimal: str | None = setting(
        None,
        word(".", ",") | nothing(),
        'Decimal mark of numbers in a text file: "." (default) or ",".',
    )
    encoding: str | None = setting(
        None,
        Rule(_is_encoding, ("an encoding that Python knows",)) | nothing(),
        'Character encoding of a text file: UTF-8 by default; another example is "latin-1".',
    )

    @classmethod
    def of(cls, layout: Layout | None, columns: Mapping[str, Any], owner: str = "Layout") -> Layout:
        """Return a layout from what somebody gave: a layout, some fields by name, or both."""
        if layout is not None and not isinstance(layout, Layout):
            raise ParameterError(f"layout={layout!r} must be feddbn.Layout(...) or None.")
        return replace(layout or cls(), **cls.named(columns, owner)) if columns else layout or cls()

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.variables, str):
            raise ParameterError(
                f"{Given('variables', self.variables)} must be a list of column names, such as [{self.variables!r}]."
            )
        is_table = isinstance(self.variables, Mapping)
        table: Any = self.variables if is_table else self.sources
        said, units, limits = read_variables(table or {})
        object.__setattr__(self, "sources", said)
        object.__setattr__(self, "limits", {**read_limits(self.limits), **read_limits(limits)})
        object.__setattr__(self, "units", {**read_units(self.units), **read_units(units)})
        if self.variables is not None or said:
            object.__setattr__(self, "variables", tuple(str(name) for name in self.variables or said))
        several = [name for name, found in said.items() if len(found) > 1 and self.names is None]
        if several:
            raise ParameterError(
                f"variable {several[0]!r} has several names, which needs a column of names; give {Given('names')}."
            )
        if (self.names is None) != (self.values is None):
            given, other = ("names", "values") if self.values is None else ("values", "names")
            raise ParameterError(
                f"{Given(given, getattr(self, given))} needs {Given(other)}: one column names the variable of a reading, the "
                "other one has its value."
            )
        roles = Counter([*filter(None, self.keys.values()), *(self.variables or ())])
        twice = [name for name, n in roles.items() if n > 1]
        if twice:
            raise ParameterError(
                f"{quoted(twice)} has two roles; each of {', '.join(self.keys)} and of the variables must be another column."
            )
        if self.variables is not None and not self.variables:
            raise ParameterError(f"{Given('variables', [])} must list at least one column.")
        _ = self.clock
        # Whether there are such variables is not known yet.
        named = tuple(self.kinds) if isinstance(self.kinds, Mapping) else ()
        object.__setattr__(self, "kinds", dict(zip(named, read_kinds(self.kinds, named), strict=True)))

    @property
    def keys(self) -> dict[str, str | None]:
        """Argument name -> column name."""
        label = None if self.label == ROW_TIMES else self.label
        found = {"site": self.site, "series": self.series, "time": self.time, "label": label}
        return found | {"names": self.names, "values": self.values}

    @property
    def way(self) -> str:
        """What is done about times that are not equally far apart."""
        return self.irregular or ("refuse" if self.names is None else "average")

    @property
    def gaps(self) -> str:
        """What is done about rows with empty cells."""
        return self.missing or "keep"

    @property
    def gathers(self) -> bool:
        """Whether rows have yet to be made of readings."""
        return self.names is not None or self.way != "refuse"

    def sources_of(self, variables: Sequence[str]) -> list[tuple[int, str]]:
        """Where the table has these variables: the position of one, with a name of it."""
        return [(k, one) for k, name in enumerate(variables) for one in self.sources.get(name, (name,))]

    def plausible(
        self, values: FloatArray, variables: Sequence[str], which: NDArray[np.integer] | None = None
    ) -> FloatArray:
        """Values in the units that are wanted, NaN beyond limits: rows of all variables, or each of variable `which`."""
        limits = [self.limits.get(name, (-np.inf, np.inf)) for name in variables]
        return changed(values, [self.units.get(name, Change()) for name in variables], limits, which)

    @property
    def clock(self) -> Clock | None:
        """The clock that freq= asks for, or None."""
        return None if self.freq is None else clock_of(self.freq)

    @property
    def tolerance(self) -> float:
        """By which share of the step a distance in time may be off."""
        return 0.05 if self.jitter is None else self.jitter

    def require_keys(self, columns: Sequence[str], where: str) -> None:
        """Raise if a column named by an argument is not there."""
        for argument, name in self.keys.items():
            if name is not None and name not in columns:
                raise DataError(
                    f"{where} has no column {name!r}, which {Given(argument)} asks for; its columns are "
                    f"{quoted(columns)}."
                )

    def choose_variables(self, columns: Sequence[str], where: str) -> tuple[str, ...]:
        """Return the variables among these columns: those asked for, or all that are nothing else."""
        if self.variables is not None:
            self.require_sources(columns, where)
            return tuple(self.variables)
        rest = tuple(name for name in columns if name not in self.keys.values())
        if not rest:
            raise DataError(f"{where} has no column left for variables; its columns are {quoted(columns)}.")
        if any(name.startswith("Unnamed: ") for name in rest):
            raise DataError(
                f"{where} has a column without a name, perhaps a saved row index; write the file without it "
                f"(index=False), or choose columns with {Given('variables')}."
            )
        return rest

    def require_sources(self, found: Collection[str], where: str) -> None:
        """Raise unless every chosen variable is among the names that a table has."""
        names = {name: [one for _, one in self.sources_of([name])] for name in self.variables or ()}
        lacking = [one for several in names.values() if not {*several} & {*found} for one in several]
        if lacking:
            raise DataError(
                f"{where} lacks {quoted(lacking)}, which {Given('variables')} asks for; it has {quoted(sorted(found), 30)}.",
                code="no-source",
            )

    def require_same(
        self, variables: Sequence[str], reference: Sequence[str], where: str, other: str
    ) -> None:
        """Raise unless both have the same variables; their order does not matter."""
        sides = [sorted({*one} - {*its}) for one, its in ((variables, reference), (reference, variables))]
        if any(sides):
            said = " and ".join(
                f"{side} has {quoted(own)}" for side, own in zip((where, other), sides, strict=True) if own
            )
            raise DataError(
                f"{where} and {other} have different variables: {said} alone; choose common ones with {Given('variables')}, "
                "or add an empty column for what a site does not record."
            )


def quoted(names: Sequence[object], most: int = 10) -> str:
    """Return names in quotes, the first ten of them."""
    shown = ", ".join(repr(str(name)) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def unnamed(d: int) -> tuple[str, ...]:
    """Return the names x0, x1, ... of d columns."""
    return tuple(f"x{i}" for i in range(d))
