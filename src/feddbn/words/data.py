"""What data-quality checks say: of tables before a fit, of how they were read, and of sums over sites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from feddbn.words import Card, Said, names_of, reworded, says, times

_LEVELS = {
    "binary": "has two values, like yes/no",
    "count": "looks like a count: whole numbers from 0 on with a small mean",
    "ordinal": "looks like codes, perhaps in an order",
    "categorical": "looks like codes or names, perhaps without an order",
    "positive": "is positive and skewed, and is less so on a log scale",
}


def told(code: str) -> Callable[[Callable[[Said], tuple[str, str]]], None]:
    """Register what was found and what cures it; where it was found stands before it."""

    def register(words: Callable[[Said], tuple[str, str]]) -> None:
        def sentence(it: Said) -> Card:
            found, cure = words(it)
            more = f" and {it['n_sites'] - 1} more" if it.get("n_sites", 1) > 1 else ""
            where = f"{it.finding.where}{more}:" if it.finding.where else ""
            return Card(where, "", found, f"Cure: {cure}." if cure else "")

        says(code)(sentence)

    return register


def _columns(it: Said) -> str:
    return names_of(it.finding.about)


def _one(it: Said) -> str:
    return repr(it.finding.about[0])


def _s(it: Said) -> str:
    """The ending of a verb whose subject is the columns."""
    return "s" if len(it.finding.about) == 1 else ""


def _cure(it: Said) -> str:
    """The settings one after the other, to be copied."""
    return (" " if it.audience == "cli" else ", ").join(
        it.setting(name, value) for name, value in it.finding.cure.items()
    )


def _leave_out(it: Said) -> str:
    return f"choose the other columns with {it.option('variables')}"


@told("glued")
def _glued(it: Said) -> tuple[str, str]:
    if it["how"] == "blocks":
        return (
            f"{_one(it)} has {it['n_values']} values, each in one block of rows: it looks like the name of recordings that "
            "are glued together.",
            _cure(it),
        )
    if it["how"] == "counter":
        return (
            f"{_one(it)} counts up and starts again {times(it['n_starts'])}: it looks like a time, and recordings may be "
            "glued together there.",
            f"{_cure(it)} with {it.option('series')} the column that names the recordings",
        )
    *columns, counter = it.finding.about
    return (
        f"{counter!r} starts again {times(it['n_starts'])}, where {' and '.join(map(repr, columns))} "
        f"change{'s' if len(columns) == 1 else ''}: {it['n_starts'] + 1} recordings seem to be glued together, and a lag "
        "would reach from one into the next.",
        _cure(it),
    )


@told("undeclared-time")
def _undeclared_time(it: Said) -> tuple[str, str]:
    written = "dates as 2024-01-31T12:00, others need to be told apart by day or month first"
    if it["how"] == "dates":
        return f"{_one(it)} holds dates, and would be a variable.", f"{_cure(it)}; write {written}"
    declare = _cure(it) + (f" ({written})" if it.get("is_date") else "")
    if it["how"] == "rising":
        return (
            f"{_one(it)} never falls: it looks like a time with repeated entries, a counter or a running total.",
            f"keep one row per time and {declare}, or take differences of a running total",
        )
    return (
        f"{_one(it)} rises from row to row like a time or a row number, and would be a variable.",
        f"{declare}, or {_leave_out(it)}",
    )


@told("shuffled-time")
def _shuffled_time(it: Said) -> tuple[str, str]:
    return (
        f"{_one(it)} looks like a time, but the rows are not in its order, so a lag would mean nothing.",
        _cure(it),
    )


@told("may-be-time")
def _may_be_time(it: Said) -> tuple[str, str]:
    return f"{_one(it)} may be the time of the rows.", _cure(it)


@told("blocks")
def _blocks(it: Said) -> tuple[str, str]:
    return (
        f"{_one(it)} has {it['n_values']} values, each in one block of rows: the name of a recording, or an input that is "
        "switched.",
        f"{_cure(it)} if it names recordings",
    )


@told("undeclared-id")
def _undeclared_id(it: Said) -> tuple[str, str]:
    return (
        f"{_one(it)} is constant in each recording and differs between them: it looks like their name.",
        _leave_out(it),
    )


@told("ignored-index")
def _ignored_index(it: Said) -> tuple[str, str]:
    if it["how"] == "levels":
        levels = ", ".join(map(repr, it.finding.about))
        return f"the index has the levels {levels}, which are ignored: recordings may be glued.", _cure(it)
    if it["how"] == "holes":
        name = "" if it["is_named"] else "name the index, then "
        return (
            "the index has holes, which are ignored: rows on both sides of a hole would be neighbours in time.",
            f"{name}{_cure(it)}, or reset_index(drop=True) if nothing is missing there",
        )
    if it["how"] == "disorder":
        return "the index is not in order and is ignored: the rows may be shuffled.", "sort_index()"
    return (
        f"the index starts again {times(it['n'])} and is ignored: recordings may be glued together.",
        f"give the recordings as a list of frames, or name them with {it.option('series')}",
    )


@told("kinds")
def _kinds(it: Said) -> tuple[str, str]:
    found = [f"{name!r} {_LEVELS[_kind_of(said)]}" for name, said in it["kinds"].items()]
    return f"{'; '.join(found)}.", _declared(it) + "; other methods treat numbers as lines and refuse text"


def _kind_of(said: Any) -> str:
    return (
        "categorical" if isinstance(said, list) else said if isinstance(said, str) else str(next(iter(said)))
    )


def _declared(it: Said) -> str:
    kinds = it.setting("kinds", it["kinds"])
    method = {"python": f"MixedDBN({kinds})", "cli": f"--method mixed {kinds}"}
    return "if so, use " + method.get(it.audience, f"{kinds} and a study of method mixed")


@told("missing")
def _missing(it: Said) -> tuple[str, str]:
    first, *others = sorted(it["shares"], key=lambda name: -it["shares"][name])
    text = f"{100 * it['shares'][first]:.2g} % of {first!r} is missing"
    if others:
        text += f", and up to {100 * it['shares'][others[0]]:.2g} % of {len(others)} other columns"
    return f"{text}.", f"fill short gaps, or {_leave_out(it)}"


@told("text-cells")
def _text(it: Said) -> tuple[str, str]:
    n = it["n_text"]
    if it["n_numbers"] >= n:
        return (
            f"{_one(it)} holds numbers, but {n} of its cells {'is' if n == 1 else 'are'} text.",
            "leave such cells empty, or write the number",
        )
    name = it.finding.about[0]
    roles = f"{it.setting('site', name)} or {it.setting('series', name)}"
    return (
        f"{_one(it)} holds text.",
        f"{roles} if it names them, {it.option('kinds')} if it holds levels, otherwise {_leave_out(it)}",
    )


@told("sentinel")
def _sentinel(it: Said) -> tuple[str, str]:
    what = "one value" if it["value"] is None else f"{it['value']:g}"
    return (
        f"{_columns(it)}: {what} stands there {times(it['n'])}, far outside all others, like a code for missing.",
        "leave such cells empty",
    )


@told("constant")
def _constant(it: Said) -> tuple[str, str]:
    if it["everywhere"]:
        return f"{_columns(it)} never change{_s(it)} within any site.", _leave_out(it)
    return (
        f"{_columns(it)} never change{_s(it)} here: no edge can be learned from that.",
        f"leave the site out, or {_leave_out(it)}",
    )


@told("outliers")
def _outliers(it: Said) -> tuple[str, str]:
    n = it["n"]
    return (
        f"{_columns(it)}: {n} cell{'' if n == 1 else 's'} far outside all others (outlier{'' if n == 1 else 's'}).",
        f"leave wrong cells empty; fits leave out those that have no effect on anything ({_cure(it)})",
    )


@told("stuck")
def _stuck(it: Said) -> tuple[str, str]:
    return (
        f"{_columns(it)}: {it['n_rows']} or more neighbouring rows have exactly one value, like a stuck sensor.",
        "leave such cells empty",
    )


@told("few-values")
def _few_values(it: Said) -> tuple[str, str]:
    have = "has" if len(it.finding.about) == 1 else "have"
    return (
        f"{_columns(it)} {have} few values (yes/no, codes, counts).",
        f"read edges to them as linear trends; name what is only set from outside with {it.option('prepare.exogenous')}, "
        f"and leave codes without an order out with {it.option('variables')}",
    )


@told("held")
def _held(it: Said) -> tuple[str, str]:
    keep = "keeps its value" if len(it.finding.about) == 1 else "keep their values"
    return (
        f"{_columns(it)} {keep} for about {it['n_rows']} rows at a time while others change: a cause that is read late looks "
        "like an effect, and arrows may be turned round.",
        "read edges between these and other columns without their direction, or measure all at the same time steps",
    )


@told("trend")
def _trend(it: Said) -> tuple[str, str]:
    auto = it.setting("prepare.detrend", "auto")
    return (
        f"{_columns(it)} drift{_s(it)} along a line, which ties all drifting columns.",
        f"nothing: fits take it off where it shows ({auto}); {_cure(it)} takes it off in any case",
    )


@told("cycle")
def _cycle(it: Said) -> tuple[str, str]:
    auto = it.setting("prepare.period", "auto")
    return (
        f"{_columns(it)}: a cycle of about {it['period']:g} rows, which ties all columns that have it.",
        f"nothing: fits take it off where it shows ({auto}); {_cure(it)} takes it off in any case",
    )


@told("wandering")
def _wandering(it: Said) -> tuple[str, str]:
    return (
        f"{_columns(it)}: neighbouring rows are almost equal; levels that wander like this look related by chance.",
        "take differences, or keep fewer rows per time",
    )


@told("dependent")
def _dependent(it: Said) -> tuple[str, str]:
    own, *parents = it.finding.about
    cure = f"leave {own!r} out with {it.option('variables')}"
    if it["almost"]:
        what = f"almost determined by {names_of(parents)}: which of them has an effect cannot be told"
        return f"{own!r} is {what}.", cure
    return f"{own!r} is a sum of {names_of(parents)}: no method can tell their effects apart.", cure


@told("copy")
def _copy(it: Said) -> tuple[str, str]:
    own, other = it.finding.about
    return (
        f"{own!r} is a copy of {other!r}, up to units: no method can tell their effects apart.",
        f"leave {own!r} out with {it.option('variables')}",
    )


@told("swapped")
def _swapped(it: Said) -> tuple[str, str]:
    a, b = it.finding.about
    return (
        f"{a!r} and {b!r} seem to be exchanged here: exchanged back, they agree with the other sites.",
        "exchange the names of the columns",
    )


@told("baseline")
def _baseline(it: Said) -> tuple[str, str]:
    return (
        f"{_columns(it)}: the level is far from that of the other sites (other units, or another baseline).",
        f"use one unit everywhere; a baseline of its own is taken off by the fit ({_cure(it)})",
    )


@told("units")
def _units(it: Said) -> tuple[str, str]:
    more = "larger" if it["is_larger"] else "smaller"
    exclude, gains = (it.setting(name, value) for name, value in it.finding.cure.items())
    return (
        f"{_columns(it)}: the spread is up to {it['factor']:.2g} times {more} than at the other sites; the units may differ.",
        f"use one unit everywhere; a fit leaves such a site out ({exclude}), or brings all sites to one scale if many differ "
        f"({gains})",
    )


@told("baselines")
def _baselines(it: Said) -> tuple[str, str]:
    return (
        f"{_columns(it)}: recordings differ in their means by more than chance, which looks like effects.",
        f"nothing: fits centre each recording where this shows ({_cure(it)}), and forecasts go on from its own level",
    )


@told("repeated")
def _repeated(it: Said) -> tuple[str, str]:
    same = f"recording {it['same_recording']!r} of site {it['same_site']!r}"
    return f"it is the same as {same}: its rows would count twice.", "leave one of them out"


@told("header")
def _header(it: Said) -> tuple[str, str]:
    return (
        "all column names are numbers: the file seems to have no header, or variables in rows instead of columns.",
        "write one column per variable, with its name in the first line",
    )


@told("usable-rows")
def _usable_rows(it: Said) -> tuple[str, str]:
    before = "the row" if it["n_lags"] == 1 else f"the {it['n_lags']} rows"
    cells = f"all its cells, those of {before}" if it["whole_rows"] else before
    return (
        f"{it['usable']} of {it['rows']} rows can be used with {it['n_lags']} lag{'' if it['n_lags'] == 1 else 's'}: a row "
        f"needs {cells} before it, and no gap in time between them.",
        f"fill short gaps, choose columns with few gaps by {it.option('variables')}, or give the right step with "
        f"{it.option('freq')}",
    )


@told("refused")
def _refused(it: Said) -> tuple[str, str]:
    # The sentences of the reader of data end with the cure.
    found, _, cure = reworded(it["text"], it.audience).partition("; ")
    return f"{found.rstrip('.')}.", cure.rstrip(".")


@told("uneven-times")
def _uneven_times(it: Said) -> tuple[str, str]:
    return (
        f"{max(it['share'], 0.001):.1%} of the times in {_one(it)} are off the step of {it['step']}, by at most "
        f"{max(it['most'], 0.001):.1%} of it, and were taken as even.",
        f"{it.setting('jitter', 0)} refuses such times, {it.setting('jitter', 0.2)} allows a fifth of the step",
    )


@told("all-rows")
def _all_rows(it: Said) -> tuple[str, str]:
    what = f"{it['rows']} rows in {it['recordings']} recordings of {it['sites']} sites"
    most = f"{what}: at most {it['usable']} can be used with {it['n_lags']} lag{'' if it['n_lags'] == 1 else 's'}"
    cure = "ask more sites, or use fewer variables or lags"
    if it.finding.level == "error":
        return f"{most}, and a network has {it['columns']} columns.", cure
    if it.finding.level == "warning":
        return f"{most}, fewer than {it['fewest']:g} for each column.", cure
    return f"{what}.", ""


@told("empty-share")
def _empty_share(it: Said) -> tuple[str, str]:
    share = f"{it['share']:.1%}" if it["share"] >= 0.001 else "less than 0.1%"
    return f"{share} of the cells are empty.", f"{_cure(it)}, which is usual, uses the cells that are there"


@told("still")
def _still(it: Said) -> tuple[str, str]:
    return (
        f"in {_columns(it)} most cells equal their neighbours in time, as those of a stuck sensor do.",
        f"look for it at each site with `feddbn site check`, or leave it out with {it.option('variables')}",
    )


@told("outliers-somewhere")
def _outliers_somewhere(it: Said) -> tuple[str, str]:
    auto, remove = (it.setting("prepare.spikes", value) for value in ("auto", "remove"))
    return (
        f"in {_columns(it)} cells lie far from their neighbours in time (outliers): errors of measurement, codes, or bursts.",
        f"{auto}, which is usual, finds out whether they are errors; {remove} leaves them out",
    )


@told("cycles")
def _cycles(it: Said) -> tuple[str, str]:
    return (
        f"cycles of {', '.join(f'{period:.4g}' for period in it['periods'])} rows stand out.",
        f"{_cure(it)}, which is usual, takes them off where that is better",
    )


@told("kinds-somewhere")
def _kinds_somewhere(it: Said) -> tuple[str, str]:
    said = []
    for kind, what in (("binary", "0 and 1"), ("count", "whole numbers from 0")):
        names = [name for name, one in it["kinds"].items() if one == kind]
        said += [f"{names_of(names)} with {what} only"] if names else []
    return f"{' and '.join(said)}.", f"{_declared(it)}; other methods take them as lines"


@told("scales")
def _scales(it: Said) -> tuple[str, str]:
    return (
        f"the {it['sites']} sites measure on different scales, or in different units.",
        f"compare units; {_cure(it)}, which is usual, brings sites to one scale where that is better",
    )


@told("not-compared")
def _not_compared(it: Said) -> tuple[str, str]:
    allow = f"{_cure(it)} has sites compare themselves, if their owners allow the task 'agreement'; "
    return (
        "whether one site has other units, exchanged columns or other relations than the rest was not looked at.",
        (allow if it.finding.cure else "")
        + f"sites are compared where there are {it['fewest']} or more of them with enough rows",
    )


@told("disagreement")
def _disagreement(it: Said) -> tuple[str, str]:
    n = it["n"]
    who = f"one of {it['of']} sites does" if n == 1 else f"{n} of {it['of']} sites do"
    return (
        f"{who} not fit the others; the owner is told why.",
        f"{_cure(it)} leaves it out" if it.finding.cure else "PFDBNL learns a network for each site",
    )
