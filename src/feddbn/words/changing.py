"""What fits of networks that change say."""

from __future__ import annotations

from feddbn.words import Said, says, says_as


@says("changes")
def _changes(it: Said) -> str:
    what = (
        f"{it['n_edges']} edges change between segments"
        if it["n_edges"]
        else "no edge changes, only levels or noise variances"
    )
    tables = " (`changes_`, `variance_changes_`)" if it.in_python else ""
    others = "; `dbns_by_segment_` has the others" if it.in_python else ""
    return f"the network changes at {_places(it)}; {what}{tables}. Forecasts and effects use the last segment{others}."


def _places(it: Said) -> str:
    names, many = ", ".join(it["places"]), "s" if len(it["places"]) > 1 else ""
    if it["by"] == "rows":
        return f"row{many} {names} of the recordings, give or take {it['rows']} rows"
    if it["by"] == "calendar":
        return f"{names}, give or take a {it['period']}"
    return f"block{many} {names} of column {it['column']!r}"


says_as(
    {
        "few-rows-for-changes": (
            "there are too few rows for two segments, so one network was learned for all. Use longer recordings "
            "or more sites."
        ),
        "long-last-block": (
            "the last block has {n:.0f} rows, the others about {usual:.0f}, because recordings differ in length or "
            "have gaps. Changes late in the longest recordings cannot be seen."
        ),
    }
)


@says("which-segment")
def _which_segment(it: Said) -> str:
    if it["n"] < 2:
        return "Nothing changes: one network describes all rows."
    return f"Forecasts, effects and graph are those of the last segment, from {it['last']} on."


@says("edge-gone", "edge-new", "edge-changed", "level-changed", "noise-changed")
def _alarm(it: Said) -> str:
    what, _, how = it.finding.code.partition("-")
    before, after = (f"{it[name]:.3g}" for name in ("before", "after"))
    if what == "edge":
        lag = f" at lag {it['lag']}" if it["lag"] else ""
        start = f"the edge {it['source']} -> {it['target']}{lag} {_HOW[how]}"
    else:
        start = f"the {_PART[what]} of {it['target']} has changed"
    return f"{start} since look {it['since']}, from {before} to {after} (e-value {it['evidence']:.3g})."


_HOW = {"gone": "is gone", "new": "is new", "changed": "has another weight"}
_PART = {"level": "level", "noise": "noise deviation"}


@says("not-monitored")
def _not_monitored(it: Said) -> str:
    return f"the new rows were not compared with the earlier ones: {it['why']}"
