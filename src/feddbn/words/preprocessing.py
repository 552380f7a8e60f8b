"""What fits say about what is done to the rows first, and checks before them: so in the present."""

from __future__ import annotations

from feddbn.words import Said, counted, percent, says, says_as

_MOST_SHOWN = 6
_LEAST_SHARE = 0.01


_MADE_UP = {
    "lines": "{} of the cells of {} lie on straight lines between their neighbours: interpolated?",
    "repeats": "{} of the cells of {} repeat the value before: carried forward, or a stuck sensor?",
    "smooth": "changes of {1} continue in the next row (correlation {2:.2f}): smoothed, or sampled too often?",
}


@says("made-up-values")
def _made_up_values(it: Said) -> str:
    told = zip(it["kinds"].items(), it["shares"], strict=True)
    each = " ".join(
        _MADE_UP[kind].format(percent(share), name, share) for (name, kind), share in list(told)[:_MOST_SHOWN]
    )
    more = f" And {len(it['shares']) - _MOST_SHOWN} more." if len(it["shares"]) > _MOST_SHOWN else ""
    cure = f" {it.cure} treats such cells as empty." if it.finding.cure else ""
    return f"some values seem to be filled in, and filled-in values can reverse edges. {each}{more}{cure}"


says_as(
    {
        "cells-empty_values": "cells with the value {value} were treated as empty.",
        "cells-made_up": "cells that were filled in earlier were treated as empty: {value}.",
        "rows-treated": "the rows were prepared first: {it.parts}. {it.where_single} how to change this.",
        "own-scales": (
            "sites measure on different scales (BIC {evidence:.0f} better with one scale per site), so each is rescaled "
            "to the mean scale. Weights are on that scale. {it.cure} keeps the values unchanged."
        ),
        "not-looked-at-under-noise": (
            "not checked: whether recordings differ in means, trends or scales, and whether variables are yes/no or counts. "
            "Under this differential privacy only one matrix is released. If means may differ, use {it.cure}."
        ),
        "sites-compared": "{it.parts}. {it.where_single} what to do about it.",
    }
)


@says("own-courses")
def _own_courses(it: Said) -> str:
    degree, periods, shares = it.get("degree"), it.get("periods"), it.get("shares") or {}
    parts = ["levels"]
    if degree:
        parts.append("trends" if degree == 1 else f"slow changes (a polynomial of degree {degree})")
    if periods:
        parts.append(f"cycles of {', '.join(f'{period:.4g}' for period in periods)} rows")
    most = sorted(((share, name) for name, share in shares.items() if share >= _LEAST_SHARE), reverse=True)
    shown = ", ".join(f"{percent(share)} of the variance of {name}" for share, name in most[:_MOST_SHOWN])
    if len(most) > _MOST_SHOWN:
        shown += f" and less of {counted(len(most) - _MOST_SHOWN, 'other')}"
    return (
        f"each recording has its own {' and '.join(parts)} (BIC {it['evidence']:.0f} better), which are subtracted"
        f"{': ' + shown if shown else ''}. {_levels(it, bool(degree or periods))} {it.cure} "
        f"{'keep them' if degree or periods else 'uses one mean for all'}."
    )


def _levels(it: Said, has_course: bool) -> str:
    has = "Intercepts are those of the average recording. "
    if has_course:
        where = " (`model.trends.fit_trend`)" if it.in_python else ""
        return f"{has}`feddbn forecast` continues each recording's own course{where}."
    if it.in_python:
        return f"{has}`dbn_.at_level(mean)` gives those of one recording, as `feddbn forecast` does."
    return f"{has}`feddbn forecast` uses those of the recording."


@says("cells-bounded")
def _cells_bounded(it: Said) -> str:
    lie = f"{counted(it['n'], 'cell')} of {it.names} {'lies' if it['n'] == 1 else 'lie'}"
    far = f"{lie} more than 6 robust standard deviations from their recording's median"
    if it.get("shocks"):
        return (
            f"{far}, and "
            "other variables move with them. They look like real shocks and are kept; only cells far beyond them get less "
            f"weight. {it.cure} uses all cells unchanged."
        )
    return (
        f"{far}. Outliers get less weight from 5 on and none from 10 on. So no single cell decides the result. This costs "
        f"about {percent(it['share'])} of the information. {it.cure} uses all cells unchanged."
    )


@says("empty-cells")
def _empty_cells(it: Said) -> str:
    return (
        f"{percent(it['share'])} of the cells are empty. All rows are used; together they are worth {it['n']:.0f} complete "
        f"rows. {it.cure} uses complete rows only."
    )


