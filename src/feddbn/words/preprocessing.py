"""What fits say about what is done to the rows first, and checks before them: so in the present."""

from __future__ import annotations

from feddbn.words import Said, counted, says

_MOST_SHOWN = 6
_LEAST_SHARE = 0.01


_CELLS = {
    "cells-empty_values": "cells with the value {} were taken as empty.",
    "cells-made_up": "cells that somebody made up were taken as empty: {}.",
}


@says(*_CELLS)
def _cells(it: Said) -> str:
    return _CELLS[it.finding.code].format(it["value"])


_MADE_UP = {
    "lines": "{} lies on straight lines between neighbours in {:.0%} of the cells: interpolated?",
    "repeats": "{} repeats the value before in {:.0%} of the cells: carried forward, or a sensor that is stuck?",
    "smooth": "changes of {} go on (correlation {:.2f}): smoothed, or read more often than it moves?",
}


@says("made-up-values")
def _made_up_values(it: Said) -> str:
    told = zip(it["kinds"].items(), it["shares"], strict=True)
    each = " ".join(_MADE_UP[kind].format(name, share) for (name, kind), share in list(told)[:_MOST_SHOWN])
    more = f" And {len(it['shares']) - _MOST_SHOWN} more." if len(it["shares"]) > _MOST_SHOWN else ""
    cure = f" {it.cure} takes such cells as empty." if it.finding.cure else ""
    return f"values that were made up turn edges over. {each}{more}{cure}"


@says("rows-treated")
def _rows_treated(it: Said) -> str:
    return f"rows were treated first: {it.parts}. {it.where_single} how to decide otherwise."


@says("own-courses", "own-means")
def _own_courses(it: Said) -> str:
    # Files of version 0.2 say "own-means" where recordings only have levels.
    degree, periods, shares = it.get("degree"), it.get("periods"), it.get("shares") or {}
    parts = ["levels"]
    if degree:
        parts.append("trends" if degree == 1 else f"slow changes (a polynomial of degree {degree})")
    if periods:
        parts.append(f"cycles of {', '.join(f'{period:.4g}' for period in periods)} rows")
    most = sorted(((share, name) for name, share in shares.items() if share >= _LEAST_SHARE), reverse=True)
    shown = ", ".join(f"{100 * share:.0f} % of the variance of {name}" for share, name in most[:_MOST_SHOWN])
    if len(most) > _MOST_SHOWN:
        shown += f" and less of {len(most) - _MOST_SHOWN} others"
    return (
        f"recordings have {' and '.join(parts)} of their own (evidence {it['evidence']:.0f}), which are taken off"
        f"{': ' + shown if shown else ''}; {_levels(it, bool(degree or periods))} {it.cure} "
        f"{'keep them' if degree or periods else 'keeps one mean for all'}."
    )


def _levels(it: Said, has_course: bool) -> str:
    has = "intercepts are those of the average recording, "
    if has_course:
        where = " (`model.courses.fit_course`)" if it.in_python else ""
        return f"{has}and `feddbn forecast` goes on along a recording's own course{where}."
    if it.in_python:
        return f"{has}`dbn_.at_level(mean)` has those of one (`feddbn forecast` uses them)."
    return f"{has}and `feddbn forecast` uses those of each."


@says("own-scales")
def _own_scales(it: Said) -> str:
    return (
        f"sites measure on different scales (BIC {it['evidence']:.0f} better with scales of their own), so each is brought "
        f"to the mean scale; weights are in that. {it.cure} keeps the values as they are."
    )


