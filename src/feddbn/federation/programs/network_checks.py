"""After a fit: what sites say about the residuals of a network.

checks_program          of the network that a sum of moments was explained by
network_checks_program  of the network nearest to a penalised one that these moments prefer (`core.orders.search`)
own_checks_program      of every site's own network, in one sum

A method that only looks changes nothing: its report says what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from feddbn.core.arrays import BoolArray, FloatArray
from feddbn.core.designs.public_units import public_units
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.graphs.pruning import topological_order
from feddbn.core.orders.hidden import HiddenDoubts, doubtful_edges, may_be_looked_for, noises_differ
from feddbn.core.orders.learn import refit
from feddbn.core.orders.nongaussian import node_residuals
from feddbn.core.orders.search import Criterion, evident_support
from feddbn.core.statistics.curvature import CurvatureSums, curvature_p
from feddbn.core.statistics.known_inputs import outputs_of
from feddbn.core.statistics.moments import Moments
from feddbn.core.statistics.residual_checks import (
    LEVEL,
    ResidualChecks,
    ResidualSums,
    check_residuals,
    echo_weights,
    violations,
)
from feddbn.core.statistics.scaling import safe_roots
from feddbn.federation.programs.residual_checks import own_residual_checks_program, residual_checks_program
from feddbn.federation.programs.treatment import AskedMoments, moments_program
from feddbn.federation.protocol.rows import Treatment, treated
from feddbn.federation.protocol.task import ServerProgram

__all__ = [
    "FEWEST_COMPLETE",
    "FittedNetwork",
    "ResidualReport",
    "checks_program",
    "curvature_of",
    "network_checks_program",
    "own_checks_program",
    "share_of_means",
]

FEWEST_COMPLETE = 200
"""Where cells are empty residuals are those of complete rows; of fewer, they tell too little."""


@dataclass(frozen=True)
class ResidualReport:
    """What residuals said and what followed from it.

    Attributes
    ----------
    checks
        The numbers, of the network that is reported.
    found, left
        Violations of the first network, and those of the network that is reported.
    noise_memory
        The memory of the noise that was taken off, None if none was.
    n_lags_added
        Lags added because residuals remembered.
    lag_gain
        By how much the score falls with one lag more; None if that was not looked at.
    n_effective
        Number of rows that the evidence is worth.
    looked_only
        Whether the network stays as it is, whatever was found.
    hidden, hidden_gain
        For each hidden cause that explains more than edges the names of its effects, and by how much the score is better.
    doubts
        The edges that hidden causes could stand for; None if that was not looked at.
    """

    checks: ResidualChecks
    found: tuple[str, ...]
    left: tuple[str, ...]
    noise_memory: float | None = None
    n_lags_added: int = 0
    lag_gain: float | None = None
    n_effective: float = 0.0
    looked_only: bool = False
    hidden: tuple[tuple[str, ...], ...] = ()
    hidden_gain: float = 0.0
    doubts: HiddenDoubts | None = None


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """A network as a method reports it, and how the rows it was learned from were treated.

    Attributes
    ----------
    variables, weights, variances
        Names, the stack ``[W; A_1; ...]``, ((p+1) d, d), and noise variances (d,), in the units of the data.
    constraints
        Edges that may, and must, be there.
    inputs
        Positions of variables that only act on others.
    center, treatment
        What sites do to their rows.
    asked
        The sum that decided about that, if there was one.
    """

    variables: tuple[str, ...]
    weights: FloatArray
    variances: FloatArray
    constraints: EdgeConstraints
    inputs: tuple[int, ...]
    center: str
    treatment: Treatment
    asked: AskedMoments | None = None

    @property
    def n_lags(self) -> int:
        """Number of lags."""
        return len(self.weights) // len(self.variables) - 1

    @property
    def own_share(self) -> float | None:
        """Number of nuisance parameters of recordings per row; None if only their means can have been taken off."""
        known = self.asked
        return known.rank / known.n_rows if known is not None and known.rank and known.n_rows else None

    @property
    def support(self) -> BoolArray:
        """Where there is an edge."""
        return np.asarray(self.weights != 0)


def checks_program(
    moments: Moments,
    support: BoolArray,
    variables: tuple[str, ...],
    center: str,
    inputs: Sequence[int] = (),
    own_share: float | None = None,
    to_moments: FloatArray | None = None,
    order: Sequence[int] = (),
) -> ServerProgram[tuple[ResidualChecks, bool]]:
    """Ask about the residuals of a network; also whether every site has rows enough for a lag more.

    Parameters
    ----------
    order
        The variables, causes first; curvature is looked for in what comes before. Empty: none is looked for.
    own_share
        Number of nuisance parameters of recordings per row; None: that of their means, if these were taken off.
    to_moments
        How the columns of `moments` come from those of lagged rows, if they are not the same.
    """
    q, d = support.shape
    p = q // d - 1
    jobs = [(j, tuple(np.flatnonzero(support[:, j]).tolist())) for j in range(d)]
    residuals = node_residuals(moments, jobs)
    coefficients, offset, n_lags = residuals.coefficients, residuals.offset, p
    if to_moments is not None:
        coefficients, n_lags = to_moments @ coefficients, p + 1
    # Of inputs there are no residuals.
    outputs, known = outputs_of(d, inputs), list(inputs)
    coefficients[:, known], offset[known] = 0.0, 0.0
    units = None
    if len(order) and to_moments is None:
        sd = safe_roots(np.diag(moments.scatter)[:d] / moments.n)
        units = np.stack(public_units(moments.mean[:d], sd))
    sums, may_add, curvature = yield from residual_checks_program(
        variables, n_lags, coefficients, offset, center, units
    )
    C, _, variances = refit(moments, support)
    weights = echo_weights(C[:d], C[d:].reshape(p, d, d), variances, p + 1)[:, outputs][:, :, outputs]
    share = share_of_means(sums, center) if own_share is None else own_share
    checks = check_residuals(sums.of(outputs), weights, share)
    if curvature is not None:
        checks = replace(checks, curvature_p=curvature_of(curvature, support, order, outputs))
    return checks, may_add


def curvature_of(
    sums: CurvatureSums, support: BoolArray, order: Sequence[int], outputs: Sequence[int]
) -> float:
    """P-value that no effect on the outputs is curved, given the variables in order, causes first."""
    d, q = support.shape[1], sums.products.shape[1]
    rank = np.empty(d, dtype=int)
    rank[list(order)] = np.arange(d)
    before = np.ones((q, d), dtype=bool)
    before[:d] = rank[:, None] < rank[None, :]
    before[:, [j for j in range(d) if j not in set(outputs)]] = False
    # A network without lags is looked at with one.
    edges = np.concatenate([support, np.zeros((q - len(support), d), dtype=bool)])
    return curvature_p(sums, edges, before)


def share_of_means(sums: ResidualSums, center: str) -> float:
    """Number of recordings' own means per row."""
    return float(sums.recordings[0] / max(sums.counts[0], 1.0)) if center == "recording" else 0.0


