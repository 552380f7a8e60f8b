"""What was done to the rows before a network was learned, in words for the page; and whether the sites agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feddbn.report.record import ReportRecord
from feddbn.report.verdict import Verdict, number

__all__ = ["agreement_verdict", "treatment_rows"]


def treatment_rows(record: ReportRecord) -> list[tuple[str, str, str]]:
    """(what was looked at, what was done, why) of a result; empty if it does not say."""
    facts = record.diagnostics.get("treatment")
    if not isinstance(facts, Mapping):
        return []
    rows = [
        ("Means, trends, cycles", _course(facts), _evidence(facts.get("evidence"))),
        ("Scales of sites", _gains(facts), _evidence(facts.get("gains_evidence"))),
        ("Far cells", _spikes(facts), ""),
        ("Empty cells", *_empty(facts)),
        ("Sites that do not fit", *_sites(facts)),
    ]
    unseen = [
        pair for pair in facts.get("unseen_pairs") or () if isinstance(pair, (list, tuple)) and len(pair) == 3
    ]
    if unseen:
        names = ", ".join(dict.fromkeys(" and ".join(sorted({str(a), str(b)})) for a, b, _ in unseen))
        rows.append(
            ("Hardly ever in one row", names, "edges between these follow from other variables alone")
        )
    inputs = _names(facts.get("exogenous"))
    if inputs:
        rows.append(("Known inputs", f"{inputs}: no edge leads into them", "asked for by exogenous="))
    return rows


def agreement_verdict(record: ReportRecord) -> Verdict | None:
    """Whether sites that compared themselves fit each other; None if the result does not say."""
    facts = record.diagnostics.get("treatment")
    if not isinstance(facts, Mapping) or number(facts.get("n_disagreeing")) is None:
        return None
    n, left_out = int(facts["n_disagreeing"]), int(number(facts.get("left_out")) or 0)
    question, n_sites = "Do the sites agree?", len(record.sites)
    asked = record.parameters.get("on_disagreement")
    if not n:
        if asked == "ignore" or n_sites < _FEWEST_SITES or facts.get("n_rows") is None:
            return None
        return Verdict(
            "agreement",
            question,
            "good",
            "Yes.",
            "Every site that could compared itself with the others; none found that it does not fit.",
        )
    who = "one site does" if n == 1 else f"{n} sites do"
    if left_out:
        stayed = "It" if n == 1 else "They"
        owners = "its owner was" if n == 1 else "their owners were"
        detail = f"{stayed} stayed out of the sums, and {owners} told why; the network is that of the others."
        advice = "Correct the data there and fit again, or learn a network for each site with PFDBNL."
        if asked == "personal":
            advice = (
                "Correct the data there and fit again, or use the network learned from the rows there alone."
            )
        return Verdict("agreement", question, "caution", f"No: {who} not fit the others.", detail, advice)
    many = n_sites and n > n_sites / 3
    detail = "There seem to be several kinds of sites." if many else "All sites are in the sums."
    advice = (
        "One network for all is wrong for some: use PFDBNL, which learns one for each."
        if many
        else "on_disagreement='exclude' leaves out what does not fit; owners are told what it is."
    )
    return Verdict("agreement", question, "bad", f"No: {who} not fit the others.", detail, advice)


_FEWEST_SITES = 4


def _names(value: object) -> str:
    return ", ".join(str(name) for name in value) if isinstance(value, (list, tuple)) else ""


def _evidence(value: object) -> str:
    found = number(value)
    if found is None:
        return "not looked at, or as asked"
    return f"BIC {abs(found):,.0f} {'better' if found > 0 else 'worse'} with each its own"


def _course(facts: Mapping[str, Any]) -> str:
    if facts.get("center") != "recording":
        return "one mean for all rows"
    degree, periods = int(number(facts.get("degree")) or 0), facts.get("periods") or ()
    parts = ["mean"]
    if degree:
        parts.append("line" if degree == 1 else f"polynomial of degree {degree}")
    if periods:
        parts.append(f"cycles of {', '.join(f'{float(period):.4g}' for period in periods)} rows")
    return f"every recording lost its own {', '.join(parts)}"


def _gains(facts: Mapping[str, Any]) -> str:
    return "every site was brought to the mean scale" if facts.get("gains") == "site" else "as they are"


def _spikes(facts: Mapping[str, Any]) -> str:
    errors, bursts = _names(facts.get("spikes")), _names(facts.get("bursts"))
    said = [f"left out as errors: {errors}"] if errors else []
    said += [f"kept as bursts: {bursts}"] if bursts else []
    return "; ".join(said) or "kept, or there were none"


def _empty(facts: Mapping[str, Any]) -> tuple[str, str]:
    n = number(facts.get("n_empty_cells"))
    worth = number(facts.get("n_effective"))
    why = "" if n is None else f"{n:,.0f} cells are empty"
    if facts.get("missing") == "fill" and worth is not None:
        return f"rows count for what they hold, {worth:,.0f} complete ones", why
    return "only complete rows were used" if n is None or n else "there were none", why


def _sites(facts: Mapping[str, Any]) -> tuple[str, str]:
    n, left_out = number(facts.get("n_disagreeing")) or 0, number(facts.get("left_out")) or 0
    if left_out:
        return f"{left_out:.0f} stayed out of the sums", "each found out by itself"
    return (f"{n:.0f}, which stayed in" if n else "none known"), ""
