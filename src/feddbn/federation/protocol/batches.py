"""A batch of questions as keepers see it: what its answers are bound to, laid out in one vector, and read from their sum.

A site that cannot answer the last questions of a batch, or knows that they rest on a wrong guess, must not show in the sum.
It sends zeros for them, and tells the keepers alone how many it has answered. They open no sum that a site of it has not
answered: the others could be few.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.errors import SiteRefused
from feddbn.federation.protocol.messages import digest_of
from feddbn.federation.protocol.site import site_task
from feddbn.federation.protocol.study import Study
from feddbn.federation.protocol.task import Part, Question, Task, part_length, parts_of
from feddbn.privacy.keepers import Batch, Vdaf


def vdaf_of(study: Study, tasks: Sequence[Task], batch: Batch, known: FloatArray | None = None) -> Vdaf:
    """Return what shares and proves the answers to a batch; the same at sites, keepers and server.

    A site's rows are at most those that the study says all sites have together. With the sum of the same question that was
    opened before, `known`, answers are bounded by it: a site proves that its part of the sum is, in every direction, at most
    `most_weight` times that of its rows.
    """
    # Proofs need a package that other studies do without.
    from feddbn.privacy.prio3.moments import MOST_ROWS, Limits, MomentsVdaf

    limits = Limits(max_rows=min(study.rows or MOST_ROWS, MOST_ROWS))
    if known is not None:
        limits = replace(limits, known=(known,), kappa=most_weight(known, len(study.sites)))
    return MomentsVdaf(batch_parts(tasks, batch.lengths), len(study.sites), batch.context, limits)


def batch_of(
    study: Study,
    run_id: str,
    seq: int,
    tasks: Sequence[Task],
    lengths: Sequence[int],
    known: FloatArray | None = None,
) -> Batch:
    """Return what the parts of answers of these lengths to some questions are bound to."""
    digests = tuple(digest_of(task) for task in tasks)
    before = "" if known is None else hashlib.sha256(known.astype("<f8").tobytes()).hexdigest()
    return Batch(run_id, study.digest, seq, digests, tuple(lengths), study.privacy.keepers, before)


def gram_in(task: Task, total: FloatArray) -> FloatArray | None:
    """Return count, totals and products at the beginning of a sum of moments; None if it is of something else."""
    parts = parts_of(task.question, len(total))
    return total[: part_length(parts[0])].copy() if parts[0][0] == "gram" else None


def most_weight(known: FloatArray, n_sites: int) -> float:
    """How many times the weight of its rows a site may have in any direction of a sum of moments.

    By chance alone a site of n rows has up to ``(1 + sqrt(q / n))**2`` in the best of all directions of q columns (Marchenko
    and Pastur); sites are taken to be of one size. Where rows are many, sites may differ by half as much again.
    """
    q = (math.isqrt(8 * len(known) + 1) - 3) // 2
    chance = (1.0 + math.sqrt(q * n_sites / max(float(known[0]), 1.0))) ** 2
    return max(1.5, 1.1 * chance)


def batch_parts(tasks: Sequence[Task], lengths: Sequence[int]) -> tuple[Part, ...]:
    """Return what the numbers of a batch's vector are, one after the other."""
    each = zip(tasks, lengths, strict=True)
    return tuple(part for task, length in each for part in parts_of(task.question, length))


def laid_out(tasks: Sequence[Task], vectors: Sequence[FloatArray]) -> tuple[FloatArray, tuple[int, ...]]:
    """Return one vector of the answers to a batch, and the lengths of these; the last ones may be missing."""
    missing = [np.zeros(_length(task.question)) for task in tasks[len(vectors) :]]
    found = [*vectors, *missing]
    return np.concatenate(found), tuple(map(len, found))


def _length(question: Question) -> int:
    """How long an answer to a question is, by the question alone."""
    if question.parts:
        return sum(map(part_length, question.parts))
    known = site_task(question.name).length
    if known is None:
        raise SiteRefused(
            f"task {question.name!r} cannot be answered here, and does not tell how long an answer is.",
            code="length-not-said",
        )
    return known(question)
