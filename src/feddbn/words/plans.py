"""What the plan of a study tells its lead: who agrees, what the data allow, what leaves and what it costs."""

from __future__ import annotations

from feddbn.words import Card, Said, counted, says
from feddbn.words.studies import listed

_SAID = {
    "plan-not-asked": "the sites were not asked: {why}",
    "plan-agreed": "all {n} sites agree to a check of their data: {names}.",
    "plan-awaited": "no answer yet from {names}; run `feddbn study plan` again later.",
    "plan-stopped": "the sites could not all be asked: {sentence}",
    "plan-refused": "{names} refused: {reason}",
    "plan-units-refused": "{names} refused: {reason}",
    "plan-units-said/known": "all owners have stated the unit of every variable, and the units agree.",
    "plan-units-said/open": "the study gives a unit for every variable; no owner has been asked yet.",
    "plan-earlier-none": "no earlier run sent with this kit prevents a study of these sites.",
    "plan-leaves": "each of {n_sites} sites sends {usual:,} numbers if its data are clean, at most {most:,}; {how}.",
    "plan-costs": "{sentence}.",
    "plan-costs-none": "the study has no epsilon and uses no privacy budget.",
    "plan-tasks": (
        "the study asks for {names}. A site answers this only if `tasks` in its policy lists it. Ask the owners; they can "
        "check it with `feddbn site check --study`."
    ),
}
_LEVELS = {
    "auto": 'each recording gets its own mean if the data favour that (prepare.center = "auto").',
    "recording": "the mean of each recording is subtracted.",
    "none": 'all recordings share one mean. If patients or machines differ in their means, use prepare.center = "recording".',
}


@says(*dict.fromkeys(code.partition("/")[0] for code in _SAID))
def _plan(it: Said) -> Card:
    code = it.finding.code
    if code == "plan-units-said":
        code += "/known" if it["known"] else "/open"
    how = "masks hide everything except the sum over sites" if it.get("masks") else "the server can read them"
    # A site's sentence may begin with who it is.
    reason = str(it.get("sentence", "")).rpartition(" refused: ")[2]
    names = listed(it.finding.about, 8)
    return Card("", "", _SAID[code].format(**it.finding.values, names=names, how=how, reason=reason))


_SEEN = {
    "cycles": "no cycle was found.",
    "gaps": "no cell is empty.",
    "kinds": "no variable has only 0 and 1, or only whole numbers.",
    "scales": "the scales of the sites do not differ more than chance allows.",
}


@says("plan-nothing-seen")
def _nothing_seen(it: Said) -> Card:
    return Card("", "", _SEEN[it["topic"]])


@says("plan-waits")
def _waits(it: Said) -> Card:
    if it["why"] == "silent":
        return Card("", "", f"{it.names} did not answer.")
    return Card("", "", f"the check waits for the approval of the owners of {it.names}.")


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


@says("plan-earlier")
def _earlier(it: Said) -> Card:
    runs = "; ".join(f"{run} had {listed(it['sites'][run], 6)}" for run in it.finding.about[:2])
    sure = "will refuse" if it.finding.level == "error" else "will refuse, if that run has made a sum,"
    return Card(
        "",
        "",
        f"sites {sure} sums over these sites, unless many sites have new data since then. Together with earlier runs, such "
        f"sums could reveal single sites ({runs}).",
        f"Ask the same sites, add at least {it['fewest']} at once, or use noise (epsilon) within the budgets of the sites.",
    )


@says("plan-levels")
def _levels(it: Said) -> Card:
    return Card("", "", _LEVELS.get(it["center"], _LEVELS["none"]))


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
