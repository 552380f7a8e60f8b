"""What a curious server learns from the messages of a run, round by round, in the clear and under masks.

The real site tasks run, with the published schedules [fdbnl Algorithms 1 and 2]. The plain server keeps every site's
answers, the masked one only what secure aggregation shows it, the sums. PFDBNL's sites solve their step to 1e-5, which is
what limits how well their messages can be inverted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from feddbn.core.arrays import FloatArray
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.designs.recordings import complete_rows, lagged_rows
from feddbn.data import SiteData
from feddbn.errors import ParameterError
from feddbn.federation.programs.fdbnl import FDBNLSettings, Rounds, StepQuestion, fdbnl_program
from feddbn.federation.programs.pfdbnl.questions import StepQuestion as PersonalStep
from feddbn.federation.programs.pfdbnl.rounds import PersonalRounds, PFDBNLSettings, personal_program
from feddbn.federation.protocol.site import Site
from feddbn.federation.protocol.task import ServerProgram, Sum, Task, run_program
from feddbn.federation.sums.prepare import AS_THEY_ARE
from feddbn.runtime.simulated.in_process import InProcessFederation
from feddbn.runtime.simulated.secure import secure_federation
from reproduction.attack import (
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


Heard = list[tuple[Task, dict[str, FloatArray]]]
MakeProgram = Callable[[tuple[str, ...]], ServerProgram[Any]]


class _Eavesdropper(InProcessFederation):
    """A plain federation whose server keeps every answer it is sent."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        super().__init__(sites)
        self.heard: Heard = []

    def sum(self, task: Task) -> Sum:
        answers = {name: np.array(self.site(name).answer(task)) for name in self.sites}
        self.heard.append((task, answers))
        return Sum(np.sum([answers[name] for name in self.sites], axis=0), self.sites)


def _listen(
    sites: Mapping[str, SiteData], program: MakeProgram, name: str
) -> tuple[_Eavesdropper, Heard, Heard]:
    """Run a program in the clear and under masks; return the plain federation and what each server heard of a task.

    Of masked answers that is their mean, under the name of "mean".
    """
    plain = _Eavesdropper({name: Site(name, data) for name, data in sites.items()})
    run_program(program(plain.sites), plain)
    sums: Heard = []
    masked = secure_federation({name: Site(name, data) for name, data in sites.items()})
    run_program(
        program(masked.sites),
        masked,
        lambda task, answer: sums.append((task, {"mean": answer.value / len(answer.contributors)})),
    )
    return (
        plain,
        [item for item in plain.heard if item[0].name == name],
        [i for i in sums if i[0].name == name],
    )


def _rounds(
    plain: Iterable[Mapping[str, FloatArray]],
    masked: Iterable[Mapping[str, FloatArray]],
    truths: Mapping[str, FloatArray],
) -> tuple[LeakRound, ...]:
    """Return the errors of the estimates after each round."""
    found = []
    for number, (one, mean) in enumerate(zip(plain, masked, strict=True), 1):
        errors = [relative_error(one[name], truth) for name, truth in truths.items()]
        masked_error = rms_error([mean["mean"]] * len(truths), list(truths.values()))
        found.append(LeakRound(number, float(np.median(errors)), max(errors), masked_error))
    return tuple(found)


def _at_least_one(n_rounds: int) -> int:
    if n_rounds < 1:
        raise ParameterError(f"rounds must be at least 1, got {n_rounds}.")
    return n_rounds


