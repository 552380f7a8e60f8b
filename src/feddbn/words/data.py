"""What data-quality checks say: of tables before a fit, of how they were read, and of sums over sites.

Most sentences are templates: what was found, and what cures it. A template has the values of its finding, and `columns`
("column 'x'"), `one` ("'x'"), `s` (the ending of a verb whose subject they are), `cure` (its settings, to be copied),
`leave_out` and `variables` (how columns are chosen).
"""

from __future__ import annotations

from typing import Any

from feddbn.errors import Given
from feddbn.words import Card, Said, counted, names_of, percent, says, times, told

_SENTENCES = {
    "glued/blocks": (
        "{one} has {n_values} values, each in one block of rows. It seems to name several recordings in "
        "this file.",
        "{cure}",
    ),
    "glued/counter": (
        "{one} counts up and restarts {starts}. It looks like a time, and a new recording may begin at each restart.",
        "{cure} with {series} the column that names the recordings",
    ),
    "glued/names": (
        "{last} restarts {starts}, where {others} change. The file seems to hold {n} recordings, and a lag would reach "
        "from one into the next.",
        "{cure}",
    ),
    "undeclared-time": (
        "{one} never falls: it looks like a time, a row number or a running total, and would be used as a variable.",
        "{cure} with one row for each time, or {leave_out}",
    ),
    "shuffled-time": (
        "{one} looks like a time, but the rows are not in its order. Lags would be meaningless.",
        "{cure}",
    ),
    "sentinel": (
        "{columns}: {what} appears {starts}, far from all other values, like a code for a missing value.",
        "leave such cells empty{or_use}",
    ),
    "constant": (
        "{columns} never change{s} here: no edge can be learned from that.",
        "leave the site out, or {leave_out}",
    ),
    "empty-column/some": ("{one} is empty: no row has a value.", "leave the site out, or {leave_out}"),
    "empty-column/all": ("{one} is empty: no row has a value.", "{leave_out}"),
    "outliers": (
        "{columns}: cells that lie far from their recording's median (outliers), {where}.",
        "leave wrong cells empty",
    ),
    "wandering": (
        "{columns}: neighbouring rows are almost equal. Slow series like this look related by chance.",
        "take differences, or keep fewer rows per time",
    ),
    "dependent": (
        "{one} is almost determined by {others}. Which of them has an effect cannot be found out.",
        "leave {one} out with {variables}",
    ),
    "others-looked-at": ("{listed} can be read; the other remarks are about {them}.", ""),
    "usable-rows/complete": (
        "{usable} of {rows} rows are complete, and this method uses no others: the network rests on these few.",
        "{filling} also uses rows with empty cells; or choose columns with few gaps by {variables}",
    ),
    "usable-rows/any": (
        "{usable} of {rows} rows can be used with {lags}: a row needs {needs} before it, and no gap in time between them.",
        "fill short gaps, choose columns with few gaps by {variables}, or give the right step with {freq}",
    ),
    "averaged/average": (
        "{n} readings became {n_values} values: those in one step of {step} were averaged ({lost}). What happens within a "
        "step is lost.",
        "{finer}",
    ),
    "averaged/same": (
        "{n} readings became {n_values} values: those of one variable at one time were averaged ({lost}).",
        "keep one reading per time and variable if they are not repetitions",
    ),
    "beyond-limits": (
        "{listed} lie beyond their limits and were left empty.",
        "check such cells, and change the limits with {as_limits} if the cells are right",
    ),
    "all-rows/error": (
        "too few rows: {what}, of which at most {usable} can be used with {lags}. A network has {n_columns} columns "
        "(variables now and at each lag); {needed:,.0f} rows or more are needed.",
        "ask more sites, or use fewer variables or lags",
    ),
    "all-rows/warning": (
        "few rows: {what}, of which at most {usable} can be used with {lags}. A network has {n_columns} columns (variables "
        "now and at each lag); {needed:,.0f} rows or more are needed, {fewest:g} for each column.",
        "ask more sites, or use fewer variables or lags",
    ),
    "all-rows/note": ("{what}.", ""),
    "empty-share": (
        "{share} of the cells are empty.",
        "{cure}, the default, uses all measured cells",
    ),
    "still": (
        "in {columns} half of the cells or more have the same value, like a stuck sensor.",
        "look for it at each site with `feddbn site check`, or leave it out with {variables}",
    ),
    "outliers-somewhere": (
        "in {columns} cells lie far from their recording's median (outliers): errors of measurement, codes, or bursts.",
        "{cure}, the default, gives them less weight",
    ),
    "cycles": (
        "there are cycles of {listed} rows.",
        "{cure}, the default, removes them where that is better",
    ),
    "scales": (
        "the {sites} sites measure on different scales, or in different units{of_far}.",
        "compare the units; {cure}, the default, rescales sites where that is better",
    ),
    "not-compared/few": (
        "not checked: whether one site has different units, swapped columns or different relations.",
        "sites are compared if {fewest} or more of them have enough rows",
    ),
    "not-compared/asked": (
        "not checked: whether one site has different units, swapped columns or different relations.",
        "{cure} has sites compare themselves, if their owners allow the task 'agreement'; this needs {fewest} or more "
        "sites with enough rows",
    ),
    "disagreement/few": (
        "{n} of {of} sites do not fit the others; the owners are told why.",
        "{cure} leaves them out",
    ),
    "disagreement/many": (
        "{n} of {of} sites do not fit the others; the owners are told why.",
        "PFDBNL learns a network for each site",
    ),
}


