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

A message is one sentence that names the argument, the value and the fix. It never contains data values
of a site, because error messages travel.
"""

from __future__ import annotations

__all__ = [
    "AggregationError",
    "BudgetExceeded",
    "CurvesWarning",
    "DataError",
    "DependentColumnsWarning",
    "FeddbnError",
    "FederationError",
    "FileError",
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
]

# Package -> the extra that brings it.
_EXTRAS = {
    "arch": "bootstrap",
    "cryptography": "privacy",
    "dask": "dask",
    "distributed": "dask",
    "dp_accounting": "privacy",
    "nvflare": "nvflare",
    "pooch": "datasets",
    "pyarrow": "parquet",
    "starlette": "console",
    "uvicorn": "console",
}


class FeddbnError(Exception):
    """Base of every error raised on purpose."""


class InputError(FeddbnError, ValueError):
    """Something the caller passed is wrong."""


class ParameterError(InputError):
    """An argument of a method or command is impossible."""


class DataError(InputError):
    """Rows, columns, times or variables are not usable."""


class FileError(InputError):
    """A file cannot be read or is not what it claims to be."""


class FederationError(FeddbnError, RuntimeError):
    """Something between server and sites went wrong."""


class ProtocolError(FederationError):
    """A message breaks the rules of the exchange; the sender is at fault."""


class SiteRefused(FederationError):
    """A site's own policy said no."""


class NotEnoughSites(FederationError):
    """Fewer sites answered than the run needs."""


class StillCollecting(NotEnoughSites):
    """The window of a collection is open: `awaited` are the sites that have not come, `until` is when it closes (seconds)."""

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
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {package!r}: install it with `pip install 'feddbn[{extra}]'`."
        )


def missing_extra(error: Exception) -> MissingExtra | None:
    """Return the extra that would have brought the module an import did not find."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    package = (name or "").split(".")[0]
    return MissingExtra(package, _EXTRAS[package]) if package in _EXTRAS else None


class ResultWarning(UserWarning):
    """Advice on a result, which carries the same sentence in its warnings."""


class CurvesWarning(UserWarning):
    """A network with curves is asked for what it cannot tell: beyond the range seen, or exactly."""


class HistoryWarning(UserWarning):
    """A history does not look like what a network was learned from."""


class UnitsWarning(ResultWarning):
    """A result depends on the units the variables are measured in."""


class ResidualsWarning(ResultWarning):
    """Residuals contradict what the method assumes."""


class DependentColumnsWarning(ResultWarning):
    """A variable follows exactly from others, so edges among them cannot be told apart."""
