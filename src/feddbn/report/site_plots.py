"""Shared against site-specific edges of a personalised fit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from feddbn.errors import DataError, ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.network import check_network
from feddbn.report.canvas import HEAT_COLOURS, cell_grid, new_axes, shortened, strength_bar, symmetric_scale

__all__ = ["plot_site_differences", "site_differences"]

_KEYS = ("source", "target", "lag", "shared_weight", "n_sites")


def site_differences(shared: DBN, personal: Mapping[str, DBN], *, min_weight: float = 0.0) -> pd.DataFrame:
    """One row per edge that the shared network or any site has.

    Columns source, target, lag, shared_weight, n_sites (sites whose own ``|weight| > min_weight``), then
    one column per site with its deviation ``personal - shared``. Edges that most sites have come first;
    within them the strongest first.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import site_differences
    >>> shared = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> own = feddbn.DBN([[0, 0.3], [0, 0]], shared.A, ["x", "y"])
    >>> site_differences(shared, {"a": own}).columns.tolist()
    ['source', 'target', 'lag', 'shared_weight', 'n_sites', 'a']
    """
    check_network(shared, "shared")
    if not isinstance(personal, Mapping):
        raise ParameterError(f"personal must be a dict from site to DBN, got {type(personal).__name__}.")
    if not personal:
        raise ParameterError("personal must hold at least one site's network, got an empty mapping.")
    for name, dbn in personal.items():
        if dbn.variables != shared.variables or dbn.n_lags != shared.n_lags:
            raise ParameterError(
                f"the network of {name!r} must have the variables and lags of the shared one."
            )
    common = shared.adjacency_matrices
    stacks = np.stack([dbn.adjacency_matrices for dbn in personal.values()])
    present = np.abs(stacks) > min_weight
    index = np.argwhere(present.any(axis=0) | (np.abs(common) > min_weight))
    at = tuple(index.T)
    frame = pd.DataFrame(
        {
            "source": [shared.variables[i] for i in index[:, 1]],
            "target": [shared.variables[j] for j in index[:, 2]],
            "lag": index[:, 0].astype(int),
            "shared_weight": common[at],
            "n_sites": present.sum(axis=0)[at].astype(int),
        }
    )
    for k, name in enumerate(personal):
        frame[name] = stacks[k][at] - common[at]
    strength = np.abs(stacks).max(axis=0)[at]
    order = np.lexsort((-strength, -frame["n_sites"].to_numpy()))
    return frame.iloc[order].reset_index(drop=True)


def plot_site_differences(
    differences: pd.DataFrame, *, ax: Axes | None = None, max_edges: int = 40, limit: float | None = None
) -> Axes:
    """The axes with one row per edge: its shared weight in the first column, then each site's deviation
    from it.

    Rows are ordered from edges that every site has to edges of one site; the number at the right says how
    many sites have the edge. If there are more than `max_edges`, half of the rows go to the edges that most
    sites share and half to those whose sites differ most.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import plot_site_differences, site_differences
    >>> shared = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> own = feddbn.DBN([[0, 0.3], [0, 0]], shared.A, ["x", "y"])
    >>> plot_site_differences(site_differences(shared, {"a": own, "b": shared})).figure is not None
    True
    """
    if not isinstance(differences, pd.DataFrame):
        raise ParameterError(
            f"differences must be a DataFrame, got {type(differences).__name__}; make it with site_differences."
        )
    missing = [c for c in _KEYS if c not in differences]
    if missing:
        raise DataError(
            f"differences lacks the columns {', '.join(missing)}; build it with site_differences()."
        )
    sites = [c for c in differences.columns if c not in _KEYS]
    table = differences
    if len(table) > max_edges:
        spread = table[sites].abs().max(axis=1).to_numpy() if sites else np.zeros(len(table))
        # Half the rows for what most sites share (the table's own order), half for what differs most.
        common = list(range(max_edges // 2))
        rest = [int(i) for i in np.argsort(-spread, kind="stable") if i >= max_edges // 2]
        table = table.iloc[sorted(common + rest[: max_edges - len(common)])]
    n_rows, n_sites = len(table), len(sites)
    ax = new_axes(ax, 3.6 + 0.36 * min(n_sites + 2, 40), float(np.clip(1.3 + 0.23 * n_rows, 2.4, 14.0)))
    if not n_rows:
        ax.text(
            0.5,
            0.5,
            "no edges at any site",
            ha="center",
            va="center",
            transform=ax.transAxes,
            color="#555555",
        )
        ax.set_axis_off()
        return ax
    shared = table["shared_weight"].to_numpy(dtype=float)
    values = table[sites].to_numpy(dtype=float)
    norm = symmetric_scale(shared, values, limit=limit)
    # An empty column separates what is shared from what is a site's own.
    grid = np.column_stack([shared, np.full(n_rows, np.nan), values])
    ax.imshow(
        np.ma.masked_invalid(grid), cmap=HEAT_COLOURS, norm=norm, aspect="auto", interpolation="nearest"
    )
    labels = [
        f"{shortened(s, 14)} → {shortened(t, 14)}" + (f"  (lag {lag})" if lag else "")
        for s, t, lag in zip(table["source"], table["target"], table["lag"], strict=True)
    ]
    ax.set_yticks(range(n_rows), labels, fontsize=8)
    step = max(1, -(-n_sites // 40))
    shown = range(0, n_sites, step)
    ax.set_xticks(
        [0, *(k + 2 for k in shown)],
        ["shared", *(shortened(sites[k], 14) for k in shown)],
        rotation=90,
        fontsize=8,
    )
    cell_grid(ax, n_rows, 1, "#dddddd")
    cell_grid(ax, n_rows, n_sites, "#dddddd", first_column=2)
    ax.tick_params(length=0)
    for r, count in enumerate(table["n_sites"]):
        ax.annotate(
            f"{count}/{n_sites}", (1.0, r), xycoords=("axes fraction", "data"), xytext=(4, 0),
            textcoords="offset points", fontsize=7.5, va="center", color="#444444", annotation_clip=False,
        )  # fmt: skip
    groups = table["n_sites"].to_numpy()
    for last in np.flatnonzero((groups[1:] == n_sites) != (groups[:-1] == n_sites)):
        ax.axhline(last + 0.5, color="#333333", linewidth=1.0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    if n_rows < len(differences):
        ax.set_xlabel(f"{n_rows} of {len(differences)} edges", fontsize=8.5)
    ax.annotate(
        "sites",
        (1.0, 1.0),
        xycoords="axes fraction",
        xytext=(4, 2),
        textcoords="offset points",
        fontsize=7.5,
        color="#444444",
    )
    strength_bar(ax, norm, HEAT_COLOURS, "weight or deviation", shrink=0.8)
    return ax
