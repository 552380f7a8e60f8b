"""Weight matrices as heat maps: one network, truth against estimate, shared against site-specific edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from feddbn.core.arrays import FloatArray
from feddbn.errors import DataError, ParameterError
from feddbn.model.dbn import DBN
from feddbn.model.network import check_network
from feddbn.report.canvas import (
    HEAT_COLOURS,
    cell_grid,
    new_axes,
    shortened,
    strength_bar,
    symmetric_scale,
    thinned,
    weight_name,
)
from feddbn.report.graph_layout import cluster_order, link_strengths

__all__ = ["plot_site_differences", "plot_truth_and_estimate", "plot_weights", "site_differences"]

# Up to here each cell has room for its number.
NUMBER_LIMIT = 6
LABEL_LIMIT = 26


def weight_panels(
    dbns: Sequence[DBN], *, cluster: bool | None = None, standardised: bool = False
) -> tuple[list[str], FloatArray]:
    """The common order of the variables and the matrices (rows, p+1, d, d) in that order.

    Variables keep their order up to 30 of them; above, or with ``cluster=True``, linked variables are put
    together, by the first network, so that blocks become visible. `standardised` gives weights in standard deviations.
    """
    first = dbns[0]
    for other in dbns[1:]:
        if other.variables != first.variables:
            raise ParameterError(
                "the networks must have the same variables in the same order; reorder one of them."
            )
    clustered = first.d > 30 if cluster is None else cluster
    order = cluster_order(link_strengths(first)) if clustered else list(range(first.d))
    p = max(dbn.n_lags for dbn in dbns)
    panels = np.zeros((len(dbns), p + 1, first.d, first.d))
    for row, dbn in enumerate(dbns):
        stack = dbn.standardised_weights() if standardised else dbn.adjacency_matrices
        panels[row, : dbn.n_lags + 1] = stack[:, order][:, :, order]
    return [first.variables[i] for i in order], panels


def plot_weights(
    dbn: DBN,
    *,
    ax: Axes | None = None,
    limit: float | None = None,
    cluster: bool | None = None,
    standardised: bool = True,
) -> Axes:
    """The axes with W, A_1, ..., A_p of one network side by side; rows are causes, columns effects.

    With `standardised` weights are in standard deviations, so that one in a large unit does not hide the others.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import plot_weights
    >>> dbn = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> plot_weights(dbn).figure is not None
    True
    """
    check_network(dbn, "dbn")
    names, panels = weight_panels([dbn], cluster=cluster, standardised=standardised)
    return _draw(panels, names, [""], ax, limit, weight_name(standardised))


def plot_truth_and_estimate(
    truth: DBN,
    estimate: DBN,
    *,
    ax: Axes | None = None,
    limit: float | None = None,
    cluster: bool | None = None,
) -> Axes:
    """The axes with the true matrices above the estimated ones on one symmetric scale.

    Columns are W, A_1, ..., A_p; within a panel rows are causes and columns effects. This is the paper's
    Figure "example" for any network; the panels are ``ax.child_axes``.

    Examples
    --------
    >>> import feddbn
    >>> from feddbn.report import plot_truth_and_estimate
    >>> truth = feddbn.DBN([[0, 0.5], [0, 0]], [[[0.4, 0], [0, 0]]], ["x", "y"])
    >>> plot_truth_and_estimate(truth, truth).figure is not None
    True
    """
    check_network(truth, "truth")
    check_network(estimate, "estimate")
    names, panels = weight_panels([truth, estimate], cluster=cluster)
    return _draw(panels, names, ["truth", "estimate"], ax, limit)


def _draw(
    panels: FloatArray,
    names: list[str],
    rows: Sequence[str],
    ax: Axes | None,
    limit: float | None,
    what: str = "weight",
) -> Axes:
    n_rows, n_columns, d, _ = panels.shape
    side = float(np.clip(1.4 + 0.09 * d, 2.0, 5.0)) * (1.0 if n_columns <= 3 else 3.4 / (n_columns + 0.4))
    margin = 0.09 * max(len(name[:12]) for name in names) + 0.35
    ax = new_axes(ax, side * 1.12 * n_columns + margin + 1.0, side * 1.12 * n_rows + margin + 0.3)
    ax.set_axis_off()
    norm = symmetric_scale(panels, limit=limit)
    font = float(np.clip(120 / d, 6.0, 9.0))
    ticks = thinned(d, LABEL_LIMIT)
    labels = [shortened(name, 12) for name in names]
    width, height = 1 / n_columns, 1 / n_rows
    for r in range(n_rows):
        for c in range(n_columns):
            box = (c * width, 1 - (r + 1) * height, width * 0.93, height * 0.9)
            panel = ax.inset_axes(box)
            panel.imshow(panels[r, c], cmap=HEAT_COLOURS, norm=norm, interpolation="nearest", aspect="equal")
            if r == 0:
                panel.set_title("W (contemporaneous)" if c == 0 else f"$A_{{{c}}}$ (lag {c})", fontsize=10)
            named = [labels[i] for i in ticks]
            if r == n_rows - 1:
                panel.set_xticks(ticks, named, rotation=90, fontsize=font)
            else:
                panel.set_xticks([])
            if c == 0:
                panel.set_yticks(ticks, named, fontsize=font)
            else:
                panel.set_yticks([])
            panel.tick_params(length=0 if d <= LABEL_LIMIT else 2)
            if c == 0 and rows[r]:
                panel.set_ylabel(rows[r], fontsize=11)
            for spine in panel.spines.values():
                spine.set_color("#999999")
            if d <= 30:
                cell_grid(panel, d, d, "#dddddd")
            if d <= NUMBER_LIMIT:
                _write_numbers(panel, panels[r, c], float(norm.vmax or 1.0))
    strength_bar(ax, norm, HEAT_COLOURS, what, shrink=0.7)
    return ax


def _write_numbers(panel: Axes, matrix: FloatArray, top: float) -> None:
    for i, j in np.argwhere(matrix != 0):
        value = float(matrix[i, j])
        colour = "white" if abs(value) > 0.6 * top else "#222222"
        panel.text(
            j, i, f"{value:.2f}".replace("0.", ".", 1), ha="center", va="center", fontsize=7, color=colour
        )


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
