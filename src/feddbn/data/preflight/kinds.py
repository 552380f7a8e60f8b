"""Proposed kinds of columns: yes/no, counts, codes, levels in text, positive and skewed.

A proposal is made for all sites together, and is a note: nothing is done unless it is declared. It must not hurt where it is
taken, so what may be a rounded measurement stays a number on a line:

    binary       two values
    count        whole numbers from 0 on with a mean below 10, spread as counts are, the largest rare
    ordinal      few whole numbers, one after the other from 1, or many from 0
    categorical  few whole numbers with unequal steps, or up to four from 0; few different texts
    positive     above 0 and skewed, and hardly skewed on a log scale
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.statistics.kind_signs import SMALL_MEAN, SPREAD
from feddbn.data.preflight.finding import Finding
from feddbn.data.preflight.profile import SiteProfile

__all__ = ["propose_kinds", "proposed_kinds"]

_SHORTEST = 50
_MOST_ROWS = 100_000
_MOST_LEVELS = 12
_ROWS_A_LEVEL = 10
_LARGEST_CODE = 99
_RARE = 0.05
_SKEWED = 1.0
_STRAIGHT = 0.5

Said = str | list[str] | dict[str, list[str]]


def propose_kinds(sites: Mapping[str, SiteProfile], settled: Collection[str]) -> list[Finding]:
    """Return one note with the kinds of all columns that are no numbers on a line; `settled` columns are left out."""
    found = proposed_kinds(sites, settled)
    if not found:
        return []
    words = [f"{name!r} {_WORDS[_kind_of(said)]}" for name, said in found.items()]
    kinds = ", ".join(f"{name!r}: {said!r}" for name, said in found.items())
    cure = f"if so, use MixedDBN(kinds={{{kinds}}}); other methods treat numbers as lines and refuse text"
    return [Finding("kinds", "note", f"{'; '.join(words)}.", cure, columns=tuple(found))]


_WORDS = {
    "binary": "has two values, like yes/no",
    "count": "looks like a count: whole numbers from 0 on with a small mean",
    "ordinal": "looks like codes, perhaps in an order",
    "categorical": "looks like codes or names, perhaps without an order",
    "positive": "is positive and skewed, and is less so on a log scale",
}


def _kind_of(said: Said) -> str:
    if isinstance(said, list):
        return "categorical"
    return said if isinstance(said, str) else next(iter(said))


def proposed_kinds(sites: Mapping[str, SiteProfile], settled: Collection[str] = ()) -> dict[str, Said]:
    """Return column -> its kind as `kinds=` takes it, for columns that all sites have."""
    profiles = list(sites.values())
    first = profiles[0].chosen if profiles else ()
    common = [name for name in first if name not in settled and all(name in one.chosen for one in profiles)]
    found: dict[str, Said] = {}
    for name in common:
        if all(name in one.numeric for one in profiles):
            said = _of_numbers(_values(profiles, name))
        else:
            said = _of_texts(profiles, name)
        if said is not None:
            found[name] = said
    return found


def _values(profiles: list[SiteProfile], name: str) -> FloatArray:
    some = max(1, _MOST_ROWS // len(profiles))
    parts = [np.concatenate([one.head[:, j] for one, j in site.column(name)])[:some] for site in profiles]
    x = np.concatenate(parts)
    return np.asarray(x[np.isfinite(x)])


def _of_numbers(x: FloatArray) -> Said | None:
    values, counts = np.unique(x, return_counts=True)
    if len(x) < _SHORTEST or len(values) < 2:
        return None
    if len(values) == 2:
        return "binary" if values.tolist() == [0.0, 1.0] else {"binary": _named(values)}
    if (values != np.rint(values)).any():
        return "positive" if _is_skewed(x) else None
    if values[0] < 0:
        return None
    if _is_count(x, counts[-1] / len(x)):
        return "count"
    is_few = len(values) <= _MOST_LEVELS and values[-1] <= _LARGEST_CODE
    if not is_few or len(x) < _ROWS_A_LEVEL * len(values):
        return None
    steps = np.diff(values)
    if (steps != steps[0]).any():
        return _named(values)
    if steps[0] != 1 or values[0] > 1:
        # Equal steps far from 0 are those of a rounded measurement.
        return None
    return _named(values) if values[0] == 0 and len(values) <= 4 else {"ordinal": _named(values)}


def _is_count(x: FloatArray, share_of_largest: float) -> bool:
    mean = float(x.mean())
    # Counts vary about as much as their mean or more, lean to the right as rounded measurements do not, and a small mean has
    # zeros.
    is_spread = mean < SMALL_MEAN and float(x.var()) > SPREAD * mean and _skewness(x) > 0.5 / np.sqrt(mean)
    has_zeros = bool((x == 0).any()) or len(x) * np.exp(-mean) < 5
    return is_spread and has_zeros and share_of_largest < _RARE


def _is_skewed(x: FloatArray) -> bool:
    return bool(x.min() > 0 and _skewness(x) > _SKEWED and abs(_skewness(np.log(x))) < _STRAIGHT)


def _skewness(x: FloatArray) -> float:
    z = (x - x.mean()) / max(float(x.std()), 1e-300)
    return float((z**3).mean())


def _of_texts(profiles: list[SiteProfile], name: str) -> Said | None:
    held = [pair for one in profiles for pair in one.column(name)]
    n_text = sum(one.total("n_text", name) for one in profiles)
    n_numbers = sum(one.total("n_numbers", name) for one in profiles)
    names = sorted(set().union(*(one.texts[j] for one, j in held)))
    is_few = 2 <= len(names) <= _MOST_LEVELS and n_text >= max(_SHORTEST, _ROWS_A_LEVEL * len(names))
    if n_numbers or not is_few or any(one.is_date[j] for one, j in held):
        return None
    return {"binary": names} if len(names) == 2 else names


def _named(values: FloatArray) -> list[str]:
    return [f"{value:g}" for value in values]
