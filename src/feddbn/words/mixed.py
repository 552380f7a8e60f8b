"""What fits of variables of any kind say."""

from __future__ import annotations

from feddbn.words import Said, says, says_as


@says("rare-levels")
def _rare_levels(it: Said) -> str:
    levels = "; ".join(repr(level) for level in it["levels"])
    return (
        f"some levels of {it.names} are rare and were merged with others. Its levels are now {levels}. "
        "level_rows sets how many rows a level needs."
    )


says_as(
    {
        "one-value": "{it.names} has only one value, so its causes and effects cannot be learned.",
        "own-levels-of-kinds": (
            "recordings have different levels (BIC {evidence:.0f} better with one level each), so edges were learned "
            "within recordings. The weights assume one level for all and may be biased by that."
        ),
        "one-value-a-recording": (
            "{it.names} is constant in each recording, so its effects cannot be separated from the levels of "
            "recordings."
        ),
        "separated": (
            "the causes of {it.names} predict it perfectly (separation), so its coefficients would be infinite. A prior with "
            "standard deviation {sd:g} keeps them finite."
        ),
        "weights-not-settled": "the weights did not converge within {n} steps; look for variables that hardly vary.",
        "overdispersed": "counts of {it.names} vary more than Poisson counts, so a negative binomial model is used.",
    }
)


@says("cycles-left-in")
def _cycles_left_in(it: Said) -> str:
    periods = " and ".join(f"{period:.4g}" for period in it["periods"])
    return (
        f"values have cycles of {periods} rows, which this method does not subtract. Edges between variables with the same "
        f"cycle may be due to it. Subtract the cycles first, or use {it.method('OneShotDBN', 'oneshot')}, which does so."
    )
