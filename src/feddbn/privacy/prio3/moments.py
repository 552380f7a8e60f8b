"""Sums of moments with a proof that rows could have made them: what sites send to two keepers.

An answer consists of public parts (`federation.protocol.task.Part`): a "gram" block is the Gram matrix of the columns
(1, x_1 - o_1, ..., x_q - o_q) about a public origin o, so its corner is the number of rows n; a "scatter" block is a
positive semi-definite matrix of q columns; "numbers" are any numbers. What is proved of every report:

(1) every block is R'R for a matrix R of whole numbers of limited size: rows could have made it. As the column of ones is in
    a gram block, totals and count fit each other (Cauchy-Schwarz);
(2) n is the number N of the site's rows, or with `Limits.weighs` at least a quarter of it; N is 0, or between `min_rows` and
    `max_rows`;
(3) where an earlier sum of the same columns is known (`Limits.known`), with covariance S and mean m of all sites: in every
    direction w the site's sum of squares about m is at most kappa N w'Sw, or ``A <= kappa N S`` as symmetric matrices, where
    A is the site's part of the products about m. Else every sum of squares is at most N times `largest` squared.

What (3) is worth. Let a site have N_k of n rows, and b be the weight of x in the regression of y on any columns X, x among
them, in units of (standard deviation of what X leaves of y) / (standard deviation of what the others of X leave of x), so
that it is close to a partial correlation. Off the diagonal, a matrix between 0 and the identity is at most 1/2; so whatever
the site sends, it moves b by at most about ``kappa N_k / (2 (n - N_k))``: with kappa = 1.5 less than its share N_k / n of
the rows, for shares up to 1/4. Bounds on single columns would not do: along directions in which columns nearly cancel, a
matrix with small diagonal entries still has all the weight (five times its share in tests).

A site whose own mean squares are above the limit refuses to answer, or, with `Limits.weighs`, weighs all of its rows less
(`Fitted.weights`), so n < N. The same question must not be opened both with and without weights: the difference is what these
take off, which may be that of one site. (3) is as good as the earlier sum: a site could have made that one larger first. Then
the rest of the sites cannot fill it, which `Limits.found_again` tells: in no direction can S have been made larger than by
``1 / (found_again - kappa N_k / n)``.

Numbers are not proved to be anything: what they may be depends on the question.

Rounding
--------
Blocks are whitened by the earlier sum, so that A <= N I in these units. R is the Cholesky factor in units of 2**-f,
rounded, and what is added up is R'R exactly, so the proof is about whole numbers. Relative to ``sqrt(G_ii G_jj)`` entries are
wrong by about 2**-f / sqrt(n); f is as large as the field allows, up to 32 where an earlier sum is known: 1e-11 for 1,000
rows. Opened counts are rounded to multiples of 2**-16.

The proof
---------
Secret-shared are the answer, R and N; for (3) Q and Z with ``N I - A = Q'Q + Z``, where Q is the rounded Cholesky factor and
Z what rounding leaves; for every other inequality ``D >= 0`` whole numbers u and z with ``D = u^2 + z`` (u the root of D,
rounded down). Let v be all R, Q, Z, u and z, and p the modulus.

(a) *Small numbers.* 128 random combinations P v, P_ki in {-1, 0, 1} with probabilities 1/4, 1/2, 1/4, are each shown by bits
    to lie in [-T, T). P is hashed from commitments to the shares of all that comes before the bits.
    If one |v_i| > 2T (as the residue nearest to zero), then whatever the rest of a combination is, at most one of "P_ki = 0"
    and "P_ki is 1 or -1" can pass, and each has probability 1/2. So all pass with probability at most 2**-128.
    An honest site's combinations have ``P(|P_k v| >= 8 |v|) <= 2 exp(-64)``, and T is at least 8 |v|.
(b) *Products.* With random r, s, t after everything is fixed::

        sum_b s_b (|R_b r|^2 - r'G_b r) + sum_b s'_b (|Q_b r|^2 + r'(Z_b + A_b - N_b I) r) + sum_c t_c (u_c^2 + z_c - D_c) = 0

    If some equation does not hold modulo p, its bracket is a polynomial of degree at most 2 in r that is not zero, and
    vanishes with probability at most 2/p (Schwartz-Zippel); s and t hide a bracket that is not zero with 1/p.
(c) *Bits* are 0 or 1: the same with random weights on b (b - 1), 1/p; and they are those of the combinations: 1/p.
(d) *No wrap-around.* By (a) all of v is at most 2T. Both sides of every equation differ by less than ``(2 m + 2) 4 T^2 < p``
    for blocks of m columns, so what holds modulo p holds for whole numbers. Then G = R'R is positive semi-definite,
    ``D >= -2T`` and ``N I - A >= -2T q``: bounds are kept but for `MomentsVdaf.slack` rows.
(e) All of it is one fully linear proof (`feddbn.privacy.prio3.flp`), of error at most 2 P / p for P calls.

All errors are below 2**-110, and count once for each hash that a site computes to try its luck. Shares, proof and both seeds
are hashed with nonce, context, parts, limits and number of sites: a report made for one is not valid for another. A keeper's
answers are random but for the fact that the report is valid, so they tell nothing (`feddbn.privacy.prio3.prio3`).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from feddbn.core.arrays import FloatArray, IntArray
from feddbn.core.statistics.moments import safe_roots, symmetric, upper_triangle
from feddbn.errors import AggregationError
from feddbn.privacy.prio3.field import FIELD128, Elements
from feddbn.privacy.prio3.flp import Mul, ParallelSum, Valid
from feddbn.privacy.prio3.prio3 import Prio3, VerifyState
from feddbn.privacy.prio3.xof import Xof

__all__ = ["KAPPA", "Fitted", "Limits", "MomentsVdaf"]

ALGORITHM = 0xFFFF_FEDB
"""Keeps our hashes apart from those of other VDAFs; in the draft's range for private use."""
KAPPA = 1.5
N_PROJECTIONS = 128
MOST_FRACTION_BITS = 32
FEWEST_FRACTION_BITS = 12
NUMBER_BITS = 64
"""Binary digits behind the point of plain numbers."""
COUNT_BITS = 16
"""Binary digits behind the point of an opened count."""
MOST_ROWS = 1 << 30
LARGEST = 2.0**20
"""Root mean square that a column may have where no earlier sum is known."""
LEAST_WEIGHT = 0.25
"""A site that would have to weigh its rows less than this cannot answer."""
_NUMBERS = ("kappa", "min_rows", "max_rows", "largest")
_FAR, _ROUNDING = 1e-3, 1e-9
_LEAST_VARIANCE = 1e-6
_LEAST_STEPS = 1e3
"""Steps of rounding that a column's deviations have at least."""
_NOTHING = 1e-9
_LIMB = 20
_COLUMNS_AT_ONCE = 8192
_PROJECTION_TAG = b"feddbn projections"

