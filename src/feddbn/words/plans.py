"""What the plan of a study tells its lead: what owners have to say and to allow, what leaves, what the data allow."""

from __future__ import annotations

from feddbn.words import Card, Said, counted, says, says_as
from feddbn.words.studies import listed

says_as(
    {
        "plan-costs": "{sentence}.",
        "plan-one-mean": (
            "",
            "",
            "all recordings share one mean.",
            'If patients or machines differ in their means, use prepare.center = "recording".',
        ),
    }
)


@says("plan-tasks")
def _tasks(it: Said) -> Card:
    said = f"the study asks for {listed(it.finding.about, 8)}. A site answers this only if `tasks` in its policy lists it."
    return Card("", "", said, "Ask the owners; they can check it with `feddbn site check --study`.")


@says("plan-leaves")
def _leaves(it: Said) -> Card:
    how = "masks hide everything except the sum over sites" if it["masks"] else "the server can read them"
    numbers = f"{it['usual']:,} numbers if its data are clean, at most {it['most']:,}"
    return Card("", "", f"each of {it['n_sites']} sites sends {numbers}; {how}.")


@says("plan-units-open")
def _units_open(it: Said) -> Card:
    names = listed(it.finding.about, 6)
    compared = (
        f"with only {it['n_sites']} sites, their scales cannot be compared"
        if it["n_sites"] < it["fewest"]
        else "a difference in units may look like a difference between patients"
    )
    return Card(
        "",
        "",
        f"the study gives no unit for {names}, so no owner has to state one; {compared}.",
        "Add [units].",
    )


@says("plan-rows")
def _rows(it: Said) -> Card:
    what = f"{it['rows']:,} rows in {counted(it['recordings'], 'recording')} at {it['sites']} sites"
    if it["effect"] is None:
        return Card(
            "",
            "",
            f"{what}: too few for {it['columns']} columns. This study cannot tell.",
            "Use fewer variables or lags.",
        )
    size = f"worth {it['n_effective']:,} complete ones"
    found = f"Effects of {it['effect']:.2f} sd or more are found in at least 4 of 5 studies"
    fewer = "" if it.finding.level == "note" else "Use fewer variables or lags, or more sites."
    if it["threshold"] is not None:
        fewer = f"The method leaves out effects below its threshold of {it['threshold']:g}. {fewer}".rstrip()
    return Card("", "", f"{what}, {size}. {found}.", fewer)