def _variant(it: Said) -> str:
    """Which of the sentences of a code it is; empty if there is one."""
    code, level = it.finding.code, it.finding.level
    choices = {
        "averaged": "average" if it.get("how") == "average" else "same",
        "all-rows": level,
        "empty-column": "all" if level == "error" else "some",
        "usable-rows": "complete" if level == "error" else "any",
        "not-compared": "asked" if it.finding.cure else "few",
        "disagreement": "few" if it.finding.cure else "many",
    }
    return str(choices.get(code) or it.get("how") or "")


def _parts(it: Said) -> dict[str, Any]:
    """What templates may use beside the values of a finding."""
    about, values = it.finding.about, it.finding.values
    between = " " if it.audience == "cli" else ", "
    n_lags = values.get("n_lags", 0)
    before = "the row" if n_lags == 1 else f"the {n_lags} rows"
    count = values.get("n_starts", values.get("n", 0))
    parts: dict[str, Any] = {
        "columns": names_of(about),
        "s": "s" if len(about) == 1 else "",
        "cure": between.join(it.setting(name, value) for name, value in it.finding.cure.items()),
        "leave_out": f"choose the other columns with {it.option('variables')}",
        "starts": times(count),
        "lags": f"{n_lags} lag{'' if n_lags == 1 else 's'}",
        "needs": f"all its cells, those of {before}" if values.get("whole_rows") else before,
    }
    parts |= {name: it.option(name) for name in ("variables", "series", "kinds", "freq", "time")}
    parts["of_far"] = f"; {names_of(about)} differ as much as different units would" if about else ""
    parts["as_limits"] = it.option("limits")
    if about:
        parts |= {"one": repr(about[0]), "last": repr(about[-1])}
    return parts


