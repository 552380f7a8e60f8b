"""A network in continuous time, as a program of two sums.

    ``counts.lags``    how many sites have enough readings in each bin of the time between them, for each pair of variables
    ``gram.lags``      products of readings in these bins

The first is asked where sites are to be hidden: what few sites have in a bin would be their own sum. In one process it is
not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from feddbn.core.designs.lags import LagDesign
from feddbn.errors import DataError
from feddbn.federation.protocol.rows import Treatment
from feddbn.federation.protocol.task import Plan, Planned, ServerProgram, Task
from feddbn.federation.sums.in_view import LEAST
from feddbn.federation.sums.lags import (
    LagCountsQuestion,
    LagsQuestion,
    SummedLags,
    lags_length,
)

BOUNDED = Treatment(robust="site")
"""What is done to readings unless somebody says otherwise: extreme ones count for less."""


@dataclass(frozen=True)
class AskedLags:
    """What the sums told.

    Attributes
    ----------
    summed
        Over all sites, in the units of the data; times are on the design's clock.
    n_sums
        How many sums were asked for.
    n_left_out
        Bins of pairs of variables that are seen at some site, but at fewer than are needed.
    """

    summed: SummedLags
    n_sums: int
    n_left_out: int


def continuous_plan(design: LagDesign) -> Plan:
    """What `lag_sums_program` asks."""
    return Planned("counts.lags", int(np.prod(design.shape))), Planned("gram.lags", lags_length(design))


def lag_sums_program(
    design: LagDesign,
    *,
    n_sites: int | None = None,
    treatment: Treatment = BOUNDED,
) -> ServerProgram[AskedLags]:
    """Ask for the sums.

    Parameters
    ----------
    n_sites
        How many sites every number must rest on (`fewest_sites`); None where nobody has to be hidden.
    treatment
        What is done to readings; far ones are bounded unless it says otherwise.
    """
    cells, n_left_out = None, 0
    bins: dict[str, Any] = {"n_lags": 0, "variables": design.variables, "clock": design.clock}
    bins |= {"first": design.first, "n_bins": design.n_bins}
    if n_sites is not None:
        count = treatment.on(LagCountsQuestion(**bins, least=LEAST))
        sites = np.rint((yield Task(count)).value).reshape(design.shape)
        cells = (sites >= n_sites).astype(np.float64)
        n_left_out = int(((sites > 0) & (sites < n_sites)).sum())
    answer = yield Task(treatment.on(LagsQuestion(**bins, cells=cells)))
    summed = SummedLags.from_sums(answer.value, design)
    _require_readings(summed, design)
    return AskedLags(summed, 1 + (n_sites is not None), n_left_out)


def _require_readings(summed: SummedLags, design: LagDesign) -> None:
    """Refuse sums in which a variable has no two readings at any of the design's delays."""
    pairs = np.diagonal(summed.sums.counts[1:].sum(axis=0))
    lacking = [name for name, n in zip(design.variables, pairs, strict=True) if n <= 0]
    if lacking:
        low, high = design.edges[[0, -1]]
        raise DataError(
            f"{', '.join(lacking)}: no two readings of one recording are {low:.3g} to {high:.3g} {design.clock} apart, or "
            "too few sites have enough of them; leave these variables out, or change 'shortest' and 'longest'.",
            code="no-delays",
        )
