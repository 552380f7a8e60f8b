"""Every error this package raises on purpose.

::

    FeddbnError
    ├── InputError (ValueError)          something the caller passed
    │   ├── ParameterError               an argument of a method or command
    │   ├── DataError                    rows, columns, times, variables
    │   └── FileError                    a file that cannot be read or is not what it claims
    ├── FederationError (RuntimeError)   something between server and sites
    │   ├── ProtocolError                a message that breaks the rules: the peer's fault
    │   ├── SiteRefused                  a site's own policy said no
    │   ├── NotEnoughSites               too few sites answered
    │   │   └── StillCollecting          not all sites have come yet, and there is time left
    │   └── StateError                   stored state is missing, corrupt or of another run
    ├── PrivacyError (RuntimeError)      a protection that cannot be kept
    │   ├── AggregationError             a secure sum that must not or cannot be opened
    │   └── BudgetExceeded               the privacy budget does not allow it
    └── MissingExtra (ImportError)       an optional dependency is not installed

A message is one sentence that names the argument, the value and the fix. It contains no data of a site but a cell that
cannot be read; a site that answers others tells them only that it refused.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = [
    "AggregationError",
    "BudgetExceeded",
    "CurvesWarning",
    "DataError",
    "DependentColumnsWarning",
    "FeddbnError",
    "FederationError",
    "FileError",
    "Given",
    "HistoryWarning",
    "InputError",
    "MissingExtra",
    "NotEnoughSites",
    "ParameterError",
    "PrivacyError",
    "ProtocolError",
    "ResidualsWarning",
    "ResultWarning",
    "SiteRefused",
    "StateError",
    "StillCollecting",
    "UnitsWarning",
    "missing_extra",
    "reading",
]

# Package -> the extra that brings it.
_EXTRAS = {
    "arch": "bootstrap",
    "cryptography": "privacy",
    "dp_accounting": "privacy",
    "duckdb": "sql",
    "nvflare": "nvflare",
    "pyarrow": "parquet",
    "starlette": "console",
    "uvicorn": "console",
}


@dataclass(frozen=True)
class Given:
    """An argument in the sentence of an error, and its value if it has one: ``f"{Given('freq', '1h')} is no step."``.

    The error keeps it among its `parts`, and `feddbn.words.told` writes it as its reader does: ``freq='1h'`` in Python,
    ``--freq 1h`` at the command line.

    Examples
    --------
    >>> from feddbn.errors import DataError, Given
    >>> str(DataError(f"{Given('freq', '1h')} is no step."))
    "freq='1h' is no step."
    """

    name: str
    value: Any = ...

    def __str__(self) -> str:
        return f"{self.name}=" if self.value is ... else f"{self.name}={self.value!r}"

    def __format__(self, form: str) -> str:
        return f"\x1e{self!s}\x1e"

    @property
    def plain(self) -> list[Any]:
        """Its name, and its value if it has one."""
        return [self.name] if self.value is ... else [self.name, self.value]

    @classmethod
    def read(cls, text: str) -> Given:
        """Return what was written between two marks."""
        name, _, value = text.partition("=")
        try:
            return cls(name, literal_eval(value)) if value else cls(name)
        except (ValueError, SyntaxError):
            return cls(name, value)


class FeddbnError(Exception):
    """Base of every error raised on purpose; `code` tells refusals of one class apart, and `values` hold its numbers.

    `parts` are its sentence, cut where it names an argument (`Given`).

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.errors import FeddbnError
    >>> try:
    ...     feddbn.simulate(d=0)
    ... except FeddbnError as error:
    ...     print(type(error).__name__)
    ParameterError
    """

    def __init__(self, *sentence: object, code: str = "", **values: object) -> None:
        marked = [str(part).split("\x1e") for part in sentence]
        super().__init__(*("".join(parts) for parts in marked))
        self.parts = tuple(
            Given.read(part) if k % 2 else part for parts in marked for k, part in enumerate(parts)
        )
        self.code = code
        self.values = values

    def __reduce__(self) -> tuple[Any, ...]:
        # So that it comes back from another process as it was raised there.
        return _restored, (type(self), self.args, vars(self))


def _restored(kind: type[FeddbnError], args: tuple[object, ...], known: dict[str, Any]) -> FeddbnError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(known)
    return error


class InputError(FeddbnError, ValueError):
    """Something the caller passed is wrong."""


class ParameterError(InputError):
    """An argument of a method or command is impossible.

    Examples
    --------
    >>> import feddbn
    >>> feddbn.OneShotDBN(n_lags=-1).fit({"a": [[1.0, 2.0]]})
    Traceback (most recent call last):
        ...
    feddbn.errors.ParameterError: n_lags=-1 must be a whole number of at least 0 or 'auto'.
    """


class DataError(InputError):
    """Rows, columns, times or variables are not usable.

    Examples
    --------
    >>> import feddbn
    >>> feddbn.OneShotDBN().fit({})
    Traceback (most recent call last):
        ...
    feddbn.errors.DataError: data has no sites; give at least one.
    """


class FileError(InputError):
    """A file cannot be read or is not what it claims to be.

    Examples
    --------
    >>> import feddbn
    >>> feddbn.Summary.load("no-such-file.json")
    Traceback (most recent call last):
        ...
    feddbn.errors.FileError: file 'no-such-file.json' does not exist; check the path.
    """


@contextmanager
def reading(where: str, what: str = "text") -> Iterator[None]:
    """Say in one sentence what is wrong with a file that is read in this context; `where` names it, `what` is its format.

    Examples
    --------
    >>> import json
    >>> from feddbn.errors import reading
    >>> with reading("the list", "JSON"):
    ...     json.loads("[")
    Traceback (most recent call last):
        ...
    feddbn.errors.FileError: the list cannot be read as JSON (Expecting value: line 1 column 2 (char 1)).
    """
    try:
        yield
    except FeddbnError:
        raise
    except FileNotFoundError:
        raise FileError(f"{where} does not exist; check the path.", code="no-file") from None
    except UnicodeDecodeError:
        raise FileError(f"{where} is not UTF-8 text.", code="not-text") from None
    except (OSError, ValueError, EOFError, RecursionError) as error:
        reason = (
            getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
        ).splitlines()[0]
        code = "unreadable" if isinstance(error, OSError) else f"not-{what.lower()}"
        raise FileError(f"{where} cannot be read as {what} ({reason.rstrip('.')}).", code=code) from None


class FederationError(FeddbnError, RuntimeError):
    """Something between server and sites went wrong."""


class ProtocolError(FederationError):
    """A message breaks the rules of the exchange; the sender is at fault."""


class SiteRefused(FederationError):
    """A site's own policy said no."""


