"""What reports answer: the verdicts on a result, and what was done to its rows, as cards."""

from __future__ import annotations

from collections.abc import Callable

from feddbn.words import Card, Said, counted, full_sentence, says, says_as
from feddbn.words.fits import alone_counts

_CONTRADICTIONS = {
    "hidden": "hidden causes explain the data better than edges (score better by {hidden_gain:.0f})",
    "memory": "residuals are autocorrelated (p {memory_p:.1g})",
    "dependence": "residuals of the same row correlate (up to {dependence:.2f})",
    "volatility": "the noise variance changes from row to row (the data are worth {n_effective:,.0f} of {n_rows:,} rows)",
    "thirds": "the noise variance changes over time (by a factor of up to {variance_ratio:.1f})",
    "spread": "the noise variance differs between recordings",
    "tails": "the noise has heavy tails (kurtosis up to {kurtosis:.0f})",
    "change": "some effects change over time",
}


def _free(it: Said) -> str:
    """The method that does not read directions off the scales, as the reader asks for it."""
    free = it.setting("noise_variance", "free")
    return {"python": f"OneShotDBN({free})", "cli": f"--method oneshot {free}"}.get(
        it.audience, f'method = "oneshot" and {free}'
    )


@says("verdict-alone")
def _alone(it: Said) -> Card:
    question = "Is this network better for a site than its own?"
    if it["answer"] == "unknown":
        return Card(
            question,
            "Not known.",
            "A site does not answer the task 'loss.alone', or all have too few rows to compare.",
        )
    detail = (
        "Each site learned a network from its own rows and compared the two on rows that neither was learned from. "
        "Equal: the difference is too small to matter, or to be detected with these rows."
    )
    answer = full_sentence(alone_counts(it.finding.values))
    if it["answer"] == "none":
        return Card(question, answer, detail)
    personal, levels = it.method("PFDBNL", "pfdbnl"), it.setting("prepare.center", "recording")
    advice = (
        f"Check units and column names of all sites. If recordings differ in level, use {levels}. If sites really differ, "
        f"use {personal}: it gives each site a network of its own."
    )
    return Card(question, answer, detail, advice)


@says("verdict-converged")
def _converged(it: Said) -> Card:
    question, answer = "Did it converge?", it["answer"]
    if answer == "exact":
        detail = "The answer comes from sums of statistics without iteration between server and sites."
        return Card(question, "There was nothing to iterate.", detail)
    names = {"h": "acyclicity h", "primal": "primal residual", "dual": "dual residual"}
    last = ", ".join(f"{names[name]} {value:.2g}" for name, value in it["last"].items())
    evidence = f"In the last round: {last}." if last else ""
    if answer == "unknown":
        return Card(question, "The result does not say.", evidence, "Fit again and store the status.")
    rounds = "" if it["rounds"] is None else f" after {counted(it['rounds'], 'sum')}"
    detail = " ".join(filter(None, [full_sentence(it["message"]), evidence]))
    if answer == "yes":
        return Card(question, f"Yes{rounds}.", detail)
    advice = {
        "MAX_ROUNDS": "Raise max_rounds, or loosen tol if the residuals below are small enough for your purpose.",
        "NOT_ACYCLIC": "Raise max_rounds; if that does not help, raise lambda_w or forbid edges that cannot exist, so that "
        "fewer cycles compete.",
    }.get(it["status"], "Raise max_rounds and look at the convergence curves below.")
    return Card(question, f"No: it stopped{rounds} before it was done.", detail, advice)


@says("verdict-order")
def _order(it: Said) -> Card:
    answer, advice = (
        _ORDERS[it["answer"]](it) if it["answer"] in _ORDERS else ("The result does not say.", "")
    )
    detail = _ORDER_DETAILS.get(it["answer"], "").format(method=it["method"])
    if it["answer"] == "open":
        links = ", ".join(f"{source} — {target}" for source, target in it["links"])
        more = it["n_open"] - len(it["links"])
        detail = (
            "These variables are linked, but the data do not show in which direction: "
            f"{links}{f' and {more} more' if more else ''}. They are drawn without an arrowhead. Effects and responses along "
            "them use the stored direction, which may be wrong."
        )
    elif it["varsortability"] is not None and it["answer"] != "nothing":
        scale = "0.5: scales say nothing; 1: causes always vary less than effects"
        detail = f"{detail} Varsortability is {it['varsortability']:.2f} ({scale}).".strip()
    return Card("Are contemporaneous directions identified, or read off the scales?", answer, detail, advice)


