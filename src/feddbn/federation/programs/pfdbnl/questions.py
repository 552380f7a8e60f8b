"""What PFDBNL asks of sites."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

from feddbn.core.arrays import FloatArray
from feddbn.core.constraints import EdgeConstraints
from feddbn.core.penalised.acyclicity import ACYCLICITIES
from feddbn.core.penalised.path import Stage, make_schedule
from feddbn.core.penalised.personal_site import PersonalRound
from feddbn.core.penalised.pooled import OPTIMA, penalty_matrix
from feddbn.federation.programs.fdbnl import WEIGHTINGS
from feddbn.federation.protocol.rows import RowsQuestion
from feddbn.federation.protocol.task import (
    Constant,
    Scope,
    array,
    choice,
    flag,
    number,
    whole,
)

AVERAGES = ("running", "participants")
MOST_ROUNDS = 2000
"""Rounds of a fit, unless other settings are given."""
MOST_PULLS = 16
"""Values of mu that a run may try: each is another nonlinear function of every site's moments."""
MOST_WEIGHT = 1e6
"""Largest weight of a broadcast model, in the units of rounds."""
RHO = 2.0
"""Curvature of the pull between a site's weights and their acyclic copy, and of the consensus."""


@dataclass(frozen=True, kw_only=True)
class FitQuestion(RowsQuestion):
    """What every question of one fit carries: the problem. Variables are ``(z - origin) / scale``.

    Attributes
    ----------
    run
        Number of the fit; a site forgets the one before.
    optimum, is_proven
        In which order each site ends, and whether it tries to prove that there is no better one.
    n_sites, mean_rows
        Number of sites, and mean number of rows of one.
    allowed, required
        Edges that may, and that must, be there; without them everything but self-loops may.
    """

    run: int = whole()
    weighting: str = choice(*WEIGHTINGS)
    mu: float = number(0.0, infinite=True)
    lambda_w: float = number(0.0)
    lambda_a: float = number(0.0)
    w_threshold: float = number(0.0)
    a_threshold: float = number(0.0)
    acyclicity: str = choice(*ACYCLICITIES)
    average: str = choice(*AVERAGES)
    optimum: str = choice(*OPTIMA)
    is_proven: bool = flag()
    n_sites: int = whole(1, 1_000_000)
    mean_rows: float = number(0.0)
    origin: FloatArray = array("q")
    scale: FloatArray = array("q")
    metric: FloatArray = array("q")
    allowed: FloatArray | None = array("q", "d", default=None)
    required: FloatArray | None = array("q", "d", default=None)

    def check(self) -> None:
        """Edges that must be there go with those that may."""
        super().check()
        if (self.allowed is None) != (self.required is None):
            raise self.wrong("'allowed' and 'required' go together")

    def check_scope(self, scope: Scope) -> None:
        """Weights, the order and the number of sites are the study's."""
        super().check_scope(scope)
        given = scope.parameters
        optimum = "path" if given.get("schedule") == "paper" else given.get("optimum", OPTIMA[0])
        for name, value in (("weighting", given.get("weighting", WEIGHTINGS[0])), ("optimum", optimum)):
            asked = getattr(self, name)
            scope.require(asked == value, self.name, f"{name!r} is {asked!r}")
        scope.require(self.n_sites == len(scope.sites), self.name, f"'n_sites' is {self.n_sites}")
        for name, values in scope.numbers.items():
            value = getattr(self, name)
            scope.require(value in values, self.name, f"{name!r} is {value:g}")

    @property
    def constants(self) -> tuple[Constant, ...]:
        """Also the units of the variables, and few pulls: answers are not linear in a site's moments."""
        units = (self.mean_rows, self.origin, self.scale, self.metric)
        pulls = Constant("pulls", (self.mu,), MOST_PULLS)
        return *super().constants, self.settled_once("units of rounds", units), pulls

    @property
    def told_rows(self) -> float | None:
        """The mean of all sites, times their number."""
        return self.mean_rows * self.n_sites

    @cached_property
    def constraints(self) -> EdgeConstraints:
        """Which edges may, and must, be there."""
        if self.allowed is None or self.required is None:
            return EdgeConstraints.none(self.d, self.n_lags)
        return EdgeConstraints(self.allowed != 0, self.required != 0)

    @cached_property
    def penalty(self) -> FloatArray:
        """(q, d) L1 weights."""
        return penalty_matrix(self.constraints, self.lambda_w, self.lambda_a)


@dataclass(frozen=True, kw_only=True)
class SharedQuestion(FitQuestion):
    """A question with the shared graphs C.

    Which answers of a site counted, nobody tells it: its state is that of the last one that did
    (`federation.protocol.endpoint`), and its masks fit only those of sites that were asked the same.
    """

    C: FloatArray = array("q", "d")

    def check_scope(self, scope: Scope) -> None:
        """Weights of C are no larger than weights can be: with huge ones a step would show a site's moments."""
        super().check_scope(scope)
        is_small = bool((abs(self.C) <= MOST_WEIGHT).all())
        scope.require(is_small, self.name, f"'C' has entries above {MOST_WEIGHT:g}")


@dataclass(frozen=True, kw_only=True)
class StepQuestion(SharedQuestion):
    """One round; the fields after `serial` are those of `core.penalised.personal_site.PersonalRound`."""

    name = "step.personal"
    purpose = (
        "one round of PFDBNL: by how much this site's weights have moved. It is no plain sum over rows, so a server that "
        "does not keep to the method could learn from it how sites differ"
    )

    round: int = whole()
    stage: str = choice(*(stage.value for stage in Stage))
    serial: int = whole()
    rho: float = number(0.0)
    rho1: float = number(0.0)
    rho2: float = number(0.0)
    rho2_before: float = number(0.0)
    alpha: float | None = number(default=None)
    acyclic_steps: int = whole(0, 10_000)
    is_exact: bool = flag()
    is_ordered: bool = flag()
    in_series: bool = flag()
    tol: float = number(0.0)

    def check_scope(self, scope: Scope) -> None:
        """Penalties are those of the study's schedule: with others, a server could tell sites apart by their answers."""
        super().check_scope(scope)
        given = scope.parameters
        most = given.get("max_rounds", MOST_ROUNDS)
        scope.require(self.round <= most, self.name, f"'round' is {self.round}")
        is_paper = given.get("schedule") == "paper"
        growth = {name: given.get(name) for name in ("rho2", "phi2")} if is_paper else {"rho2": RHO}
        schedule = make_schedule("paper" if is_paper else "rounds", 1, 1.0, **growth)
        for name in ("rho2", "rho2_before"):
            value = getattr(self, name)
            is_reached = schedule.has_rho2(value, self.round, given.get("participation", 1.0) != 1.0)
            scope.require(is_reached, self.name, f"{name!r} is {value:g}")
        scope.require(self.rho == RHO, self.name, f"'rho' is {self.rho:g}")
        scope.require(self.in_series != is_paper, self.name, f"'in_series' is {self.in_series}")
        if is_paper:
            scope.require(bool((self.metric == 1.0).all()), self.name, "'metric' is not 1 throughout")

    @property
    def rules(self) -> PersonalRound:
        """What the round asks of a participant."""
        return PersonalRound(**{item.name: getattr(self, item.name) for item in fields(PersonalRound)})


@dataclass(frozen=True, kw_only=True)
class FinishQuestion(SharedQuestion):
    """The end of a fit: every site makes its personal graph; what leaves is about the shared one."""

    name = "step.finish"
    purpose = "end of PFDBNL: loss of the shared network"

    refit: bool = flag()
    shared: FloatArray = array("q", "d")
