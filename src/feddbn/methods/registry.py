"""Estimators by the names of the method table, and how another package adds its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feddbn.method_table import Method, add_method, get_method

__all__ = ["Method", "make_estimator", "register_method"]


def make_estimator(name: str, parameters: Mapping[str, Any], *, stored: bool = False) -> Any:
    """Return an unfitted estimator; a parameter it does not have is refused with the nearest name it has.

    `stored` says that the parameters are those of a result on disk, which an earlier version may have written.

    Examples
    --------
    >>> from feddbn.methods.registry import make_estimator
    >>> make_estimator("oneshot", {"n_lags": 2})
    OneShotDBN(n_lags=2)
    """
    method = get_method(name)
    return method.load()(**method.named(parameters, stored=stored))


def register_method(method: Method) -> None:
    """Add a method to the table and, if a study may name it, to the methods of studies; see docs/extending.md.

    Examples
    --------
    >>> from feddbn.method_table import METHODS, get_method
    >>> from feddbn.methods.registry import register_method
    >>> register_method(get_method("oneshot"))  # a row of your own, see docs/extending.md
    >>> "oneshot" in METHODS
    True
    """
    add_method(method)
    if method.in_studies:
        from feddbn.methods.studies import register_for_studies

        register_for_studies(method)