_ORDERS: dict[str, Callable[[Said], tuple[str, str]]] = {
    "nothing": lambda it: ("There is no order to identify.", ""),
    "open": lambda it: (
        f"{it['n_open']} of {counted(it['n_links'], 'contemporaneous link')} {'has' if it['n_open'] == 1 else 'have'} no "
        "direction.",
        "What could decide them: forbidden edges for impossible directions, "
        + (
            f"{it.setting('noise_variance', 'equal')} if the units are comparable"
            if it["method"] == "OneShotDBN"
            else f"{it.setting('prepare.scale', 'none')} if the units are comparable, OneShotDBN if the noise is not Gaussian"
        )
        + ", or an intervention.",
    ),
    "identified": lambda it: ("Identified.", ""),
    "scales": lambda it: (
        "Probably read off the scales.",
        f"If the units are arbitrary, refit with {_free(it)} and keep what agrees.",
    ),
    "not-scales": lambda it: ("Not read off the scales.", ""),
    "alike": lambda it: (
        "Not read off the scales, but the noise may differ.",
        f"Refit with {_free(it)} and compare.",
    ),
    "units": lambda it: (
        "It depends on the units.",
        f"Check that the units are comparable, or refit with {_free(it)} and compare.",
    ),
}
_OWN = "The fit lets every variable have its own noise variance, so units do not decide directions."
_ORDER_DETAILS = {
    "nothing": "Every effect is delayed, so time itself gives the direction.",
    "identified": f"{_OWN} The data show the direction of every contemporaneous link.",
    "scales": "The contemporaneous directions follow the size of the variances.",
    "not-scales": "Rescaling the variables did not change the directions.",
    "alike": "The variables were scaled to unit variance; {method} then assumes equal noise variances.",
    "units": "{method} assumes that all noise variances are equal in the given units.",
}


@says("verdict-empty")
def _empty(it: Said) -> Card:
    question = "Is the graph empty, and why?"
    if it["answer"] == "no":
        detail = f"{counted(it['n_now'], 'contemporaneous effect')} and {counted(it['n_lagged'], 'delayed effect')}."
        if not it["n_now"]:
            penalty = f": lambda_w = {it['lambda_w']} may be too strong" if it["lambda_w"] is not None else ""
            detail += f" Nothing acts within a time step{penalty}."
        return Card(question, "It is not empty.", detail)
    reasons = {
        "threshold": "The threshold {threshold:g} removed every weight; the largest was {largest:.3g}.",
        "penalty": "The penalty {penalty:g} is at least {strongest_penalty:.3g}, above which every weight is zero.",
        "perhaps-penalty": "The penalty {penalty:g} may be stronger than every effect in the data.",
        "first-round": "The fit stopped after its first round, before anything was learned.",
        "few-rows": "Only {n_rows:,} rows support {needed:,} coefficients per variable.",
    }
    detail = " ".join(reasons[reason].format(**it.finding.values) for reason in it["reasons"])
    advice = "Lower lambda_w and lambda_a, or let `select` choose them."
    if "first-round" in it["reasons"]:
        advice = "Raise max_rounds."
    elif "threshold" in it["reasons"]:
        advice = "Lower w_threshold and a_threshold."
    none = "The result holds no clue; the variables may simply not influence each other linearly."
    return Card(question, "It is empty.", detail or none, advice)


@says("verdict-rows")
def _rows(it: Said) -> Card:
    question = "Are there enough rows?"
    if it["answer"] == "unknown":
        return Card(question, "The result does not say how many rows were used.")
    detail = (
        f"{it['n_rows']:,} usable rows at {counted(it['n_sites'], 'site')} for {it['needed']:,} possible causes of each "
        "variable."
    )
    if it["n_dropped"]:
        detail += f" {it['n_dropped']:,} rows were dropped (gaps, missing values, first rows of a recording)."
    if it["n_small"]:
        detail += (
            f" {counted(it['n_small'], 'site')} could not fit a network alone and depends on the others."
        )
    answers = {"yes": "Yes.", "barely": "Barely.", "no": "No: there are more possible causes than rows."}
    advice = "Use fewer lags or variables, add data, or trust only edges with a high probability."
    if it["answer"] == "lost":
        answer = "No: the method uses complete rows only, and most rows have an empty cell."
        return Card(
            question, answer, detail, "Use a method that takes rows with empty cells, such as OneShotDBN."
        )
    return Card(question, answers[it["answer"]], detail, "" if it["answer"] == "yes" else advice)


