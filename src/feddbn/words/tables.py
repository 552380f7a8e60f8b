"""Tables of a result that a page, a notebook and a terminal show alike; rows are text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from feddbn.findings import Finding, Findings
from feddbn.words import Audience, card, full_sentence

__all__ = [
    "Table",
    "change_in_words",
    "change_tables",
    "findings_table",
    "held_out_tables",
    "known_number",
    "look_table",
]


@dataclass(frozen=True)
class Table:
    """One table: heads, rows of cells, which columns are numbers; a title, how to read it, and remarks. A `closed` one
    opens by a click.
    """

    heads: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    numbers: Collection[int] = ()
    title: str = ""
    note: str = ""
    remarks: tuple[str, ...] = ()
    closed: bool = False


def known_number(value: object) -> float | None:
    """A finite number of a result, None for anything else."""
    try:
        found = None if isinstance(value, (bool, str)) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return found if found is not None and abs(found) < float("inf") else None


def _digits(value: object, digits: int) -> str:
    known = known_number(value)
    return "–" if known is None else f"{known:.{digits}g}"


def held_out_tables(diagnostics: Mapping[str, Any]) -> Iterator[Table]:
    """The tables of a result's diagnostics, or of a study's summary; none if it does not tell of held-out rows."""
    chosen, compared = diagnostics.get("selection"), diagnostics.get("comparison")
    if isinstance(chosen, Mapping) and isinstance(chosen.get("candidates"), list):
        yield _selection(chosen)
    if isinstance(compared, Mapping) and isinstance(compared.get("methods"), list):
        yield _comparison(compared)


def _selection(facts: Mapping[str, Any]) -> Table:
    """The held-out loss of every candidate (`Selection.to_dict`)."""
    names = tuple(str(name) for name in facts.get("chosen") or {})
    rows = tuple(
        (
            *(_digits(row.get(name), 4) for name in names),
            _digits(row.get("loss"), 5),
            _digits(row.get("standard_error"), 3),
            "chosen" if row.get("chosen") else "",
        )
        for row in facts["candidates"]
    )
    rule = (
        "The candidate with the lowest loss was chosen."
        if facts.get("rule") == "best"
        else "The simplest candidate within one standard error of the lowest loss was chosen."
    )
    remarks = tuple(full_sentence(str(text)) for text in facts.get("remarks") or ())
    note = (
        f"Loss per row, {_where(facts.get('share'))}. Standard errors refer to the difference from the lowest loss. "
        f"{'' if remarks else rule}".strip()
    )
    heads = (*names, "Held-out loss", "Standard error", "")
    return Table(heads, rows, range(len(names) + 2), "How parameters were chosen", note, remarks)


def _comparison(facts: Mapping[str, Any]) -> Table:
    """The scores of methods (`Compared.to_dict`) on held-out rows, with the sizes of the networks."""
    lines: Sequence[Mapping[str, Any]] = facts["methods"]
    keys = [
        ("held_out_log_likelihood", "Log-likelihood of a row", 5),
        ("edges_w", "Edges at lag 0", 4),
        ("edges_a", "Lagged edges", 4),
        ("rounds", "Rounds", 4),
    ]
    keys += [("seconds", "Seconds", 3)] if any("seconds" in line for line in lines) else []
    rows = tuple(
        (str(line.get("label")), *(_digits(line.get(key), digits) for key, _, digits in keys))
        for line in lines
    )
    note = (
        f"Mean log-likelihood, {_where(facts.get('held_out_share'))}; higher is better. "
        "It shows how well a method predicts, not whether its arrows are right."
    )
    remarks = [
        f"Weights of {line.get('label')} alone predict no values, so it is not scored here."
        for line in lines
        if line.get("held_out_log_likelihood") is None
    ]
    remarks += [
        f"{line.get('label')} stopped before it had converged."
        for line in lines
        if line.get("converged") is False
    ]
    heads = ("Method", *(head for _, head, _ in keys))
    return Table(heads, rows, range(1, len(heads)), "How well methods predict", note, tuple(remarks))


def _where(share: object) -> str:
    known = known_number(share)
    part = "later rows" if known is None else f"the last {known:.0%} of every recording"
    return f"on {part}, which no fit has used"


def change_in_words(alarm: Mapping[str, Any], named: Callable[[str], str] = str) -> str:
    """What has changed (a stored finding of a monitor), in a few words: "x -> y, lag 1 is gone"."""
    (what, _, how), its = alarm["code"].partition("-"), alarm["values"]
    if what != "edge":
        return f"{what} of {named(its['target'])}"
    lag = f", lag {its['lag']}" if its["lag"] else ""
    return f"{named(its['source'])} -> {named(its['target'])}{lag}{'' if how == 'changed' else f' is {how}'}"


def look_table(looks: Sequence[Mapping[str, Any]]) -> Table:
    """Looks of a monitor (`Monitor.told`): one row for each alarm, and one for a look without."""
    rows: list[tuple[str, ...]] = []
    for look in looks:
        first = (str(look["number"]), f"{look['n_rows']:,}")
        rows += [] if look["alarms"] else [(*first, "nothing new", *[""] * 4)]
        for one in look["alarms"]:
            numbers = (_digits(one["values"][name], 2) for name in ("before", "after", "evidence", "since"))
            rows.append((*first, change_in_words(one), *numbers))
            first = ("", "")
    heads = ("look", "rows", "what changed", "before", "after", "evidence", "since")
    return Table(heads, rows, (0, 1, 3, 4, 5, 6))


def change_tables(found: Any) -> list[Table]:
    """Segments of `feddbn.results.changes.StoredChanges`; then edges, noise variances and levels that change."""

    def numbers(row: Mapping[str, Any], *names: str) -> tuple[str, ...]:
        return (*(f"{row[name]:.4g}" for name in names), f"{row['probability']:.3f}")

    def change(row: Mapping[str, Any]) -> tuple[str, ...]:
        return (found.place(row["row"]), *numbers(row, "before", "after"))

    segments = []
    for k, (row, dbn) in enumerate(zip(found.segments.to_dict("records"), found.networks, strict=True)):
        places = (found.place(row[end]) for end in ("start", "stop"))
        segments.append((k + 1, *places, f"{row['rows']:,}", int(dbn.is_edge.sum())))
    changed = ("At", "Before", "After", "Probability")
    tables = [
        Table(
            ("Cause", "Effect", "Lag", *changed),
            [(row["source"], row["target"], row["lag"], *change(row)) for row in found.changes],
            range(4, 7),
            "Edges that change",
        ),
        Table(
            ("Variable", "What", *changed),
            [(row["target"], row["what"], *change(row)) for row in found.variances],
            range(3, 6),
            "Noise variances and levels that change",
        ),
    ]
    heads = ("Segment", "From", "To", "Rows of all sites", "Edges")
    return [
        Table(heads, segments, range(3, 5), "Segments"),
        *(table for table in tables if table.rows),
    ]


_NOTE = (
    "Findings in the data of all sites before learning. An error makes a network wrong; a warning may do so; a note is for "
    "information."
)


def findings_table(findings: Sequence[Finding], audience: Audience) -> Table:
    """What a check of data found, errors first: one row for each kind of finding; sites that share it stand together."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[Finding]] = {}
    for one in Findings(findings):
        # A refusal names its site.
        what = str(one.values.get("text", one.code)).replace(repr(one.values.get("site")), "")
        groups.setdefault((one.level, what, one.about), []).append(one)
    rows = []
    for same in groups.values():
        # What stands for all is the worst of them.
        worst = max(
            same, key=lambda one: max(one.values["shares"].values()) if one.code == "missing" else 0.0
        )
        said = card(worst, audience)
        where = str(worst.values.get("site", "all"))
        n = sum(one.values.get("n_sites", 1) for one in same if "site" in one.values)
        where += f" and {n - 1} more" if n > 1 else ""
        rows.append((same[0].level, where, said.detail, said.advice))
    rows = rows or [("note", "all", "Nothing was found that would make a network wrong.", "")]
    return Table(("Level", "Site", "Finding", "Cure"), rows, (), "What the data-quality check found", _NOTE)
