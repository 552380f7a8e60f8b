"""Columns against each other and sites against each other: copies, dependence, baselines, units, swapped columns."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import f as f_distribution

from feddbn.core.arrays import FloatArray
from feddbn.data.preflight.profile import SiteProfile
from feddbn.findings import Finding

__all__ = ["check_between", "check_columns", "shape"]

_BATCHES = 5
_SHORTEST = 60
_EXACT = 1e-6


@dataclass(frozen=True)
class SiteShape:
    """Location and scale of each column at a site, its correlations, and how far its baselines can be trusted.

    `means` and `errors` (r, d) are those of the recordings; `rows` (n, d) are complete, less their recording's mean.
    """

    n: int
    middle: FloatArray
    scale: FloatArray
    correlations: FloatArray
    means: FloatArray
    errors: FloatArray
    rows: FloatArray


def shape(site: SiteProfile, columns: tuple[str, ...], rows: FloatArray, medians: FloatArray) -> SiteShape:
    """Return the shape of a site; `rows` and `medians` as in `values.centred`."""
    at = [site.numeric.index(name) for name in columns]
    rows, medians = rows[:, at], medians[:, at]
    means, errors, complete, start = [], [], [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for one, median in zip(site.long, medians, strict=True):
            n = min(one.n_rows, one.head_rows)
            own, start = rows[start : start + n], start + n
            whole = own[np.isfinite(own).all(axis=1)]
            complete.append(whole - whole.mean(axis=0) if len(whole) else whole)
            if n >= _SHORTEST:
                batches = np.stack([np.nanmean(part, axis=0) for part in np.array_split(own, _BATCHES)])
                means.append(batches.mean(axis=0) + median)
                errors.append(batches.var(axis=0, ddof=1) / _BATCHES)
        low, high = np.nanquantile(rows, [0.1, 0.9], axis=0) if len(rows) else np.zeros((2, len(columns)))
        middle = np.nanmedian(medians, axis=0)
    scale = (high - low) / 2.563
    z = np.clip(np.nan_to_num(rows / np.where(scale > 0, scale, 1.0)), -5, 5)
    z = z - z.mean(axis=0) if len(z) else z
    norm = np.sqrt(np.maximum(np.square(z).sum(axis=0), 1e-300))
    lagged = z[1:].T @ z[:-1] / np.outer(norm, norm)
    correlations = np.stack([z.T @ z / np.outer(norm, norm), lagged])
    empty = np.empty((0, len(columns)))
    return SiteShape(
        len(rows),
        middle,
        scale,
        correlations,
        np.array(means) if means else empty,
        np.array(errors) if errors else empty,
        np.concatenate(complete) if complete else empty,
    )


def check_columns(columns: tuple[str, ...], rows: FloatArray) -> list[Finding]:
    """Return the findings about columns that others determine; `rows` as in `SiteShape`, of all sites."""
    used = [j for j in range(len(columns)) if len(rows) and np.ptp(rows[:, j]) > 0]
    if len(rows) < 3 * len(used) + 10:
        return []
    z = rows[:, used]
    z = z / np.sqrt(np.square(z).mean(axis=0))
    R = z.T @ z / len(z)
    out: list[Finding] = []
    base: list[int] = []
    for k in range(len(used)):
        # Column by column: what do the columns before it, none of which depends on others, leave of it?
        weights = np.linalg.solve(R[np.ix_(base, base)], R[base, k]) if base else np.empty(0)
        left = float(R[k, k] - R[base, k] @ weights)
        if left > 1e-3:
            base.append(k)
            continue
        parents = [columns[used[base[i]]] for i in np.flatnonzero(np.abs(weights) > 0.02)]
        own = columns[used[k]]
        if left > _EXACT:
            base.append(k)
            out.append(Finding("dependent", "note", {"almost": True}, (own, *parents)))
        elif len(parents) == 1:
            out.append(Finding("copy", "error", about=(own, *parents)))
        else:
            out.append(Finding("dependent", "error", {"almost": False}, (own, *parents)))
    return out


def check_between(
    columns: tuple[str, ...], shapes: Mapping[str, SiteShape], sites: Mapping[str, SiteProfile]
) -> list[Finding]:
    """Return the findings about sites that do not fit the others."""
    out = _repeated(sites)
    names = [name for name, one in shapes.items() if one.n >= _SHORTEST and (one.scale > 0).all()]
    if len(names) < 3 or not columns:
        return out
    L = np.log(np.stack([shapes[name].scale for name in names]))
    M = np.stack([shapes[name].middle for name in names])
    R = np.stack([shapes[name].correlations for name in names])
    usual = np.median(L, axis=0), np.median(M, axis=0)
    within = np.exp(usual[0])
    apart = (L - usual[0], (M - usual[1]) / within)
    # Three sites give a poor idea of how far sites differ; then only large factors count.
    spread = [1.4826 * np.median(np.abs(a), axis=0) for a in apart]
    bar = np.maximum(np.log(3.0 if len(names) > 3 else 5.0), 6 * spread[0])
    is_scaled = np.abs(apart[0]) > bar
    is_shifted = np.abs(apart[1]) > np.maximum(5.0, 8 * spread[1])
    odd: set[str] = set()
    for k, name in enumerate(names):
        pair = _swapped(k, L, M, R, within, is_scaled[k] | is_shifted[k])
        if pair is not None:
            out.append(Finding("swapped", "warning", {"site": name}, tuple(columns[i] for i in pair)))
            odd.add(name)
            continue
        wrong = np.flatnonzero(is_scaled[k] | is_shifted[k])
        if len(wrong):
            odd.add(name)
            out.append(_units(name, columns, wrong, apart[0][k], is_scaled[k]))
    out += _baselines(columns, [shapes[name] for name in names if name not in odd], within)
    return out


def _units(
    site: str, columns: tuple[str, ...], wrong: np.ndarray, factors: FloatArray, is_scaled: np.ndarray
) -> Finding:
    chosen = tuple(columns[j] for j in wrong)
    if not is_scaled[wrong].any():
        return Finding("baseline", "warning", {"site": site}, chosen, {"prepare.center": "auto"})
    largest = int(wrong[np.argmax(np.abs(factors[wrong]))])
    factor = float(np.exp(np.abs(factors[largest])))
    values = {"site": site, "factor": factor, "is_larger": bool(factors[largest] > 0)}
    cure = {"prepare.on_disagreement": "exclude", "prepare.gains": "auto"}
    return Finding("units", "warning", values, chosen, cure)


def _swapped(
    k: int, L: FloatArray, M: FloatArray, R: FloatArray, within: FloatArray, is_odd: np.ndarray
) -> tuple[int, int] | None:
    """Return the two columns whose exchange makes site k like the others, or None."""
    others = [i for i in range(len(L)) if i != k]
    if len(others) < 3:
        return None
    center = np.median(R[others], axis=0)
    d = L.shape[1]
    usual = np.array([_distance(R[i], center) for i in others])
    own = _distance(R[k], center)
    limit = float(np.median(usual) + 4 * 1.4826 * np.median(np.abs(usual - np.median(usual))))
    is_far = own > max(2 * limit, float(usual.max()) * 1.5)
    if not is_far and is_odd.sum() != 2:
        return None
    level, scale = np.median(M[others], axis=0), np.median(L[others], axis=0)
    pairs = [(i, j) for i in range(d) for j in range(i)]
    if not is_far:
        i, j = np.flatnonzero(is_odd).tolist()
        pairs = [(j, i)]
    best, found = np.inf, None
    for i, j in pairs:
        order = np.arange(d)
        order[[i, j]] = j, i
        # Scales and levels must fit as well: correlations alone do not know the units.
        fits = np.abs(L[k][order] - scale)[[i, j]].max() < np.log(2.0)
        fits &= np.abs((M[k][order] - level) / within)[[i, j]].max() < 4
        distance = _distance(R[k][:, order][:, :, order], center)
        if fits and distance < best:
            best, found = distance, (min(i, j), max(i, j))
    if found is None or (is_far and best > min(limit, own / 2)):
        return None
    return found


def _distance(R: FloatArray, center: FloatArray) -> float:
    return float(np.square(R - center).sum())


def _baselines(columns: tuple[str, ...], shapes: list[SiteShape], within: FloatArray) -> list[Finding]:
    means = np.concatenate([one.means for one in shapes]) if shapes else np.empty((0, 0))
    if len(means) < 3:
        return []
    errors = np.concatenate([one.errors for one in shapes]).mean(axis=0)
    ratio = means.var(axis=0, ddof=1) / np.maximum(errors, 1e-300)
    bar = max(6.0, float(f_distribution.isf(1e-7, len(means) - 1, (_BATCHES - 1) * len(means))))
    differ = (ratio > bar) & (means.std(axis=0, ddof=1) > 0.1 * within)
    if not differ.any():
        return []
    chosen = tuple(name for name, flag in zip(columns, differ, strict=True) if flag)
    return [Finding("baselines", "note", about=chosen, cure={"prepare.center": "auto"})]


def _repeated(sites: Mapping[str, SiteProfile]) -> list[Finding]:
    seen: dict[str, dict[str, str]] = {}
    out = []
    for name, site in sites.items():
        for one in site.long:
            head = one.head[:1000]
            if len(head) < 5 or not np.nanstd(head) > 0:
                continue
            key = hashlib.sha256(np.ascontiguousarray(head).tobytes() + str(one.n_rows).encode()).hexdigest()
            if key in seen:
                where = {"site": name, "recording": one.name}
                out.append(Finding("repeated", "warning", where | seen[key]))
            seen.setdefault(key, {"same_site": name, "same_recording": one.name})
    return out
