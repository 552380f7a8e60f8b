"""What fits say: about the network they learned and how they came to it."""

from __future__ import annotations

from feddbn.words import Said, says


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
