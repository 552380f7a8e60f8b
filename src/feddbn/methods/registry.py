"""Every method by the name people type, with what it assumes and needs.

A method is imported when it is asked for, so that listing the names costs nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from feddbn.errors import ParameterError

__all__ = ["METHODS", "Method", "available_methods", "default_method", "get_method", "make_estimator"]


@dataclass(frozen=True)
class Method:
    """One estimator class and how it differs from the others.

    Attributes
    ----------
    name, label
        What people type, and what tables show (the paper's name where it has one).
    module, cls
        Where the class is.
    summary
        One line for lists.
    needs_truth
        Whether `fit` wants the true network; such a method is a yardstick, not a method.
    is_personal
        Whether it learns one network per site (``dbns_``).
    predicts
        Whether its weights are effects, so that rows can be predicted with them.
    takes_noise
        Whether a study of it may promise differential privacy: all it asks for are sums that sites can protect by noise.
    """

    name: str
    label: str
    module: str
    cls: str
    summary: str
    needs_truth: bool = False
    is_personal: bool = False
    predicts: bool = True
    takes_noise: bool = False

    @property
    def is_installed(self) -> bool:
        """Whether this installation has it."""
        return find_spec(self.module) is not None

    def load(self) -> type[Any]:
        """Return the estimator class."""
        found: type[Any] = getattr(import_module(self.module), self.cls)
        return found

    def parameters(self) -> tuple[str, ...]:
        """Names of its arguments, without the federation, which is not a choice about the model."""
        names = inspect.signature(self.load()).parameters
        return tuple(name for name in names if name != "federation")


_BASELINES = "feddbn.methods.baselines"
METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method(
            "oneshot",
            "OneShotDBN",
            "feddbn.methods.oneshot",
            "OneShotDBN",
            "one network from one exact sum, by a search over orders",
            takes_noise=True,
        ),
        Method(
            "fdbnl", "FDBNL", "feddbn.methods.fdbnl", "FDBNL", "one network by consensus, as in the paper"
        ),
        Method(
            "pfdbnl",
            "PFDBNL",
            "feddbn.methods.pfdbnl",
            "PFDBNL",
            "one network per site around a shared one",
            is_personal=True,
        ),
        Method(
            "dynotears",
            "Alldata",
            "feddbn.methods.dynotears",
            "Dynotears",
            "DYNOTEARS on the pooled rows, which no federation allows",
        ),
        Method("average", "Ave", _BASELINES, "Average", "mean of the sites' own DYNOTEARS weights"),
        Method("vote", "Vote", _BASELINES, "Vote", "edges that most sites find on their own", predicts=False),
        Method(
            "best-site",
            "Best",
            _BASELINES,
            "BestSite",
            "the single site nearest to the truth, which has to be known",
            needs_truth=True,
        ),
        Method(
            "local",
            "LocalOnly",
            _BASELINES,
            "LocalOnly",
            "each site's own DYNOTEARS, nothing shared",
            is_personal=True,
        ),
    )
}
_OTHER_NAMES = {
    "alldata": "dynotears",
    "pooled": "dynotears",
    "ave": "average",
    "best": "best-site",
    "bestsite": "best-site",
    "local-only": "local",
    "localonly": "local",
    "oneshotdbn": "oneshot",
    "one-shot": "oneshot",
}


def available_methods() -> list[Method]:
    """Return the methods of this installation, the recommended one first."""
    return [method for method in METHODS.values() if method.is_installed]


def default_method() -> str:
    """Return the name of the recommended method."""
    return available_methods()[0].name


def get_method(name: str) -> Method:
    """Return a method by its name or one of the paper's names, in any case."""
    key = name.strip().lower().replace("_", "-")
    method = METHODS.get(_OTHER_NAMES.get(key, key))
    if method is None or not method.is_installed:
        known = ", ".join(m.name for m in available_methods())
        raise ParameterError(f"method={name!r} is not known; choose one of {known}.")
    return method


def make_estimator(name: str, parameters: Mapping[str, Any]) -> Any:
    """Return an unfitted estimator; a parameter it does not have is refused with the nearest name it has."""
    method = get_method(name)
    known = method.parameters()
    for key in parameters:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}."
            raise ParameterError(f"method {method.name!r} has no parameter {key!r}; {hint}")
    return method.load()(**parameters)
