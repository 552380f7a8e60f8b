"""Experiments as frozen configurations, read from the TOML files in configs.

An unknown key, a missing one or a value of the wrong type is one sentence that names the file and the key.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from feddbn.errors import ParameterError, reading
from feddbn.privacy.policy import Table, read_table

CONFIGS = Path(__file__).parent / "configs"


class Protocol(Table):
    """How simulated data are drawn: the range of absolute weights, and where that range comes from."""

    name: str
    w_range: tuple[float, float]
    note: str


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            name="paper-text",
            w_range=(0.3, 0.5),
            note="weights ±[0.3, 0.5] as the paper's text says, a stable structural VAR after burn-in",
        ),
        Protocol(
            name="strong",
            w_range=(0.5, 2.0),
            note="weights ±[0.5, 2], the range the authors' released generator draws, otherwise the same",
        ),
    )
}


def connectivity_degree(level: str, d: int) -> float:
    """The mean degree the paper's personalised experiments call "low" or "high" connectivity.

    [fdbnl] "Varying Number of Variables" of PFDBNL: low ``floor(d/2) - d/5``, high ``d - d/5``; kept between
    0 and d - 1, which matters below d = 5 only.

    Examples
    --------
    >>> from reproduction.config import connectivity_degree
    >>> connectivity_degree("low", 10), connectivity_degree("high", 10)
    (3.0, 8.0)
    """
    degree = d // 2 - d / 5 if level == "low" else d - d / 5
    return min(max(degree, 0.0), d - 1.0)


class Point(Table):
    """One setting on an experiment's axis; a simulated federation, a DREAM4 network or a NetSim simulation."""

    d: int | None = Field(default=None, ge=2)
    n_lags: int = Field(default=1, ge=0)
    n_sites: int | None = Field(default=None, ge=1)
    n_samples: int | None = Field(default=None, ge=1)
    mean_degree: float = Field(default=4.0, ge=0)
    lag_degree: float = Field(default=1.0, ge=0)
    heterogeneity: float | Literal["independent"] = 0.0
    connectivity: Literal["low", "high"] | None = None
    participants: int | None = Field(default=None, ge=1)
    network: int | None = Field(default=None, ge=0, le=5)
    sim: int | None = Field(default=None, ge=1, le=3)

    @property
    def degree(self) -> float:
        """The mean degree of W."""
        if self.connectivity is None:
            return self.mean_degree
        return connectivity_degree(self.connectivity, self.d or 10)

    def axes(self) -> dict[str, Any]:
        """The keys that were given or differ from their default, for names, hashes and tables."""
        return self.model_dump(exclude_defaults=True)


class Quick(Table):
    """What ``--quick`` keeps: positions of points, number of seeds, protocols, methods.

    `settings` are points of the tour alone, smaller than any of the experiment's own; they replace `points`.
    """

    points: tuple[int, ...] = (0,)
    settings: tuple[Point, ...] = ()
    seeds: int = Field(default=1, ge=1)
    protocols: tuple[str, ...] = ("paper-text",)
    methods: tuple[str, ...] | None = None


class Column(Table):
    """One method as shown in tables and plots: a method's rows, and which lambda of its path is picked."""

    label: str
    method: str
    variant: str | None = None
    pick: Literal["best", "only"] | float = "only"
    plot: bool = False


STANDARD_COLUMNS = (
    Column(label="FDBNL (paper, tuned)", method="fdbnl-paper", pick="best", plot=True),
    Column(label="FDBNL (ours)", method="fdbnl", plot=True),
    Column(label="FDBNL (ours, tuned)", method="fdbnl-tuned", pick="best"),
    Column(label="Alldata", method="alldata", pick=0.05, plot=True),
    Column(label="Alldata (tuned)", method="alldata", pick="best"),
    Column(label="Ave", method="local", variant="Ave", plot=True),
    Column(label="Best", method="local", variant="Best", plot=True),
    Column(label="Vote", method="local", variant="Vote"),
    Column(label="LocalOnly", method="local", variant="LocalOnly"),
    Column(label="PFDBNL (paper)", method="pfdbnl-paper"),
    Column(label="PFDBNL (auto)", method="pfdbnl"),
    Column(label="OneShotDBN", method="oneshot", plot=True),
)
"""Every method in every simulated experiment; "tuned" looks at the truth, as the paper did."""


