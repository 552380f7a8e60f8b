"""How the sums of a study are made from the sites' replies; masked sums are in `masked_sums`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.federation.protocol.messages import NEVER, Reply, encode_request, task_request
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Sum, Task
from feddbn.privacy.secagg import odd_ones
from feddbn.runtime.deployed.asking import Line
from feddbn.runtime.deployed.attendance import Roll

__all__ = ["PlainSums", "Sums", "Turn", "sums_for"]


@dataclass(frozen=True)
class Turn:
    """One task on its way: its digest and number, whom it asks, and which answers were counted before."""

    task: Task
    digest: str
    seq: int
    participants: tuple[str, ...]
    counted: Mapping[str, int]

    def after(self, site: str) -> int:
        """Return the number of the last task whose answer by `site` was counted."""
        return self.counted.get(site, NEVER)


Sums = Callable[[Turn], Sum]
"""Makes the sum for a task; whether the sites in it are enough is for the caller to say."""


def sums_for(study: Study, line: Line, roll: Roll) -> Sums:
    """Return how a study wants its sums made: in the clear or under masks."""
    if not study.privacy.secure_aggregation:
        return PlainSums(line, roll, study.privacy.max_norm)
    # Masks need a package that plain studies do without.
    from feddbn.runtime.deployed.masked_sums import MaskedSums

    return MaskedSums(study, line)


class PlainSums:
    """Asks for the sites' vectors and adds them in sorted site order."""

    def __init__(self, line: Line, roll: Roll, max_norm: float | None = None) -> None:
        self._line = line
        self._roll = roll
        self._max_norm = max_norm

    def __call__(self, turn: Turn) -> Sum:
        """Return the sum over the sites that answered before the study's patience ended."""
        line, vectors = self._line, dict[str, FloatArray]()
        pending = self._roll.awake(turn.participants, turn.seq)
        for attempt in line.attempts(self._roll.patience_s):
            messages = {
                site: encode_request(
                    task_request(turn.task, line.run_id, turn.seq, turn.after(site), attempt)
                )
                for site in pending
            }
            vectors.update(self._vectors(line.ask(messages, turn.task.name, turn.seq), turn))
            pending = [site for site in pending if site not in vectors]
            self._roll.note(vectors, pending, turn.seq)
            if not pending or any(site in line.refused for site in pending):
                break
        vectors = self._same_shape(vectors, turn)
        names = tuple(sorted(vectors))
        total = np.zeros_like(vectors[names[0]]) if names else np.zeros(0)
        for name in names:
            total += vectors[name]
        return Sum(total, names)

    def _vectors(self, replies: Mapping[str, Reply], turn: Turn) -> dict[str, FloatArray]:
        out: dict[str, FloatArray] = {}
        for site, reply in replies.items():
            vector = reply.arrays.get("vector")
            if reply.meta.get("digest") != turn.digest or vector is None or not np.all(np.isfinite(vector)):
                self._refuse(site, f"site {site!r} sent no finite vector for this task.", turn)
                continue
            if self._max_norm is not None and not np.linalg.norm(vector) <= self._max_norm:
                said = f"site {site!r} sent a vector longer than the study's max_norm = {self._max_norm:g}."
                self._refuse(site, said, turn)
                continue
            out[site] = np.asarray(vector, dtype=np.float64)
        return out

    def _same_shape(self, vectors: dict[str, FloatArray], turn: Turn) -> dict[str, FloatArray]:
        """Keep the vectors of the shape that most have; a site whose shape differs is not counted."""
        odd = odd_ones({site: vector.shape for site, vector in vectors.items()}, "shape")
        for site, shape, usual in odd:
            self._refuse(site, f"site {site!r} answered with shape {shape}, most with {usual}.", turn)
        return {site: vector for site, vector in vectors.items() if site not in {one for one, _, _ in odd}}

    def _refuse(self, site: str, sentence: str, turn: Turn) -> None:
        self._line.note_odd(site, sentence, turn.task.name, turn.seq)
