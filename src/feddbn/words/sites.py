"""What the owner of a site is told about it: kit, data, policy, budget, what runs there and what left."""

from __future__ import annotations

from collections.abc import Mapping

from feddbn.findings import Finding
from feddbn.words import Card, Said, card, counted, says, says_as
from feddbn.words.studies import day, listed, when

_CHECKED = {
    "settings-read": ("settings", "site {site!r}"),
    "settings-wrong": ("settings", "{sentence}"),
    "data-wrong": ("data", "{sentence}"),
    "study-joinable": ("study", "this site can join {study!r}"),
    "study-refused": ("study", "{sentence}"),
    "approval-valid": ("study: approval", "until {expires}, {left} of {runs} runs left"),
    "approval-missing": (
        "study: approval",
        "{state}; the study is refused until you approve it with `feddbn site approve`",
    ),
    "approval-wrong": ("study: approval", "{sentence}"),
    "state-place": ("state", "{place}, {free:.1f} GiB free"),
    "state-wrong": ("state", "{place} cannot be used: {why}"),
    "keys-private": ("private keys", "only their owner can read them"),
    "keys-readable": (
        "private keys",
        "others can read {names}; run `chmod -R go= {kit}`, and ask for a new kit if somebody may have copied them",
    ),
    "tasks-not-listed": (
        "study: note",
        "it may ask for {names}; the policy does not list this, so this site would refuse it",
    ),
    "columns-unused": ("study: note", "not asked for: {some}; these columns are not read"),
    "units-unsaid-there": (
        "study: note",
        "the study gives no units for {names}; ask the lead for a [units] table",
    ),
    "rows-usable": (
        "study: note",
        "{usable} of {rows} rows can be used with n_lags = {n_lags}, {complete} of them without an empty cell; "
        "{missing_percent:.1f} % of the cells are empty",
    ),
    "rows-not-filled": (
        "study: note",
        "the {rows} rows with an empty cell are left out, because they are too few to be filled in (min_rows in the policy)",
    ),
}
"""Code -> what was checked, and what is said; names are what the finding is about."""


@says(*_CHECKED)
def _checked(it: Said) -> Card:
    question, text = _CHECKED[it.finding.code]
    values = dict(it.finding.values)
    return Card(question, "", text.format(**values, names=it.names, some=listed(it.finding.about, 8)))


@says("data-read")
def _data_read(it: Said) -> Card:
    rows = f"{it['rows']} rows"
    if it["left_out"]:
        rows = f"{it['rows']} of {it['rows'] + it['left_out']} rows, the others are left out because of missing values"
    if it["missing_percent"] > 0:
        rows += f" ({it['missing_percent']:.1f} % of their cells missing, {it['complete']} rows complete)"
    names = listed(it.finding.about, 8)
    return Card(
        "data",
        "",
        f"{counted(it['recordings'], 'recording')}, {rows}, {len(it.finding.about)} variables: {names}",
    )


@says("variable-read")
def _variable_read(it: Said) -> Card:
    """Where a variable comes from, what is done to it, how much there is."""
    sources = ", ".join(_source(one) for one in it["sources"])
    limits = "no limits" if it["limits"] is None else f"within {it['limits'][0]:g} to {it['limits'][1]:g}"
    beyond = f", {it['beyond']} more beyond the limits" if it["beyond"] else ""
    counts = f"{counted(it['readings'], 'reading')}{beyond}; a value in {it['filled']} of {it['rows']} rows"
    return Card(f"data: {it.names}", "", f"from {sources}; {limits}; {counts}")


def _source(one: Mapping[str, object]) -> str:
    unit, to, factor, offset = (one.get(key) for key in ("unit", "to", "factor", "offset"))
    change = (
        "" if (factor or 1, offset or 0) == (1, 0) else f"{factor:.6g} x{f' {offset:+.6g}' if offset else ''}"
    )
    units = f"{unit} to {to}" if to != unit else f"{unit or ''}"
    inner = ", ".join(filter(None, [units, change]))
    return f"{one['name']}{f' ({inner})' if inner else ''}"


@says("own-data")
def _own_data(it: Said) -> Card:
    """What a check of the site's own rows found by itself."""
    found = Finding.from_dict(it["finding"])
    said = card(found, it.audience)
    # What a fit does about it is decided by all who take part.
    alone = (
        " This was judged from the rows of this site alone."
        if any(name.startswith("prepare.") for name in found.cure)
        else ""
    )
    return Card(f"data: {found.code}", "", f"{found.level}: {said.detail}{alone} {said.advice}".rstrip())


@says("site-policy")
def _site_policy(it: Said) -> Card:
    masked = "only under secure aggregation" if it["masks"] else "also unprotected sums"
    budget = "no noise required" if it["max_epsilon"] is None else f"epsilon up to {it['max_epsilon']:g}"
    whom = "any study within these rules" if it["by_rule"] else "approved studies only"
    rules = f"at least {it['min_sites']} sites; {budget}; {it['max_rounds']} rounds; {whom}"
    return Card("policy", "", f"{', '.join(it['methods'])}; {masked}; {rules}")


says_as(
    {
        "budget-unset": ("budget", "", "no budget is set (max_epsilon in the policy)"),
        "budget-unknown": ("budget", "", "not known, so it is treated as fully spent: {doubt}"),
        "approval-refused": "You refused the study {study}; it no longer waits.",
        "approval-revoked": "You withdrew the approval of {study}. A run under way is refused from its next message on.",
        "rows-left-out": (
            "{n} rows are left out of sums with n_lags = {n_lags}. Otherwise, sums of this study and of earlier "
            "ones together could reveal a few rows."
        ),
    }
)


@says("budget")
def _budget(it: Said) -> Card:
    limit, unit = f"{it['limit']:g}", it["unit"]
    if it["spent"] is None:
        return Card(
            "budget", "", f"all of {limit} spent: this site has sent answers without noise for each {unit}"
        )
    left = max(it["limit"] - it["spent"], 0.0)
    spent = f"epsilon {it['spent']:.3g} of {limit} for each {unit} spent"
    return Card("budget", "", f"{spent}, {left:.3g} left (delta = {it['delta']:g})")


@says("run-here")
def _run_here(it: Said) -> str:
    who = f" from lead {it['lead']}" if it["lead"] else ""
    said = f"Study {it['study']}{who} began {when(it['began'])}; its last question came {when(it['last'])}."
    if it.get("answers"):
        said += f" This site has sent it {counted(it['answers'], 'answer')}."
    return f"{said} The run has stopped, or waits for other sites." if it["is_silent"] else said


@says("left-in-all")
def _left_in_all(it: Said) -> str:
    return (
        f"{counted(it['sent'], 'answer')} left this site ({it['bytes']:,} bytes of numbers); "
        f"{counted(it['refused'], 'refusal')}."
    )


@says("approval-given")
def _approval_given(it: Said) -> str:
    return f"You approved the study {it['study']}; the approval ends {day(it['expires'])}."


@says("site-own-network")
def _own_network(it: Said) -> str:
    how = "`dbns_` has it" if it.in_python else "learn it with `feddbn fit` from the data of this site alone"
    return f"if this site is left out of the common network, it has a network of its own, which stays here: {how}."


@says("variable-left-out")
def _variable_left_out(it: Said) -> str:
    why = (
        f"at {it['n_few']} of the sites it varies in too few rows, and its sums would reveal them"
        if it["n_few"]
        else f"it varies at only {it['n_sites']} sites, and sums over fewer than {it['needed']} could reveal one of them"
    )
    return f"{it.names} was left out of the study: {why}."
