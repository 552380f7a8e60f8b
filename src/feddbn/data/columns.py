"""Single columns of a site: empty cells, codes for missing, constants.

What recordings do over time, which cells are far out and which were made up is for a fit to decide.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from feddbn.data.profile import Profile
from feddbn.data.units import conversion
from feddbn.findings import Finding

__all__ = ["CODES", "check_columns", "check_units", "is_code"]

CODES = (-9.0, -99.0, -999.0, -9999.0, -99999.0, -1.0, 99.0, 999.0, 9999.0, 99999.0, -32768.0, 32767.0)


def is_code(value: float) -> bool:
    """Whether a number is known as a code for "missing": -999 and its kin, or one of 1e20 and more."""
    return value in CODES or abs(value) >= 1e20


def check_columns(site: Profile) -> list[Finding]:
    """Return the findings about the columns of a site."""
    where = {"site": site.name}
    empty = [name for name in site.chosen if site.n_rows and site.n_missing[site.place[name]] == site.n_rows]
    is_flat = (site.lowest == site.highest) & (site.n_rows > 1)
    flat = tuple(name for name in site.numeric if is_flat[site.place[name]])
    return [
        *(Finding("empty-column", "warning", where, (name,)) for name in empty),
        *_missing(site),
        *_codes(site),
        *([Finding("constant", "warning", where, flat)] if flat else []),
    ]


def _missing(site: Profile) -> list[Finding]:
    shares = {name: float(site.n_missing[site.place[name]] / max(site.n_rows, 1)) for name in site.chosen}
    worst_first = sorted(
        ((name, share) for name, share in shares.items() if 0 < share < 1), key=lambda one: -one[1]
    )
    values = {"site": site.name, "shares": dict(worst_first)}
    return (
        [Finding("missing", "note", values, tuple(name for name in shares if 0 < shares[name] < 1))]
        if worst_first
        else []
    )


def _codes(site: Profile) -> list[Finding]:
    """Codes for missing that are the lowest or highest value of columns, far from all others."""
    found: dict[float, dict[str, int]] = {}
    for name in site.numeric:
        j = site.place[name]
        for value in (float(site.lowest[j]), float(site.highest[j])):
            n = _times_apart(site, name, value) if is_code(value) else 0
            if n > 1:
                found.setdefault(value, {})[name] = n
    return [
        Finding(
            "sentinel",
            "warning",
            {"site": site.name, "value": value, "n": sum(counts.values())},
            tuple(counts),
            {"prepare.empty_values": value},
        )
        for value, counts in found.items()
    ]


def _times_apart(site: Profile, name: str, value: float) -> int:
    """How often an extreme value is in the first rows, 0 if it is not far from the others."""
    head = site.head(name)
    rest = head[np.isfinite(head) & (head != value)]
    if len(rest) < 10:
        return 0
    low, middle, high = np.quantile(rest, [0.05, 0.5, 0.95])
    spread, gap = high - low, np.abs(rest - value).min()
    is_apart = spread > 0 and gap > 2 * spread and abs(value - middle) > 4 * spread
    return int((head == value).sum()) if is_apart else 0


_PAIRS = ("C", "F"), ("C", "K"), ("F", "K"), ("mmHg", "kPa")
_CHANGES = {pair: conversion(*pair) for one in _PAIRS for pair in (one, one[::-1])}
"""Changes of unit that mistakes are made with, beside those by a factor alone: ``factor * x + offset``."""
_FACTORS = (10.0, 100.0, 1000.0, 1e6, 60.0, 0.1, 0.01, 0.001, 1e-6, 1 / 60)
_FEWEST_UNITS = 3
"""With fewer sites nobody can say who has the other unit."""
_APART, _LEFT, _NEAR, _ALIKE = 1.5, 0.2, 0.35, 2 / 3
"""Quartiles are so many of the others' spreads off, the change leaves so much of that and so many spreads, and so much
of the other sites agrees."""


def check_units(sites: Mapping[str, Profile]) -> list[Finding]:
    """Return the findings about columns that a known change of unit would bring from far off to where other sites are.

    The quartiles of the first rows are compared. Honest sites differ in level and spread, too, but hardly by what a change of
    unit does to both at once.
    """
    if len(sites) < _FEWEST_UNITS:
        return []
    changes = [*_CHANGES.items(), *(((), (factor, 0.0)) for factor in _FACTORS)]
    profiles, out = list(sites.values()), list[Finding]()
    for name in profiles[0].numeric:
        if not all(name in one.numeric for one in profiles):
            continue
        quartiles = np.array([np.nanquantile(one.head(name), [0.25, 0.5, 0.75]) for one in profiles])
        for k, site in enumerate(profiles):
            others = np.delete(quartiles, k, axis=0)
            usual = np.median(others, axis=0)
            spread = usual[2] - usual[0]
            if not spread > 0:
                continue
            apart = np.abs(quartiles[k] - usual).max() / spread
            near = max(_LEFT * apart, 1.0)
            left = [np.abs(a * quartiles[k] + b - usual).max() / spread for _, (a, b) in changes]
            best = int(np.argmin(left))
            are_alike = (np.abs(others - usual).max(axis=1) / spread < near).mean() >= _ALIKE
            if apart > _APART and left[best] < min(_LEFT * apart, _NEAR) and are_alike:
                units, (factor, offset) = changes[best]
                level = float(quartiles[k, 1])
                values = {
                    "site": site.name,
                    "units": list(units),
                    "factor": factor,
                    "offset": offset,
                    "level": level,
                }
                values |= {"usual": float(usual[1]), "becomes": factor * level + offset}
                out.append(Finding("units", "warning", values, (name,)))
    return out
