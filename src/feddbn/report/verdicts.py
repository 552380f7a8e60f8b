"""Plain-language answers to the questions a reader of a result asks first.

Each verdict looks only at what the result says; where it does not say enough the answer is "unknown" with
what would be needed, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from feddbn.core.graphs.constraints import has_cycle
from feddbn.errors import ParameterError
from feddbn.method_table import find_method
from feddbn.model.dbn import DBN
from feddbn.model.paths import usual
from feddbn.report.record import ReportRecord
from feddbn.settings import flat_names
from feddbn.shown import Shown

__all__ = [
    "Level",
    "Verdict",
    "agreement_verdict",
    "are_contradicted",
    "number",
    "residuals_verdict",
    "sentence",
    "treatment_rows",
    "verdicts",
]

Level = Literal["good", "caution", "bad", "unknown"]


@dataclass(frozen=True)
class Verdict(Shown):
    """One question, its short answer, the evidence and what to do."""

    key: str
    question: str
    level: Level
    answer: str
    detail: str = ""
    advice: str = ""


def number(value: object) -> float | None:
    """A finite number of a result, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        return None
    found = float(value)
    return found if np.isfinite(found) else None


def sentence(text: str) -> str:
    """A text with a capital and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".") if text else ""


_SHOWN_LINKS = 4


def verdicts(record: ReportRecord) -> list[Verdict]:
    """The verdicts on a result, in the order in which they are read."""
    found = [
        _converged(record),
        _order(record),
        _empty(record),
        _rows(record),
        _certainty(record),
        residuals_verdict(record),
        agreement_verdict(record),
        _acyclic(record.dbn),
        _stable(record.dbn),
        _revealed(record),
    ]
    return [verdict for verdict in found if verdict is not None]


def _converged(record: ReportRecord) -> Verdict:
    question = "Did it converge?"
    rounds = "" if record.n_rounds is None else f" after {_count(record.n_rounds, 'round')}"
    evidence = _last_round(record)
    message = sentence(record.status_message)
    if record.status_name == "EXACT" or (record.converged is None and _is_direct(record)):
        detail = "The answer comes from sums of statistics without iteration between server and sites."
        return Verdict("converged", question, "good", "There was nothing to iterate.", detail)
    if record.converged is True:
        return Verdict(
            "converged", question, "good", f"Yes{rounds}.", " ".join(filter(None, [message, evidence]))
        )
    if record.converged is None:
        return Verdict(
            "converged",
            question,
            "unknown",
            "The result does not say.",
            evidence,
            "Fit again and store the status.",
        )
    advice = {
        "MAX_ROUNDS": "Raise max_rounds, or loosen tol if the residuals below are small enough for "
        "your purpose.",
        "NOT_ACYCLIC": "Raise max_rounds; if that does not help, raise lambda_w or forbid edges that cannot "
        "exist, so that fewer cycles compete.",
        "STALLED": "Try schedule='gram' and a smaller rho2; weights may still change in the second digit.",
    }.get(record.status_name, "Raise max_rounds and look at the convergence curves below.")
    answer = f"No: it stopped{rounds} before it was done."
    return Verdict("converged", question, "bad", answer, " ".join(filter(None, [message, evidence])), advice)


def _is_direct(record: ReportRecord) -> bool:
    """Whether the method asks once, or a few times for different sums, instead of iterating."""
    return record.history is None and record.n_rounds is not None and record.n_rounds <= 3


def _order(record: ReportRecord) -> Verdict:
    question = "Is the order within a moment identified, or read off the scales?"
    if not np.any(record.dbn.W):
        detail = "Every effect is delayed, so time itself gives the direction."
        return Verdict("order", question, "good", "There is no order to identify.", detail)
    facts = record.diagnostics
    noise = str(facts.get("noise_variance") or record.parameters.get("noise_variance") or "").lower()
    sensitive = facts.get("scale_sensitive")
    share = number(facts.get("varsortability"))
    evidence = ""
    if share is not None:
        scale = "0.5: scales say nothing; 1: causes always vary less than effects"
        evidence = f"Varsortability is {share:.2f} ({scale})."
    if record.dbn.open_edges:
        return _open_directions(record, question)
    if noise in {"free", "unequal"}:
        detail = "The fit lets every variable have its own noise variance, so units do not decide directions."
        if record.says_open:
            detail += " The data tell the direction of every link within a moment."
            return Verdict("order", question, "good", "Identified.", f"{detail} {evidence}".strip())
        detail += (
            " With Gaussian noise some directions within a moment fit equally well either way, and the result does not "
            "say which; delayed effects are not affected."
        )
        return Verdict(
            "order", question, "unknown", "Not read off the scales; which directions are open is not known.",
            f"{detail} {evidence}".strip(), "Fit again with this version, which stores them.",
        )  # fmt: skip
    row = find_method(record.method, offered=True)
    reads_scales = noise == "equal" or (row is not None and row.reads_scales)
    if sensitive is True or (reads_scales and share is not None and share >= 0.8):
        return Verdict(
            "order", question, "caution", "Probably read off the scales.",
            f"The directions within a moment follow the size of the variances. {evidence}".strip(),
            "If the units are arbitrary, refit with OneShotDBN(noise_variance='free') and keep what agrees.",
        )  # fmt: skip
    if sensitive is False:
        detail = f"Rescaling the variables did not change the directions. {evidence}".strip()
        return Verdict("order", question, "good", "Not read off the scales.", detail)
    if reads_scales and facts.get("scale") == "federated":
        return Verdict(
            "order", question, "caution", "Not read off the scales, but the noise may differ.",
            f"The variables were scaled to unit variance; {record.method} then takes their noise to be alike. "
            f"{evidence}".strip(),
            "Refit with OneShotDBN(noise_variance='free') and compare.",
        )  # fmt: skip
    if reads_scales:
        return Verdict(
            "order", question, "caution", "It depends on the units.",
            f"{record.method} assumes that all noise variances are alike in the given units. "
            f"{evidence}".strip(),
            "Check that the units are comparable, or refit with OneShotDBN(noise_variance='free') "
            "and compare.",
        )  # fmt: skip
    return Verdict("order", question, "unknown", "The result does not say.", evidence)


def _open_directions(record: ReportRecord, question: str) -> Verdict:
    """How many links have no direction, which, and what might settle them."""
    pairs, n_links = record.dbn.open_edges, int(np.count_nonzero(record.dbn.is_edge[0]))
    shown = ", ".join(f"{source} — {target}" for source, target in pairs[:_SHOWN_LINKS])
    more = f" and {len(pairs) - _SHOWN_LINKS} more" if len(pairs) > _SHOWN_LINKS else ""
    answer = f"{len(pairs)} of {_count(n_links, 'link')} within a moment {'has' if len(pairs) == 1 else 'have'} no direction."
    detail = (
        f"That these are linked is one question, which way is another that the data leave open: {shown}{more}. They are "
        "drawn without a head. Effects and responses along them follow the direction that was stored, which may be wrong."
    )
    names = {"OneShotDBN": "noise_variance='equal' if the units are comparable"}
    settle = names.get(
        record.method, "scale='none' if the units are comparable, OneShotDBN if the noise is not Gaussian"
    )
    advice = f"What might settle them: forbidden_edges for directions that cannot be, {settle}, or an intervention."
    return Verdict("order", question, "caution", answer, detail, advice)


def _empty(record: ReportRecord) -> Verdict:
    question = "Is the graph empty, and why?"
    is_edge = record.dbn.is_edge
    n_now, n_lagged = int(np.count_nonzero(is_edge[0])), int(np.count_nonzero(is_edge[1:]))
    if n_now + n_lagged:
        detail = f"{_count(n_now, 'effect')} within a moment and {_count(n_lagged, 'delayed effect')}."
        if not n_now:
            detail += " Nothing acts within a moment" + (
                f": lambda_w = {record.parameters['lambda_w']} may be too strong."
                if "lambda_w" in record.parameters
                else "."
            )
        return Verdict("empty", question, "good", "It is not empty.", detail)
    reasons, advice = _why_empty(record)
    detail = (
        " ".join(reasons)
        or "The result holds no clue; the variables may simply not influence each other linearly."
    )
    return Verdict("empty", question, "bad", "It is empty.", detail, advice)


def _why_empty(record: ReportRecord) -> tuple[list[str], str]:
    settings, facts = record.parameters, record.diagnostics
    reasons: list[str] = []
    advice = "Lower lambda_w and lambda_a, or let `select` choose them."
    largest = number(facts.get("largest_raw_weight"))
    threshold = max(number(settings.get("w_threshold")) or 0.0, number(settings.get("a_threshold")) or 0.0)
    strongest_penalty = number(facts.get("lambda_max"))
    used = max(number(settings.get("lambda_w")) or 0.0, number(settings.get("lambda_a")) or 0.0)
    if largest and threshold and largest < threshold:
        reasons.append(f"The threshold {threshold:g} removed every weight; the largest was {largest:.3g}.")
        advice = "Lower w_threshold and a_threshold."
    elif strongest_penalty is not None and used >= strongest_penalty:
        reasons.append(
            f"The penalty {used:g} is at least {strongest_penalty:.3g}, above which every weight is zero."
        )
    elif used:
        reasons.append(f"The penalty {used:g} may be stronger than every effect in the data.")
    if record.converged is False and (record.n_rounds or 0) <= 1:
        reasons.append("The fit stopped after its first round, before anything was learned.")
        advice = "Raise max_rounds."
    n_rows, needed = record.n_rows, (record.dbn.n_lags + 1) * record.dbn.d
    if n_rows is not None and n_rows < needed:
        reasons.append(f"Only {n_rows:,} rows support {needed:,} coefficients per variable.")
    return reasons, advice


def _rows(record: ReportRecord) -> Verdict:
    question = "Are there enough rows?"
    n_rows = record.n_rows
    needed = (record.dbn.n_lags + 1) * record.dbn.d
    if n_rows is None:
        return Verdict("rows", question, "unknown", "The result does not say how many rows were used.")
    ratio = n_rows / needed
    where = _count(len(record.sites), "site")
    detail = f"{n_rows:,} usable rows at {where} for {needed:,} possible causes of each variable."
    lost = record.sites["dropped_rows"].sum(min_count=1)
    if lost and np.isfinite(lost):
        detail += f" {int(lost):,} rows were dropped (gaps, missing values, first rows of a recording)."
    small = record.sites.loc[record.sites["rows"] < needed, "name"]
    if len(small) and record.personal:
        detail += f" {_count(len(small), 'site')} could not fit a network alone and lean on the others."
    if ratio >= 5:
        return Verdict("rows", question, "good", "Yes.", detail)
    advice = "Use fewer lags or variables, add data, or trust only edges with a high probability."
    if ratio >= 1:
        return Verdict("rows", question, "caution", "Barely.", detail, advice)
    return Verdict("rows", question, "bad", "No: there are more possible causes than rows.", detail, advice)


def _certainty(record: ReportRecord) -> Verdict | None:
    question = "How sure are the edges?"
    # A link is sure or not whichever way it points; its direction is a question of its own.
    known = record.edges["presence"].fillna(record.edges["probability"]).dropna()
    if not len(record.edges):
        return None
    if not len(known):
        return Verdict(
            "certainty", question, "unknown", "No probabilities were computed.", "",
            "OneShotDBN reports edge probabilities; `feddbn confidence` computes them by resampling at the "
            "sites, and `feddbn report --edges` shows them here.",
        )  # fmt: skip
    sure, unsure = int((known >= 0.9).sum()), int((known < 0.5).sum())
    detail = f"{_count(sure, 'edge')} of {len(known)} at probability 0.9 or more; {unsure} below 0.5."
    if are_contradicted(record):
        return Verdict(
            "certainty", question, "caution", "Less sure than the probabilities say.",
            f"{detail} They hold if the model does, which the residuals contradict.",
        )  # fmt: skip
    level: Level = "good" if sure >= len(known) / 2 else "caution"
    return Verdict(
        "certainty", question, level, "Mostly sure." if level == "good" else "Many are uncertain.", detail
    )


def _acyclic(dbn: DBN) -> Verdict | None:
    if not has_cycle(dbn.is_edge[0]):
        return None
    return Verdict(
        "acyclic", "Is the graph within a moment free of cycles?", "bad", "No.",
        "Some variables are their own cause within one moment, which no such model allows; averages "
        "and votes of graphs "
        "can do that.", "Use FDBNL or OneShotDBN, which cannot return cycles.",
    )  # fmt: skip


def _stable(dbn: DBN) -> Verdict | None:
    question = "Is the learned process stable?"
    if not dbn.n_lags:
        return None
    if dbn.bends:
        return _settled(dbn, question)
    try:
        radius = dbn.spectral_radius
    except ParameterError:
        return None
    if radius < 0.98:
        return Verdict("stable", question, "good", "Yes.", f"Shocks die out (spectral radius {radius:.2f}).")
    if radius < 1:
        detail = (
            f"Shocks die out very slowly (spectral radius {radius:.3f}): effects far ahead are unreliable."
        )
        return Verdict(
            "stable", question, "caution", "Only just.", detail, "Difference or detrend the series."
        )
    detail = (
        f"Shocks grow without end (spectral radius {radius:.2f}): forecasts and long-run effects mean little."
    )
    return Verdict(
        "stable", question, "bad", "No.", detail, "Difference or detrend the series, or use fewer lags."
    )


def _settled(dbn: DBN, question: str) -> Verdict:
    """With curves: whether simulated paths stay where they are."""
    try:
        usual(dbn)
    except ParameterError as error:
        return Verdict(
            "stable", question, "bad", "No.", f"{str(error)[:1].upper()}{str(error)[1:]}",
            "Trust forecasts of few steps only"
            + ("." if dbn.conditionals else ", or fit with features='linear' and compare."),
        )  # fmt: skip
    return Verdict("stable", question, "good", "Yes.", "Simulated paths settle and stay there.")


def _revealed(record: ReportRecord) -> Verdict:
    question = "What did the server learn about one site?"
    privacy: Mapping[str, Any] = record.privacy or {}
    epsilon = number(privacy.get("epsilon"))
    hidden = bool(privacy.get("secure_aggregation"))
    spent = ""
    if epsilon is not None:
        delta = number(privacy.get("delta"))
        spent = (
            f"Differential privacy bounds what they say: epsilon {epsilon:.3g}"
            + (f" at delta {delta:.1g}" if delta is not None else "")
            + (f" for each {privacy['unit']}." if privacy.get("unit") else ".")
        )
    if hidden:
        detail = "Secure aggregation: the server saw sums over sites only. " + (
            spent or "The sums themselves carry no differential privacy."
        )
        return Verdict("revealed", question, "good", "Nothing beyond the sums.", detail)
    if epsilon is not None:
        return Verdict("revealed", question, "caution", "Noisy messages of each site.", spent)
    answer, how = _plain_messages(record)
    detail = (
        f"No secure aggregation and no differential privacy are recorded. {how} "
        "For a simulation on one machine this does not matter."
    )
    advice = "Between organisations, switch on secure aggregation."
    return Verdict("revealed", question, "caution", answer, detail, advice)


def _plain_messages(record: ReportRecord) -> tuple[str, str]:
    """What a server can read from messages that nothing protects, in short and in a sentence."""
    row = find_method(record.method, offered=True)
    if row is not None and row.plain_messages is not None:
        return row.plain_messages
    if _is_direct(record):
        return "Its second moments.", "What a site sends in one round is its second moments."
    return (
        "Possibly its second moments.",
        "Plain messages of an iterative method determine a site's second moments after a few rounds.",
    )


def _last_round(record: ReportRecord) -> str:
    if record.history is None:
        return ""
    last = record.history.iloc[-1]
    names = {"h": "acyclicity h", "primal": "primal residual", "dual": "dual residual"}
    parts = [
        f"{text} {float(last[c]):.2g}"
        for c, text in names.items()
        if c in last and np.isfinite(float(last[c]))
    ]
    return "In the last round: " + ", ".join(parts) + "." if parts else ""


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


_CONTRADICTIONS = {
    "hidden": "hidden causes explain the rows better than edges (score better by {hidden_gain:.0f})",
    "memory": "residuals go along with earlier ones (p {memory_p:.1g})",
    "dependence": "residuals of the same row correlate (up to {dependence:.2f})",
    "volatility": "the noise's variance changes from row to row (evidence is worth {n_effective:,.0f} of {n_rows:,} rows)",
    "thirds": "the noise's variance changes over the recordings (by a factor of up to {variance_ratio:.1f})",
    "spread": "recordings differ in their noise's variance",
    "tails": "the noise has heavy tails (kurtosis up to {kurtosis:.0f})",
}


def residuals_verdict(record: ReportRecord) -> Verdict | None:
    """What the method found when it looked at its residuals; None if it did not."""
    facts = record.diagnostics.get("residuals")
    if not isinstance(facts, Mapping):
        return None
    question = "Do the residuals fit the model?"
    found = [name for name in facts.get("violations") or () if name in _CONTRADICTIONS]
    told = [_told(name, facts) for name in found]
    memory = number(facts.get("noise_memory"))
    if memory is not None:
        told.append(f"the noise's memory of {memory:.2f} was taken off before learning")
    if number(facts.get("n_lags_added")):
        told.append("a lag was added, which leaves residuals without memory")
    detail = sentence("; ".join(told))
    if are_contradicted(record):
        advice = "Edges, also those at a probability near 1, may stand for something else: read the warnings below."
        return Verdict("residuals", question, "bad", "No.", detail, advice)
    if found:
        advice = "Read the warnings below before relying on single edges."
        return Verdict("residuals", question, "caution", "Not quite.", detail, advice)
    return Verdict(
        "residuals",
        question,
        "good",
        "Yes.",
        detail or "They remember nothing, and their variance is steady.",
    )


def _told(name: str, facts: Mapping[str, Any]) -> str:
    """The contradiction with its numbers, without them if the result does not say."""
    try:
        return _CONTRADICTIONS[name].format(**facts)
    except (KeyError, TypeError, ValueError):
        return _CONTRADICTIONS[name].split(" (")[0]


def are_contradicted(record: ReportRecord) -> bool:
    """Whether residuals say that edges may stand for something else."""
    facts = record.diagnostics.get("residuals")
    return isinstance(facts, Mapping) and bool(
        {"hidden", "memory", "dependence"} & set(facts.get("violations") or ())
    )


def treatment_rows(record: ReportRecord) -> list[tuple[str, str, str]]:
    """(what was looked at, what was done, why) of a result; empty if it does not say."""
    facts = record.diagnostics.get("treatment")
    if not isinstance(facts, Mapping):
        return []
    rows = [
        ("Means, trends, cycles", _course(facts), _evidence(facts.get("evidence"))),
        ("Scales of sites", _gains(facts), _evidence(facts.get("gains_evidence"))),
        ("Far cells", _spikes(facts), ""),
        ("Empty cells", *_empty_cells(facts)),
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
    asked = flat_names(record.parameters).get("on_disagreement")
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


def _empty_cells(facts: Mapping[str, Any]) -> tuple[str, str]:
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
