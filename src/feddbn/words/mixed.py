"""What fits of variables of any kind say."""

from __future__ import annotations

from feddbn.words import Said, says


@says("rare-levels")
def _rare_levels(it: Said) -> str:
    levels = "; ".join(repr(level) for level in it["levels"])
    return (
        f"some levels of {it.names} are rare and were merged with others. Its levels are now {levels}. "
        "level_rows sets how many rows a level needs."
    )


@says("one-value")
def _one_value(it: Said) -> str:
    return f"{it.names} has only one value, so its causes and effects cannot be learned."


@says("own-levels-of-kinds")
def _own_levels(it: Said) -> str:
    return (
        f"recordings have different levels (BIC {it['evidence']:.0f} better with one level each), so edges were learned "
        "within recordings. The weights assume one level for all and may be biased by that."
    )


@says("one-value-a-recording")
def _one_value_a_recording(it: Said) -> str:
    return f"{it.names} is constant in each recording, so its effects cannot be separated from the levels of recordings."


@says("separated")
def _separated(it: Said) -> str:
    return (
        f"the causes of {it.names} predict it perfectly (separation), so its coefficients would be infinite. A prior with "
        f"standard deviation {it['sd']:g} keeps them finite."
    )


@says("cycles-left-in")
def _cycles_left_in(it: Said) -> str:
    periods = " and ".join(f"{period:.4g}" for period in it["periods"])
    return (
        f"values have cycles of {periods} rows, which this method does not subtract. Edges between variables with the same "
        f"cycle may be due to it. Subtract the cycles first, or use {it.method('OneShotDBN', 'oneshot')}, which does so."
    )


@says("weights-not-settled")
def _weights_not_settled(it: Said) -> str:
    return f"the weights did not converge within {it['n']} steps; look for variables that hardly vary."


@says("overdispersed")
def _overdispersed(it: Said) -> str:
    return f"counts of {it.names} vary more than Poisson counts, so a negative binomial model is used."
