"""Lassos with a positive definite quadratic, solved exactly by the signs of their weights.

    min_c  1/2 c'Hc - b'c + sum(penalty o |c|)      c zero where not allowed

Once the signs of the weights are known, the weights are the solution of linear equations. Two ways to find the signs,
neither of which slows down when the columns of the data are nearly dependent, where coordinate descent takes thousands
of sweeps:

- Block pivoting (Judice and Pires 1994): all signs that the solution contradicts are changed at once. A few turns in
  nearly all problems, but some never end.
- Feature-sign search (Lee, Battle, Raina and Ng 2007) for these: a wrong guess is left on a line along which the
  objective falls, so that no guess comes twice.

Problems come as a list, (n, q), with the number of each one's H, so that the targets of one site, or of many, are
searched together: each goes its own way, one turn of all at a time.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from feddbn.core.arrays import BoolArray, FloatArray, IntArray

__all__ = ["LONG", "columns_by_signs", "equations", "factor_of", "pivoted", "solve_active", "solve_by_signs"]


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
