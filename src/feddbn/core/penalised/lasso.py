"""L1-penalised least squares with a positive definite quadratic, solved exactly by the signs of the weights.

    min_C  1/2 tr(C'HC) - tr(B'C) + sum(L o |C|)      C zero where not allowed

The problem of the paper is of this kind once W keeps to an order: H = G, B = G E with E = [I; 0; ...; 0]. Its columns are
separate lassos that share one H. Once the signs of a column's weights are known, the weights are the solution of linear
equations. There are three ways to find the signs, none of which slows down when the columns of the data are nearly
dependent, where coordinate descent takes thousands of sweeps:

- Block pivoting (Judice and Pires 1994): all signs that the solution contradicts are changed at once. A few turns in
  nearly all problems, but some never end.
- Feature-sign search (Lee, Battle, Raina and Ng 2007) for these: a wrong guess is left on a line along which the
  objective falls, so that no guess comes twice (`columns_by_signs`).
- Following the solution from a start (`followed_weights`): any start solves the lasso with some other linear term, and while
  that term moves to b on a straight line, the solution moves on straight lines, too, with a bend where a weight becomes zero
  or leaves it (as in Efron et al. 2004, where the penalty moves). At nearly dependent columns that takes a tenth of the turns
  of changing one wrong sign after the other.

Problems come as a list, (n, q), with the number of each one's H, so that the targets of one site, or of many, are searched
together: each goes its own way, one turn of all at a time. Searches that cannot know their next questions solve one at a time
(`lasso_weights`): Python's overhead per call is most of the cost of a small lasso, so LAPACK is called without wrappers, and
only the weights that are not zero are handed over. Sites that are each in their own order solve all columns at once
(`ordered_columns`): from round to round most columns keep their support, and H does not change within a stage, so
`KnownInverses` keeps the inverse of each column's equations, or, if these are many, their Cholesky factor.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg.lapack import dposv, dpotrf, dpotrs

from feddbn.core.arrays import BoolArray, FloatArray, IntArray


def soft_threshold(x: FloatArray, threshold: FloatArray | float) -> FloatArray:
    """Return sign(x) max(|x| - threshold, 0), elementwise."""
    shrunk: FloatArray = x - np.minimum(np.maximum(x, -threshold), threshold)
    return shrunk


def loss_value(G: FloatArray, C: FloatArray) -> float:
    """Return 1/2 tr((E - C)' G (E - C))."""
    R = -C
    d = C.shape[1]
    R[:d].flat[:: d + 1] += 1.0
    return 0.5 * float(np.vdot(R, G @ R))


def penalty_value(C: FloatArray, penalty: FloatArray) -> float:
    """Return sum(penalty o |C|)."""
    return float(np.vdot(penalty, np.abs(C)))


# Turns of block pivoting that may pass without fewer contradictions than ever before.
_PATIENCE = 6
LONG = 24
"""Columns with so many active rows are solved one by one: a Cholesky factor of each, no padding to the longest."""
# Numbers of the copies of H that products of many short rows are worth.
_COPIES = 100_000
# Numbers of the systems that are solved together.
_NUMBERS_TOGETHER = 20_000_000


def solve_by_signs(
    H: FloatArray, linear: FloatArray, penalty: FloatArray, allowed: BoolArray, C0: FloatArray
) -> FloatArray:
    """Return (q, d) the minimiser of ``1/2 tr(C'HC) - tr(linear'C) + sum(penalty o |C|)``, searched from C0."""
    site = np.zeros(C0.shape[1], dtype=np.intp)
    columns = columns_by_signs(H[None], site, linear.T, penalty.T, allowed.T, C0.T)
    return np.ascontiguousarray(columns.T)


def columns_by_signs(
    H: FloatArray,
    site: IntArray,
    B: FloatArray,
    penalty: FloatArray,
    allowed: BoolArray,
    C0: FloatArray,
    first: FloatArray | None = None,
) -> FloatArray:
    """Return (n, q) the minimisers, each searched from its row of C0 with ``H[site]``.

    `first` is the solution with the signs of C0, where that is already known.
    """
    out = np.where(allowed, C0, 0.0)
    lost = pivoted(H, site, B, penalty, allowed, out, first)
    if len(lost):
        out[lost] = _search(H, site[lost], B[lost], penalty[lost], allowed[lost], out[lost])
    return out


def _slack(B: FloatArray) -> FloatArray:
    """By how much the gradient of a weight that is zero may exceed its penalty: rounding."""
    slack: FloatArray = 1e-12 * (1.0 + np.abs(B).max(axis=1))
    return slack


def pivoted(
    H: FloatArray,
    site: IntArray,
    B: FloatArray,
    penalty: FloatArray,
    allowed: BoolArray,
    out: FloatArray,
    target: FloatArray | None = None,
) -> IntArray:
    """Replace the rows of `out`, zero where not allowed, by their minimisers where block pivoting finds them.

    Return the numbers of those that are still starts. `target` is the solution with their signs, where that is known.
    """
    free = allowed & (penalty == 0)
    sign, is_active, slack = np.sign(out), (out != 0) | free, _slack(B)
    live = np.arange(len(out))
    fewest, patience = np.full(len(out), B.shape[1] + 1), np.full(len(out), _PATIENCE)
    lost = [live[:0]]
    while len(live):
        if target is None:
            try:
                target = solve_active(H, site, is_active, B - penalty * sign)
            except np.linalg.LinAlgError:
                # Rows that depend on each other have entered together; the search takes one at a time.
                lost.append(live)
                break
        leaves = is_active & ~free & (target * sign < 0)
        residual = B - _times(H, site, target)
        enters = allowed & ~is_active & (np.abs(residual) - penalty > slack[:, None])
        n_wrong = leaves.sum(axis=1) + enters.sum(axis=1)
        done = n_wrong == 0
        out[live[done]] = target[done]
        patience = np.where(n_wrong < fewest, _PATIENCE, patience - 1)
        fewest = np.minimum(n_wrong, fewest)
        lost.append(live[~done & (patience < 0)])
        is_active = (is_active & ~leaves) | enters
        sign = np.where(enters, np.sign(residual), np.where(leaves, 0.0, sign))
        rest = ~done & (patience >= 0)
        live, site, sign, is_active = live[rest], site[rest], sign[rest], is_active[rest]
        B, penalty, allowed, free, slack = B[rest], penalty[rest], allowed[rest], free[rest], slack[rest]
        fewest, patience, target = fewest[rest], patience[rest], None
    return np.concatenate(lost)


def _search(
    H: FloatArray, site: IntArray, B: FloatArray, penalty: FloatArray, allowed: BoolArray, C0: FloatArray
) -> FloatArray:
    """Return (n, q) the minimisers by feature-sign search from C0, which is zero where not allowed."""
    out = C0.copy()
    c, live = out, np.arange(len(out))
    free = allowed & (penalty == 0)
    sign, is_active, slack = np.sign(c), (c != 0) | free, _slack(B)
    # The objective falls in every step, so no set of signs comes twice; the bound only guards against rounding.
    for _ in range(20 * B.shape[1] + 20):
        target = solve_active(H, site, is_active, B - penalty * sign)
        crossing = is_active & ~free & (target * sign < 0)
        crosses = crossing.any(axis=1)
        c = np.where(crosses[:, None], c, target)
        at = np.flatnonzero(crosses)
        if len(at):
            c[at] = _lowest_on_the_way(H, site[at], B[at], penalty[at], c[at], target[at], crossing[at])
            sign[at] = np.sign(c[at])
            is_active[at] = (c[at] != 0) | free[at]
        residual = B - _times(H, site, c)
        excess = np.where(is_active | ~allowed, -np.inf, np.abs(residual) - penalty)
        worst = excess.argmax(axis=1)
        done = ~crosses & (excess.max(axis=1) <= slack)
        grows = np.flatnonzero(~crosses & ~done)
        is_active[grows, worst[grows]] = True
        sign[grows, worst[grows]] = np.sign(residual[grows, worst[grows]])
        out[live[done]] = c[done]
        if done.all():
            return out
        rest = ~done
        live, site, c, sign, is_active = live[rest], site[rest], c[rest], sign[rest], is_active[rest]
        B, penalty, allowed, free, slack = B[rest], penalty[rest], allowed[rest], free[rest], slack[rest]
    out[live] = c
    return out


def _lowest_on_the_way(
    H: FloatArray,
    site: IntArray,
    B: FloatArray,
    penalty: FloatArray,
    c: FloatArray,
    target: FloatArray,
    crossing: BoolArray,
) -> FloatArray:
    """The best of the points between c and `target` where a weight changes its sign, and `target` itself."""
    way = target - c
    # Where nothing crosses: the target.
    share = np.where(crossing, c / np.where(crossing, c - target, 1.0), 1.0)
    Hway = _times(H, site, way)
    bend = np.einsum("ni,ni->n", way, Hway)
    slope = np.einsum("ni,ni->n", Hway, c) - np.einsum("ni,ni->n", B, way)
    on_way = np.abs(c[:, None, :] + share[:, :, None] * way[:, None, :])
    value = 0.5 * share**2 * bend[:, None] + share * slope[:, None] + np.einsum("nti,ni->nt", on_way, penalty)
    best, n = value.argmin(axis=1), np.arange(len(c))
    point: FloatArray = c + share[n, best][:, None] * way
    point[n, best] = np.where(crossing[n, best], 0.0, point[n, best])
    return point


def _times(H: FloatArray, site: IntArray, c: FloatArray) -> FloatArray:
    """Return (n, q) the products of each row of c with the symmetric ``H[site]``."""
    if len(H) == 1:
        return np.asarray(c @ H[0])
    if len(c) * H[0].size <= _COPIES:
        return np.asarray((c[:, None, :] @ H[site])[:, 0])
    # Copies of H for every row would take longer than the products.
    product = np.empty(c.shape)
    for k in np.unique(site):
        own = site == k
        product[own] = c[own] @ H[k]
    return product


def equations(
    H: FloatArray, site: IntArray, active: BoolArray, longest: int
) -> tuple[IntArray, BoolArray, FloatArray]:
    """Return of each column its rows, the active ones first, which of them are active, and H there.

    Padded to `longest` with the identity: small systems instead of some of the size of H.
    """
    rows = np.argsort(~active, axis=1, kind="stable")[:, :longest]
    real = np.arange(longest) < active.sum(axis=1)[:, None]
    q = H.shape[1]
    # IntArray in a flat H: faster than three arrays of numbers.
    systems = H.ravel()[(site * q * q)[:, None, None] + rows[:, :, None] * q + rows[:, None, :]]
    systems *= real[:, :, None] & real[:, None, :]
    systems.reshape(len(rows), -1)[:, :: longest + 1] += ~real
    return rows, real, systems


def factor_of(H: FloatArray, at: IntArray) -> FloatArray | None:
    """Return the upper Cholesky factor of H at these rows, for `dpotrs`; None where H is not definite to rounding."""
    # Of a symmetric matrix the transpose is the same, and in the order that LAPACK writes to.
    factor, failed = dpotrf(H.take(at, axis=0).take(at, axis=1).T, clean=0, overwrite_a=1)
    return None if failed else factor


def solve_active(H: FloatArray, site: IntArray, active: BoolArray, right: FloatArray) -> FloatArray:
    """Return (n, q) solutions of ``H x = right`` on the active rows of each column, zero elsewhere."""
    solution, lengths = np.zeros(right.shape), active.sum(axis=1)
    short = np.flatnonzero(lengths < LONG)
    longest = int(lengths[short].max(initial=0))
    # Very many at once would take gigabytes.
    size = max(1, _NUMBERS_TOGETHER // LONG**2)
    for first in range(0, len(short), size):
        group = short[first : first + size]
        rows, real, systems = equations(H, site[group], active[group], longest)
        known = np.take_along_axis(right[group], rows, axis=1) * real
        found = np.linalg.solve(systems, known[:, :, None])[:, :, 0]
        part = np.zeros((len(group), right.shape[1]))
        np.put_along_axis(part, rows, found * real, axis=1)
        solution[group] = part
    for n in np.flatnonzero(lengths >= LONG).tolist():
        at, own = active[n].nonzero()[0], H[site[n]]
        factor = factor_of(own, at)
        if factor is None:
            solution[n, at] = np.linalg.solve(own[at[:, None], at], right[n, at])
        else:
            solution[n, at] = dpotrs(factor, right[n, at])[0]
    return solution


# Bends for each weight after which the search by signs takes over, which always ends.
_BENDS = 4


def prices(b: FloatArray, penalty: FloatArray, allowed: BoolArray) -> FloatArray:
    """Return what a gradient must exceed for its weight to leave zero; of one column (q,), or of some (n, q).

    What may not be has a price that no gradient reaches.
    """
    rounding = 1e-12 * (1.0 + np.abs(b).max(axis=-1, keepdims=True))
    price: FloatArray = np.where(allowed, penalty, np.inf) + rounding
    return price


def lasso_weights(
    H: FloatArray, b: FloatArray, penalty: FloatArray, price: FloatArray, start: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Return where the minimiser is not zero, and its weights there.

    `price` is that of `prices`; `start` is zero where weights must be.
    """
    found = _pivoted(H, b, penalty, price, np.sign(start))
    return followed_weights(H, b, penalty, price, start) if found is None else found


def followed_weights(
    H: FloatArray, b: FloatArray, penalty: FloatArray, price: FloatArray, start: FloatArray
) -> tuple[IntArray, FloatArray]:
    """The same where block pivoting from `start` is known to go round in circles."""
    sign = _followed(H, b, penalty, price, start)
    found = None if sign is None else _pivoted(H, b, penalty, price, sign)
    if found is not None:
        return found
    only = np.zeros(1, dtype=np.intp)
    c = columns_by_signs(H[None], only, b[None], penalty[None], (price < np.inf)[None], start[None])[0]
    at = c.nonzero()[0]
    return at, c[at]


def _pivoted(
    H: FloatArray, b: FloatArray, penalty: FloatArray, price: FloatArray, sign: FloatArray
) -> tuple[IntArray, FloatArray] | None:
    """Return the minimiser by block pivoting from these signs, which are changed; None where that goes round in circles."""
    is_active, free = sign != 0, None
    if not penalty.all():
        free = (penalty == 0) & (price < np.inf)
        is_active |= free
    # Active weights do not enter.
    limit, right = price.copy(), b - penalty * sign
    at = is_active.nonzero()[0]
    limit[at] = np.inf
    fewest, patience = len(b) + 1, _PATIENCE
    while patience >= 0:
        solved = _solved(H, at, right)
        if solved is None:
            return None
        x, product = solved
        residual = b - product
        leaves = x * sign.take(at) < 0
        if free is not None:
            leaves &= ~free[at]
        enters = np.abs(residual) > limit
        gone, come = at[leaves], enters.nonzero()[0]
        n_wrong = len(gone) + len(come)
        if not n_wrong:
            return (at, x) if x.all() else (at[x != 0], x[x != 0])
        patience = _PATIENCE if n_wrong < fewest else patience - 1
        fewest = min(fewest, n_wrong)
        sign[gone], right[gone], limit[gone] = 0.0, b[gone], price[gone]
        is_active[gone] = False
        towards = np.sign(residual[come])
        sign[come], right[come], limit[come] = towards, b[come] - penalty[come] * towards, np.inf
        is_active[come] = True
        at = is_active.nonzero()[0]
    return None


def _solved(H: FloatArray, at: IntArray, right: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """Return the weights x that make ``(Hx)[at] = right[at]``, zero elsewhere, and Hx; None where H is not definite there."""
    if not len(at):
        return right[:0], np.zeros(len(right))
    rows = H.take(at, axis=0)
    # Of a symmetric matrix the transpose is the same, and in the order that LAPACK writes to.
    _, x, failed = dposv(rows.take(at, axis=1).T, right.take(at), overwrite_a=1, overwrite_b=1)
    return None if failed else (x, x @ rows)


def _followed(
    H: FloatArray, b: FloatArray, penalty: FloatArray, price: FloatArray, start: FloatArray
) -> FloatArray | None:
    """Return the signs (q,) of the minimiser by following the solution from `start`; None where rounding leads astray."""
    c, sign = start.copy(), np.sign(start)
    may = price < np.inf
    free = may & (penalty == 0)
    is_active = (sign != 0) | free
    product = H @ c
    # The gradient that makes the start a solution, as near to the true one as that allows.
    gradient = np.where(is_active, penalty * sign, np.clip(b - product, -penalty, penalty))
    gradient[~may] = 0.0
    way, left, last = b - product - gradient, 1.0, -1
    for _ in range(_BENDS * len(b)):
        at = is_active.nonzero()[0]
        solved = _solved(H, at, way)
        if solved is None:
            return None
        turn, shift = solved
        drift = way - shift
        # How far the way goes until a weight is zero, or a gradient has reached its penalty.
        far = np.full(len(b), np.inf)
        shrinks = (turn * sign.take(at) < 0) & ~free.take(at)
        far[at[shrinks]] = -c[at[shrinks]] / turn[shrinks]
        rest = (may & ~is_active & (drift != 0)).nonzero()[0]
        far[rest] = (penalty[rest] - np.sign(drift[rest]) * gradient[rest]) / np.abs(drift[rest])
        if last >= 0 and not is_active[last] and drift[last] * gradient[last] > 0:
            return None
        first = int(far.argmin())
        step = min(max(float(far[first]), 0.0), left)
        c[at] += step * turn
        gradient[rest] += step * drift[rest]
        left -= step
        if left <= 0.0:
            return sign
        last, is_active[first] = first, not is_active[first]
        if is_active[first]:
            sign[first] = np.sign(drift[first])
        else:
            # Its gradient is its penalty still.
            gradient[first] = penalty[first] * sign[first]
            c[first] = sign[first] = 0.0
    return None


Solve = Callable[[FloatArray, BoolArray, FloatArray], FloatArray]
"""From H (K, q, q), active rows and right sides (K, d, q) of each column to the solutions, zero where not active."""
# Doubles of inverses, and of factors, worth keeping; beyond, equations are solved anew in every round.
_ROOM = 1 << 26


def _solve_anew(H: FloatArray, active: BoolArray, right: FloatArray) -> FloatArray:
    n, d, q = active.shape
    site = np.repeat(np.arange(n), d)
    return solve_active(H, site, active.reshape(-1, q), right.reshape(-1, q)).reshape(right.shape)


class KnownInverses:
    """Inverses of the equations of one site's columns, kept while a column's support and the site's H stay.

    A solution has the same bits whatever was solved before: all inverses are padded to one size.
    """

    def __init__(self, q: int, d: int) -> None:
        self._longest = min(q, LONG - 1)
        self._has_room = d * self._longest**2 <= _ROOM
        if self._has_room:
            self._rows = np.zeros((1, d, self._longest), dtype=np.intp)
            self._inverse = np.zeros((1, d, self._longest, self._longest))
        self._H = np.zeros((1, q, q))
        self._active = np.zeros((1, d, q), dtype=bool)
        self._is_valid = np.zeros((1, d), dtype=bool)
        self._factors: dict[int, tuple[IntArray, FloatArray]] = {}
        self._n_kept = 0

    def fits(self, q: int, d: int) -> bool:
        """Whether it is for a site of this size."""
        return self._active.shape[1:] == (d, q)

    def solve(self, H: FloatArray, active: BoolArray, right: FloatArray) -> FloatArray:
        """Return the solutions for the site, K = 1; see `Solve`."""
        if not self._has_room:
            return _solve_anew(H, active, right)
        if (self._H != H).any():
            self._is_valid[:] = False
            self._H[:] = H
            self._factors.clear()
            self._n_kept = 0
        is_long = active.sum(axis=2) >= LONG
        solution = self._of_short(H, active & ~is_long[:, :, None], right)
        for j in np.flatnonzero(is_long[0]).tolist():
            rows = active[0, j].nonzero()[0]
            factor, own = self._factor(j, H[0], rows), right[0, j, rows]
            solution[0, j, rows] = (
                np.linalg.solve(H[0][rows[:, None], rows], own) if factor is None else dpotrs(factor, own)[0]
            )
        return solution

    def _factor(self, j: int, H: FloatArray, rows: IntArray) -> FloatArray | None:
        """Return the Cholesky factor of one long column's equations; None where they are not definite to rounding."""
        known = self._factors.get(j)
        if known is not None:
            if np.array_equal(known[0], rows):
                return known[1]
            self._n_kept -= self._factors.pop(j)[1].size
        factor = factor_of(H, rows)
        if factor is not None and self._n_kept + factor.size <= _ROOM:
            self._factors[j] = rows, factor
            self._n_kept += factor.size
        return factor

    def _of_short(self, H: FloatArray, active: BoolArray, right: FloatArray) -> FloatArray:
        is_old = self._is_valid & (self._active == active).all(axis=2)
        k, j = np.nonzero(~is_old)
        if len(k):
            rows, real, systems = equations(H, k, active[k, j], self._longest)
            inverse = np.linalg.inv(systems) * (real[:, :, None] & real[:, None, :])
            self._rows[k, j], self._inverse[k, j] = rows, inverse
            self._active[k, j], self._is_valid[k, j] = active[k, j], True
        found = self._inverse @ np.take_along_axis(right, self._rows, axis=2)[..., None]
        solution = np.zeros(right.shape)
        np.put_along_axis(solution, self._rows, found[..., 0], axis=2)
        return solution


def ordered_columns(
    H: FloatArray,
    B: FloatArray,
    penalty: FloatArray,
    allowed: BoolArray,
    C0: FloatArray,
    solve: Solve | None = None,
) -> FloatArray:
    """Return the (K, q, d) minimisers, searched from C0.

    From round to round few weights change their sign: with the signs of C0 all columns are one batch of linear
    equations, and only columns whose answer contradicts them are searched.
    """
    # Column by column, (K, d, q).
    B, penalty, C0 = (X.transpose(0, 2, 1) for X in (B, penalty, C0))
    allowed = allowed.transpose(0, 2, 1)
    free = allowed & (penalty == 0)
    active, sign = (allowed & (C0 != 0)) | free, np.sign(C0)
    C = (solve or _solve_anew)(H, active, B - penalty * sign)
    excess = np.abs(B - C @ H) - penalty
    wrong = (active & ~free & (C * sign <= 0.0)) | (allowed & ~active & (excess > 1e-12 * (1.0 + np.abs(B))))
    k, j = np.nonzero(wrong.any(axis=2))
    if len(k):
        C[k, j] = columns_by_signs(H, k, B[k, j], penalty[k, j], allowed[k, j], C0[k, j], C[k, j])
    return np.ascontiguousarray(C.transpose(0, 2, 1))
