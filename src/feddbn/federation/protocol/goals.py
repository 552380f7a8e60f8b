"""What a study may want beside, or instead of, a network: one table of its file for each goal."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from feddbn.federation.protocol.rows import MOST_BLOCKS
from feddbn.federation.protocol.terms import Strict

__all__ = ["CHOSEN_BY_ROWS", "GOALS", "Compare", "Confidence", "Goal", "Select"]

CHOSEN_BY_ROWS = ("n_lags", "lambda_w", "lambda_a", "mu", "n_clusters")
"""Parameters that are chosen on held-out rows where they are "auto"."""
Goal = Literal["network", "confidence", "select", "compare", "check"]
# In steps of five per cent: by studies of different shares, recordings of twenty rows differ by a row, too.
Share = Annotated[float, Field(ge=0.05, le=0.5, multiple_of=0.05)]
Number = int | Annotated[float, Field(allow_inf_nan=False)]


class Confidence(Strict):
    """How edges are tried out where a study's goal is "confidence": as the arguments of ``edge_confidence``."""

    replicates: int = Field(default=100, ge=2, le=10_000)
    resampling: Literal["bootstrap", "stability"] = "bootstrap"
    block_length: int | Literal["auto", "politis-white"] = "auto"
    unit: Literal["auto", "recordings", "blocks"] = "auto"
    level: float = Field(default=0.9, gt=0, lt=1)
    seed: int = Field(default=0, ge=0)


class Select(Strict):
    """How parameters are chosen where a study's goal is "select": as the arguments of ``feddbn.select``.

    Without a `grid`, what the method chooses by default is tried.
    """

    grid: dict[str, tuple[Number, ...]] = Field(default_factory=dict)
    n_blocks: int = Field(default=2, ge=1, le=MOST_BLOCKS)
    share: Share = 0.3
    rule: Literal["one-standard-error", "best"] = "one-standard-error"


class Compare(Strict):
    """What the study's method is compared with where the goal is "compare", on the last `share` of every recording."""

    against: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = ()
    share: Share = 0.2


GOALS: tuple[tuple[str, type[Strict]], ...] = (
    ("confidence", Confidence),
    ("select", Select),
    ("compare", Compare),
)
"""Goals that have a table of their own, and its type."""
