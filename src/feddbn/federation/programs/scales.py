"""Whether penalties and thresholds act on scaled variables, decided from a sum that was made anyway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from feddbn.core.statistics.comparable import Spread, noise_spread, variance_spread
from feddbn.core.statistics.moments import Moments
from feddbn.federation.programs.statistics import Summary

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
        How far the variables differ, where that was looked at.
    """

    rule: str
    spread: Spread | None = None

    def sentence(self, variables: Sequence[str]) -> str | None:
        """Say what was decided and why; None where nothing was, or the data stay as they are."""
        if self.spread is None or self.rule == "none":
            return None
        large, small, factor = variables[self.spread.large], variables[self.spread.small], self.spread.factor
        why = (
            f"whatever the network is, the noise of {large} is at least {factor:.3g} times as large as that of {small}"
            if self.spread.of_noise
            else f"{large} varies at least {factor:.3g} times as much as {small}"
        )
        return (
            f"penalties and thresholds act on variables scaled to unit variance (scale='auto'): {why} (standard "
            "deviations), so one penalty in the units of the data cannot serve both. Weights are in the units of the "
            "data; directions within a moment rest on less, since scales no longer tell them. scale='none' keeps the "
            "units, as in the paper."
        )


def choose_scale(scale: str, d: int, summary: Summary, moments: Moments | None = None) -> ScaleChoice:
    """Decide about ``scale="auto"``: by bounds on the noise if moments are known, else by variances."""
    if scale != "auto":
        return ScaleChoice(scale)
    spread = None if moments is None else noise_spread(moments.scatter, moments.n, d)
    if spread is None:
        spread = variance_spread(summary.variance[:d], summary.autocorrelation, summary.n)
    return ScaleChoice("federated" if spread is not None and spread.is_wide else "none", spread)
