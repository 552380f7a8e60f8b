"""Noise of .3 of the sampling error of every sum, added by each site inside its masks; results hardly change.

Theory of operation
-------------------
*Whose error.* A site leaves out one eighth of its rows after the other, asks its own program the same question each time,
and has eight answers. Their spread is the sampling error of its answer (the delete-a-group jackknife), whatever the answer
is: a Gram matrix, a histogram, a step of Newton's or of a round. So no method and no kind of question is known here. What
leaves is the exact answer plus ``.3 sum_k g_k (v_k - mean v)``, with standard Gaussian g_k. Sites are independent, so their
variances add up: in the sum over those who answer the noise is .3 of the sampling error of that sum, and 1.044 times the
standard error is left. Of the others' noise nobody can take off more than a colluding site's own share.

*Why along the data's own directions.* Independent noise on each number would be simpler. But the squares of a temperature
of 37 +- .5 have errors a hundred times those of its variance, and where columns nearly follow from each other a small part
of one number's error is more than what is to be learned. Noise made of answers keeps counts, totals and products
consistent: it is what a few rows more or fewer would do, so every program works under it.

*Which noise.* Which rows are left out together and the g_k follow from the site's secret key, the question, the rows, and
who is added up with which version of data. The same question about the same rows has the same noise, and nothing can be
averaged out by asking again. A question that leaves other rows in, or one row more at any site, has other noise at every
site, so that the difference of two sums is the rows between them plus noise of both.

*What the noise tells.* Its size follows from the data, and no number of it is told: of a sum only one draw is ever seen.
It is added with ten binary digits, so that whole numbers do not shine through.

*What it is not.* It is no differential privacy in the strict sense: that takes a bound on what a row can do, and so another
way to learn (`epsilon` in a study). `nominal_multiplier` says how it compares, for a row of ordinary size. A number that
rests on a few rows is told to 30 per cent, and that is what the rules about rows are for; they hold as without noise.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.designs.recordings import Block, Recording, RecordingView, SiteData, SiteView
from feddbn.core.statistics.moments import sums_length
from feddbn.errors import FeddbnError, SiteRefused
from feddbn.federation.protocol.messages import digest_of
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.site import Channel, Guard, Here, Memo, SiteState, SiteTask
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Constant, Task
from feddbn.findings import Finding
from feddbn.privacy.gaussian import LARGEST_EPSILON, gaussian_epsilon
from feddbn.privacy.ledger import SAMPLING_NOISE
from feddbn.privacy.noise_plan import NOMINAL_DELTA, SHARE_OF_ERROR, nominal_multiplier
from feddbn.privacy.policy import Unit

USUAL_ROWS = 1_000
"""With fewer rows, noise of a share of their error may cost an edge."""
N_PARTS = 8
"""Parts of a site's rows that are left out in turn."""
_FARTHEST = 3.0
"""No part weighs more than about twice, and none less than nothing: sums of squares stay such."""
_DIGITS = 10
_ROWS_OF = tuple(item.name for item in fields(RowsQuestion))
_OURS = "noise/"
_ABSTAINS = "agreement.abstains"