@says("verdict-certainty")
def _certainty(it: Said) -> Card:
    question = "How sure are the edges?"
    if it["answer"] == "unknown":
        advice = (
            "OneShotDBN reports edge probabilities; `feddbn confidence` computes them by resampling at the sites, and "
            "`feddbn report --edges` shows them here."
        )
        return Card(question, "No probabilities were computed.", "", advice)
    detail = f"{counted(it['n_sure'], 'edge')} of {it['n']} at probability 0.9 or more; {it['n_unsure']} below 0.5."
    if it["answer"] == "not-told":
        return Card(question, "The data do not show it.", detail, "Do not act on single edges.")
    if it["answer"] == "differ":
        return Card(question, "The table of edges belongs to another network.", detail)
    if it["answer"] == "contradicted":
        detail += " They assume that the model is right, and the residuals contradict it."
        return Card(question, "Less sure than the probabilities say.", detail)
    return Card(question, "Mostly sure." if it["answer"] == "sure" else "Many are uncertain.", detail)


@says("verdict-residuals")
def _residuals(it: Said) -> Card:
    question, parts = "Do the residuals fit the model?", []
    if it["answer"] == "unknown":
        return Card(question, "Not checked.", "So it is not known whether the model fits the data.")
    for name in it["violations"]:
        try:
            parts.append(_CONTRADICTIONS[name].format(**it.finding.values))
        except KeyError:
            # Without its numbers if the result does not say.
            parts.append(_CONTRADICTIONS[name].split(" (")[0])
    if it.get("noise_memory") is not None:
        parts.append(f"autocorrelated noise ({it['noise_memory']:.2f}) was removed before learning")
    if it.get("n_lags_added"):
        parts.append("a lag was added, and residuals are no longer autocorrelated")
    detail = full_sentence("; ".join(parts))
    if it["answer"] == "no":
        advice = "Some edges may be wrong. Read the warnings below."
        return Card(question, "No.", detail, advice)
    if it["answer"] == "not-quite":
        return Card(question, "Not quite.", detail, "Read the warnings below before relying on single edges.")
    return Card(question, "Yes.", detail or "They are not autocorrelated, and their variance is constant.")


@says("verdict-agreement")
def _agreement(it: Said) -> Card:
    question, n, answer = "Do the sites agree?", it["n"], it["answer"]
    if answer == "yes":
        detail = "The sites compared themselves with the others. None found that it does not fit."
        return Card(question, "Yes.", detail)
    no = f"No: {'one site does' if n == 1 else f'{n} sites do'} not fit the others."
    if answer in ("left-out", "personal"):
        who, owners = ("It", "its owner was") if n == 1 else ("They", "their owners were")
        detail = f"{who} stayed out of the sums, and {owners} told why; the network is that of the others."
        other = f"learn a network for each site with {it.method('PFDBNL', 'pfdbnl')}"
        if answer == "personal":
            other = "use the network learned from the rows there alone"
        return Card(question, no, detail, f"Correct the data there and fit again, or {other}.")
    if answer == "many":
        advice = (
            f"One network for all is wrong for some: {it.method('PFDBNL', 'pfdbnl')} learns one for each."
        )
        return Card(question, no, "There seem to be several kinds of sites.", advice)
    exclude = it.setting("prepare.on_disagreement", "exclude")
    advice = f"{exclude} leaves out what does not fit; owners are told what it is."
    return Card(question, no, "All sites are in the sums.", advice)


says_as(
    {
        "verdict-acyclic": (
            "Is the contemporaneous graph free of cycles?",
            "No.",
            (
                "Some variables are their own cause within one time step, which the model does not allow. Averages of "
                "networks can have such cycles."
            ),
            "Use FDBNL or OneShotDBN, which cannot return cycles.",
        ),
        "truth-left-out": "the true network has other variables than the learned one and is not shown.",
        "predicts-best": "{it.names} predicts held-out rows best among {n} methods.",
        "fewest-wrong-edges": "{it.names} has the fewest wrong edges among {n} methods.",
        "nothing-compares": "{n} methods. Without a true network or held-out rows, it is unknown which is better.",
    }
)