class Claim(Table):
    """A sentence of the paper about an order of methods, checked position by position.

    `at` are the positions it speaks of (all if empty): there, `measure` of `column` must be lower (or higher) than
    that of every column in `than`.
    """

    text: str
    measure: str
    column: str
    than: tuple[str, ...]
    order: Literal["lower", "higher"] = "lower"
    at: tuple[float | str, ...] = ()


class Quoted(Table):
    """Numbers the paper states for one of its methods, along the experiment's axis."""

    measure: str
    values: tuple[float, ...]
    at: tuple[float | str, ...]
    column: str
    ours: str
    source: str
    reason: str = ""

    @model_validator(mode="after")
    def _one_value_per_position(self) -> Quoted:
        if len(self.values) != len(self.at):
            raise ValueError(
                f"quoted values of {self.measure} are {len(self.values)}, positions {len(self.at)}"
            )
        return self


class Published(Table):
    """Figures of another published method, quoted from the paper, not run here."""

    label: str
    note: str
    values: dict[str, float]


class Experiment(Table):
    """A figure or table of the paper: the grid to run and how to show it."""

    name: str
    title: str
    kind: Literal["federation", "personal", "heatmap", "example", "dream4", "netsim"]
    figures: tuple[str, ...]
    what: str
    commentary: str = ""
    axis: str
    axis_label: str
    protocols: tuple[str, ...]
    points: tuple[Point, ...]
    methods: tuple[str, ...] = tuple(dict.fromkeys(column.method for column in STANDARD_COLUMNS))
    columns: tuple[Column, ...] = STANDARD_COLUMNS
    seeds: int = Field(default=10, ge=1)
    quick: Quick = Quick()
    quoted: tuple[Quoted, ...] = ()
    claims: tuple[Claim, ...] = ()
    published: tuple[Published, ...] = ()
    layout: Literal["lines", "table", "heatmap", "matrices"] = "table"
    measures: tuple[str, ...] = ("W.shd_paper", "W.tpr", "W.fdr", "A.shd_paper", "A.tpr", "A.fdr")

    @model_validator(mode="after")
    def _names_exist(self) -> Experiment:
        unknown = [
            name for name in (*self.protocols, *self.quick.protocols) if name not in (*PROTOCOLS, "data")
        ]
        if unknown:
            raise ValueError(f"unknown protocol {unknown[0]!r}; known are {', '.join(PROTOCOLS)} and data")
        wrong = [i for i in self.quick.points if not 0 <= i < len(self.points)]
        if wrong:
            raise ValueError(f"quick.points has {wrong[0]}, but there are {len(self.points)} points")
        missing = [c.method for c in self.columns if c.method not in self.methods]
        if missing:
            raise ValueError(f"column method {missing[0]!r} is not among the methods")
        labels = {column.label for column in self.columns}
        for quoted in self.quoted:
            _known((quoted.column, quoted.ours), labels)
        for claim in self.claims:
            _known((claim.column, *claim.than), labels)
        return self


def _known(named: tuple[str, ...], labels: set[str]) -> None:
    odd = [label for label in named if label not in labels]
    if odd:
        raise ValueError(f"column {odd[0]!r} is not among the columns")


def experiment_names() -> tuple[str, ...]:
    """Names of the experiments in configs, in the paper's order."""
    return tuple(file.stem.partition("_")[2] for file in sorted(CONFIGS.glob("*.toml")))


def load_experiment(name: str) -> Experiment:
    """One experiment by its name, or from a TOML file of the user's if `name` ends in ``.toml``."""
    if name.endswith(".toml"):
        with reading(repr(name)):
            text = Path(name).read_text(encoding="utf-8")
        return parse_experiment(text, name)
    for file in CONFIGS.glob(f"*_{name}.toml"):
        return parse_experiment(file.read_text(encoding="utf-8"), file.name)
    raise ParameterError(f"no experiment is called {name!r}; choose all, {', '.join(experiment_names())}.")


def load_experiments(name: str = "all") -> tuple[Experiment, ...]:
    """The experiments that a name stands for; ``all`` is every one."""
    names = experiment_names() if name == "all" else (name,)
    return tuple(load_experiment(one) for one in names)


def parse_experiment(text: str, source: str) -> Experiment:
    """The experiment a TOML text describes; `source` names it in errors."""
    return read_table(Experiment, text, repr(source))
