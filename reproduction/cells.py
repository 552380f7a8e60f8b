"""The grid of an experiment as cells, the smallest piece of work that is run, recorded and resumed; and the methods they
run.

"paper" settings are the paper's where it states them; "ours" are this package's defaults, with penalties chosen
without the truth. A class that cannot be imported makes its cells wait, not fail: see `ComparedMethod.is_available`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from types import MappingProxyType
from typing import Any, Literal

from feddbn.method_table import METHODS as METHOD_TABLE
from reproduction.config import PROTOCOLS, Experiment, Point

Settings = Mapping[str, Any]

PAPER_LAMBDAS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
"""[fdbnl] "from [0.05, 0.5]", every second step; the paper's unweighted sum makes them act as lambda / K."""
QUICK_PAPER_LAMBDAS = (0.05, 0.2, 0.5)
OUR_LAMBDAS = (0.01, 0.02, 0.05, 0.1, 0.2)
OUR_TUNED_LAMBDAS = (0.02, 0.05, 0.1)
GRID = (0.05, 0.1, 0.2, 0.35, 0.5)

# [fdbnl] phi1 = 1.6, phi2 = 1.1, rho = 1, duals 0, thresholds 0.3, no refit. After 100 rounds rho2 has grown by
# 1.1^100 = 1.4e4, so nothing moves any more: more rounds change nothing.
_PAPER = {"schedule": "paper", "weighting": "sites", "refit": False, "max_rounds": 100}
_PAPER_CUT = {"w_threshold": 0.3, "a_threshold": 0.3}
# [fdbnl] Algorithm 2: one multiplier for all sites, the mean over this round's participants, unweighted losses.
_PAPER_PERSONAL = {
    "mu": 0.1,
    "schedule": "paper",
    "alpha": "shared",
    "average": "participants",
    "weighting": "sites",
    "refit": False,
}
_NO_CUT = {"w_threshold": 0.0, "a_threshold": 0.0, "refit": False}
# [fdbnl] fMRI: "lambda_W = 0.05 and lambda_A = 0.01 work well"; the authors' notebook cuts at 0.2.
_FMRI = {"lambda_w": 0.05, "lambda_a": 0.01, "w_threshold": 0.2, "a_threshold": 0.2, "refit": False}
# Other thresholds, shown only as an upper bound that is chosen with the truth and says so.
_CUTS = {"cuts": [0.05, 0.1, 0.15, 0.2, 0.25]}


