"""What residuals say about a fit: the violation, and what to do about it."""

from __future__ import annotations

from math import exp

from feddbn.findings import Finding
from feddbn.words import Said, counted, full_sentence, say, says

_CLEAR_ECHO = 3.7
"""A z-score beyond this has a p-value below a quarter of the usual level."""
_SMALLEST_P = 1e-6
_SHOWN_EDGES = 4


@says("lag-added")
def _lag_added(it: Said) -> str:
    return (
        f"residuals were autocorrelated, so a lag was added. With n_lags={it['n_lags']} they are not (score better by "
        f"{it['gain']:.0f}). A hidden variable can look the same."
    )


@says("noise-memory-removed")
def _noise_memory(it: Said) -> str:
    return (
        f"the noise is autocorrelated ({it['memory']:.2f} from row to row). This was removed before learning. Directions now "
        "rest on covariances only, and forecasts do not use the autocorrelation. "
        f"{it.cure} leaves it in."
    )


@says("residuals-not-looked-at")
def _not_looked_at(it: Said) -> str:
    needed = f"this needs {it['fewest']} complete rows, and there are {it['n']}"
    return f"residuals were not checked: {needed}."


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
    "hidden": "hidden causes explain the data better than some edges do",
    "memory": "residuals are autocorrelated (up to {autocorrelation:.2f})",
    "dependence": "residuals of the same row correlate (up to {correlation:.2f})",
    "volatility": "the noise variance changes from row to row (the data are worth {n_effective:.0f} of {n_rows} rows)",
    "thirds": "the noise variance changes over time (by a factor of up to {ratio:.1f})",
    "spread": "the noise variance differs between recordings",
    "tails": "the noise has heavy tails (kurtosis up to {kurtosis:.0f})",
    "curvature": "effects are not straight lines",
    "change": "some effects change over time",
}


@says("residuals-hidden")
def _hidden(it: Said) -> str:
    causes = " and another one of ".join(", ".join(effects) for effects in it["causes"])
    return (
        f"a hidden cause of {causes} explains the data better than edges between these variables do (score better by "
        f"{it['gain']:.0f}). Edges between them, and lagged edges to them, may be due to it; their directions are left open. "
        "If you can measure what they share, add it as a variable."
    )


@says("residuals-memory")
def _memory(it: Said) -> str:
    numbers = f"(autocorrelation up to {it['autocorrelation']:.2f}, echo {it['echo']:.1f} standard errors, p {_p(it['p'])})"
    cure, n_lags, gain = "add a variable that may be missing", it["n_lags"], it["lag_gain"]
    if it["looked_only"]:
        oneshot = it.method("OneShotDBN", "oneshot")
        cure = f"use {oneshot}, which tests one more lag and autocorrelated noise; or {cure}"
    if gain is not None and gain > 0:
        auto = it.setting("n_lags", "auto")
        cure = f"try {auto}, because n_lags={n_lags + 1} scores {gain:.0f} better; or {cure}"
    if it["echo"] > _CLEAR_ECHO:
        return (
            f"residuals repeat the network's own effects one lag late {numbers}. This happens with measurement error or a "
            "hidden cause. Weights are then too small, and some edges may be wrong. "
            f"Do not rely on single edges or directions. Average neighbouring rows, or {cure}."
        )
    return (
        f"residuals are autocorrelated {numbers}. Possible reasons: a hidden cause, a trend or cycle, too few lags, or "
        f"autocorrelated noise. Some edges may be due to that; {cure}."
    )


@says("residuals-dependence")
def _dependence(it: Said) -> str:
    return (
        f"residuals of the same row correlate (up to {it['correlation']:.2f}, p {_p(it['p'])}). A contemporaneous effect is "
        "missing, or a cause is hidden. Check forbidden_edges, or add a variable that may be missing."
    )


@says("residuals-volatility")
def _volatility(it: Said) -> str:
    rows = f"{it['n_effective']:.0f} of {it['n_rows']} rows"
    follows = f"The network and its probabilities count only {rows}."
    if it["looked_only"]:
        oneshot = it.method("OneShotDBN", "oneshot")
        follows = f"The data are worth {rows}, so trust weak edges less; {oneshot} takes this into account."
    return (
        f"the noise variance changes from row to row (squared residuals correlate up to {it['correlation']:.2f}, "
        f"p {_p(it['p'])}). {follows}"
    )


@says("residuals-thirds")
def _thirds(it: Said) -> str:
    return (
        f"the noise variance changes over time (by a factor of up to {it['ratio']:.1f} between thirds of the recordings, "
        f"p {_p(it['p'])}). The noisier part dominates the weights. Fit the parts separately and keep what agrees."
    )


@says("residuals-spread")
def _spread(it: Said) -> str:
    return (
        f"the noise variance differs between recordings (by a factor of {exp(it['spread']):.1f} or more for one in three, "
        f"p {_p(it['p'])}). The noisier ones dominate the weights. Check their units, or leave them out."
    )


@says("residuals-tails")
def _tails(it: Said) -> str:
    return (
        f"the noise has heavy tails (kurtosis up to {it['kurtosis']:.0f}; 3 is Gaussian). Single rows may decide about "
        "edges. Look for outliers with `feddbn check`."
    )


@says("residuals-curvature")
def _curvature(it: Said) -> str:
    oneshot, spline = it.method("OneShotDBN", "oneshot"), it.setting("features", "spline")
    return (
        f"effects are not straight lines (p {_p(it['p'])}). Weights are average slopes, and edges may be missing or "
        f"reversed. Use {oneshot} with {spline}."
    )


@says("residuals-change")
def _change(it: Said) -> str:
    edges = it["edges"]
    named = [
        f"{source} -> {target} ({f'lag {lag}' if lag else 'same row'}) from {first + 0.0:.2f} to {second + 0.0:.2f}"
        for source, target, lag, *weights, _ in edges[:_SHOWN_EDGES]
        for first, second in [[round(weight, 2) for weight in weights]]
    ]
    more = [f"{len(edges) - len(named)} more"] if len(edges) > len(named) else []
    changing = it.method("ChangingDBN", "changing")
    return (
        f"{counted(len(edges), 'effect')} changed between the first and the second half of the recordings: "
        f"{'; '.join(named + more)}. Weights shown are averages over time, and an effect of one half only may be missing. "
        f"Use {changing}, which finds when edges change."
    )


def _p(value: float) -> str:
    return f"= {value:.1g}" if value >= _SMALLEST_P else f"< {_SMALLEST_P:g}"


@says("data-do-not-tell")
def _do_not_tell(it: Said) -> str:
    because = [_AGAINST[name] for name in it["because"] if name in _AGAINST]
    why = f": {' and '.join(because)}" if because else ""
    return f"these data do not show which variables act on which{why}."


_AGAINST = {
    "too-few-rows": "there are too few rows",
    "sites-disagree": "sites do not fit each other",
    "two-rates": "rows of some sites are farther apart in time",
    "made-up-values": "some values were filled in earlier",
    "hidden": "hidden causes explain the data as well",
    "memory": "residuals are autocorrelated",
    "dependence": "residuals of the same row correlate",
    "curvature": "effects are not straight lines",
}
