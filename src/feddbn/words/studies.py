"""What owners and leads are told about studies and runs: what is asked, what protects it, how a run and its sites stand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from feddbn.words import Card, Said, counted, full_sentence, says

_GOALS = {
    "network": "a network",
    "confidence": "how far each edge can be trusted",
    "select": "a network whose parameters are chosen on held-out rows",
    "compare": "a network, and how well this and other methods predict held-out rows",
    "check": "what is wrong with the data of all sites together; nothing is learned from them",
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


_ABOUT = {
    "study-name": ("study", "{name}"),
    "study-update": ("new rows of", "run {run}, whose rows this site must not offer again"),
    "study-noise": ("noise costs", "{sentence}"),
    "study-uncounted": ("rows", "cannot be counted: {sentence}"),
    "study-digest": ("digest", "{digest}"),
}


@says(*_ABOUT)
def _about(it: Said) -> Card:
    question, text = _ABOUT[it.finding.code]
    return Card(question, "", text.format(**it.finding.values))


@says("study-lead")
def _study_lead(it: Said) -> Card:
    return Card("lead", "", it["lead"] or "not named")


@says("study-method")
def _study_method(it: Said) -> Card:
    return Card("method", "", f"{it['method']}: {it['summary']}" if it["summary"] else it["method"])


@says("study-goal")
def _study_goal(it: Said) -> Card:
    how = _values(it, "how")
    return Card("goal", "", f"{_GOALS[it['goal']]} ({how})" if how else _GOALS[it["goal"]])


@says("study-parameters")
def _study_parameters(it: Said) -> Card:
    return Card("parameters", "", _values(it, "parameters") or "the method's defaults")


@says("study-variables", "study-sites")
def _study_names(it: Said) -> Card:
    return Card(it.finding.code.removeprefix("study-"), "", f"{len(it.finding.about)}: {it.names}")


@says("study-units")
def _study_units(it: Said) -> Card:
    return Card("units", "", ", ".join(f"{name} in {unit}" for name, unit in it["units"].items()))


@says("study-rows")
def _study_rows(it: Said) -> Card:
    rows = f"{it['usable']} of {it['rows']} rows of {counted(it['recordings'], 'recording')}"
    return Card("rows", "", f"{rows} can be used with {counted(it['n_lags'], 'lag')}")


@says("study-asks")
def _study_asks(it: Said) -> Card:
    about = it["purpose"] or "not known at this site"
    times = "once" if it["times"] == 1 else f"up to {it['times']:,} times"
    return Card(f"asks for {it['task']}", "", f"{about}; {times}, {_numbers(it)}")


@says("study-size")
def _study_size(it: Said) -> Card:
    return Card("leaves here", "", f"{_numbers(it)}; this site refuses what would be more")


def _numbers(it: Said) -> str:
    """How many numbers: of clean data, and at most."""
    most = f"{it['most']:,} numbers"
    if it["usual"] == it["most"]:
        return most
    usual = f"{it['usual']:,} if the data are clean" if it["usual"] else "none if the data are clean"
    return f"at most {most} ({usual})"


@says("study-privacy")
def _study_privacy(it: Said) -> Card:
    masks = "NO secure aggregation: the server sees this site's own sums"
    if it["masks"]:
        how = (
            f"parts for two keepers ({' and '.join(it['keepers'])})"
            if it.get("keepers")
            else "secure aggregation"
        )
        masks = f"{how}, sums of at least {it['min_sites']} sites are opened"
    noise = "the sums are exact: no noise is added"
    if it["masks"] and it.get("protection") == "noise":
        noise = "noise of .3 of each sum's own sampling error is added"
    if it["epsilon"] is not None:
        noise = f"noise: epsilon {it['epsilon']:g}, delta {it['delta']:g} for each {it['unit']}, in each run"
    return Card("privacy", "", f"{masks}; {noise}")


@says("study-absences")
def _study_absences(it: Said) -> Card:
    if it["when_missing"] == "collect":
        enough = "all sites" if it["enough"] is None else f"all sites, or {it['enough']} of them in the end,"
        said = f"each message waits up to {it['window_h']:g} hours until {enough} have come and answered it"
        return Card("missing sites", "", said)
    then = {
        "wait": f"the run waits for it up to {it['max_wait_s']:g} s",
        "continue": f"the run goes on with at least {it['min_sites']} sites",
        "abort": "the run stops",
    }[it["when_missing"]]
    return Card("missing sites", "", f"a site is missing after {it['timeout_s']:g} s; then {then}")


@says("study-headline")
def _study_headline(it: Said) -> str:
    goals = _GOALS | {
        "confidence": "how far the edges of a network can be trusted",
        "compare": "a network and a comparison of methods",
    }
    n_variables, n_sites = counted(it["n_variables"], "variable"), counted(it["n_sites"], "site")
    lead = it["lead"] or "Somebody who is not named"
    return f"{lead} asks for {goals[it['goal']]} of {n_variables} from the rows of {n_sites}."


@says("study-masked")
def _masks(it: Said) -> str:
    both = f" by {' and '.join(it['keepers'])} together" if it.get("keepers") else ""
    return f"Only sums of at least {it['min_sites']} sites can be opened{both}."


@says("study-unmasked")
def _no_masks(it: Said) -> str:
    return "The server sees this site's own sums: there is no secure aggregation."


@says("study-noisy")
def _noise(it: Said) -> str:
    weak = "" if it["hides"] else " That is too little to hide a row, so the rules about rows apply as well."
    return f"Noise is added; a run costs epsilon {it['epsilon']:g} for each {it['unit']}.{weak}"


@says("study-exact")
def _no_noise(it: Said) -> str:
    return (
        "The sums are exact: no noise is added. Whoever has two sums that differ by a row has that row, and only rules "
        "about rows keep such sums apart."
    )


@says("study-with-noise")
def _with_noise(it: Said) -> str:
    return "Every sum carries noise of .3 of its own sampling error: results hardly change, and single rows are hidden in it."


@says("study-sampling-noise")
def _sampling_noise(it: Said) -> Card:
    row, everything, recording = (
        "nothing that means much" if it[name] is None else f"epsilon {it[name]:.3g}"
        for name in ("row", "all", "recording")
    )
    said = (
        f"Each site adds noise of {it['share']:g} of the sampling error to every sum: results hardly change, and the "
        f"difference of two sums no longer shows a row. With {it['rows']:,} rows the products of the variables compare to "
        f"{row} for a row of ordinary size (delta {it['delta']:g}), all that leaves to {everything}, and for a whole "
        f"recording the products compare to {recording}. That bounds no row that is far out, so all rules about rows hold."
    )
    return Card("noise", "", said)


@says("noise-few-rows")
def _noise_few_rows(it: Said) -> str:
    return (
        f"With about {it['rows']:,} rows, noise of .3 of the sampling error may cost an edge in some networks (docs/noise.md "
        f"has the table); from {it['usual']:,} on it cost none."
    )


@says("study-untold")
def _study_untold(it: Said) -> str:
    return "it cannot be told in plain words, so it cannot be approved here; ask its lead for another."


@says("study-unnamed")
def _study_unnamed(it: Said) -> str:
    return f"the study does not name this site ({it['site']}), so it cannot be approved here."


@says("study-unjudged")
def _study_unjudged(it: Said) -> str:
    return f"it cannot be judged: unexpected {it['error']}."


_JOBS = {
    "job-waits": "waits to be started",
    "job-starts": "is being started",
    "job-runs": "running",
    "job-finished": "finished",
    "job-collects": "waits for answers",
    "job-aborted": "stopped on request; `feddbn study resume {run}` goes on",
    "job-stopped": "stopped; `feddbn study results {run}` says why, `feddbn study resume {run}` goes on",
    "job-lacks-sites": "could not be started: sites were missing; `feddbn study resume {run}` tries again",
    "job-not-started": "could not be started; `feddbn study resume {run}` tries again",
    "job-given-up": "was given up; `feddbn study resume {run}` goes on",
    "job-other": "{status}",
}


@says(*_JOBS)
def _job(it: Said) -> str:
    return _JOBS[it.finding.code].format(**it.finding.values)


@says("run-finished")
def _run_finished(it: Said) -> str:
    return f"finished, without {it.names} in some sums" if it.names else "finished"


@says("run-stopped")
def _run_stopped(it: Said) -> str:
    return f"stopped: {it['sentence']}" if it["sentence"] else "stopped"


@says("run-collects")
def _run_collects(it: Said) -> str:
    return f"waits for its sites: {it['sentence']}" if it["sentence"] else "waits for its sites"


@says("run-failed")
def _run_failed(it: Said) -> str:
    return "ended by an error; the server's log says why"


_ENDED = {
    "job-aborted": "stopped on request",
    "job-stopped": "stopped; the console is fetching the reason",
    "job-lacks-sites": "could not be started, because sites were missing",
    "job-not-started": "could not be started",
    "job-given-up": "was given up by the server",
}


@says("run-ended")
def _run_ended(it: Said) -> str:
    return _ENDED.get(it["job"], "has ended")


@says("run-goes-on", "run-starts")
def _run_goes_on(it: Said) -> str:
    late = ", ".join(f"{site} for {span(seconds)}" for site, seconds in it["late"].items())
    end = f"; no answer from {late}" if late else ""
    if it.finding.code == "run-starts":
        return f"is being started{end}"
    return f"running: {counted(it['sums'], 'sum')}, {it['present']} of {it['sites']} sites in the last{end}"


@says("run-left")
def _run_left(it: Said) -> str:
    """How long a run still takes at most, as far as that is known."""
    each = "" if it["pace"] is None else f"{it['pace']:.2g} s for each sum"
    if it["reached"] is None:
        return f"{each}; how many it needs is not known before" if each else ""
    rounds = f"round {it['reached']:.0f} of at most {it['most']:.0f}"
    if not each:
        return rounds
    rest = span((it["most"] - it["reached"]) * it["pace"])
    return f"{rounds}, {each}: at most {rest} left, less if it converges before"


@says("not-in-last-sum")
def _not_in_last_sum(it: Said) -> str:
    gone = [f"{name} (not connected)" if name in it["away"] else name for name in it.finding.about]
    return f"not in the last sum: {', '.join(gone)}."


@says("not-connected")
def _not_connected(it: Said) -> str:
    return f"not connected at the moment: {it.names}."


@says("run-fetched")
def _run_fetched(it: Said) -> str:
    return f"The result of {it['run']} was fetched."


@says("run-aborted")
def _run_aborted(it: Said) -> str:
    return f"Run {it['run']} was stopped. It can be resumed."


@says("run-resumed")
def _run_resumed(it: Said) -> str:
    return f"Run {it['run']} goes on where it stopped."


@says("run-sent")
def _run_sent(it: Said) -> str:
    return f"Run {it['run']} was sent."


@says("study-possible")
def _study_possible(it: Said) -> str:
    return "The study file is complete, and its method can begin with it."


@says("site-here")
def _site_here(it: Said) -> Card:
    return Card(it["site"], "is connected")


@says("site-away")
def _site_away(it: Said) -> Card:
    return Card(it["site"], "is not connected")


@says("site-silent")
def _site_silent(it: Said) -> Card:
    return Card(it["site"], f"is silent since {when(it['heard'])} ({span(it['seconds'])})")


@says("site-unknown")
def _site_unknown(it: Said) -> Card:
    seconds = it["seconds"]
    if seconds is None:
        return Card(it["site"], "not known")
    last = "just now" if seconds < 5 else f"{span(seconds)} ago"
    return Card(it["site"], f"not known; connected {last}")


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


@says("site-not-proved")
def _site_not_proved(it: Said) -> str:
    return (
        f"site {it['site']!r} is left out: its proof does not hold, so nobody knows that rows could have made what it sent. "
        "Either its software is not the same, or it has altered its numbers; ask its owner."
    )


@says("weights-shown")
def _weights_shown(it: Said) -> str:
    return (
        f"each of {it['n_sites']} sites has proved to the keepers that in no direction it weighs more than "
        f"{it['most']:.2g} times its share of the rows"
    )


@says("weight-not-shown")
def _weight_not_shown(it: Said) -> str:
    return (
        f"{it.names} did not prove to the keepers to weigh at most {it['most']:.2g} times the share of its rows, so it may "
        "move edges by more than that: its values vary more than those of others, or they are made up. Look at its data, "
        "or begin a study of the others"
    )


@says("sums-differ")
def _sums_differ(it: Said) -> str:
    return (
        "sites sent other moments when they had to prove how much they weigh than before, so some site may have sent numbers "
        "that are not those of its rows, and the network may be wrong"
    )