class SamplingNoise(Guard):
    """Adds noise of `share` of the sampling error to every answer of one site.

    Parameters
    ----------
    key
        The site's secret.
    rows
        How many rows all sites have together, where the study says so; None counts the noise of this site alone.
    precision
        What answers with such noise came to before, in all studies (`privacy.ledger.nominal_precision`).
    """

    unit: Unit = "row"
    delta = NOMINAL_DELTA
    label = SAMPLING_NOISE

    def __init__(
        self, key: bytes, rows: int | None = None, precision: float = 0.0, share: float = SHARE_OF_ERROR
    ) -> None:
        self._key = key
        self._total = rows
        self._precision = self._left = precision
        self._share = share
        self._last: float | None = None
        self._rows: tuple[SiteData, _Rows] | None = None
        self._memos: tuple[Memo, Memo] = ({}, {})

    def make(
        self, program: SiteTask, here: Here, task: Task, channel: Channel
    ) -> tuple[SiteState, FloatArray] | None:
        """Return the answer with noise, and the state with those of the parts; None where few rows do not show anyway."""
        views = task.question.in_view(here.data, here.name)
        if views and all(view.is_rounded for view in views):
            self._last = None
            return None
        own = {name: value for name, value in here.state.items() if not name.startswith(_OURS)}
        state, vector = program.answer(replace(here, state=own, memo=self._memos[0]), task.question)
        if self._rows is None or self._rows[0] is not here.data:
            self._rows = (here.data, _Rows(here.data))
        rows = self._rows[1]
        varying = replace(task, question=task.question.varying)
        rng = self._generator(varying, rows.digest + channel.among.encode())
        staying = rows.parts(rng, task.question.reach)
        weights = np.clip(rng.standard_normal(len(staying)), -_FARTHEST, _FARTHEST)
        seen, varying = _judged(here.data, varying)
        parts = [
            replace(
                here,
                data=_Left(seen, stays),
                state=_state_of(here.state, k),
                memo=self._memos[1].setdefault(str(k), {}),
            )
            for k, stays in enumerate(staying)
        ]
        found = self._answers(program, parts, varying)
        if len(found) < 2:
            raise SiteRefused(
                f"task {task.name!r}: this site has too few rows to tell how large the noise in its answer must be; ask the "
                "lead for fewer lags, or for protection = 'exact'.",
                code="no-noise",
            )
        noise = _noise(np.array([one for _, one in found.values()]), weights[list(found)])
        for k, (kept, _) in found.items():
            # Whether it fits the others a site decides once, for all its rows.
            kept = {name: value for name, value in kept.items() if name != _ABSTAINS}
            kept |= {_ABSTAINS: state[_ABSTAINS]} if _ABSTAINS in state else {}
            state = {**state, **{f"{_OURS}{k}/{name}": value for name, value in kept.items()}}
        self._last = nominal_multiplier(
            max(self._total or 0, sum(rows.lengths)), len(vector), task.question.reach
        )
        return state, vector + self._share * np.tile(noise, len(vector) // len(noise))

    def after(self, task: Task, vector: FloatArray, channel: Channel) -> FloatArray:
        """Book what leaves."""
        if self._last is not None:
            self._precision += self._last**-2
        return vector

    def ended(self, task: Task, leaves: bool) -> None:
        """It is booked if it leaves."""
        if leaves:
            self._left = self._precision
        else:
            self._precision = self._left

    def last_noise(self, task: Task) -> float | None:
        """Nominal noise multiplier of the last answer."""
        return self._last

    def epsilon(self) -> float | None:
        """Nominal epsilon of all answers so far, for one row; None if that is not known."""
        return gaussian_epsilon(self.delta, self._precision**-0.5) if 0 < self._precision < math.inf else None

    def _answers(
        self, program: SiteTask, parts: Sequence[Here], task: Task
    ) -> dict[int, tuple[SiteState, FloatArray]]:
        """What the parts answer, by number; where one cannot, the others tell the spread."""
        found = {}
        for k, part in enumerate(parts):
            try:
                state, vector = program.answer(part, task.question)
            except FeddbnError:
                continue
            if np.isfinite(vector).all():
                found[k] = (state, vector)
        return found

    def _generator(self, task: Task, rows: bytes) -> np.random.Generator:
        question = task.question
        if isinstance(question, RowsQuestion) and question.is_look:
            # A look is at all rows, whichever are held out: the same answer has the same noise.
            task = replace(task, question=replace(question, fold=()))
        chosen = tuple(getattr(question, name, None) for name in _ROWS_OF)
        about = Constant("", (question.name, *chosen)).digest if question.draws_once else digest_of(task)
        seed = hashlib.sha256(b"feddbn noise " + self._key + about.encode() + rows).digest()
        return np.random.default_rng(int.from_bytes(seed, "little"))


def about_noise(study: Study, numbers: int, rows: float, recordings: float = 0.0) -> Finding | None:
    """Return what the noise of a study does and how it compares, or None if it adds none of this kind.

    `numbers` are those that leave a site by its plan; `rows` and `recordings` what is counted: those of a site, or of all.
    Compared are the products of its variables and their lags for a row and for a recording, and all numbers for a row. An
    epsilon is None where it is too large to mean anything.
    """
    if not study.privacy.has_sampling_noise:
        return None
    n, lags = max(rows, study.rows or 0), study.n_lags or 1
    values: dict[str, Any] = {"share": SHARE_OF_ERROR, "delta": NOMINAL_DELTA, "rows": int(n)}
    products, together = sums_length(len(study.variables) * (lags + 1)), rows / max(recordings, 1.0)
    compared = {
        "row": (products, 0.0),
        "all": (max(numbers, products), 0.0),
        "recording": (products, together),
    }
    for name, (length, size) in compared.items():
        epsilon = gaussian_epsilon(NOMINAL_DELTA, nominal_multiplier(n, length, lags, size))
        values[name] = epsilon if epsilon <= LARGEST_EPSILON else None
    return Finding("study-sampling-noise", "good", values)


def few_rows(study: Study, rows: int | None) -> Finding | None:
    """Return what noise may cost a study of so few rows, all sites together; None if it costs nothing, or nobody knows."""
    if not study.privacy.has_sampling_noise or rows is None or rows >= USUAL_ROWS:
        return None
    return Finding("noise-few-rows", "note", {"rows": rows, "usual": USUAL_ROWS})


class _Rows:
    """How many rows each recording of a site has, and a digest of them all."""

    def __init__(self, data: SiteData) -> None:
        found = hashlib.sha256(repr(tuple(data.variables)).encode())
        self.lengths: list[int] = []
        for recording in data.recordings():
            found.update(b"recording")
            self.lengths.append(0)
            for block in recording.blocks():
                found.update(f"{block.values.shape} {block.starts_segment} {block.time}".encode())
                found.update(np.ascontiguousarray(block.values, dtype=np.float64).tobytes())
                self.lengths[-1] += len(block.values)
        self.digest = found.digest()

    def parts(self, rng: np.random.Generator, reach: int) -> list[BoolArray]:
        """Return which rows stay when each part goes: parts are equally many rows, in runs of neighbours drawn at random."""
        n = sum(self.lengths)
        n_runs = N_PARTS * max(1, min(16, n // (8 * N_PARTS * (reach + 1))))
        length = max(n // n_runs, 1)
        # What is left over at the end begins anywhere.
        place = (np.arange(n) + rng.integers(max(n, 1))) % max(n, 1)
        part = np.append(rng.permutation(n_runs) % N_PARTS, N_PARTS)[np.minimum(place // length, n_runs)]
        return [part != k for k in range(N_PARTS) if (part == k).any()]


@dataclass(frozen=True)
class _Left(SiteView):
    """A site without some of its rows; `stays` says which of all its rows remain, in order."""

    stays: BoolArray

    def recordings(self) -> Iterator[Recording]:
        """Yield what is left of each recording."""
        first = 0
        for recording in self.data.recordings():
            n = sum(len(block.values) for block in recording.blocks())
            stays = self.stays[first : first + n]
            first += n
            if stays.all():
                yield recording
            elif stays.any():
                yield _LeftRows(recording, stays)


@dataclass(frozen=True)
class _LeftRows(RecordingView):
    stays: BoolArray

    def blocks(self) -> Iterator[Block]:
        """Yield the rows that remain; no lag reaches over those that do not."""
        first, clock, is_cut = 0, 0, False
        for block in self.recording.blocks():
            n = len(block.values)
            clock = clock if block.time is None else block.time
            stays = self.stays[first : first + n]
            edges = np.flatnonzero(np.diff(np.concatenate([[False], stays, [False]]).astype(np.int8)))
            for start, stop in edges.reshape(-1, 2).tolist():
                begins = start > 0 or block.starts_segment or is_cut
                yield block.part(start, stop, begins, clock + start)
            is_cut = bool(n and not stays[-1]) or (is_cut and not n)
            first, clock = first + n, clock + n


def _judged(data: SiteData, task: Task) -> tuple[SiteData, Task]:
    """The site with far cells bounded, and the question about it: what is far is judged by all rows, not by each part's."""
    question = task.question
    if not isinstance(question, RowsQuestion) or (question.robust == "none" and not question.cell_maps):
        return data, task
    seen = replace(question, log_scales=None).treated(data)
    return seen, replace(task, question=replace(question, robust="none", cell_maps=()))


def _state_of(state: Mapping[str, np.ndarray], k: int) -> SiteState:
    prefix = f"{_OURS}{k}/"
    return {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}


def _noise(vectors: FloatArray, weights: FloatArray) -> FloatArray:
    """(n,) a draw with the covariance of the jackknife, in steps of a thousandth of each number's own deviation."""
    # For a sum over rows this is its variance; for a mean it is a little more.
    apart = (vectors - vectors.mean(axis=0)) * math.sqrt(len(vectors) / (len(vectors) - 1))
    deviations = np.sqrt((apart**2).sum(axis=0))
    with np.errstate(divide="ignore"):
        steps = np.where(deviations > 0, np.exp2(np.floor(np.log2(deviations)) - _DIGITS), 1.0)
    return np.asarray(np.rint(weights @ apart / steps) * steps)
