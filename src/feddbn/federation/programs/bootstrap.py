"""Resampled moments: each site resamples its own recordings or blocks, the server gets sums of resamples.

Rules of this file
------------------
- Task ``bootstrap-moments`` asks for replicates first..stop-1; replicate -1 is the data themselves. The
  answer is the `Moments.to_sums` of each, one after the other: B resamples cost one stacked sum, or a few
  where that grows too long.
- The question says what the rows are: lagged values, or those of a curved design (`programs.curved`), whose
  replicate -1 is the sum that a fit with curves learns from.
- What is resampled: whole recordings where a site has many of them, else blocks of neighbouring rows.
- The draws of a site are seeded by (run seed, replicate, a digest of the site's own rows). The digest
  makes sites draw differently and every run repeatable; and it keeps the draws from the server. This
  matters: the sums are ``counts @ S`` with the sums S of single blocks, so a server that knew the counts
  of all sites could solve for every block of a few rows once there are as many replicates as blocks,
  secure aggregation or not.

Known weaknesses
----------------
- Two sites with bit-identical rows draw identically.
- A site with a single block has nothing to resample: under ``bootstrap`` it contributes its data to every
  replicate.
- Units of privacy are not split, so differential privacy cannot be put around this task.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.cells import FilledSite
from feddbn.core.designs.design import Design, design_rows
from feddbn.core.designs.gram import recording_gram
from feddbn.core.designs.nuisance import ONE_MEAN
from feddbn.core.designs.recordings import CHUNK_ROWS, CompleteSite, Recording, SiteData
from feddbn.core.statistics.moments import Moments, sums_length
from feddbn.core.statistics.resampling import (
    RESAMPLINGS,
    block_sizes,
    block_sums,
    cube_root_length,
    resample_counts,
)
from feddbn.errors import MissingExtra, ProtocolError
from feddbn.federation.programs.curved import CurvedMomentsQuestion, curved_site
from feddbn.federation.protocol.plan import Plan, Planned
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Here, SiteState, answers
from feddbn.federation.protocol.task import (
    Constant,
    Scope,
    ServerProgram,
    Task,
    View,
    array,
    choice,
    text,
    whole,
    wholes,
)

BLOCK_LENGTHS = ("auto", "politis-white")
UNITS = ("auto", "recordings", "blocks")
MANY_RECORDINGS = 20
MOST_REPLICATES = 1_000_000
FLOATS_PER_TASK = 4_000_000
"""Numbers in one answer, unless one replicate alone has more."""
_FLOATS_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class ResampledMoments:
    """Moments of the data of all sites, and of every replicate."""

    full: Moments
    replicates: tuple[Moments, ...]

    def worth(self, share: float) -> ResampledMoments:
        """The same where a row is worth a share of a complete one."""
        full, *others = (
            Moments(m.n * share, m.mean, m.scatter * share) for m in (self.full, *self.replicates)
        )
        return ResampledMoments(full, tuple(others))


@dataclass(frozen=True)
class ResamplingPlan:
    """How a site's rows are cut: `sizes[c]` are the block sizes of chunk c, `units[c]` the unit of each of
    its blocks.
    """

    sizes: tuple[np.ndarray, ...]
    units: tuple[np.ndarray, ...]
    n_units: int
    digest: bytes

    def counts(self, resampling: str, seed: int, replicate: int) -> FloatArray:
        """(n_units,) how often each unit is in a replicate; -1 is the data themselves."""
        if replicate < 0 or self.n_units == 0:
            return np.ones(self.n_units)
        pair, second = divmod(replicate, 2) if resampling == "stability" else (replicate, 0)
        key = hashlib.sha256(f"feddbn {resampling} {seed} {pair} ".encode() + self.digest).digest()
        rng = np.random.default_rng(int.from_bytes(key, "little"))
        return resample_counts(self.n_units, resampling, bool(second), rng)


def resampling_plan(site: SiteData, n_lags: int, block_length: int | str, unit: str) -> ResamplingPlan:
    """Cut a site's rows into what will be resampled; reads every row once and keeps none."""
    design = Design.linear(site.variables, n_lags)
    digest = hashlib.sha256()
    lengths: list[list[int]] = []
    longest = np.zeros((0, 0))
    for recording in CompleteSite(site).recordings():
        digest.update(b"recording ")
        lengths.append([])
        for chunk in _chunks(recording, design):
            digest.update(chunk.tobytes())
            lengths[-1].append(len(chunk))
            if block_length == "politis-white" and len(chunk) > len(longest):
                longest = chunk[:, : design.d].copy()
    usable = [item for item in lengths if sum(item)]
    by_recording = unit == "recordings" or (unit == "auto" and len(usable) >= MANY_RECORDINGS)
    length = _block_length(block_length, sum(map(sum, lengths)), longest)
    sizes, units, n_units = [], [], 0
    for item in lengths:
        for n_rows in item:
            cut = np.array([n_rows]) if by_recording else block_sizes(n_rows, length)
            sizes.append(cut)
            units.append(n_units + (np.zeros(1, dtype=int) if by_recording else np.arange(len(cut))))
            n_units += 0 if by_recording else len(cut)
        n_units += int(by_recording and sum(item) > 0)
    return ResamplingPlan(tuple(sizes), tuple(units), n_units, digest.digest())


