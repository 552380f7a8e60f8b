"""A private look at how large the units' vectors are, to choose a clipping bound that is paid for.

The task "unit-norms" sums, over all units, the indicator of the bin their norm falls into. One unit moves it
by 1, so it is released like any other sum, with noise and an entry in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import ProtocolError
from feddbn.federation.protocol.site import SiteData, SiteState, SiteTask, register_site_task, site_task
from feddbn.federation.protocol.task import Param, Task
from feddbn.privacy.clipping import norm_edges, norm_histogram
from feddbn.privacy.noise_plan import ClipRule

__all__ = ["UNIT_NORMS", "unit_norms_task"]

_OWN = ("of", "unit", "norm", "low", "high", "per_octave")


def unit_norms_task(
    task: Task, unit: str, norm: str = "flat", low: float = 1e-6, high: float = 1e12, per_octave: int = 2
) -> Task:
    """Return the task that asks how large the units' vectors in the answers to `task` are."""
    own: dict[str, Param] = {
        "of": task.name,
        "unit": unit,
        "norm": norm,
        "low": low,
        "high": high,
        "per_octave": per_octave,
    }
    return Task("unit-norms", task.arrays, {**task.params, **own}, task.participants)


def _edges(task: Task) -> FloatArray:
    low, high, per_octave = (task.params.get(name) for name in ("low", "high", "per_octave"))
    if not isinstance(low, float) or not isinstance(high, float) or not isinstance(per_octave, int):
        raise ProtocolError("the task 'unit-norms' needs numbers low, high and per_octave.")
    return norm_edges(low, high, per_octave)


def _indicators(data: SiteData, state: SiteState, task: Task, unit: str) -> Iterator[FloatArray]:
    inner = Task(str(task.params["of"]), task.arrays, {k: v for k, v in task.params.items() if k not in _OWN})
    program, edges = site_task(inner.name), _edges(task)
    if program.units is None:
        raise ProtocolError(f"task {inner.name!r} cannot be split by unit, so its units have no norms.")
    rule = ClipRule(1.0, norm="gram" if task.params["norm"] == "gram" else "flat")
    for vector in program.units(data, state, inner, unit):
        yield from norm_histogram([vector], edges, rule.weights(len(vector)))


def _run(data: SiteData, state: SiteState, task: Task) -> tuple[SiteState, FloatArray]:
    total = np.zeros(len(_edges(task)))
    for indicator in _indicators(data, state, task, str(task.params["unit"])):
        total += indicator
    return state, total


UNIT_NORMS = SiteTask(
    "unit-norms", _run, "how large the vectors of single units are, in coarse bins", _indicators
)
register_site_task(UNIT_NORMS)
