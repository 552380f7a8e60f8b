"""Weight matrices as heat maps: one network, or truth against estimate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from feddbn.core.arrays import FloatArray
from feddbn.errors import ParameterError
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
from feddbn.report.layout import cluster_order, link_strengths

__all__ = ["plot_truth_and_estimate", "plot_weights", "weight_panels"]

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
                panel.set_title("W (same moment)" if c == 0 else f"$A_{{{c}}}$ (lag {c})", fontsize=10)
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