@says("verdict-stable")
def _stable(it: Said) -> Card:
    question, answer = "Is the learned process stable?", it["answer"]
    if answer == "settles":
        return Card(question, "Yes.", "Simulated paths settle and stay there.")
    if answer == "leaves":
        linear = "" if it["has_kinds"] else f", or fit with {it.setting('features', 'linear')} and compare"
        return Card(question, "No.", full_sentence(it["why"]), f"Trust forecasts of few steps only{linear}.")
    radius = it["radius"]
    if answer == "yes":
        return Card(question, "Yes.", f"Shocks die out (spectral radius {radius:.2f}).")
    if answer == "slowly":
        detail = (
            f"Shocks die out very slowly (spectral radius {radius:.3f}): effects far ahead are unreliable."
        )
        return Card(question, "Only just.", detail, "Difference or detrend the series.")
    detail = (
        f"Shocks grow without end (spectral radius {radius:.2f}): forecasts and long-run effects mean little."
    )
    return Card(question, "No.", detail, "Difference or detrend the series, or use fewer lags.")


@says("verdict-revealed")
def _revealed(it: Said) -> Card:
    question = "What did the server learn about one site?"
    if it["answer"] == "plain":
        answer, how = it["messages"] or (
            ("Its second moments.", "What a site sends in one round is its second moments.")
            if it["is_direct"]
            else (
                "Possibly its second moments.",
                "Plain messages of an iterative method determine a site's second moments after a few rounds.",
            )
        )
        detail = (
            f"No secure aggregation and no differential privacy are recorded. {how} For a simulation on one machine this "
            "does not matter."
        )
        return Card(question, answer, detail, "Between organisations, switch on secure aggregation.")
    spent = ""
    if it["epsilon"] is not None:
        delta = f" at delta {it['delta']:.1g}" if it["delta"] is not None else ""
        unit = f" for each {it['unit']}" if it["unit"] else ""
        spent = f"Differential privacy limits what they reveal: epsilon {it['epsilon']:.3g}{delta}{unit}."
    if it["answer"] == "noise":
        return Card(question, "Noisy messages of each site.", spent)
    spent = spent or "The sums themselves carry no differential privacy."
    detail = f"Secure aggregation: the server saw sums over sites only. {spent}"
    return Card(question, "Nothing beyond the sums.", detail)


def _evidence(value: float | None) -> str:
    if value is None:
        return "not checked, or set by the user"
    return f"BIC {abs(value):,.0f} {'better' if value > 0 else 'worse'} with each its own"


@says("treated-course")
def _treated_course(it: Said) -> Card:
    done = "one mean for all rows"
    if it["is_own"]:
        parts = ["mean"]
        if it["degree"]:
            parts.append("line" if it["degree"] == 1 else f"polynomial of degree {it['degree']}")
        if it["periods"]:
            parts.append(f"cycles of {', '.join(f'{period:.4g}' for period in it['periods'])} rows")
        done = f"subtracted from each recording: its own {', '.join(parts)}"
    return Card("Means, trends, cycles", done, _evidence(it["evidence"]))


@says("treated-scales")
def _treated_scales(it: Said) -> Card:
    done = "every site was rescaled to the mean scale" if it["is_common"] else "unchanged"
    return Card("Scales of sites", done, _evidence(it["evidence"]))


@says("treated-outliers")
def _treated_outliers(it: Said) -> Card:
    done = (
        f"given less weight: {', '.join(it['bounded'])}" if it["bounded"] else "unchanged, or there were none"
    )
    return Card("Outliers", done)


@says("treated-empty")
def _treated_empty(it: Said) -> Card:
    n, worth = it["n"], it["worth"]
    why = "" if n is None else f"{n:,.0f} cells are empty"
    if it["is_filled"] and worth is not None:
        return Card("Empty cells", f"all rows were used, worth {worth:,.0f} complete ones", why)
    return Card("Empty cells", "only complete rows were used" if n is None or n else "there were none", why)


@says("treated-sites")
def _treated_sites(it: Said) -> Card:
    what = "Sites that do not fit"
    if it["left_out"]:
        return Card(what, f"{it['left_out']:.0f} stayed out of the sums", "each site found this itself")
    return Card(what, f"{it['n_disagreeing']:.0f}, which stayed in" if it["n_disagreeing"] else "none known")


@says("treated-unseen")
def _treated_unseen(it: Said) -> Card:
    names = ", ".join(" and ".join(pair) for pair in it["pairs"])
    return Card(
        "Hardly ever measured together", names, "edges between these are guessed from other variables"
    )


@says("treated-inputs")
def _treated_inputs(it: Said) -> Card:
    asked = f"asked for by {it.option('prepare.exogenous')}"
    return Card("Known inputs", f"{it.names}: no edge leads into them", asked)