def network_checks_program(
    network: FittedNetwork, moments: Moments | None = None
) -> ServerProgram[ResidualReport | None]:
    """Look at the residuals near a fitted network; None if too few rows are complete.

    `moments` are those of the network's rows; by default those that were asked for before, or are asked for now.
    """
    return (yield from treated(_looked_at(network, moments), network.treatment))


def _looked_at(network: FittedNetwork, moments: Moments | None) -> ServerProgram[ResidualReport | None]:
    if moments is None and network.asked is not None:
        moments = network.asked.moments
    if moments is None:
        moments = yield from moments_program(network.variables, network.n_lags, network.center)
    support = evident_support(moments, network.support, network.constraints)
    checks, _ = yield from checks_program(
        moments,
        support,
        network.variables,
        network.center,
        network.inputs,
        network.own_share,
        order=topological_order(support[: len(network.variables)]),
    )
    report = _report(checks, network)
    return None if report is None else replace(report, doubts=_doubts(moments, support, network))


def _doubts(moments: Moments, evident: BoolArray, network: FittedNetwork) -> HiddenDoubts | None:
    """The edges of a network that hidden causes could stand for; None if that cannot be told."""
    if network.inputs or not may_be_looked_for(len(network.variables)):
        return None
    if not noises_differ(moments, evident):
        return HiddenDoubts(np.zeros_like(network.support))
    rng = np.random.default_rng(0)
    return doubtful_edges(moments, network.support, network.constraints, Criterion(), rng)


def own_checks_program(network: FittedNetwork) -> ServerProgram[ResidualReport | None]:
    """Look at the residuals near every site's own network; `network` is the one they share.

    Sites with too few rows stay out; None if none is left.
    """
    return (yield from treated(_looked_at_own(network), network.treatment))


def _looked_at_own(network: FittedNetwork) -> ServerProgram[ResidualReport | None]:
    d, p = len(network.variables), network.n_lags
    sums, n_sites = yield from own_residual_checks_program(
        network.variables, p, network.constraints, network.inputs, network.center
    )
    n = float(sums.counts[0])
    if n == 0:
        return None
    outputs = outputs_of(d, network.inputs)
    W, A = network.weights[:d], network.weights[d:].reshape(p, d, d)
    weights = echo_weights(W, A, network.variances, p + 1)[:, outputs][:, :, outputs]
    # Every site takes off a mean of its own at least.
    own_share = max(network.own_share or share_of_means(sums, network.center), n_sites / n)
    return _report(check_residuals(sums.of(outputs), weights, own_share), network, is_own=True)


def _report(checks: ResidualChecks, network: FittedNetwork, *, is_own: bool = False) -> ResidualReport | None:
    if network.treatment.row_model is not None and checks.n < FEWEST_COMPLETE:
        return None
    found = violations(checks)
    if is_own:
        # Effects that no site can tell by itself add up over sites. They look like dependence, and a little like memory.
        is_memory = checks.memory_p < LEVEL
        found = tuple(name for name in found if name != "dependence" and (name != "memory" or is_memory))
    factor = checks.inflation if "volatility" in found else 1.0
    return ResidualReport(checks, found, found, n_effective=checks.n / factor, looked_only=True)
