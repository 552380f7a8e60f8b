"""The order in which a run solves the convex rest: that of its own path, or the best known for what has been seen of G.

After p + 1 different points the summed gradients determine the pooled quadratic, so the search needs no further sum, and
its answer does not depend on how rows are split among sites.
"""

from __future__ import annotations

from feddbn.core.fdbnl.path import RunOptions
from feddbn.core.optimum.certified import BestOrder, Certificate, best_order, order_as_it_is
from feddbn.core.optimum.scores import LassoScores
from feddbn.core.orders.search import order_of_gram
from feddbn.core.solvers.seen_gram import FINE, SeenGram

__all__ = ["BUDGETS", "MANY_NODES", "OPTIMA", "goes_straight", "searched"]

MANY_NODES = 200
"""With more variables the order is OneShotDBN's, and no path is followed: its matrix exponentials and the lassos of moves
would take hours."""
BUDGETS = {"order": 6000, "exact": 300_000}
"""Lassos that a search may solve: work, not time, so that every machine finds the same order."""
OPTIMA = (*BUDGETS, "path")
_MANY = 50


def goes_straight(options: RunOptions) -> bool:
    """Whether a run that searches takes the order of OneShotDBN, without a path or moves of its own."""
    return options.constraints.d > MANY_NODES and options.n_rows is not None and options.optimum != "exact"


def searched(seen: SeenGram, lipschitz: float, options: RunOptions, own: list[int]) -> BestOrder:
    """Return the best order found, with its certificate, for the quadratic seen so far.

    The search starts from the run's `own` order and, if the number of rows is known, from the first one of OneShotDBN.
    """
    constraints, root = options.constraints, seen.root
    is_large = goes_straight(options)
    units = root[: constraints.d, 0]
    H = seen.scaled(lipschitz, FINE)
    starts = [own]
    if options.n_rows is not None:
        G = root * H * root.T / options.schedule.total_weight
        first = order_of_gram(G, options.n_rows, constraints, moves=is_large)
        starts = [first] if is_large else [own, first]
    scores = LassoScores(
        H,
        options.penalty / (root * units),
        constraints.allowed,
        constraints.required,
        units**2,
        seen.basis,
    )
    if is_large:
        found = order_as_it_is(scores, starts[0])
    else:
        # Lassos of many variables take longer.
        found = best_order(scores, starts, BUDGETS[options.optimum] * _MANY // max(constraints.d, _MANY))
    if scores.is_exact:
        return found
    # Lassos that use what has not been seen are only bounded from above.
    return BestOrder(found.order, Certificate.nothing_known(found.certificate.objective))