def attack_fdbnl(sites: Mapping[str, SiteData], n_lags: int = 1, n_rounds: int | None = None) -> LeakReport:
    """Run FDBNL for `n_rounds` (default p + 2), plain and masked, and attack both; p + 1 rounds suffice."""
    variables = tuple(next(iter(sites.values())).variables)
    d, q = len(variables), (n_lags + 1) * len(variables)
    n_rounds = _at_least_one(n_lags + 2 if n_rounds is None else n_rounds)
    settings = FDBNLSettings(
        n_lags=n_lags,
        schedule="paper",
        rounds=Rounds(max_rounds=n_rounds),
        refit=False,
        prepare=replace(AS_THEY_ARE, center="auto", scale="none"),
    )
    constraints = EdgeConstraints.none(d, n_lags)

    def program(names: tuple[str, ...]) -> ServerProgram[Any]:
        return fdbnl_program(settings, variables, constraints, len(names))

    plain, heard, sums = _listen(sites, program, StepQuestion.name)
    truths = {name: np.asarray(plain.site(name).state["fdbnl.wG"]) for name in plain.sites}
    estimates = list(_consensus_estimates(heard, q, d))
    first = heard[0][0].question
    assert isinstance(first, StepQuestion)
    cross_products = {name: first.n_total * estimates[-1][name] for name in plain.sites}
    return LeakReport(
        "FDBNL",
        _rounds(estimates, _consensus_estimates(sums, q, d), truths),
        mean_guess_error(list(truths.values())),
        _rows_found(sites, cross_products, first.origin, n_lags, q),
    )


def _consensus_estimates(heard: Heard, q: int, d: int) -> Iterator[dict[str, FloatArray]]:
    attacks: dict[str, ConsensusAttack] = {}
    for task, answers in heard:
        asked = task.question
        assert isinstance(asked, StepQuestion)
        for name, answer in answers.items():
            attack = attacks.setdefault(name, ConsensusAttack(q, d, asked.metric))
            attack.observe(
                asked.C, answer, asked.rho2, asked.rho2_before, asked.relaxation, cast(Ask, asked.ask)
            )
        yield {name: attack.estimate() for name, attack in attacks.items()}


def _rows_found(
    sites: Mapping[str, SiteData],
    cross_products: Mapping[str, FloatArray],
    center: FloatArray,
    n_lags: int,
    q: int,
) -> dict[str, float]:
    found = {}
    for name, data in sites.items():
        rows = (
            np.concatenate(
                [z for r in map(complete_rows, data.recordings()) for z in lagged_rows(r.blocks(), n_lags)]
            )
            - center
        )
        if len(rows) < q:
            found[name] = rotation_distance(rows_from_gram(cross_products[name], len(rows)), rows)
    return found


def attack_pfdbnl(
    sites: Mapping[str, SiteData], n_lags: int = 1, n_rounds: int | None = None, mu: float = 0.5
) -> LeakReport:
    """Run PFDBNL's published updates for `n_rounds` (default 3 (p + 1)), plain and masked, and attack both."""
    variables = tuple(next(iter(sites.values())).variables)
    d, q = len(variables), (n_lags + 1) * len(variables)
    rounds = PersonalRounds(
        weighting="sites",
        max_rounds=_at_least_one(3 * (n_lags + 1) if n_rounds is None else n_rounds),
        refit=False,
        alpha="shared",
        average="participants",
    )
    settings = PFDBNLSettings(
        mu=mu,
        n_lags=n_lags,
        lambda_w=0.01,
        lambda_a=0.01,
        schedule="paper",
        rounds=rounds,
        prepare=replace(AS_THEY_ARE, scale="none"),
    )
    constraints = EdgeConstraints.none(d, n_lags)

    def program(names: tuple[str, ...]) -> ServerProgram[Any]:
        return personal_program(settings, variables, constraints, names)

    plain, heard, sums = _listen(sites, program, PersonalStep.name)
    truths = {name: np.asarray(plain.site(name).state["personal.wG"]) for name in plain.sites}
    found = _rounds(_personal_estimates(heard, q, d), _personal_estimates(sums, q, d), truths)
    return LeakReport("PFDBNL", found, mean_guess_error(list(truths.values())), {})


def _personal_estimates(heard: Heard, q: int, d: int) -> Iterator[dict[str, FloatArray]]:
    attacks: dict[str, PersonalAttack] = {}
    for task, answers in heard:
        asked = task.question
        assert isinstance(asked, PersonalStep)
        known = PersonalRound(asked.C, asked.rho2, asked.mu, asked.penalty, asked.alpha or 0.0, asked.rho1)
        for name, answer in answers.items():
            attacks.setdefault(name, PersonalAttack(q, d)).observe(known, answer)
        yield {name: attack.estimate() for name, attack in attacks.items()}