def _own_parts(it: Said) -> dict[str, Any]:
    """What the templates of single codes use instead of values."""
    code, about = it.finding.code, it.finding.about
    if code == "glued" and it["how"] == "names":
        return {"others": " and ".join(map(repr, about[:-1])), "n": it["n_starts"] + 1}
    if code == "dependent":
        return {"others": names_of(about[1:])}
    if code == "sentinel":
        return {"what": f"{it['value']:g}", "or_use": f", or use {it.cure}"}
    if code == "outliers":
        sites = sorted(it["cells"], key=lambda name: -it["cells"][name])
        shown = ", ".join(f"{it['cells'][name]} at {name!r}" for name in sites[:3])
        return {"where": shown + (f" and some at {len(sites) - 3} more" if len(sites) > 3 else "")}
    if code == "all-rows":
        sizes = (("rows", "row"), ("recordings", "recording"), ("sites", "site"))
        rows, recordings, owners = (counted(it[name], noun) for name, noun in sizes)
        needed = it["fewest"] * it["columns"]
        return {"what": f"{rows} in {recordings} of {owners}", "n_columns": it["columns"], "needed": needed}
    if code == "empty-share":
        return {"share": percent(it["share"])}
    if code == "others-looked-at":
        sites = it["kept"]
        more = f" and {len(sites) - 4} more sites" if len(sites) > 4 else ""
        listed = ", ".join(map(repr, sites[:4])) + more
        return {"listed": listed, "them": "these" if len(sites) > 1 else "this one"}
    if code == "averaged":
        names = list(it["shares"])
        lost = ", ".join(f"{percent(it['shares'][name])} of {name!r}" for name in names[:3])
        more = f" and less of {len(names) - 3} more" if len(names) > 3 else ""
        return {"lost": lost + more, "finer": f"take a finer step with {it.option('freq')}"}
    if code == "beyond-limits":
        return {"listed": ", ".join(f"{counted(n, 'cell')} of {name!r}" for name, n in it["cells"].items())}
    if code == "usable-rows":
        return {"filling": it.method("OneShotDBN", "oneshot")}
    if code == "cycles":
        return {"listed": ", ".join(f"{period:.4g}" for period in it["periods"])}
    return {}


def _told(it: Said, found: str, cure: str) -> Card:
    """What was found and what cures it; where it was found stands before it."""
    more = f" and {it['n_sites'] - 1} more" if it.get("n_sites", 1) > 1 else ""
    where = f"{it.finding.where}{more}:" if it.finding.where else ""
    return Card(where, "", found, f"Cure: {cure}." if cure else "")


@says(*dict.fromkeys(name.partition("/")[0] for name in _SENTENCES))
def _of_template(it: Said) -> Card:
    variant = _variant(it)
    found, cure = _SENTENCES[f"{it.finding.code}/{variant}" if variant else it.finding.code]
    parts = {**it.finding.values, **_parts(it), **_own_parts(it)}
    return _told(it, found.format(**parts), cure.format(**parts))


@says("missing")
def _missing(it: Said) -> Card:
    first, *others = sorted(it["shares"], key=lambda name: -it["shares"][name])
    text = f"{percent(it['shares'][first])} of {first!r} is missing"
    if others:
        most = percent(it["shares"][others[0]])
        text += (
            f", and {most} of {others[0]!r}"
            if len(others) == 1
            else f", and up to {most} of {len(others)} others"
        )
    return _told(
        it, f"{text}.", f"fill short gaps, or choose the other columns with {it.option('variables')}"
    )


@says("kinds-somewhere")
def _kinds_somewhere(it: Said) -> Card:
    said = []
    for kind, what in (("binary", "0 and 1"), ("count", "whole numbers from 0")):
        names = [name for name, one in it["kinds"].items() if one == kind]
        said += [f"{names_of(names)} with {what} only"] if names else []
    cure = f"{_declared(it)}; other methods treat them as numbers" if it.finding.cure else ""
    return _told(it, f"{' and '.join(said)}.", cure)


def _declared(it: Said) -> str:
    kinds = it.setting("kinds", it["kinds"])
    method = {"python": f"MixedDBN({kinds})", "cli": f"--method mixed {kinds}"}
    return "if so, use " + method.get(it.audience, f"{kinds} and a study of method mixed")


@says("refused")
def _refused(it: Said) -> Card:
    # The sentences of the reader of data end with the cure.
    parts = [part if isinstance(part, str) else Given(*part) for part in it.get("parts", [it["text"]])]
    found, _, cure = told(parts, it.audience).partition("; ")
    return _told(it, f"{found.rstrip('.')}.", cure.rstrip("."))