class NotEnoughSites(FederationError):
    """Fewer sites answered than the run needs."""


class StillCollecting(NotEnoughSites):
    """The window of a collection is open: `awaited` are the sites that have not come, `until` is when it closes (seconds).

    Examples
    --------
    >>> from feddbn.errors import StillCollecting
    >>> StillCollecting("1 site has not come.", awaited=("north",), until=60.0).awaited
    ('north',)
    """

    def __init__(self, sentence: str, awaited: tuple[str, ...] = (), until: float = 0.0) -> None:
        super().__init__(sentence)
        self.awaited = awaited
        self.until = until


class StateError(FederationError):
    """Stored state is missing, corrupt, or belongs to another run."""


class PrivacyError(FeddbnError, RuntimeError):
    """A protection cannot be kept."""


class AggregationError(PrivacyError):
    """A secure sum must not, or cannot, be opened."""


class BudgetExceeded(PrivacyError):
    """The privacy budget does not allow the release."""


class MissingExtra(FeddbnError, ImportError):
    """An optional dependency is not installed.

    Examples
    --------
    >>> from feddbn.errors import MissingExtra
    >>> str(MissingExtra("nvflare", "nvflare"))
    "this needs the package 'nvflare': install it with `pip install 'feddbn[nvflare]'`."
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {package!r}: install it with `pip install 'feddbn[{extra}]'`."
        )


def missing_extra(error: Exception) -> MissingExtra | None:
    """Return the extra that would have brought the module an import did not find.

    Examples
    --------
    >>> from feddbn.errors import missing_extra
    >>> missing_extra(ModuleNotFoundError(name="pyarrow"))
    MissingExtra("this needs the package 'pyarrow': install it with `pip install 'feddbn[parquet]'`.")
    """
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    package = (name or "").split(".")[0]
    return MissingExtra(package, _EXTRAS[package]) if package in _EXTRAS else None


class ResultWarning(UserWarning):
    """Advice on a result, which carries the same sentence in its warnings.

    Examples
    --------
    >>> import warnings
    >>> from feddbn.errors import ResultWarning
    >>> warnings.simplefilter("ignore", ResultWarning)  # `findings_` has them as well
    """


class CurvesWarning(UserWarning):
    """A network with curves is asked for what it cannot tell: beyond the range seen, or exactly."""


class HistoryWarning(UserWarning):
    """A history does not look like what a network was learned from.

    Examples
    --------
    >>> import feddbn, warnings
    >>> from feddbn.errors import HistoryWarning
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> with warnings.catch_warnings(record=True, action="always") as said:
    ...     ahead = dbn.forecast([[9000.0, 9000.0]] * 3, steps=1)
    >>> [one.category.__name__ for one in said]
    ['HistoryWarning']
    """


class UnitsWarning(ResultWarning):
    """A result depends on the units the variables are measured in."""


class ResidualsWarning(ResultWarning):
    """Residuals contradict what the method assumes."""


class DependentColumnsWarning(ResultWarning):
    """A variable follows exactly from others, so edges among them cannot be told apart."""