@dataclass(frozen=True)
class ComparedMethod:
    """A method under one name.

    Attributes
    ----------
    key, where
        Name in configurations; name in the method table, or ``module:name`` of what is not in it.
    run
        How its cell is run: a plain fit, a fit at lambdas selected without the truth, the group of baselines
        that share local fits, an edge ranking, or a method without sites for context.
    simulated, dream4, netsim
        Constructor arguments on that kind of data; None if the method has no meaning there.
    lambdas, quick_lambdas
        Penalties (lambda_w, lambda_a) tried on simulated data, each a result of its own.
    joint
        On DREAM4, whether the five data sets are the five sites of one fit.
    needs
        A package beyond the dependencies that the method is made of.
    seconds, seconds_real
        Expected seconds of one fit with 10 variables at 10 sites, and of a cell on DREAM4; for order and progress only.
    """

    key: str
    where: str
    run: Literal["fit", "select", "local", "rank", "context"] = "fit"
    simulated: Settings | None = None
    dream4: Settings | None = None
    netsim: Settings | None = None
    lambdas: tuple[tuple[float, float], ...] = ()
    quick_lambdas: tuple[tuple[float, float], ...] = ()
    joint: bool = False
    seconds: float = 0.3
    seconds_real: float = 5.0
    needs: str | None = None

    @property
    def cls(self) -> str:
        """Name of its class or function."""
        return METHOD_TABLE[self.where].cls if self.where in METHOD_TABLE else self.where.partition(":")[2]

    @property
    def personal(self) -> bool:
        """Whether it learns one network per site."""
        return self.where in METHOD_TABLE and METHOD_TABLE[self.where].is_personal

    def load(self) -> Any:
        """The estimator class, or an ImportError or AttributeError."""
        if self.where in METHOD_TABLE:
            return METHOD_TABLE[self.where].load()
        module, _, name = self.where.partition(":")
        return getattr(import_module(module), name)

    def make(self, **settings: Any) -> Any:
        """An estimator; its penalties act on the units of the data, as in the paper and in all recorded rows.

        A row's identity names neither a scale nor in which optimum a fit ends, so what a package version takes by default
        must not reach it.
        """
        cls = self.load()
        recorded = {"scale": "none", "optimum": "path"}
        known = signature(cls).parameters
        return cls(**{name: value for name, value in recorded.items() if name in known}, **settings)

    @property
    def is_available(self) -> bool:
        """Whether the class can be imported."""
        if self.needs is not None and find_spec(self.needs) is None:
            return False
        try:
            self.load()
        except (ImportError, AttributeError):
            return False
        return True

    def applies_to(self, point: Point, kind: str) -> bool:
        """Whether the method has settings for this kind of data and this point."""
        if kind == "dream4":
            return self.dream4 is not None and self.joint == (point.network == 0)
        if kind == "netsim":
            return self.netsim is not None
        if self.simulated is None:
            return False
        return point.participants is None or "mu" in self.simulated

    def settings_for(self, point: Point, kind: str, quick: bool = False) -> dict[str, Any]:
        """Constructor arguments and penalties on this kind of data, as plain values."""
        if kind in ("dream4", "netsim"):
            return dict((self.dream4 if kind == "dream4" else self.netsim) or {})
        settings = dict(self.simulated or {})
        pairs = self.quick_lambdas if quick and self.quick_lambdas else self.lambdas
        if settings.pop("lambdas_by_d", False):
            # [fdbnl] "0.1 works well for d = {5, 10}, while 0.01 is effective for d = {15, 20}"
            value = 0.1 if (point.d or 0) <= 10 else 0.01
            pairs = ((value, value),)
        if quick and "mu" in settings:
            # A personal round solves every site's problem by itself; a tour shows the method, not its limit.
            settings["max_rounds"] = 10
        if pairs:
            settings["lambdas"] = [list(pair) for pair in pairs]
        return settings

    def expected_seconds(self, point: Point, kind: str, quick: bool = False) -> float:
        """Rough seconds of a cell."""
        if kind in ("dream4", "netsim"):
            return self.seconds_real if kind == "dream4" else 0.3 * self.seconds_real
        settings = self.settings_for(point, kind, quick)
        fits = max(1, len(settings.get("lambdas", ())), len(settings.get("select", ())))
        size = math.pow((point.d or 10) / 10, 1.2)
        sites = (point.n_sites or 10) / 10
        share = sites if self.run == "local" else 0.4 + 0.6 * sites
        return self.seconds * fits * size * share