@says("cells-bounded")
def _cells_bounded(it: Said) -> str:
    cost = f"{it['share']:.1%}" if it["share"] >= 0.001 else "less than 0.1%"
    lie = f"{counted(it['n'], 'cell')} of {it.names} {'lies' if it['n'] == 1 else 'lie'}"
    far = f"{lie} more than 6 robust standard deviations from their recording's median"
    if it.get("shocks"):
        return (
            f"{far}, and "
            "other variables move with them, as with shocks: they stay, and only cells far beyond such shocks count for "
            f"less. {it.cure} uses all cells as they are."
        )
    return (
        f"{far}, so cells "
        f"count for less from 5 on, and from 10 on not at all. No few cells decide then, and it costs about {cost} of the "
        f"rows' worth. {it.cure} uses all cells as they are."
    )


@says("empty-cells")
def _empty_cells(it: Said) -> str:
    size = f"{it['share']:.1%}" if it["share"] >= 0.001 else "less than 0.1%"
    return (
        f"{size} of the cells are empty; all rows are used for what they hold, and are worth {it['n']:.0f} complete ones. "
        f"{it.cure} uses complete rows only."
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
        f"hardly any row has cells of both: {'; '.join(shown)}{more}. Edges between these are guessed from the other "
        "variables, however certain they look. Measure both together at some site, bring all columns to one rate, leave "
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
            f"{what} and {stays} out of the sums; its owner is told why. Its own network is learned at home, from its rows "
            f"alone; {wish('exclude')} learns none for it."
        )
    if it["left_out"]:
        return (
            f"{what} and {stays} out of the sums; its owner is told why. {wish('warn')} keeps it in, {wish('personal')} "
            f"learns a network of its own for it, {it.method('PFDBNL', 'pfdbnl')} one for each site."
        )
    if n > of / 3:
        return (
            f"{what}, and all are in the sums: one network for all is wrong for some. Units or columns may be mixed up; "
            f"owners are told what differs. If all is right, use {it.method('PFDBNL', 'pfdbnl')}, a network for each."
        )
    return f"{what}; its owner is told why. {wish('exclude')} leaves it out (not of PFDBNL, which has a network for each)."


@says("two-rates")
def _two_rates(it: Said) -> str:
    n, of = it["n"], it["n_sites"]
    what = f"rows of {n} of {of} sites" if n > 1 else f"rows of one of {of} sites"
    done = (
        "stay out of the sums" if it["left_out"] else "stay in the sums, so that a lag means different things"
    )
    return (
        f"{what} seem to be farther apart in time than those of the others and {done}; owners are told. With times "
        f"({it.option('time')}) and one step for all ({it.option('freq')}) such rows are used for what they tell."
    )


@says("not-looked-at-under-noise")
def _not_looked_at(it: Said) -> str:
    return (
        "whether recordings differ in their means, trends or scales, and whether variables are yes/no or counts, was not "
        f"looked at, since these sites add noise to one matrix only; if means may differ, use {it.cure}."
    )


@says("no-intercepts")
def _no_intercepts(it: Said) -> str:
    has = "`dbn_.at_level(mean)` has those of one recording (" if it.in_python else "("
    return (
        "recordings were centred on their own means and nothing was asked about these, so intercepts are 0; "
        f"{has}`feddbn forecast` uses those of each)."
    )


_NO_CURE = {
    "empty": "it would lose all rows with empty cells",
    "courses": "it would take what recordings have of their own for effects",
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
    line = "it is treated as a line" if len(told) == 1 else "they are treated as lines"
    but = [_NO_CURE[why] for why in it.get("but") or ()]
    if but:
        return f"{shown}; {line}. {it.method('MixedDBN', 'mixed')} is no cure here: {', and '.join(but)}."
    if it.in_python:
        cure = f"MixedDBN(kinds={kinds!r})"
    elif it.audience == "cli":
        cure = " ".join(["--method mixed", *(f"--kinds {name}={kind}" for name, kind in kinds.items())])
    else:
        cure = 'method = "mixed" with these kinds'
    return f"{shown}; {line}. {cure} cures it."


@says("sites-compared")
def _sites_compared(it: Said) -> str:
    return f"{it.parts}. {it.where_single} what to do about it."
