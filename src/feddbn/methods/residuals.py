"""What residuals say about a fit, as numbers and as sentences that name the violation and what to do."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.core.statistics.residual_checks import LEVEL
from feddbn.errors import ResidualsWarning
from feddbn.federation.programs.residual_checks import FittedNetwork, ResidualReport
from feddbn.federation.programs.treatment import AskedMoments
from feddbn.federation.protocol.rows import Treatment
from feddbn.federation.protocol.task import Federation
from feddbn.model.dbn import DBN
from feddbn.shown import Shown

__all__ = [
    "GRAVE",
    "ResidualSummary",
    "are_looked_at",
    "fitted_network",
    "residual_sentences",
    "say_residuals",
    "summarise",
]

GRAVE = ("hidden", "memory", "dependence", "curvature")
"""Violations by which edges may stand for something else."""

# A z-score beyond this has a p-value below a quarter of LEVEL.
_CLEAR_ECHO = 3.7


@dataclass(frozen=True)
class ResidualSummary(Shown):
    """What the residuals of a network say; p-values are those of the assumption, sizes those of the worst variable.

    Attributes
    ----------
    violations
        What contradicts the model in the network as reported: "hidden" (hidden causes explain more than edges do), "memory"
        (residuals go along with earlier ones), "dependence" (with others of the same row), "volatility" (their variance
        changes from row to row), "thirds" (over the recordings), "spread" (between recordings), "tails" (heavy),
        "curvature" (effects are not straight lines).
    acted_on
        What was found first and taken care of: "memory", "volatility".
    n_rows, n_effective
        Rows, and how many of them the evidence is worth.
    autocorrelation, echo, memory_p
        Largest correlation of a residual with itself a row before; z-score of what is left of the network's own effects
        one lag beyond it; p-value of both.
    noise_memory
        Share of the noise that stays from row to row and was taken off; None if none was.
    n_lags_added, lag_gain
        Lags added, and by how much the score falls with one lag more (None if not looked at).
    dependence, dependence_p
        Largest correlation of two residuals of one row.
    arch, inflation, volatility_p
        Largest correlation of a squared residual with itself a row before; factor by which evidence was overstated.
    variance_ratio, thirds_p
        Largest ratio of the variances in two thirds of the recordings.
    spread, spread_p
        Largest standard deviation of the logarithm of the recordings' variances.
    kurtosis, tails_p
        Largest kurtosis; 3 for a Gaussian.
    looked_only
        Whether the network stays as it is, whatever was found.
    hidden_causes, hidden_gain
        For each hidden cause that explains more than edges the variables on which it acts; by how much the score is better.
    curvature_p
        That effects are straight lines; 1 if that was not looked at.
    """

    violations: tuple[str, ...]
    acted_on: tuple[str, ...]
    n_rows: int
    n_effective: float
    autocorrelation: float
    echo: float
    memory_p: float
    noise_memory: float | None
    n_lags_added: int
    lag_gain: float | None
    dependence: float
    dependence_p: float
    arch: float
    inflation: float
    volatility_p: float
    variance_ratio: float
    thirds_p: float
    spread: float
    spread_p: float
    kurtosis: float
    tails_p: float
    looked_only: bool = False
    hidden_causes: tuple[tuple[str, ...], ...] = ()
    hidden_gain: float = 0.0
    curvature_p: float = 1.0


def are_looked_at(estimator: Any, federation: Federation, *, by_default: bool = True) -> bool:
    """Whether a fit looks at its residuals; "auto" does where sites answer such questions, if it is done `by_default`."""
    wanted, tasks = getattr(estimator, "check_residuals", "auto"), federation.answered_tasks
    if wanted != "auto":
        return bool(wanted)
    return by_default and (tasks is None or "residual-checks" in tasks)


def fitted_network(
    dbn: DBN,
    constraints: EdgeConstraints,
    inputs: tuple[int, ...],
    center: str,
    treatment: Treatment,
    asked: AskedMoments | None,
) -> FittedNetwork:
    """A network as a look at its residuals needs it."""
    is_own = center == "recording"
    return FittedNetwork(
        tuple(dbn.variables),
        np.concatenate([dbn.W, *dbn.A]),
        dbn.noise_variances,
        constraints,
        inputs,
        "recording" if is_own else "none",
        treatment,
        asked,
    )


def summarise(report: ResidualReport) -> ResidualSummary:
    """Return the numbers of a report that people read."""
    checks = report.checks
    ratio = checks.thirds.max(axis=0) / np.maximum(checks.thirds.min(axis=0), 1e-12)
    acted_on = ["memory"] if report.noise_memory is not None or report.n_lags_added else []
    is_tempered = report.n_effective < checks.n * (1 - 1e-9) and not report.looked_only
    acted_on += ["volatility"] if is_tempered else []
    return ResidualSummary(
        violations=report.left,
        acted_on=tuple(acted_on),
        n_rows=round(checks.n),
        n_effective=report.n_effective,
        autocorrelation=float(checks.autocorrelation[np.abs(checks.autocorrelation).argmax()]),
        echo=float(checks.echo[-1]) if len(checks.echo) else 0.0,
        memory_p=checks.memory_p,
        noise_memory=report.noise_memory,
        n_lags_added=report.n_lags_added,
        lag_gain=report.lag_gain,
        dependence=checks.dependence,
        dependence_p=checks.dependence_p,
        arch=float(checks.arch.max()),
        inflation=checks.inflation,
        volatility_p=checks.volatility_p,
        variance_ratio=float(ratio.max()),
        thirds_p=checks.thirds_p,
        spread=float(checks.spread.max()),
        spread_p=checks.spread_p,
        kurtosis=float(checks.kurtosis.max()),
        tails_p=checks.tails_p,
        looked_only=report.looked_only,
        hidden_causes=report.hidden,
        hidden_gain=report.hidden_gain,
        curvature_p=checks.curvature_p,
    )


def residual_sentences(summary: ResidualSummary, n_lags: int) -> dict[str, str]:
    """One sentence for every violation, the gravest first, and for memory that was taken care of ("cured")."""
    found = [*(["cured"] if "memory" in summary.acted_on else []), *summary.violations]
    return {name: _SENTENCES[name](summary, n_lags) for name in found}


def say_residuals(estimator: Any, report: ResidualReport | None) -> None:
    """Set `residuals_` and say in `warnings_` what contradicts the model; warn of what may make edges wrong."""
    estimator.residuals_ = None if report is None else summarise(report)
    if report is None:
        return
    for name, sentence in residual_sentences(estimator.residuals_, len(estimator.dbn_.A)).items():
        estimator._tell(sentence)
        if name in GRAVE:
            warnings.warn(sentence, ResidualsWarning, stacklevel=6)


def _cured(s: ResidualSummary, n_lags: int) -> str:
    if s.noise_memory is None:
        return (
            f"residuals remembered earlier ones, so a lag was added: n_lags={n_lags} leaves none that do (score better by "
            f"{s.lag_gain or 0.0:.0f}). A hidden variable can look the same."
        )
    return (
        f"the noise is autocorrelated: it keeps {s.noise_memory:.2f} of itself from row to row. That was taken off before "
        "learning, which leaves residuals without memory; directions then rest on second moments, and forecasts do not use "
        "the memory. check_residuals=False leaves it in."
    )


def _hidden(s: ResidualSummary, n_lags: int) -> str:
    causes = " and another one of ".join(", ".join(effects) for effects in s.hidden_causes)
    return (
        f"a hidden cause of {causes} explains the rows better than edges between these variables do (score better by "
        f"{s.hidden_gain:.0f}): edges between them and lagged edges to them, also those at a probability near 1, may stand "
        "for it, and directions between them are left open; add what they share as a variable."
    )


def _memory(s: ResidualSummary, n_lags: int) -> str:
    numbers = f"(autocorrelation up to {s.autocorrelation:.2f}, echo {s.echo:.1f} standard errors, p {_p(s.memory_p)})"
    cure = "add what may be missing as a variable"
    if s.looked_only:
        cure = (
            f"`OneShotDBN().fit` finds out whether one lag more or noise with a memory explains it; or {cure}"
        )
    if s.lag_gain is not None and s.lag_gain > 0:
        cure = f"n_lags={n_lags + 1} scores {s.lag_gain:.0f} better, so try n_lags='auto'; or {cure}"
    if s.echo > _CLEAR_ECHO:
        return (
            f"residuals echo the network's own effects a lag too late {numbers}, as where values are measured with errors or "
            "a cause is hidden: weights are too small, and edges, also those at a probability near 1, may stand for what is "
            f"measured badly. Trust directions and single edges less; average neighbouring rows, or {cure}."
        )
    return (
        f"residuals are autocorrelated {numbers}, as with a hidden cause, a trend or cycle, too few lags, or noise with "
        f"memory: edges, also those at a probability near 1, may stand for that; {cure}."
    )


def _dependence(s: ResidualSummary, n_lags: int) -> str:
    return (
        f"residuals of the same row correlate (up to {s.dependence:.2f}, p {_p(s.dependence_p)}): an effect within a "
        "moment is missing, or a cause is hidden; look at forbidden_edges, or add what may be missing as a variable."
    )


def _volatility(s: ResidualSummary, n_lags: int) -> str:
    rows = f"{s.n_effective:.0f} of {s.n_rows} rows"
    follows = f"network and probabilities count {rows}."
    if s.looked_only:
        follows = f"the evidence is worth {rows}, so trust weak edges less; `OneShotDBN().fit` counts no more rows than that."
    return (
        f"the variance of the noise changes from row to row (squares a row apart correlate up to {s.arch:.2f}, "
        f"p {_p(s.volatility_p)}): {follows}"
    )


def _thirds(s: ResidualSummary, n_lags: int) -> str:
    return (
        f"the variance of the noise changes over the recordings (by a factor of up to {s.variance_ratio:.1f} between thirds, "
        f"p {_p(s.thirds_p)}): the noisier part rules the weights; fit the parts separately and keep what agrees."
    )


def _spread(s: ResidualSummary, n_lags: int) -> str:
    return (
        f"recordings differ in the variance of their noise (by a factor of {np.exp(s.spread):.1f} or more for one in three, "
        f"p {_p(s.spread_p)}): the noisier ones rule the weights; look for other units or leave them out."
    )


def _tails(s: ResidualSummary, n_lags: int) -> str:
    return (
        f"the noise has heavy tails (kurtosis up to {s.kurtosis:.0f}; 3 is Gaussian): single rows may decide about edges; "
        "look for spikes with `feddbn check`."
    )


def _curvature(s: ResidualSummary, n_lags: int) -> str:
    return (
        f"residuals go along with squares or cubes of causes (p {_p(s.curvature_p)}): effects are not straight lines, so "
        "weights are average slopes, and edges may be missing or have the wrong direction; use OneShotDBN with "
        "features='spline'."
    )


def _p(value: float) -> str:
    return f"= {value:.1g}" if value >= LEVEL / 1000 else f"< {LEVEL / 1000:g}"


_SENTENCES: dict[str, Callable[[ResidualSummary, int], str]] = {
    "cured": _cured,
    "hidden": _hidden,
    "memory": _memory,
    "dependence": _dependence,
    "volatility": _volatility,
    "thirds": _thirds,
    "spread": _spread,
    "tails": _tails,
    "curvature": _curvature,
}