_METHODS = (
    ComparedMethod(
        "fdbnl-paper",
        "fdbnl",
        simulated={**_PAPER, **_PAPER_CUT},
        # [fdbnl] "lambda_W = lambda_A = 0.0025 work well for all DREAM4 datasets"; edges are ranked, not cut.
        dream4={**_PAPER, **_NO_CUT, "max_rounds": 60, "lambda_w": 0.0025, "lambda_a": 0.0025},
        netsim={**_PAPER, **_FMRI, **_CUTS},
        lambdas=tuple((x, x) for x in PAPER_LAMBDAS),
        quick_lambdas=tuple((x, x) for x in QUICK_PAPER_LAMBDAS),
        seconds=0.25,
    ),
    ComparedMethod(
        "fdbnl-grid",
        "fdbnl",
        simulated={**_PAPER, **_PAPER_CUT},
        lambdas=tuple((w, a) for w in GRID for a in GRID),
        quick_lambdas=tuple((w, a) for w in (0.05, 0.5) for a in (0.05, 0.5)),
        seconds=0.25,
    ),
    ComparedMethod(
        "fdbnl",
        "fdbnl",
        run="select",
        simulated={"select": list(OUR_LAMBDAS)},
        netsim={"lambda_w": 0.05, "lambda_a": 0.01, **_CUTS},
        seconds=0.08,
    ),
    ComparedMethod(
        "fdbnl-tuned",
        "fdbnl",
        simulated={},
        lambdas=tuple((x, x) for x in OUR_TUNED_LAMBDAS),
        quick_lambdas=((0.05, 0.05),),
        seconds=0.08,
    ),
    ComparedMethod(
        "fdbnl-d",
        "fdbnl",
        dream4={**_PAPER, **_NO_CUT, "max_rounds": 60, "lambda_w": 0.001, "lambda_a": 0.001},
        joint=True,
    ),
    ComparedMethod(
        "alldata",
        "dynotears",
        simulated={"refit": False, **_PAPER_CUT},
        dream4={**_NO_CUT, "lambda_w": 0.0025, "lambda_a": 0.0025, "max_rounds": 300},
        netsim={**_FMRI},
        lambdas=tuple((x, x) for x in OUR_LAMBDAS),
        quick_lambdas=((0.05, 0.05),),
        seconds=0.06,
        seconds_real=20.0,
    ),
    ComparedMethod(
        "local",
        "local",
        run="local",
        # [fdbnl] follows Pamfil et al. for Ave and Best; DYNOTEARS' simulations use lambda 0.05.
        simulated={"refit": False, **_PAPER_CUT, "lambda_w": 0.05, "lambda_a": 0.05, "max_rounds": 300},
        dream4={**_NO_CUT, "lambda_w": 0.0025, "lambda_a": 0.0025, "max_rounds": 100},
        netsim={**_FMRI, "max_rounds": 300},
        seconds=0.5,
        seconds_real=60.0,
    ),
    ComparedMethod(
        "pfdbnl-paper",
        "pfdbnl",
        # [fdbnl] mu = 0.1, lambdas by d, the paper's schedule.
        simulated={**_PAPER_PERSONAL, **_PAPER_CUT, "max_rounds": 100, "lambdas_by_d": True},
        dream4={**_PAPER_PERSONAL, **_NO_CUT, "lambda_w": 0.001, "lambda_a": 0.001, "max_rounds": 30},
        netsim={**_PAPER_PERSONAL, **_FMRI, **_CUTS, "lambda_w": 0.01, "lambda_a": 0.01},
        joint=True,
        seconds=2.5,
        seconds_real=60.0,
    ),
    ComparedMethod(
        "pfdbnl-fixed",
        "pfdbnl",
        # The paper's mu and penalties with this package's schedule and refit.
        netsim={"mu": 0.1, "lambda_w": 0.01, "lambda_a": 0.01, **_CUTS},
        seconds_real=10.0,
    ),
    ComparedMethod(
        "pfdbnl",
        "pfdbnl",
        simulated={"mu": "auto"},
        netsim={"mu": "auto", "lambda_w": 0.01, "lambda_a": 0.01, **_CUTS},
        joint=True,
        seconds=6.0,
        seconds_real=60.0,
    ),
    ComparedMethod("oneshot", "oneshot", simulated={}, seconds=0.7),
    ComparedMethod(
        "ranker",
        "reproduction.edge_ranking:LaggedEdgeRanker",
        run="rank",
        dream4={"smoothing": 0.6, "features": "quadratic", "center_by": "stimulus"},
        seconds_real=6.0,
    ),
    ComparedMethod(
        "ranker-blind",
        "reproduction.edge_ranking:LaggedEdgeRanker",
        run="rank",
        dream4={"smoothing": 0.6, "features": "quadratic"},
        seconds_real=6.0,
    ),
    ComparedMethod(
        "direction",
        "reproduction.edge_ranking:ContemporaneousEdgeRanker",
        run="rank",
        netsim={},
        seconds_real=1.0,
    ),
    ComparedMethod(
        "ridge-var",
        "reproduction.context:ridge_var",
        run="context",
        dream4={},
        netsim={},
        seconds_real=0.5,
    ),
    ComparedMethod(
        "forest",
        "reproduction.context:forest_var",
        run="context",
        dream4={"n_trees": 100},
        netsim={"n_trees": 100},
        seconds_real=30.0,
    ),
    ComparedMethod(
        "var-lingam",
        "reproduction.context:var_lingam",
        needs="lingam",
        run="context",
        netsim={},
        seconds_real=30.0,
    ),
    ComparedMethod(
        "pcmci",
        "reproduction.context:pcmci",
        needs="tigramite",
        run="context",
        netsim={},
        seconds_real=30.0,
    ),
)

