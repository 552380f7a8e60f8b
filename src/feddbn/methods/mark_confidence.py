"""How far each mark of an ancestral graph can be trusted: learn on resamples of every site's own rows, and count.

Sites send sums of resampled moments (`feddbn.federation.programs.bootstrap`), the searches happen at the server.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from feddbn.data.read import read_sites
from feddbn.errors import ParameterError
from feddbn.federation.programs.bootstrap import BLOCK_LENGTHS
from feddbn.federation.protocol.task import run_program
from feddbn.methods.base import in_process
from feddbn.methods.latent import LatentDBN
from feddbn.methods.resampled_rows import rows_to_resample
from feddbn.model.ancestral import AncestralGraph
from feddbn.model.summary import Summary
from feddbn.settings import is_federation, shown, whole, word

__all__ = ["mark_confidence"]

_COLUMNS = ("source", "target", "lag", "mark", "edge", "same", "cause", "hidden", "reverse")


def mark_confidence(
    estimator: LatentDBN,
    data: Any,
    n_replicates: int = 100,
    *,
    block_length: int | str = "auto",
    random_state: int = 0,
) -> pd.DataFrame:
    """Frame of edges with marks and how often resamples agree; most frequent edges first.

    Parameters
    ----------
    estimator
        A `LatentDBN`; clones of it are fitted, it stays as it is.
    data
        A federation, or anything `feddbn.data.read_sites` takes.
    n_replicates
        Number of resamples: blocks of every site's rows, drawn with replacement.
    block_length
        Rows per block: a number, ``"auto"`` (cube root of the site's rows) or ``"politis-white"``.
    random_state
        Seed; the same seed and the same data give the same table.

    Returns
    -------
    Every edge of the fit on all data or of some replicate. `mark` is that of all data, "" if it has no such edge; the rest
    are shares of replicates: with an `edge`, with the `same` mark, with ``-->`` (`cause`), ``<->`` (`hidden`) and ``<--``
    (`reverse`, within a moment). Resampling cannot see a wrong assumption: what is wrong in all data is wrong in all
    resamples.

    Examples
    --------
    >>> import feddbn
    >>> data = feddbn.simulate(d=3, n_sites=2, n_samples=200, random_state=0)
    >>> table = feddbn.mark_confidence(feddbn.LatentDBN(), data.sites, n_replicates=4)
    >>> table.columns.tolist()
    ['source', 'target', 'lag', 'mark', 'edge', 'same', 'cause', 'hidden', 'reverse']
    """
    if not isinstance(estimator, LatentDBN):
        raise ParameterError(
            f"estimator={shown(estimator)} must be a LatentDBN; for others use feddbn.edge_confidence."
        )
    estimator.check_parameters()
    whole(2).check("n_replicates", n_replicates)
    whole(0).check("random_state", random_state)
    (whole(1) | word(*BLOCK_LENGTHS)).check("block_length", block_length)
    federation = data if is_federation(data) else in_process(read_sites(data, missing="keep"))
    names, n_lags = federation.variables, 2 * int(estimator.n_lags)
    rows = rows_to_resample(estimator, federation, n_lags)
    program = rows.program(
        names, n_lags, int(n_replicates), block_length=block_length, seed=int(random_state)
    )
    resampled = rows.worth(run_program(program, federation))
    removed = 0.0 if rows.asked is None else float(max(rows.asked.rank - 1.0, 0.0))

    def learned(moments: Any) -> AncestralGraph:
        found: LatentDBN = clone(estimator).set_params(federation=None)
        return found.fit_summary(Summary(moments, names, n_lags, n_nuisances=removed)).ancestral_graph_

    table = _table(learned(resampled.full), [learned(moments) for moments in resampled.replicates])
    table.attrs.update(n_replicates=int(n_replicates), random_state=int(random_state))
    return table


def _table(full: AncestralGraph, replicates: list[AncestralGraph]) -> pd.DataFrame:
    marks = np.stack([graph.marks for graph in (full, *replicates)])
    rows = []
    for i, j, lag in np.argwhere((marks != "").any(axis=0)):
        own = str(marks[0, i, j, lag])
        # Within a moment a pair is listed once, as the fit on all data reads it.
        if lag == 0 and (_is_backward(own) or (own == marks[0, j, i, 0] and i > j)):
            continue
        counted = Counter(marks[1:, i, j, lag].tolist())
        shares = (
            len(replicates) - counted[""],
            counted[own] if own else 0,
            *(counted[m] for m in ("-->", "<->", "<--")),
        )
        shown_as = (full.variables[i], full.variables[j], int(lag), own)
        rows.append((*shown_as, *(share / len(replicates) for share in shares)))
    table = pd.DataFrame(rows, columns=list(_COLUMNS))
    return table.sort_values(["edge", "same"], ascending=False, kind="stable").reset_index(drop=True)


def _is_backward(mark: str) -> bool:
    """Whether an edge within a moment is read from its head to its tail or circle."""
    return mark in ("<--", "<-o", "--o")
