"""What a notebook shows as a picture and a table instead of one line of text.

How things look is decided by `feddbn.report.notebook`. It is named here and not imported: it lies above everything that is
shown, and a program that shows nothing never loads it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Shown", "ShownEstimator"]


class Shown:
    """Base of everything that `feddbn.report.notebook` can draw."""

    def _repr_html_(self) -> str:
        return str(import_module("feddbn.report.notebook").html_of(self))


class ShownEstimator(Shown):
    """An estimator: what it learned is shown, instead of scikit-learn's diagram of its arguments."""

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
