"""What a site tells its owner about its own data and answers; none of it leaves the site."""

from __future__ import annotations

from feddbn.words import Said, says


@says("site-own-network")
def _own_network(it: Said) -> str:
    how = "`dbns_` has it" if it.in_python else "learn it with `feddbn fit` from the data of this site alone"
    return f"if this site stays out of the common network, it has one of its own, which stays here: {how}."


@says("rows-left-out")
def _rows_left_out(it: Said) -> str:
    return (
        f"{it['n']} rows are left out of sums with n_lags = {it['n_lags']}: without them, sums of this study and of earlier "
        "ones together show no few rows."
    )
