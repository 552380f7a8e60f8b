"""What methods with penalties say: FDBNL, PFDBNL, DYNOTEARS and the fits of single sites."""

from __future__ import annotations

from feddbn.words import Said, says, says_as

_ENDS = {
    "MAX_ROUNDS": "stopped at the maximum number of rounds before it had converged",
    "NOT_ACYCLIC": "stopped at the maximum number of rounds while the graph still had cycles; their weakest edges were cut",
}


@says("not-converged")
def _not_converged(it: Said) -> str:
    return f"the fit {_ENDS[it['status']]}."


@says("cycles-broken")
def _cycles_broken(it: Said) -> str:
    what = "edge was" if it["n"] == 1 else "edges were"
    return f"{it['n']} contemporaneous {what} dropped to break cycles ({it.names})."


@says("variables-scaled")
def _variables_scaled(it: Said) -> str:
    large, small = it.finding.about
    why = (
        f"whatever the network is, the noise of {large} is at least {it['factor']:.3g} times as large as that of {small}"
        if it["is_bound"]
        else f"the noise of {large} is about {it['factor']:.3g} times as large as that of {small}, more than different "
        "networks explain"
    )
    return (
        f"variables were scaled to unit variance for learning. Reason: {why} (standard deviations), so no single penalty "
        "fits both. Weights are reported in the units of the data. Contemporaneous directions are less certain, since scales "
        f"no longer help. {it.cure} keeps the units, as in the paper."
    )


says_as(
    {
        "mean-has-cycles": "the averaged graph has cycles, so it is not a valid network; the method of the paper keeps them.",
        "own-residuals-not-looked-at": (
            "residuals were not checked: no site has {rows_a_column} rows for each of the {n_columns} "
            "columns."
        ),
        "no-own-network": "site {site!r} has no network of its own: {why}",
    }
)


@says("more-of-sites")
def _more_of_sites(it: Said) -> str:
    where = ": see treatments_" if it.in_python else ""
    return f"{it['n']} more remarks on how the rows of sites were prepared{where}."


@says("never-joined")
def _never_joined(it: Said) -> str:
    n, names = len(it.finding.about), ", ".join(it.finding.about[:5])
    return f"{n} site{'' if n == 1 else 's'} never took part and got the shared network: {names}."


@says("no-site-compared")
def _no_site_compared(it: Said) -> str:
    return (
        f"{it.setting('prepare.on_disagreement', 'personal')} had no effect. Sites are compared only if there are at least "
        f"{it['fewest']} and all answer the tasks 'survey' and 'agreement'."
    )
