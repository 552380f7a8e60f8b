"""What fits say: about the network they learned and how they came to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feddbn.findings import Finding
from feddbn.words import Said, counted, say, says

_MOST_EDGES = 8


def alone_counts(values: Mapping[str, Any]) -> str:
    """For how many sites a network is better than their own, equal, worse: "better for 3 sites, equal for 1"."""
    told = [(word, int(values[word])) for word in ("better", "equal", "worse") if values[word]]
    first = [f"{word} for {counted(n, 'site')}" for word, n in told[:1]]
    return ", ".join([*first, *(f"{word} for {n}" for word, n in told[1:])])


@says("alone")
def _alone(it: Said) -> str:
    if not any(it.finding.values.values()):
        return (
            "whether this network is better for a site than its own is not known: a site does not answer the task "
            "'loss.alone'."
        )
    which = f" ({it.names})" if it.finding.about else ""
    start = (
        f"compared with what each site learns alone, this network is {alone_counts(it.finding.values)}{which}"
    )
    if not it["worse"]:
        return f"{start}."
    personal = it.method("PFDBNL", "pfdbnl")
    own = f" {it.cure} takes off the levels of recordings." if it.finding.cure else ""
    return (
        f"{start}. Where it is worse, the sites differ, or edges are missing from it: check units and column names, or use "
        f"{personal}, which gives each site a network of its own.{own}"
    )


@says("alone-here")
def _alone_here(it: Said) -> str:
    if not it["n_blocks"]:
        return (
            f"this site has too few rows ({it['n_rows']:,}) to compare the federation's network with its own."
        )
    word = {"better": "better than", "worse": "worse than", "equal": "as well as"}[it["verdict"]]
    return (
        f"the federation's network predicts this site's rows {word} a network of its own ({it['n_rows']:,} rows, "
        f"log-likelihood of a row {it['gain']:+.3f}, standard error {it['error']:.3f}). The lead sees only how many sites "
        "found the same."
    )


@says("few-rows-for-marks")
def _few_rows_for_marks(it: Said) -> str:
    return f"{it['n']:,.0f} rows are few for {it['q']} columns: weak edges will be missing, and marks may rest on chance."


@says("marks")
def _marks(it: Said) -> str:
    where = "edges_ has all" if it.in_python else "ancestral_graph in the result has all"
    return (
        f"of {it['n_edges']} edges {it['n_hidden']} are due to hidden causes ('<->') and {it['n_open']} may be ('o->', "
        f"'o-o'); the network has only those that are causes ('-->'); {where}."
    )


@says("plain-autoregression")
def _plain_autoregression(it: Said) -> str:
    what = " `summary_` is for the algorithms of feddbn.interop." if it.in_python else ""
    return f"this network is the plain vector autoregression: every lagged weight is in it, and none was selected.{what}"


@says("cyclic-marks")
def _cyclic_marks(it: Said) -> str:
    return (
        f"{it['n']} contemporaneous edges are left out of the network, since marks make a cycle of them: the data contradict "
        "each other there."
    )


@says("could-be-hidden")
def _could_be_hidden(it: Said) -> str:
    edges = it["edges"]
    shown = [
        f"{source} -> {target}{f' (lag {lag})' if lag else ''}" for source, target, lag in edges[:_MOST_EDGES]
    ]
    more = f" and {len(edges) - _MOST_EDGES} more" if len(edges) > _MOST_EDGES else ""
    causes = " and another one of ".join(", ".join(one) for one in it["causes"])
    how = "better" if it["gain"] > 0 else "about as well"
    where = "`hidden_` has a line for each edge (docs/causal.md)" if it.in_python else "see docs/causal.md"
    return (
        f"{len(edges)} of {it['n_edges']} edges could be something that was not measured: a hidden cause of {causes} "
        f"describes the rows {how} without {', '.join(shown)}{more}. {where}."
    )


@says("curves")
def _curves(it: Said) -> str:
    what = f"{it['n_curves']} of {it['n_edges']} edges are curved"
    if it["n_products"]:
        what += f", and {it['n_products']} pairs of variables act together"
    if it["gain"] is not None:
        auto = it.setting("features", "auto")
        what += f" ({auto} took splines: the score is better by {it['gain']:.0f}); {it.cure} leaves straight lines"
    has = "; `dbn_.effect(source, target, lag).to_frame()` has the curves" if it.in_python else ""
    return f"{what}. Weights are average slopes{has}."


@says("few-rows-for-curves")
def _few_rows_for_curves(it: Said) -> str:
    others = " or ".join(it.setting("features", one) for one in it["others"])
    return (
        f"the noise leaves as much as {it['n']:.0f} rows would tell about {it['q']} columns of lines and curves: many edges "
        f"and curves may be missed; use {others}, more recordings or a larger epsilon."
    )


@says("rows-added")
def _rows_added(it: Said) -> str:
    return (
        f"{it['n_new']} rows were added to {it['n_before']} that were fitted before; only covariances were added up, so the "
        "shape of the noise, curves and residuals were not looked at again."
    )


@says("treated-as-before")
def _treated_as_before(it: Said) -> str:
    told = {
        "own_means": "means of each recording are taken off",
        "degree": f"trends of degree {it.get('degree')} are taken off each recording",
        "periods": f"cycles of {', '.join(f'{period:.4g}' for period in it.get('periods', ()))} rows are taken off",
        "outliers": f"far cells of {', '.join(it.get('outliers', ()))} count for less",
        "own_scales": "sites are brought to one scale",
        "n_disagreeing": f"{it.get('n_disagreeing')} sites do not fit the others",
    }
    changes = "; ".join(told[what] for what in it.finding.values)
    return (
        f"the new rows alone would be treated otherwise than the old ones were ({changes}), and were treated as these; fit "
        "all rows again to decide for all."
    )


@says("not-selected-by-spread")
def _no_spread(it: Said) -> str:
    return (
        f"fewer than {it['fewest']} sites take part, whose squared losses would tell them apart; so the candidate with the "
        "lowest loss was taken, without a standard error."
    )


@says("sites-not-compared")
def _sites_not_compared(it: Said) -> str:
    return (
        "whether one site has other units, exchanged columns or other relations than the rest was not looked at; "
        f"{it.cure} has sites compare themselves, if their owners allow the task 'agreement'."
    )


@says("noise-shape-not-looked-at")
def _noise_shape(it: Said) -> str:
    return (
        "some contemporaneous directions stay open, and whether the shape of the noise decides them was not looked at; "
        f"{it.cure} has sites tell it, if their owners allow the task 'residuals.shapes'."
    )


_NOT_RESAMPLED = {
    "many": "there are many variables",
    "noise": "the sums carry noise for differential privacy",
    "refused": "a site does not answer the task 'gram.resamples'",
    "sums": "the network was learned from sums that were there",
}


@says("probabilities-not-resampled")
def _not_resampled(it: Said) -> str:
    return (
        "probabilities are those of all rows at once and not averaged over resamples of them, because "
        f"{_NOT_RESAMPLED[it['reason']]}; where the model is not quite right they are too sure."
    )


@says("edges-differ")
def _edges_differ(it: Said) -> str:
    """A table of resampled edges that belongs to another fit."""
    n, m = len(it["only_network"]), len(it["only_table"])
    return (
        f"the result and the table of edges do not have the same network: {counted(it['both'], 'edge')} in both, {n} only in "
        f"the result, {m} only in the table. The report shows the network of the result. Were both made from the same data "
        "with the same method, lags and settings?"
    )


@says("of-site", "site-note")
def _of_site(it: Said) -> str:
    """What was found at one site; files of earlier versions have it as text."""
    found = it.get("text") or say(Finding.from_dict(it["finding"]), it.audience)
    return f"site {it['site']!r}{it.get('what', '')}: {found}"