METHODS: Mapping[str, ComparedMethod] = MappingProxyType({method.key: method for method in _METHODS})


@dataclass(frozen=True)
class Cell:
    """One method on one data set.

    Attributes
    ----------
    kind, protocol, point, method, seed
        What is run; see `Experiment`.
    quick
        Whether the lambda path is the short one.
    """

    kind: str
    protocol: str
    point: Point
    method: str
    seed: int
    quick: bool = False

    @property
    def settings(self) -> ComparedMethod:
        """The method as registered."""
        return METHODS[self.method]

    def data_axes(self) -> dict[str, Any]:
        """The named axes that determine the data; a method is not among them, so all methods see the same data."""
        axes = {key: value for key, value in self.point.axes().items() if key != "participants"}
        return {**axes, "protocol": self.protocol, "seed": self.seed}

    @property
    def config(self) -> dict[str, Any]:
        """Everything that determines the result, as plain values."""
        protocol = PROTOCOLS.get(self.protocol)
        return {
            "kind": self.kind,
            "protocol": self.protocol,
            "w_range": None if protocol is None else list(protocol.w_range),
            "point": self.point.axes(),
            "method": self.method,
            "settings": self.settings.settings_for(self.point, self.kind, self.quick),
            "seed": self.seed,
        }

    @property
    def id(self) -> str:
        """Hash of `config`."""
        return identity(self.config)

    @property
    def cost(self) -> float:
        """Seconds this is expected to take, roughly; only for order and progress."""
        return self.settings.expected_seconds(self.point, self.kind, self.quick)


def identity(config: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits of the SHA-256 of a configuration's canonical JSON."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def hashed_seed(axes: Mapping[str, Any]) -> int:
    """A seed from named axes: adding an axis value never changes the data of another."""
    text = json.dumps(axes, sort_keys=True, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 2**63


def expand(experiment: Experiment, *, seeds: int | None = None, quick: bool = False) -> list[Cell]:
    """All cells of an experiment, in the order of its axes.

    `seeds` replaces the number of seeds; real data have one.
    """
    chosen = experiment.quick
    protocols = chosen.protocols if quick else experiment.protocols
    points = list(experiment.points)
    if quick:
        points = list(chosen.settings) or [experiment.points[i] for i in chosen.points]
    methods = chosen.methods if quick and chosen.methods is not None else experiment.methods
    default = chosen.seeds if quick else experiment.seeds
    n_seeds = 1 if experiment.kind in ("dream4", "netsim") else (default if seeds is None else seeds)
    return [
        Cell(experiment.kind, protocol, point, method, seed, quick)
        for protocol in protocols
        for point in points
        for seed in range(n_seeds)
        for method in methods
        if METHODS[method].applies_to(point, experiment.kind)
    ]


def in_order(cells: Iterable[Cell]) -> list[Cell]:
    """Different cells, cheap ones and low seeds first: an interrupted run has covered as much as it can."""
    unique = {cell.id: cell for cell in cells}
    return sorted(unique.values(), key=lambda cell: (cell.cost * (1 + cell.seed), cell.seed, cell.id))
