"""What second moments, and sites about themselves, say: columns that follow from others, slow levels, units, noise."""

from __future__ import annotations

from feddbn.words import Said, counted, says

_SHOWN = 4
_ROUNDED = 1e-3


@says("dependent-column")
def _dependent_column(it: Said) -> str:
    others, name = it["others"], it.names
    shown = [f"{other}{f' at lag {lag}' if lag else ''}" for other, lag in others[:_SHOWN]]
    names = ", ".join(shown) + (f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
    ones = max(abs(weight - 1) for weight in it["weights"]) < _ROUNDED
    if len(others) == 1:
        what = "a copy of" if ones else "a multiple of"
    else:
        what = "the sum of" if ones else "a linear combination of"
    cure = f"leave {name} out" if others[0][1] else "leave one of them out"
    with_ = " with variables=" if it.in_python else ""
    return (
        f"{name} is {what} {names} (up to a constant and rounding). Edges among them cannot be told apart; "
        f"{cure}{with_}."
    )


@says("near-identity")
def _near_identity(it: Said) -> str:
    name, *others = it.finding.about
    parts = zip(it["weights"], others, strict=True)
    formula = " + ".join(f"{weight:.3g} {other}" for weight, other in parts).replace("+ -", "- ")
    return (
        f"{name} seems to be computed from {' and '.join(others)}: {formula} (R^2 {it['explained']:.3f}). Edges among them"
        f" get no direction. {it.cure} leaves {name} out of the learning."
    )


@says("definition-far")
def _definition_far(it: Said) -> str:
    return (
        f"{it.names} does not follow its formula {it['formula']}, which explains only {max(it['explained'], 0.0):.0%} of it."
        " Check the formula and the units. Forecasts use the formula."
    )


@says("slow-levels")
def _slow_levels(it: Said) -> str:
    names, persistence, rows = it.finding.about, it["persistence"], it["independent"]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    # Estimated, it may be more than 1.
    kept = f"{persistence[0]:.3f}" if persistence[0] < 1 else "all"
    return (
        f"some variables change very slowly: {', '.join(names[:_SHOWN])}{more} ({names[0]} keeps {kept} of its value from row"
        f" to row, so {it['n']:.0f} rows are worth about {rows[0]:.0f} independent ones). Edge probabilities"
        f" near 0 and 1 are too confident here. Rank edges by strength; try more lags ({it.cure}) if effects are slow."
    )


@says("rests-on-units")
def _rests_on_units(it: Said) -> str:
    loses = "loses its" if it["n_open"] == 1 else "lose their"
    return (
        f"directions depend on the units of the variables: in other units {counted(it['n_changed'], 'weight')} would change"
        f" and {counted(it['n_open'], 'other edge')} {loses} direction (varsortability {it['varsortability']:.2f}). This is"
        f" fine if the noise of all variables has one size in these units. If units are arbitrary, use {it.cure}."
    )


@says("noise-variances")
def _noise_variances(it: Said) -> str:
    which = f"{it['kind']} noise variances"
    if it.get("bartlett") is None:
        return f"{which}, as asked"
    scores = ""
    if it.get("ratio") is not None:
        scores = (
            f"BIC {it['equal']:.1f} with equal, {it['free']:.1f} with free ones; the fitted free variances differ by a factor"
            f" of {it['ratio']:.3g}; "
        )
    statistic = f"Bartlett's statistic of the equal-variance network is {it['bartlett']:.1f}, its price {it['price']:.1f}"
    return f"{which}: {scores}{statistic}"


@says("other-units")
def _other_units(it: Said) -> str:
    factor = it["factor"]
    how = f"{factor:.3g} times as much" if factor > 1 else f"only {factor:.2g} times as much"
    return f"{it.names} varies {how} here as at the other sites: is it in other units?"


@says("mixed-columns")
def _mixed_columns(it: Said) -> str:
    pairs = ", ".join(f"what is called {a} behaves like {b}" for a, b in it["behaves_like"])
    return f"columns may be swapped at this site: {pairs} at the other sites."


@says("slower-rows")
def _slower_rows(it: Said) -> str:
    return (
        "rows of this site seem to be farther apart in time than those of the others, because they depend less on the row "
        f"before. Name the column of times ({it.option('time')}) and the time step of the others "
        f"({it.option('freq')}). Then the rows can be used."
    )


@says("other-relations")
def _other_relations(it: Said) -> str:
    return "the variables of this site are related to each other differently than at the other sites."
