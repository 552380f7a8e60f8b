"""What residuals say about a fit: the violation, and what to do about it."""

from __future__ import annotations

from math import exp

from feddbn.findings import Finding
from feddbn.words import Said, full_sentence, say, says

_CLEAR_ECHO = 3.7
"""A z-score beyond this has a p-value below a quarter of the usual level."""
_SMALLEST_P = 1e-6


@says("lag-added")
def _lag_added(it: Said) -> str:
    return (
        f"residuals remembered earlier ones, so a lag was added: n_lags={it['n_lags']} leaves none that do (score better by "
        f"{it['gain']:.0f}). A hidden variable can look the same."
    )


@says("noise-memory-removed")
def _noise_memory(it: Said) -> str:
    return (
        f"the noise is autocorrelated: it keeps {it['memory']:.2f} of itself from row to row. That was taken off before "
        "learning, which leaves residuals without memory; directions then rest on covariances, and forecasts do not use "
        f"the memory. {it.cure} leaves it in."
    )


@says("residuals-not-looked-at")
def _not_looked_at(it: Said) -> str:
    needed = f"it takes {it['fewest']} complete rows, and there are {it['n']}"
    return f"whether residuals contradict the model was not looked at: {needed}."


@says("residuals")
def _contradictions(it: Said) -> str:
    """All of them: the gravest as it is said alone, the others in short."""
    first, *others = it["violations"]
    gravest = say(Finding(f"residuals-{first}", it.finding.level, it[first]), it.audience)
    if not others:
        return gravest
    short = "; ".join(_SHORT[name].format(**it[name]) for name in others)
    return f"{gravest} {full_sentence(f'besides, {short}')}"


_SHORT = {
    "hidden": "hidden causes explain the rows better than some edges do",
    "memory": "residuals are autocorrelated (up to {autocorrelation:.2f})",
    "dependence": "residuals of the same row correlate (up to {correlation:.2f})",
    "volatility": "the variance of the noise changes from row to row (evidence is worth {n_effective:.0f} of {n_rows} rows)",
    "thirds": "the variance of the noise changes over the recordings (by a factor of up to {ratio:.1f})",
    "spread": "recordings differ in the variance of their noise",
    "tails": "the noise has heavy tails (kurtosis up to {kurtosis:.0f})",
    "curvature": "effects are not straight lines",
}


@says("residuals-hidden")
def _hidden(it: Said) -> str:
    causes = " and another one of ".join(", ".join(effects) for effects in it["causes"])
    return (
        f"a hidden cause of {causes} explains the rows better than edges between these variables do (score better by "
        f"{it['gain']:.0f}): edges between them and lagged edges to them may stand for it, and directions between them are "
        "left open; add what they share as a variable."
    )


@says("residuals-memory")
def _memory(it: Said) -> str:
    numbers = f"(autocorrelation up to {it['autocorrelation']:.2f}, echo {it['echo']:.1f} standard errors, p {_p(it['p'])})"
    cure, n_lags, gain = "add what may be missing as a variable", it["n_lags"], it["lag_gain"]
    if it["looked_only"]:
        oneshot = it.method("OneShotDBN", "oneshot")
        cure = f"{oneshot} finds out whether one lag more or noise with a memory explains it; or {cure}"
    if gain is not None and gain > 0:
        auto = it.setting("n_lags", "auto")
        cure = f"n_lags={n_lags + 1} scores {gain:.0f} better, so try {auto}; or {cure}"
    if it["echo"] > _CLEAR_ECHO:
        return (
            f"residuals echo the network's own effects a lag too late {numbers}, as where values are measured with errors or "
            "a cause is hidden: weights are too small, and edges may stand for what is measured badly. "
            f"Trust directions and single edges less; average neighbouring rows, or {cure}."
        )
    return (
        f"residuals are autocorrelated {numbers}, as with a hidden cause, a trend or cycle, too few lags, or noise with "
        f"memory: edges may stand for that; {cure}."
    )


@says("residuals-dependence")
def _dependence(it: Said) -> str:
    return (
        f"residuals of the same row correlate (up to {it['correlation']:.2f}, p {_p(it['p'])}): a contemporaneous effect is "
        "missing, or a cause is hidden; look at forbidden_edges, or add what may be missing as a variable."
    )


@says("residuals-volatility")
def _volatility(it: Said) -> str:
    rows = f"{it['n_effective']:.0f} of {it['n_rows']} rows"
    follows = f"network and probabilities count {rows}."
    if it["looked_only"]:
        oneshot = it.method("OneShotDBN", "oneshot")
        follows = f"the evidence is worth {rows}, so trust weak edges less; {oneshot} counts no more rows than that."
    return (
        f"the variance of the noise changes from row to row (squares a row apart correlate up to {it['correlation']:.2f}, "
        f"p {_p(it['p'])}): {follows}"
    )


@says("residuals-thirds")
def _thirds(it: Said) -> str:
    return (
        f"the variance of the noise changes over the recordings (by a factor of up to {it['ratio']:.1f} between thirds, "
        f"p {_p(it['p'])}): the noisier part rules the weights; fit the parts separately and keep what agrees."
    )


@says("residuals-spread")
def _spread(it: Said) -> str:
    return (
        f"recordings differ in the variance of their noise (by a factor of {exp(it['spread']):.1f} or more for one in three, "
        f"p {_p(it['p'])}): the noisier ones rule the weights; look for other units or leave them out."
    )


@says("residuals-tails")
def _tails(it: Said) -> str:
    return (
        f"the noise has heavy tails (kurtosis up to {it['kurtosis']:.0f}; 3 is Gaussian): single rows may decide about "
        "edges; look for outliers with `feddbn check`."
    )


@says("residuals-curvature")
def _curvature(it: Said) -> str:
    oneshot, spline = it.method("OneShotDBN", "oneshot"), it.setting("features", "spline")
    return (
        f"residuals go along with squares or cubes of causes (p {_p(it['p'])}): effects are not straight lines, so weights "
        f"are average slopes, and edges may be missing or have the wrong direction; use {oneshot} with {spline}."
    )


def _p(value: float) -> str:
    return f"= {value:.1g}" if value >= _SMALLEST_P else f"< {_SMALLEST_P:g}"


@says("data-do-not-tell")
def _do_not_tell(it: Said) -> str:
    because = [_AGAINST[name] for name in it["because"] if name in _AGAINST]
    if not it["because"]:
        why = "there are too few rows for so many edges, or no one network stands out"
    elif because:
        why = " and ".join(because)
        if it["because"] != ["rates"]:
            why += ", and in simulations with such findings such edges were often wrong"
    else:
        why = "the findings below speak against the model, and in simulations such edges were often wrong"
    return (
        f"these data do not tell which variables act on which: {it['n_low']} of {it['n_edges']} edges are claimed with a "
        f"probability of one half or less, because {why}. Do not act on single edges; look at the findings below first."
    )


_AGAINST = {
    "rates": "no rates of this kind fit the readings",
    "sites-disagree": "sites do not fit each other",
    "two-rates": "rows of some sites are farther apart in time",
    "held": "values repeat themselves",
    "made-up-values": "values were made up before they came",
    "hidden": "hidden causes explain the rows as well",
    "memory": "residuals are autocorrelated",
    "dependence": "residuals of the same row correlate",
    "curvature": "effects are not straight lines",
}
