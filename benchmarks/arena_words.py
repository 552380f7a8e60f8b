"""A warning in one or two words, equal for sentences about the same thing."""

from __future__ import annotations

import re

SHORT = {
    "directions depend on the units": "units",
    "have levels of their own": "means",
    "cycles of": "cycles",
    "trends of their own": "trends",
    "slow changes": "slow changes",
    "on different scales": "scales",
    "count for less": "far cells",
    "of the cells are empty": "empty cells",
    "like a code for missing": "codes",
    "the noise is autocorrelated": "memory taken off",
    "a lag was added": "lag added",
    "a hidden cause of": "hidden cause",
    "residuals repeat": "echo",
    "edges are curved": "curves modelled",
    "effects are not straight lines": "curvature",
    "changed between the first and the second half": "changing edges",
    "residuals are autocorrelated": "memory",
    "residuals of the same row": "dependence",
    "noise variance changes": "changing variance",
    "noise variance differs": "unequal recordings",
    "heavy tails": "tails",
    "near a unit root": "levels",
    "scaled to unit variance": "scaled",
    "times as much": "other units, to the owner",
    "the variables of this site": "columns, to the owner",
    "does not fit": "odd site",
    "farther apart in time": "two rates",
    "is the sum of": "sum",
    "is a copy of": "copy",
    "parts of the rows differ": "parts unknown",
    "of straight lines": "straight edges left out",
}
"""What a sentence holds -> what a table shows."""


def gist(sentence: str, n_words: int = 7) -> str:
    """The short form of a sentence, or its first words without its names and numbers."""
    for part, short in SHORT.items():
        if part in sentence:
            return short
    nameless = re.sub(r"'[^']*'(, '[^']*')*", "'..'", sentence)
    return " ".join(re.sub(r"\b\w*\d[\w.,%]*", "#", nameless).split()[:n_words])
