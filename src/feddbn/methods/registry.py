"""Estimators by the names of the method table, and how another package adds its own."""

from __future__ import annotations

from feddbn.method_table import Method, add_method, make_estimator

__all__ = ["Method", "make_estimator", "register_method"]


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
