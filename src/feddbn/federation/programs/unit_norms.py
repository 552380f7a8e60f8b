"""A private look at how large the units' vectors are, to choose a clipping bound that is paid for.

The task "unit-norms" sums, over all units, the indicator of the bin their norm falls into. One unit moves it
by 1, so it is released like any other sum, with noise and an entry in the ledger. The bins are fixed and coarse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import ProtocolError
from feddbn.federation.protocol.question import Constant, Param, Question, choice
from feddbn.federation.protocol.scope import Scope
from feddbn.federation.protocol.site import (
    Here,
    SiteState,
    SiteTask,
    one_by_one,
    register_site_task,
    site_task,
)
from feddbn.privacy.clipping import norm_edges, norm_histogram
from feddbn.privacy.noise_plan import ClipRule

__all__ = ["UnitNormsQuestion"]

_OWN = ("of", "unit", "norm")


@dataclass(frozen=True, kw_only=True)
class UnitNormsQuestion(Question):
    """How large the units' vectors in the answers to another question are.

    It travels as the other question with three parameters more: that one's name, the unit, and which norm is meant.
    """

    name = "unit-norms"
    purpose = "how large the vectors of single units are, in coarse bins"

    unit: str = choice("recording", "row")
    of: Question = field(metadata={"read": lambda value: value, "is_array": False, "axes": ()})
    norm: str = choice("flat", "gram", default="flat")

    def check_scope(self, scope: Scope) -> None:
        """A histogram shows single units, so it leaves with noise only, for the unit that the noise protects."""
        scope.require(scope.unit is not None, self.name, "norms of units are told only with noise")
        scope.require(self.unit == scope.unit, self.name, f"the noise protects each {scope.unit}")
        is_usual = self.of.name in ("moments", "curved-moments") and self.norm == "gram"
        scope.require(is_usual, self.name, "it is about norms of moments")
        scope.check_task(self.of.name)
        self.of.check_scope(scope)

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The other question's."""
        return self.of.constants

    @property
    def transformations(self) -> tuple[str, ...]:
        """The other question's."""
        return self.of.transformations

    @property
    def feature_maps(self) -> tuple[str, ...]:
        """The other question's."""
        return self.of.feature_maps

    @property
    def params(self) -> dict[str, Param]:
        """The other question's, its name and the norm."""
        return {**self.of.params, "of": self.of.name, "unit": self.unit, "norm": self.norm}

    @property
    def arrays(self) -> dict[str, FloatArray]:
        """The other question's."""
        return self.of.arrays

    @property
    def reach(self) -> int:
        """The other question's."""
        return self.of.reach

    @classmethod
    def read(cls, params: Mapping[str, Any], arrays: Mapping[str, Any]) -> UnitNormsQuestion:
        """Inverse of `params` and `arrays`."""
        rest = {key: value for key, value in params.items() if key not in _OWN}
        if params.get("of") == cls.name:
            raise ProtocolError("task 'unit-norms' cannot be about itself.")
        inner = site_task(str(params.get("of"))).question.read(rest, arrays)
        own = {key: params[key] for key in ("unit", "norm") if key in params}
        return cls(**{"unit": None, **own}, of=inner)


def _indicators(here: Here, question: UnitNormsQuestion, unit: str) -> Iterator[FloatArray]:
    units, edges = site_task(question.of.name).units, norm_edges()
    if units is None:
        raise question.wrong(f"task {question.of.name!r} cannot be split by unit, so its units have no norms")
    rule = ClipRule(1.0, norm="gram" if question.norm == "gram" else "flat")
    for vector in units(here, question.of, unit):
        yield from norm_histogram([vector], edges, rule.weights(len(vector)))


def _answer(here: Here, question: UnitNormsQuestion) -> tuple[SiteState, FloatArray]:
    total = np.zeros(len(norm_edges()))
    for indicator in _indicators(here, question, question.unit):
        total += indicator
    return here.state, total


register_site_task(
    SiteTask(UnitNormsQuestion, one_by_one(_answer), _indicators, lambda question: len(norm_edges()))
)
