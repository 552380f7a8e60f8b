"""What fits say: about the network they learned and how they came to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feddbn.findings import Finding
from feddbn.words import Said, counted, percent, say, says, says_as

_MOST_EDGES = 8


def alone_counts(values: Mapping[str, Any]) -> str:
    """For how many sites a network is better than their own, equal, worse: "better for 3 sites, equal for 1"."""
    told = [(word, int(values[word])) for word in ("better", "equal", "worse") if values[word]]
    first = [f"{word} for {counted(n, 'site')}" for word, n in told[:1]]
    return ", ".join([*first, *(f"{word} for {n}" for word, n in told[1:])])


_UNTOLD = {
    "rows": "every site has too few rows to compare the two",
    "tasks": "not all sites answer this question (task 'loss.alone')",
    None: "not all sites answer this question (task 'loss.alone'), or all have too few rows to compare the two",
}


@says("alone")
def _alone(it: Said) -> str:
    if not any(it[word] for word in ("better", "equal", "worse")):
        return (
            "it is not known whether this network predicts the rows of a site better than a network of its own: "
            f"{_UNTOLD[it.get('why')]}."
        )
    which = f" ({it.names})" if it.finding.about else ""
    if it.get("untold"):
        which += f"; {counted(it['untold'], 'site')} could not decide"
    start = (
        f"compared with what each site learns alone, this network is {alone_counts(it.finding.values)}{which}"
    )
    if not it["worse"]:
        return f"{start}."
    personal = it.method("PFDBNL", "pfdbnl")
    own = f" {it.cure} subtracts the mean of each recording." if it.finding.cure else ""
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


says_as(
    {
        "few-rows-for-marks": (
            "{n:,.0f} rows are few for {q} columns. Weak edges will be missing; some marks may be due to "
            "chance."
        ),
        "cyclic-marks": "{n} contemporaneous edges form a cycle and are left out. The data contradict each other there.",
        "rows-added": (
            "{n_new} new rows were added to {n_before} earlier ones. Only covariances were added. The noise, curves "
            "and residuals were not checked again."
        ),
        "not-selected-by-spread": (
            "fewer than {fewest} sites take part, so their spread cannot be shown without revealing a site. The candidate "
            "with the lowest loss was chosen, without a standard error."
        ),
        "sites-not-compared": (
            "not checked: whether one site has different units, swapped columns or different relations. "
            "{it.cure} makes the sites compare themselves, if their owners allow the task 'agreement'."
        ),
        "noise-shape-not-looked-at": (
            "some contemporaneous directions are unknown. The shape of the noise might decide them, but it was not checked. "
            "{it.cure} checks it, if the owners allow the task 'residuals.shapes'."
        ),
    }
)


@says("marks")
def _marks(it: Said) -> str:
    where = "edges_ has all" if it.in_python else "ancestral_graph in the result has all"
    return (
        f"of {it['n_edges']} edges, {it['n_hidden']} come from hidden causes ('<->') and {it['n_open']} may do so ('o->', "
        f"'o-o'). The network shows only direct causes ('-->'); {where}."
    )


@says("plain-autoregression")
def _plain_autoregression(it: Said) -> str:
    what = " `summary_` is for the algorithms of feddbn.interop." if it.in_python else ""
    return f"this network is a plain vector autoregression. It keeps every lagged weight; no edge was selected.{what}"


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
        f"{len(edges)} of {it['n_edges']} edges may not be real. A hidden cause of {causes} explains the data {how} without "
        f"{', '.join(shown)}{more}. {where[0].upper()}{where[1:]}."
    )


@says("curves")
def _curves(it: Said) -> str:
    what = f"{it['n_curves']} of {it['n_edges']} edges are curved"
    if it["n_products"]:
        what += f", and {it['n_products']} pairs of variables act together"
    if it["gain"] is not None:
        auto = it.setting("features", "auto")
        what += f" ({auto} chose splines, because their score is better by {it['gain']:.0f}); {it.cure} uses straight lines"
    has = "; `dbn_.effect(source, target, lag).to_frame()` has the curves" if it.in_python else ""
    return f"{what}. Weights are average slopes{has}."


@says("doubted-links")
def _doubted(it: Said) -> str:
    edges = [f"{a} -- {b}" if not lag else f"{a} -> {b} at lag {lag}" for a, b, lag in it["edges"]]
    one = len(edges) == 1
    return (
        f"{counted(len(edges), 'edge')} of straight lines {'is' if one else 'are'} left out, since nothing is left of "
        f"{'it' if one else 'them'} beside curves of other causes: {', '.join(edges)}."
    )


@says("knobs")
def _knobs(it: Said) -> str:
    return (
        f"{it.names} look as if somebody set them at random: nothing before tells about them, and they do not go along with "
        f"each other. So no edge leads to them; {it.cure} says so, and leaves out what they are."
    )


@says("too-few-rows")
def _too_few_rows(it: Said) -> str:
    what = "too few rows" if it.finding.level == "error" else "few rows"
    return (
        f"{what}: the fit rests on {it['n']:,.0f} rows with all their lags, and a network has {it['q']} columns (variables "
        f"now and at each lag); {it['needed']:,.0f} rows or more are needed. Edges may be chance. Use more rows, or fewer "
        "variables or lags."
    )


@says("treated-as-before")
def _treated_as_before(it: Said) -> str:
    told = {
        "own_means": "the mean of each recording is subtracted",
        "degree": f"a trend of degree {it.get('degree')} is subtracted from each recording",
        "periods": f"cycles of {', '.join(f'{period:.4g}' for period in it.get('periods', ()))} rows are subtracted",
        "outliers": f"outliers of {', '.join(it.get('outliers', ()))} get less weight",
        "own_scales": "sites are rescaled to a common scale",
        "n_disagreeing": f"{it.get('n_disagreeing')} sites do not fit the others",
    }
    changes = "; ".join(told[what] for what in it.finding.values)
    return (
        f"on their own, the new rows would be prepared differently ({changes}). They were prepared like the old rows. Fit "
        "all rows again to decide for all of them."
    )


_WITHOUT_PARTS = {
    "few": "sites have few rows",
    "many": "there are many variables",
    "refused": "sites do not answer the task 'gram.parts'",
    "sums": "the network was learned from stored sums",
}


@says("parts-not-known")
def _parts_not_known(it: Said) -> str:
    why = _WITHOUT_PARTS[it["reason"]]
    return f"how much parts of the rows differ is not known, because {why}. So every row counts half."


_AGAINST = {
    "hidden": "hidden causes",
    "hidden cause of two": "a hidden cause",
    "memory": "noise that depends on earlier noise",
    "dependence": "noise that is shared between variables",
    "curvature": "curved effects",
    "sites-disagree": "sites that disagree",
    "made-up-values": "values that were not measured",
    "slow-levels": "levels that drift",
    "two-rates": "sites with other time steps",
}


@says("discoveries")
def _discoveries(it: Said) -> str:
    what = f"{counted(it['n_lagged'], 'lagged edge')} and {counted(it['n_links'], 'contemporaneous link')}"
    if it["n"] <= it["n_columns"] + 1:
        return (
            f"the data are worth {it['n']:,.0f} independent rows, too few to test each edge beside all {it['n_columns']} "
            f"columns. {what[0].upper()}{what[1:]} were found. Use fewer variables or lags, or more rows."
        )
    said = (
        f"of {counted(it['n_tested'], 'tested edge')}, {what} are discoveries. At most {percent(it['fdr'])} of either kind "
        "are expected to be false"
    )
    if it["because"]:
        reasons = ", ".join(_AGAINST.get(one, one) for one in it["because"])
        return f"{said} only if the model holds, but the data contradict it ({reasons}). More edges may be false."
    if not it["is_checked"]:
        return f"{said}, if the model holds. That was not checked."
    return (
        f"{said}, if the model holds. Nothing was found against it, but a hidden cause often leaves no trace."
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
    """What was found at one site."""
    found = say(Finding.from_dict(it["finding"]), it.audience)
    return f"site {it['site']!r}{it.get('what', '')}: {found}"
