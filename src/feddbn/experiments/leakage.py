"""What a curious server learns from the messages of a run, round by round, in the clear and under masks.

FDBNL: the real site tasks run; the plain server keeps every site's answers, the masked one only what secure
aggregation shows it, the sums. PFDBNL: messages of the published algorithm [fdbnl Algorithm 2], each site
solved to high precision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.designs.lagged import lagged_rows
from feddbn.core.graphs.acyclicity import expm_value_and_grad
from feddbn.core.graphs.constraints import EdgeConstraints
from feddbn.data import SiteData
from feddbn.errors import ParameterError
from feddbn.federation.programs.fdbnl import ConsensusSettings, fdbnl_program
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import Sum, Task, run_program
from feddbn.privacy.attack import (
    Ask,
    ConsensusAttack,
    PersonalAttack,
    PersonalRound,
    mean_guess_error,
    relative_error,
    rms_error,
    rotation_distance,
    rows_from_gram,
)
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.secure import secure_federation

__all__ = ["LeakReport", "LeakRound", "attack_fdbnl", "attack_pfdbnl"]


@dataclass(frozen=True)
class LeakRound:
    """Errors of the reconstructed Gram matrices after one round.

    Attributes
    ----------
    plain_median, plain_worst
        Relative errors over sites, from plain messages.
    masked_rms
        Error of the attacker's one estimate for all sites, from sums; None if sums were not attacked.
    """

    round: int
    plain_median: float
    plain_worst: float
    masked_rms: float | None


@dataclass(frozen=True)
class LeakReport:
    """The attack as a whole.

    Attributes
    ----------
    mean_guess
        Error of guessing the federation's mean for every site: the floor for any attacker who sees sums only.
    rows
        For sites with fewer rows than columns: relative distance of the reconstructed to the true rows, up
        to a rotation, after the last round.
    """

    method: str
    rounds: tuple[LeakRound, ...]
    mean_guess: float
    rows: Mapping[str, float]


class _Eavesdropper(InProcessFederation):
    """A plain federation whose server keeps every answer it is sent."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        super().__init__(sites)
        self.heard: list[tuple[Task, dict[str, FloatArray]]] = []

    def sum(self, task: Task) -> Sum:
        answers: dict[str, FloatArray] = {}
        for name in self.sites:
            answers[name] = np.array(self.site(name).answer(task))
        self.heard.append((_kept(task), answers))
        return Sum(np.sum([answers[name] for name in self.sites], axis=0), self.sites)


def _kept(task: Task) -> Task:
    """Return the task as it was sent; the server's own arrays go on changing."""
    return replace(task, arrays={name: array.copy() for name, array in task.arrays.items()})


def attack_fdbnl(
    sites: Mapping[str, SiteData], n_lags: int = 1, n_rounds: int | None = None, schedule: str = "paper"
) -> LeakReport:
    """Run FDBNL for `n_rounds` (default p + 2), plain and masked, and attack both.

    With the published schedule p + 1 rounds suffice. The adaptive schedule starts with gradients at sparse
    points; how many rounds it takes then depends on how many edges these points have.
    """
    variables = tuple(next(iter(sites.values())).variables)
    d, q = len(variables), (n_lags + 1) * len(variables)
    n_rounds = n_lags + 2 if n_rounds is None else n_rounds
    if n_rounds < 1:
        raise ParameterError(f"rounds must be at least 1, got {n_rounds}.")
    settings = ConsensusSettings(n_lags, 0.05, 0.05, schedule=schedule, max_rounds=n_rounds, refit=False)
    constraints = EdgeConstraints.none(d, n_lags)
    plain = _Eavesdropper({name: Site(name, data) for name, data in sites.items()})
    run_program(fdbnl_program(settings, variables, constraints, len(sites)), plain)
    truths = [np.asarray(plain.site(name).state["fdbnl.wG"]) for name in plain.sites]

    sums: list[tuple[Task, dict[str, FloatArray]]] = []
    masked = secure_federation({name: Site(name, data) for name, data in sites.items()})
    run_program(
        fdbnl_program(settings, variables, constraints, len(sites)),
        masked,
        lambda task, answer: sums.append((_kept(task), {"mean": answer.value / len(answer.contributors)})),
    )
    estimates = list(_consensus_estimates(plain.heard, plain.sites, q, d))
    means = list(_consensus_estimates(sums, ("mean",), q, d))
    rounds = []
    for number, (one, mean) in enumerate(zip(estimates, means, strict=True), 1):
        errors = [relative_error(one[name], truth) for name, truth in zip(plain.sites, truths, strict=True)]
        masked_error = rms_error([mean["mean"]] * len(truths), truths)
        rounds.append(LeakRound(number, float(np.median(errors)), max(errors), masked_error))
    n_total = next(float(str(task.params["n_total"])) for task, _ in plain.heard if task.name == "fdbnl-step")
    last = {name: n_total * estimates[-1][name] for name in plain.sites}
    rows = _rows_found(sites, last, plain.heard, n_lags, q)
    return LeakReport("FDBNL", tuple(rounds), mean_guess_error(truths), rows)


