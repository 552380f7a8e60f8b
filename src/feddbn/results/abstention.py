"""What speaks against the edges of a network, and whether the data tell any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from feddbn.core.statistics.enough import rows_doubt
from feddbn.findings import Finding, Findings
from feddbn.results.remarks import GRAVE

__all__ = ["ABSTAINED", "AGAINST_EDGES", "abstention", "contradictions"]

ABSTAINED = "data-do-not-tell"
"""Code of the finding of a fit that claims no edge between two variables."""
OF_TWO = "hidden cause of two"
FEW = "too-few-rows"
"""Code of the finding that a fit rests on few rows; where these are very few every probability counts half."""
AGAINST_EDGES = frozenset(("sites-disagree", "made-up-values", "slow-levels", "two-rates"))
"""Codes of further findings by which edges may stand for something else; those of residuals are `GRAVE`."""


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


def abstention(table: pd.DataFrame, found: Iterable[str]) -> Finding | None:
    """The finding that the data do not tell: no two variables have an edge that is claimed with more than one half."""
    network = table[(table["weight"] != 0) & (table["source"] != table["target"])]
    if len(network):
        return None
    return Finding(ABSTAINED, "warning", {"because": list(found)})
