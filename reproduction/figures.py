"""Figures of the reproduction pages, in the paper's layout, drawn from result tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.tables import ResultTable

__all__ = ["draw_figures"]

_STYLES = {
    "FDBNL (paper, tuned)": ("#d62728", "o", "-"),
    "FDBNL (ours)": ("#1f77b4", "s", "-"),
    "Alldata": ("#7f7f7f", "^", "--"),
    "Ave": ("#ff7f0e", "v", "-"),
    "Best": ("#9467bd", "D", "-"),
    "OneShotDBN": ("#2ca02c", "*", "-"),
}
_PANELS = (("shd_paper", "SHD"), ("tpr", "TPR"), ("fdr", "FDR"))


def draw_figures(tables: Iterable[ResultTable], directory: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Draw the figures of every experiment that has one; experiment -> file names in `directory`."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    drawers: dict[str, Callable[[ResultTable, str], Any]] = {
        "lines": _lines,
        "heatmap": _heatmaps,
        "matrices": _matrices,
    }
    names: dict[str, list[str]] = {}
    for table in tables:
        draw = drawers.get(table.experiment.layout)
        if draw is None or table.results.empty:
            continue
        for protocol in table.protocols:
            figure = draw(table, protocol)
            if figure is None:
                continue
            name = f"{table.experiment.name}-{protocol}.svg"
            _save(figure, folder / name)
            names.setdefault(table.experiment.name, []).append(name)
    return names


def _save(figure: Any, path: Path) -> None:
    import matplotlib as mpl

    # Text as text and no date or random ids: small files that change only when the numbers do.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "feddbn"}):
        figure.savefig(path, format="svg", metadata={"Date": None}, bbox_inches="tight")


def _figure(n_rows: int, n_columns: int, width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * n_columns, height * n_rows), layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False)


def _lines(table: ResultTable, protocol: str) -> Any:
    """SHD, TPR and FDR (columns) of W and A (rows) along the experiment's axis."""
    experiment = table.experiment
    positions = [float(at) for at in table.positions]
    figure, axes = _figure(2, 3, 3.1, 2.4)
    for r, part in enumerate(("W", "A")):
        for c, (measure, label) in enumerate(_PANELS):
            ax = axes[r, c]
            for column in experiment.columns:
                if not column.plot:
                    continue
                found = [(at, table.outcome(column, protocol, at, f"{part}.{measure}")) for at in positions]
                there = [(at, outcome) for at, outcome in found if outcome is not None]
                if not there:
                    continue
                colour, marker, line = _STYLES.get(column.label, ("black", ".", "-"))
                x, y = [at for at, _ in there], [outcome.mean for _, outcome in there]
                error = [outcome.spread / max(outcome.n, 1) ** 0.5 for _, outcome in there]
                ax.errorbar(
                    x, y, error, color=colour, marker=marker, ls=line, ms=4, lw=1.2, label=column.label
                )
            if experiment.axis == "n_sites":
                ax.set_xscale("log", base=2)
            ax.set_xticks(positions, [f"{at:g}" for at in positions])
            ax.minorticks_off()
            ax.set_title(f"{label} of {part}", fontsize=9)
            ax.tick_params(labelsize=8)
            ax.grid(alpha=0.25, lw=0.5)
            ax.set_ylim(bottom=0, top=None if measure == "shd_paper" else 1.05)
            if r == 1:
                ax.set_xlabel(experiment.axis_label, fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8, frameon=False)
    figure.suptitle(f"{experiment.title} ({protocol}; bars: standard error)", fontsize=10)
    return figure


def _heatmaps(table: ResultTable, protocol: str) -> Any:
    """SHD of W plus SHD of A over (lambda_w, lambda_a), one panel per setting."""
    method = table.experiment.methods[0]
    surfaces = {at: table.surface(method, protocol, at) for at in table.positions}
    surfaces = {at: surface for at, surface in surfaces.items() if len(surface)}
    if not surfaces:
        return None
    n_columns = min(4, len(surfaces))
    n_rows = -(-len(surfaces) // n_columns)
    figure, axes = _figure(n_rows, n_columns, 2.5, 2.3)
    for ax in axes.flat[len(surfaces) :]:
        ax.set_visible(False)
    for ax, (at, surface) in zip(axes.flat, surfaces.items(), strict=False):
        grid = surface.unstack()
        image = grid.to_numpy()
        ax.imshow(image, cmap="viridis_r", origin="lower")
        middle = (image.min() + image.max()) / 2
        for (i, j), value in np.ndenumerate(image):
            ax.text(
                j,
                i,
                f"{value:.0f}",
                ha="center",
                va="center",
                fontsize=6,
                # Large values are dark in this map.
                color="white" if value > middle else "k",
            )
        i, j = np.unravel_index(int(image.argmin()), image.shape)
        ax.plot(j, i, "s", ms=14, mfc="none", mec="red")
        ax.set_xticks(range(len(grid.columns)), [f"{v:g}" for v in grid.columns], fontsize=6)
        ax.set_yticks(range(len(grid.index)), [f"{v:g}" for v in grid.index], fontsize=6)
        ax.set_xlabel("lambda_a", fontsize=7)
        ax.set_ylabel("lambda_w", fontsize=7)
        ax.set_title(str(at), fontsize=8)
    figure.suptitle(f"SHD of W + A, FDBNL with the paper's schedule ({protocol})", fontsize=10)
    return figure


def _matrices(table: ResultTable, protocol: str) -> Any:
    """True and estimated W, A_1, ..., A_p side by side."""
    shown: dict[str, dict[str, Any]] = {}
    for column in table.experiment.columns:
        if column.method not in ("fdbnl-paper", "fdbnl", "oneshot"):
            continue
        pair = None
        if column.pick == "best":
            pair = table.best_pair(column.method, protocol, table.positions[0])
        for cell, result in table.extras:
            fits = pair is None or (result.get("lambda_w"), result.get("lambda_a")) == pair
            if cell.method == column.method and cell.protocol == protocol and cell.seed == 0 and fits:
                shown.setdefault("truth", result["truth"])
                shown[column.label] = result["weights"]
    if not shown:
        return None
    parts = ["W", *[f"A{lag + 1}" for lag in range(len(shown["truth"]["A"]))]]
    figure, axes = _figure(len(shown), len(parts), 1.8, 1.8)
    limit = max(float(np.abs(np.array(shown["truth"]["W"])).max()), 0.5)
    for r, (label, weights) in enumerate(shown.items()):
        for c, name in enumerate(parts):
            ax = axes[r, c]
            matrix = np.array(weights["W"] if c == 0 else weights["A"][c - 1])
            image = ax.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit)
            ax.set_xticks([])
            ax.set_yticks([])
            if r == 0:
                ax.set_title(name, fontsize=9)
            if c == 0:
                ax.set_ylabel(label, fontsize=8)
    figure.colorbar(image, ax=axes, shrink=0.6, label="weight")
    figure.suptitle(f"True and estimated weights, [from, to] ({protocol})", fontsize=10)
    return figure