def _consensus_estimates(
    heard: list[tuple[Task, dict[str, FloatArray]]], names: tuple[str, ...], q: int, d: int
) -> Iterator[dict[str, FloatArray]]:
    attacks: dict[str, ConsensusAttack] = {}
    for task, answers in heard:
        if task.name != "fdbnl-step":
            continue
        rho2, before, relaxation = (
            float(str(task.params[key])) for key in ("rho2", "rho2_before", "relaxation")
        )
        ask = cast(Ask, task.params["ask"])
        for name in names:
            attack = attacks.setdefault(name, ConsensusAttack(q, d, task.arrays["metric"]))
            attack.observe(task.arrays["C"], answers[name], rho2, before, relaxation, ask)
        yield {name: attacks[name].estimate() for name in names}


def _rows_found(
    sites: Mapping[str, SiteData],
    cross_products: Mapping[str, FloatArray],
    heard: list[tuple[Task, dict[str, FloatArray]]],
    n_lags: int,
    q: int,
) -> dict[str, float]:
    center = next(task.arrays["center"] for task, _ in heard if task.name == "fdbnl-step")
    found = {}
    for name, data in sites.items():
        rows = (
            np.concatenate([z for r in data.recordings() for z in lagged_rows(r.blocks(), n_lags)]) - center
        )
        if len(rows) < q:
            found[name] = rotation_distance(rows_from_gram(cross_products[name], len(rows)), rows)
    return found


def attack_pfdbnl(
    sites: Mapping[str, SiteData],
    n_lags: int = 1,
    n_rounds: int | None = None,
    mu: float = 0.5,
    penalty: float = 0.01,
    rho2: float = 1.0,
) -> LeakReport:
    """Run PFDBNL's published updates for `n_rounds` (default 3 (p + 1)) and attack the plain messages and
    their mean.
    """
    d = len(next(iter(sites.values())).variables)
    q = (n_lags + 1) * d
    n_rounds = 3 * (n_lags + 1) if n_rounds is None else n_rounds
    if n_rounds < 1:
        raise ParameterError(f"rounds must be at least 1, got {n_rounds}.")
    names = sorted(sites)
    grams = []
    for name in names:
        rows = [z for r in sites[name].recordings() for z in lagged_rows(r.blocks(), n_lags)]
        Z = np.concatenate(rows)
        grams.append(Z.T @ Z / len(Z))
    T = [np.zeros((q, d)) for _ in names]
    U = [np.zeros((q, d)) for _ in names]
    attacks = [PersonalAttack(q, d) for _ in names]
    on_mean = PersonalAttack(q, d)
    Cbar, alpha, rho1, rounds = np.zeros((q, d)), 0.0, 1.0, []
    for number in range(1, n_rounds + 1):
        known = PersonalRound(Cbar, rho2, mu, np.full((q, d), penalty), alpha, rho1)
        messages, hs = [], []
        for k in range(len(names)):
            C = _personal_weights(grams[k], T[k], known)
            hs.append(expm_value_and_grad(C[:d])[0])
            T[k] = (2 * mu * C + rho2 * Cbar - U[k]) / (2 * mu + rho2)
            messages.append(T[k] + U[k] / rho2)
            attacks[k].observe(known, messages[-1])
        Cbar = np.mean(messages, axis=0)
        on_mean.observe(known, Cbar)
        U = [u + rho2 * (t - Cbar) for u, t in zip(U, T, strict=True)]
        alpha, rho1 = alpha + rho1 * float(np.mean(hs)), 1.6 * rho1
        errors = [relative_error(a.estimate(), G) for a, G in zip(attacks, grams, strict=True)]
        masked = rms_error([on_mean.estimate()] * len(grams), grams)
        rounds.append(LeakRound(number, float(np.median(errors)), max(errors), masked))
    return LeakReport("PFDBNL", tuple(rounds), mean_guess_error(grams), {})


def _personal_weights(G: FloatArray, T: FloatArray, known: PersonalRound) -> FloatArray:
    """Return argmin of a site's PFDBNL problem by proximal gradient with backtracking, to the last digits."""
    q, d = T.shape
    E = np.eye(q, d)
    allowed = np.ones((q, d))
    allowed[:d][np.diag_indices(d)] = 0.0

    def smooth(C: FloatArray) -> tuple[float, FloatArray]:
        h, gradient_h = expm_value_and_grad(C[:d])
        R = C - E
        value = 0.5 * float(np.sum(R * (G @ R))) + known.mu * float(np.sum((C - T) ** 2))
        gradient = G @ R + 2 * known.mu * (C - T)
        gradient[:d] += (known.alpha + known.rho1 * h) * gradient_h
        return value + known.alpha * h + known.rho1 / 2 * h * h, gradient

    C, step = T * allowed, 1.0 / (float(np.linalg.eigvalsh(G)[-1]) + 2 * known.mu)
    for _ in range(5000):
        value, gradient = smooth(C)
        while True:
            moved = C - step * gradient
            new = np.sign(moved) * np.maximum(np.abs(moved) - step * known.penalty, 0.0) * allowed
            delta = new - C
            bound = value + float(np.sum(gradient * delta)) + float(np.sum(delta**2)) / (2 * step)
            if smooth(new)[0] <= bound + 1e-14 * abs(value):
                break
            step /= 2
        C = new
        if np.max(np.abs(delta)) < 1e-15:
            break
    return np.asarray(C)