@says("pairs-unseen")
def _pairs_unseen(it: Said) -> str:
    pairs = it["pairs"]
    shown = [
        f"{f'{first} and {second}' if first != second else f'{first} and its own past'} (lag {', '.join(map(str, lags))})"
        for first, second, lags in pairs[:_MOST_SHOWN]
    ]
    more = f"; and {len(pairs) - _MOST_SHOWN} more pairs" if len(pairs) > _MOST_SHOWN else ""
    return (
        f"these are hardly ever measured together: {'; '.join(shown)}{more}. Edges between them are guesses from the other "
        "variables, however certain they look. Measure both at some site, use one sampling rate for all columns, leave "
        f"one of them out with {it.option('variables')}, or rule the edges out with forbidden_edges."
    )


@says("sites-disagree")
def _sites_disagree(it: Said) -> str:
    n, of = it["n"], it["n_sites"]
    what = (
        f"{n} of {of} sites do not fit the others" if n > 1 else f"one of {of} sites does not fit the others"
    )

    stays = "stay" if n > 1 else "stays"

    def wish(value: str) -> str:
        return it.setting("prepare.on_disagreement", value)

    if it["left_out"] and it["personal"]:
        return (
            f"{what} and {stays} out of the sums; the owner is told why. A network for it is learned at the site, from its "
            f"own rows; {wish('exclude')} learns none for it."
        )
    if it["left_out"]:
        return (
            f"{what} and {stays} out of the sums; the owner is told why. {wish('warn')} keeps it in. {wish('personal')} "
            f"learns a separate network for it. {it.method('PFDBNL', 'pfdbnl')} learns one for every site."
        )
    if not it.get("one_network", True):
        # Whoever has a network for each site is not told to learn one.
        return f"{what}; the owner is told why. Units or columns may be mixed up. Each site has a network of its own here."
    if n > of / 3:
        return (
            f"{what}, and all are in the sums: one network for all is wrong for some. Units or columns may be mixed up; "
            f"owners are told what differs. If all is right, use {it.method('PFDBNL', 'pfdbnl')}, a network for each."
        )
    return f"{what}; the owner is told why. {wish('exclude')} leaves it out."


@says("two-rates")
def _two_rates(it: Said) -> str:
    n, of = it["n"], it["n_sites"]
    what = f"rows of {n} of {of} sites" if n > 1 else f"rows of one of {of} sites"
    done = (
        "stay out of the sums" if it["left_out"] else "stay in the sums, so that a lag means different things"
    )
    return (
        f"{what} seem to be farther apart in time than those of the others and {done}; owners are told. Name the column of "
        f"times ({it.option('time')}) and one time step for all sites ({it.option('freq')}), and such rows can be used."
    )


@says("no-intercepts")
def _no_intercepts(it: Said) -> str:
    has = "`dbn_.at_level(mean)` has those of one recording (" if it.in_python else "("
    return (
        "each recording was centred on its own mean, so intercepts are 0; "
        f"{has}`feddbn forecast` uses those of the recording)."
    )


_NO_CURE = {
    "empty": "it would lose all rows with empty cells",
    "courses": "it would mistake differences between recordings for effects",
}


@says("kinds-as-lines")
def _kinds_as_lines(it: Said) -> str:
    kinds, means = it["kinds"], it["means"]
    told = [
        f"{name} looks like yes/no (only 0 and 1)"
        if kind == "binary"
        else f"{name} looks like a count (whole numbers from 0, mean {means[name]:.2g})"
        for name, kind in kinds.items()
    ]
    shown = "; ".join(told[:_MOST_SHOWN])
    shown += f"; and {len(told) - _MOST_SHOWN} more" if len(told) > _MOST_SHOWN else ""
    line = "it is treated as a number" if len(told) == 1 else "they are treated as numbers"
    but = [_NO_CURE[why] for why in it.get("but") or ()]
    if but:
        return f"{shown}; {line}. {it.method('MixedDBN', 'mixed')} does not help here: {', and '.join(but)}."
    if it.in_python:
        cure = f"MixedDBN(kinds={kinds!r})"
    elif it.audience == "cli":
        cure = " ".join(["--method mixed", *(f"--kinds {name}={kind}" for name, kind in kinds.items())])
    else:
        cure = 'method = "mixed" with these kinds'
    return f"{shown}; {line}. {cure} treats them as what they are."
