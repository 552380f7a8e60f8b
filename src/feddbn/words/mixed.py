"""What fits of variables of any kind say."""

from __future__ import annotations

from feddbn.words import Said, says


@says("rare-levels")
def _rare_levels(it: Said) -> str:
    levels = "; ".join(repr(level) for level in it["levels"])
    return (
        f"some levels of {it.names} are too rare to stand alone, and count as one with others: its levels are {levels}. "
        "level_rows decides from how many rows on a level is not rare."
    )


@says("one-value")
def _one_value(it: Said) -> str:
    return f"{it.names} has one value only, so nothing can be said about its causes or effects."


@says("own-levels-of-kinds")
def _own_levels(it: Said) -> str:
    return (
        f"recordings differ in their levels (BIC {it['evidence']:.0f} better with levels of their own), so the edges are "
        "those within recordings; the weights have one level for all, and may be off by that."
    )


@says("one-value-a-recording")
def _one_value_a_recording(it: Said) -> str:
    return f"{it.names} has one value in each recording, so its effects cannot be told from these levels."


@says("separated")
def _separated(it: Said) -> str:
    return (
        f"causes of {it.names} tell its values apart without an error, so its coefficients have no largest likelihood; they "
        f"were held by a prior of standard deviation {it['sd']:g} per standard deviation or level."
    )


@says("weights-not-settled")
def _weights_not_settled(it: Said) -> str:
    return f"the weights did not settle within {it['n']} steps; look for variables with hardly any variation."


@says("overdispersed")
def _overdispersed(it: Said) -> str:
    return f"counts of {it.names} vary more than Poisson counts; they are negative binomial."
