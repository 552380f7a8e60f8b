"""Whether penalties and thresholds act on scaled variables, decided from a sum of moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from feddbn.core.statistics.comparable import (
    DIFFERENT_NETWORKS_FACTOR,
    NOISE_FACTOR,
    Spread,
    noise_spread,
)
from feddbn.core.statistics.known_inputs import output_columns, outputs_of
from feddbn.core.statistics.moments import Moments

__all__ = ["SCALES", "ScaleChoice", "choose_scale"]

SCALES = ("auto", "none", "federated")


@dataclass(frozen=True)
class ScaleChoice:
    """Which units penalties and thresholds act on.

    Attributes
    ----------
    rule
        "none": those of the data; "federated": every variable scaled to unit variance over all sites.
    spread
        How far the noise of variables differs, where that was looked at.
    one_network
        Whether all sites have one network, so that the spread is a bound.
    """

    rule: str
    spread: Spread | None = None
    one_network: bool = True

    def sentence(self, variables: Sequence[str]) -> str | None:
        """Say what was decided and why; None where nothing was, or the data stay as they are."""
        if self.spread is None or self.rule == "none":
            return None
        large, small, factor = variables[self.spread.large], variables[self.spread.small], self.spread.factor
        why = (
            f"whatever the network is, the noise of {large} is at least {factor:.3g} times as large as that of {small}"
            if self.one_network
            else f"the noise of {large} is about {factor:.3g} times as large as that of {small}, more than different "
            "networks explain"
        )
        return (
            f"penalties and thresholds act on variables scaled to unit variance (scale='auto'): {why} (standard "
            "deviations), so one penalty in the units of the data cannot serve both. Weights are in the units of the "
            "data; directions within a moment rest on less, since scales no longer tell them. scale='none' keeps the "
            "units, as in the paper."
        )


def choose_scale(
    scale: str, d: int, moments: Moments, *, one_network: bool = True, inputs: Sequence[int] = ()
) -> ScaleChoice:
    """Decide about ``scale="auto"`` by how far noise must differ; `one_network` says whether sites share one.

    `inputs` are positions of variables that only act on others, and have no noise.
    """
    if scale != "auto":
        return ScaleChoice(scale, one_network=one_network)
    scatter, m = output_columns(moments.scatter, d, inputs)
    spread = noise_spread(scatter, moments.n, m)
    if spread is not None and inputs:
        outputs = outputs_of(d, inputs)
        spread = replace(spread, large=outputs[spread.large], small=outputs[spread.small])
    limit = NOISE_FACTOR if one_network else DIFFERENT_NETWORKS_FACTOR
    rule = "federated" if spread is not None and spread.factor > limit else "none"
    return ScaleChoice(rule, spread, one_network)