Part = tuple[str, int]


@dataclass(frozen=True)
class Limits:
    """What a report may hold; public, and the same for keepers and sites.

    Attributes
    ----------
    known
        Opened sums of "gram" parts, at most one for each number of columns; they are for all blocks of so many columns
        and must be about the same origin.
    kappa
        In no direction a site's mean square is more than so many times that of all sites.
    min_rows, max_rows
        Fewest and most rows of a block; a block of zeros will do, too.
    largest
        Root mean square that a column may have where no sum is known.
    weighs
        Whether a site that is above the limits weighs its rows less; else it refuses.
    """

    known: tuple[FloatArray, ...] = ()
    kappa: float = KAPPA
    min_rows: float = 0.0
    max_rows: float = MOST_ROWS
    largest: float = LARGEST
    weighs: bool = False

    def __post_init__(self) -> None:
        given = (self.kappa, self.min_rows, self.max_rows, self.largest)
        in_order = 0 <= self.min_rows <= self.max_rows <= MOST_ROWS and self.max_rows >= 1
        if not (all(map(math.isfinite, given)) and in_order and self.kappa >= 1 and self.largest > 0):
            raise AggregationError(
                f"kappa={self.kappa}, min_rows={self.min_rows}, max_rows={self.max_rows} and largest={self.largest} are no "
                f"limits: kappa must be at least 1, rows from 0 to {MOST_ROWS}, and largest above 0.",
                code="bad-limits",
            )
        for sums in self.known:
            if not (np.isfinite(sums).all() and len(sums) and sums[0] > 0):
                raise AggregationError("a sum in known is of no rows, or not finite.", code="bad-limits")

    def _known(self, q: int) -> FloatArray | None:
        """(q + 1, q + 1) mean products of q columns and ones."""
        length = (q + 1) * (q + 2) // 2
        found = next((sums for sums in self.known if len(sums) == length), None)
        return None if found is None else symmetric(np.asarray(found, dtype=np.float64), q + 1) / found[0]

    @property
    def least_weight(self) -> float:
        """What a site's rows weigh at least."""
        return LEAST_WEIGHT if self.weighs else 1.0

    def units(self, part: Part) -> tuple[FloatArray, bool]:
        """(m, m) upper triangular B with block = B' (block in units) B, and whether an earlier sum tells it."""
        kind, q = part
        mean, known = np.zeros(q), self._known(q)
        if known is None:
            root = self.largest * np.eye(q)
        else:
            mean = known[0, 1:]
            covariance = known[1:, 1:] - np.outer(mean, mean)
            scale = safe_roots(np.diag(covariance))
            correlations = covariance / np.outer(scale, scale)
            np.fill_diagonal(correlations, 1.0)
            values, vectors = np.linalg.eigh(correlations)
            raised = (vectors * np.maximum(values, _LEAST_VARIANCE)) @ vectors.T
            root = math.sqrt(self.kappa) * np.linalg.cholesky(raised).T * scale
        if kind == "scatter":
            return root, known is not None
        units = np.zeros((q + 1, q + 1))
        units[0, 0], units[0, 1:], units[1:, 1:] = 1.0, mean, root
        return units, known is not None

    def found_again(self, parts: Sequence[Part], total: FloatArray) -> float:
        """How much of the known sums an opened sum has: the smallest ratio of mean squares about their mean.

        It is about 1 where both are of the same rows; far below, somebody made the known sums larger. 1 if none is known.
        """
        found, start = math.inf, 0
        for kind, size in parts:
            m = size + (kind == "gram")
            stop = start + (size if kind == "numbers" else m * (m + 1) // 2)
            if kind == "gram":
                units, is_known = self.units((kind, size))
                if is_known and total[start] > 0:
                    inside = _in_units(symmetric(total[start:stop], m) / total[start], units)[1:, 1:]
                    found = min(found, self.kappa * float(np.linalg.eigvalsh(inside)[0]))
            start = stop
        return found if math.isfinite(found) else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values; they read back bit for bit."""
        numbers = {name: float(getattr(self, name)) for name in _NUMBERS}
        return {"known": [np.asarray(one).tolist() for one in self.known], **numbers, "weighs": self.weighs}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Limits:
        """Inverse of `to_dict`."""
        known = tuple(np.array(one, dtype=np.float64) for one in stored["known"])
        return cls(known, **{name: float(stored[name]) for name in _NUMBERS}, weighs=bool(stored["weighs"]))


@dataclass(frozen=True)
class Fitted:
    """An answer as it can be proved.

    Attributes
    ----------
    vector
        What the report adds to the sum, before rounding.
    weights
        For each gram block, with what follows it, the weight of its rows: below 1 where the site's mean squares are above the
        limits.
    distance
        How far from positive semi-definite the farthest block was: its lowest eigenvalue, 0 or less, of a diagonal of ones.
    """

    vector: FloatArray
    weights: tuple[float, ...]
    distance: float


@dataclass(frozen=True)
class _Block:
    """A gram or scatter block.

    `start` is its place in the answer, `root` that of its R, `rest` those of its Q and Z (-1: not bounded by an earlier sum).
    `m` are its columns, with ones. `group` is the number of the gram block with its rows, -1 if there is none.
    """

    kind: str
    part: Part
    start: int
    m: int
    root: int
    rest: tuple[int, int]
    group: int

    @property
    def q(self) -> int:
        """Columns without ones."""
        return self.part[1]

    @property
    def entries(self) -> slice:
        """Its numbers in the answer."""
        return slice(self.start, self.start + self.m * (self.m + 1) // 2)

    @property
    def inner(self) -> slice:
        """Those of its products without ones."""
        return slice(self.entries.stop - self.q * (self.q + 1) // 2, self.entries.stop)

    @property
    def is_bounded(self) -> bool:
        """Whether an earlier sum bounds it."""
        return self.rest[0] >= 0

    def squares(self) -> list[int]:
        """Places of its squares without ones."""
        steps = itertools.accumulate(range(self.q, 1, -1), initial=self.inner.start)
        return list(steps) if self.q else []


_Check = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class _Layout:
    """Where everything is in a measurement: answer, R, Q, Z, u, z, N, flags (whether N > 0), bits."""

    parts: tuple[Part, ...]
    blocks: tuple[_Block, ...]
    # Places of numbers in the answer, and the gram block they go with.
    numbers: tuple[tuple[slice, int], ...]
    length: int
    # Inequalities D = a meas[i] + b meas[j] + c >= 0, as (i, a, j, b, c).
    checks: tuple[_Check, ...]
    u: slice
    z: slice
    rows: slice
    flags: slice
    n_fraction: int
    n_bits: int

    @property
    def projected(self) -> slice:
        """All numbers that are proved to be small."""
        return slice(self.length, self.z.stop)

    @property
    def bits(self) -> slice:
        """Binary digits of the projections."""
        return slice(self.flags.stop, self.flags.stop + (N_PROJECTIONS * self.n_bits if self.blocks else 0))


def _triangle(m: int) -> int:
    return m * (m + 1) // 2


def _layout(parts: tuple[Part, ...], limits: Limits, n_sites: int) -> _Layout:
    bounded = [kind != "numbers" and limits.units((kind, size))[1] for kind, size in parts]
    lengths = [size if kind == "numbers" else _triangle(size + (kind == "gram")) for kind, size in parts]
    length = end = sum(lengths)
    blocks: list[_Block] = []
    numbers: list[tuple[slice, int]] = []
    start, n_grams, widest = 0, 0, 0
    for (kind, size), is_bounded, n in zip(parts, bounded, lengths, strict=True):
        if kind == "numbers":
            numbers.append((slice(start, start + n), n_grams - 1))
        else:
            if kind == "gram":
                widest, n_grams = size, n_grams + 1
            group = n_grams - 1 if size == widest else -1
            root, end = end, end + n
            rest = (-1, -1)
            if is_bounded and group >= 0:
                rest = (end, end + _triangle(size))
                end += 2 * _triangle(size)
            blocks.append(_Block(kind, (kind, size), start, size + (kind == "gram"), root, rest, group))
        start += n
    n_checks = sum(4 * (block.kind == "gram") + (not block.is_bounded) * block.q for block in blocks)
    u, z = slice(end, end + n_checks), slice(end + n_checks, end + 2 * n_checks)
    rows, flags = slice(z.stop, z.stop + n_grams), slice(z.stop + n_grams, z.stop + 2 * n_grams)
    n_fraction, n_bits = _digits(blocks, n_checks, limits, n_sites)
    checks = tuple(_checks(blocks, limits, rows.start, flags.start, n_fraction))
    return _Layout(
        parts, tuple(blocks), tuple(numbers), length, checks, u, z, rows, flags, n_fraction, n_bits
    )


def _digits(blocks: Sequence[_Block], n_checks: int, limits: Limits, n_sites: int) -> tuple[int, int]:
    """Binary digits behind the point of R, and of 2T: see (a) and (d) of the module's text."""
    p_bits = FIELD128.modulus.bit_length() - 1
    # Squares of R and Q add up to n for each column; Z is off by products of rounding errors with these, z is below 2 u + 1.
    columns = (
        sum(block.m + block.is_bounded * (block.q + _triangle(block.q)) for block in blocks) + 6 * n_checks
    )
    margin = 3.0 + 0.5 * math.log2(limits.max_rows * columns + 1.0)
    widest = max((block.m for block in blocks), default=1)
    most_bits = (p_bits - (2 * widest + 2).bit_length()) // 2
    room = (p_bits - 2 - math.log2(limits.max_rows) - n_sites.bit_length()) / 2
    cap = MOST_FRACTION_BITS if all(block.is_bounded for block in blocks) else most_bits
    n_fraction = math.floor(min(cap, most_bits - 1 - margin, room))
    if n_fraction < FEWEST_FRACTION_BITS:
        raise AggregationError(
            f"{len(blocks)} blocks of up to {widest} columns, max_rows={limits.max_rows:g} and {n_sites} sites leave "
            f"{n_fraction} binary digits behind the point, and {FEWEST_FRACTION_BITS} are needed; ask for fewer at a time.",
            code="too-large",
        )
    return n_fraction, math.ceil(margin + n_fraction) + 1


def _checks(blocks: Sequence[_Block], limits: Limits, rows: int, flags: int, n_fraction: int) -> list[_Check]:
    one = 1 << 2 * n_fraction
    least, most = math.floor(limits.min_rows * one), math.ceil(limits.max_rows * one)
    found: list[_Check] = []
    for block in blocks:
        if block.kind == "gram":
            N, flag = rows + block.group, flags + block.group
            found += [(N, 1, flag, -least, 0), (flag, most, N, -1, 0)]
            found += [(N, 1, block.start, -1, 0), (block.start, round(1 / limits.least_weight), N, -1, 0)]
        if block.is_bounded:
            continue
        for place in block.squares():
            N = rows + block.group
            found.append((place, -1, N, 1, 0) if block.group >= 0 else (place, -1, place, 0, most))
    return found


class MomentsValid(Valid):
    """The circuit of the module's text; its projections follow from the early seed."""

    field = FIELD128

    def __init__(self, layout: _Layout, seed: bytes = b"") -> None:
        self.layout, self.seed = layout, seed
        self.early_len, self.meas_len = layout.flags.stop, layout.bits.stop
        self.output_len, self.eval_output_len = layout.length, 1
        blocks, n_checks = layout.blocks, len(layout.checks)
        n_squares = sum(block.m + block.is_bounded * block.q for block in blocks) + n_checks
        n_bits = layout.bits.stop - layout.flags.start
        n_terms = max(1, n_squares + n_bits)
        # Proof and time are about least where a gadget has as many products as calls.
        calls = (1 << math.isqrt(n_terms).bit_length()) - 1
        self.gadgets, self.gadget_calls = [ParallelSum(Mul(), -(-n_terms // calls))], [calls]
        widest = max((block.m for block in blocks), default=0)
        self._random = (widest, 2 * len(blocks), n_checks, n_bits, N_PROJECTIONS)
        self.joint_rand_len = sum(self._random)

    def bound(self, early_seed: bytes) -> MomentsValid:
        """The circuit with the projections that follow from the commitments."""
        return MomentsValid(self.layout, early_seed)

    def truncate(self, meas: Elements) -> Elements:
        """What is added up: the answer."""
        return meas[: self.layout.length]

    def _drawn(self, joint_rand: Elements) -> list[Elements]:
        edges = [0, *itertools.accumulate(self._random)]
        return [joint_rand[a:b] for a, b in itertools.pairwise(edges)]

    def wires(self, meas: Elements, joint_rand: Elements, num_shares: int) -> list[Elements]:
        """Factors of all products: squares of R r, Q r and u, and bits with bits less one."""
        F, layout = self.field, self.layout
        r, s, t, on_bits, _ = self._drawn(joint_rand)
        left, right = [], []
        for k, block in enumerate(layout.blocks):
            roots = [(block.root, block.m, s[2 * k])]
            if block.is_bounded:
                roots.append((block.rest[0], block.q, s[2 * k + 1]))
            for start, m, weight in roots:
                rows, columns = _places(m)
                dense = F.zeros((m, m))
                dense[rows, columns] = F.mul(meas[start : start + _triangle(m)], r[block.m - m + columns])
                right.append(F.sum(dense))
                left.append(F.mul(right[-1], weight))
        u, bits = meas[layout.u], meas[layout.flags.start : layout.bits.stop]
        left += [F.mul(t, u), F.mul(on_bits, bits)]
        right += [u, F.sub(bits, pow(num_shares, -1, F.modulus))]
        calls, at_once = self.gadget_calls[0], self.gadgets[0].arity // 2
        table, n_terms = F.zeros((calls * at_once, 2)), sum(map(len, left))
        table[:n_terms, 0], table[:n_terms, 1] = np.concatenate(left), np.concatenate(right)
        return [table.reshape(calls, 2 * at_once)]

    def outputs(
        self, meas: Elements, joint_rand: Elements, num_shares: int, gadget_outputs: list[Elements]
    ) -> Elements:
        """All products less what they have to be, and projections less their bits."""
        F, layout = self.field, self.layout
        r, s, t, _, on_projections = self._drawn(joint_rand)
        total = F.sum(gadget_outputs[0])
        pairs: dict[tuple[int, int], Elements] = {}
        for k, block in enumerate(layout.blocks):
            for m in (block.m, block.q):
                if (block.m, m) not in pairs:
                    rows, columns = (block.m - m + places for places in _places(m))
                    pairs[block.m, m] = F.mul(F.mul(r[rows], r[columns]), np.where(rows == columns, 1, 2))
            form = F.sum(F.mul(pairs[block.m, block.m], meas[block.entries]))
            total = F.sub(total, F.mul(form, s[2 * k]))
            if block.is_bounded:
                inner = F.add(meas[block.inner], meas[block.rest[1] : block.rest[1] + _triangle(block.q)])
                form = F.sum(F.mul(pairs[block.m, block.q], inner))
                own = r[block.m - block.q : block.m]
                form = F.sub(form, F.mul(meas[layout.rows.start + block.group], F.sum(F.mul(own, own))))
                total = F.add(total, F.mul(form, s[2 * k + 1]))
        if not layout.blocks:
            return np.atleast_1d(total)
        share = pow(num_shares, -1, F.modulus)
        i, a, j, b, c = (np.array(column, dtype=object) for column in zip(*layout.checks, strict=True))
        D = F.add(F.mul(meas[i.astype(int)], a), F.mul(meas[j.astype(int)], b))
        D = F.add(D, F.mul(F.array(c), share))
        total = F.add(total, F.sum(F.mul(t, F.sub(meas[layout.z], D))))
        digits = meas[layout.bits].reshape(N_PROJECTIONS, layout.n_bits)
        told = F.sum(F.mul(digits, F.array([1 << k for k in range(layout.n_bits)])))
        gap = F.sub(_projected(self.seed, meas[layout.projected]), told)
        gap = F.add(gap, (1 << (layout.n_bits - 1)) * share % F.modulus)
        return np.atleast_1d(F.add(total, F.sum(F.mul(on_projections, gap))))


@functools.lru_cache(maxsize=16)
def _places(m: int) -> tuple[IntArray, IntArray]:
    return np.triu_indices(m)


def _ternary(seed: bytes, width: int) -> Iterator[tuple[slice, FloatArray]]:
    """(128, width) of -1, 0 and 1 with probabilities 1/4, 1/2 and 1/4, some columns at a time: differences of random bits."""
    for number, start in enumerate(range(0, width, _COLUMNS_AT_ONCE)):
        stop = min(start + _COLUMNS_AT_ONCE, width)
        drawn = Xof(seed, _PROJECTION_TAG, number.to_bytes(4, "little")).next(
            N_PROJECTIONS * (stop - start) // 4
        )
        bits = np.unpackbits(np.frombuffer(drawn, dtype=np.uint8)).reshape(2, N_PROJECTIONS, stop - start)
        yield slice(start, stop), bits[0].astype(np.float64) - bits[1]


def _projected(seed: bytes, values: Elements) -> Elements:
    """(128,) random combinations of elements."""
    total = FIELD128.zeros(N_PROJECTIONS)
    for piece, ternary in _ternary(seed, len(values)):
        total = FIELD128.add(total, FIELD128.combine(ternary, values[piece]))
    return total


def _projected_whole(seed: bytes, values: IntArray) -> list[int]:
    """The same of whole numbers below 2**62, by halves that floating point multiplies exactly."""
    halves = np.stack([values & 0x7FFFFFFF, values >> 31], axis=1).astype(np.float64)
    total = [[0, 0]] * N_PROJECTIONS
    for piece, ternary in _ternary(seed, len(values)):
        found = (ternary @ halves[piece]).astype(np.int64).tolist()
        total = [[low + a, high + b] for (low, high), (a, b) in zip(total, found, strict=True)]
    return [low + (high << 31) for low, high in total]


def _in_units(matrix: FloatArray, units: FloatArray) -> FloatArray:
    """B'^-1 M B^-1, symmetric."""
    half = solve_triangular(units, matrix, trans="T")
    found = solve_triangular(units, half.T, trans="T")
    return np.asarray((found + found.T) / 2)


def _root(matrix: FloatArray) -> FloatArray:
    """An upper triangular R with R'R = `matrix`, or the nearest matrix that has one."""
    try:
        return np.asarray(np.linalg.cholesky(matrix).T)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        return np.asarray(np.linalg.qr(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T, mode="r"))


def _whole_root(matrix: FloatArray, n_fraction: int) -> IntArray:
    return np.triu(np.rint(_root(matrix) * 2.0**n_fraction)).astype(np.int64)


def _squared(root: IntArray) -> NDArray[np.object_]:
    """The upper triangle of R'R for whole numbers below 2**60, exactly: products of limbs fit floating point."""
    limbs, rest = [], root
    while rest.any():
        low = ((rest + (1 << (_LIMB - 1))) & ((1 << _LIMB) - 1)) - (1 << (_LIMB - 1))
        limbs.append(low.astype(np.float64))
        rest = (rest - low) >> _LIMB
    places = _places(len(root))
    total = np.zeros(len(places[0]), dtype=object)
    for a, b in itertools.combinations_with_replacement(range(len(limbs)), 2):
        product = limbs[a].T @ limbs[b]
        if a != b:
            product = product + product.T
        total = total + (product[places].astype(np.int64).astype(object) << (_LIMB * (a + b)))
    return total


class MomentsVdaf:
    """Reports of `n_sites` sites about answers of these parts, for two keepers.

    `context` keeps reports of one question of one run apart from all others.
    """

    def __init__(
        self, parts: Sequence[Part], n_sites: int, context: bytes, limits: Limits | None = None
    ) -> None:
        self.limits = Limits() if limits is None else limits
        self.n_sites = n_sites
        self._layout = _layout(tuple((str(kind), int(size)) for kind, size in parts), self.limits, n_sites)
        of_parts = {
            part: self.limits.units(part)[0] for part in {block.part for block in self._layout.blocks}
        }
        self._units = [of_parts[block.part] for block in self._layout.blocks]
        public = json.dumps([self._layout.parts, n_sites, self.limits.to_dict()])
        self._context = hashlib.sha256(public.encode()).digest() + context
        self._prio3 = Prio3(MomentsValid(self._layout), ALGORITHM)
        self._largest = 2.0**62 / max(n_sites, 1)

    @property
    def length(self) -> int:
        """Numbers of an answer."""
        return self._layout.length

    @property
    def rand_size(self) -> int:
        """Secret random bytes that `shard` takes."""
        return self._prio3.rand_size

    @property
    def n_fraction(self) -> int:
        """Binary digits behind the point of R, in public units."""
        return self._layout.n_fraction

    @property
    def slack(self) -> float:
        """Rows by which a bound may be passed: 2T q in units of products."""
        widest = max((block.q if block.is_bounded else 1 for block in self._layout.blocks), default=1)
        return widest * 2.0 ** (self._layout.n_bits - 2 * self._layout.n_fraction)

    # A site.

    def fitted(self, vector: FloatArray) -> Fitted:
        """The answer as it can be proved, not yet rounded; refused if it is not within the limits."""
        matrices, told, _, weights, distance = self._fit(vector)
        for block, units, matrix in zip(self._layout.blocks, self._units, matrices, strict=True):
            told[block.entries] = upper_triangle(units.T @ matrix @ units)
        return Fitted(told, weights, distance)

    def _fit(
        self, vector: FloatArray
    ) -> tuple[list[FloatArray], FloatArray, tuple[float, ...], tuple[float, ...], float]:
        """Blocks in units, numbers at their places, rows and weights of gram blocks, and the lowest eigenvalue."""
        layout, given = self._layout, np.asarray(vector, dtype=np.float64)
        if given.shape != (layout.length,):
            raise AggregationError(
                f"an answer of {given.size} numbers cannot be shared; it must have {layout.length}. Nothing was sent.",
                code="bad-length",
            )
        if not np.isfinite(given).all():
            raise AggregationError(
                "the answer contains NaN or infinity, which cannot be shared; nothing was sent.",
                code="not-finite",
            )
        matrices, rows, distance = [], list[float](), 0.0
        weights = [1.0] * (layout.rows.stop - layout.rows.start)
        for block, units in zip(layout.blocks, self._units, strict=True):
            matrix = symmetric(given[block.entries], block.m)
            scale = safe_roots(np.diag(matrix))
            distance = min(distance, float(np.linalg.eigvalsh(matrix / np.outer(scale, scale))[0]))
            matrices.append(_in_units(matrix, units))
            if block.kind == "gram":
                rows.append(float(given[block.start]))
                self._check_rows(rows[-1])
                if not block.is_bounded and rows[-1]:
                    self._check_digits(matrices[-1])
            n = rows[block.group] if block.group >= 0 else self.limits.max_rows
            inner = matrices[-1][block.m - block.q :, block.m - block.q :]
            most = float(
                np.linalg.eigvalsh(inner)[-1] if block.is_bounded else np.diag(inner).max(initial=0.0)
            )
            fits = 1.0 if most <= n else n / most
            if not block.is_bounded and fits < 1:
                most = self.limits.largest
                raise self._refusal(
                    f"the root mean square of a column is above {most:g}; rescale the variables"
                )
            if block.is_bounded:
                weights[block.group] = min(weights[block.group], fits)
        if distance < -_FAR:
            raise self._refusal(
                f"its products are not those of any rows (the lowest eigenvalue of correlations is {distance:.3g})"
            )
        if min(weights, default=1.0) < self.limits.least_weight - _ROUNDING:
            times = self.limits.kappa / max(min(weights), 1e-300)
            raise self._refusal(f"in some direction its mean square is {times:.3g} times that of all sites")
        for block, matrix in zip(layout.blocks, matrices, strict=True):
            matrix *= weights[block.group] if block.group >= 0 else 1.0
        told = np.zeros(layout.length)
        for place, gram in layout.numbers:
            told[place] = given[place] * (weights[gram] if gram >= 0 else 1.0)
            if np.abs(told[place]).max(initial=0.0) >= self._largest:
                raise self._refusal(f"it has a number of magnitude {self._largest:.3g} or more")
        return matrices, told, tuple(rows), tuple(weights), distance

    def _check_rows(self, n: float) -> None:
        least, most = self.limits.min_rows, self.limits.max_rows
        if n != 0.0 and not least <= n <= most:
            raise self._refusal(
                f"it is of {n:g} rows, and the limits are min_rows={least:g} and max_rows={most:g}"
            )

    def _check_digits(self, matrix: FloatArray) -> None:
        """Refuse columns whose deviations rounding would swallow; what is next to nothing is that of a constant."""
        n, totals = matrix[0, 0], matrix[0, 1:]
        roots = np.sqrt(np.maximum(np.diag(matrix)[1:] - totals * totals / n, 0.0))
        nothing = np.sqrt(n) * _NOTHING * np.maximum(1 / self.limits.largest, np.abs(totals) / n)
        least = _LEAST_STEPS * 2.0**-self.n_fraction
        if np.any((roots > nothing) & (roots < least)):
            needed = least * self.limits.largest / math.sqrt(n)
            raise self._refusal(
                f"the standard deviation of a column is below {needed:.1g}, and there are no digits for it beside columns "
                f"of up to {self.limits.largest:g}; rescale the variables"
            )

    @staticmethod
    def _refusal(why: str) -> AggregationError:
        return AggregationError(
            f"this answer cannot be proved to keepers: {why}. Nothing was sent.", code="not-provable"
        )

    def rounded(self, vector: FloatArray) -> FloatArray:
        """What the report of an answer adds to the sum."""
        return self._decoded(self._early(vector)[: self.length])

    def _early(self, vector: FloatArray) -> NDArray[np.object_]:
        """Answer, R, Q, Z, u, z, N and flags as whole numbers."""
        layout = self._layout
        matrices, told, rows, *_ = self._fit(vector)
        early = np.zeros(layout.flags.stop, dtype=object)
        early[layout.rows] = [int(N * 4.0**layout.n_fraction) for N in rows]
        early[layout.flags] = [int(N > 0) for N in rows]
        for place, _ in layout.numbers:
            early[place] = [int(x) for x in np.rint(told[place] * 2.0**NUMBER_BITS)]
        for block, matrix in zip(layout.blocks, matrices, strict=True):
            root = _whole_root(matrix, layout.n_fraction)
            early[block.root : block.root + _triangle(block.m)] = root[_places(block.m)]
            early[block.entries] = _squared(root)
            if block.is_bounded:
                q, N = block.q, rows[block.group]
                rest = _whole_root(N * np.eye(q) - matrix[block.m - q :, block.m - q :], layout.n_fraction)
                left = -early[block.inner] - _squared(rest)
                left[_places(q)[0] == _places(q)[1]] += early[layout.rows.start + block.group]
                first, second = block.rest
                early[first:second], early[second : second + len(left)] = rest[_places(q)], left
        values = [a * early[i] + b * early[j] + c for i, a, j, b, c in layout.checks]
        roots = [math.isqrt(max(value, 0)) for value in values]
        early[layout.u] = roots
        early[layout.z] = [value - root * root for value, root in zip(values, roots, strict=True)]
        return early

    def _late(self, early: NDArray[np.object_], seed: bytes) -> Elements:
        """Bits of the projections."""
        layout = self._layout
        if not layout.blocks:
            return FIELD128.zeros(0)
        small = early[layout.projected].astype(np.int64)
        half = 1 << (layout.n_bits - 1)
        seen = [value + half for value in _projected_whole(seed, small)]
        if not all(0 <= value < 2 * half for value in seen):
            raise self._refusal("a combination of its numbers is out of range; send it again")
        return FIELD128.array(
            ((np.array(seen, dtype=np.int64)[:, None] >> np.arange(layout.n_bits)) & 1).ravel()
        )

    def shard(self, vector: FloatArray, nonce: bytes, rand: bytes) -> tuple[bytes, list[bytes]]:
        """Return what both keepers get, and the share of each; `rand` are `rand_size` secret random bytes."""
        early = self._early(vector)
        late = functools.partial(self._late, early)
        return self._prio3.shard(self._context, FIELD128.array(early), nonce, rand, late)

    # A keeper.

    def verify_init(
        self, verify_key: bytes, keeper_index: int, nonce: bytes, public: bytes, share: bytes
    ) -> tuple[VerifyState, bytes]:
        """Return what keeper 0 or 1 keeps of a report, and what it tells the other one."""
        return self._prio3.verify_init(verify_key, self._context, keeper_index, nonce, public, share)

    def verify_finish(self, state: VerifyState, verifier_shares: Sequence[bytes]) -> bytes:
        """Return a keeper's share of a valid report; AggregationError "bad-proof" if it is not valid."""
        message = self._prio3.verifier_shares_to_message(self._context, verifier_shares)
        return FIELD128.encode(self._prio3.verify_next(state, message))

    def add(self, out_shares: Sequence[bytes]) -> bytes:
        """Return a keeper's share of the sum of reports."""
        return FIELD128.encode(
            self._prio3.aggregate([FIELD128.decode(one, self.length) for one in out_shares])
        )

    # Who opens the sum.

    def unshard(self, sums: Sequence[bytes], n_reports: int) -> FloatArray:
        """Return the sum of `n_reports` answers from the shares of both keepers."""
        if n_reports > self.n_sites:
            raise AggregationError(
                f"{n_reports} reports are more than the {self.n_sites} that sums have room for.",
                code="too-many",
            )
        total = FIELD128.decode(self.add(sums), self.length)
        return self._decoded(FIELD128.ints(total, signed=True))

    def _decoded(self, whole: NDArray[np.object_]) -> FloatArray:
        value = whole.astype(np.float64)
        for place, _ in self._layout.numbers:
            value[place] *= 2.0**-NUMBER_BITS
        for block, units in zip(self._layout.blocks, self._units, strict=True):
            matrix = symmetric(value[block.entries] * 4.0**-self._layout.n_fraction, block.m)
            if block.kind == "gram":
                matrix[0, 0] = np.rint(matrix[0, 0] * 2.0**COUNT_BITS) * 2.0**-COUNT_BITS
            value[block.entries] = upper_triangle(units.T @ matrix @ units)
        return value
