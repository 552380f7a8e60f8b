"""What an edge is claimed with: its probability, lowered by what was found and not cured.

A probability of the model holds if the model does. Where a finding contradicts it, an edge may stand for something else, and
simulations tell how often it does. A claim is the probability times the share of such edges that were right, by the finding
that lowers it most:

    link        presence * r,                     r = min over findings f of 1 - c_f (1 - 1 / (1 + exp(-(a_f + b x))))
    direction   1/2 + (direction - 1/2) s,        s alike, with a and b of its own
    edge        min(probability * r, link * direction)

c_f is how clear the finding is (0 at a p-value of .01, 1 from 3e-4 on); x is what is known of the edge: weak edges lose more
than robust ones, edges of a variable on its own past more than others, and edges for which a hidden cause could stand most.
Where nothing was found s = 1, and r is 1 but for weak edges (a robustness below `WEAK`), which lose up to `SILENCE`: not
everything that is wrong is found. The numbers are frozen in ``calibration-1.json``, with the command that made them
(``benchmarks/claims.py`` of revision d16d1506).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.data.checks import rows_doubt
from feddbn.findings import Finding, Findings
from feddbn.results.remarks import GRAVE

__all__ = [
    "ABSTAINED",
    "AGAINST_EDGES",
    "FEATURES",
    "OTHER",
    "SHOWN",
    "SILENCE",
    "WEAK",
    "Calibration",
    "Discount",
    "abstention",
    "claimed",
    "contradictions",
    "features",
    "frozen",
    "trusted",
    "with_doubts",
]

ABSTAINED = "data-do-not-tell"
"""Code of the finding of a fit that claims most of its edges with less than one half."""
FEATURES = ("lagged", "own past", "in doubt", "robustness", "robustness lagged", "crowded")
"""What of an edge its discount rests on, see `features`."""
OF_TWO = "hidden cause of two"
FEW = "too-few-rows"
"""Code of the finding that a fit rests on few rows; where these are very few every probability counts half."""
OTHER = "other"
"""Any finding without a discount of its own."""
AGAINST_EDGES = frozenset(("sites-disagree", "held", "made-up-values", "slow-levels", "two-rates"))
"""Codes of further findings by which edges may stand for something else; those of residuals are `GRAVE`."""
SILENCE, WEAK, _STEEP = 0.07, 0.25, 12.0
"""The most that a probability loses where nothing was found, and the robustness at which it loses half of that."""
SHOWN = 0.01
"""Tables show both numbers where an edge loses more than this."""
_EDGE = ["source", "target", "lag"]
_LEAST_ROBUST, _NOT_KNOWN, _USUAL_EDGES = 0.05, 0.1, 2.0


def contradictions(findings: Iterable[Finding]) -> dict[str, float]:
    """What speaks against the edges of a network, with how clear it is (up to 1); empty where nothing was found.

    A hidden cause of two variables (`OF_TWO`) speaks against the edges that are in doubt, and not against others.
    """
    found: dict[str, float] = {}
    for one in Findings(findings).single:
        if one.code == FEW:
            found[FEW] = rows_doubt(one.values["n"], one.values["q"])
        elif one.code == "residuals":
            for name in (name for name in one.values["violations"] if name in GRAVE):
                p = one.values[name].get("p")
                found[_hidden(one.values[name]) if name == "hidden" else name] = (
                    1.0 if p is None else float(np.clip(-(np.log10(max(p, 1e-9)) + 2) / 1.5, 0, 1))
                )
        elif one.code == "could-be-hidden":
            found[_hidden(one.values)] = 1.0
        elif one.code in AGAINST_EDGES and not one.values.get("left_out"):
            found[one.code] = 1.0
    return {name: clear for name, clear in found.items() if clear > 0}


def _hidden(values: Mapping[str, Any]) -> str:
    """As what hidden causes count; where a finding does not name their effects they are of many."""
    causes = values.get("causes") or ()
    return OF_TWO if causes and all(len(effects) <= 2 for effects in causes) else "hidden"


def with_doubts(table: pd.DataFrame, hidden: pd.DataFrame) -> pd.DataFrame:
    """The table with robustness and could_be_hidden of `hidden_`; a link without delay has them whichever way it is read."""
    now = hidden[hidden["lag"] == 0].rename(columns={"source": "target", "target": "source"})
    both = pd.concat([hidden, now], ignore_index=True).drop_duplicates(_EDGE)
    return table.merge(both[[*_EDGE, "robustness", "could_be_hidden"]], on=_EDGE, how="left")


def features(table: pd.DataFrame) -> FloatArray:
    """(edges, `FEATURES`) of a table `with_doubts`.

    Whether an edge is lagged, is of a variable on its own past, could be a hidden cause; the logarithm of its robustness, in
    all and of lagged edges; and by how many edges a variable has more causes than usual: a wrong model needs many.
    """
    lagged = (table["lag"] > 0).to_numpy(dtype=float)
    robust = table["robustness"].to_numpy(dtype=float)
    robust = np.log(np.clip(np.where(np.isnan(robust), _NOT_KNOWN, robust), _LEAST_ROBUST, 1.0))
    n_places = max(table["target"].nunique(), 1) * (int(table["lag"].max()) + 1) / 2
    crowded = max((table["weight"] != 0).sum() / n_places - _USUAL_EDGES, 0.0)
    own = lagged * (table["source"] == table["target"]).to_numpy()
    doubted = table["could_be_hidden"].eq(True).to_numpy(dtype=float)
    return np.column_stack([lagged, own, doubted, robust, robust * lagged, np.full(len(table), crowded)])


@dataclass(frozen=True)
class Discount:
    """What is left of a probability: the level a_f by finding (one is `OTHER`), and the slopes b of `FEATURES`."""

    levels: Mapping[str, float]
    slopes: Mapping[str, float]

    def shares(self, x: FloatArray, found: Mapping[str, float]) -> FloatArray:
        """Return r of edges with these features; 1 where nothing was found."""
        u, r = x @ np.array([self.slopes[name] for name in FEATURES]), np.ones(len(x))
        for name, clear in found.items():
            level = self.levels.get(name, self.levels[OTHER])
            r = np.minimum(r, 1.0 - clear * (1.0 - 1.0 / (1.0 + np.exp(-(level + u)))))
        return r


@dataclass(frozen=True)
class Calibration:
    """The discounts of links and of their directions."""

    link: Discount
    direction: Discount

    def shares(self, x: FloatArray, found: Mapping[str, float]) -> tuple[FloatArray, FloatArray]:
        """Return r and s of edges with these features."""
        if not found:
            robust = x[:, FEATURES.index("robustness")]
            return 1.0 - SILENCE / (1.0 + np.exp(_STEEP * (robust - np.log(WEAK)))), np.ones(len(x))
        return self.link.shares(x, found), self.direction.shares(x, found)


@cache
def frozen() -> Calibration:
    """The discounts of this version."""
    stored = json.loads(files("feddbn.results").joinpath("calibration-1.json").read_text(encoding="utf-8"))
    parts = (Discount(stored[of]["levels"], stored[of]["slopes"]) for of in ("link", "direction"))
    return Calibration(*parts)


def claimed(
    table: pd.DataFrame,
    hidden: pd.DataFrame,
    found: Mapping[str, float],
    calibration: Calibration | None = None,
) -> pd.DataFrame:
    """Return a table of `results.edge_table.learned_table` with claims in place of probabilities, which stay as ``raw``.

    `found` are `contradictions`, `hidden` is the ``hidden_`` of the fit; `calibration` by default that of this version.
    """
    by, x = calibration or frozen(), features(with_doubts(table, hidden))
    common = {name: clear for name, clear in found.items() if name not in (OF_TWO, FEW)}
    r, s = by.shares(x, common)
    if OF_TWO in found:
        is_doubted = x[:, FEATURES.index("in doubt")] > 0
        own = by.shares(x, {**common, "hidden": 1.0})
        r, s = np.where(is_doubted, own[0], r), np.where(is_doubted, own[1], s)
    r = r * (1.0 - found.get(FEW, 0.0) / 2)
    raw, presence, direction = (table[c].to_numpy() for c in ("probability", "presence", "direction"))
    is_lowered = (table["lag"] == 0).to_numpy() & (s < 1)
    link, way = presence * r, np.where(is_lowered, 0.5 + (direction - 0.5) * s, direction)
    # A direction that nothing is known of is NaN, and lowers nothing.
    claim = np.fmin(raw * r, np.where(is_lowered, link * way, np.inf))
    told = table.assign(probability=claim, presence=link, direction=way)
    told.insert(list(told).index("probability") + 1, "raw", raw)
    return told


def trusted(table: pd.DataFrame) -> FloatArray:
    """What each edge of a table is claimed with as it is drawn: as a link, where its direction is open."""
    return np.where(table["oriented"].astype(bool), table["probability"], table["presence"]).astype(float)


def abstention(table: pd.DataFrame, found: Iterable[str]) -> Finding | None:
    """The finding that the data do not tell: most edges of the network are claimed with less than one half."""
    network = table[table["weight"] != 0]
    is_low: BoolArray = trusted(network) < 0.5
    if 2 * is_low.sum() <= len(network):
        return None
    values = {"n_edges": len(network), "n_low": int(is_low.sum()), "because": list(found)}
    return Finding(ABSTAINED, "warning", values)
