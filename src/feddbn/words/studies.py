"""What owners and leads are told about studies and runs: what is asked, what protects it, how a run and its sites stand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from feddbn.words import Card, Said, counted, full_sentence, says, says_as

_GOALS = {
    "network": "a network",
    "confidence": "how certain each edge is",
    "select": "a network whose parameters are chosen on held-out rows",
    "compare": "a network, and how well this and other methods predict held-out rows",
    "check": "a check of the data of all sites; no network is learned",
}


def listed(names: Sequence[str], most: int) -> str:
    """Return names with commas, and three dots where there are more."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def span(seconds: float) -> str:
    """Return a length of time in the two units that matter: "12 s", "3 min 10 s", "5 h 20 min" or "2 days"."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole < 600 and whole % 60 else "")
    if whole < 2 * 86400:
        return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 // 60 else "")
    return f"{whole // 86400} days"


def _local(at: str | float) -> datetime | None:
    """Return a moment in the time zone of this machine; None for what is none."""
    try:
        found = datetime.fromisoformat(at) if isinstance(at, str) else datetime.fromtimestamp(at, UTC)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def day(at: str | float) -> str:
    """Return the day of a moment as people write it, in the time zone of this machine: "17 Nov 2026"."""
    local = _local(at)
    return str(at) if local is None else f"{local.day} {local:%b %Y}"


def when(at: str | float, exactly: bool = False) -> str:
    """Return a moment as people write it, in the time zone of this machine: "today 14:05 CET", "17 Nov 2026, 14:05 CET".

    `at` is ISO text, in UTC if it names no zone, or seconds since 1970; what is no moment stays as it is. `exactly` gives the
    day and the second always.
    """
    local = _local(at)
    if local is None:
        return str(at)
    if exactly:
        return f"{day(at)}, {local:%H:%M:%S %Z}"
    is_today = local.date() == datetime.now().date()
    return f"{'today' if is_today else f'{day(at)},'} {local:%H:%M %Z}"


def _values(it: Said, name: str) -> str:
    return ", ".join(f"{key} = {value}" for key, value in it[name].items())


# The page that an owner signs.

_STATED = {
    "study-purpose": "Purpose",
    "study-legal": "Legal basis",
    "study-retention": "How long it is kept",
    "study-publication": "Will it be published?",
}
_ABOUT = {
    "study-update": (
        "New rows for",
        "run {run}; the data must not contain rows that this run has used already",
    ),
    "study-uncounted": ("Data of this site", "cannot be counted: {sentence}"),
    "study-personal": (
        "Is a sum personal data?",
        "A sum over many people does not reveal one of them; a sum over few can. Here, minimum numbers of rows or noise "
        "protect against that, but neither is perfect. The law depends on where you are: ask your data-protection officer. "
        "This page is not legal advice.",
    ),
    "study-withdrawal": (
        "Can I withdraw?",
        "Yes, until a run has ended. `feddbn site refuse {name}`, or Refuse in the console, stops it at its next message. "
        "Sums that were sent before, and the result, cannot be taken back. To leave out a patient, remove the patient's "
        "rows before the run.",
    ),
    "study-digest": (
        "What is signed",
        "exactly this study: SHA-256 {digest}",
    ),
}


@says(*_STATED)
def _stated(it: Said) -> Card:
    return Card(_STATED[it.finding.code], "", it["text"] or "not stated")


@says(*_ABOUT)
def _about(it: Said) -> Card:
    question, text = _ABOUT[it.finding.code]
    return Card(question, "", text.format(**it.finding.values))


@says("study-lead")
def _study_lead(it: Said) -> Card:
    ethics = f"ethics {it['ethics']}" if it["ethics"] else "no ethics number stated"
    return Card(
        "Who asks?", "", f"{it['lead'] or 'not named'}; contact {it['contact'] or 'not stated'}; {ethics}"
    )


@says("study-recipients")
def _study_recipients(it: Said) -> Card:
    sites = it.finding.about
    more = f" and {len(sites) - 20} more" if len(sites) > 20 else ""
    own = f"The lead, the server and {counted(len(sites), 'site')} get it: {', '.join(sites[:20])}{more}."
    return Card("Who gets the result?", "", f"{own} Others: {it['text'] or 'not stated'}.")


@says("study-rows")
def _study_rows(it: Said) -> Card:
    recordings = counted(it["recordings"], "recording")
    who = (
        f"{recordings}, one for each {it['series']!r}"
        if it["series"]
        else f"{recordings}; the data do not say how many patients these are"
    )
    used = f"{it['usable']:,} of {it['rows']:,} rows are used, with {counted(it['n_lags'], 'lag')}"
    return Card("Data of this site", "", f"{who}; {used}")


@says("study-variables")
def _study_variables(it: Said) -> Card:
    units = it["units"]
    said = ", ".join(f"{name} ({units[name]})" if name in units else name for name in it.finding.about)
    silent = len(it.finding.about) - len(units)
    unsaid = f"; {silent} without a unit" if silent else ""
    return Card("Variables (units)", "", f"{len(it.finding.about)}: {said}{unsaid}")


@says("study-goal")
def _study_goal(it: Said) -> Card:
    how, summary = _values(it, "how"), f": {it['summary']}" if it["summary"] else ""
    goal = f"{_GOALS[it['goal']]} ({how})" if how else _GOALS[it["goal"]]
    settings = _values(it, "parameters") or "the method's defaults"
    return Card("What is learned?", "", f"{goal}, by {it['method']}{summary}. Settings: {settings}")


_TELLS = {
    "survey": "Summary of the data",
    "agree": "Comparison of sites",
    "counts": "Counts",
    "gram": "Means and products",
    "gram.pairs": "Rows with empty cells",
    "gram.parts": "Products by part of the rows",
    "residuals": "Checks of the network",
    "local": "A network of this site",
    "step": "Rounds of learning",
    "newton": "Rounds of learning",
    "loss": "Errors on held-out rows",
}
"""A kind of question, or one form of it -> its name on the page."""


@says("study-asks")
def _study_asks(it: Said) -> Card:
    task = it["task"]
    name = _TELLS.get(task) or _TELLS.get(task.partition(".")[0]) or "Not known here"
    often = "once" if it["times"] == 1 else f"up to {it['times']:,} times"
    least = "" if it["usual"] == it["most"] else f"{it['usual']:,} to "
    return Card(f"– {name}", "", f"{often}, {least}{it['most']:,} numbers ({task})")


@says("study-size")
def _study_size(it: Said) -> Card:
    if not it["times"]:
        return Card(
            "How much?", "", "Not known: this method does not announce it. Only this site's policy limits it"
        )
    clean = "" if it["usual"] == it["most"] else f"{it['usual']:,} if the data are clean, "
    said = f"Sums, no rows. In each run {clean}at most {it['most']:,} numbers in {counted(it['times'], 'answer')}"
    return Card("How much?", "", f"{said}; this site refuses more")


@says("study-privacy")
def _study_privacy(it: Said) -> Card:
    if not it["masks"]:
        return Card(
            "Who can read them?", "", "The server reads the sums of this site: there is NO secure aggregation"
        )
    return Card("Who can read them?", "", f"Only sums over at least {it['min_sites']} sites can be opened")


@says("study-noise")
def _noise(it: Said) -> Card:
    factor, unit = math.exp(min(it["epsilon"], 700.0)), it["unit"]
    weak = (
        f" That is too weak to hide one {unit}, so minimum numbers of rows apply as well."
        if it.finding.level != "good"
        else ""
    )
    said = (
        f"Noise with epsilon {it['epsilon']:g}, delta {it['delta']:g}: whether one {unit} is in the data changes the chance "
        f"of any result at most {factor:.3g}-fold.{weak} {full_sentence(it['costs'])}"
    )
    return Card("Noise and epsilon", "", said)


says_as(
    {
        "study-exact": (
            "Noise and epsilon",
            "",
            (
                "No noise and no epsilon: the sums are exact. No proof limits what they reveal about one patient. Minimum "
                "numbers of rows protect patients"
            ),
        ),
        "study-untold": (
            "it cannot be described in plain words, so it cannot be approved here; ask its lead for another "
            "study."
        ),
        "study-unnamed": "the study does not name this site ({site}), so it cannot be approved here.",
        "study-unjudged": "it cannot be checked: unexpected {error}.",
        "run-failed": "ended by an error; its log says why",
    }
)


@says("study-weights")
def _weights(it: Said) -> Card:
    said = (
        f"Every row counts with a secret weight, the same in all sums, which varies by {it['spread']:.0%} between rows. No "
        "epsilon is promised: no proof limits what the sums reveal about one patient"
    )
    return Card("Noise and epsilon", "", said)


@says("study-unlearnable")
def _unlearnable(it: Said) -> Card:
    said = "Rows and names: only sums over rows leave."
    if it["masks"]:
        said += " The sums of this site alone: they are hidden in the sums of all sites."
    if it["hides"]:
        said += f" Whether one {it['unit']} is in the data, beyond what epsilon allows."
    return Card("What can nobody learn?", "", said)


@says("study-collusion")
def _collusion(it: Said) -> Card:
    pool, n_others = it["pool"], it["sites"] - 1
    everybody = {1: "the other site", 2: "both other sites"}.get(n_others, f"all {n_others} other sites")
    others = everybody if pool == n_others else f"{pool} of the {n_others} other sites"
    if not it["masks"]:
        said = "The server needs nobody's help to read the sums of this site"
    else:
        said = (
            f"The server and {others} together can work out the sums of this site; with fewer sites it cannot"
        )
    noise = ""
    if it["epsilon"] is not None:
        noise = f" They contain noise; its epsilon holds if at most {counted(it['colluding'], 'site')} reveal their part."
    return Card("If others work together?", "", f"{said}. Rows never leave.{noise}")


@says("study-headline")
def _study_headline(it: Said) -> str:
    goals = _GOALS | {
        "compare": "a network and a comparison of methods",
        "check": "a check of the data, no network",
    }
    n_variables, n_sites = counted(it["n_variables"], "variable"), counted(it["n_sites"], "site")
    lead = it["lead"] or "somebody who is not named"
    return f"Asked by {lead}: {goals[it['goal']]}. The study uses {n_variables} and the rows of {n_sites}."


@says("run-finished")
def _run_finished(it: Said) -> str:
    return f"finished; some sums do not include {it.names}" if it.names else "finished"


@says("run-stopped")
def _run_stopped(it: Said) -> str:
    return f"stopped: {it['sentence']}" if it["sentence"] else "stopped"


@says("run-collects")
def _run_collects(it: Said) -> str:
    return f"waits for its sites: {it['sentence']}" if it["sentence"] else "waits for its sites"


@says("run-goes-on", "run-starts")
def _run_goes_on(it: Said) -> str:
    late = ", ".join(f"{site} for {span(seconds)}" for site, seconds in it["late"].items())
    end = f"; no answer from {late}" if late else ""
    if it.finding.code == "run-starts":
        return f"is being started{end}"
    return (
        f"running: {counted(it['sums'], 'sum')}, {it['present']} of {it['sites']} sites in the last one{end}"
    )


@says("site-absent")
def _site_absent(it: Said) -> str:
    often = "all sums" if it["missed"] == it["sums"] else f"{it['missed']} of {counted(it['sums'], 'sum')}"
    why = f": {it['why']}" if it["why"] else "."
    return f"site {it['site']!r} is missing from {often}{why}"


@says("site-refuses")
def _site_refuses(it: Said) -> str:
    if it["code"] == "not-approved":
        return f"site {it['site']!r}: its owner has not decided about this study yet."
    return full_sentence(it["sentence"])