def bootstrap_plan(columns: int, n_replicates: int, *, is_curved: bool = False) -> Plan:
    """What `bootstrap_program` may ask about rows of so many columns."""
    length = sums_length(columns)
    per_task = max(1, FLOATS_PER_TASK // length)
    times = -(-(n_replicates + 1) // per_task)
    numbers = min(per_task, n_replicates + 1) * length
    first = () if is_curved else (Planned("bootstrap-moments", length),)
    return *first, Planned("bootstrap-moments", numbers, times, times)


def bootstrap_program(
    variables: tuple[str, ...],
    n_lags: int,
    n_replicates: int,
    *,
    resampling: str = "bootstrap",
    block_length: int | str = "auto",
    unit: str = "auto",
    seed: int = 0,
    center: str = "none",
    curved: CurvedMomentsQuestion | None = None,
) -> ServerProgram[ResampledMoments]:
    """Ask for the mean, then for stacked sums of resamples about it; `curved` asks for rows of its design instead."""
    d = len(variables)
    q = (n_lags + 1) * d if curved is None else curved.curved.q
    length = sums_length(q)
    per_task = max(1, FLOATS_PER_TASK // length)

    functions: dict[str, Any] = {}
    if curved is not None:
        functions = {
            "basis": curved.basis,
            "level": curved.origin,
            "scale": curved.scale,
            "products": curved.products,
        }

    def task(origin: FloatArray, first: int, stop: int) -> Task:
        question = BootstrapQuestion(
            n_lags=n_lags,
            variables=variables,
            first=first,
            stop=stop,
            resampling=resampling,
            block_length=block_length if isinstance(block_length, int) else 0,
            block_rule="given" if isinstance(block_length, int) else block_length,
            unit=unit,
            seed=seed,
            center=center,
            origin=origin,
            **functions,
        )
        return Task(question, note={"replicates": float(max(stop, 0))})

    # A first sum about 0 only finds the mean; sums about the mean lose no digits to large levels. Curved rows are in public
    # units, about their level.
    origin = np.zeros(q)
    if curved is None:
        answer = yield task(origin, -1, 0)
        origin = Moments.from_sums(answer.value, q).mean
    found: list[Moments] = []
    for first in range(-1, n_replicates, per_task):
        stop = min(first + per_task, n_replicates)
        answer = yield task(origin, first, stop)
        if answer.value.shape != ((stop - first) * length,):
            raise ProtocolError(
                f"the sum of {stop - first} replicates has shape {answer.value.shape}; "
                f"{q} columns give {(stop - first) * length} numbers.",
                code="bad-sum",
            )
        found += [Moments.from_sums(row, q, origin) for row in answer.value.reshape(stop - first, length)]
    return ResampledMoments(found[0], tuple(found[1:]))


@dataclass(frozen=True, kw_only=True)
class BootstrapQuestion(RowsQuestion):
    """Sums of the replicates first..stop-1 about `origin`; `block_length` counts where `block_rule` is "given".

    With `basis` rows are those of a curved design, and `level`, `scale` and `products` are what `CurvedMomentsQuestion` calls
    origin, scale and products.

    Nuisances of recordings are taken off, and empty cells are drawn where there is a model of rows, before rows are
    resampled.
    """

    name = "bootstrap-moments"
    draws_once = True
    purpose = "count, totals and cross-products of resampled lagged rows"

    first: int = whole(-1, MOST_REPLICATES)
    stop: int = whole(0, MOST_REPLICATES)
    resampling: str = choice(*RESAMPLINGS)
    block_rule: str = choice("given", *BLOCK_LENGTHS)
    block_length: int = whole(0, 1_000_000_000, default=0)
    unit: str = choice(*UNITS)
    seed: int = whole()
    origin: FloatArray = array("columns")
    basis: str = text(default="")
    level: FloatArray | None = array("d", default=None)
    scale: FloatArray | None = array("d", default=None)
    products: tuple[int, ...] = wholes(0, 1_000_000, default=())

    def sizes(self) -> Mapping[str, int]:
        """Also the columns of the rows that are resampled."""
        return {**super().sizes(), "columns": self.n_columns}

    @cached_property
    def curved(self) -> CurvedMomentsQuestion | None:
        """The question about the same curved rows, not resampled; None if rows are lagged values."""
        if not self.basis:
            return None
        if self.level is None or self.scale is None:
            raise self.wrong(f"'basis' is {self.basis!r}, so it needs 'level' and 'scale'")
        given = {item.name: getattr(self, item.name) for item in fields(RowsQuestion)}
        return CurvedMomentsQuestion(
            **given, basis=self.basis, origin=self.level, scale=self.scale, products=self.products
        )

    @property
    def varying(self) -> BootstrapQuestion:
        """The data themselves: resamples lie around these, noise and all."""
        return replace(self, first=-1, stop=0)

    @property
    def function_units(self) -> tuple[FloatArray, FloatArray] | None:
        """Those of its functions."""
        return None if self.curved is None else self.curved.function_units

    @property
    def n_columns(self) -> int:
        """Columns of the rows that are resampled."""
        return self.q if self.curved is None else self.curved.n_columns

    def in_view(self, data: SiteData, site: str) -> tuple[View, ...]:
        """What is in view without resampling; weights are small whole numbers."""
        return super().in_view(data, site) if self.curved is None else self.curved.in_view(data, site)

    @property
    def feature_maps(self) -> tuple[str, ...]:
        """The choice of `features` that its functions stand for."""
        return () if self.curved is None else self.curved.feature_maps

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Curved rows are those of one design in a run, resampled or not."""
        return super().constants if self.curved is None else self.curved.constants

    def check(self) -> None:
        """There is something to answer, not too much of it, and a length where one is given."""
        super().check()
        if not self.basis and (self.products or self.level is not None or self.scale is not None):
            raise self.wrong("'level', 'scale' and 'products' need a 'basis'")
        if self.first >= self.stop or (self.block_rule == "given" and self.block_length < 1):
            raise self.wrong("'first' must be below 'stop', and a given block_length at least 1")
        n = self.stop - self.first
        if n > 1 and n * sums_length(self.n_columns) > FLOATS_PER_TASK:
            raise self.wrong(f"{n} replicates at a time are too many")

    def check_scope(self, scope: Scope) -> None:
        """Resamples are drawn as the study says."""
        super().check_scope(scope)
        if self.curved is not None:
            self.curved.check_scope(scope)
        most = int(scope.resampling.get("replicates", 0))
        scope.require(self.stop <= most, self.name, f"it asks for replicate {self.stop - 1}")
        for name in ("resampling", "block_rule", "block_length", "unit", "seed"):
            value = getattr(self, name)
            scope.require(value == scope.resampling.get(name), self.name, f"{name!r} is {value!r}")


def unit_sizes(data: SiteData, question: BootstrapQuestion) -> np.ndarray:
    """(n_units,) how many rows each unit has that a site resamples for a question."""
    plan = _plan(_rows_of(data, question)[0], question)
    sizes = np.zeros(plan.n_units)
    for rows, units in zip(plan.sizes, plan.units, strict=True):
        np.add.at(sizes, units, rows)
    return sizes


def _plan(site: SiteData, question: BootstrapQuestion) -> ResamplingPlan:
    """How the rows that a question is about are cut."""
    length = question.block_length if question.block_rule == "given" else question.block_rule
    return resampling_plan(site, question.n_lags, length, question.unit)


@answers(BootstrapQuestion)
def _answer(here: Here, question: BootstrapQuestion) -> tuple[SiteState, FloatArray]:
    question.require_variables(here.data)
    first, stop = question.first, question.stop
    total = np.zeros((stop - first, sums_length(question.n_columns)))
    if question.abstains(here.state):
        return here.state, total.ravel()
    site, design, own_means = _rows_of(here.data, question)
    plan = _plan(site, question)
    counts = np.stack(
        [plan.counts(question.resampling, question.seed, replicate) for replicate in range(first, stop)]
    )
    chunks = (
        chunk - mean
        for recording in CompleteSite(site).recordings()
        for mean in (_own_mean(recording, design) if own_means else 0.0,)
        for chunk in _chunks(recording, design)
    )
    for index, sums in _block_sums(chunks, plan, question.origin):
        total += counts[:, index] @ sums
    return here.state, total.ravel()


def _rows_of(data: SiteData, question: BootstrapQuestion) -> tuple[SiteData, Design, bool]:
    """The site as it is resampled, the design of its rows, and whether these lose their recording's mean."""
    has_means = question.center == "recording"
    if question.curved is not None:
        design = replace(question.curved.curved, nuisance=ONE_MEAN)
        return curved_site(data, question.curved), design, has_means
    site, design = question.treated(data), Design.linear(question.variables, question.n_lags)
    if question.nuisance.has_time or question.row_model is not None:
        site = FilledSite(site, question.nuisance, question.row_model, question.seed)
        has_means = False
    return site, design, has_means


def _block_sums(
    chunks: Iterable[FloatArray], plan: ResamplingPlan, origin: FloatArray
) -> Iterator[tuple[np.ndarray, FloatArray]]:
    """Yield (units, sums of their blocks), some blocks at a time."""
    # Bounds the (blocks, q, q) products held at once.
    at_once = max(1, _FLOATS_AT_ONCE // len(origin) ** 2)
    for chunk, sizes, units in zip(chunks, plan.sizes, plan.units, strict=True):
        ends = np.cumsum(sizes)
        for first in range(0, len(sizes), at_once):
            part = slice(first, first + at_once)
            rows = chunk[ends[part][0] - sizes[first] : ends[part][-1]]
            yield units[part], block_sums(rows, sizes[part], origin)


def _own_mean(recording: Recording, design: Design) -> FloatArray:
    """What every row of a recording loses before rows are resampled."""
    return recording_gram(design, recording).moments.mean


def _chunks(recording: Recording, design: Design) -> Iterator[FloatArray]:
    """Design rows in chunks of a size that does not depend on the design: blocks are cut within them."""
    return (rows.values for rows in design_rows(design, recording.blocks(), CHUNK_ROWS))


def _block_length(block_length: int | str, n_rows: int, longest: FloatArray) -> int:
    if isinstance(block_length, int):
        return block_length
    if block_length == "auto" or len(longest) < 10:
        return cube_root_length(n_rows)
    try:
        from arch.bootstrap import optimal_block_length
    except ImportError:
        raise MissingExtra("arch", "bootstrap") from None
    varying = longest[:, longest.std(axis=0) > 0]
    if varying.shape[1] == 0:
        return 1
    # One length for all variables: the most dependent one decides (Patton, Politis and White 2009).
    best = float(np.nanmax(optimal_block_length(varying)["circular"].to_numpy()))
    return int(np.clip(np.ceil(best), 1, len(longest)))
